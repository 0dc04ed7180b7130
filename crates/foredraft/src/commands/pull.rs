//! `foredraft pull [MODEL]`: fetches a model, or lists those that can be named.

use std::path::Path;

use clap::Args;
use foredraft::models::catalogue::{CATALOGUE, Contents, Entry};
use foredraft::models::{ModelSpec, Store};
use foredraft::pull::{self, Pulled, Settings};
use serde::Serialize;

use crate::exit::Exit;
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Options of `pull`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft pull                     list the aliases, and where each model is
  foredraft pull smollm2-135m
  foredraft pull hf:owner/repo:model-Q4_K_M.gguf

A fetch that was stopped goes on where it was when the same command is given again.")]
pub(crate) struct PullArgs {
    /// Alias or hf:owner/repo[:file]; without it, the aliases are listed
    model: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `pull --json`.
#[derive(Debug, Serialize)]
struct Listing {
    models: Vec<ListedModel>,
}

/// One alias.
#[derive(Debug, Serialize)]
struct ListedModel {
    alias: &'static str,
    title: &'static str,
    bytes: u64,
    licence: &'static str,
    /// `built in`, `here` or `not here`
    state: &'static str,
    /// Where the file is, if it is here.
    path: Option<String>,
    /// Where it would come from, in the order that is tried.
    sources: Vec<String>,
}

/// `pull MODEL --json`.
#[derive(Debug, Serialize)]
struct PulledModel {
    model: String,
    /// Where the file is; null for a model that is built in.
    path: Option<String>,
    bytes: Option<u64>,
    /// Of the file, when it was fetched now or is in the catalogue.
    sha256: Option<String>,
    licence: Option<&'static str>,
    /// Where it came from; null when it was here already.
    origin: Option<String>,
}

/// Fetches or lists.
pub(crate) fn run(args: PullArgs) -> Result<(), Exit> {
    match &args.model {
        None => list(args.json),
        Some(model) => fetch(model, args.json),
    }
}

fn list(json: bool) -> Result<(), Exit> {
    let store = Store::from_env()?;
    let settings = Settings::from_env();
    let models: Vec<ListedModel> = CATALOGUE
        .iter()
        .map(|entry| describe(entry, &store, &settings))
        .collect();
    if json {
        return output::stdout_json(&Listing { models });
    }
    let mut rows = vec![
        ["ALIAS", "SIZE", "LICENCE", "MODEL", "WHERE"]
            .map(String::from)
            .to_vec(),
    ];
    for model in &models {
        let place = match (&model.path, model.state) {
            (Some(path), _) => output::printable(path),
            (None, state) => state.to_string(),
        };
        let columns = [
            model.alias,
            &output::bytes(model.bytes),
            model.licence,
            model.title,
            &place,
        ];
        rows.push(columns.map(String::from).to_vec());
    }
    output::stdout(&output::table(&rows))
}

fn describe(entry: &'static Entry, store: &Store, settings: &Settings) -> ListedModel {
    let found = store.find(entry);
    let (state, sources) = match &entry.contents {
        Contents::BuiltIn(_) => ("built in", Vec::new()),
        Contents::Download(download) => {
            let state = if found.is_some() { "here" } else { "not here" };
            (
                state,
                download
                    .sources
                    .iter()
                    .map(|source| settings.describe(source))
                    .collect(),
            )
        }
    };
    ListedModel {
        alias: entry.alias,
        title: entry.title,
        bytes: entry.bytes(),
        licence: entry.licence,
        state,
        path: found.map(|path| path.to_string_lossy().into_owned()),
        sources,
    }
}

fn fetch(model: &str, json: bool) -> Result<(), Exit> {
    interrupt::install();
    let progress = Stderr::new();
    let settings = Settings::from_env();
    let (pulled, entry) = match model.parse::<ModelSpec>()? {
        ModelSpec::Path(path) => {
            let path = path.display();
            return Err(Exit::input(anyhow::anyhow!(
                "{path} is here already: pull takes an alias or hf:owner/repo[:file]"
            )));
        }
        ModelSpec::Alias(entry) => match &entry.contents {
            Contents::BuiltIn(_) => (None, Some(entry)),
            Contents::Download(download) => {
                let store = Store::from_env()?;
                if let Some(path) = store.find(entry) {
                    discard_if_damaged(&path, download.sha256)?;
                }
                let pulled = pull::pull_entry(entry, &store, &settings, &progress);
                (Some(pulled.map_err(exit)?), Some(entry))
            }
        },
        ModelSpec::Hub { repo, file } => {
            let pulled = pull::pull_hub(
                &repo,
                file.as_deref(),
                &Store::from_env()?,
                &settings,
                &progress,
            );
            (Some(pulled.map_err(exit)?), None)
        }
    };
    summarize(model, pulled.as_ref(), entry);
    if json {
        return output::stdout_json(&report(model, pulled, entry));
    }
    Ok(())
}

/// Removes a file of the store whose bytes have changed since it was fetched, so that it is fetched again.
fn discard_if_damaged(path: &Path, sha256: &str) -> Result<(), Exit> {
    let failed = |what: &str, error: std::io::Error| {
        Exit::failed(anyhow::Error::new(error).context(format!("cannot {what} {}", path.display())))
    };
    let found = pull::sha256_of(path).map_err(|error| failed("read", error))?;
    if found != sha256 {
        output::warn(&format!(
            "{} is damaged (sha256 {found}): it is fetched again",
            path.display()
        ));
        std::fs::remove_file(path).map_err(|error| failed("remove", error))?;
    }
    Ok(())
}

fn exit(error: pull::PullError) -> Exit {
    Exit::from(foredraft::models::ModelError::from(error))
}

/// Says on stderr where the file is, where it came from, and under which licence.
fn summarize(model: &str, pulled: Option<&Pulled>, entry: Option<&Entry>) {
    let line = match pulled {
        None => format!("{model} is built into foredraft"),
        Some(Pulled {
            path, origin: None, ..
        }) => format!("{model} is here already: {}", path.display()),
        Some(Pulled {
            path,
            origin: Some(origin),
            ..
        }) => format!("{model}: {} from {origin}", path.display()),
    };
    output::stderr_line(&output::one_line(&line));
    match entry {
        Some(entry) => {
            output::stderr_line(&format!("licence of {}: {}", entry.title, entry.licence))
        }
        None => output::stderr_line("its licence is on the repository's page"),
    }
}

fn report(model: &str, pulled: Option<Pulled>, entry: Option<&Entry>) -> PulledModel {
    let known = entry.and_then(|entry| match &entry.contents {
        Contents::Download(download) => Some(download.sha256.to_string()),
        Contents::BuiltIn(_) => None,
    });
    let path = pulled.as_ref().map(|pulled| pulled.path.clone());
    let measured = || {
        path.as_ref()
            .and_then(|path| std::fs::metadata(path).ok())
            .filter(|m| m.is_file())
            .map(|m| m.len())
    };
    PulledModel {
        model: model.to_string(),
        bytes: entry.map(Entry::bytes).or_else(measured),
        sha256: pulled
            .as_ref()
            .and_then(|pulled| pulled.sha256.clone())
            .or(known),
        licence: entry.map(|entry| entry.licence),
        origin: pulled.and_then(|pulled| pulled.origin),
        path: path.map(|path| path.to_string_lossy().into_owned()),
    }
}
