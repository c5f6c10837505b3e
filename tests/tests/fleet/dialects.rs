//! Every API of every engine goes through, whole and as a stream; model lists are joined, and a model's requests reach
//! only engines that serve it.

use loadgen::engine::{EngineOptions, Persona, ReplyLength, text_hash};
use serde_json::{Value, json};
use tests::harness::{Fleet, Reply, engine, settled};

use crate::said::{chat, chat_stream, prose, streamed};

/// What a reply says, in each of the shapes.
fn text_of(reply: &Value) -> &str {
    let places = [
        "/choices/0/message/content",
        "/choices/0/text",
        "/content/0/text",
        "/output/0/content/0/text",
        "/content",
        "/text",
    ];
    places
        .iter()
        .find_map(|place| reply.pointer(place)?.as_str())
        .unwrap_or_else(|| panic!("{reply}"))
}

/// Joins what the events of a stream say. Pieces that repeat everything so far are not joined.
fn text_of_events(stream: &str) -> String {
    let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let values = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let mut text = String::new();
    for value in values {
        if let Some(all) = value["text"].as_str().filter(|_| value["meta_info"].is_object()) {
            text = all.to_owned();
            continue;
        }
        let response = value["type"] == "response.output_text.delta";
        let places = ["/choices/0/delta/content", "/choices/0/text", "/delta/text", "/content"];
        let piece = places.iter().find_map(|place| value.pointer(place)?.as_str());
        let piece = piece.or(value["delta"].as_str().filter(|_| response));
        text.push_str(piece.unwrap_or_default());
    }
    text
}

/// The engine's replies tell whether they are whole and belong to their prompt.
fn assert_genuine(text: &str, told: &str) {
    assert!(text_hash(text).is_some(), "{text:?} is not what the engine said: {told}");
}

/// Sends the same request whole and as a stream, and looks at every byte of both.
async fn goes_through(fleet: &Fleet, path: &str, body: &Value, end: &str) {
    let whole = fleet.proxy.client().await.ask(path, body).await;
    assert_eq!(whole.status, 200, "{path}: {}", whole.text());
    assert_genuine(text_of(&whole.json()), &whole.text());
    let stream = fleet.proxy.client().await.ask(path, &streamed(body.clone())).await;
    assert_eq!((stream.status, stream.complete), (200, true), "{path}: {}", stream.text());
    assert!(
        stream.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    );
    let text = stream.text();
    assert!(text.trim_end().contains(end), "{path} ends without {end:?}: {text}");
    assert_eq!(text_of_events(&text), text_of(&whole.json()), "{path}: {text}");
    fleet.proxy.idle().await;
}

fn messages() -> Value {
    json!({ "model": "sim", "max_tokens": 20, "system": "be brief",
        "messages": [{ "role": "user", "content": "hello" }] })
}

async fn common_dialects_go_through(persona: Persona) {
    let fleet = Fleet::of(2, persona, "").await;
    goes_through(&fleet, "/v1/chat/completions", &chat("hello"), "data: [DONE]").await;
    let completion = json!({ "model": "sim", "prompt": "once upon", "max_tokens": 20 });
    goes_through(&fleet, "/v1/completions", &completion, "data: [DONE]").await;
    let response = json!({ "model": "sim", "input": "hello", "max_output_tokens": 20 });
    goes_through(&fleet, "/v1/responses", &response, "response.completed").await;
    if persona != Persona::OpenAi {
        goes_through(&fleet, "/v1/messages?beta=true", &messages(), "message_stop").await;
    }
}

#[tokio::test]
async fn vllm_is_spoken_through() {
    common_dialects_go_through(Persona::Vllm).await;
}

#[tokio::test]
async fn sglang_is_spoken_through() {
    common_dialects_go_through(Persona::Sglang).await;
    let fleet = Fleet::of(1, Persona::Sglang, "").await;
    let body = json!({ "text": "once upon", "sampling_params": { "max_new_tokens": 20 } });
    goes_through(&fleet, "/generate", &body, "data: [DONE]").await;
}

#[tokio::test]
async fn llamacpp_is_spoken_through() {
    common_dialects_go_through(Persona::LlamaCpp).await;
    let fleet = Fleet::of(1, Persona::LlamaCpp, "").await;
    let body = json!({ "prompt": "once upon", "n_predict": 20 });
    goes_through(&fleet, "/completion", &body, "\"stop\":true").await;
}

#[tokio::test]
async fn a_server_that_knows_one_api_and_tells_nothing_is_spoken_through() {
    common_dialects_go_through(Persona::OpenAi).await;
}

/// One engine with one slot, taken by a stream that goes on and on.
async fn one_busy_engine(persona: Persona) -> (Fleet, tests::harness::Client) {
    let mut slow = EngineOptions { reply: ReplyLength::fixed(4_000), ..engine(persona) };
    slow.params.decode_tps = 40.0;
    let fleet = Fleet::limited(
        vec![slow],
        "[routing]\nqueue_wait_ms = 100\nhome_wait_ms = 0\n",
        "slots = 1",
    )
    .await;
    let mut streaming = fleet.proxy.client().await;
    streaming.post("/v1/chat/completions", &chat_stream("tell me everything")).await;
    streaming.sees("data: ").await;
    let refused = fleet.proxy.client().await.ask("/v1/chat/completions", &chat("me too")).await;
    assert_eq!(refused.status, 503, "the only slot is taken");
    (fleet, streaming)
}

#[tokio::test]
async fn counting_tokens_takes_no_slot() {
    for persona in [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp] {
        let (fleet, streaming) = one_busy_engine(persona).await;
        let mut client = fleet.proxy.client().await;
        let counted = client.ask("/v1/messages/count_tokens?beta=true", &messages()).await;
        assert_eq!(counted.status, 200, "{persona}: {}", counted.text());
        assert!(counted.json()["input_tokens"].as_u64() > Some(0), "{}", counted.text());
        let body = json!({ "model": "sim", "prompt": "hello", "content": "hello" });
        let tokens = client.ask("/tokenize", &body).await;
        assert_eq!(tokens.status, 200, "{persona}: {}", tokens.text());
        assert!(tokens.json()["tokens"].is_array());
        assert_eq!(fleet.proxy.in_flight(0), 1, "only the stream's");
        drop(streaming);
        fleet.proxy.idle().await;
    }
}

#[tokio::test]
async fn embeddings_take_a_slot_and_leave_no_prefix() {
    let fleet = Fleet::of(2, Persona::Vllm, "").await;
    let body = json!({ "model": "sim", "input": prose(1, 4_000) });
    let reply = fleet.proxy.client().await.ask("/v1/embeddings", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.json()["data"][0]["embedding"].is_array());
    let explained = fleet.proxy.explained(&reply).await;
    assert_eq!(
        (&explained["api"], &explained["decision"]["overlap_blocks"]),
        (&json!("embeddings"), &json!(0))
    );
    let again = fleet.proxy.dry_run("/v1/embeddings", "", body.to_string().as_bytes()).await;
    assert_eq!(again["decision"]["deepest_blocks"], 0);
    let (busy, streaming) = one_busy_engine(Persona::Vllm).await;
    let refused = busy.proxy.client().await.ask("/v1/embeddings", &body).await;
    assert_eq!(refused.status, 503);
    drop(streaming);
}

/// Two engines of one model, one of another.
async fn two_models() -> Fleet {
    let serving = |model: &str| EngineOptions { model: model.to_owned(), ..engine(Persona::Vllm) };
    let engines = vec![serving("alpha"), serving("alpha"), serving("beta")];
    let fleet = Fleet::start(engines, "").await;
    // Every engine is known; the routes follow at once, on another thread.
    settled("both models are listed", async || {
        (names(&list(&fleet, "").await).len() == 2).then_some(())
    })
    .await;
    fleet
}

async fn list(fleet: &Fleet, headers: &str) -> Reply {
    let mut client = fleet.proxy.client().await;
    client
        .send(format!("GET /v1/models?limit=1000 HTTP/1.1\r\nHost: t\r\n{headers}\r\n").as_bytes())
        .await;
    client.reply().await
}

fn names(reply: &Reply) -> Vec<String> {
    let all = reply.json();
    let name = |model: &Value| model["id"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = all["data"].as_array().expect("a list").iter().map(name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_model_list_is_everybodys_in_the_shape_that_was_asked_for() {
    let fleet = two_models().await;
    let openai = list(&fleet, "").await;
    assert_eq!((openai.status, names(&openai)), (200, vec!["alpha".to_owned(), "beta".to_owned()]));
    assert_eq!(
        (&openai.json()["object"], &openai.json()["data"][0]["object"]),
        (&json!("list"), &json!("model"))
    );
    let anthropic = list(&fleet, "anthropic-version: 2023-06-01\r\n").await;
    assert_eq!(names(&anthropic), ["alpha", "beta"]);
    let whole = anthropic.json();
    assert_eq!((&whole["has_more"], &whole["first_id"]), (&json!(false), &whole["data"][0]["id"]));
    assert_eq!(
        (&whole["data"][0]["type"], whole["data"][0]["created_at"].is_string()),
        (&json!("model"), true)
    );
}

#[tokio::test]
async fn a_models_requests_reach_only_engines_that_serve_it() {
    let fleet = two_models().await;
    let mut client = fleet.proxy.client().await;
    for number in 0..30 {
        let mut body = chat(&prose(number, 600));
        body["model"] = json!(if number % 3 == 0 { "beta" } else { "alpha" });
        let reply = client.ask("/v1/chat/completions", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.backend() == "b2", number % 3 == 0, "{} of {body}", reply.backend());
    }
    let sent = |name: &str| fleet.engine(name).state().requests;
    assert_eq!((sent("b0") + sent("b1"), sent("b2")), (20, 10));
    assert!(sent("b0") > 0 && sent("b1") > 0, "both serve alpha");
    let mut nobody = chat("hello");
    nobody["model"] = json!("gamma");
    assert_eq!(client.ask("/v1/chat/completions", &nobody).await.status, 404);
    assert_eq!(sent("b0") + sent("b1") + sent("b2"), 30, "nobody was asked for gamma");
}

#[tokio::test]
async fn the_same_words_to_two_models_share_nothing() {
    let fleet = two_models().await;
    let body = |model: &str| {
        let mut body = chat(&prose(1, 4_000));
        body["model"] = json!(model);
        body
    };
    let path = "/v1/chat/completions";
    let held = async |model: &str| {
        let told = fleet.proxy.dry_run(path, "", body(model).to_string().as_bytes()).await;
        told["decision"]["deepest_blocks"].as_u64()
    };
    assert_eq!(fleet.proxy.client().await.ask(path, &body("alpha")).await.status, 200);
    settled("it is learned", async || held("alpha").await.filter(|blocks| *blocks > 20)).await;
    assert_eq!(held("beta").await, Some(0));
}
