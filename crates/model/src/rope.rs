//! Rotary position embeddings: the frequencies of each scaling kind, and the table made from them.
//!
//! RoPE (Su et al. 2104.09864): pair `i` of a head turns by `position * base^(-2i/dims)`. The scaling kinds
//! stretch these frequencies: linear (position interpolation, Chen et al. 2306.15595), `llama3` (Llama 3.1:
//! long waves are stretched, short ones kept), YaRN (Peng et al. 2309.00071), and explicit factors.
//! All is computed in f64 by a portable library and rounded once, so a table has the same bits everywhere.

use std::f64::consts::PI;

use foredraft_formats::{RopeConfig, RopeLayout, RopeScaling};

use crate::architecture::ModelError;

/// The rotation of query and key heads.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Which values of a head make a pair.
    pub layout: RopeLayout,
    /// Radians a position for each pair; `2 * frequencies.len()` leading values of a head are rotated.
    pub frequencies: Vec<f64>,
    /// Multiplies cosine and sine (YaRN's attention factor), 1 otherwise.
    pub magnitude: f64,
}

impl RopeTable {
    /// The table of a configuration.
    ///
    /// # Errors
    /// When explicit factors are fewer or more than the pairs.
    pub fn new(config: &RopeConfig) -> Result<Self, ModelError> {
        let pairs = config.dims / 2;
        let plain: Vec<f64> = (0..pairs)
            .map(|i| libm::pow(config.base, -2.0 * i as f64 / config.dims as f64))
            .collect();
        let mut magnitude = 1.0;
        let frequencies = match &config.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => {
                plain.iter().map(|f| f / f64::from(*factor)).collect()
            }
            RopeScaling::Factors(factors) => {
                if factors.len() != pairs {
                    return Err(ModelError::RopeFactors {
                        found: factors.len(),
                        expected: pairs,
                    });
                }
                let factors = factors.iter().map(|f| f64::from(*f));
                plain.iter().zip(factors).map(|(f, by)| f / by).collect()
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let [factor, low, high] =
                    [factor, low_freq_factor, high_freq_factor].map(|v| f64::from(*v));
                // Share of the plain frequency: 1 for waves shorter than original/high, 0 beyond original/low.
                let keep = |f: f64| {
                    let turns = *original_context as f64 * f / (2.0 * PI);
                    ((turns - low) / (high - low)).clamp(0.0, 1.0)
                };
                plain
                    .iter()
                    .map(|&f| (1.0 - keep(f)) * f / factor + keep(f) * f)
                    .collect()
            }
            RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                let factor = f64::from(*factor);
                magnitude =
                    attention_factor.map_or_else(|| 0.1 * libm::log(factor) + 1.0, f64::from);
                // The pair that turns `beta` times over the original context (YaRN, section 3.2).
                let pair_of = |beta: f32| {
                    config.dims as f64
                        * libm::log(*original_context as f64 / (f64::from(beta) * 2.0 * PI))
                        / (2.0 * libm::log(config.base))
                };
                let low = pair_of(*beta_fast).floor().max(0.0);
                let high = pair_of(*beta_slow).ceil().min(config.dims as f64 - 1.0);
                let span = (high - low).max(0.001);
                plain
                    .iter()
                    .enumerate()
                    .map(|(i, &f)| {
                        let stretch = ((i as f64 - low) / span).clamp(0.0, 1.0);
                        stretch * f / factor + (1.0 - stretch) * f
                    })
                    .collect()
            }
        };
        Ok(Self {
            layout: config.layout,
            frequencies,
            magnitude,
        })
    }

    /// Pairs that are rotated.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Cosines and sines of `positions` positions, each `[positions, pairs]`.
    pub fn tables(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let mut cosines = Vec::with_capacity(positions * self.pairs());
        let mut sines = Vec::with_capacity(positions * self.pairs());
        for position in 0..positions {
            for frequency in &self.frequencies {
                let (sine, cosine) = libm::sincos(position as f64 * frequency);
                cosines.push((cosine * self.magnitude) as f32);
                sines.push((sine * self.magnitude) as f32);
            }
        }
        (cosines, sines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(base: f64, dims: usize, scaling: RopeScaling) -> RopeConfig {
        RopeConfig {
            base,
            dims,
            layout: RopeLayout::Halves,
            scaling,
        }
    }

    fn close(got: f64, expected: f64) {
        assert!(
            (got - expected).abs() <= 1e-9 * expected.abs(),
            "{got} is not {expected}"
        );
    }

    #[test]
    fn plain_frequencies_are_powers_of_the_base() {
        let table = RopeTable::new(&config(10_000.0, 4, RopeScaling::None)).expect("a table");
        assert_eq!(table.frequencies.len(), 2);
        close(table.frequencies[0], 1.0);
        close(table.frequencies[1], 0.01);
        let (cosines, sines) = table.tables(2);
        assert_eq!(cosines[..2], [1.0, 1.0]);
        assert_eq!(cosines[2], 1f64.cos() as f32);
        assert_eq!(sines[3], 0.01f64.sin() as f32);
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let table = RopeTable::new(&config(10_000.0, 4, RopeScaling::Linear { factor: 4.0 }))
            .expect("a table");
        close(table.frequencies[0], 0.25);
        close(table.frequencies[1], 0.0025);
    }

    /// Expectations by hand from Llama 3.1's rule: factor 8, low 1, high 4, original context 8192, base 500000,
    /// 128 dims. Pair 0 (wavelength 6.28 < 2048) is kept; pair 63 (wavelength 2.6e6 > 8192) is divided by 8;
    /// pair 32 has frequency 500000^-0.5 = 0.001414213562, wavelength 4442.88, so turns = 1.843853 and
    /// keep = 0.843853 / 3 = 0.281284: 0.718716 * f / 8 + 0.281284 * f = 0.000524847.
    #[test]
    fn llama3_scaling_keeps_short_waves_and_stretches_long_ones() {
        let table = RopeTable::new(&config(
            500_000.0,
            128,
            RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 8192,
            },
        ))
        .expect("a table");
        close(table.frequencies[0], 1.0);
        close(
            table.frequencies[63],
            libm::pow(500_000.0, -126.0 / 128.0) / 8.0,
        );
        assert!(
            (table.frequencies[32] - 0.000_524_847).abs() < 1e-9,
            "{}",
            table.frequencies[32]
        );
    }

    /// By hand for Qwen2.5's published YaRN (factor 4, original 32768, base 1e6, 128 dims, beta 32 and 1):
    /// low = floor(128 ln(32768 / 64 pi) / (2 ln 1e6)) = floor(23.5955) = 23,
    /// high = ceil(128 ln(32768 / 2 pi) / (2 ln 1e6)) = ceil(39.6507) = 40.
    #[test]
    fn yarn_interpolates_between_its_two_corners() {
        let table = RopeTable::new(&config(
            1e6,
            128,
            RopeScaling::Yarn {
                factor: 4.0,
                original_context: 32768,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: None,
            },
        ))
        .expect("a table");
        let plain = |i: f64| libm::pow(1e6, -2.0 * i / 128.0);
        close(table.frequencies[23], plain(23.0));
        close(table.frequencies[40], plain(40.0) / 4.0);
        let stretch = 7.0 / 17.0;
        close(
            table.frequencies[30],
            plain(30.0) * (stretch / 4.0 + 1.0 - stretch),
        );
        // 0.1 ln 4 + 1
        close(table.magnitude, 1.138_629_436_111_989);
    }

    #[test]
    fn factors_of_another_length_are_refused() {
        let error = RopeTable::new(&config(10_000.0, 8, RopeScaling::Factors(vec![1.0; 3])));
        assert!(matches!(
            error,
            Err(ModelError::RopeFactors {
                found: 3,
                expected: 4
            })
        ));
    }
}
