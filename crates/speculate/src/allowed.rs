//! The tokens that may be emitted at all.

use foredraft_common::TokenId;

/// A set of tokens as a bit mask: those of the tokenizer's vocabulary, less the banned ones.
///
/// A model's rows of logits are often padded past the vocabulary (151936 rows for 151665 tokens). A token
/// outside of the set gets probability 0 before anything else looks at its logit, so padding is never
/// emitted, never counts in top-k, and may hold any value, NaN included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTokens {
    /// Token t is bit t % 64 of word t / 64; bits from `vocabulary_len` on are 0.
    words: Vec<u64>,
    vocabulary_len: usize,
}

impl AllowedTokens {
    /// Every token below `vocabulary_len`.
    pub fn all(vocabulary_len: usize) -> Self {
        let mut words = vec![u64::MAX; vocabulary_len.div_ceil(64)];
        if let (Some(last), used @ 1..) = (words.last_mut(), vocabulary_len % 64) {
            *last = (1 << used) - 1;
        }
        Self {
            words,
            vocabulary_len,
        }
    }

    /// Removes a token, for example a placeholder that the tokenizer cannot turn into text.
    pub fn ban(&mut self, token: TokenId) {
        if let Some(word) = self.words.get_mut(token.index() / 64) {
            *word &= !(1 << (token.index() % 64));
        }
    }

    /// Whether `token` may be emitted.
    pub fn contains(&self, token: TokenId) -> bool {
        let word = self.words.get(token.index() / 64).copied().unwrap_or(0);
        word >> (token.index() % 64) & 1 == 1
    }

    /// Tokens of the vocabulary, banned ones included.
    pub fn vocabulary_len(&self) -> usize {
        self.vocabulary_len
    }

    /// Tokens that may be emitted.
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Copies the logits of allowed tokens into `out` and sets all others to -infinity.
    /// `out` gets the length of `logits`.
    pub(crate) fn copy_logits(&self, logits: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(logits);
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (values, word) in out.chunks_mut(64).zip(words) {
            match word {
                u64::MAX => {}
                0 => values.fill(f32::NEG_INFINITY),
                _ => {
                    for (bit, value) in values.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *value = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_ends_at_the_vocabulary_and_leaves_out_what_is_banned() {
        for len in [0, 1, 63, 64, 65, 130] {
            let mut allowed = AllowedTokens::all(len);
            assert_eq!((allowed.count(), allowed.vocabulary_len()), (len, len));
            for id in 0..200 {
                assert_eq!(
                    allowed.contains(TokenId(id)),
                    (id as usize) < len,
                    "{id} of {len}"
                );
            }
            allowed.ban(TokenId(0));
            allowed.ban(TokenId(64));
            allowed.ban(TokenId(u32::MAX));
            assert!(!allowed.contains(TokenId(0)) && !allowed.contains(TokenId(64)));
            assert_eq!(allowed.contains(TokenId(1)), len > 1);
        }
    }

    #[test]
    fn other_tokens_lose_their_logits_whatever_they_are() {
        let mut allowed = AllowedTokens::all(129);
        allowed.ban(TokenId(3));
        let mut logits: Vec<f32> = (0..300).map(|i| i as f32).collect();
        logits[3] = f32::NAN;
        logits[129] = f32::INFINITY;
        let mut out = vec![7.0; 5];
        allowed.copy_logits(&logits, &mut out);
        assert_eq!(out.len(), 300);
        for (id, &value) in out.iter().enumerate() {
            let expected = if id == 3 || id >= 129 {
                f32::NEG_INFINITY
            } else {
                id as f32
            };
            assert_eq!(value, expected, "token {id}");
        }
    }
}
