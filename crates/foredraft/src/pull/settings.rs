//! Whom a fetch asks: the hub's address, the Python with pip, patience.

use std::ffi::OsString;
use std::time::Duration;

use crate::models::catalogue::{HubFile, Packages, Source};

/// The hub that is asked unless `HF_ENDPOINT` says otherwise.
const HUB: &str = "https://huggingface.co";

/// Settings of a fetch.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the hub, without a slash at the end.
    pub endpoint: String,
    /// Token for the hub's gated and private models.
    pub token: Option<String>,
    /// The Python to run pip with; without one `python3`, then `python`.
    pub python: Option<OsString>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long the other side may be silent.
    pub read_timeout: Duration,
    /// Pause before a broken transfer is taken up again; doubles each time.
    pub retry_pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            endpoint: HUB.to_string(),
            token: None,
            python: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            retry_pause: Duration::from_millis(500),
        }
    }
}

impl Settings {
    /// The defaults, changed by `HF_ENDPOINT`, `HF_TOKEN` and `PYTHON`.
    pub fn from_env() -> Self {
        let text = |name: &str| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        let mut settings = Settings::default();
        if let Some(endpoint) = text("HF_ENDPOINT") {
            settings.endpoint = endpoint.trim().trim_end_matches('/').to_string();
        }
        settings.token = text("HF_TOKEN").map(|token| token.trim().to_string());
        settings.python = std::env::var_os("PYTHON").filter(|value| !value.is_empty());
        settings
    }

    /// Where a hub file is downloaded from.
    pub(super) fn url(&self, file: &HubFile) -> String {
        // Names are checked (see `is_safe_relative`); a space and the like still need their escape.
        let path: Vec<String> = file.file.split('/').map(escape).collect();
        format!(
            "{}/{}/resolve/{}/{}",
            self.endpoint,
            file.repo,
            escape(&file.revision),
            path.join("/")
        )
    }

    /// A repository's page.
    pub(super) fn page(&self, repo: &str) -> String {
        format!("{}/{repo}", self.endpoint)
    }

    /// A source in words.
    pub fn describe(&self, source: &Source) -> String {
        match source {
            Source::Hub(file) => self.url(file),
            Source::Packages(packages) => describe_packages(packages),
        }
    }
}

fn describe_packages(packages: &Packages) -> String {
    let Packages {
        name,
        version,
        count,
        ..
    } = packages;
    let names = match count {
        1 => format!("the Python package {name} {version}"),
        _ => format!(
            "the Python packages {} to {} {version}",
            name.replace("{n}", "1"),
            name.replace("{n}", &count.to_string())
        ),
    };
    if packages.by_individual {
        format!("{names} (an upload by an individual)")
    } else {
        names
    }
}

/// Percent-escapes what may not stand in a URL's path segment.
fn escape(segment: &str) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let settings = Settings::default();
        let file = HubFile {
            repo: "o/r".into(),
            revision: "main".into(),
            file: "a b/c+d.gguf".into(),
        };
        assert_eq!(
            settings.url(&file),
            "https://huggingface.co/o/r/resolve/main/a%20b/c%2Bd.gguf"
        );
    }
}
