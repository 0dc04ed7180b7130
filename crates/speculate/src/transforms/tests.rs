//! Each transform, their order and their errors, by examples worked by hand.

use super::*;
use crate::History;

/// The distribution (dense) of the logits ln w for the weights given, without a history.
fn distribution(weights: &[f32], change: impl FnOnce(&mut SamplingSettings)) -> Vec<f32> {
    let logits: Vec<f32> = weights.iter().map(|w| w.ln()).collect();
    apply(&logits, &History::default(), &[], change)
}

fn apply(
    logits: &[f32],
    history: &History,
    path: &[TokenId],
    change: impl FnOnce(&mut SamplingSettings),
) -> Vec<f32> {
    let mut settings = SamplingSettings::unchanged();
    change(&mut settings);
    let allowed = AllowedTokens::all(logits.len());
    let mut out = Distribution::one_hot(TokenId(0));
    Transforms::new()
        .apply(
            logits,
            &settings,
            history.with_path(path),
            &allowed,
            &mut out,
        )
        .expect("a distribution");
    (0..logits.len())
        .map(|id| out.probability(TokenId(id as u32)))
        .collect()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f32]) {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6 && (*a == 0.0) == (*b == 0.0);
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(close),
        "{got:?} is not {expected:?}"
    );
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|&id| TokenId(id)).collect()
}

#[test]
fn nothing_switched_on_is_the_softmax() {
    // 8 + 4 + 2 + 2 = 16.
    assert_close(
        &distribution(&[8.0, 4.0, 2.0, 2.0], |_| {}),
        &[0.5, 0.25, 0.125, 0.125],
    );
}

#[test]
fn temperature_raises_the_weights_to_its_reciprocal() {
    // Squares of 4, 2, 1, 1: 16, 4, 1, 1 over 22.
    let got = distribution(&[4.0, 2.0, 1.0, 1.0], |s| s.temperature = 0.5);
    assert_close(&got, &[16.0 / 22.0, 4.0 / 22.0, 1.0 / 22.0, 1.0 / 22.0]);
    // Square roots of 16, 4, 4: 4, 2, 2 over 8.
    let got = distribution(&[16.0, 4.0, 4.0], |s| s.temperature = 2.0);
    assert_close(&got, &[0.5, 0.25, 0.25]);
}

#[test]
fn temperature_0_takes_the_largest_logit_and_the_lowest_id_among_equals() {
    let got = distribution(&[1.0, 3.0, 3.0, 2.0], |s| s.temperature = 0.0);
    assert_eq!(got, [0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn a_temperature_whose_reciprocal_overflows_is_nearly_0_and_not_nan() {
    for temperature in [1e-45, 1e-30, 1e-3] {
        let got = distribution(&[1.0, 3.0, 3.0, 2.0], |s| s.temperature = temperature);
        assert_eq!(got, [0.0, 0.5, 0.5, 0.0]);
    }
}

#[test]
fn top_k_keeps_the_largest_and_the_lowest_ids_among_equals() {
    // 6 and the first two of the three 3s: 6, 3, 3 over 12.
    let got = distribution(&[3.0, 1.0, 3.0, 6.0, 3.0], |s| s.top_k = 3);
    assert_close(&got, &[0.25, 0.0, 0.25, 0.5, 0.0]);
    assert_eq!(
        distribution(&[3.0, 1.0, 3.0], |s| s.top_k = 1),
        [1.0, 0.0, 0.0]
    );
    // As many as there are, or more, is off; so is 0.
    for k in [0, 3, 4, u32::MAX] {
        assert_close(
            &distribution(&[2.0, 1.0, 1.0], |s| s.top_k = k),
            &[0.5, 0.25, 0.25],
        );
    }
    // Impossible tokens are never among the kept.
    assert_close(
        &distribution(&[2.0, 0.0, 2.0, 0.0], |s| s.top_k = 3),
        &[0.5, 0.0, 0.5, 0.0],
    );
}

#[test]
fn top_p_keeps_the_fewest_tokens_that_reach_the_mass() {
    // Probabilities 1/8, 1/2, 1/8, 1/4. The order is 1, 3, 0, 2 with masses 4/8, 6/8, 7/8, 8/8.
    let weights = [1.0, 4.0, 1.0, 2.0];
    let all = [0.125, 0.5, 0.125, 0.25];
    for (top_p, expected) in [
        (0.0, [0.0, 1.0, 0.0, 0.0]),
        (0.49, [0.0, 1.0, 0.0, 0.0]),
        (0.51, [0.0, 4.0 / 6.0, 0.0, 2.0 / 6.0]),
        (0.74, [0.0, 4.0 / 6.0, 0.0, 2.0 / 6.0]),
        // The token that crosses the mass is kept; of the equals, the lower id.
        (0.76, [1.0 / 7.0, 4.0 / 7.0, 0.0, 2.0 / 7.0]),
        (0.88, all),
        (1.0, all),
    ] {
        assert_close(&distribution(&weights, |s| s.top_p = top_p), &expected);
    }
    // Exactly reached is reached: equal logits have equal weights, here 1, and 2 of 4 are 0.5.
    assert_close(
        &distribution(&[1.0; 4], |s| s.top_p = 0.5),
        &[0.5, 0.5, 0.0, 0.0],
    );
}

#[test]
fn top_p_finds_a_long_run_too() {
    // 5000 equal tokens: 0.5 is reached by the first 2500 (several rounds of the search).
    let got = distribution(&[1.0; 5000], |s| s.top_p = 0.5);
    assert_eq!(got.iter().filter(|&&p| p > 0.0).count(), 2500);
    assert!(got[2499] > 0.0 && got[2500] == 0.0);
}

#[test]
fn min_p_compares_with_the_largest() {
    // The bound is 0.3 * 8 = 2.4 on the weights: 8 and 4 stay.
    let got = distribution(&[8.0, 4.0, 2.0, 2.0], |s| s.min_p = 0.3);
    assert_close(&got, &[8.0 / 12.0, 4.0 / 12.0, 0.0, 0.0]);
    // 1 keeps all those as probable as the largest.
    assert_close(
        &distribution(&[2.0, 1.0, 2.0], |s| s.min_p = 1.0),
        &[0.5, 0.0, 0.5],
    );
}

#[test]
fn bias_is_added_to_the_logit() {
    // ln 3 on a weight of 2 makes 6: 6 + 1 + 1 = 8. A token beyond the row is passed over.
    let got = distribution(&[1.0, 2.0, 1.0], |s| {
        s.logit_bias = vec![(TokenId(1), 3f32.ln()), (TokenId(3), 5.0)];
    });
    assert_close(&got, &[0.125, 0.75, 0.125]);
}

#[test]
fn repetition_divides_positive_logits_and_multiplies_negative_ones() {
    let ln2 = std::f32::consts::LN_2;
    let mut history = History::new(&tokens(&[0, 0]));
    history.push(TokenId(2));
    // Tokens 0 (prompt) and 2 (output): 2 ln 2 / 2 = ln 2, -ln 2 * 2 = -2 ln 2, once however often seen.
    // Weights 2, 4, 1/4, 1/2 over 27/4.
    let logits = [2.0 * ln2, 2.0 * ln2, -ln2, -ln2];
    let got = apply(&logits, &history, &[], |s| s.repeat_penalty = 2.0);
    assert_close(&got, &[8.0 / 27.0, 16.0 / 27.0, 1.0 / 27.0, 2.0 / 27.0]);
}

#[test]
fn frequency_counts_and_presence_does_not_and_neither_sees_the_prompt() {
    let ln2 = std::f32::consts::LN_2;
    let mut history = History::new(&tokens(&[0, 1]));
    for id in [1, 2, 1] {
        history.push(TokenId(id));
    }
    // Equal logits; token 1 twice, token 2 once in the output. Frequency ln 2: 1, 1/4, 1/2, 1 over 11/4.
    let got = apply(&[0.0; 4], &history, &[], |s| s.frequency_penalty = ln2);
    assert_close(&got, &[4.0 / 11.0, 1.0 / 11.0, 2.0 / 11.0, 4.0 / 11.0]);
    // Presence ln 2: 1, 1/2, 1/2, 1 over 3.
    let got = apply(&[0.0; 4], &history, &[], |s| s.presence_penalty = ln2);
    assert_close(&got, &[2.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 2.0 / 6.0]);
    // Both, negative: 1, 8, 4, 1 over 14.
    let got = apply(&[0.0; 4], &history, &[], |s| {
        (s.frequency_penalty, s.presence_penalty) = (-ln2, -ln2);
    });
    assert_close(&got, &[1.0 / 14.0, 8.0 / 14.0, 4.0 / 14.0, 1.0 / 14.0]);
}

#[test]
fn a_path_counts_as_output_that_was_emitted() {
    let logits: Vec<f32> = (0..8).map(|id| ((id * 5) % 8) as f32 * 0.4 - 1.0).collect();
    let penalties = |s: &mut SamplingSettings| {
        (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) = (1.3, 0.4, 0.2);
    };
    let path = tokens(&[3, 5, 3, 1, 9]);
    let mut history = History::new(&tokens(&[0, 3]));
    history.push(TokenId(5));
    let on_path = apply(&logits, &history, &path, penalties);
    path.iter().for_each(|&token| history.push(token));
    assert_eq!(on_path, apply(&logits, &history, &[], penalties));
}

#[test]
fn each_step_sees_the_result_of_the_one_before() {
    // Bias before repetition: (0 + ln 4) / 2 = ln 2; the other order would give ln 4.
    let ln2 = std::f32::consts::LN_2;
    let history = History::new(&tokens(&[0]));
    let got = apply(&[0.0, 0.0], &history, &[], |s| {
        s.logit_bias = vec![(TokenId(0), 2.0 * ln2)];
        s.repeat_penalty = 2.0;
    });
    assert_close(&got, &[2.0 / 3.0, 1.0 / 3.0]);
    // Repetition before frequency: ln 4 / 2 - ln 2 = 0; the other order would give (ln 2) / 2.
    let mut history = History::default();
    history.push(TokenId(0));
    let got = apply(&[2.0 * ln2, 0.0], &history, &[], |s| {
        (s.repeat_penalty, s.frequency_penalty) = (2.0, ln2);
    });
    assert_close(&got, &[0.5, 0.5]);
    // Penalties before top-k: 6 becomes 6 / 8, so 4 and 2 are kept.
    let got = apply(&[6f32.ln(), 4f32.ln(), 2f32.ln()], &history, &[], |s| {
        (s.presence_penalty, s.top_k) = (2.0, 2);
    });
    assert_close(&got, &[0.0, 4.0 / 6.0, 2.0 / 6.0]);
    // Temperature before top-p: squares 16, 4, 4 of 24; 0.6 is reached by the first (at temperature 1
    // 4, 2, 2 of 8 would need two).
    let got = distribution(&[4.0, 2.0, 2.0], |s| (s.temperature, s.top_p) = (0.5, 0.6));
    assert_eq!(got, [1.0, 0.0, 0.0]);
    // Temperature before min-p: 4 / 16 is below 0.3, 2 / 4 is not.
    let got = distribution(&[4.0, 2.0], |s| (s.temperature, s.min_p) = (0.5, 0.3));
    assert_eq!(got, [1.0, 0.0]);
    // Top-k before top-p: of 4, 3, 3 the two kept are 7; 0.5 * 7 is reached by the first (of 10 it is not).
    let got = distribution(&[4.0, 3.0, 3.0], |s| (s.top_k, s.top_p) = (2, 0.5));
    assert_eq!(got, [1.0, 0.0, 0.0]);
    // Top-p before min-p: 0.6 of 4, 2, 1, 1 takes 4 and 2, and min-p leaves both. Of min-p's own result,
    // 4 and 2, the 4 alone would be enough.
    let got = distribution(&[4.0, 2.0, 1.0, 1.0], |s| (s.top_p, s.min_p) = (0.6, 0.45));
    assert_close(&got, &[4.0 / 6.0, 2.0 / 6.0, 0.0, 0.0]);
}

#[test]
fn tokens_outside_of_the_set_come_before_everything_else() {
    // Token 1 has the largest logit and token 4 is padding with NaN: without them 4, 2, 2.
    let logits = [4f32.ln(), 9.0, 2f32.ln(), 2f32.ln(), f32::NAN];
    let mut allowed = AllowedTokens::all(4);
    allowed.ban(TokenId(1));
    let history = History::default();
    let mut out = Distribution::one_hot(TokenId(1));
    let mut transforms = Transforms::new();
    let mut run = |change: fn(&mut SamplingSettings)| {
        let mut settings = SamplingSettings::unchanged();
        change(&mut settings);
        transforms
            .apply(&logits, &settings, history.view(), &allowed, &mut out)
            .expect("valid");
        [0, 1, 2, 3, 4].map(|id| out.probability(TokenId(id)))
    };
    assert_close(&run(|_| {}), &[0.5, 0.0, 0.25, 0.25, 0.0]);
    assert_close(
        &run(|s| s.top_k = 2),
        &[4.0 / 6.0, 0.0, 2.0 / 6.0, 0.0, 0.0],
    );
    assert_close(&run(|s| s.temperature = 0.0), &[1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_close(&run(|s| s.min_p = 0.6), &[1.0, 0.0, 0.0, 0.0, 0.0]);
    // Not even the largest bias brings a banned token back.
    assert_close(
        &run(|s| s.logit_bias = vec![(TokenId(1), 100.0), (TokenId(4), 100.0)]),
        &[0.5, 0.0, 0.25, 0.25, 0.0],
    );
}

#[test]
fn a_broken_row_gives_an_error_and_leaves_the_result_alone() {
    let before = Distribution::from_dense(&[0.25, 0.75]).expect("valid");
    let history = History::default();
    let allowed = AllowedTokens::all(3);
    let error = |logits: &[f32], settings: &SamplingSettings| {
        let mut out = before.clone();
        let result = Transforms::new().apply(logits, settings, history.view(), &allowed, &mut out);
        assert_eq!(out, before);
        result.expect_err("must be refused")
    };
    let off = f32::NEG_INFINITY;
    for settings in [
        SamplingSettings::unchanged(),
        SamplingSettings::greedy(),
        SamplingSettings::default(),
    ] {
        let token = TokenId(1);
        assert_eq!(
            error(&[0.0, f32::NAN, 0.0], &settings),
            DistributionError::NotANumber { token }
        );
        assert_eq!(
            error(&[0.0, f32::INFINITY, 0.0], &settings),
            DistributionError::Infinite { token }
        );
        assert_eq!(
            error(&[off, off, off], &settings),
            DistributionError::NothingPossible
        );
        // The only finite logit is that of padding.
        assert_eq!(
            error(&[off, off, off, 1.0], &settings),
            DistributionError::NothingPossible
        );
        assert_eq!(error(&[], &settings), DistributionError::NothingPossible);
    }
    let settings = SamplingSettings {
        temperature: f32::NAN,
        ..SamplingSettings::default()
    };
    assert!(
        error(&[0.0; 3], &settings)
            .to_string()
            .starts_with("temperature is NaN")
    );
    // -infinity beside a finite logit only means impossible.
    assert_eq!(
        apply(&[off, 0.0, off], &history, &[], |_| {}),
        [0.0, 1.0, 0.0]
    );
}

#[test]
fn extreme_logits_do_not_overflow() {
    assert_eq!(
        apply(&[f32::MAX, f32::MIN], &History::default(), &[], |_| {}),
        [1.0, 0.0]
    );
    assert_eq!(
        apply(&[f32::MIN, f32::MIN], &History::default(), &[], |_| {}),
        [0.5, 0.5]
    );
}

#[test]
fn a_second_row_grows_no_buffer() {
    let logits: Vec<f32> = (0..5000)
        .map(|id| ((id * 37) % 1009) as f32 * 0.01)
        .collect();
    let path = tokens(&[1, 2, 3]);
    let history = History::new(&tokens(&[5, 6]));
    let allowed = AllowedTokens::all(4990);
    let mut transforms = Transforms::new();
    let mut out = Distribution::one_hot(TokenId(0));
    let unchanged = SamplingSettings::unchanged;
    for settings in [
        SamplingSettings::default(),
        SamplingSettings {
            top_p: 0.9,
            ..unchanged()
        },
        SamplingSettings {
            top_k: 1000,
            repeat_penalty: 1.1,
            ..unchanged()
        },
        SamplingSettings::greedy(),
    ] {
        let mut row = || {
            transforms
                .apply(
                    &logits,
                    &settings,
                    history.with_path(&path),
                    &allowed,
                    &mut out,
                )
                .expect("valid");
            let Transforms {
                values,
                keys,
                path_logits,
            } = &transforms;
            let (tokens, probabilities) = (out.support().as_ptr(), out.probabilities().as_ptr());
            let buffers = (
                values.as_ptr(),
                keys.as_ptr(),
                path_logits.as_ptr(),
                tokens,
                probabilities,
            );
            (
                buffers,
                values.capacity(),
                keys.capacity(),
                path_logits.capacity(),
            )
        };
        assert_eq!(row(), row());
    }
}
