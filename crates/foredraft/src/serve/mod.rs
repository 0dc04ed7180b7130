//! What `foredraft serve` does: listen, load, serve, and end when told to.

mod log;
mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foredraft::cpu::CpuBackend;
use foredraft::engine::{EngineOptions, Service, ServiceOptions};
use foredraft::formats::Checkpoint;
use foredraft::models::{self, ModelSpec};
use foredraft::server::{Defaults, Limits, Model, Server, ServerOptions};
use foredraft::text::Tokenizer;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::commands::serve::{ServeArgs, ServerArgs};
use crate::exit::Exit;
use crate::load::{self, Drafts, Loaded};
use crate::progress::Stderr;
use log::Notes;
use signals::Signals;

/// Threads that answer connections: they only pass on what the engine's threads make.
const HTTP_THREADS: usize = 2;
/// Threads for templates and tokenizers.
const TEXT_THREADS: usize = 4;

/// Serves a model until a signal comes.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Exit> {
    let options = options(&args)?;
    // A draft that is none is told before the model is loaded.
    args.draft.drafts()?;
    let notes = log::start(args.server.log, args.server.log_level.as_deref())?;
    args.sampling.warn();
    if !options.address.ip().is_loopback() && options.api_keys.is_empty() {
        notes.warn("whoever reaches this machine can use the model: give --api-key, or listen on 127.0.0.1");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .max_blocking_threads(TEXT_THREADS)
        .thread_name("http")
        .enable_all()
        .build();
    let runtime = runtime.map_err(Exit::failed)?;
    let result = runtime.block_on(listen_and_serve(Arc::new(args), options, notes));
    // A model that still loads is not waited for.
    runtime.shutdown_background();
    result
}

async fn listen_and_serve(
    args: Arc<ServeArgs>,
    options: ServerOptions,
    notes: Notes,
) -> Result<(), Exit> {
    let mut signals = Signals::new().map_err(Exit::failed)?;
    let asked = options.address;
    let server = Server::bind(options).await;
    let server = server.map_err(|error| cannot_listen(asked, error))?;
    let (address, handle) = (server.address(), server.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async {
        // A sender that is gone means the same.
        let _ = stopped.await;
    }));
    tokio::select! {
        loaded = load(&args) => handle.set_model(loaded?),
        () = signals.next() => return Err(Exit::Interrupted),
    }
    notes.say(&format!("listening on http://{address}"));
    signals.next().await;
    notes.say("ending: answers under way may end first; once more to end at once");
    drop(stop);
    tokio::select! {
        result = serving => result.map_err(Exit::failed),
        () = signals.next() => Err(Exit::Interrupted),
    }
}

fn cannot_listen(address: SocketAddr, error: std::io::Error) -> Exit {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program has this port: give another --port, or 0 for any"
        }
        std::io::ErrorKind::PermissionDenied => "this port is reserved: give a --port from 1024 on",
        std::io::ErrorKind::AddrNotAvailable => {
            "this is no address of this machine: give another --host"
        }
        _ => "the system refuses",
    };
    let problem = format!("cannot listen on {address}: {remedy}");
    Exit::failed(anyhow::Error::new(error).context(problem))
}

/// Loads the model on a thread of its own, which nobody waits for when a signal comes.
async fn load(args: &Arc<ServeArgs>) -> Result<Model, Exit> {
    let (sender, receiver) = oneshot::channel();
    let args = Arc::clone(args);
    let thread = std::thread::Builder::new().name("load".into());
    let spawned = thread.spawn(move || sender.send(load_now(&args)));
    spawned.map_err(Exit::failed)?;
    let gone = |_| Exit::failed(anyhow::anyhow!("loading the model failed"));
    receiver.await.map_err(gone)?
}

fn load_now(args: &ServeArgs) -> Result<Model, Exit> {
    let (drafts, speculation) = (args.draft.drafts()?, args.draft.speculation());
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let tokenizer = Arc::new(Tokenizer::open(checkpoint.vocabulary())?);
    let fingerprint = fingerprint(&checkpoint, args);
    // Requests may ask for more than the default.
    let most_nodes = speculation
        .nodes()
        .max(EngineOptions::default().max_draft_nodes);
    let drafts = Drafts::open(drafts, most_nodes, &tokenizer)?;
    let engine_options = EngineOptions {
        max_sequences: args.server.max_batch,
        kv_tokens: args.server.kv_tokens,
        ..load::engine_options(&args.options)
    };
    let Loaded { engine, backend } = load::load_with_options(
        &checkpoint,
        &tokenizer,
        &args.options,
        engine_options,
        drafts,
    )?;
    let context_tokens = engine.context_tokens();
    let bandwidth_bytes_per_s = bandwidth(&backend, engine.memory().streamed_bytes);
    let options = ServiceOptions {
        max_queue: args.server.max_queue,
    };
    let service = Service::start(engine, options).map_err(Exit::failed)?;
    Ok(Model {
        service,
        tokenizer,
        context_tokens,
        max_draft_nodes: most_nodes,
        bandwidth_bytes_per_s,
        fingerprint,
    })
}

/// What reading memory reaches, in bytes a second: the best of a few reads of as much as a pass reads, or of as much as no cache
/// holds. `None` where there is no memory left to try it with.
fn bandwidth(backend: &CpuBackend, streamed_bytes: u64) -> Option<f64> {
    const MOST_BYTES: u64 = 256 << 20;
    const READS: usize = 5;
    let bytes = streamed_bytes.min(MOST_BYTES);
    let mut reader = backend.reader(bytes as usize).ok()?;
    let seconds = (0..READS).map(|_| reader.read());
    let best = seconds.min_by(f64::total_cmp)?;
    (best > 0.0).then(|| bytes as f64 / best)
}

/// Names what an answer's bits depend on: this version, the KV type, and the weights, of which it looks at the beginning of
/// every tensor.
fn fingerprint(checkpoint: &Checkpoint, args: &ServeArgs) -> String {
    const LOOKED_AT_BYTES: usize = 256;
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(format!("{:?}", args.options.kv));
    for tensor in checkpoint.raw_tensors() {
        digest.update(format!(
            "{} {:?} {:?}",
            tensor.name, tensor.element, tensor.shape
        ));
        let data = tensor.data;
        digest.update(&data[..data.len().min(LOOKED_AT_BYTES)]);
    }
    let digest: String = digest
        .finalize()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("fp_{digest}")
}

/// What the options say to the server.
fn options(args: &ServeArgs) -> Result<ServerOptions, Exit> {
    let sampling = args.sampling.settings();
    sampling.validate().map_err(Exit::input)?;
    let server = &args.server;
    let mut names = server.aliases.clone();
    names.push(args.model.parse::<ModelSpec>()?.name());
    names.push(args.model.clone());
    Ok(ServerOptions {
        address: SocketAddr::new(server.host, server.port),
        names,
        api_keys: api_keys(server)?,
        limits: limits(server)?,
        defaults: Defaults {
            sampling,
            max_tokens: args.sampling.max_tokens,
            stop: args.sampling.stop.clone(),
            speculation: args.draft.speculation(),
        },
    })
}

fn limits(server: &ServerArgs) -> Result<Limits, Exit> {
    let body_bytes = usize::try_from(server.max_body.bytes).map_err(Exit::input)?;
    Ok(Limits {
        body_bytes,
        // More at once could never be queued.
        choices: server.max_choices.min(server.max_queue),
        read_timeout: Duration::from_secs(server.read_timeout),
        write_timeout: Duration::from_secs(server.write_timeout),
        request_timeout: Duration::from_secs(server.request_timeout),
        stream_buffer: server.stream_buffer,
        connections: server.max_connections,
        grace: Duration::from_secs(server.grace),
    })
}

/// Keys from the command line; without any, the environment's.
fn api_keys(server: &ServerArgs) -> Result<Vec<String>, Exit> {
    if !server.api_keys.is_empty() {
        return Ok(server.api_keys.clone());
    }
    match std::env::var("FOREDRAFT_API_KEY") {
        Err(std::env::VarError::NotPresent) => Ok(Vec::new()),
        Ok(key) if !key.trim().is_empty() => Ok(vec![key.trim().to_owned()]),
        // A secret that did not arrive must not open the server to everyone.
        _ => Err(Exit::input(anyhow::anyhow!(
            "FOREDRAFT_API_KEY is set, but to no key: unset it, or give it one"
        ))),
    }
}
