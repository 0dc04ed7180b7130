//! Counter-based random numbers: a draw is a function of what is being decided.
//!
//! A generator with a state gives each caller the next number, so the order of the calls, the batch
//! and the tokens drafted in between all leak into the text. Philox4x32-10 (Salmon, Moraes, Dror, Shaw:
//! "Parallel random numbers: as easy as 1, 2, 3", SC 2011) has no state: four random words are a
//! function of a counter and a key. The counter here names the decision ([`NoiseKey`], [`Purpose`], token),
//! so the noise of a token at a position is the same number whoever asks, and whenever.

use foredraft_common::{Position, TokenId};

use crate::wide::widest;

/// Multipliers of the two halves, from the paper.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the two key words: the golden ratio and sqrt(3) - 1 as fractions of 2^32.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Philox4x32 with 10 rounds: four random words from a counter and a key.
#[inline]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut left, mut right] = key;
    for _ in 0..10 {
        let first = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let second = u64::from(c) * u64::from(MULTIPLIERS[1]);
        a = (second >> 32) as u32 ^ b ^ left;
        b = second as u32;
        c = (first >> 32) as u32 ^ d ^ right;
        d = first as u32;
        left = left.wrapping_add(WEYL[0]);
        right = right.wrapping_add(WEYL[1]);
    }
    [a, b, c, d]
}

/// Blocks that are computed side by side.
const BLOCKS: usize = 16;

widest! {
    /// The words of the counters [first, b, c, d], [first + 1, b, c, d] and so on. A block in each lane: the arithmetic of a
    /// single block has too little that can be done at once.
    ///
    /// Lanes are as wide as the products. Their upper halves may hold anything but where they are multiplied, so that no
    /// instruction goes into moving halves about.
    fn philox_blocks<'a>(words: &'a mut [[u32; 4]], first: u32, counter: [u32; 3], key: [u32; 2]) {
        const LOW: u64 = u32::MAX as u64;
        for (out, first) in words.chunks_mut(BLOCKS).zip((first..).step_by(BLOCKS)) {
            let mut a = [u64::from(first); BLOCKS];
            for (a, i) in a.iter_mut().zip(0..) {
                *a += i;
            }
            let [mut b, mut c, mut d] = counter.map(|word| [u64::from(word); BLOCKS]);
            let [mut left, mut right] = key;
            for _ in 0..10 {
                for i in 0..BLOCKS {
                    let first = (a[i] & LOW) * u64::from(MULTIPLIERS[0]);
                    let second = (c[i] & LOW) * u64::from(MULTIPLIERS[1]);
                    a[i] = (second >> 32) ^ b[i] ^ u64::from(left);
                    b[i] = second;
                    c[i] = (first >> 32) ^ d[i] ^ u64::from(right);
                    d[i] = first;
                }
                left = left.wrapping_add(WEYL[0]);
                right = right.wrapping_add(WEYL[1]);
            }
            for (i, four) in out.iter_mut().enumerate() {
                *four = [a[i], b[i], c[i], d[i]].map(|word| word as u32);
            }
        }
    }
}

/// What a random number is for: the last word of the counter, so that two uses never share noise. Where a step
/// has several uses of one purpose, their number stands in the upper 24 bits.
///
/// The numbers are part of the promise that a seed keeps its text: they are never reused or changed.
/// Decisions that need 53 bits own two purposes, as [`TokenHigh`](Self::TokenHigh) and
/// [`TokenLow`](Self::TokenLow) do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// The upper 32 random bits of each token in the draw of the emitted token.
    TokenHigh = 0,
    /// The lower 32 bits of the same draw; made only for the few tokens that need them.
    TokenLow = 1,
    /// Verifiers: accept or reject a drafted token (upper and lower bits are words of one block).
    Accept = 2,
    /// Verifiers: upper bits of the draw from a residual.
    ResidualHigh = 4,
    /// Verifiers: lower bits of the draw from a residual.
    ResidualLow = 5,
    /// Verifiers: upper bits of the draw of a bonus token.
    BonusHigh = 6,
    /// Verifiers: lower bits of the draw of a bonus token.
    BonusLow = 7,
    /// Drafters that draw with noise of their own: upper bits.
    DraftHigh = 8,
    /// Drafters that draw with noise of their own: lower bits.
    DraftLow = 9,
}

/// Random numbers of one decision, by token: a trait, so that a test can plant or enumerate them.
///
/// Four tokens share a block (`block = token / 4`), because that is what one Philox call gives.
pub trait Noise {
    /// The upper 32 random bits of tokens `4 * block .. 4 * block + 4`.
    fn high_words(&self, block: u32) -> [u32; 4];

    /// [`high_words`](Self::high_words) of the blocks from `first` on, as many as there is room for.
    fn fill_high_words(&self, first: u32, words: &mut [[u32; 4]]) {
        for (four, block) in words.iter_mut().zip(first..) {
            *four = self.high_words(block);
        }
    }

    /// The lower 32 random bits of the same tokens.
    fn low_words(&self, block: u32) -> [u32; 4];

    /// The uniform number of `token`, in (0, 1).
    fn uniform(&self, token: TokenId) -> f64 {
        let (block, word) = (token.0 >> 2, token.index() & 3);
        uniform_from_words(self.high_words(block)[word], self.low_words(block)[word])
    }

    /// The exponentially distributed time of `token` (rate 1): -ln(1 - u), above 0 and finite.
    fn exponential(&self, token: TokenId) -> f64 {
        exponential_from_uniform(self.uniform(token))
    }
}

/// What keys the random numbers of one emitted token: nothing about requests, batches or steps is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NoiseKey {
    /// The seed of the request.
    pub seed: u64,
    /// The index of the choice among the `n` of the request.
    pub choice: u32,
    /// The absolute position of the token to be emitted.
    pub position: Position,
}

impl NoiseKey {
    /// Four random words for `purpose`: counter = [block, position, choice, purpose], key = the seed's words,
    /// lower one first. For draws over a vocabulary the block is `token / 4` and the word `token % 4`.
    #[inline]
    pub fn words(&self, purpose: Purpose, block: u32) -> [u32; 4] {
        self.words_of_use(purpose, 0, block)
    }

    /// The key of the token `tokens` later.
    pub fn later(self, tokens: u32) -> Self {
        Self {
            position: Position(self.position.0 + tokens),
            ..self
        }
    }

    /// The words of use `number` (below 2^24) of a purpose, which stands in the upper bits of the purpose's word.
    #[inline]
    fn words_of_use(&self, purpose: Purpose, number: u32, block: u32) -> [u32; 4] {
        let [b, c, d] = self.counter(purpose, number);
        philox4x32_10([block, b, c, d], self.seed_words())
    }

    /// The counter's words after the block.
    #[inline]
    fn counter(&self, purpose: Purpose, number: u32) -> [u32; 3] {
        debug_assert!(number < 1 << 24);
        [self.position.0, self.choice, purpose as u32 | number << 8]
    }

    #[inline]
    fn seed_words(&self) -> [u32; 2] {
        [self.seed as u32, (self.seed >> 32) as u32]
    }
}

/// The depth of the deepest node of a tree, and the most children of a node: what [`StepNoise`] can number.
pub(crate) const MAX_USES: u32 = 1 << 12;

/// The noise of one decision of a speculative step, other than the draw of the target's own token.
///
/// It is keyed by the position that the decision is about *and by how far ahead of the step's root that is*, so
/// that no two steps share a number. The position alone would do for verifiers that decide token by token: what they saw
/// of later positions has decided nothing. Block verification however looks ahead. That it cut a draft short
/// says something about the numbers of the positions behind the cut, and a step that drafted them again with
/// the same numbers would be biased.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepNoise {
    key: NoiseKey,
    number: u32,
    high: Purpose,
    low: Purpose,
}

impl StepNoise {
    /// `root` is the key of the token after the step's root; `depth` that of the node whose distribution is drawn
    /// from; `attempt` numbers the children of the node. The purposes are those of the upper and the lower bits.
    pub(crate) fn new(
        root: NoiseKey,
        depth: u32,
        attempt: u32,
        (high, low): (Purpose, Purpose),
    ) -> Self {
        Self {
            key: root.later(depth),
            number: depth * MAX_USES + attempt,
            high,
            low,
        }
    }

    /// A uniform number in [0, 1): 53 bits of the first two words of the upper bits' purpose.
    pub(crate) fn unit(&self) -> f64 {
        let [high, low, ..] = self.high_words(0);
        let bits = u64::from(high) << 32 | u64::from(low);
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Noise for StepNoise {
    #[inline]
    fn high_words(&self, block: u32) -> [u32; 4] {
        self.key.words_of_use(self.high, self.number, block)
    }

    fn fill_high_words(&self, first: u32, words: &mut [[u32; 4]]) {
        let counter = self.key.counter(self.high, self.number);
        philox_blocks(words, first, counter, self.key.seed_words());
    }

    #[inline]
    fn low_words(&self, block: u32) -> [u32; 4] {
        self.key.words_of_use(self.low, self.number, block)
    }
}

/// The noise of the emitted token. Drafters that want to agree with the target draw with it too.
impl Noise for NoiseKey {
    #[inline]
    fn high_words(&self, block: u32) -> [u32; 4] {
        self.words(Purpose::TokenHigh, block)
    }

    fn fill_high_words(&self, first: u32, words: &mut [[u32; 4]]) {
        let counter = self.counter(Purpose::TokenHigh, 0);
        philox_blocks(words, first, counter, self.seed_words());
    }

    #[inline]
    fn low_words(&self, block: u32) -> [u32; 4] {
        self.words(Purpose::TokenLow, block)
    }
}

/// The uniform number of 64 random bits: (k + 1/2) 2^-52, k the upper 52 bits.
///
/// 52 bits and not 53: k + 1/2 is then exact in f64, and the result lies in [2^-53, 1 - 2^-53]. (With
/// 53 bits the sum has to be rounded, and the largest k would give 1, whose logarithm is infinite.)
#[inline]
pub(crate) fn uniform_from_words(high: u32, low: u32) -> f64 {
    const SCALE: f64 = 1.0 / (1u64 << 52) as f64;
    let bits = u64::from(high) << 32 | u64::from(low);
    ((bits >> 12) as f64 + 0.5) * SCALE
}

/// -ln(1 - u): exponentially distributed with rate 1 when u is uniform.
#[inline]
pub(crate) fn exponential_from_uniform(u: f64) -> f64 {
    -libm::log1p(-u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_side_by_side_are_the_blocks_one_by_one() {
        for (first, count) in [(0, 1), (7, 33), (u32::MAX - 50, 40)] {
            let noise = NoiseKey {
                seed: 0x0123_4567_89ab_cdef,
                choice: 5,
                position: Position(77),
            };
            let step = StepNoise::new(noise, 3, 2, (Purpose::DraftHigh, Purpose::DraftLow));
            let mut words = vec![[0; 4]; count];
            noise.fill_high_words(first, &mut words);
            for (four, block) in words.iter().zip(first..) {
                assert_eq!(*four, noise.high_words(block));
            }
            step.fill_high_words(first, &mut words);
            for (four, block) in words.iter().zip(first..) {
                assert_eq!(*four, step.high_words(block));
            }
        }
    }

    /// The lines `philox4x32 10` of `kat_vectors`, published with Random123.
    #[test]
    fn philox_gives_the_published_known_answers() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn the_counter_is_block_position_choice_purpose_and_the_key_is_the_seed() {
        let key = NoiseKey {
            seed: 0x299f_31d0_a409_3822,
            choice: 0x1319_8a2e,
            position: Position(0x85a3_08d3),
        };
        let seed_words = [0xa409_3822, 0x299f_31d0];
        let block = 0x243f_6a88;
        for (purpose, number) in [(Purpose::TokenHigh, 0), (Purpose::TokenLow, 1)] {
            assert_eq!(
                key.words(purpose, block),
                philox4x32_10([block, 0x85a3_08d3, 0x1319_8a2e, number], seed_words)
            );
        }
        assert_eq!(key.high_words(7), key.words(Purpose::TokenHigh, 7));
        assert_eq!(key.low_words(7), key.words(Purpose::TokenLow, 7));
    }

    #[test]
    fn a_tokens_uniform_is_its_word_of_its_block() {
        let key = NoiseKey {
            seed: 5,
            choice: 1,
            position: Position(9),
        };
        let (high, low) = (key.high_words(10), key.low_words(10));
        for word in 0..4u32 {
            let k = (u64::from(high[word as usize]) << 20) | u64::from(low[word as usize] >> 12);
            let expected = (k as f64 + 0.5) / 2f64.powi(52);
            assert_eq!(key.uniform(TokenId(40 + word)), expected);
        }
    }

    #[test]
    fn a_uniform_is_never_0_or_1_and_never_below_its_upper_bits() {
        assert_eq!(uniform_from_words(0, 0), 2f64.powi(-53));
        assert_eq!(uniform_from_words(u32::MAX, u32::MAX), 1.0 - 2f64.powi(-53));
        for high in [0, 1, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for low in [0, 1, 0xfff, 0x1000, u32::MAX] {
                let u = uniform_from_words(high, low);
                assert!(u > 0.0 && u < 1.0);
                assert!(u > f64::from(high) / 2f64.powi(32), "{high} {low}");
                let time = exponential_from_uniform(u);
                assert!(time >= u && time.is_finite(), "{high} {low}");
            }
        }
    }

    /// Drafts and verdicts of a seed keep their noise only while this numbering stays.
    #[test]
    fn noise_of_a_step_is_keyed_by_position_depth_and_attempt() {
        let root = NoiseKey {
            seed: 3 << 32 | 4,
            choice: 1,
            position: Position(9),
        };
        let noise = StepNoise::new(root, 5, 2, (Purpose::DraftHigh, Purpose::DraftLow));
        for (words, purpose) in [(noise.high_words(11), 8), (noise.low_words(11), 9)] {
            let last = (5 * 4096 + 2) << 8 | purpose;
            assert_eq!(words, philox4x32_10([11, 14, 1, last], [4, 3]));
        }
        let [high, low, ..] = noise.high_words(0);
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        assert_eq!(noise.unit(), bits as f64 / 2f64.powi(53));
    }
}
