//! A loaded model on a thread of its own, answering many requests.
//!
//! ```text
//! any thread                       the engine's thread
//! Service::submit --- command ---> Engine::submit, Engine::step, again and again
//! Listener <------ events, then the end, called there
//! Ticket dropped --- cancelled --> Engine::cancel, before the next step
//! ```
//!
//! Whoever submits is never blocked by the engine, and a listener must never block it.
//!
//! Invariant: every listener of a request that was taken hears exactly one end, whatever panics.

mod client;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::figures::EngineFigures;
use crate::request::{Completion, Event, Request};
use client::Clients;

/// Hears of a request's answer, on the engine's thread: it must not block. A panic in it ends its request.
pub trait Listener: Send {
    /// Progress and text. A break ends the answer, with [`FinishReason::Cancelled`](crate::FinishReason::Cancelled).
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()>;

    /// The answer, or why there is none: the last that is heard.
    fn end(self: Box<Self>, result: Result<Completion, EngineError>);
}

/// Limits of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceOptions {
    /// The most requests that wait; one more is refused.
    pub max_queue: usize,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self { max_queue: 128 }
    }
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue is full.
    #[error("{waiting} requests are waiting already: try again later")]
    Full {
        /// Requests that wait.
        waiting: usize,
    },
    /// The service is stopping.
    #[error("the server is shutting down")]
    Stopping,
}

/// A request that was taken. Dropping it cancels the answer, if that has not ended.
#[derive(Debug)]
pub struct Ticket {
    cancelled: Arc<AtomicBool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// What a service did and does, at this moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceFigures {
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Requests that are being answered.
    pub running: usize,
    /// What the engine has done, as of the end of its last step.
    pub engine: EngineFigures,
}

/// A loaded model on a thread of its own.
pub struct Service {
    commands: mpsc::Sender<Job>,
    shared: Arc<Shared>,
    options: ServiceOptions,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    /// Requests that the engine's thread has not taken yet.
    sent: AtomicUsize,
    /// Requests that wait in the engine.
    waiting: AtomicUsize,
    running: AtomicUsize,
    engine: Mutex<EngineFigures>,
}

impl Shared {
    /// A request goes from the channel to the engine. It counts twice for a moment, and never not at all.
    fn took(&self, engine: &Engine) {
        self.waiting.store(engine.waiting(), Ordering::Release);
        self.sent.fetch_sub(1, Ordering::AcqRel);
    }

    fn publish(&self, engine: &Engine) {
        self.waiting.store(engine.waiting(), Ordering::Release);
        self.running.store(engine.running(), Ordering::Release);
        let mut figures = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        *figures = engine.figures();
    }
}

struct Job {
    request: Arc<Request>,
    listener: Box<dyn Listener>,
    cancelled: Arc<AtomicBool>,
}

impl Service {
    /// Moves an engine to a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(engine: Engine, options: ServiceOptions) -> std::io::Result<Self> {
        let (commands, jobs) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        shared.publish(&engine);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || serve(engine, &jobs, &theirs))?;
        Ok(Self {
            commands,
            shared,
            options,
            thread: Some(thread),
        })
    }

    /// Queues a request. `listener` hears of it until its end; where it is refused, it hears nothing.
    ///
    /// # Errors
    /// When too many wait, or the service is stopping.
    pub fn submit(
        &self,
        request: impl Into<Arc<Request>>,
        listener: Box<dyn Listener>,
    ) -> Result<Ticket, Refusal> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(Refusal::Stopping);
        }
        let most = self.options.max_queue;
        let in_engine = || self.shared.waiting.load(Ordering::Acquire);
        let more = |sent: usize| (sent + in_engine() < most).then_some(sent + 1);
        let sent = &self.shared.sent;
        if let Err(sent) = sent.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            let waiting = sent + in_engine();
            return Err(Refusal::Full { waiting });
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let job = Job {
            request: request.into(),
            listener,
            cancelled: Arc::clone(&cancelled),
        };
        match self.commands.send(job) {
            Ok(()) => Ok(Ticket { cancelled }),
            Err(_) => Err(Refusal::Stopping),
        }
    }

    /// What the service does at this moment.
    pub fn figures(&self) -> ServiceFigures {
        let shared = &self.shared;
        let engine = shared.engine.lock().unwrap_or_else(PoisonError::into_inner);
        ServiceFigures {
            waiting: shared.sent.load(Ordering::Acquire) + shared.waiting.load(Ordering::Acquire),
            running: shared.running.load(Ordering::Acquire),
            engine: engine.clone(),
        }
    }

    /// Takes no more requests; those that were taken are answered.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
    }
}

impl Drop for Service {
    /// Waits for what was taken.
    fn drop(&mut self) {
        self.stop();
        // The thread ends when nobody can send any more.
        let (closed, _) = mpsc::channel();
        self.commands = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The engine's thread.
fn serve(engine: Engine, jobs: &mpsc::Receiver<Job>, shared: &Shared) {
    let mut clients = Clients::new(engine);
    loop {
        if clients.is_idle() {
            match jobs.recv() {
                Ok(job) => clients.take(job, shared),
                Err(_) => return,
            }
        }
        for job in jobs.try_iter() {
            clients.take(job, shared);
        }
        clients.cancel();
        clients.step();
        shared.publish(clients.engine());
        clients.tell_ends();
    }
}
