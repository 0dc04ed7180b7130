//! Where byte-level BPE may not merge: the pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! A pre-tokenizer is a list of patterns. Each cuts every piece that the one before left into its matches and what
//! lies between them. The patterns are facts of the models' own `tokenizer.json` files; which name means which
//! pattern, which families merge only what is no whole token, and which add BOS by themselves is taken from
//! llama.cpp's `llama-vocab.cpp`.
//!
//! A GGUF file names no Unicode normalisation, and llama.cpp does none; so none is done here, and every text comes back
//! byte for byte. (Some families' `tokenizer.json` ask for normal form C, which `crate::Tokenizer::from_json_directory`
//! honours: only there does `a` + U+0300 read as `à`.)

/// How one family of byte-level BPE vocabularies treats text before and while it merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreTokenizer {
    /// Patterns, applied one after the other.
    pub patterns: &'static [&'static str],
    /// A piece that is a token as a whole is taken as that token, without merging.
    pub ignores_merges: bool,
    /// Texts begin with BOS unless the file says otherwise.
    pub adds_bos: bool,
}

const GPT2_WORDS: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

const fn words(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer {
        patterns,
        ignores_merges: false,
        adds_bos: false,
    }
}

/// The pre-tokenizer with this name in a GGUF file; `None` for names that are not supported.
///
/// `default` is what llama.cpp uses for files without a name (written before there were names).
pub fn find(name: &str) -> Option<PreTokenizer> {
    let whole_tokens_with_bos = |p: PreTokenizer| PreTokenizer {
        ignores_merges: true,
        adds_bos: true,
        ..p
    };
    Some(match name {
        "gpt-2" | "phi-2" | "jais" | "trillion" | "granite-docling" | "exaone4" | "mellum"
        | "modern-bert" | "a.x-4.0" | "gigachat" => words(&[GPT2_WORDS]),
        "mpt" | "olmo" => words(&[GPT2_WORDS]),
        "starcoder" | "refact" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            words(&[r"\p{N}", GPT2_WORDS])
        }
        "command-r" => words(&[r"\p{N}", GPT2_WORDS]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0"
        | "lfm2" => whole_tokens_with_bos(words(&[CL100K])),
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => words(&[CL100K]),
        "qwen2" | "megrez" | "stablelm2" => words(&[QWEN2]),
        "deepseek-r1-qwen" | "hunyuan" | "solar-open" | "grok-2" => words(&[QWEN2]),
        "qwen35" => words(&[QWEN35]),
        "tekken" => whole_tokens_with_bos(words(&[TEKKEN])),
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => words(&[O200K]),
        "deepseek-coder" => words(&[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
            r"\p{N}",
        ]),
        "deepseek-v3" | "hunyuan-dense" => words(&[
            r"\p{N}{1,3}",
            r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
            DEEPSEEK3_WORDS,
        ]),
        "falcon" => words(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_WORDS, "[0-9][0-9][0-9]"]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => words(&[BAILING]),
        "seed-coder" => words(&[SEED]),
        "default" => words(&[
            r"[\p{P}\$\+<=>\^~\|]+",
            GPT2_WORDS,
            r"\p{N}+",
            "[0-9][0-9][0-9]",
        ]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    /// The pieces that a pre-tokenizer cuts `text` into.
    fn cut(name: &str, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        for pattern in find(name).expect("supported").patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, tokenizers::SplitDelimiterBehavior::Isolated, false);
            split
                .expect("a valid pattern")
                .pre_tokenize(&mut pieces)
                .expect("cuts");
        }
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits
            .into_iter()
            .map(|(text, _, _)| text.to_owned())
            .collect()
    }

    /// Expectations by hand, from the published patterns: what tells the families apart is how they cut digits,
    /// contractions, capitals, newlines and punctuation.
    #[test]
    fn families_cut_as_their_patterns_say() {
        let text = "I'VE 12345 fooBar!!\n\n  x";
        for (name, expected) in [
            ("gpt-2", "I|'|VE| 12345| fooBar|!!|\n\n | x"),
            ("smollm", "I|'|VE| |1|2|3|4|5| fooBar|!!|\n\n | x"),
            ("llama-bpe", "I|'VE| |123|45| fooBar|!!\n\n| | x"),
            ("qwen2", "I|'VE| |1|2|3|4|5| fooBar|!!\n\n| | x"),
            ("tekken", "I|'VE| |1|2|3|4|5| foo|Bar|!!\n\n| | x"),
            ("gpt-4o", "I'VE| |123|45| foo|Bar|!!\n\n| | x"),
            ("deepseek-v3", "I|'VE| |123|45| fooBar|!!\n\n| | x"),
            ("falcon", "I|'|VE| |123|45| fooBar|!!|\n\n | x"),
        ] {
            assert_eq!(cut(name, text).join("|"), expected, "{name}");
        }
    }

    #[test]
    fn every_pattern_is_valid_and_loses_nothing() {
        let text =
            "Hello, w\u{F6}rld! 12345\t\u{4F60}\u{597D} 's 'RE \n \r\n  \u{1F999} a\u{301} <|x|> ";
        let source = include_str!("pretokenizer.rs");
        let names = source
            .split('"')
            .filter(|name| name.len() < 20 && find(name).is_some());
        let mut count = 0;
        for name in names {
            assert_eq!(cut(name, text).concat(), text, "{name}");
            count += 1;
        }
        assert!(count > 40, "{count} names were found in this file");
        assert_eq!(find("bloom"), None);
    }
}
