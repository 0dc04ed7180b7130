//! The engine's thread: the engine, and who listens to which of its requests.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Job, Listener, Shared};
use crate::engine::{Engine, Finished};
use crate::error::{EngineError, panic_message};
use crate::request::{Completion, Event, RequestId};

/// Who listens to a request.
struct Client {
    request: RequestId,
    listener: Box<dyn Listener>,
    cancelled: Arc<AtomicBool>,
}

/// An engine and its listeners.
pub(super) struct Clients {
    engine: Engine,
    /// In the order of their requests' numbers.
    clients: Vec<Client>,
    finished: Vec<Finished>,
}

impl Clients {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            clients: Vec::new(),
            finished: Vec::new(),
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// Takes a request, or tells why it cannot be served.
    pub(super) fn take(&mut self, job: Job, shared: &Shared) {
        let Job {
            request,
            listener,
            cancelled,
        } = job;
        let submitted = self.engine.submit(request);
        shared.took(&self.engine);
        match submitted {
            Ok(request) => self.clients.push(Client {
                request,
                listener,
                cancelled,
            }),
            Err(error) => tell_end(listener, Err(error)),
        }
    }

    /// Ends the requests that nobody waits for any more.
    pub(super) fn cancel(&mut self) {
        for client in &self.clients {
            if client.cancelled.load(Ordering::Relaxed) {
                self.engine.cancel(client.request);
            }
        }
    }

    /// Makes a step. A panic that the engine has not kept to one request ends all of them; the next start anew.
    pub(super) fn step(&mut self) {
        let Self {
            engine,
            clients,
            finished,
        } = self;
        let mut hear = |request, event: Event<'_>| match find(clients, request) {
            Some(place) if !clients[place].cancelled.load(Ordering::Relaxed) => {
                clients[place].listener.event(event)
            }
            _ => ControlFlow::Break(()),
        };
        let step = AssertUnwindSafe(|| engine.step(&mut hear, finished));
        if let Err(payload) = catch_unwind(step) {
            engine.reset(&panic_message(payload.as_ref()), finished);
        }
    }

    /// Tells the listeners of requests that have ended.
    pub(super) fn tell_ends(&mut self) {
        for (request, result) in self.finished.drain(..) {
            if let Some(place) = find(&self.clients, request) {
                tell_end(self.clients.remove(place).listener, result);
            }
        }
    }
}

fn find(clients: &[Client], request: RequestId) -> Option<usize> {
    clients
        .binary_search_by_key(&request, |client| client.request)
        .ok()
}

/// A listener's last word. Its panic is its own.
fn tell_end(listener: Box<dyn Listener>, result: Result<Completion, EngineError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| listener.end(result)));
}
