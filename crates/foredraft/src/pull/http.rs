//! GET over HTTP, as a fetch needs it: from a byte on, redirects followed by hand.
//!
//! By hand, because the hub tells a file's sha256 in the headers of its redirect, which a client that
//! follows silently would not show; and because the token must stay with the hub.

use std::io::Read;

use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::Settings;
use super::error::SourceError;

/// Most redirects that are followed.
const REDIRECTS: usize = 8;

/// Most bytes of a listing: the largest repositories list some MB.
const LISTING_BYTES: u64 = 16 << 20;

/// A client with the fetch's patience.
pub(super) struct Client<'a> {
    agent: Agent,
    settings: &'a Settings,
}

/// An answer whose body is still to be read.
pub(super) struct Answer {
    /// The status of the last hop.
    pub(super) status: u16,
    /// Size of the whole file, when told.
    pub(super) total: Option<u64>,
    /// Where the body begins in the file.
    pub(super) start: u64,
    /// sha256 of the whole file, when the hub told it.
    pub(super) sha256: Option<String>,
    /// The bytes.
    pub(super) body: Box<dyn Read>,
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(settings.connect_timeout))
            .timeout_resolve(Some(settings.connect_timeout))
            .timeout_recv_response(Some(settings.read_timeout))
            .timeout_per_read(Some(settings.read_timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("foredraft/", env!("CARGO_PKG_VERSION")))
            .build();
        Client {
            agent: config.new_agent(),
            settings,
        }
    }

    /// Asks for the file at `url` from byte `from` on.
    pub(super) fn get(&self, url: &str, from: u64) -> Result<Answer, SourceError> {
        let mut url = url.to_string();
        let mut sha256 = None;
        let mut linked_bytes = None;
        for _ in 0..=REDIRECTS {
            let response = self.request(&url, from)?;
            let headers = response.headers();
            sha256 = sha256.or_else(|| header(headers, "x-linked-etag").and_then(sha256_of_etag));
            linked_bytes = linked_bytes
                .or_else(|| header(headers, "x-linked-size").and_then(|size| size.parse().ok()));
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return answer(response, status, sha256, linked_bytes);
            }
            let location = header(headers, "location").unwrap_or_default();
            url = follow(&url, location).ok_or_else(|| {
                SourceError::Answer(format!("it redirects to '{}'", location.escape_default()))
            })?;
        }
        Err(SourceError::Answer("it redirects in a circle".to_string()))
    }

    /// The JSON document at `url`.
    pub(super) fn json(&self, url: &str) -> Result<serde_json::Value, SourceError> {
        let answer = self.get(url, 0)?;
        status_error(answer.status)?;
        let mut text = Vec::new();
        answer
            .body
            .take(LISTING_BYTES)
            .read_to_end(&mut text)
            .map_err(|error| SourceError::Unreachable(error.to_string()))?;
        serde_json::from_slice(&text)
            .map_err(|error| SourceError::Answer(format!("no JSON: {error}")))
    }

    fn request(&self, url: &str, from: u64) -> Result<Response<Body>, SourceError> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = self
            .settings
            .token
            .as_deref()
            .filter(|_| self.may_have_token(url))
        {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request
            .call()
            .map_err(|error| SourceError::Unreachable(error.to_string()))
    }

    /// The token goes to the hub itself, encrypted or inside this machine, and to nobody it redirects to.
    fn may_have_token(&self, url: &str) -> bool {
        let hub = origin(&self.settings.endpoint);
        let safe = hub.starts_with("https://")
            || hub.starts_with("http://127.0.0.1")
            || hub.starts_with("http://localhost");
        safe && origin(url) == hub
    }
}

/// The error that a final status is, if it is one.
pub(super) fn status_error(status: u16) -> Result<(), SourceError> {
    match status {
        200 | 206 => Ok(()),
        404 => Err(SourceError::NotFound),
        401 | 403 => Err(SourceError::Refused(status)),
        _ => Err(SourceError::Status(status)),
    }
}

fn answer(
    response: Response<Body>,
    status: u16,
    sha256: Option<String>,
    linked: Option<u64>,
) -> Result<Answer, SourceError> {
    let (start, whole) = match (status, header(response.headers(), "content-range")) {
        (206, Some(range)) => content_range(range)
            .ok_or_else(|| SourceError::Answer("its Content-Range makes no sense".to_string()))?,
        (206, None) => {
            return Err(SourceError::Answer(
                "a part without Content-Range".to_string(),
            ));
        }
        _ => (0, response.body().content_length()),
    };
    // ureq limits bodies to 10 MB unless told otherwise; the fetch has its own limit, the file's size.
    let body = response
        .into_body()
        .into_with_config()
        .limit(u64::MAX)
        .reader();
    Ok(Answer {
        status,
        total: whole.or(linked),
        start,
        sha256,
        body: Box::new(body),
    })
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `"<64 hex digits>"`, perhaps with `W/` before it; other ETags are no sha256.
fn sha256_of_etag(etag: &str) -> Option<String> {
    let hash = etag.trim_start_matches("W/").trim_matches('"');
    (hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| hash.to_ascii_lowercase())
}

/// `bytes 5-9/10` as (5, Some(10)); the whole may be `*`.
fn content_range(range: &str) -> Option<(u64, Option<u64>)> {
    let (span, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = span.split_once('-')?;
    let whole = if whole == "*" {
        None
    } else {
        Some(whole.trim().parse().ok()?)
    };
    Some((start.trim().parse().ok()?, whole))
}

/// `scheme://host:port` of an absolute URL.
fn origin(url: &str) -> &str {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let host = url[after_scheme..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| after_scheme + at);
    &url[..host]
}

/// The address that a redirect from `url` leads to; never from https to plain http.
fn follow(url: &str, location: &str) -> Option<String> {
    let next = if location.starts_with("https://") || location.starts_with("http://") {
        location.to_string()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", url.split("://").next()?)
    } else if location.starts_with('/') {
        format!("{}{location}", origin(url))
    } else {
        return None;
    };
    let downgrade = url.starts_with("https://") && next.starts_with("http://");
    (!downgrade).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects() {
        let from = "https://hub.test/o/r/resolve/main/f?x=1";
        let check = |location: &str, expected: Option<&str>| {
            assert_eq!(follow(from, location).as_deref(), expected, "{location}")
        };
        check("/elsewhere", Some("https://hub.test/elsewhere"));
        check("//cdn.test/f", Some("https://cdn.test/f"));
        check(
            "https://cdn.test/f?sig=%20",
            Some("https://cdn.test/f?sig=%20"),
        );
        check("http://cdn.test/f", None);
        check("f", None);
        check("", None);
    }

    #[test]
    fn headers() {
        let hash = "B179C9523D0E6A0F98A330C7562B682750A6F8C8C15E5BC70EA373728110DB53";
        assert_eq!(
            sha256_of_etag(&format!("\"{hash}\"")),
            Some(hash.to_lowercase())
        );
        assert_eq!(sha256_of_etag("\"1d9614638d\""), None);
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(content_range("bytes */10"), None);
        assert_eq!(origin("http://127.0.0.1:8080/x"), "http://127.0.0.1:8080");
    }

    #[test]
    fn the_token_stays_with_the_hub() {
        let settings = Settings {
            token: Some("t".into()),
            ..Settings::default()
        };
        let client = Client::new(&settings);
        assert!(client.may_have_token("https://huggingface.co/o/r"));
        assert!(!client.may_have_token("https://huggingface.co.evil.test/o/r"));
        assert!(!client.may_have_token("https://cdn.test/o/r"));
        let plain = Settings {
            endpoint: "http://mirror.test".into(),
            ..settings.clone()
        };
        assert!(!Client::new(&plain).may_have_token("http://mirror.test/o/r"));
    }
}
