//! Engines die in the middle of what they say, and come back: callers are told in their own dialect, nothing stays
//! reserved, and the one that came back is taken in again, cold.

use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use serde_json::{Value, json};
use tests::harness::fleet::number_of;
use tests::harness::{Fleet, engine, eventually, settled};

use crate::said::{chat, prose, streamed};

/// An engine whose replies last long enough to die in.
fn talkative() -> EngineOptions {
    let mut options = engine(Persona::Vllm);
    options.reply = ReplyLength::fixed(100_000);
    options.params.decode_tps = 200.0;
    options
}

fn body(text: &str) -> Value {
    json!({ "model": "sim", "stream": true, "max_tokens": 100_000, "max_output_tokens": 100_000, "input": text,
        "messages": [{ "role": "user", "content": text }] })
}

/// Streams until the first words, kills the engine, and returns the whole of what the client got.
async fn killed_under(path: &str, first_words: &str) -> String {
    let mut fleet = Fleet::start(vec![talkative(), talkative()], "").await;
    let mut client = fleet.proxy.client().await;
    client.post(path, &body(&prose(1, 2_000))).await;
    client.sees(first_words).await;
    let busy =
        (0..2).find(|number| fleet.proxy.in_flight(*number) == 1).expect("it runs somewhere");
    assert!(fleet.proxy.tokens(busy) > 0);
    fleet.kill(&format!("b{busy}")).await;
    let reply = client.reply().await;
    assert!(reply.complete, "framed to its end: {}", reply.text());
    assert_eq!(reply.backend(), format!("b{busy}"));
    fleet.proxy.idle().await;
    // Whoever comes next goes to the one that lives.
    for number in 0..5 {
        let mut next = body(&prose(number, 500));
        next["stream"] = json!(false);
        next["max_tokens"] = json!(5);
        next["max_output_tokens"] = json!(5);
        let next = fleet.proxy.client().await.ask(path, &next).await;
        assert_eq!((next.status, next.backend()), (200, format!("b{}", 1 - busy).as_str()));
    }
    reply.text()
}

fn last_data(text: &str) -> Value {
    let data = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("an event");
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
}

#[tokio::test]
async fn a_chat_under_which_the_engine_dies_ends_with_an_error_object() {
    let text = killed_under("/v1/chat/completions", "\"content\"").await;
    assert!(last_data(&text)["error"]["message"].is_string(), "{text}");
    assert!(!text.contains("[DONE]"), "a broken stream has no good end");
}

#[tokio::test]
async fn a_message_under_which_the_engine_dies_ends_with_an_error_event() {
    let text = killed_under("/v1/messages?beta=true", "text_delta").await;
    assert!(text.contains("\n\nevent: error\ndata: "), "{text}");
    assert_eq!(
        (&last_data(&text)["type"], &last_data(&text)["error"]["type"]),
        (&json!("error"), &json!("api_error"))
    );
    assert!(!text.contains("message_stop"));
}

#[tokio::test]
async fn a_response_under_which_the_engine_dies_ends_as_failed() {
    let text = killed_under("/v1/responses", "output_text.delta").await;
    assert!(text.contains("\n\nevent: response.failed\ndata: "), "{text}");
    assert_eq!(last_data(&text)["response"]["status"], "failed");
    assert!(!text.contains("response.completed"));
}

#[tokio::test]
async fn an_engine_that_dies_before_it_says_anything_is_replaced_unnoticed() {
    // Its prefill takes as long as the test lets it.
    let mut stuck = engine(Persona::Vllm);
    stuck.faults.wedge = true;
    let mut fleet =
        Fleet::start(vec![stuck, engine(Persona::Vllm)], "[routing]\npolicy = \"round_robin\"\n")
            .await;
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = fleet.proxy.client().await;
        let text = prose(number, 500);
        client
            .post(
                "/v1/chat/completions",
                &if number % 2 == 0 { chat(&text) } else { streamed(chat(&text)) },
            )
            .await;
        clients.push(client);
    }
    eventually("some are stuck", || fleet.proxy.in_flight(0) >= 1 && fleet.proxy.in_flight(1) == 0)
        .await;
    fleet.kill("b0").await;
    for mut client in clients {
        let reply = client.reply().await;
        assert_eq!(
            (reply.status, reply.backend(), reply.complete),
            (200, "b1", true),
            "{}",
            reply.text()
        );
    }
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn an_engine_that_comes_back_is_taken_in_again_and_known_to_be_cold() {
    let mut fleet = Fleet::start(vec![engine(Persona::Vllm), engine(Persona::Sglang)], "").await;
    let path = "/v1/chat/completions";
    let mut client = fleet.proxy.client().await;
    let first = client.ask(path, &chat(&prose(1, 4_000))).await;
    let home = first.backend().to_owned();
    let number = number_of(&home);
    let held = async |fleet: &Fleet| {
        let body = chat(&prose(1, 4_000)).to_string();
        let told =
            fleet.proxy.dry_run(path, "Authorization: Bearer other\r\n", body.as_bytes()).await;
        told["decision"]["deepest_blocks"].as_u64()
    };
    settled("it is learned", async || held(&fleet).await.filter(|blocks| *blocks > 20)).await;
    let listen = fleet.kill(&home).await;
    eventually("its death is noticed", || !fleet.proxy.admits(number)).await;
    let persona = [Persona::Vllm, Persona::Sglang][number];
    fleet.revive(&home, listen, engine(persona));
    eventually("it is taken in again", || fleet.proxy.admits(number)).await;
    settled("its cache is known to be gone", async || {
        held(&fleet).await.filter(|blocks| *blocks == 0)
    })
    .await;
    // And it gets work again.
    settled("it serves", async || {
        let text = prose(fastrand::u64(..), 500);
        let reply = fleet.proxy.client().await.ask(path, &chat(&text)).await;
        (reply.status == 200 && reply.backend() == home).then_some(())
    })
    .await;
    let backends = fleet.proxy.admin_json("/admin/backends").await;
    assert!(backends["backends"][number]["restarts"]["count"].as_u64() >= Some(1), "{backends}");
}

#[tokio::test]
async fn a_restart_between_two_probes_is_noticed_by_the_engines_own_signs() {
    for persona in [Persona::Vllm, Persona::Sglang] {
        // Probed once in an hour: only the readings tell.
        let settings = "[health]\ninterval_ms = 3600000\nscrape_interval_ms = 100\n";
        let fleet = Fleet::of(1, persona, settings).await;
        let reply =
            fleet.proxy.client().await.ask("/v1/chat/completions", &chat(&prose(1, 4_000))).await;
        assert_eq!(reply.status, 200);
        let restarts = async || {
            let all = fleet.proxy.admin_json("/admin/backends").await;
            all["backends"][0]["restarts"]["count"].as_u64()
        };
        was_read_since(&fleet).await;
        assert_eq!(restarts().await, Some(0), "{persona}");
        fleet.engine("b0").restart();
        settled(&format!("the restart of {persona} is noticed"), async || {
            restarts().await.filter(|count| *count > 0)
        })
        .await;
        let body = chat(&prose(1, 4_000)).to_string();
        settled("nothing is believed of the new one", async || {
            let told = fleet.proxy.dry_run("/v1/chat/completions", "", body.as_bytes()).await;
            (told["decision"]["deepest_blocks"] == 0).then_some(())
        })
        .await;
    }
}

/// Waits until the engine's numbers were asked for and read anew: twice, since one reading may be under way.
async fn was_read_since(fleet: &Fleet) {
    let (mut last_age, mut readings) = (0, 0);
    settled("it was read since", async || {
        let all = fleet.proxy.admin_json("/admin/backends").await;
        let age = all["backends"][0]["signals"]["scrape"]["answered_ms_ago"].as_u64()?;
        readings += u32::from(age < last_age);
        last_age = age;
        (readings >= 2).then_some(())
    })
    .await;
}
