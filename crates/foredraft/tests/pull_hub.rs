//! Fetching from a hub: resumed, cut, refused, wrong - against a server on this machine.

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foredraft::models::catalogue::{HubFile, Source};
use foredraft::pull::{Artifact, Progress, PullError, Settings, Silent, SourceError, fetch};
use support::{Reply, Server, noise, sha256};

const FILE: &str = "/o/r/resolve/main/m.gguf";

fn artifact(bytes: &[u8]) -> Artifact {
    let file = HubFile {
        repo: "o/r".into(),
        revision: "main".into(),
        file: "m.gguf".into(),
    };
    Artifact {
        name: "m".into(),
        bytes: Some(bytes.len() as u64),
        sha256: Some(sha256(bytes)),
        sources: vec![Source::Hub(file)],
    }
}

fn settings(server: &Server) -> Settings {
    Settings {
        endpoint: server.endpoint.clone(),
        retry_pause: Duration::from_millis(1),
        ..Settings::default()
    }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("m.gguf")
    }

    fn part(&self) -> PathBuf {
        self.folder.path().join("m.gguf.hub.part")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("reads");
        let mut names: Vec<String> = entries
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn only_failure(error: PullError) -> SourceError {
    match error {
        PullError::NoSource { mut failures, .. } if failures.len() == 1 => failures.remove(0).1,
        other => panic!("{other}"),
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("is there")
}

#[test]
fn a_file_arrives_whole_and_alone() {
    let file = noise(700_000, 1);
    let body = file.clone();
    let server = Server::start(move |_| Reply::ok(body.clone()));
    let place = Place::new();
    let pulled =
        fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("fetched");
    assert!(pulled.origin.expect("now").ends_with(FILE));
    assert_eq!(pulled.sha256, Some(sha256(&file)));
    assert!(read(&place.file()) == file);
    assert_eq!(place.names(), ["m.gguf"], "no part file, no lock file");

    // A second fetch asks nobody.
    let again = fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("here");
    assert_eq!((again.origin, server.requests().len()), (None, 1));
}

#[test]
fn goes_on_behind_what_is_here() {
    let file = noise(300_000, 2);
    let body = file.clone();
    let server = Server::start(move |request| Reply::range(&body, request.from()));
    let place = Place::new();
    std::fs::write(place.part(), &file[..123_456]).expect("writes");
    fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("fetched");
    assert!(read(&place.file()) == file);
    assert_eq!(server.requests()[0].headers["range"], "bytes=123456-");
}

#[test]
fn begins_anew_when_the_server_ignores_ranges() {
    let file = noise(300_000, 3);
    let body = file.clone();
    let server = Server::start(move |_| Reply::ok(body.clone()));
    let place = Place::new();
    std::fs::write(place.part(), &file[..1000]).expect("writes");
    fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("fetched");
    assert!(read(&place.file()) == file);
    assert_eq!(server.requests()[0].from(), 1000);
}

#[test]
fn a_whole_part_file_needs_no_server() {
    let file = noise(10_000, 4);
    let server = Server::start(|_| Reply::status(500));
    let place = Place::new();
    std::fs::write(place.part(), &file).expect("writes");
    fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("named");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_range_that_the_hub_does_not_have_begins_anew() {
    let file = noise(5_000, 5);
    let body = file.clone();
    let server = Server::start(move |request| Reply::range(&body, request.from()));
    let place = Place::new();
    std::fs::write(place.part(), noise(9_000, 6)).expect("writes");
    // The size is not known beforehand, so the part file looks good until the hub answers 416.
    let unknown = Artifact {
        bytes: None,
        sha256: None,
        ..artifact(&file)
    };
    fetch(&unknown, &place.file(), &settings(&server), &Silent).expect("fetched");
    assert!(read(&place.file()) == file);
    let asked: Vec<usize> = server.requests().iter().map(|r| r.from()).collect();
    assert_eq!(asked, [9_000, 0]);
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let file = noise(50_000, 7);
    let mut wrong = file.clone();
    wrong[31_337] ^= 1;
    let body = wrong.clone();
    let server = Server::start(move |_| Reply::ok(body.clone()));
    let place = Place::new();
    let error =
        fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect_err("wrong");
    let message = error.to_string();
    assert!(
        message.contains(&sha256(&file)) && message.contains(&sha256(&wrong)),
        "{message}"
    );
    assert!(!place.file().exists() && !place.part().exists());
}

#[test]
fn another_file_is_recognised_before_it_is_downloaded() {
    let file = noise(50_000, 8);
    let offered = sha256(b"another");
    let etag = format!("\"{offered}\"");
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => Reply::status(302)
            .header("Location", "/cdn")
            .header("X-Linked-Etag", etag.clone()),
        _ => Reply::ok(vec![0; 50_000]),
    });
    let place = Place::new();
    let error = only_failure(
        fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect_err("different"),
    );
    assert!(
        matches!(error, SourceError::Different { what: "sha256", offered: found, .. } if found == offered)
    );

    let longer = Server::start(|_| Reply::ok(vec![0; 50_001]));
    let error = only_failure(
        fetch(&artifact(&file), &place.file(), &settings(&longer), &Silent).expect_err("different"),
    );
    assert!(matches!(
        error,
        SourceError::Different {
            what: "size in bytes",
            ..
        }
    ));
}

#[test]
fn an_announced_sha256_is_checked() {
    let file = noise(5_000, 9);
    let (body, etag) = (file.clone(), format!("\"{}\"", sha256(b"something else")));
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => Reply::status(302)
            .header("Location", "/cdn")
            .header("X-Linked-Etag", etag.clone()),
        _ => Reply::ok(body.clone()),
    });
    let unknown = Artifact {
        bytes: None,
        sha256: None,
        ..artifact(&file)
    };
    let error = only_failure(
        fetch(&unknown, &Place::new().file(), &settings(&server), &Silent).expect_err("wrong"),
    );
    assert!(matches!(error, SourceError::Checksum { .. }));
}

#[test]
fn a_cut_connection_is_taken_up_again() {
    let file = noise(400_000, 10);
    let body = file.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let reply = Reply::range(&body, request.from());
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            reply.cut(150_000)
        } else {
            reply
        }
    });
    let place = Place::new();
    fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect("fetched");
    assert!(read(&place.file()) == file);
    let asked: Vec<usize> = server.requests().iter().map(|r| r.from()).collect();
    assert_eq!(asked, [0, 150_000]);
}

#[test]
fn what_arrived_is_kept_when_the_connection_stays_bad() {
    let file = noise(400_000, 11);
    let body = file.clone();
    let server = Server::start(move |request| Reply::range(&body, request.from()).cut(1_000));
    let place = Place::new();
    let error = only_failure(
        fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect_err("cut"),
    );
    let kept = std::fs::metadata(place.part()).expect("kept").len();
    assert!(matches!(error, SourceError::Broken { position, .. } if position == kept));
    assert_eq!(kept, 1_000 * server.requests().len() as u64);
    assert!(!place.file().exists());

    let body = file.clone();
    let good = Server::start(move |request| Reply::range(&body, request.from()));
    fetch(&artifact(&file), &place.file(), &settings(&good), &Silent).expect("fetched");
    assert!(read(&place.file()) == file);
    assert_eq!(good.requests()[0].from() as u64, kept);
}

#[test]
fn a_silent_server_is_given_up() {
    let file = noise(10_000, 12);
    let body = file.clone();
    let server = Server::start(move |_| Reply {
        stall: true,
        ..Reply::ok(body.clone()).cut(10)
    });
    let place = Place::new();
    let impatient = Settings {
        read_timeout: Duration::from_millis(100),
        ..settings(&server)
    };
    let error = only_failure(
        fetch(&artifact(&file), &place.file(), &impatient, &Silent).expect_err("silent"),
    );
    assert!(
        matches!(
            error,
            SourceError::Broken { .. } | SourceError::Unreachable(_)
        ),
        "{error}"
    );
}

#[test]
fn statuses_have_their_remedies() {
    let file = noise(10, 13);
    let of = |status: u16| {
        let server = Server::start(move |_| Reply::status(status));
        only_failure(
            fetch(
                &artifact(&file),
                &Place::new().file(),
                &settings(&server),
                &Silent,
            )
            .expect_err("refused"),
        )
    };
    assert!(matches!(of(404), SourceError::NotFound));
    assert!(of(401).to_string().contains("HF_TOKEN"));
    assert!(matches!(of(503), SourceError::Status(503)));
}

#[test]
fn the_token_does_not_follow_a_redirect_to_another_host() {
    let file = noise(100, 14);
    let body = file.clone();
    let elsewhere = Server::start(move |_| Reply::ok(body.clone()));
    let target = format!("{}/cdn", elsewhere.endpoint);
    let hub = Server::start(move |_| Reply::status(302).header("Location", target.clone()));
    let with_token = Settings {
        token: Some("secret".into()),
        ..settings(&hub)
    };
    fetch(&artifact(&file), &Place::new().file(), &with_token, &Silent).expect("fetched");
    assert_eq!(hub.requests()[0].headers["authorization"], "Bearer secret");
    assert!(
        !elsewhere.requests()[0]
            .headers
            .contains_key("authorization")
    );
}

#[test]
fn redirects_in_a_circle_end() {
    let file = noise(100, 15);
    let server = Server::start(|_| Reply::status(302).header("Location", FILE));
    let error = only_failure(
        fetch(
            &artifact(&file),
            &Place::new().file(),
            &settings(&server),
            &Silent,
        )
        .expect_err("circle"),
    );
    assert!(matches!(error, SourceError::Answer(_)));
    assert!(server.requests().len() < 20);
}

/// Asks to stop once some bytes are here.
struct StopAt(u64, AtomicUsize);

impl Progress for StopAt {
    fn note(&self, _: &str) {}
    fn begin(&self, _: &str, _: u64, _: Option<u64>) {}
    fn at(&self, position: u64) {
        self.1.store(position as usize, Ordering::SeqCst);
    }
    fn end(&self) {}
    fn cancelled(&self) -> bool {
        self.1.load(Ordering::SeqCst) as u64 >= self.0
    }
}

#[test]
fn a_request_to_stop_keeps_what_is_here() {
    let file = noise(3_000_000, 16);
    let body = file.clone();
    let server = Server::start(move |request| Reply::range(&body, request.from()));
    let place = Place::new();
    let stop = StopAt(100_000, AtomicUsize::new(0));
    let error =
        fetch(&artifact(&file), &place.file(), &settings(&server), &stop).expect_err("stopped");
    assert!(matches!(error, PullError::Cancelled));
    let kept = read(&place.part());
    assert!(kept.len() >= 100_000 && kept.len() < file.len() && file.starts_with(&kept));
}

#[test]
fn two_fetches_of_one_file_take_turns() {
    let file = noise(200_000, 17);
    let body = file.clone();
    let server = Server::start(move |request| {
        std::thread::sleep(Duration::from_millis(200));
        Reply::range(&body, request.from())
    });
    let place = Place::new();
    let (wanted, path, settings) = (artifact(&file), place.file(), settings(&server));
    let origins: Vec<Option<String>> = std::thread::scope(|scope| {
        let one = || {
            fetch(&wanted, &path, &settings, &Silent)
                .expect("fetched")
                .origin
        };
        let threads = [scope.spawn(one), scope.spawn(one)];
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into()
    });
    assert_eq!(
        origins.iter().flatten().count(),
        1,
        "one fetched, one found"
    );
    assert_eq!(server.requests().len(), 1);
    assert!(read(&place.file()) == file);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_stops_at_once_and_says_what_to_do() {
    let file = noise(10_000, 18);
    let body = file.clone();
    let server = Server::start(move |request| Reply::range(&body, request.from()));
    let place = Place::new();
    // Every write to this device fails with ENOSPC.
    std::os::unix::fs::symlink("/dev/full", place.part()).expect("a link");
    let error =
        fetch(&artifact(&file), &place.file(), &settings(&server), &Silent).expect_err("full");
    assert!(
        matches!(
            error,
            PullError::DiskFull {
                needed: Some(10_000),
                ..
            }
        ),
        "{error}"
    );
    let message = error.to_string();
    assert!(
        message.contains("m.gguf.hub.part")
            && message.contains("FOREDRAFT_HOME")
            && message.contains("1 MB"),
        "{message}"
    );
}
