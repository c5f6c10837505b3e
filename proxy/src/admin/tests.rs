//! The views: what each says, and what none may say.

use axum::http::HeaderMap;
use index::{Decision, Reason, RefusalCounts};

use super::{DryRun, DryRunRefused, DryRunRequest, Explain};
use crate::api::Api;
use crate::control::Options;
use crate::fixture::{Side, ask, config, eventually};
use crate::metrics::{Count, Level};
use crate::published::Phase;

const FLEET: &str = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nenabled = false\n";
/// Stands for a prompt: it must come out nowhere.
const CANARY: &str = "the-canary-sings";

fn side() -> Side {
    Side::start(config(FLEET))
}

/// Checks the text format line by line and returns name and value of every sample.
fn samples(text: &str) -> Vec<(String, f64)> {
    let mut samples = Vec::new();
    let mut types = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let (kind, name) = (words.next().unwrap(), words.next().unwrap());
            assert!(["HELP", "TYPE"].contains(&kind), "{line}");
            assert!(kind != "TYPE" || types.insert(name.to_owned()), "described twice: {line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        samples.push((name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}"))));
    }
    samples
}

fn value(samples: &[(String, f64)], name: &str) -> Option<f64> {
    samples.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
}

#[test]
fn metrics_are_well_formed_and_add_the_shards_up() {
    let side = side();
    side.shared.stats[0].add(Count::Accepted, 3);
    side.shared.stats[0].set(Level::IoUring, 1);
    side.shared.stats[0].set(Level::Waiting, 2);
    let (status, text) = side.get("/metrics");
    assert_eq!(status, 200);
    let samples = samples(&text);
    for (name, expected) in [
        ("shearwater_connections_accepted_total", 3.0),
        ("shearwater_requests_waiting", 2.0),
        ("shearwater_shards{driver=\"io_uring\"}", 1.0),
        ("shearwater_shards{driver=\"epoll\"}", 0.0),
        ("shearwater_backend_admits{backend=\"a\"}", 0.0),
        ("shearwater_backend_in_flight{backend=\"a\"}", 0.0),
        ("shearwater_notes_lost_total", 0.0),
        ("shearwater_ready", 0.0),
    ] {
        assert_eq!(value(&samples, name), Some(expected), "{name} in\n{text}");
    }
    assert!(value(&samples, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    assert!(value(&samples, "process_open_fds").is_some_and(|open| open > 3.0));
    side.stop();
}

#[test]
fn the_configuration_is_shown_without_its_secret() {
    let secret = "0123456789abcdef";
    let text = format!("{FLEET}[routing]\nfingerprint_key = \"{secret}\"\n");
    let side = Side::start(config(&text));
    let (status, shown) = side.get("/admin/config");
    assert_eq!(status, 200);
    assert!(shown.contains("name = \"a\"") && !shown.contains(secret), "{shown}");
    side.stop();
}

#[test]
fn a_disabled_backend_says_why_it_gets_nothing() {
    let side = side();
    eventually("it is switched off", || side.fleet().admits().err());
    let report = side.report();
    assert_eq!(report["name"], "a");
    assert_eq!(report["state"]["admits"], false);
    assert_eq!(report["state"]["refusal"], "disabled");
    side.stop();
}

#[test]
fn an_operators_switch_is_journaled_once_and_shown() {
    let mut config = config(FLEET);
    config.log.level = config::Level::Info;
    let side = Side::start(config);
    assert_eq!(side.report()["state"]["operator"]["switch"], "disabled");
    for changed in [true, false] {
        let (status, told) = side.post("/admin/backends/a/enable");
        assert_eq!(status, 200, "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["switch"], &told["changed"]), (&"enabled".into(), &changed.into()));
    }
    assert_eq!(side.report()["state"]["operator"]["switch"], "enabled");
    let journal = side.json("/admin/journal").to_string();
    assert_eq!(journal.matches("an operator made it enabled; 0 in flight").count(), 1, "{journal}");
    assert_eq!(side.post("/admin/backends/b/enable").0, 404);
    assert_eq!(side.get("/admin/backends/a/enable").0, 405);
    side.stop();
}

#[test]
fn readiness_follows_the_phase_and_the_backends() {
    let side = side();
    assert_eq!(side.get("/readyz"), (503, "starting: no backend has answered yet\n".into()));
    side.shared.set_phase(Phase::Ready);
    eventually("nobody takes requests", || {
        (side.get("/readyz").1 == "no backend takes requests\n").then_some(())
    });
    assert_eq!(side.post("/admin/backends/a/enable").0, 200);
    eventually("ready", || {
        // Nobody answers its probes, which say so once.
        side.fleet().set_healthy(true);
        (side.get("/readyz").0 == 200).then_some(())
    });
    side.shared.set_phase(Phase::Leaving);
    assert_eq!(side.get("/readyz"), (503, "stopping\n".into()));
    side.stop();
}

#[test]
fn an_unknown_path_is_not_found_and_a_slow_or_broken_client_ends_nothing() {
    let side = side();
    assert_eq!(side.get("/admin/nothing").0, 404);
    let address = side.control.admin_address();
    let silent = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(ask(address, "no http at all\r\n\r\n").0, 400);
    assert_eq!(side.get("/healthz"), (200, "ok\n".into()));
    drop(silent);
    side.stop();
}

/// Decides nothing, refuses what is not about a kitten.
struct Kitten;

impl Explain for Kitten {
    fn explain(&mut self, request: DryRunRequest<'_>) -> Result<DryRun, DryRunRefused> {
        let headers: &HeaderMap = request.headers;
        if headers.get("x-session").is_none() {
            return Err(DryRunRefused { status: 422, reason: "no session".into() });
        }
        Ok(DryRun {
            api: Api::of(b"POST", request.path.as_bytes()),
            model: Some("m".into()),
            canonical_bytes: request.body.len() as u64,
            blocks: 1,
            prompt_tokens: 5,
            conversation: None,
            decision: Decision {
                backend: None,
                reason: Reason::Nobody,
                policy: "cost",
                overlap_blocks: 0,
                deepest_blocks: 0,
                predicted_cached_tokens: 0,
                predicted_uncached_tokens: 5,
                home: None,
                asks_way: false,
                candidates: [None; 8],
                considered: 1,
                refused: RefusalCounts { disabled: 1, ..RefusalCounts::default() },
            },
        })
    }
}

fn dry_run(side: &Side, header: &str) -> (u16, String) {
    let body = format!("{{\"prompt\":\"{CANARY}\"}}");
    let request = format!(
        "POST /admin/explain?path=/v1/messages HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{header}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    ask(side.control.admin_address(), &request)
}

#[test]
fn a_dry_run_shows_the_decision_and_nothing_of_the_prompt() {
    let options = Options { explain: Some(Box::new(Kitten)), ..Options::default() };
    let side = Side::start_with(config(FLEET), options);
    let (status, body) = dry_run(&side, "x-session: s\r\n");
    assert_eq!(status, 200, "{body}");
    let shown: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(shown["api"], "messages");
    assert_eq!(shown["decision"]["refused"]["disabled"], 1);
    let refused = dry_run(&side, "");
    assert_eq!(refused, (422, "{\"error\":\"no session\"}".into()));
    for path in ["/metrics", "/admin/decisions", "/admin/journal", "/admin/backends"] {
        assert!(!side.get(path).1.contains(CANARY), "{path}");
    }
    assert!(!body.contains(CANARY));
    side.stop();
}

#[test]
fn without_an_explainer_a_dry_run_is_not_implemented() {
    let side = side();
    assert_eq!(dry_run(&side, "").0, 501);
    side.stop();
}

#[test]
fn state_changes_are_in_the_journal() {
    let mut config = config(&FLEET.replace("enabled = false", ""));
    config.log.level = config::Level::Warn;
    let side = Side::start(config);
    let newest = eventually("it went down", || {
        side.json("/admin/journal?n=1").pointer("/entries/0").cloned()
    });
    assert_eq!(newest["backend"], "a");
    assert_eq!(newest["message"], "it is down: connection refused");
    side.stop();
}
