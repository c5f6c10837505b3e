//! Many engines and many streams in one process.

mod engine_support;

use std::time::Duration;

use engine_support::{Client, chat_stream, eventually, options, post, start};
use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine, text_hash};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_engines_start_and_answer_in_one_process() {
    let personas = [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi];
    let engines: Vec<SimEngine> =
        (0..1_000).map(|number| start(options(personas[number % 4]))).collect();
    for engine in engines.iter().step_by(37) {
        let reply = post(engine, "/v1/chat/completions", &engine_support::chat("hi")).await;
        assert_eq!(reply.status(), 200);
    }
    for engine in engines {
        engine.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_slow_streams_run_side_by_side_and_none_is_mixed_up() {
    let mut options = EngineOptions::new(Persona::Vllm);
    options.params.slots = 1_000;
    options.params.decode_tps = 4.0;
    options.params.prefill_tps = 1e6;
    options.reply = ReplyLength::fixed(12);
    options.params = options.params.with_kv_tokens(10_000_000);
    let engines: Vec<SimEngine> = (0..4).map(|_| start(options.clone())).collect();
    let mut clients = Vec::new();
    for number in 0..2_000 {
        let addr = engines[number % 4].addr();
        clients.push(tokio::spawn(async move {
            let mut client = Client::connect(addr).await;
            client.send("POST", "/v1/chat/completions", &chat_stream(&format!("{number}"))).await;
            let reply = client.reply().await.expect("a whole stream");
            let text: String = reply
                .events()
                .iter()
                .filter(|event| event.data != "[DONE]")
                .map(|event| {
                    event.json()["choices"][0]["delta"]["content"].as_str().unwrap().to_owned()
                })
                .collect();
            text_hash(&text).expect("a reply of its own")
        }));
    }
    let mut hashes = Vec::new();
    for client in clients {
        hashes.push(client.await.unwrap());
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 2_000, "every prompt had its own reply");
    for engine in &engines {
        let state = eventually(engine, "the end", |state| state.running == 0).await;
        assert_eq!((state.finished, state.aborted), (500, 0));
    }
}

#[tokio::test]
async fn tokens_come_at_the_rate_set_and_not_in_bunches() {
    let mut options = EngineOptions::new(Persona::Vllm);
    options.params.decode_tps = 50.0;
    options.reply = ReplyLength::fixed(20);
    let engine = start(options);
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", "/v1/chat/completions", &chat_stream("hi")).await;
    client.head().await.unwrap();
    let mut times = Vec::new();
    while client.chunk().await.unwrap().is_some() {
        times.push(Instant::now());
    }
    // Role and first token come together, end and last too. The upper bounds leave room for a busy machine.
    let span = times[times.len() - 2] - times[1];
    assert!(span >= Duration::from_millis(360) && span < Duration::from_secs(10), "{span:?}");
    let gaps = times[1..20].windows(2).map(|pair| pair[1] - pair[0]);
    let bunched = gaps.filter(|gap| *gap < Duration::from_millis(2)).count();
    assert!(bunched <= 12, "{bunched} of 18 gaps were under 2 ms");
}

#[tokio::test(start_paused = true)]
async fn an_engine_runs_on_simulated_time_as_well() {
    let mut options = EngineOptions::new(Persona::Vllm);
    options.params.decode_tps = 1.0;
    options.reply = ReplyLength::fixed(2_000);
    options.idle_close_ms = 1_000_000_000;
    let engine = start(options);
    let mut client = Client::connect(engine.addr()).await;
    let mut body = engine_support::chat("hi");
    body["max_tokens"] = json!(1_000);
    client.send("POST", "/v1/chat/completions", &body).await;
    let begun = Instant::now();
    while engine.state().finished == 0 {
        tokio::time::advance(Duration::from_secs(10)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.state().generated_tokens, 1_000);
    assert!(begun.elapsed() >= Duration::from_secs(999), "at one token a second");
}
