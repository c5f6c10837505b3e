//! Simulated engines behind a proxy that found out everything about them by asking.

use std::net::{Ipv4Addr, SocketAddr};

use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine};
use serde_json::Value;

use super::Proxy;

/// Probing and reading often enough that no test waits for it.
const QUICK: &str = "\n[health]\ninterval_ms = 100\nscrape_interval_ms = 100\n";

/// Engines and the proxy before them, which calls them `b0`, `b1` and so on.
#[derive(Debug)]
pub struct Fleet {
    /// The proxy; dropped first, so that no engine is missed.
    pub proxy: Proxy,
    /// The engines; `None` where one was killed.
    pub engines: Vec<Option<SimEngine>>,
}

/// An engine that is fast at everything, with replies of eight tokens.
pub fn engine(persona: Persona) -> EngineOptions {
    let mut options = EngineOptions::new(persona).speed(50.0);
    options.reply = ReplyLength::fixed(8);
    options.health_step_ms = 20;
    options
}

/// One engine that answers at so many addresses of this machine, and those as addresses of backends.
pub fn engine_at_many(persona: Persona, count: usize) -> (SimEngine, Vec<String>) {
    let mut options = engine(persona);
    // All from 127.0.0.0 to 127.255.255.255 are this machine's.
    options.listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let engine = SimEngine::start(options).expect("a free port");
    let urls = urls_at_many(engine.addr().port(), count);
    (engine, urls)
}

/// So many addresses of backends, all of them reached by whoever listens on this port of all addresses.
pub fn urls_at_many(port: u16, count: usize) -> Vec<String> {
    let url = |number: usize| format!("http://127.77.{}.{}:{port}", number / 256, number % 256);
    (0..count).map(url).collect()
}

impl Fleet {
    /// So many engines of one kind.
    pub async fn of(count: usize, persona: Persona, settings: &str) -> Fleet {
        Fleet::start(vec![engine(persona); count], settings).await
    }

    /// These engines. Returns when the proxy knows each of them.
    pub async fn start(engines: Vec<EngineOptions>, settings: &str) -> Fleet {
        Fleet::limited(engines, settings, "").await
    }

    /// These engines, with `lines` of configuration for each of them, such as a number of slots.
    pub async fn limited(options: Vec<EngineOptions>, settings: &str, lines: &str) -> Fleet {
        let start = |options: &EngineOptions| SimEngine::start(options.clone()).expect("a port");
        let engines: Vec<SimEngine> = options.iter().map(start).collect();
        let mut text = String::from("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
        text.push_str(settings);
        for (missing, section) in
            [("[log]", "\n[log]\naccess = \"off\"\nlevel = \"error\"\n"), ("[health]", QUICK)]
        {
            if !settings.contains(missing) {
                text.push_str(section);
            }
        }
        for (number, engine) in engines.iter().enumerate() {
            let url = engine.url();
            text.push_str(&format!(
                "\n[[backend]]\nname = \"b{number}\"\nurl = \"{url}\"\n{lines}\n"
            ));
        }
        let engines = engines.into_iter().map(Some).collect();
        let fleet = Fleet { proxy: Proxy::of_config(&text), engines };
        fleet.is_known(&options).await;
        fleet
    }

    /// Waits until the proxy has detected, listed and read each engine.
    async fn is_known(&self, options: &[EngineOptions]) {
        let known = |(backend, options): (&Value, &EngineOptions)| {
            let read = backend["signals"]["scrape"]["answered_ms_ago"].is_u64();
            let models = backend["models"].as_array().is_some_and(|models| !models.is_empty());
            backend["kind"] == options.persona.name()
                && models
                && (read || options.persona == Persona::OpenAi)
        };
        self.proxy
            .believes("every engine is known", |all| all.iter().zip(options).all(known))
            .await;
        // What is known is used once it is published, which may be a moment later.
        self.proxy.is_ready().await;
    }

    /// The engine the proxy calls by this name.
    pub fn engine(&self, name: &str) -> &SimEngine {
        self.engines[number_of(name)].as_ref().expect("it was not killed")
    }

    /// All engines that were not killed.
    pub fn alive(&self) -> impl Iterator<Item = &SimEngine> {
        self.engines.iter().flatten()
    }

    /// Kills the engine of this name: its connections are reset, its port is free.
    pub async fn kill(&mut self, name: &str) -> SocketAddr {
        let engine = self.engines[number_of(name)].take().expect("it was not killed");
        let addr = engine.addr();
        engine.kill().await;
        addr
    }

    /// Starts another engine in the place of one that was killed.
    pub fn revive(&mut self, name: &str, listen: SocketAddr, options: EngineOptions) {
        let engine = SimEngine::start(EngineOptions { listen, ..options }).expect("its port");
        self.engines[number_of(name)] = Some(engine);
    }
}

/// The place in the fleet behind a name.
pub fn number_of(name: &str) -> usize {
    name.trim_start_matches('b').parse().unwrap_or_else(|e| panic!("no backend {name}: {e}"))
}
