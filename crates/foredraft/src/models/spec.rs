//! What people type to name a model.

use std::path::PathBuf;
use std::str::FromStr;

use super::catalogue::{CATALOGUE, Entry};
use super::error::ModelError;

/// A model's name, understood.
#[derive(Debug, Clone)]
pub enum ModelSpec {
    /// An alias of the catalogue. It wins over a file of that name; write `./name` for the file.
    Alias(&'static Entry),
    /// A file or directory that exists.
    Path(PathBuf),
    /// A repository of the hub.
    Hub {
        /// `owner/repo`, both of letters, digits, `-`, `_` and `.`
        repo: String,
        /// A path inside it, free of `..` and of anything absolute; without it the repository's only model.
        file: Option<String>,
    },
}

impl ModelSpec {
    /// What to call the model: the alias, the file's name, or `owner/repo`.
    pub fn name(&self) -> String {
        match self {
            ModelSpec::Alias(entry) => entry.alias.to_string(),
            ModelSpec::Path(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                name.to_string_lossy().into_owned()
            }
            ModelSpec::Hub { repo, .. } => repo.clone(),
        }
    }
}

impl FromStr for ModelSpec {
    type Err = ModelError;

    fn from_str(spec: &str) -> Result<Self, ModelError> {
        if let Some(entry) = CATALOGUE.iter().find(|entry| entry.alias == spec) {
            return Ok(ModelSpec::Alias(entry));
        }
        if let Some(rest) = spec.strip_prefix("hf:") {
            return hub(rest).ok_or_else(|| ModelError::HubSpec {
                spec: spec.to_string(),
            });
        }
        let path = PathBuf::from(spec);
        match std::fs::metadata(&path) {
            Ok(kind) if kind.is_file() || kind.is_dir() => Ok(ModelSpec::Path(path)),
            Ok(_) => Err(ModelError::NotAFile { path }),
            Err(_) if looks_like_path(spec) => Err(ModelError::NoSuchFile { path }),
            Err(_) => Err(ModelError::Unknown {
                spec: spec.to_string(),
                hint: hint(spec),
            }),
        }
    }
}

fn looks_like_path(spec: &str) -> bool {
    spec.contains(['/', '\\']) || spec.to_ascii_lowercase().ends_with(".gguf")
}

/// `owner/repo[:file]`. The parts become folders of the store and parts of a URL, so only what is
/// harmless in both is let through.
fn hub(rest: &str) -> Option<ModelSpec> {
    let (repo, file) = match rest.split_once(':') {
        Some((repo, file)) => (repo, Some(file)),
        None => (rest, None),
    };
    let (owner, name) = repo.split_once('/')?;
    if !is_plain_name(owner) || !is_plain_name(name) {
        return None;
    }
    if let Some(file) = file
        && !is_safe_relative(file)
    {
        return None;
    }
    Some(ModelSpec::Hub {
        repo: repo.to_string(),
        file: file.map(str::to_string),
    })
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.len() <= 96
        && name.chars().all(plain)
        && !name.chars().all(|c| c == '.')
}

/// Whether a file name of a hub listing may become a path below the store and part of a URL.
pub(crate) fn is_safe_relative(file: &str) -> bool {
    let safe = |part: &str| {
        let plain = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, '-' | '_' | '.' | '+' | '=' | '@' | ' ' | '(' | ')')
        };
        !part.is_empty() && part.chars().all(plain) && !part.chars().all(|c| c == '.')
    };
    file.len() <= 512 && file.split('/').all(safe)
}

/// The aliases that are spelled most like `typed`, as words for an error message.
fn hint(typed: &str) -> String {
    let typed = typed.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = CATALOGUE
        .iter()
        .map(|entry| {
            let contains = typed.len() >= 3 && entry.alias.contains(&typed);
            (
                if contains {
                    0
                } else {
                    edit_distance(&typed, entry.alias)
                },
                entry.alias,
            )
        })
        .filter(|&(distance, alias)| distance <= alias.len() / 3)
        .collect();
    near.sort();
    let names: Vec<&str> = near.iter().take(2).map(|&(_, alias)| alias).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(" (did you mean {}?)", names.join(" or ")),
    }
}

/// Letters to insert, delete or replace to make `a` of `b` (Levenshtein), row by row.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spec: &str) -> String {
        spec.parse::<ModelSpec>().expect_err("refused").to_string()
    }

    #[test]
    fn distances() {
        // kitten -> sitting is the textbook's 3.
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }

    #[test]
    fn a_slip_gets_a_suggestion() {
        assert!(error("smolm2-135m").contains("(did you mean smollm2-135m?)"));
        assert!(error("Stories260K").contains("(did you mean stories260k?)"));
        assert!(error("qwen2.5-coder").contains("qwen2.5-coder-0.5b or qwen2.5-coder-1.5b"));
        assert!(!error("something-else-entirely").contains("did you mean"));
        assert!(error("missing.gguf").starts_with("there is no file missing.gguf"));
    }

    #[test]
    fn hub_names() {
        let parse = |spec: &str| match spec.parse() {
            Ok(ModelSpec::Hub { repo, file }) => Some((repo, file)),
            _ => None,
        };
        assert_eq!(parse("hf:o/r"), Some(("o/r".into(), None)));
        assert_eq!(
            parse("hf:o/r.x:a/b-Q4_K_M.gguf"),
            Some(("o/r.x".into(), Some("a/b-Q4_K_M.gguf".into())))
        );
        for wrong in [
            "hf:",
            "hf:o",
            "hf:o/",
            "hf:o/r/x",
            "hf:../r",
            "hf:o/..",
            "hf:o/r:",
            "hf:o/r:../x",
            "hf:o/r:/etc/x",
            "hf:o/r:a//b",
            "hf:o/r:a\\b",
            "hf:o/r:a?b",
            "hf:o/r:a%2e",
            "hf:o r/x",
            "hf:o/r:C:x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
