//! A process may open all that its system allows, whatever lower limit it was started with, and no connection waits for
//! the kernel's table of descriptors to grow.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use loadgen::engine::{Persona, SimEngine};
use tests::harness::{Process, config_text, engine};

use crate::said::chat;

const TEST: &str = "the_proxy_as_a_process";

/// The number behind this word in one of the files that tell of a process.
fn told(process: &Process, file: &str, word: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{}/{file}", process.id())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(word)).expect(word);
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_lower_limit_is_raised_and_the_table_is_large_before_the_first_connection() {
    let text = config_text(&["http://127.0.0.1:1".to_owned()], "");
    let process = Process::start_behind("ulimit -Sn 300", TEST, &text).await;
    let limits = told(&process, "limits", "Max open files");
    assert_eq!(limits[0], limits[1], "the lower limit is the upper one");
    let room = limits[1].parse().unwrap_or(u64::MAX).min(proxy::limits::DESCRIPTORS_ROOM);
    let table: u64 = told(&process, "status", "FDSize:")[0].parse().expect("a number");
    assert!(table >= room, "{table} of {room}");
}

#[tokio::test]
async fn connections_kept_for_later_leave_room_for_those_needed_now() {
    let mut options = engine(Persona::Vllm);
    // Everything from 127.0.0.0 to 127.255.255.255 is this machine: one engine at so many addresses.
    options.listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let site = SimEngine::start(options).expect("a free port");
    let port = site.addr().port();
    let url = |number: usize| format!("http://127.78.{}.{}:{port}", number / 256, number % 256);
    let urls: Vec<String> = (0..600).map(url).collect();
    let settings = "shards = 1\n[routing]\npolicy = \"round_robin\"\n";
    let text = config_text(&urls, settings);
    let process = Process::start_behind("ulimit -n 400", TEST, &text).await;
    let mut client = process.client().await;
    for number in 0..600 {
        let reply = client.ask("/v1/chat/completions", &chat("who is there?")).await;
        assert_eq!(reply.status, 200, "request {number}: {}", reply.text());
    }
    let (_, metrics) = process.admin("/metrics").await;
    let idle = metrics.lines().find_map(|line| line.strip_prefix("shearwater_upstream_idle"));
    let idle: f64 = idle
        .and_then(|line| line.split(' ').next_back())
        .expect("a gauge")
        .parse()
        .expect("a number");
    assert!(idle > 50.0, "{idle} are kept");
}
