//! A proxy as a process of its own, engines of three kinds before it, and what happens to them. It only does what it is told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use loadgen::engine::{EngineOptions, Faults, Persona, ReplyLength, SimEngine};
use serde_json::Value;
use tests::harness::{Client, PATIENCE, Process, settled};
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep, sleep_until};

use super::figures::Levels;
use super::schedule::{Fault, Happens, Step};

/// Length of every engine's replies, so that the only right one is known.
pub(crate) const REPLY: ReplyLength = ReplyLength { min: 6, max: 20 };

/// The kinds of engines, twice each.
const PERSONAS: [Persona; 3] = [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp];
pub(crate) const ENGINES: usize = 2 * PERSONAS.len();

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) proxy: Process,
    engines: Vec<Place>,
}

/// An engine, or the place of one that was killed.
#[derive(Debug)]
struct Place {
    engine: Option<SimEngine>,
    options: EngineOptions,
    /// Keeps the port, without listening, while the engine is dead.
    _port: TcpSocket,
}

impl Place {
    /// A port and a well engine on it. One of the two vLLMs says that it is full only after its head.
    fn take(persona: Persona, late_refusal: bool) -> Place {
        let port = TcpSocket::new_v4().expect("a socket");
        port.set_reuseaddr(true).expect("an option");
        port.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let mut options = EngineOptions::new(persona);
        options.listen = port.local_addr().expect("bound");
        options.reply = REPLY;
        options.health_step_ms = 20;
        options.late_refusal = late_refusal;
        // A few requests fill an engine, by their number or by their tokens.
        options.params = options.params.with_kv_tokens(3_000);
        options.params.slots = 3;
        options.params.prefill_tps = 20_000.0;
        options.params.decode_tps = 200.0;
        let engine = Some(SimEngine::start(options.clone()).expect("its port"));
        Place { engine, options, _port: port }
    }

    async fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => {
                if let Some(engine) = self.engine.take() {
                    engine.kill().await;
                }
            }
            Fault::Restarted => self.running().restart(),
            _ => self.running().set_faults(fault.faults()),
        }
    }

    fn mend(&mut self) {
        let start = || SimEngine::start(self.options.clone()).expect("its port was kept");
        self.engine.get_or_insert_with(start).set_faults(Faults::default());
    }

    fn running(&self) -> &SimEngine {
        self.engine.as_ref().expect("faults of one engine do not overlap")
    }
}

impl World {
    /// Engines, all well, and a proxy with these settings that knows them.
    pub(crate) async fn start(settings: &str) -> World {
        let engines: Vec<Place> =
            (0..ENGINES).map(|at| Place::take(PERSONAS[at % 3], at >= 3)).collect();
        let mut text = String::from("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
        text.push_str(settings);
        text.push_str("\n[log]\naccess = \"off\"\nlevel = \"error\"\n");
        for (number, place) in engines.iter().enumerate() {
            let url = place.running().url();
            text.push_str(&format!("\n[[backend]]\nname = \"b{number}\"\nurl = \"{url}\"\n"));
        }
        let proxy = match std::env::var_os("SHEARWATER_BIN") {
            Some(program) => Process::of_program(&PathBuf::from(program), &text).await,
            None => Process::start("the_proxy_as_a_process", &text).await,
        };
        let world = World { proxy, engines };
        world.is_known().await;
        world
    }

    /// Waits until the proxy has detected, listed and read each engine.
    async fn is_known(&self) {
        let known = |backend: &Value| {
            let read = backend["signals"]["scrape"]["answered_ms_ago"].is_u64();
            read && backend["models"].as_array().is_some_and(|models| !models.is_empty())
        };
        settled("every engine is known", async || {
            let (_, text) = self.proxy.admin("/admin/backends").await;
            let all: Value = serde_json::from_str(&text).expect("JSON");
            all["backends"].as_array().expect("a list").iter().all(known).then_some(())
        })
        .await;
    }

    /// Lets happen what the schedule says, each step at its time.
    pub(crate) async fn play(&mut self, steps: &[Step]) {
        let began = Instant::now();
        for step in steps {
            sleep_until(began + step.at).await;
            let place = &mut self.engines[step.engine];
            match step.what {
                Happens::Fails(fault) => place.begin(fault).await,
                Happens::Mends => place.mend(),
                Happens::Switched(to) => self.switch(step.engine, to).await,
            }
        }
    }

    /// Does what an operator does. It is heard at once, whatever state the backend is in.
    async fn switch(&self, engine: usize, to: &str) {
        let mut operator = Client::connect(self.proxy.admin).await;
        operator.post_with(&format!("/admin/backends/b{engine}/{to}"), "", b"").await;
        let reply = operator.reply().await;
        assert_eq!(reply.status, 200, "{to}: {}", reply.text());
    }

    /// What is held, open and counted now.
    pub(crate) async fn levels(&self) -> Levels {
        let mut levels = levels_of(self.proxy.admin).await;
        let (_, backends) = self.proxy.admin("/admin/backends").await;
        levels.add_backends(&serde_json::from_str(&backends).expect("JSON"));
        for engine in self.engines.iter().filter_map(|place| place.engine.as_ref()) {
            let state = engine.state();
            levels.in_engines += state.running + state.waiting;
        }
        levels
    }

    /// The levels once nothing is held any more and no more descriptors are open than before, or those at the end of patience.
    pub(crate) async fn levels_at_rest(&self, descriptors_before: u64) -> Levels {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let levels = self.levels().await;
            if levels.at_rest(descriptors_before) || Instant::now() > give_up {
                return levels;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What the proxy with this admin address says of itself.
pub(crate) async fn levels_of(admin: SocketAddr) -> Levels {
    Levels::of_metrics(&Client::connect(admin).await.get("/metrics").await.text())
}
