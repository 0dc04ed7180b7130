//! `model.safetensors.index.json`: which tensor is in which file.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::{Shard, read_text};
use crate::error::quote;
use crate::{FormatError, limits};

/// The part of the index that is used.
#[derive(Deserialize)]
struct Index {
    weight_map: WeightMap,
}

/// Names of tensors, each with the index of its file.
#[derive(Default)]
struct WeightMap {
    /// Distinct file names, in order of first mention.
    files: Vec<String>,
    tensors: Vec<(String, usize)>,
}

/// Opens all files of the index at `path` and checks that each tensor is where the index says.
pub(super) fn open(path: &Path, directory: &Path) -> Result<Vec<Shard>, FormatError> {
    let file = path.display().to_string();
    let text = read_text(path, limits::INDEX_BYTES)?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| FormatError::damaged(&file, "the index", error))?;
    let WeightMap { files, tensors } = index.weight_map;
    for name in &files {
        // A name with a separator could point anywhere on the machine.
        if name.contains(['/', '\\', '\0']) || matches!(name.as_str(), "" | "." | "..") {
            let field = format!("the file name {}", quote(name));
            return Err(FormatError::damaged(
                &file,
                field,
                "it is not a plain file name",
            ));
        }
    }
    let shards = files
        .iter()
        .map(|name| match Shard::open(&directory.join(name)) {
            Err(FormatError::Io {
                kind: std::io::ErrorKind::NotFound,
                ..
            }) => {
                let field = format!("the shard {}", quote(name));
                Err(FormatError::missing(
                    &file,
                    field,
                    "fetch all shards into one directory",
                ))
            }
            other => other,
        })
        .collect::<Result<Vec<_>, _>>()?;
    check_places(&file, &shards, &tensors)?;
    Ok(shards)
}

fn check_places(
    file: &str,
    shards: &[Shard],
    tensors: &[(String, usize)],
) -> Result<(), FormatError> {
    let places: HashSet<(&str, usize)> = shards
        .iter()
        .enumerate()
        .flat_map(|(number, shard)| {
            shard
                .entries
                .iter()
                .map(move |entry| (&*entry.name, number))
        })
        .collect();
    for (name, number) in tensors {
        if !places.contains(&(name.as_str(), *number)) {
            let shard = shards.get(*number).map_or("", |shard| &shard.file);
            let problem = format!("the index says it is in {shard}, but it is not");
            return Err(FormatError::damaged(
                file,
                format!("tensor {}", quote(name)),
                problem,
            ));
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = WeightMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from tensor names to file names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut out = WeightMap::default();
                let mut numbers = HashMap::new();
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    let next = out.files.len();
                    let number = *numbers.entry(file).or_insert_with_key(|file: &String| {
                        out.files.push(file.clone());
                        next
                    });
                    out.tensors.push((tensor, number));
                    if out.files.len() as u64 > limits::PARTS {
                        return Err(A::Error::custom("more files than any model has"));
                    }
                    if out.tensors.len() as u64 > limits::TENSORS {
                        return Err(A::Error::custom("more tensors than any model has"));
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
