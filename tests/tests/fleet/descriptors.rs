//! A process may open all that its system allows, whatever lower limit it was started with, and no connection waits for
//! the kernel's table of descriptors to grow, or fails for the sake of one that is kept for later.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loadgen::engine::Persona;
use tests::harness::{Process, config_text, engine_at_many, settled, urls_at_many};
use tokio::net::TcpListener;

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
    let (_site, urls) = engine_at_many(Persona::Vllm, 600);
    let settings = "shards = 1\n[routing]\npolicy = \"round_robin\"\n";
    let text = config_text(&urls, settings);
    let process = Process::start_behind("ulimit -n 400", TEST, &text).await;
    let mut client = process.client().await;
    for number in 0..600 {
        let reply = client.ask("/v1/chat/completions", &chat("who is there?")).await;
        assert_eq!(reply.status, 200, "request {number}: {}", reply.text());
    }
    let idle = process.metric("shearwater_upstream_idle").await;
    assert!(idle > 50, "{idle} are kept");
}

/// Takes connections and says nothing, at as many addresses as are asked for. Counts those it took.
async fn hung_at_many(count: usize) -> (Arc<AtomicUsize>, Vec<String>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
    let urls = urls_at_many(listener.local_addr().expect("an address").port(), count);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (taken, urls)
}

#[tokio::test]
async fn visits_to_a_fleet_that_hangs_leave_room_for_everything_else() {
    let backends = 300;
    let (taken, urls) = hung_at_many(backends).await;
    let text = config_text(&urls, "shards = 1\n[health]\ntimeout_ms = 500\n");
    let process = Process::start_behind("ulimit -n 400", TEST, &text).await;
    let mut most = 0;
    settled("every backend has been visited", async || {
        most = most.max(process.metric("process_open_fds").await);
        (taken.load(Ordering::Relaxed) >= backends).then_some(())
    })
    .await;
    // An eighth is for visits; the rest is what a process has open anyway.
    let (visits, anyway) = (400 / 8, 70);
    assert!((visits..visits + anyway).contains(&most), "{most} were open at once");
}
