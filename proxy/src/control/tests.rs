//! Watching engines from start to restart: simulated engines of every kind, and small servers of the
//! tests' own where an engine must misbehave in one exact way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri};
use index::limits::{BREAKER_OPEN_MAX_MS, BREAKER_TRIALS};
use index::{BackendId, Millis, Refusal};
use loadgen::engine::{EngineOptions, Faults, Persona, SimEngine};
use tokio::runtime::Runtime;

use super::detect::{Detection, detect};
use super::http_client::{FetchError, Line, Target, get};
use super::probe::Sign;
use crate::fixture::{Side, backend, config, eventually};
use crate::published::{EngineKind, Phase, Pool};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn engine(runtime: &Runtime, persona: Persona) -> SimEngine {
    let _inside = runtime.enter();
    SimEngine::start(EngineOptions::new(persona)).unwrap()
}

/// A server whose only answer `answer` gives.
fn server<F>(runtime: &Runtime, answer: F) -> SocketAddr
where
    F: Fn(&str) -> (u16, String) + Clone + Send + Sync + 'static,
{
    let app = Router::new().fallback(async move |uri: Uri| {
        let (status, body) = answer(uri.path());
        (StatusCode::from_u16(status).unwrap(), body)
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, app).await
    });
    address
}

fn target(address: SocketAddr) -> Target<'static> {
    let line: &Line = Box::leak(Box::default());
    Target { address: Some(address), authority: "test", timeout_ms: 5_000, line }
}

fn found(runtime: &Runtime, address: SocketAddr) -> Detection {
    runtime.block_on(detect(target(address)))
}

#[test]
fn every_simulated_engine_is_recognised() {
    let runtime = runtime();
    for (persona, kind) in [
        (Persona::Vllm, EngineKind::Vllm),
        (Persona::Sglang, EngineKind::Sglang),
        (Persona::LlamaCpp, EngineKind::Llamacpp),
        (Persona::OpenAi, EngineKind::Openai),
    ] {
        let engine = engine(&runtime, persona);
        let found = found(&runtime, engine.addr());
        assert_eq!((found.kind, found.sign), (kind, Sign::Alive), "{}", persona.name());
        let models = found.models.unwrap_or_default();
        assert_eq!(models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["sim"]);
    }
}

#[test]
fn an_engine_that_wants_a_key_for_its_models_is_found_by_its_other_endpoints() {
    let runtime = runtime();
    let vllm = server(&runtime, |path| match path {
        "/version" => (200, r#"{"version":"0.32.0"}"#.into()),
        "/metrics" => (200, "# HELP x\nvllm:num_requests_running 0\n".into()),
        "/v1/models" => (401, r#"{"error":"Unauthorized"}"#.into()),
        _ => (404, String::new()),
    });
    assert_eq!(found(&runtime, vllm).kind, EngineKind::Vllm);
    let sglang = server(&runtime, |path| match path {
        "/model_info" => (200, r#"{"model_path":"a","is_generation":true}"#.into()),
        "/v1/models" => (401, String::new()),
        _ => (404, String::new()),
    });
    assert_eq!(found(&runtime, sglang).kind, EngineKind::Sglang);
}

#[test]
fn an_unknown_engine_is_never_asked_what_could_disturb_it() {
    let runtime = runtime();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let address = server(&runtime, move |path| {
        seen.lock().unwrap().push(path.to_owned());
        if path == "/v1/models" {
            (200, r#"{"data":[{"id":"m"}]}"#.into())
        } else {
            (404, String::new())
        }
    });
    assert_eq!(found(&runtime, address).kind, EngineKind::Openai);
    let asked = asked.lock().unwrap();
    for trap in ["/health", "/slots", "/metrics", "/health_generate"] {
        assert!(!asked.iter().any(|path| path == trap), "{trap} was asked");
    }
}

#[test]
fn a_loading_llama_cpp_is_not_ready_and_nobody_there_is_refused() {
    let runtime = runtime();
    let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    let address = server(&runtime, move |_| (503, loading.to_owned()));
    let sign = found(&runtime, address).sign;
    assert_eq!(sign, Sign::NotReady("status 503: Loading model".into()));
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(found(&runtime, gone).sign, Sign::Refused);
}

#[test]
fn a_reply_that_never_ends_or_is_too_large_is_given_up() {
    let runtime = runtime();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let patient = Target { timeout_ms: 50, ..target(silent.local_addr().unwrap()) };
    let late = runtime.block_on(get(patient, "/")).map(|_| ());
    assert_eq!(late, Err(FetchError::TimedOut(50)));
    let huge = server(&runtime, |_| (200, "x".repeat(crate::limits::ENGINE_REPLY_BYTES_MAX + 1)));
    assert!(matches!(runtime.block_on(get(target(huge), "/")), Err(FetchError::Broken(_))));
}

#[test]
fn capacity_comes_from_each_engine_and_the_configuration_wins() {
    let runtime = runtime();
    for persona in [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp] {
        let engine = engine(&runtime, persona);
        let params = EngineOptions::new(persona).params;
        let side = Side::start(config(&backend(engine.addr(), "")));
        let limits = eventually("limits were read", || {
            Some(side.fleet().limits()).filter(|limits| limits.tokens_max > 0)
        });
        assert_eq!(limits.tokens_max, params.kv_tokens(), "{}", persona.name());
        let slots = if persona == Persona::Vllm { 0 } else { params.slots };
        assert_eq!(u64::from(limits.requests_max), slots as u64, "{}", persona.name());
        side.stop();
        let told = Side::start(config(&backend(engine.addr(), "slots = 3\nkv_tokens = 5000")));
        eventually("a reading came in", || {
            told.report().pointer("/signals/scrape/answered_ms_ago")?.as_u64()
        });
        let limits = told.fleet().limits();
        assert_eq!((limits.requests_max, limits.tokens_max), (3, 5_000));
        told.stop();
    }
}

#[test]
fn it_is_ready_when_the_first_round_is_over_and_models_are_routed() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    let side = Side::start(config(&backend(engine.addr(), "")));
    eventually("ready", || (side.get("/readyz").0 == 200).then_some(()));
    let routes = side.shared.routes.load();
    assert!(routes.pools.contains_key("sim") && routes.complete);
    let list = String::from_utf8(routes.models_openai.clone()).unwrap();
    assert!(list.contains("\"sim\""), "{list}");
    side.stop();
}

#[test]
fn without_any_answer_it_stays_starting_until_one_comes() {
    let runtime = runtime();
    let mut options = EngineOptions::new(Persona::OpenAi);
    options.faults.refuse = true;
    let engine = {
        let _inside = runtime.enter();
        SimEngine::start(options).unwrap()
    };
    let side = Side::start(config(&backend(engine.addr(), "")));
    eventually("it is down", || side.fleet().admits().err());
    assert_eq!(side.shared.phase(), Phase::Starting);
    assert_eq!(side.get("/readyz").0, 503);
    assert_eq!(side.get("/healthz").0, 200);
    engine.set_faults(Faults::default());
    eventually("ready", || (side.get("/readyz").0 == 200).then_some(()));
    side.stop();
}

#[test]
fn a_refused_backend_goes_down_comes_back_and_counts_as_restarted() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    let side = Side::start(config(&backend(engine.addr(), "")));
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    engine.set_faults(Faults { refuse: true, ..Faults::default() });
    let refusal = eventually("it is down", || side.fleet().admits().err());
    assert_eq!(refusal, Refusal::Unhealthy);
    eventually("not ready without a backend", || (side.get("/readyz").0 == 503).then_some(()));
    let report = side.report();
    assert_eq!(report["state"]["down_reason"], "connection refused");
    engine.set_faults(Faults::default());
    eventually("it is up", || side.fleet().admits().ok());
    eventually("the restart was noted", || {
        side.report()["restarts"]["count"].as_u64().filter(|count| *count >= 1)
    });
    eventually("ready", || (side.get("/readyz").0 == 200).then_some(()));
    side.stop();
}

#[test]
fn a_restarted_engine_is_noticed_by_its_own_numbers() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    let side = Side::start(config(&backend(engine.addr(), "")));
    let read = || side.report().pointer("/signals/scrape/answered_ms_ago")?.as_u64();
    eventually("a reading came in", read);
    assert_eq!(side.report()["restarts"]["count"], 0);
    engine.restart();
    eventually("the restart was noticed", || {
        side.report()["restarts"]["count"].as_u64().filter(|count| *count >= 1)
    });
    side.stop();
}

#[test]
fn no_probe_is_needed_while_replies_flow_and_its_end_is_noticed() {
    let runtime = runtime();
    let probes = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&probes);
    let address = server(&runtime, move |path| {
        // A count.
        let asked = seen.fetch_add(usize::from(path == "/health"), Ordering::Relaxed);
        (if path == "/health" && asked > 0 { 503 } else { 200 }, "{\"data\":[]}".into())
    });
    let side = Side::start(config(&backend(address, "kind = \"vllm\"")));
    eventually("it was asked", || (probes.load(Ordering::Relaxed) > 0).then_some(()));
    let visits = || side.report()["signals"]["scrape"]["failures"].as_u64();
    eventually("it was visited several times", || {
        side.upstream().note_alive(crate::clock::now().millis());
        visits().filter(|count| *count >= 8)
    });
    // The second question may have come before the first reply.
    assert!(probes.load(Ordering::Relaxed) <= 2, "{probes:?}");
    eventually("it is down once nothing flows", || side.fleet().admits().err());
    side.stop();
}

#[test]
fn the_questions_of_a_visit_go_over_one_connection_and_a_closed_one_is_replaced() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    let target = target(engine.addr());
    let connections = || engine.state().connections;
    runtime.block_on(async {
        for path in ["/health", "/metrics", "/v1/models"] {
            assert!(get(target, path).await.unwrap().is_ok());
        }
        assert_eq!(connections(), 1);
        target.line.hang_up();
        assert!(get(target, "/health").await.unwrap().is_ok());
    });
}

#[test]
fn an_unhealthy_answer_takes_it_down_with_its_reason() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    let side = Side::start(config(&backend(engine.addr(), "kind = \"vllm\"")));
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    engine.set_faults(Faults { unhealthy: true, ..Faults::default() });
    eventually("it is down", || side.fleet().admits().err());
    let reason = side.report()["state"]["down_reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.starts_with("status 503"), "{reason}");
    side.stop();
}

/// Opens the first backend's breaker, as requests would.
fn break_down(side: &Side) {
    while let Some(pass) = side.shared.enter(BackendId(0)) {
        pass.failed(now(), 0);
    }
}

fn now() -> Millis {
    crate::clock::now().millis()
}

#[test]
fn the_last_of_a_pool_is_tried_before_a_long_pause_is_over_and_others_are_not() {
    let runtime = runtime();
    let (one, two) = (engine(&runtime, Persona::OpenAi), engine(&runtime, Persona::OpenAi));
    let side = Side::start(config(&(backend(one.addr(), "") + &backend(two.addr(), ""))));
    let shut = |id: BackendId| {
        while let Some(pass) = side.shared.enter(id) {
            pass.failed(now(), 0);
        }
        let breaker = &side.shared.upstream(id).unwrap().breaker;
        while breaker.look().pause_ms() < BREAKER_OPEN_MAX_MS {
            breaker.stay_open(side.shared.fleet.backend(id), now());
        }
    };
    let admits = |id: BackendId| side.shared.fleet.backend(id).admits().ok();
    let seen = || side.report()["state"]["breaker"]["opened"].as_u64();
    let are_together = || {
        let routes = side.shared.routes.load();
        let has = |pool: &Pool, id: u16| pool.backends.contains(BackendId(id));
        let both = |pool: &Pool| has(pool, 0) && has(pool, 1);
        !routes.pools.is_empty() && routes.pools.values().chain([&routes.all]).all(both)
    };
    eventually("both are known and up", || {
        let models = side.json("/admin/backends");
        let up = |at: usize| models["backends"][at]["kind"] == "openai";
        // What an engine is may be known before it is taken for healthy, and both before they stand in one pool.
        let admitted = admits(BackendId(0)).and(admits(BackendId(1))).is_some();
        (up(0) && up(1) && admitted && are_together()).then_some(())
    });
    shut(BackendId(0));
    assert!(!side.shared.is_last_hope(BackendId(0)), "the other one serves");
    eventually("it is seen to be open", || seen().filter(|count| *count == 1));
    assert_eq!(admits(BackendId(0)), None);
    shut(BackendId(1));
    assert!(side.shared.is_last_hope(BackendId(0)), "nobody serves");
    eventually("one of them is tried", || admits(BackendId(0)).or_else(|| admits(BackendId(1))));
    side.stop();
}

#[test]
fn an_open_breaker_is_half_opened_by_a_probe_and_closed_by_requests_alone() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::OpenAi);
    let side = Side::start(config(&backend(engine.addr(), "")));
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    break_down(&side);
    assert_eq!(side.fleet().admits(), Err(Refusal::BreakerOpen));
    let state = || side.report()["state"]["breaker"].clone();
    eventually("it is told of", || (state()["opened"] == 1).then_some(()));
    eventually("a probe half-opened it", || side.fleet().admits().ok());
    assert_eq!(state()["state"], "half_open");
    let trials: Vec<_> = std::iter::from_fn(|| side.shared.enter(BackendId(0))).collect();
    assert_eq!(trials.len(), BREAKER_TRIALS as usize);
    assert_eq!(side.fleet().admits(), Err(Refusal::BreakerOpen), "no more are let through");
    trials.into_iter().for_each(|trial| trial.succeeded(now()));
    assert_eq!((side.fleet().admits(), &state()["state"]), (Ok(()), &"closed".into()));
    break_down(&side);
    eventually("it opened again", || (state()["opened"] == 2).then_some(()));
    side.stop();
}

#[test]
fn an_open_breaker_stays_open_for_longer_while_probes_fail() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::Vllm);
    // Probes that fail take nothing down here, so that only the breaker keeps requests away.
    let mut config = config(&backend(engine.addr(), "kind = \"vllm\""));
    config.health.failures_to_down = 1_000;
    let side = Side::start(config);
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    engine.set_faults(Faults { unhealthy: true, ..Faults::default() });
    break_down(&side);
    let breaker = || side.upstream().breaker.look();
    eventually("its first pause was not its last", || (breaker().openings > 1).then_some(()));
    assert_eq!(side.fleet().admits(), Err(Refusal::BreakerOpen));
    engine.set_faults(Faults::default());
    eventually("it is tried once it answers", || side.fleet().admits().ok());
    side.stop();
}

#[test]
fn a_failing_scrape_is_shown_and_takes_nothing_down() {
    let runtime = runtime();
    let address = server(&runtime, |path| match path {
        "/health" => (200, String::new()),
        "/v1/models" => (200, r#"{"data":[{"id":"m","owned_by":"vllm"}]}"#.into()),
        _ => (404, String::new()),
    });
    let side = Side::start(config(&backend(address, "")));
    eventually("three readings failed", || {
        side.report()["signals"]["scrape"]["failures"].as_u64().filter(|count| *count >= 3)
    });
    assert_eq!(side.report()["signals"]["scrape"]["error"], "/metrics answered 404");
    assert_eq!(side.fleet().admits(), Ok(()));
    side.stop();
}

#[test]
fn a_sleeping_engine_is_taken_out_until_it_wakes() {
    let runtime = runtime();
    let awake = Arc::new(AtomicU16::new(0));
    let state = Arc::clone(&awake);
    let address = server(&runtime, move |path| match path {
        "/v1/models" => (200, r#"{"data":[{"id":"m","owned_by":"vllm"}]}"#.into()),
        "/metrics" => {
            // Relaxed: the value stands alone.
            let awake = state.load(Ordering::Relaxed);
            let sleep = format!("vllm:engine_sleep_state{{sleep_state=\"awake\"}} {awake}.0\n");
            (200, format!("vllm:num_requests_running 0\n{sleep}"))
        }
        _ => (200, String::new()),
    });
    let side = Side::start(config(&backend(address, "")));
    eventually("it is out", || side.fleet().admits().err());
    // Relaxed: as above.
    awake.store(1, Ordering::Relaxed);
    eventually("it is back", || side.fleet().admits().ok());
    side.stop();
}

#[test]
fn names_are_resolved_and_models_of_several_backends_joined() {
    let runtime = runtime();
    let [one, two] = ["a", "b"].map(|model| {
        let list = format!(r#"{{"data":[{{"id":"{model}"}},{{"id":"both"}}]}}"#);
        server(&runtime, move |_| (200, list.clone()))
    });
    let named = format!("[[backend]]\nurl = \"http://localhost:{}\"\n", two.port());
    let side = Side::start(config(&(backend(one, "") + &named)));
    eventually("both listed their models", || {
        let routes = side.shared.routes.load();
        let sizes =
            ["a", "b", "both"].map(|id| routes.pools.get(id).map_or(0, |pool| pool.backends.len()));
        (sizes == [1, 1, 2]).then_some(())
    });
    side.stop();
}

#[test]
fn configured_models_are_not_asked_for() {
    let runtime = runtime();
    let lists = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&lists);
    let address = server(&runtime, move |path| {
        // Relaxed: a count read after the fact.
        seen.fetch_add(usize::from(path == "/v1/models"), Ordering::Relaxed);
        (200, r#"{"data":[{"id":"other"}]}"#.into())
    });
    let side = Side::start(config(&backend(address, "models = [\"mine\"]\nkind = \"vllm\"")));
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    let routes = side.shared.routes.load();
    assert!(routes.complete);
    assert_eq!(routes.pools.keys().map(|id| &**id).collect::<Vec<_>>(), ["mine"]);
    // Relaxed: as above.
    assert_eq!(lists.load(Ordering::Relaxed), 0);
    side.stop();
}

#[test]
fn leaving_goes_through_its_phases_and_a_second_time_cuts() {
    let runtime = runtime();
    let engine = engine(&runtime, Persona::OpenAi);
    let mut config = config(&backend(engine.addr(), ""));
    config.timeouts.drain_grace_ms = 60_000;
    config.timeouts.drain_max_ms = 60_000;
    let side = Side::start(config);
    eventually("ready", || (side.shared.phase() == Phase::Ready).then_some(()));
    side.control.leave();
    eventually("leaving", || (side.shared.phase() == Phase::Leaving).then_some(()));
    assert_eq!(side.get("/readyz").0, 503);
    side.control.drain_now();
    eventually("draining", || (side.shared.phase() == Phase::Draining).then_some(()));
    side.control.leave();
    eventually("stopping", || (side.shared.phase() == Phase::Stopping).then_some(()));
    assert_eq!(side.get("/healthz").0, 200, "the admin address answers until the end");
    side.stop();
}
