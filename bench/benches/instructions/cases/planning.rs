//! Planning a request: reading its body, its fingerprint, whose conversation it is.

use std::collections::HashMap;
use std::sync::Arc;

use bench::sample;
use config::Config;
use index::{BackendId, BackendSet, FingerprintKey, Fleet, FleetConfig, IndexConfig};
use proxy::api::Api;
use proxy::http::{HeadLimits, RequestHead};
use proxy::limits::REQUEST_HEAD;
use proxy::plan::{Planned, Views, plan};
use proxy::prompt::Scratch;
use proxy::published::{Learned, Parts, Pool, Published, Routes, Upstream};

use super::repeat;

/// A shard's part of planning.
struct Planner {
    shared: &'static Published,
    routes: Routes,
    scratch: Scratch,
    head: RequestHead,
}

pub(crate) fn run(rounds: u64) -> u64 {
    let (small, large) = (sample::chat(4_000), sample::chat(100_000));
    let mut planner = Planner::new();
    // The scratch memory grows with the first bodies, and then no more.
    planner.plan(small.as_bytes());
    planner.plan(large.as_bytes());
    case_plan_4_kb(&mut planner, small.as_bytes(), rounds)
        ^ case_plan_100_kb(&mut planner, large.as_bytes(), rounds)
}

#[inline(never)]
fn case_plan_4_kb(planner: &mut Planner, body: &[u8], rounds: u64) -> u64 {
    repeat(rounds, || planner.plan(body))
}

// Not quite the same as above: equal functions become one, and the profile would show one name.
#[inline(never)]
fn case_plan_100_kb(planner: &mut Planner, body: &[u8], rounds: u64) -> u64 {
    repeat(rounds, || planner.plan(body)) ^ 100
}

impl Planner {
    fn new() -> Planner {
        let mut head = RequestHead::new();
        let limits = HeadLimits { bytes_max: 32 * 1024, ..REQUEST_HEAD };
        // The sample carries a session's id; without one the conversation is known by how it begins, which costs more.
        let plain = "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAccept: */*\r\n\
            User-Agent: AsyncOpenAI/Python 1.99\r\nContent-Type: application/json\r\n\
            Authorization: Bearer sk-0123456789abcdef\r\nX-Stainless-Lang: python\r\n\
            X-Stainless-Retry-Count: 0\r\nContent-Length: 4000\r\n\r\n";
        let parsed = head.parse(plain.as_bytes(), &limits);
        assert!(matches!(parsed, Ok(Some(_))), "the sample head is a head");
        Planner { shared: published(), routes: routes(), scratch: Scratch::default(), head }
    }

    fn plan(&mut self, body: &[u8]) -> u64 {
        let Planner { shared, routes, scratch, head } = self;
        let mut views = Views { shared, routes, scratch };
        match plan(&mut views, Api::ChatCompletions, &|name| head.header(name), body) {
            Planned::Forward(plan) => {
                plan.blocks.len() as u64 ^ plan.conversation.map_or(0, |key| key.0)
            }
            Planned::Answer(_) => unreachable!("the sample is a chat"),
        }
    }
}

fn published() -> &'static Published {
    let text = "[[backend]]\nurl = \"http://127.0.0.1:9\"\n";
    let config = Config::parse("sample", text).expect("the sample configuration is one");
    let (_, index) = index::index(IndexConfig::default());
    Box::leak(Box::new(Published::new(Parts {
        fleet: Fleet::new(FleetConfig::with_capacity(1)),
        upstreams: vec![Upstream::new("a", "127.0.0.1:9")],
        routes: routes(),
        index,
        shards: 1,
        key: FingerprintKey::new(7),
        instance: 1,
        sessions_per_shard_max: 1,
        descriptors_per_shard: usize::MAX,
        visits_at_once: 64,
        config,
    })))
}

fn routes() -> Routes {
    let pool = |model: &str| Pool {
        model: model.into(),
        backends: [BackendId(0)].into_iter().collect::<BackendSet>(),
        learned: Arc::new(Learned::default()),
    };
    Routes {
        pools: HashMap::from([("m".into(), pool("m"))]),
        all: pool(""),
        complete: true,
        models_openai: Vec::new(),
        models_anthropic: Vec::new(),
    }
}
