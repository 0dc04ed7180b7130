//! The twin of the automaton in tests: it searches the whole text for everything.

use std::collections::BTreeMap;

/// Times and latest end of each continuation, by token.
pub(super) type Continuations = BTreeMap<u32, (u32, u32)>;

/// The length of the longest suffix of `text` that also ends earlier in it.
pub(super) fn longest_match_by_search(text: &[u32]) -> usize {
    let earlier = &text[..text.len().saturating_sub(1)];
    let occurs = |len: usize| {
        let suffix = &text[text.len() - len..];
        earlier.windows(len).any(|window| window == suffix)
    };
    (1..text.len()).rev().find(|&len| occurs(len)).unwrap_or(0)
}

/// What has followed `pattern` in `text`.
pub(super) fn continuations_by_search(text: &[u32], pattern: &[u32]) -> Continuations {
    let mut found = Continuations::new();
    for (start, window) in text.windows(pattern.len() + 1).enumerate() {
        if let Some((&next, before)) = window.split_last()
            && before == pattern
        {
            let (count, end) = found.entry(next).or_default();
            *count += 1;
            *end = (start + pattern.len() + 1) as u32;
        }
    }
    found
}
