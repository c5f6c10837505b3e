//! A site of ten thousand servers behind one proxy. All are one engine, which answers at ten thousand addresses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

use loadgen::engine::{Persona, SimEngine};
use tests::harness::{Proxy, engine};

use crate::said::{Talk, prose};

const BACKENDS: usize = 10_000;

#[tokio::test]
async fn conversations_come_home_among_ten_thousand_backends() {
    let mut options = engine(Persona::Vllm);
    // Everything from 127.0.0.0 to 127.255.255.255 is this machine.
    options.listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let site = SimEngine::start(options).expect("a free port");
    let port = site.addr().port();
    let url = |number: usize| format!("http://127.77.{}.{}:{port}", number / 256, number % 256);
    let urls: Vec<String> = (0..BACKENDS).map(url).collect();
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
