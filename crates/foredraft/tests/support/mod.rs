//! What the tests of `pull` share: an HTTP server on 127.0.0.1 that does as it is told, a Python that
//! is none, and the binary with a clean environment.

#![allow(dead_code, unreachable_pub)] // every test file uses its part

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A request, as far as the tests care.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// The first byte that `Range` asks for; 0 without one.
    pub fn from(&self) -> usize {
        let range = self
            .headers
            .get("range")
            .and_then(|range| range.strip_prefix("bytes="));
        range
            .and_then(|range| range.trim_end_matches('-').parse().ok())
            .unwrap_or(0)
    }
}

/// What the server answers.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Close the connection after this many bytes of the body, though more were promised.
    pub cut_after: Option<usize>,
    /// Keep the connection open and silent after the (perhaps cut) body.
    pub stall: bool,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Reply {
            status,
            ..Reply::default()
        }
    }

    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Reply {
            status: 200,
            body: body.into(),
            ..Reply::default()
        }
    }

    /// The rest of a file from `from` on: 206 with Content-Range, or the whole with 200.
    pub fn range(file: &[u8], from: usize) -> Self {
        if from == 0 {
            return Reply::ok(file);
        }
        if from >= file.len() {
            return Reply::status(416);
        }
        let range = format!("bytes {from}-{}/{}", file.len() - 1, file.len());
        Reply {
            status: 206,
            headers: vec![("Content-Range", range)],
            body: file[from..].to_vec(),
            ..Reply::default()
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut(self, after: usize) -> Self {
        Reply {
            cut_after: Some(after),
            ..self
        }
    }
}

/// An HTTP server on a port of its own; it ends with the process.
pub struct Server {
    pub endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Serves every connection one request, answered by `answer`.
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(connection, &seen, &*answer));
            }
        });
        Server { endpoint, requests }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests
            .lock()
            .expect("no test panicked in it")
            .clone()
    }
}

fn serve(
    connection: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(impl Fn(&Request) -> Reply + ?Sized),
) {
    let mut lines = BufReader::new(&connection).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(": ")
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        })
        .collect();
    let request = Request { path, headers };
    let reply = answer(&request);
    seen.lock().expect("no test panicked in it").push(request);
    let mut out = &connection;
    let mut head = format!(
        "HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = &reply.body[..reply
        .cut_after
        .unwrap_or(reply.body.len())
        .min(reply.body.len())];
    let _ = out
        .write_all(head.as_bytes())
        .and_then(|()| out.write_all(b"\r\n"))
        .and_then(|()| out.write_all(body));
    let _ = out.flush();
    if reply.stall {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

/// A Python whose pip gives prepared packages; see `tests/data/fake-python`.
#[cfg(unix)]
pub struct FakePython {
    folder: tempfile::TempDir,
}

#[cfg(unix)]
impl FakePython {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake-python");
        // A link, not a copy: a script that this process has just written may be "busy" for exec.
        std::os::unix::fs::symlink(script, folder.path().join("python")).expect("a link");
        std::fs::create_dir(folder.path().join("slices")).expect("a folder");
        FakePython { folder }
    }

    /// What to run as Python.
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("python")
    }

    /// What pip gives for `NAME==VERSION`.
    pub fn package(&self, requirement: &str, wheel: &[u8]) {
        std::fs::write(self.folder.path().join("slices").join(requirement), wheel).expect("writes");
    }

    /// Makes pip fail with these words.
    pub fn pip_says(&self, words: &str) {
        std::fs::write(self.folder.path().join("says"), words).expect("writes");
    }

    /// Lets the machine's own Python read the wheels.
    pub fn read_wheels_for_real(&self) {
        std::fs::write(self.folder.path().join("real"), "").expect("writes");
    }

    /// What was downloaded, in order.
    pub fn downloads(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_string).collect()
    }
}

/// The binary, with its store in `home` and nothing of the caller's settings.
pub fn foredraft(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foredraft"));
    for name in [
        "HF_ENDPOINT",
        "HF_TOKEN",
        "PYTHON",
        "XDG_CACHE_HOME",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "CLICOLOR_FORCE",
    ] {
        command.env_remove(name);
    }
    command
        .env("FOREDRAFT_HOME", home)
        .stdin(std::process::Stdio::null());
    command
}

/// How the binary ended: code, stdout, stderr.
pub fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Bytes without a pattern that a wrong offset could hide in (xorshift64).
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    (0..length).map(|_| next()).collect()
}

/// The sha256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
