//! The other APIs: messages, responses, completions, the engines' own, embeddings.

mod engine_support;

use engine_support::{Event, Reply, expected, options, post, shape, start};
use loadgen::engine::{Persona, SimEngine, text_hash};
use serde_json::{Value, json};

const ENGINES: [Persona; 3] = [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang];

fn message(stream: bool) -> Value {
    json!({"model": "sim", "max_tokens": 100, "stream": stream,
        "messages": [{"role": "user", "content": "hi"}]})
}

fn response(stream: bool) -> Value {
    json!({"model": "sim", "input": "hi", "stream": stream})
}

fn names(events: &[Event]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event.name.as_deref().unwrap()).collect();
    names.dedup();
    names
}

/// Every event's `event:` line repeats its `type`.
fn assert_typed(events: &[Event]) {
    for event in events {
        assert_eq!(event.name.as_deref(), event.json()["type"].as_str());
    }
}

async fn with(persona: Persona, path: &str, body: &Value) -> (SimEngine, Reply) {
    let engine = start(options(persona));
    let reply = post(&engine, path, body).await;
    assert_eq!(reply.status(), 200, "{persona}: {}", reply.text());
    (engine, reply)
}

#[tokio::test]
async fn a_whole_message_has_the_members_of_its_engine() {
    let shapes = [
        (
            Persona::LlamaCpp,
            r#"{"id":"text","type":"text","role":"text","content":[{"type":"text","text":"text"}],"model":"text",
                "stop_reason":"text","stop_sequence":"null","usage":{"cache_read_input_tokens":"int",
                "input_tokens":"int","output_tokens":"int"}}"#,
        ),
        (
            Persona::Vllm,
            r#"{"id":"text","type":"text","role":"text","content":[{"type":"text","text":"text"}],"model":"text",
                "stop_reason":"text","usage":{"input_tokens":"int","output_tokens":"int",
                "cache_creation_input_tokens":"int","cache_read_input_tokens":"int"}}"#,
        ),
        (
            Persona::Sglang,
            r#"{"id":"text","type":"text","role":"text","content":[{"type":"text","text":"text"}],"model":"text",
                "stop_reason":"text","usage":{"input_tokens":"int","output_tokens":"int",
                "cache_read_input_tokens":"int"}}"#,
        ),
    ];
    for (persona, wanted) in shapes {
        let (_engine, reply) = with(persona, "/v1/messages?beta=true", &message(false)).await;
        assert_eq!(shape(&reply.json()), expected(wanted), "{persona}");
        assert_eq!(reply.json()["stop_reason"], "end_turn", "{persona}");
        assert!(text_hash(reply.json()["content"][0]["text"].as_str().unwrap()).is_some());
    }
}

#[tokio::test]
async fn a_streamed_message_has_anthropics_events_in_order() {
    for persona in ENGINES {
        let (_engine, reply) = with(persona, "/v1/messages", &message(true)).await;
        let events = reply.events();
        assert_typed(&events);
        assert_eq!(
            names(&events),
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ],
            "{persona}"
        );
        let text: String = events
            .iter()
            .filter_map(|event| event.json()["delta"]["text"].as_str().map(str::to_owned))
            .collect();
        assert!(text_hash(&text).is_some(), "{persona}: {text:?}");
    }
}

#[tokio::test]
async fn the_first_and_last_message_events_differ_by_engine() {
    let wanted = [
        (
            Persona::LlamaCpp,
            r#"{"type":"text","message":{"id":"text","type":"text","role":"text","content":[],"model":"text",
                "stop_reason":"null","stop_sequence":"null","usage":{"cache_read_input_tokens":"int",
                "input_tokens":"int","output_tokens":"int"}}}"#,
            r#"{"type":"text","delta":{"stop_reason":"text","stop_sequence":"null"},
                "usage":{"output_tokens":"int"}}"#,
        ),
        (
            Persona::Vllm,
            r#"{"type":"text","message":{"id":"text","type":"text","role":"text","content":[],"model":"text",
                "stop_reason":"null","stop_sequence":"null","usage":{"input_tokens":"int","output_tokens":"int"}}}"#,
            r#"{"type":"text","delta":{"stop_reason":"text","stop_sequence":"null"},"usage":{"input_tokens":"int",
                "output_tokens":"int","cache_creation_input_tokens":"int","cache_read_input_tokens":"int"}}"#,
        ),
        (
            Persona::Sglang,
            r#"{"type":"text","message":{"id":"text","type":"text","role":"text","content":[],"model":"text",
                "usage":{"input_tokens":"int","output_tokens":"int","cache_read_input_tokens":"int"}}}"#,
            r#"{"type":"text","delta":{"stop_reason":"text"},"usage":{"input_tokens":"int","output_tokens":"int",
                "cache_read_input_tokens":"int"}}"#,
        ),
    ];
    for (persona, start, delta) in wanted {
        let (_engine, reply) = with(persona, "/v1/messages", &message(true)).await;
        let events = reply.events();
        assert_eq!(shape(&events[0].json()), expected(start), "{persona}");
        assert_eq!(shape(&events[events.len() - 2].json()), expected(delta), "{persona}");
    }
}

#[tokio::test]
async fn a_messages_prompt_is_the_sum_of_its_input_and_of_what_was_read_and_written_to_cache() {
    let long = json!({"model": "sim", "max_tokens": 9, "messages": [
        {"role": "user", "content": "shearwater ".repeat(100)}]});
    for persona in ENGINES {
        let (engine, cold) = with(persona, "/v1/messages", &long).await;
        let warm = post(&engine, "/v1/messages", &long).await.json();
        let sum = |reply: &Value| {
            let names = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
            names.iter().filter_map(|name| reply["usage"][name].as_u64()).sum::<u64>()
        };
        assert!(warm["usage"]["cache_read_input_tokens"].as_u64() > Some(200), "{persona}: {warm}");
        assert_eq!(sum(&warm), sum(&cold.json()), "{persona}");
        assert_eq!(2 * sum(&warm), engine.state().prompt_tokens, "{persona}");
    }
}

#[tokio::test]
async fn tokens_are_counted_without_generating_any() {
    for persona in ENGINES {
        let (engine, counted) = with(persona, "/v1/messages/count_tokens", &message(false)).await;
        let tokens = counted.json()["input_tokens"].as_u64().unwrap();
        assert_eq!(engine.state().requests, 0);
        let reply = post(&engine, "/v1/messages", &message(false)).await.json();
        assert_eq!(reply["usage"]["input_tokens"].as_u64(), Some(tokens), "{persona}");
    }
}

#[tokio::test]
async fn a_streamed_response_has_the_responses_events_in_order() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi] {
        let (_engine, reply) = with(persona, "/v1/responses", &response(true)).await;
        let events = reply.events();
        assert_typed(&events);
        assert_eq!(
            names(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed"
            ],
            "{persona}"
        );
        let deltas: String = events
            .iter()
            .filter_map(|event| event.json()["delta"].as_str().map(str::to_owned))
            .collect();
        let last = events.last().unwrap().json();
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], deltas, "{persona}");
        assert!(text_hash(&deltas).is_some(), "{persona}");
        let numbers: Vec<Option<u64>> =
            events.iter().map(|event| event.json()["sequence_number"].as_u64()).collect();
        let wanted: Vec<Option<u64>> = (0..events.len() as u64)
            .map(|number| (persona != Persona::LlamaCpp).then_some(number))
            .collect();
        assert_eq!(numbers, wanted, "{persona}");
    }
}

#[tokio::test]
async fn llamacpps_response_events_have_the_members_of_the_real_ones() {
    let (_engine, reply) = with(Persona::LlamaCpp, "/v1/responses", &response(true)).await;
    let shapes: Vec<String> = reply.events().iter().map(|event| shape(&event.json())).collect();
    let progress = r#"{"type":"text","response":{"id":"text","object":"text","status":"text"}}"#;
    assert_eq!(shapes[0], expected(progress));
    let item = r#"{"type":"text","item":{"content":[],"id":"text","role":"text","status":"text","type":"text"}}"#;
    assert_eq!(shapes[2], expected(item));
    let part = r#"{"type":"text","item_id":"text","part":{"type":"text","text":"text"}}"#;
    assert_eq!(shapes[3], expected(part));
    let delta = r#"{"type":"text","item_id":"text","delta":"text"}"#;
    assert_eq!(shapes[4], expected(delta));
}

#[tokio::test]
async fn a_whole_response_tells_its_usage_in_that_apis_words() {
    for persona in ENGINES {
        let (_engine, reply) = with(persona, "/v1/responses", &response(false)).await;
        let reply = reply.json();
        assert_eq!(reply["object"], "response", "{persona}");
        assert_eq!(reply["status"], "completed", "{persona}");
        let usage = &reply["usage"];
        assert_eq!(usage["output_tokens"], 8, "{persona}");
        let sum = usage["input_tokens"].as_u64().unwrap() + 8;
        assert_eq!(usage["total_tokens"].as_u64(), Some(sum), "{persona}");
        assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0, "{persona}");
    }
}

#[tokio::test]
async fn completions_stream_text_and_end_with_done() {
    let body = json!({"model": "sim", "prompt": "once upon a time", "stream": true});
    for persona in ENGINES {
        let (_engine, reply) = with(persona, "/v1/completions", &body).await;
        let events = reply.events();
        assert_eq!(events.last().unwrap().data, "[DONE]", "{persona}");
        let text: String = events[..events.len() - 1]
            .iter()
            .map(|event| event.json()["choices"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        assert!(text_hash(&text).is_some(), "{persona}");
        let end = events[events.len() - 2].json();
        assert_eq!(end["choices"][0]["finish_reason"], "stop", "{persona}");
        // llama.cpp tells usage without being asked here.
        assert_eq!(end.get("usage").is_some(), persona == Persona::LlamaCpp, "{persona}");
    }
}

#[tokio::test]
async fn a_completion_of_token_ids_counts_one_token_each() {
    let body = json!({"model": "sim", "prompt": [1, 2, 3, 4, 5]});
    let (_engine, reply) = with(Persona::Vllm, "/v1/completions", &body).await;
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 5);
    assert_eq!(reply.json()["object"], "text_completion");
}

#[tokio::test]
async fn llamacpps_own_completion_streams_content_and_ends_with_stop() {
    let body = json!({"prompt": "once", "stream": true});
    let (_engine, reply) = with(Persona::LlamaCpp, "/completion", &body).await;
    let events = reply.events();
    let token = r#"{"index":"int","content":"text","tokens":["int"],"stop":"bool","id_slot":"int",
        "tokens_predicted":"int","tokens_evaluated":"int"}"#;
    assert_eq!(shape(&events[0].json()), expected(token));
    let end = events.last().unwrap().json();
    assert_eq!((&end["stop"], &end["stop_type"]), (&json!(true), &json!("eos")));
    assert_eq!(end["timings"]["predicted_n"], 8);
}

#[tokio::test]
async fn sglangs_generate_repeats_the_text_so_far_and_tells_cached_tokens() {
    let body = json!({"text": "once ".repeat(40), "stream": true,
        "sampling_params": {"max_new_tokens": 5}});
    let (engine, reply) = with(Persona::Sglang, "/generate", &body).await;
    let events = reply.events();
    let texts: Vec<String> = events[..events.len() - 1]
        .iter()
        .map(|event| event.json()["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts.len(), 5);
    assert!(texts.windows(2).all(|pair| pair[1].starts_with(&pair[0])));
    let whole = json!({"text": "once ".repeat(40), "sampling_params": {"max_new_tokens": 5}});
    let again = post(&engine, "/generate", &whole).await.json();
    assert_eq!(again["meta_info"]["cached_tokens"], 48, "three pages of the 50 tokens");
    assert_eq!(again["meta_info"]["finish_reason"]["type"], "length");
    assert_eq!(again["text"], texts[4]);
}

#[tokio::test]
async fn embeddings_follow_from_the_input_and_llamacpp_needs_a_flag() {
    let body = |text: &str| json!({"model": "sim", "input": text});
    let (engine, one) = with(Persona::Vllm, "/v1/embeddings", &body("a")).await;
    let vector = |reply: &Reply| reply.json()["data"][0]["embedding"].clone();
    let other = post(&engine, "/v1/embeddings", &body("b")).await;
    assert_eq!(vector(&one).as_array().unwrap().len(), 16);
    assert_ne!(vector(&one), vector(&other));
    assert_eq!(vector(&one), vector(&post(&engine, "/v1/embeddings", &body("a")).await));
    let llama = start(options(Persona::LlamaCpp));
    assert_eq!(post(&llama, "/v1/embeddings", &body("a")).await.status(), 501);
}

#[tokio::test]
async fn tokenize_counts_what_a_request_would_be_charged() {
    let (engine, reply) = with(
        Persona::Vllm,
        "/tokenize",
        &json!({"model": "sim", "messages": [
            {"role": "user", "content": "hi"}]}),
    )
    .await;
    let charged = post(&engine, "/v1/chat/completions", &engine_support::chat("hi")).await.json();
    assert_eq!(reply.json()["count"], charged["usage"]["prompt_tokens"]);
    let (_engine, llama) =
        with(Persona::LlamaCpp, "/tokenize", &json!({"content": "12345678"})).await;
    assert_eq!(shape(&llama.json()), r#"{"tokens":["int","int"]}"#);
}
