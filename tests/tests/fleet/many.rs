//! A site of ten thousand servers behind one proxy. All are one engine, which answers at ten thousand addresses.

use std::collections::HashSet;

use loadgen::engine::Persona;
use tests::harness::{Proxy, engine_at_many};

use crate::said::{Talk, prose};

const BACKENDS: usize = 10_000;

#[tokio::test]
async fn conversations_come_home_among_ten_thousand_backends() {
    let (_site, urls) = engine_at_many(Persona::Vllm, BACKENDS);
    let proxy = Proxy::start(&urls, "");
    let mut homes = HashSet::new();
    for number in 0..8 {
        let mut talk = Talk::new(proxy.listen, &prose(number, 2_000)).await;
        let first = talk.say(&prose(100 + number, 12_000)).await;
        for _ in 0..2 {
            let next = talk.say("and what follows from that?").await;
            assert_eq!(next.backend, first.backend, "conversation {number}");
        }
        homes.insert(first.backend);
    }
    assert!(homes.len() > 1, "all went to {homes:?}");
}
