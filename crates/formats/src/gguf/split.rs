//! Models split over several GGUF files, `NAME-00001-of-00003.gguf` and so on.
//!
//! The first file has all metadata; each says its place (`split.no`, counted from 0), the number of
//! files (`split.count`) and the number of tensors of all of them (`split.tensors.count`). Source:
//! llama.cpp's `gguf-split`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Gguf, parse};
use crate::error::quote;
use crate::storage::Storage;
use crate::tensor::Entry;
use crate::{FormatError, limits};

/// The parts of a split file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitName {
    /// What stands before the numbers.
    prefix: String,
    /// The file's number, from 1.
    pub(crate) number: u32,
    /// The number of files.
    pub(crate) count: u32,
}

impl SplitName {
    /// Reads `PREFIX-00001-of-00003.gguf`; `None` when the name has another form.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let five_digits = |text: &str| {
            let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| Self {
            prefix: prefix.to_owned(),
            number,
            count,
        })
    }

    /// The name of file `number` of the same model.
    pub(crate) fn file_name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// The other files of a model whose first file is `first`, and all tensors in order; `first` alone
/// when it is not split.
///
/// `path` is `None` for bytes in memory, which cannot have other files.
pub(crate) fn open_splits(
    file: &str,
    path: Option<&Path>,
    first: &mut Gguf,
) -> Result<(Vec<Arc<Storage>>, Vec<Entry>), FormatError> {
    let mut tensors = std::mem::take(&mut first.tensors);
    let count = first.metadata.u32("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok((Vec::new(), tensors));
    }
    if u64::from(count) > limits::PARTS {
        return Err(FormatError::too_large(
            file,
            "`split.count`",
            count.into(),
            limits::PARTS,
        ));
    }
    let name = split_name(file, path, first, count)?;
    let mut others = Vec::new();
    for number in 2..=count {
        let (path, storage) = open_part(&name.1, name.0.file_name(number), file)?;
        let part_file = path.display().to_string();
        let part = parse(&part_file, &storage)?;
        check_place(&part_file, &part, number - 1, count)?;
        tensors.extend(part.tensors.into_iter().map(|entry| Entry {
            part: number - 1,
            ..entry
        }));
        others.push(storage);
    }
    let stated = first.metadata.u64("split.tensors.count")?;
    if let Some(stated) = stated.filter(|&stated| stated != tensors.len() as u64) {
        let problem = format!("it says {stated}, the {count} files have {}", tensors.len());
        return Err(FormatError::damaged(file, "`split.tensors.count`", problem));
    }
    Ok((others, tensors))
}

/// The name of the first file and the directory of all, after checking that `first` is the first.
fn split_name(
    file: &str,
    path: Option<&Path>,
    first: &Gguf,
    count: u32,
) -> Result<(SplitName, PathBuf), FormatError> {
    let path = path.ok_or_else(|| {
        let remedy = "merge it into one file with llama-gguf-split --merge";
        FormatError::invalid(
            file,
            "`split.count`",
            format!("it is one of {count} files"),
            remedy,
        )
    })?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(SplitName::parse);
    let Some(name) = name.filter(|name| name.count == count) else {
        let problem = format!(
            "the file is one of {count}, but its name does not end in -00001-of-{count:05}.gguf"
        );
        return Err(FormatError::invalid(
            file,
            "the file's name",
            problem,
            "give the files their names back",
        ));
    };
    let number = first.metadata.u32("split.no")?.unwrap_or(0);
    if name.number != 1 || number != 0 {
        return Err(FormatError::NotAModel {
            file: file.to_owned(),
            problem: format!("part {} of a model in {count} files", u64::from(number) + 1),
            remedy: "give the first part, whose name ends in -00001-of-NNNNN.gguf",
        });
    }
    Ok((
        name,
        path.parent().map(Path::to_path_buf).unwrap_or_default(),
    ))
}

fn open_part(
    directory: &Path,
    name: String,
    first: &str,
) -> Result<(PathBuf, Arc<Storage>), FormatError> {
    let path = directory.join(&name);
    match Storage::open(&path) {
        Ok(storage) => Ok((path, Arc::new(storage))),
        Err(FormatError::Io {
            kind: std::io::ErrorKind::NotFound,
            ..
        }) => Err(FormatError::missing(
            first,
            format!("the part {}", quote(&name)),
            "fetch all parts into one directory",
        )),
        Err(other) => Err(other),
    }
}

/// Checks that a further part says of itself what its name says.
fn check_place(file: &str, part: &Gguf, number: u32, count: u32) -> Result<(), FormatError> {
    for (key, expected) in [("split.no", number), ("split.count", count)] {
        let found = part.metadata.u32(key)?;
        if found != Some(expected) {
            let found = found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
            let problem = format!("it says {found} where its name says {expected}");
            return Err(FormatError::damaged(file, quote(key), problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_names_are_recognised() {
        let name = SplitName::parse("big-model-Q4_K-00002-of-00003.gguf").unwrap();
        assert_eq!((name.number, name.count), (2, 3));
        assert_eq!(name.file_name(1), "big-model-Q4_K-00001-of-00003.gguf");
        for other in [
            "model.gguf",
            "model-1-of-3.gguf",
            "model-00004-of-00003.gguf",
            "model-00000-of-00003.gguf",
            "model-00001-of-00003.bin",
            "model-+0001-of-00003.gguf",
        ] {
            assert_eq!(SplitName::parse(other), None, "{other}");
        }
    }
}
