//! What tests of the control side share: a configuration made ready, engines to watch, a blocking client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use config::Config;
use index::{BackendId, FingerprintKey, Fleet, FleetConfig, IndexWriter};
use serde_json::Value;

use crate::clock;
use crate::control::{self, models};
use crate::learn;
use crate::published::{Parts, Published, Upstream};

/// How long a test waits for what must happen, ms.
const PATIENCE_MS: u64 = 20_000;

/// Waits until `happened` gives something.
pub(crate) fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let began = clock::now();
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(clock::now().since(began) < PATIENCE_MS * 1000, "this never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A configuration with quick probes; `backends` are whole `[[backend]]` tables.
pub(crate) fn config(backends: &str) -> Config {
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n\
         [health]\ninterval_ms = 100\ntimeout_ms = 500\nscrape_interval_ms = 100\n\
         failures_to_down = 2\nsuccesses_to_up = 1\n\
         [log]\naccess = \"off\"\nlevel = \"error\"\n{backends}"
    );
    Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// One `[[backend]]` table.
pub(crate) fn backend(address: SocketAddr, more: &str) -> String {
    format!("[[backend]]\nurl = \"http://{address}\"\n{more}\n")
}

/// What threads share, without any thread. It lives as long as the test process.
pub(crate) fn shared(config: Config) -> (&'static Published, IndexWriter) {
    let (writer, index) = index::index(index::IndexConfig::default());
    let upstream =
        |backend: &config::Backend| Upstream::new(&backend.name, &backend.origin.authority());
    let routes = models::Catalog::default().routes(&models::configured(&config));
    let parts = Parts {
        fleet: Fleet::new(FleetConfig::with_capacity(config.backends.len())),
        upstreams: config.backends.iter().map(upstream).collect(),
        routes,
        index,
        shards: 1,
        key: FingerprintKey::new(7),
        instance: 1,
        sessions_per_shard_max: 16,
        descriptors_per_shard: 64,
        visits_at_once: 64,
        config,
    };
    let shared: &'static Published = Box::leak(Box::new(Published::new(parts)));
    crate::start::apply_configured_limits(&shared.config, &shared.fleet);
    (shared, writer)
}

/// The threads beside the shards, running.
pub(crate) struct Side {
    pub(crate) shared: &'static Published,
    pub(crate) learn: learn::Handle,
    pub(crate) control: control::Handle,
}

impl Side {
    pub(crate) fn start(config: Config) -> Side {
        Side::start_with(config, control::Options::default())
    }

    pub(crate) fn start_with(config: Config, options: control::Options) -> Side {
        let (shared, writer) = shared(config);
        let learn = learn::start(shared, writer).unwrap();
        let admin = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = control::start(shared, &learn, admin, options).unwrap();
        Side { shared, learn, control }
    }

    /// What the admin address says of a path.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.admin("GET", path)
    }

    /// What it answers to a POST without a body.
    pub(crate) fn post(&self, path: &str) -> (u16, String) {
        self.admin("POST", path)
    }

    fn admin(&self, method: &str, path: &str) -> (u16, String) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        ask(self.control.admin_address(), &request)
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// The first backend's report at the admin address.
    pub(crate) fn report(&self) -> Value {
        self.json("/admin/backends").pointer("/backends/0").cloned().unwrap_or_default()
    }

    pub(crate) fn fleet(&self) -> &'static index::Backend {
        self.shared.fleet.backend(BackendId(0))
    }

    pub(crate) fn upstream(&self) -> &'static Upstream {
        self.shared.upstream(BackendId(0)).unwrap()
    }

    pub(crate) fn stop(self) {
        self.control.join();
        self.learn.join();
    }
}

/// Sends bytes, reads to the end, splits off status and body.
pub(crate) fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}
