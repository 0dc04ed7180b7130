//! A file of the model hub, over HTTP, resumed by `Range`.

use std::io::Read;
use std::time::Duration;

use super::error::{PullError, SourceError, Stop};
use super::http::{Answer, Client, status_error};
use super::part::{CHUNK_BYTES, PartFile};
use super::{Artifact, Progress, Settings};
use crate::models::catalogue::HubFile;

/// Broken connections in a row that are taken up again.
const RETRIES: u32 = 4;

/// A connection that brought this much counts as a good one: the retries begin anew.
const GOOD_BYTES: u64 = 8 << 20;

/// Fills the part file from the hub. Gives the sha256 that the hub announced, if it did.
pub(super) fn fetch(
    file: &HubFile,
    artifact: &Artifact,
    part: &mut PartFile,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Option<String>, Stop> {
    let client = Client::new(settings);
    let url = settings.url(file);
    let mut announced = None;
    let mut broken = 0;
    let mut answered = false;
    loop {
        let before = part.position();
        let why = match connect(&client, &url, artifact, part, &mut announced) {
            Ok(None) => return Ok(announced),
            Ok(Some(answer)) => {
                answered = true;
                progress.begin(&artifact.name, part.position(), part.total());
                match receive(answer, part, progress)? {
                    Received::All => return Ok(announced),
                    Received::Broken(why) => why,
                }
            }
            // A hub that never answered will hardly do so now; one that did may come back.
            Err(Stop::Source(SourceError::Unreachable(why))) if answered => why,
            Err(stop) => return Err(stop),
        };
        if part.position() >= before.saturating_add(GOOD_BYTES) {
            broken = 0;
        }
        if broken == RETRIES {
            return Err(SourceError::Broken {
                position: part.position(),
                why,
            }
            .into());
        }
        pause(settings.retry_pause * 2u32.pow(broken), progress)?;
        broken += 1;
    }
}

/// Asks for what is missing; `None` when nothing is. On return the part file ends where the answer begins.
fn connect(
    client: &Client<'_>,
    url: &str,
    artifact: &Artifact,
    part: &mut PartFile,
    announced: &mut Option<String>,
) -> Result<Option<Answer>, Stop> {
    if part.total() == Some(part.position()) && part.position() > 0 {
        return Ok(None);
    }
    let mut answer = client.get(url, part.position())?;
    if answer.status == 416 && part.position() > 0 {
        // What is here reaches past the end of what the hub has: not a part of that file.
        part.restart()?;
        answer = client.get(url, 0)?;
    }
    status_error(answer.status)?;
    if let (Some(expected), Some(offered)) = (&artifact.sha256, &answer.sha256)
        && expected != offered
    {
        return Err(different("sha256", expected, offered));
    }
    if let (Some(expected), Some(offered)) = (part.total(), answer.total)
        && expected != offered
    {
        return Err(different(
            "size in bytes",
            &expected.to_string(),
            &offered.to_string(),
        ));
    }
    if let Some(total) = answer.total {
        part.set_total(total);
    }
    *announced = answer.sha256.clone().or(announced.take());
    if answer.start == 0 && part.position() > 0 {
        // The server does not know Range and begins at the beginning.
        part.restart()?;
    }
    if answer.start != part.position() {
        return Err(SourceError::Answer(
            "it sent another range than the one asked for".to_string(),
        )
        .into());
    }
    Ok(Some(answer))
}

enum Received {
    All,
    Broken(String),
}

/// Writes the body to the part file until it ends or breaks.
fn receive(
    mut answer: Answer,
    part: &mut PartFile,
    progress: &dyn Progress,
) -> Result<Received, Stop> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        if progress.cancelled() {
            return Err(PullError::Cancelled.into());
        }
        let read = match answer.body.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Received::Broken(error.to_string())),
        };
        let missing = part.total().map(|total| total - part.position());
        match (read, missing) {
            (0, None | Some(0)) => return Ok(Received::All),
            (0, Some(_)) => return Ok(Received::Broken("it ended too early".to_string())),
            (read, Some(missing)) if read as u64 > missing => {
                return Err(SourceError::Answer(
                    "it sent more bytes than the file has".to_string(),
                )
                .into());
            }
            (read, _) => part.write(&buffer[..read])?,
        }
        progress.at(part.position());
    }
}

fn different(what: &'static str, expected: &str, offered: &str) -> Stop {
    SourceError::Different {
        what,
        expected: expected.to_string(),
        offered: offered.to_string(),
    }
    .into()
}

/// Sleeps, and wakes up when asked to stop.
fn pause(time: Duration, progress: &dyn Progress) -> Result<(), Stop> {
    let slice = Duration::from_millis(50);
    let mut left = time;
    while !left.is_zero() {
        if progress.cancelled() {
            return Err(PullError::Cancelled.into());
        }
        let nap = left.min(slice);
        std::thread::sleep(nap);
        left -= nap;
    }
    Ok(())
}
