//! `foredraft serve MODEL`.

use std::net::IpAddr;

use clap::{Args, ValueEnum};

use crate::args::values::{self, Size};
use crate::args::{DraftOptions, ModelOptions, SamplingOptions};
use crate::exit::Exit;

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft serve smollm2-135m
  foredraft serve qwen2.5-coder-1.5b --draft model:qwen2.5-coder-0.5b --draft lookup
  foredraft serve model.gguf --host 0.0.0.0 --port 9000 --alias my-model      with FOREDRAFT_API_KEY set
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
       -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'

It listens at once: while the model loads, /health says 200 and everything else 503; when it is loaded, /ready says
200 and the address is printed. Sampling and draft options are what a request means that leaves them out. Where OpenAI has
a default it is OpenAI's: temperature 1, top-p 1, 16 tokens of a completion.

Ctrl-C or SIGTERM: new requests get 503, answers under way may end within --grace; a second one ends at once.

Limits of a request, each an error of its own when it is exceeded: --max-body (413), --read-timeout (408),
--max-choices and the context (400), --max-queue (429), --request-timeout (503). An answer whose client leaves, or reads
it too slowly (--stream-buffer, --write-timeout), is cancelled.

Environment:
  FOREDRAFT_API_KEY   a key that requests must come with, as --api-key, which other users of this machine can see
  RUST_LOG            what is logged, where --log-level is not given")]
#[command(mut_arg("temperature", |temperature| temperature.default_value("1")))]
#[command(mut_arg("top_p", |top_p| top_p.default_value("1")))]
pub(crate) struct ServeArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,

    #[command(flatten)]
    pub(crate) draft: DraftOptions,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// Where, for whom, and how much.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server options")]
pub(crate) struct ServerArgs {
    /// Address to listen on; 0.0.0.0 is every one of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) host: IpAddr,

    /// Port to listen on; 0 takes one that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub(crate) port: u16,

    /// A key that requests must come with (repeatable) [default: FOREDRAFT_API_KEY, or none]
    #[arg(long = "api-key", value_name = "KEY", value_parser = values::some_text)]
    pub(crate) api_keys: Vec<String>,

    /// Another name for the model in requests (repeatable); the first one is listed
    #[arg(long = "alias", value_name = "NAME", value_parser = values::some_text)]
    pub(crate) aliases: Vec<String>,

    /// Answers that are made at a time; more wait
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = values::count::<1024>)]
    pub(crate) max_batch: usize,

    /// Tokens whose keys and values are kept, over all answers and past texts; at least one --context
    /// [default: 4096 for each of --max-batch, and at least one context; less where memory is short]
    #[arg(long, value_name = "N", value_parser = values::count::<{ 1 << 28 }>)]
    pub(crate) kv_tokens: Option<usize>,

    /// Answers that may wait; at one more a request is refused
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = values::count::<65536>)]
    pub(crate) max_queue: usize,

    /// Answers that one request may ask for: its prompts, times n; never more than --max-queue
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = values::count::<65536>)]
    pub(crate) max_choices: usize,

    /// Longest body of a request, such as 16MiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) max_body: Size,

    /// Connections at a time; more wait until one closes
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = values::count::<65536>)]
    pub(crate) max_connections: usize,

    /// Seconds from a request to the end of its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = seconds)]
    pub(crate) request_timeout: u64,

    /// Seconds for a request's headers to arrive, and for its body; idle connections are closed after as long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds)]
    pub(crate) read_timeout: u64,

    /// Seconds that a client may take nothing of what it is sent
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds)]
    pub(crate) write_timeout: u64,

    /// Pieces of a streamed answer that may wait for its reader
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = values::count::<{ 1 << 20 }>)]
    pub(crate) stream_buffer: usize,

    /// Seconds for answers under way to end, when the server is told to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) grace: u64,

    /// Form of the log, which goes to stderr: a line for each request, and what goes wrong
    #[arg(long, value_enum, value_name = "FORM", default_value_t = LogForm::Text)]
    pub(crate) log: LogForm,

    /// What is logged: error, warn, info, debug, trace, or as in RUST_LOG [default: RUST_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// `--log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// For people
    Text,
    /// An object in each line
    Json,
}

fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        text => text.parse().map_err(|_| {
            "must be an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1".to_owned()
        }),
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ 1..=86_400) => Ok(seconds),
        _ => Err("must be a whole number of seconds from 1 to 86400".to_owned()),
    }
}

/// Serves.
pub(crate) fn run(args: ServeArgs) -> Result<(), Exit> {
    crate::serve::serve(args)
}
