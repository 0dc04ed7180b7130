//! Encoding takes time in proportion to the text: no quadratic behaviour, whatever the text is made of.
//!
//! No time is asserted, only how it grows: ten times the text may take at most forty times as long. A quadratic
//! algorithm takes a hundred times as long.

mod common;

use common::{smollm2, stories260k};
use foredraft_text::{Special, Tokenizer};
use std::time::{Duration, Instant};

/// The best of a few runs, since others share the machine.
fn time(tokenizer: &Tokenizer, text: &str) -> Duration {
    let run = |_| {
        let start = Instant::now();
        tokenizer.encode(text, Special::Parse).expect("encodes");
        start.elapsed()
    };
    (0..2).map(run).min().unwrap_or_default()
}

fn grows_linearly(tokenizer: &Tokenizer, name: &str) {
    for (kind, part) in [
        (
            "prose",
            "Once upon a time, there was a little girl named Lily. She loved to play!\n",
        ),
        ("one word", "a"),
        ("spaces", " "),
        ("lines", "\n"),
        ("spaces and lines", " \n"),
        ("base64", "dGhlIHF1aWNrIGJyb3duIGZveA"),
        ("CJK", "我想在苹果工作"),
        ("emoji", "👩‍👩‍👧‍👦🦙"),
        ("combining marks", "a\u{301}\u{323}\u{327}"),
        (
            "code",
            "    if (x[i] == '\\n') { return f(x, i + 1); } // done\n",
        ),
        ("control tokens", "<|im_start|>user\n</s>"),
        ("nearly control tokens", "<|im_start|<s<|im_end"),
        ("digits", "1234567890"),
    ] {
        let text = |bytes: usize| part.repeat(bytes / part.len());
        let (short, long) = (
            time(tokenizer, &text(10_000)),
            time(tokenizer, &text(100_000)),
        );
        println!("{name}, {kind}: {short:?} for 10 kB, {long:?} for 100 kB");
        let allowed = 40 * short.max(Duration::from_micros(500));
        assert!(
            long < allowed,
            "{name}, {kind}: {short:?} for 10 kB, but {long:?} for 100 kB"
        );
    }
}

#[test]
fn encoding_grows_with_the_text() {
    grows_linearly(&smollm2(), "smollm2");
    grows_linearly(&stories260k(), "stories260k");
}
