//! The proxy under test, in this process, as it runs in production.

use std::net::SocketAddr;
use std::time::Duration;

use config::Config;
use proxy::start::{Running, StartOptions, start};
use serde_json::Value;

use super::client::{Client, Reply};
use super::{PATIENCE, Sips};

/// A running proxy; stopped when dropped.
#[derive(Debug)]
pub struct Proxy {
    running: Option<Running>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
}

impl Proxy {
    /// Before these backends, with `settings` (TOML, keys of the top level first) on top of the defaults.
    pub fn start(backends: &[String], settings: &str) -> Proxy {
        Proxy::of_config(&config_text(backends, settings))
    }

    /// As this file says.
    pub fn of_config(text: &str) -> Proxy {
        let config = Config::parse("test", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let running = start(config, StartOptions { take_signals: false, take_over: false })
            .expect("it starts");
        let listen = running.listen[0];
        let admin = running.admin;
        Proxy { running: Some(running), listen, admin }
    }

    /// A new client connection that holds hardly anything, read by such sips.
    pub async fn narrow_client(&self, sips: Sips) -> Client {
        Client::narrow(self.listen, sips).await
    }

    /// A new client connection.
    pub async fn client(&self) -> Client {
        Client::connect(self.listen).await
    }

    /// Requests in flight on a backend, as the fleet counts them.
    pub fn in_flight(&self, backend: usize) -> u32 {
        let shared = self.running.as_ref().expect("it runs").shared;
        shared.fleet.backend(proxy::start::backend_id(backend)).slots.in_flight().0
    }

    /// Tokens reserved on a backend.
    pub fn tokens(&self, backend: usize) -> u64 {
        let shared = self.running.as_ref().expect("it runs").shared;
        shared.fleet.backend(proxy::start::backend_id(backend)).slots.in_flight().1
    }

    /// Requests waiting for room.
    pub fn waiting(&self) -> usize {
        let shared = self.running.as_ref().expect("it runs").shared;
        // A count that stands alone; the test polls it.
        shared.waiting.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether a backend may be sent requests at all.
    pub fn admits(&self, backend: usize) -> bool {
        let shared = self.running.as_ref().expect("it runs").shared;
        shared.fleet.backend(proxy::start::backend_id(backend)).admits().is_ok()
    }

    /// Client connections of each shard.
    pub fn sessions(&self) -> Vec<u64> {
        let shared = self.running.as_ref().expect("it runs").shared;
        shared.stats.iter().map(|shard| shard.level(proxy::metrics::Level::Sessions)).collect()
    }

    /// Waits until nothing is reserved anywhere.
    pub async fn idle(&self) {
        let backends = self.running.as_ref().expect("it runs").shared.upstreams.len();
        eventually("every reservation is given back", || {
            (0..backends).all(|backend| self.in_flight(backend) == 0 && self.tokens(backend) == 0)
        })
        .await;
    }

    /// A GET on the admin address: status and body.
    pub async fn admin(&self, path: &str) -> (u16, String) {
        let mut client = Client::connect(self.admin).await;
        let reply = client.get(path).await;
        (reply.status, reply.text())
    }

    /// A GET on the admin address that answers JSON.
    pub async fn admin_json(&self, path: &str) -> Value {
        let (_, text) = self.admin(path).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// The figure of a metric that has no labels.
    pub async fn metric(&self, name: &str) -> u64 {
        figure(&self.admin("/metrics").await.1, name)
    }

    /// Waits until it says that it is ready: requests go by all that its first round of questions brought.
    pub async fn is_ready(&self) {
        is_ready(self.admin).await;
    }

    /// What it believes of its backends, once that is so.
    pub async fn believes(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        settled(what, async || {
            let all = self.admin_json("/admin/backends").await;
            let all = all["backends"].as_array().expect("a list").clone();
            holds(&all).then_some(all)
        })
        .await
    }

    /// What it would decide for this request, without sending it.
    pub async fn dry_run(&self, path: &str, headers: &str, body: &[u8]) -> Value {
        let mut client = Client::connect(self.admin).await;
        client.post_with(&format!("/admin/explain?path={path}"), headers, body).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The decision behind a reply, as the proxy explains it afterwards.
    pub async fn explained(&self, reply: &Reply) -> Value {
        let id = reply.header("x-shearwater-request-id").expect("a request id");
        let number = id.trim_start_matches("req_");
        settled("the decision is explained", async || {
            let all = self.admin_json("/admin/decisions?n=1000").await;
            let all = all["decisions"].as_array().expect("a list");
            let known =
                |one: &&Value| one["request_id"].as_str().is_some_and(|id| id.ends_with(number));
            all.iter().find(known).cloned()
        })
        .await
    }

    /// Drains it, as a signal would.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }

    /// Gives the running proxy away.
    pub fn into_running(mut self) -> Running {
        self.running.take().expect("it runs")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shared.set_phase(proxy::published::Phase::Stopping);
            // Waiting for the end on a runtime's thread could hold up the test's own tasks.
            drop(std::thread::spawn(move || running.wait()));
        }
    }
}

/// The text of a configuration: these backends, and `settings` on top of the defaults.
pub fn config_text(backends: &[String], settings: &str) -> String {
    let mut text = String::from("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
    text.push_str(settings);
    if !settings.contains("[log]") {
        text.push_str("\n[log]\naccess = \"off\"\nlevel = \"error\"\n");
    }
    for (number, url) in backends.iter().enumerate() {
        let named = format!("\n[[backend]]\nname = \"b{number}\"\nurl = \"{url}\"\n");
        text.push_str(&named);
        if !settings.contains("# detect") {
            text.push_str("kind = \"vllm\"\nmodels = [\"sim\"]\n");
        }
    }
    text
}

/// Waits until the proxy behind this admin address says that it is ready.
pub(super) async fn is_ready(admin: SocketAddr) {
    let ready =
        async || (Client::connect(admin).await.get("/readyz").await.status == 200).then_some(());
    settled("it is ready", ready).await;
}

/// The figure of a metric without labels, in a page of them.
pub(super) fn figure(page: &str, name: &str) -> u64 {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}:\n{page}"))
}

/// Waits until `look` finds something, looking again and again, and fails with `what` if it never does.
pub async fn settled<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < give_up, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `holds`, looking every few milliseconds, and fails with `what` if it never does.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < give_up, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
