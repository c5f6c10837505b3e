//! Rules on who may know what, and on facts with one home.

use crate::rules;

rules! {
    #[test]
    fn time_is_read_in_clock_modules_only(tests::tidy::purity::time_is_read_in_clock_modules)
    broken_by {
        [("proxy/src/relay.rs", "fn f() { Instant::now(); }")]
        [("loadgen/src/client/arrival.rs", "fn f() { std::time::SystemTime::now(); }")]
        [("bench/src/lib.rs", "fn f() { tokio::time::Instant::now(); }")]
        [("loadgen/src/a.rs", "use std::time::Instant;\nuse tokio::time::sleep;\nfn f() { \
           Instant::now(); }")]
    }
    kept_by {
        [("proxy/src/clock.rs", "fn f() { Instant::now(); }")]
        [("loadgen/src/engine/clock/mod.rs", "fn f() { Instant::now(); }")]
        [("loadgen/src/a.rs", "use tokio::time::{Instant, sleep};\nfn f() { Instant::now(); }")]
        [("proxy/src/relay.rs", "// Instant::now\nfn f(now: Instant) { crate::clock::now(); }")]
    }

    #[test]
    fn the_decision_core_knows_no_world(tests::tidy::purity::the_decision_core_is_pure)
    broken_by {
        [("index/src/a.rs", "use std::time::Duration;")]
        [("index/src/a.rs", "fn f(a: std::net::SocketAddr) {}")]
        [("index/src/a.rs", "fn f() { std::env::var(\"A\"); }")]
    }
    kept_by {
        [("index/src/a.rs", "use std::collections::HashMap;\n// std::time is an argument")]
        [("index/tests/model.rs", "use std::time::Duration;")]
        [("proxy/src/a.rs", "use std::time::Duration;")]
    }

    #[test]
    fn the_decision_core_depends_on_little(
        tests::tidy::purity::the_decision_core_depends_on_little
    )
    broken_by {
        [("index/Cargo.toml", "[dependencies]\nserde.workspace = true\n")]
        [("index/Cargo.toml", "[target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n")]
    }
    kept_by {
        [("index/Cargo.toml", "[dependencies]\narc-swap.workspace = true\n[lints]\nserde = 1\n")]
        [("proxy/Cargo.toml", "[dependencies]\nserde.workspace = true\n")]
    }

    #[test]
    fn index_config_and_loadgen_depend_on_none_of_ours(
        tests::tidy::purity::leaves_depend_on_none_of_ours
    )
    broken_by {
        [("config/Cargo.toml", "[dependencies]\nindex.workspace = true\n")]
        [("loadgen/Cargo.toml", "[dev-dependencies]\nproxy = { path = \"../proxy\" }\n")]
    }
    kept_by {
        [("config/Cargo.toml", "[package]\nname = \"config\"\n[dependencies]\ntoml = \"1\"\n")]
        [("proxy/Cargo.toml", "[dependencies]\nindex.workspace = true\n")]
    }

    #[test]
    fn status_codes_have_one_home(tests::tidy::literals::status_codes_have_one_home)
    broken_by {
        [("proxy/src/session.rs", "fn f() { reply(503) }")]
        [("proxy/src/http/head.rs", "const A: u16 = 431;")]
        [("proxy/src/relay.rs", "fn f(a: Reply) -> bool { a.status >= 500 }")]
        [("proxy/src/relay.rs", "fn f(a: u16) -> bool { a == 429 }")]
    }
    kept_by {
        [("proxy/src/answer/status.rs", "fn f() { reply(503) }")]
        [("proxy/src/answer.rs", "const A: u16 = 431;")]
        [("proxy/src/session.rs", "// 503\nconst A: u64 = 512; const B: u32 = 4_000 + 500 + 1503;")]
        [("proxy/src/control/probe.rs", "fn f(a: Reply) -> bool { a.status == 404 }")]
        [("proxy/src/session.rs", "#[cfg(test)]\nmod tests { const A: u16 = 503; }")]
        [("loadgen/src/engine/fault.rs", "const A: u16 = 503;")]
    }

    #[test]
    fn metric_names_have_one_home(tests::tidy::literals::metric_names_have_one_home)
    broken_by {
        [("proxy/src/admin.rs", "const A: &str = \"shearwater_requests_total\";")]
    }
    kept_by {
        [("proxy/src/metrics.rs", "const A: &str = \"shearwater_requests_total\";")]
        [("proxy/src/metrics/names.rs", "const A: &str = \"shearwater_requests_total\";")]
        [("proxy/src/admin.rs", "// \"shearwater_requests_total\"\nconst A: &str = \"shearwater\";")]
        [("proxy/src/admin.rs", "#[cfg(test)]\nmod tests { const A: &str = \"shearwater_a\"; }")]
        [("tests/tests/e2e.rs", "const A: &str = \"shearwater_requests_total\";")]
    }
}
