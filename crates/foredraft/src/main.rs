//! The `foredraft` command line.
//!
//! `main` parses, hands over to one command, and turns what comes back into an exit code. What the
//! code means, and how an error looks, is in [`exit`]; each command is a file of [`commands`].
//!
//! Invariants: stdout carries the answer and nothing else, through [`output`] (never `println!`,
//! which panics on a closed pipe); notes, progress and errors go to stderr.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod audit;
mod bench;
mod commands;
mod exit;
mod interrupt;
mod load;
mod output;
mod progress;
mod run;
mod serve;

fn main() -> std::process::ExitCode {
    let outcome = args::parse().and_then(commands::dispatch);
    exit::report(outcome)
}
