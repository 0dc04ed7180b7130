//! Which files of a hub repository are the model.

use std::path::{Path, PathBuf};

use super::error::{PullError, SourceError};
use super::http::Client;
use super::{Progress, Settings};
use crate::models::spec::is_safe_relative;

/// Written into a repository's folder once a model of it is whole: the path of the model in there.
const MARKER: &str = ".foredraft-model";

/// Names shown when one must be chosen.
const SHOWN: usize = 12;

/// The files that make a model.
pub(super) struct Choice {
    /// All of them.
    pub(super) files: Vec<Listed>,
    /// What to open, inside the repository's folder; empty for the folder itself.
    opens: String,
    /// Whether this is what the repository stands for when no file is named.
    is_default: bool,
}

/// A file of the listing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) bytes: Option<u64>,
    pub(super) sha256: Option<String>,
}

impl Choice {
    /// Notes that the model is whole, and gives its path.
    pub(super) fn remember(&self, folder: &Path) -> Result<PathBuf, PullError> {
        if self.is_default {
            let marker = folder.join(MARKER);
            std::fs::write(&marker, &self.opens)
                .map_err(|source| PullError::disk("write", &marker, None, source))?;
        }
        Ok(folder.join(&self.opens))
    }
}

/// The model's path, if it was fetched before.
pub(super) fn remembered(folder: &Path, file: Option<&str>) -> Option<PathBuf> {
    match file {
        Some(file) => {
            let whole = parts_of(file)
                .iter()
                .all(|part| folder.join(part).is_file());
            whole.then(|| folder.join(file))
        }
        None => {
            let opens = std::fs::read_to_string(folder.join(MARKER)).ok()?;
            let path = folder.join(opens.trim());
            ((opens.is_empty() || is_safe_relative(&opens)) && path.exists()).then_some(path)
        }
    }
}

/// Asks the hub what the repository holds, and chooses.
pub(super) fn choose(
    repo: &str,
    file: Option<&str>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Choice, PullError> {
    progress.note(&format!("asking {} what is in {repo}", settings.endpoint));
    let url = format!("{}/api/models/{repo}?blobs=true", settings.endpoint);
    let problem = |problem: String, wrong_name: bool| PullError::Repository {
        repo: repo.to_string(),
        problem,
        wrong_name,
    };
    let listing = Client::new(settings)
        .json(&url)
        .map_err(|error| match error {
            SourceError::NotFound => problem(
                format!(
                    "{} has no such repository; check owner and name",
                    settings.endpoint
                ),
                true,
            ),
            SourceError::Refused(_) => problem(format!("{} {error}", settings.endpoint), true),
            error => problem(
                format!(
                    "{} {error}; name a file that is here instead, or try again",
                    settings.endpoint
                ),
                false,
            ),
        })?;
    choose_from(&files_of(&listing), file).map_err(|text| problem(text, true))
}

/// The usable entries of the hub's answer: `siblings[].{rfilename, size, lfs.sha256}`. Names that could
/// lead out of the folder are dropped.
fn files_of(listing: &serde_json::Value) -> Vec<Listed> {
    let siblings = listing.get("siblings").and_then(|list| list.as_array());
    let one = |entry: &serde_json::Value| {
        let name = entry
            .get("rfilename")?
            .as_str()
            .filter(|name| is_safe_relative(name))?;
        let lfs = entry.get("lfs");
        let sha256 = lfs
            .and_then(|lfs| lfs.get("sha256"))
            .and_then(|hash| hash.as_str());
        Some(Listed {
            name: name.to_string(),
            bytes: entry.get("size").and_then(|size| size.as_u64()),
            sha256: sha256
                .filter(|hash| hash.len() == 64)
                .map(str::to_ascii_lowercase),
        })
    };
    siblings.into_iter().flatten().filter_map(one).collect()
}

fn choose_from(files: &[Listed], file: Option<&str>) -> Result<Choice, String> {
    // Other parts of a split file are not models of their own; projectors of vision models neither.
    let is_model = |name: &str| {
        let lower = name.to_ascii_lowercase();
        let first = parts_of(name).first().is_some_and(|first| first == name);
        lower.ends_with(".gguf") && first && !lower.contains("mmproj")
    };
    let models: Vec<&str> = files
        .iter()
        .map(|f| f.name.as_str())
        .filter(|name| is_model(name))
        .collect();
    let choose = |name: &str, is_default: bool| {
        let parts = parts_of(name);
        let found: Vec<Listed> = parts
            .iter()
            .filter_map(|part| files.iter().find(|f| f.name == *part))
            .cloned()
            .collect();
        if found.len() < parts.len() {
            return Err(format!(
                "has no file {name}, or not all its parts{}",
                alternatives(&models)
            ));
        }
        Ok(Choice {
            files: found,
            opens: name.to_string(),
            is_default,
        })
    };
    if let Some(file) = file {
        return choose(file, false);
    }
    match models.as_slice() {
        [only] => choose(only, true),
        [] => directory(files),
        _ => Err(format!(
            "holds several models: name one{}",
            alternatives(&models)
        )),
    }
}

/// A Hugging Face directory: the weights at the top level, the configuration and the tokenizer.
fn directory(files: &[Listed]) -> Result<Choice, String> {
    let wanted = |name: &str| {
        let weights = name.ends_with(".safetensors") && !name.contains('/');
        let rest = [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "model.safetensors.index.json",
        ];
        weights || rest.contains(&name)
    };
    let chosen: Vec<Listed> = files.iter().filter(|f| wanted(&f.name)).cloned().collect();
    let has = |name: &str| chosen.iter().any(|f| f.name == name);
    let weights = chosen.iter().any(|f| f.name.ends_with(".safetensors"));
    if !(weights && has("config.json") && has("tokenizer.json")) {
        return Err("holds no model that can be used: neither a .gguf nor config.json, tokenizer.json and .safetensors".to_string());
    }
    Ok(Choice {
        files: chosen,
        opens: String::new(),
        is_default: true,
    })
}

fn alternatives(models: &[&str]) -> String {
    if models.is_empty() {
        return String::new();
    }
    let shown: Vec<&str> = models.iter().take(SHOWN).copied().collect();
    let more = models.len() - shown.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(" (hf:...:FILE with {}{more})", shown.join(", "))
}

/// The files that a GGUF consists of: itself, or `x-00001-of-00003.gguf` and its followers.
fn parts_of(file: &str) -> Vec<String> {
    split_name(file).unwrap_or_else(|| vec![file.to_string()])
}

fn split_name(file: &str) -> Option<Vec<String>> {
    let stem = file.strip_suffix(".gguf")?;
    let (before, count) = stem.rsplit_once("-of-")?;
    let (base, number) = before.rsplit_once('-')?;
    let five_digits =
        |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !five_digits(count) || !five_digits(number) {
        return None;
    }
    let count: usize = count.parse().ok()?;
    // More parts than anybody makes would only be a way to keep us busy.
    (1..=1000).contains(&count).then(|| {
        (1..=count)
            .map(|n| format!("{base}-{n:05}-of-{count:05}.gguf"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Vec<Listed> {
        names
            .iter()
            .map(|name| Listed {
                name: name.to_string(),
                bytes: None,
                sha256: None,
            })
            .collect()
    }

    fn chosen(names: &[&str], file: Option<&str>) -> Result<(Vec<String>, String), String> {
        let choice = choose_from(&listed(names), file)?;
        Ok((
            choice.files.into_iter().map(|f| f.name).collect(),
            choice.opens,
        ))
    }

    #[test]
    fn the_only_model_is_chosen() {
        let (files, opens) =
            chosen(&["README.md", "m.gguf", "mmproj-m.gguf"], None).expect("one model");
        assert_eq!(
            (files, opens),
            (vec!["m.gguf".to_string()], "m.gguf".to_string())
        );
    }

    #[test]
    fn of_several_one_must_be_named() {
        let names = ["a-Q4_0.gguf", "a-Q8_0.gguf"];
        let error = chosen(&names, None).expect_err("which?");
        assert!(error.contains("a-Q4_0.gguf, a-Q8_0.gguf"), "{error}");
        assert_eq!(
            chosen(&names, Some("a-Q8_0.gguf")).expect("named").1,
            "a-Q8_0.gguf"
        );
        assert!(chosen(&names, Some("b.gguf")).is_err());
    }

    #[test]
    fn split_files_come_together() {
        let names = ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"];
        let (files, opens) = chosen(&names, None).expect("one model in two parts");
        assert_eq!((files.len(), opens.as_str()), (2, names[0]));
        assert!(chosen(&names[..1], None).is_err(), "a part is missing");
    }

    #[test]
    fn directories() {
        let names = [
            "config.json",
            "tokenizer.json",
            "model.safetensors",
            "onnx/model.safetensors",
            "README.md",
        ];
        let (files, opens) = chosen(&names, None).expect("a directory");
        assert_eq!((files.len(), opens.as_str()), (3, ""));
        assert!(chosen(&names[..2], None).is_err());
    }

    #[test]
    fn listings_cannot_lead_out_of_the_folder() {
        let hostile = serde_json::json!({"siblings": [{"rfilename": "../../x.gguf"}, {"rfilename": "/x.gguf"}, {"rfilename": 7}, {}]});
        assert_eq!(files_of(&hostile), vec![]);
        assert_eq!(files_of(&serde_json::json!([])), vec![]);
    }
}
