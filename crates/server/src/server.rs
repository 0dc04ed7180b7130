//! Listening, connections, and the way to an end.
//!
//! A server listens before its model is there, so that whoever watches over it can tell a server that loads (`/health` 200,
//! `/ready` 503) from one that is dead.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::connection::Connection;
use crate::options::{Limits, ServerOptions};
use crate::routes;
use crate::state::{Model, Stage, State};

/// For connections to send what they have, once all answers have ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// After a connection could not be accepted: for lack of file handles, as a rule, which come back as others close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

/// Gives a running server its model.
#[derive(Clone)]
pub struct Handle {
    state: Arc<State>,
}

impl Handle {
    /// From now on requests are answered. Only the first model counts.
    pub fn set_model(&self, model: Model) {
        self.state.set_model(model);
    }
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// When the address is in use, or not this machine's.
    pub async fn bind(options: ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.address).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            state: Arc::new(State::new(options)),
        })
    }

    /// Where it listens: the real port, where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For giving it its model.
    pub fn handle(&self) -> Handle {
        let state = Arc::clone(&self.state);
        Handle { state }
    }

    /// Serves until `stop` comes, and then until all answers have ended or the grace is over: requests are refused with
    /// 503 meanwhile, and answers that are still under way then end with an error. When it returns, all connections are
    /// closed.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self {
            listener, state, ..
        } = self;
        let connections = GracefulShutdown::new();
        let accept = accept(&listener, &state, &connections);
        let end = async {
            stop.await;
            state.stage.send_replace(Stage::Draining);
            let mut in_flight = state.in_flight.subscribe();
            let idle = in_flight.wait_for(|count| *count == 0);
            let _ = tokio::time::timeout(state.options.limits.grace, idle).await;
            state.stage.send_replace(Stage::Ending);
        };
        tokio::select! {
            () = accept => {}
            () = end => {}
        }
        drop(listener);
        let _ = tokio::time::timeout(FAREWELL, connections.shutdown()).await;
    }
}

/// Accepts connections for ever.
async fn accept(listener: &TcpListener, state: &Arc<State>, connections: &GracefulShutdown) {
    let router = routes::router(state);
    let limits = state.options.limits;
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => Connection::new(stream, limits.write_timeout),
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (service, watcher) = (
            TowerToHyperService::new(router.clone()),
            connections.watcher(),
        );
        tokio::spawn(async move {
            let connection = http(&limits).serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or speaks something else, is nobody's fault.
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

fn http(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout);
    builder
}
