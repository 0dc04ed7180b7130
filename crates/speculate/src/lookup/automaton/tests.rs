//! The automaton against a twin that searches the whole text for everything.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use proptest::prelude::*;

use super::super::search::{Continuations, continuations_by_search, longest_match_by_search};
use super::*;

fn automaton_of(ids: impl IntoIterator<Item = u32>) -> SuffixAutomaton {
    let mut automaton = SuffixAutomaton::new();
    for id in ids {
        automaton.push(TokenId(id));
    }
    automaton
}

fn continuations(automaton: &SuffixAutomaton, state: StateId) -> Continuations {
    let mut found = Continuations::new();
    for next in automaton.continuations(state) {
        let before = found.insert(next.token.0, (next.count, next.recent_end));
        assert_eq!(before, None, "token {} twice", next.token);
    }
    found
}

/// How many suffixes of the text have states of their own.
fn chain_len(automaton: &SuffixAutomaton) -> usize {
    let mut state = automaton.last;
    let mut len = 0;
    while state != ROOT {
        state = automaton.state(state).link;
        len += 1;
    }
    len
}

/// Reads `text` token by token and compares everything after each; then walks every substring from the root.
fn check_against_search(text: &[u32]) -> Result<(), TestCaseError> {
    let mut automaton = SuffixAutomaton::new();
    let mut exact = true;
    for len in 1..=text.len() {
        let text = &text[..len];
        automaton.push(TokenId(text[len - 1]));
        exact &= chain_len(&automaton) <= PROPAGATED + 1;

        let found = automaton.longest_match();
        prop_assert_eq!(found.len as usize, longest_match_by_search(text));
        if found.len > 0 {
            let pattern = &text[len - found.len as usize..];
            check_state(&automaton, found.state, text, pattern, exact)?;
        }
    }
    for start in 0..text.len() {
        let mut state = ROOT;
        for end in start + 1..=text.len() {
            let edge = automaton.find(state, TokenId(text[end - 1]));
            let edge = edge.ok_or_else(|| TestCaseError::fail("a substring is not read"))?;
            state = automaton.edges[edge as usize].target;
            check_state(&automaton, state, text, &text[start..end], exact)?;
        }
    }
    prop_assert!(automaton.states.len() <= 2 * text.len().max(1));
    prop_assert!(automaton.edges.len() <= 3 * text.len());
    Ok(())
}

fn check_state(
    automaton: &SuffixAutomaton,
    state: StateId,
    text: &[u32],
    pattern: &[u32],
    exact: bool,
) -> Result<(), TestCaseError> {
    let found = continuations(automaton, state);
    let expected = continuations_by_search(text, pattern);
    prop_assert_eq!(automaton.is_end(state), expected.is_empty());
    if exact {
        prop_assert_eq!(found, expected);
        return Ok(());
    }
    prop_assert!(found.keys().eq(expected.keys()));
    for (token, (count, end)) in found {
        prop_assert!((1..=expected[&token].0).contains(&count));
        // An end is one: the pattern and the token stand before it.
        let end = end as usize;
        prop_assert!(end <= text.len());
        prop_assert_eq!(text[end - 1], token);
        prop_assert!(text[..end - 1].ends_with(pattern));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn agrees_with_a_search_of_the_text(
        text in (1..6u32).prop_flat_map(|letters| prop::collection::vec(0..letters, 0..40)),
    ) {
        check_against_search(&text)?;
    }

    /// A period with some mistakes: deep chains, splits in the middle, runs.
    #[test]
    fn agrees_with_a_search_of_a_periodic_text(
        period in prop::collection::vec(0..3u32, 1..5),
        mistakes in prop::collection::vec((0..90usize, 0..3u32), 0..4),
    ) {
        let mut text: Vec<u32> = period.iter().copied().cycle().take(90).collect();
        for (place, token) in mistakes {
            text[place] = token;
        }
        check_against_search(&text)?;
    }

    /// Wide states, which are found by hash, split as well.
    #[test]
    fn agrees_with_a_search_where_states_are_wide(
        text in prop::collection::vec(prop_oneof![Just(0u32), Just(1), 0..24u32], 0..150),
    ) {
        check_against_search(&text)?;
    }
}

/// "1" follows 0 alone before 20 different tokens, then 2: its state is split off one that is wide.
#[test]
fn a_wide_state_is_split() {
    let text: Vec<u32> = (10..30)
        .flat_map(|id| [0, 1, id])
        .chain([2, 1, 40, 3, 1, 12, 1, 41])
        .collect();
    check_against_search(&text).unwrap();
}

#[test]
fn a_match_and_its_continuations_by_hand() {
    // 1 2 3 | 1 2 4 | 1 2 3 | 1 2: the longest earlier suffix is "1 2 3 1 2", which 4 followed.
    let automaton = automaton_of([1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]);
    let found = automaton.longest_match();
    assert_eq!(found.len, 5);
    assert_eq!(continuations(&automaton, found.state), [(4, (1, 6))].into());
    // "1 2" stood before 3 twice, the last time up to token 9, and before 4 once.
    let shorter = automaton.state(found.state).link;
    assert_eq!(automaton.state(shorter).len, 2);
    assert_eq!(
        continuations(&automaton, shorter),
        [(3, (2, 9)), (4, (1, 6))].into()
    );
}

#[test]
fn nothing_is_found_in_an_empty_text_or_of_a_new_token() {
    assert_eq!(SuffixAutomaton::new().longest_match().len, 0);
    assert_eq!(automaton_of([7]).longest_match().len, 0);
    assert_eq!(automaton_of([7, 7, 8]).longest_match().len, 0);
    assert_eq!(automaton_of([7, 8, 7]).longest_match().len, 1);
}

#[test]
fn a_cleared_automaton_is_a_new_one() {
    let mut automaton = automaton_of([1, 2, 1, 2, 1]);
    automaton.clear();
    assert_eq!(automaton.longest_match().len, 0);
    for id in [2, 1, 2] {
        automaton.push(TokenId(id));
    }
    assert_eq!(automaton.text(), [2, 1, 2].map(TokenId));
    assert_eq!(automaton.longest_match().len, 1);
    assert_eq!(automaton.states.len(), automaton_of([2, 1, 2]).states.len());
}

/// Texts that are known to be bad for automata and for counts: work and memory a token stay below fixed bounds.
#[test]
fn the_worst_texts_cost_a_bounded_amount_a_token() {
    const LEN: u32 = 100_000;
    let fibonacci = || {
        let (mut a, mut b) = (vec![0], vec![0, 1]);
        while b.len() < LEN as usize {
            let next = [b.as_slice(), a.as_slice()].concat();
            (a, b) = (b, next);
        }
        b.truncate(LEN as usize);
        b
    };
    let texts: [(&str, Vec<u32>); 7] = [
        ("equal", vec![5; LEN as usize]),
        ("period 2", (0..LEN).map(|i| i % 2).collect()),
        ("period 7", (0..LEN).map(|i| i % 7).collect()),
        ("all different", (0..LEN).collect()),
        // The most edges: 0 1^n 2; the most states: 0 1^n.
        (
            "a run between",
            (0..LEN)
                .map(|i| u32::from(i > 0) + u32::from(i == LEN - 1))
                .collect(),
        ),
        (
            "one token before all others",
            (0..LEN).map(|i| (i % 2) * (i + 1)).collect(),
        ),
        ("fibonacci", fibonacci()),
    ];
    for (name, text) in texts {
        let automaton = automaton_of(text);
        let work = automaton.work.load(std::sync::atomic::Ordering::Relaxed);
        // A find looks at NARROW edges at most; Blumer's bound is some 3 finds a token.
        let most = u64::from(LEN) * (PROPAGATED as u64 + 6 * (1 + u64::from(NARROW)));
        assert!(work <= most, "{name}: {work} steps, not {most}");
        assert!(automaton.states.len() <= 2 * LEN as usize, "{name}: states");
        assert!(automaton.edges.len() <= 3 * LEN as usize, "{name}: edges");
        let bytes = automaton.bytes() / LEN as usize;
        assert!(bytes <= 250, "{name}: {bytes} bytes a token");
    }
}

#[test]
fn the_continuations_of_a_state_are_bounded() {
    // Token 0 before each of 3000 others: the first ones are left out.
    let automaton = automaton_of((1..=3000).flat_map(|id| [0, id]).chain([0]));
    let found = automaton.longest_match();
    assert_eq!(found.len, 1);
    let tokens: Vec<u32> = automaton
        .continuations(found.state)
        .map(|next| next.token.0)
        .collect();
    assert_eq!(
        tokens,
        (1..=3000)
            .rev()
            .take(MOST_CONTINUATIONS)
            .collect::<Vec<_>>()
    );
}
