//! The admin address: health, metrics, what the proxy believes of its backends, why it decided what it
//! decided, a dry run, and an operator's switches.
//!
//! Served by the control thread, never by a shard, to a bounded number of connections. No answer holds
//! a byte of a prompt or a secret.

mod backends;
mod decisions;
mod dry_run;
mod exposition;
mod process;
mod switches;
mod views;

#[cfg(test)]
pub(crate) mod tests;

use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::control::Progress;
use crate::insight::Insight;
use crate::limits::{ACCEPT_PAUSE_MS, ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_MS};
use crate::published::Published;

pub use dry_run::{DryRun, DryRunRefused, DryRunRequest, Explain};

/// What every handler can see.
#[derive(Clone)]
struct Desk {
    shared: &'static Published,
    insight: Arc<Insight>,
    /// Told when a switch was turned.
    progress: Arc<Progress>,
    /// Locked for one dry run at a time; `None` when nobody can answer them.
    explain: Option<Arc<Mutex<Box<dyn Explain>>>>,
}

/// The admin address, bound and not yet served.
pub(crate) struct Admin {
    desk: Desk,
    listener: StdListener,
}

impl Admin {
    pub(crate) fn new(
        shared: &'static Published,
        insight: Arc<Insight>,
        progress: Arc<Progress>,
        explain: Option<Box<dyn Explain>>,
        listener: StdListener,
    ) -> Admin {
        let explain = explain.map(|explain| Arc::new(Mutex::new(explain)));
        Admin { desk: Desk { shared, insight, progress, explain }, listener }
    }

    /// Serves until it is dropped. Only a listener that cannot be used ends it.
    pub(crate) async fn serve(self) {
        let insight = Arc::clone(&self.desk.insight);
        let app = router(self.desk);
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                let message = format!("the admin address cannot be served: {error}");
                insight.journal.note(config::Level::Error, None, message);
                // The process goes on without it.
                return std::future::pending().await;
            }
        };
        let room = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let app = app.clone();
                    tokio::spawn(async move {
                        connection(stream, app).await;
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await,
            }
        }
    }
}

async fn connection(stream: TcpStream, app: Router) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(ADMIN_HEAD_MS))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
        .await;
    // A client that broke off needs no answer.
    let _ = served;
}

fn router(desk: Desk) -> Router {
    let body_max = usize::try_from(desk.shared.config.limits.body_bytes_max).unwrap_or(usize::MAX);
    Router::new()
        .route("/healthz", get(views::healthz))
        .route("/readyz", get(views::readyz))
        .route("/metrics", get(exposition::metrics))
        .route("/admin/backends", get(backends::backends))
        .route("/admin/backends/{name}/drain", post(switches::drain))
        .route("/admin/backends/{name}/enable", post(switches::enable))
        .route("/admin/backends/{name}/disable", post(switches::disable))
        .route("/admin/decisions", get(decisions::decisions))
        .route("/admin/journal", get(views::journal))
        .route("/admin/config", get(views::config))
        .route("/admin/explain", post(dry_run::explain))
        .layer(DefaultBodyLimit::max(body_max))
        .with_state(desk)
}
