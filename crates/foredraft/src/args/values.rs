//! Values that options take, and the words that refuse a wrong one.

use std::str::FromStr;

use foredraft::engine::TreeShape;
use foredraft_common::TokenId;

/// A number of bytes: `800M`, `1.5GiB`, `2GB`, `65536`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// The bytes.
    pub(crate) bytes: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no size: write a number and a unit, such as 800M or 1.5GiB (K, M, G, T and KiB.. count by 1024, KB.. by 1000)"
            )
        };
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let multiple: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        // Whole numbers stay exact; only a fraction goes through f64.
        let bytes = if let Ok(whole) = number.parse::<u64>() {
            whole.checked_mul(multiple)
        } else {
            let value = number.parse::<f64>().map_err(|_| wrong())? * multiple as f64;
            (value.is_finite() && value < u64::MAX as f64).then_some(value as u64)
        };
        match bytes {
            None => Err(format!("'{text}' is more than any machine has")),
            Some(0) => Err("must be more than 0".to_string()),
            Some(bytes) => Ok(Size { bytes }),
        }
    }
}

/// One `--logit-bias`: what is added to the logit of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogitBias {
    /// The token.
    pub(crate) token: TokenId,
    /// Added to its logit, finite.
    pub(crate) bias: f32,
}

impl FromStr for LogitBias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no bias: write ID=X, such as 42=-1.5 (X from -100 to 100)");
        let (id, bias) = text.split_once('=').ok_or_else(wrong)?;
        let id: u32 = id.trim().parse().map_err(|_| wrong())?;
        let bias: f32 = bias.trim().parse().map_err(|_| wrong())?;
        if !bias.is_finite() {
            return Err(wrong());
        }
        Ok(LogitBias {
            token: TokenId(id),
            bias,
        })
    }
}

/// Where the drafted tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Draft {
    /// The best that is at hand for the model, or nothing; in this version always nothing.
    Auto,
    /// Plain decoding.
    None,
    /// What followed the last time that the text went like this.
    Lookup,
    /// A model, named as on any command line.
    Model(String),
}

impl FromStr for Draft {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("auto", "") => Ok(Draft::Auto),
            ("none", "") => Ok(Draft::None),
            ("lookup", "") => Ok(Draft::Lookup),
            ("model", "") => Err("name the model: write model:MODEL".to_string()),
            ("model", model) => Ok(Draft::Model(model.to_owned())),
            ("medusa" | "eagle", _) => Err(format!(
                "the draft '{text}' is not in this version; it knows auto, none, lookup and model:MODEL"
            )),
            _ => Err(format!(
                "'{text}' is no draft: this version knows auto, none, lookup and model:MODEL"
            )),
        }
    }
}

impl std::fmt::Display for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Draft::Auto => f.write_str("auto"),
            Draft::None => f.write_str("none"),
            Draft::Lookup => f.write_str("lookup"),
            Draft::Model(model) => write!(f, "model:{model}"),
        }
    }
}

/// `--tree`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) TreeShape);

impl FromStr for Tree {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let "auto" | "chain" = text {
            return Ok(Tree(TreeShape::Chain));
        }
        let number = |part: &str| part.parse::<usize>().ok().filter(|n| (1..=255).contains(n));
        let parts = text.split_once('x');
        match parts.map(|(width, depth)| (number(width), number(depth))) {
            Some((Some(width), Some(depth))) => Ok(Tree(TreeShape::Grid { width, depth })),
            _ => Err(format!(
                "'{text}' is no shape: write chain, or WxD such as 3x2 (3 rivals for each token, 2 levels)"
            )),
        }
    }
}

impl std::fmt::Display for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            TreeShape::Chain => f.write_str("chain"),
            TreeShape::Grid { width, depth } => write!(f, "{width}x{depth}"),
        }
    }
}

/// A count of at least one and at most `MOST`.
pub(crate) fn count<const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=MOST).contains(&n) => Ok(n),
        Ok(0) => Err("must be at least 1".to_string()),
        _ => Err(format!("must be a whole number from 1 to {MOST}")),
    }
}

/// A count of at least two: a rate needs a first and a next.
pub(crate) fn several(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (2..=4096).contains(&n) => Ok(n),
        _ => Err("must be a whole number from 2 to 4096".to_string()),
    }
}

/// A finite number that is at least `LOW`.
pub(crate) fn at_least<const LOW: i32>(text: &str) -> Result<f32, String> {
    number(text, |x| x >= LOW as f32, &format!("{LOW} or more"))
}

/// A finite number above zero.
pub(crate) fn positive(text: &str) -> Result<f32, String> {
    number(text, |x| x > 0.0, "above 0")
}

/// A probability, 0 to 1.
pub(crate) fn probability(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "from 0 to 1")
}

/// Any finite number.
pub(crate) fn finite(text: &str) -> Result<f32, String> {
    number(text, |_| true, "finite")
}

fn number(text: &str, fits: impl Fn(f32) -> bool, range: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x.is_finite() && fits(x) => Ok(x),
        _ => Err(format!("must be a number, {range}")),
    }
}

/// Text that is not empty.
pub(crate) fn some_text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("must not be empty".to_string());
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |text: &str, bytes: u64| {
            assert_eq!(text.parse::<Size>().map(|s| s.bytes), Ok(bytes), "{text}")
        };
        check("65536", 65_536);
        check("800M", 838_860_800);
        check("800MB", 800_000_000);
        check("1.5GiB", 1_610_612_736);
        check("2 g", 2_147_483_648);
        for wrong in [
            "",
            "G",
            "-1G",
            "1X",
            "1..5G",
            "nan",
            "0",
            "0.0M",
            "99999999999T",
            "1e400G",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn biases() {
        assert_eq!(
            "42=-1.5".parse(),
            Ok(LogitBias {
                token: TokenId(42),
                bias: -1.5
            })
        );
        for wrong in [
            "42",
            "=1",
            "-1=1",
            "42=",
            "42=inf",
            "42=-inf",
            "42=nan",
            "4294967296=1",
        ] {
            assert!(wrong.parse::<LogitBias>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn drafts_and_trees() {
        assert_eq!("lookup".parse(), Ok(Draft::Lookup));
        // What follows the first colon is the model's name, colons and all.
        let model = Draft::Model("hf:a/b:c.gguf".to_owned());
        assert_eq!("model:hf:a/b:c.gguf".parse(), Ok(model.clone()));
        assert_eq!(model.to_string(), "model:hf:a/b:c.gguf");
        for wrong in ["", "model", "model:", "lookup:3", "eagle:x", "Lookup"] {
            assert!(wrong.parse::<Draft>().is_err(), "{wrong}");
        }
        let grid = |width, depth| Ok(Tree(TreeShape::Grid { width, depth }));
        assert_eq!("3x2".parse::<Tree>(), grid(3, 2));
        for wrong in [
            "", "x", "3x", "x2", "0x2", "2x0", "3x2x1", "256x1", "-1x2", "tree",
        ] {
            assert!(wrong.parse::<Tree>().is_err(), "{wrong}");
        }
        for text in ["chain", "4x2"] {
            let tree: Tree = text.parse().expect("a shape");
            assert_eq!(tree.to_string(), text);
        }
    }

    #[test]
    fn numbers_keep_their_range() {
        assert_eq!(count::<64>("64"), Ok(64));
        for wrong in ["0", "65", "-1", "x", "1.5"] {
            assert!(count::<64>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(probability("1"), Ok(1.0));
        assert!(probability("1.01").is_err() && probability("nan").is_err());
        assert!(at_least::<0>("-0.1").is_err() && at_least::<0>("inf").is_err());
        assert!(positive("0").is_err() && finite("inf").is_err());
    }
}
