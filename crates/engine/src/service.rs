//! A loaded model on a thread of its own, answering many requests.
//!
//! ```text
//! any thread                       the engine's thread
//! Service::submit --- command ---> queue -> running -> steps
//! Listener <------ events, then the end, called there
//! Ticket dropped --- cancelled --> the answer ends at its next event
//! ```
//!
//! Whoever submits is never blocked by the engine, and a listener must never block it.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::engine::{Engine, EngineError};
use crate::request::{Completion, Event, Request};

/// Hears of a request's answer, on the engine's thread: it must not block.
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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServiceFigures {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that are being answered.
    pub running: usize,
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
    waiting: AtomicUsize,
    running: AtomicUsize,
}

struct Job {
    request: Request,
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
    pub fn submit(&self, request: Request, listener: Box<dyn Listener>) -> Result<Ticket, Refusal> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(Refusal::Stopping);
        }
        let most = self.options.max_queue;
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        let counter = &self.shared.waiting;
        if let Err(waiting) = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            return Err(Refusal::Full { waiting });
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let job = Job {
            request,
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
        ServiceFigures {
            waiting: self.shared.waiting.load(Ordering::Relaxed),
            running: self.shared.running.load(Ordering::Relaxed),
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

/// The engine's thread: answers one request after the other.
fn serve(mut engine: Engine, jobs: &mpsc::Receiver<Job>, shared: &Shared) {
    let mut queue = VecDeque::new();
    loop {
        if queue.is_empty() {
            match jobs.recv() {
                Ok(job) => queue.push_back(job),
                Err(_) => return,
            }
        }
        queue.extend(jobs.try_iter());
        let Some(mut job) = queue.pop_front() else {
            continue;
        };
        shared.waiting.fetch_sub(1, Ordering::AcqRel);
        shared.running.store(1, Ordering::Relaxed);
        let result = engine.generate(&job.request, &mut |event| match job
            .cancelled
            .load(Ordering::Relaxed)
        {
            true => ControlFlow::Break(()),
            false => job.listener.event(event),
        });
        shared.running.store(0, Ordering::Relaxed);
        job.listener.end(result);
    }
}
