//! Whether two vocabularies are the same to a model that drafts for another.
//!
//! A draft and its target exchange token ids and nothing else, so what counts is what an id stands for, compared id by
//! id over all that both can emit: the same bytes, and the same role (text, or the control token of this name, or the
//! end of an answer). Sizes say nothing: equal ones may hold different tokens, and embedding tables padded to different
//! lengths the same. An id that only one of the two can emit is no obstacle: the target never emits what it lacks, and
//! the draft's own extra ids are masked out of its distribution.
//!
//! How text *becomes* ids (merges, scores, normalizer, pre-tokenizer, BOS) may differ, because the draft never tokenizes:
//! the prompt is encoded once, by the target's tokenizer, and both models read the same ids. At worst the draft was
//! trained on other segmentations of a text and guesses worse, which costs time and nothing else.

use foredraft_common::TokenId;

use crate::{TokenKind, Tokenizer};

/// Differing ids that are remembered; the others are counted.
const DIFFERENCES_KEPT: usize = 8;

/// Two vocabularies compared id by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyComparison {
    /// Ids that both can emit.
    pub shared: usize,
    /// Of these, the ids that do not stand for the same.
    pub differing: usize,
    /// The first of those, ascending.
    pub first_differences: Vec<VocabularyDifference>,
    /// Ids that only the target can emit.
    pub only_target: usize,
    /// Ids that only the draft can emit: never drafted.
    pub only_draft: usize,
}

/// An id that does not stand for the same in both vocabularies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyDifference {
    /// The id.
    pub id: TokenId,
    /// What it is for the target.
    pub target: TokenMeaning,
    /// What it is for the draft.
    pub draft: TokenMeaning,
}

/// What an id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMeaning {
    /// The text that it writes, what is no UTF-8 replaced; the name of a token that writes none.
    pub text: String,
    /// Its role.
    pub role: TokenRole,
}

/// The part that a token plays in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// It writes text.
    Text,
    /// It steers the model and writes nothing.
    Control,
    /// It stands for what the vocabulary cannot express.
    Unknown,
    /// It ends the answer.
    EndOfText,
}

impl TokenRole {
    /// The role in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Control => "control",
            Self::Unknown => "unknown",
            Self::EndOfText => "end of text",
        }
    }
}

/// Why one model cannot draft for another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyMismatch {
    /// Ids stand for different tokens.
    #[error(
        "the two vocabularies differ: {differing} of the {shared} ids that both use stand for different tokens, the first: {first}; \
         take a draft of the target's own family, or `--draft lookup`, which needs none"
    )]
    Differ {
        /// Ids that both can emit.
        shared: usize,
        /// Of these, how many differ.
        differing: usize,
        /// The first of them with both texts.
        first: String,
    },
    /// There is not one id that both can emit.
    #[error(
        "the two vocabularies share no id; take a draft of the target's own family, or `--draft lookup`, which needs none"
    )]
    NothingShared,
}

impl VocabularyComparison {
    /// Compares the vocabulary of a target with that of a draft.
    pub fn new(target: &Tokenizer, draft: &Tokenizer) -> Self {
        let mut comparison = Self {
            shared: 0,
            differing: 0,
            first_differences: Vec::new(),
            only_target: 0,
            only_draft: 0,
        };
        let ids = target.vocabulary_len().max(draft.vocabulary_len()) as u32;
        for id in (0..ids).map(TokenId) {
            match (target.can_emit(id), draft.can_emit(id)) {
                (true, true) => comparison.compare(id, target, draft),
                (true, false) => comparison.only_target += 1,
                (false, true) => comparison.only_draft += 1,
                (false, false) => {}
            }
        }
        comparison
    }

    fn compare(&mut self, id: TokenId, target: &Tokenizer, draft: &Tokenizer) {
        self.shared += 1;
        if content(target, id) == content(draft, id) && role(target, id) == role(draft, id) {
            return;
        }
        self.differing += 1;
        if self.first_differences.len() < DIFFERENCES_KEPT {
            self.first_differences.push(VocabularyDifference {
                id,
                target: meaning(target, id),
                draft: meaning(draft, id),
            });
        }
    }

    /// Whether the one may draft for the other. The answer is the same both ways round.
    pub fn is_compatible(&self) -> bool {
        self.shared > 0 && self.differing == 0
    }

    /// Nothing, or why the one may not draft for the other.
    ///
    /// # Errors
    /// With the first differing ids and their texts on both sides.
    pub fn check(&self) -> Result<(), VocabularyMismatch> {
        if self.shared == 0 {
            return Err(VocabularyMismatch::NothingShared);
        }
        if self.differing == 0 {
            return Ok(());
        }
        let first = self.first_differences.iter().take(3);
        Err(VocabularyMismatch::Differ {
            shared: self.shared,
            differing: self.differing,
            first: first
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        })
    }
}

/// `id 17 is "2" (text) for the target and "<s>" (control) for the draft`; roles only where they differ.
impl std::fmt::Display for VocabularyDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let differ = self.target.role != self.draft.role;
        let one = |side: &TokenMeaning| match differ {
            true => format!("{:?} ({})", side.text, side.role.name()),
            false => format!("{:?}", side.text),
        };
        let (target, draft) = (one(&self.target), one(&self.draft));
        write!(
            f,
            "id {} is {target} for the target and {draft} for the draft",
            self.id
        )
    }
}

/// What must be equal: the bytes of a token that writes text, the name of one that writes none.
fn content(tokenizer: &Tokenizer, id: TokenId) -> &[u8] {
    match tokenizer.token_kind(id) {
        TokenKind::Control | TokenKind::Unknown => tokenizer.token_text(id).as_bytes(),
        _ => tokenizer.token_bytes(id),
    }
}

fn role(tokenizer: &Tokenizer, id: TokenId) -> TokenRole {
    if tokenizer.is_end_of_text(id) {
        return TokenRole::EndOfText;
    }
    match tokenizer.token_kind(id) {
        TokenKind::Control => TokenRole::Control,
        TokenKind::Unknown => TokenRole::Unknown,
        _ => TokenRole::Text,
    }
}

fn meaning(tokenizer: &Tokenizer, id: TokenId) -> TokenMeaning {
    TokenMeaning {
        text: String::from_utf8_lossy(content(tokenizer, id)).into_owned(),
        role: role(tokenizer, id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GgufVocabulary;

    /// A SentencePiece vocabulary with these names and types (1 text, 3 control, 5 unused, 6 byte).
    fn tokenizer(tokens: &[(&str, i32)]) -> Tokenizer {
        with_end(tokens, None)
    }

    fn with_end(tokens: &[(&str, i32)], eos: Option<u32>) -> Tokenizer {
        let vocabulary = GgufVocabulary {
            model: "llama".into(),
            tokens: tokens.iter().map(|(name, _)| (*name).into()).collect(),
            types: tokens.iter().map(|&(_, kind)| kind).collect(),
            scores: vec![0.0; tokens.len()],
            eos,
            ..GgufVocabulary::default()
        };
        Tokenizer::from_vocabulary(vocabulary).expect("a vocabulary")
    }

    const BASE: [(&str, i32); 4] = [("<s>", 3), ("a", 1), ("▁b", 1), ("c", 1)];

    fn changed(id: usize, token: (&'static str, i32)) -> Vec<(&'static str, i32)> {
        let mut tokens = BASE.to_vec();
        tokens[id] = token;
        tokens
    }

    #[test]
    fn equal_sizes_with_other_tokens_do_not_match() {
        let found = VocabularyComparison::new(&tokenizer(&BASE), &tokenizer(&changed(2, ("b", 1))));
        assert!(!found.is_compatible());
        assert_eq!((found.shared, found.differing), (4, 1));
        let message = found.check().expect_err("a mismatch").to_string();
        assert!(
            message.contains("1 of the 4")
                && message.contains(r#"id 2 is " b" for the target and "b" for the draft"#),
            "{message}"
        );
    }

    #[test]
    fn padding_of_any_length_does_not_matter() {
        let mut padded = BASE.to_vec();
        padded.extend([("[PAD4]", 1), ("", 1), ("[PAD6]", 5)]);
        let found = VocabularyComparison::new(&tokenizer(&BASE), &tokenizer(&padded));
        assert_eq!(found.check(), Ok(()));
        assert_eq!(
            (found.shared, found.only_target, found.only_draft),
            (4, 0, 0)
        );
    }

    #[test]
    fn what_only_one_names_is_counted_and_no_obstacle() {
        let mut more = BASE.to_vec();
        more.extend([("[PAD4]", 1), ("<think>", 4)]);
        let (base, more) = (tokenizer(&BASE), tokenizer(&more));
        let found = VocabularyComparison::new(&more, &base);
        assert!(found.is_compatible());
        assert_eq!(
            (found.shared, found.only_target, found.only_draft),
            (4, 1, 0)
        );
        let found = VocabularyComparison::new(&base, &more);
        assert!(found.is_compatible());
        assert_eq!((found.only_target, found.only_draft), (0, 1));
    }

    #[test]
    fn a_role_that_differs_is_a_difference() {
        // The same name: a control token here, text there.
        let found =
            VocabularyComparison::new(&tokenizer(&BASE), &tokenizer(&changed(0, ("<s>", 1))));
        let message = found.check().expect_err("a mismatch").to_string();
        assert!(
            message.contains(
                r#"id 0 is "<s>" (control) for the target and "<s>" (text) for the draft"#
            ),
            "{message}"
        );
        // The same control token ends answers here and not there.
        let tokens = changed(1, ("<end>", 3));
        let ends = |id| with_end(&tokens, Some(id));
        assert!(VocabularyComparison::new(&ends(1), &ends(1)).is_compatible());
        let found = VocabularyComparison::new(&ends(0), &ends(1));
        let differing: Vec<u32> = found.first_differences.iter().map(|d| d.id.0).collect();
        assert_eq!((found.differing, differing), (2, vec![0, 1]));
        // Two control tokens write the same nothing, and are not the same.
        let other = tokenizer(&changed(0, ("<t>", 3)));
        assert_eq!(
            VocabularyComparison::new(&tokenizer(&BASE), &other).differing,
            1
        );
    }

    #[test]
    fn only_content_counts_not_how_it_is_written() {
        // A byte token and a text token that write the same byte.
        let found =
            VocabularyComparison::new(&tokenizer(&changed(1, ("<0x61>", 6))), &tokenizer(&BASE));
        assert_eq!(found.check(), Ok(()));
    }

    #[test]
    fn the_first_differences_are_kept_and_all_are_counted() {
        let names: Vec<String> = (0..40).map(|i| format!("x{i}")).collect();
        let these: Vec<(&str, i32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let mut shifted = these.clone();
        shifted[5..].rotate_left(1);
        let found = VocabularyComparison::new(&tokenizer(&these), &tokenizer(&shifted));
        assert_eq!(
            (found.differing, found.first_differences.len()),
            (35, DIFFERENCES_KEPT)
        );
        assert_eq!(found.first_differences[0].id, TokenId(5));
    }

    #[test]
    fn vocabularies_without_a_common_id_do_not_match() {
        let found = VocabularyComparison::new(
            &tokenizer(&[("a", 1), ("b", 5)]),
            &tokenizer(&[("a", 5), ("b", 1)]),
        );
        assert_eq!(found.check(), Err(VocabularyMismatch::NothingShared));
        assert!(!found.is_compatible());
    }
}
