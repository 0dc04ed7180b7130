//! An engine on a thread of its own: who is heard, who is refused, and what clients that leave or break cost.

mod common;

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use common::backend::Watched;
use common::company::assert_same;
use common::requests::{Case, Kind, mixed};
use common::{answer, engine_with, greedy, prompt, tokenizer};
use foredraft_engine::{
    Completion, Engine, EngineError, EngineOptions, Event, FinishReason, Listener, Refusal,
    Request, Service, ServiceFigures, ServiceOptions,
};
use foredraft_model::unwatched;
use foredraft_speculate::Lookup;
use foredraft_testing::stories260k;

fn engine(max_sequences: usize) -> Engine {
    let options = EngineOptions {
        max_sequences,
        kv_tokens: Some(700),
        ..EngineOptions::default()
    };
    let mut engine = engine_with(&stories260k(), 1, &options);
    engine.set_drafters(vec![Box::new(Lookup::new(0))]);
    engine
}

fn service(max_sequences: usize, max_queue: usize) -> Service {
    Service::start(engine(max_sequences), ServiceOptions { max_queue }).expect("a thread")
}

/// What a listener hears.
enum Heard {
    Token,
    Text(String),
    End(Box<Result<Completion, EngineError>>),
}

/// Tells everything on; panics where it is told to.
struct Ear {
    heard: Sender<Heard>,
    tokens: usize,
    panics_at: Option<usize>,
    panics_at_end: bool,
    /// Waits for a word before it lets the engine go on from the first token.
    gate: Option<Receiver<()>>,
}

impl Listener for Ear {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Token { .. } => {
                self.tokens += 1;
                assert_ne!(Some(self.tokens), self.panics_at, "as planned");
                if let Some(gate) = self.gate.take() {
                    let _ = gate.recv();
                }
                let _ = self.heard.send(Heard::Token);
            }
            Event::Text(text) => _ = self.heard.send(Heard::Text(text.to_owned())),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn end(self: Box<Self>, result: Result<Completion, EngineError>) {
        assert!(!self.panics_at_end, "as planned");
        let _ = self.heard.send(Heard::End(Box::new(result)));
    }
}

/// A listener, and what it hears.
fn ear() -> (Box<Ear>, Receiver<Heard>) {
    let (heard, hears) = channel();
    let ear = Ear {
        heard,
        tokens: 0,
        panics_at: None,
        panics_at_end: false,
        gate: None,
    };
    (Box::new(ear), hears)
}

/// All that is heard: tokens, text, and how it ended.
fn listen(hears: &Receiver<Heard>) -> (usize, String, Result<Completion, EngineError>) {
    let (mut tokens, mut shown) = (0, String::new());
    loop {
        let heard = hears.recv_timeout(Duration::from_secs(60));
        match heard.expect("every request has an end") {
            Heard::Token => tokens += 1,
            Heard::Text(text) => shown.push_str(&text),
            Heard::End(result) => return (tokens, shown, *result),
        }
    }
}

fn wait_until(service: &Service, holds: impl Fn(&ServiceFigures) -> bool) -> ServiceFigures {
    let start = Instant::now();
    loop {
        let figures = service.figures();
        if holds(&figures) {
            return figures;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{figures:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Requests from many threads, some of whose clients leave or break: the others hear what they would hear alone.
#[test]
fn clients_hear_their_own_answer_whatever_the_others_do() {
    let mut cases = mixed(52);
    for case in &mut cases {
        case.cancelled_after = None;
    }
    let mut alone = engine(1);
    let expected: Vec<Completion> = cases
        .iter()
        .map(|case| answer(&mut alone, &case.request))
        .collect();
    let service = service(4, 100);
    std::thread::scope(|scope| {
        for (number, (case, expected)) in cases.iter().zip(&expected).enumerate() {
            let service = &service;
            scope.spawn(move || client(service, number, case, expected));
        }
    });
    let figures = wait_until(&service, |f| f.running + f.waiting == 0);
    let engine = &figures.engine;
    assert_eq!(engine.pages.used, engine.pages.cached);
    let ended = engine.ended;
    let finished = ended.max_tokens + ended.stop_string + ended.end_of_text;
    assert_eq!(finished + ended.cancelled + ended.failed, 52);
    assert!(engine.drafters[0].accepted[0] > 0);
    assert!(engine.phases.forward_seconds > 0.0);
    let rows = engine.rows - engine.prompt_rows;
    assert!(rows > engine.generated_tokens / 2 && engine.sequence_steps > 100);
}

/// One of three kinds: it listens to the end, it leaves in the middle, or it breaks.
fn client(service: &Service, number: usize, case: &Case, expected: &Completion) {
    let (mut listener, hears) = ear();
    let leaves = number % 5 == 1;
    if number % 5 == 2 {
        listener.panics_at = Some(3);
    }
    listener.panics_at_end = number % 5 == 3;
    let panics = listener.panics_at.is_some() && expected.tokens.len() >= 3;
    let ticket = service
        .submit(case.request.clone(), listener)
        .expect("taken");
    if leaves {
        drop(ticket);
        let (_, _, result) = listen(&hears);
        let got = result.expect("an answer");
        assert!(expected.tokens.starts_with(&got.tokens));
        return;
    }
    if number % 5 == 3 {
        // Its end is never heard; that is its own affair.
        while hears.recv().is_ok() {}
        return;
    }
    let (tokens, shown, result) = listen(&hears);
    if panics {
        assert!(
            matches!(result, Err(EngineError::Panicked { .. })),
            "{number}"
        );
        assert_eq!(tokens, 2);
        return;
    }
    let got = result.expect("an answer");
    assert_eq!((tokens, &shown), (got.tokens.len(), &got.text));
    assert_same(
        &[got],
        std::slice::from_ref(expected),
        std::slice::from_ref(case),
        "",
    );
}

/// The queue is bounded, and counts what the engine has not begun.
#[test]
fn more_than_the_queue_holds_is_refused() {
    let service = service(1, 3);
    let (open, gate) = channel();
    let (mut first, hears) = ear();
    first.gate = Some(gate);
    let request = || greedy(prompt("One day"), 5);
    let mut tickets = vec![service.submit(request(), first).expect("taken")];
    let mut ears = vec![hears];
    // The engine is in the first answer's first step, and stays there.
    wait_until(&service, |figures| figures.waiting <= 1);
    std::thread::sleep(Duration::from_millis(100));
    let mut refused = None;
    for _ in 0..4 {
        let (listener, hears) = ear();
        match service.submit(request(), listener) {
            Ok(ticket) => {
                tickets.push(ticket);
                ears.push(hears);
            }
            Err(refusal) => refused = Some(refusal),
        }
    }
    assert_eq!(refused, Some(Refusal::Full { waiting: 3 }));
    assert_eq!(service.figures().waiting, 3);
    // One that waits and is no longer wanted makes room.
    drop(tickets.pop());
    open.send(()).expect("it waits");
    for hears in &ears[..ears.len() - 1] {
        assert_eq!(listen(hears).2.expect("an answer").tokens.len(), 5);
    }
    let last = listen(&ears[ears.len() - 1]).2.expect("an answer");
    assert_eq!(last.finish_reason, FinishReason::Cancelled);
    assert_eq!(last.tokens.len(), 0);
    wait_until(&service, |figures| figures.running + figures.waiting == 0);
}

/// A client that leaves while it waits, while its prompt is read, and while it is answered: its end comes at once.
#[test]
fn a_client_that_leaves_frees_its_place_in_each_phase() {
    let service = service(1, 10);
    let busy = |tokens| greedy(prompt("Once upon a time"), tokens);
    let long = Request {
        prompt: prompt(&"The cat sat on the mat. ".repeat(40)),
        ..busy(50)
    };
    let (listener, first) = ear();
    let running = service.submit(busy(400), listener).expect("taken");
    let (listener, second) = ear();
    let waiting = service.submit(busy(400), listener).expect("taken");
    drop(waiting);
    let (tokens, _, result) = listen(&second);
    assert_eq!((tokens, result.expect("an end").tokens.len()), (0, 0));
    assert_eq!(service.figures().engine.ended.cancelled, 1);
    // While it is answered.
    while !matches!(first.recv().expect("more"), Heard::Token) {}
    drop(running);
    let got = listen(&first).2.expect("an end");
    assert_eq!(got.finish_reason, FinishReason::Cancelled);
    assert!(got.tokens.len() < 400);
    // While its prompt is read, or before.
    let (listener, third) = ear();
    drop(service.submit(long, listener).expect("taken"));
    assert_eq!(
        listen(&third).2.expect("an end").finish_reason,
        FinishReason::Cancelled
    );
    let (listener, fourth) = ear();
    let _ticket = service.submit(busy(5), listener).expect("taken");
    assert_eq!(listen(&fourth).2.expect("an answer").tokens.len(), 5);
}

/// What was taken is answered, when the service stops and when it is dropped.
#[test]
fn a_service_that_stops_answers_what_it_has_taken() {
    let service = service(2, 10);
    let mut open = Vec::new();
    for _ in 0..6 {
        let (listener, hears) = ear();
        let ticket = service.submit(greedy(prompt("One day"), 30), listener);
        open.push((ticket.expect("taken"), hears));
    }
    service.stop();
    let refused = service.submit(greedy(prompt("One day"), 30), ear().0);
    assert_eq!(refused.expect_err("refused"), Refusal::Stopping);
    drop(service);
    for (_, hears) in &open {
        assert_eq!(listen(hears).2.expect("an answer").tokens.len(), 30);
    }
}

#[test]
fn a_request_that_cannot_be_served_ends_with_the_reason() {
    let service = service(2, 10);
    let (listener, hears) = ear();
    let _ticket = service
        .submit(greedy(Vec::new(), 5), listener)
        .expect("taken");
    assert!(matches!(listen(&hears).2, Err(EngineError::EmptyPrompt)));
}

/// A defect that takes the pass down ends all that are in the engine; the next request finds it as new.
#[test]
fn robustness_a_panic_in_a_pass_ends_all_and_the_service_goes_on() {
    let backend = Watched::new();
    let options = EngineOptions {
        max_sequences: 2,
        ..EngineOptions::default()
    };
    let engine = Engine::load(
        &stories260k(),
        tokenizer(),
        &backend,
        &options,
        &mut unwatched,
    );
    let service = Service::start(engine.expect("an engine"), ServiceOptions::default());
    let service = service.expect("a thread");
    let mut open = Vec::new();
    for _ in 0..3 {
        let (listener, hears) = ear();
        let ticket = service.submit(greedy(prompt("One day"), 300), listener);
        open.push((ticket.expect("taken"), hears));
    }
    assert!(matches!(open[0].1.recv().expect("more"), Heard::Token));
    backend.seen.lock().expect("fine").next_pass_panics = true;
    for (_, hears) in &open {
        let result = listen(hears).2;
        let Err(EngineError::Panicked { message }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(message, "as planned");
    }
    let (listener, hears) = ear();
    let request = greedy(prompt("One day"), 30);
    let _ticket = service.submit(request.clone(), listener).expect("taken");
    let got = listen(&hears).2.expect("an answer");
    assert_eq!(got.tokens, answer(&mut self::engine(1), &request).tokens);
    let figures = wait_until(&service, |f| f.running + f.waiting == 0).engine;
    assert_eq!(
        (figures.ended.failed, figures.pages.used),
        (3, figures.pages.cached)
    );
}

/// 600 clients that come and leave at once leave nothing behind.
#[test]
fn clients_that_come_and_leave_leave_nothing_behind() {
    let service = service(4, 1000);
    let kinds = mixed(60);
    let mut ears = Vec::new();
    for number in 0..600 {
        let case = &kinds[number % kinds.len()];
        let (listener, hears) = ear();
        let ticket = service
            .submit(case.request.clone(), listener)
            .expect("taken");
        if number % 10 > 0 || case.kind == Kind::LongPrompt {
            drop(ticket);
        } else {
            ears.push((ticket, hears));
        }
    }
    for (_, hears) in &ears {
        listen(hears).2.expect("an answer");
    }
    let figures = wait_until(&service, |f| f.running + f.waiting == 0).engine;
    assert_eq!(figures.pages.used, figures.pages.cached);
    assert!(figures.ended.cancelled > 400, "{:?}", figures.ended);
}
