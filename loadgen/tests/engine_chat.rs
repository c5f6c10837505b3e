//! `/v1/chat/completions`: each engine's reply, whole and streamed, member by member.

mod engine_support;

use engine_support::{Event, chat, chat_stream, expected, options, post, shape, start};
use loadgen::engine::text::{Style, render};
use loadgen::engine::{Api, Persona, expected_text, text_hash};
use serde_json::{Value, json};

const PERSONAS: [Persona; 4] = [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi];

fn chunks(events: &[Event]) -> Vec<Value> {
    let (done, chunks) = events.split_last().expect("events");
    assert_eq!(done.data, "[DONE]");
    assert!(events.iter().all(|event| event.name.is_none()), "chat events have no names");
    chunks.iter().map(Event::json).collect()
}

fn streamed_text(chunks: &[Value]) -> String {
    let delta = |chunk: &Value| {
        chunk["choices"]
            .get(0)
            .and_then(|choice| choice["delta"]["content"].as_str())
            .map(str::to_owned)
    };
    chunks.iter().filter_map(delta).collect()
}

#[tokio::test]
async fn whole_and_streamed_replies_are_the_one_the_prompt_asks_for() {
    for persona in PERSONAS {
        let engine = start(options(persona));
        let body = chat("what is a shearwater?");
        let hash = render(Api::Chat, &body, Style::default()).unwrap().hash();
        let whole = post(&engine, "/v1/chat/completions", &body).await;
        assert_eq!(whole.status(), 200, "{persona}");
        let content = whole.json()["choices"][0]["message"]["content"].clone();
        assert_eq!(content, expected_text(hash, 8), "{persona}");
        let streamed =
            post(&engine, "/v1/chat/completions", &chat_stream("what is a shearwater?")).await;
        let text = streamed_text(&chunks(&streamed.events()));
        assert_eq!(text_hash(&text), Some(hash), "{persona}");
        assert_eq!(text.len(), 32, "{persona}");
    }
}

#[tokio::test]
async fn a_whole_reply_has_the_members_of_its_engine_in_their_order() {
    let shapes = [
        (
            Persona::LlamaCpp,
            r#"{"choices":[{"finish_reason":"text","index":"int","message":{"role":"text","content":"text"}}],
                "created":"int","model":"text","system_fingerprint":"text","object":"text",
                "usage":{"completion_tokens":"int","prompt_tokens":"int","total_tokens":"int",
                    "prompt_tokens_details":{"cached_tokens":"int"}},"id":"text",
                "timings":{"cache_n":"int","prompt_n":"int","prompt_ms":"float","prompt_per_token_ms":"float",
                    "prompt_per_second":"float","predicted_n":"int","predicted_ms":"float",
                    "predicted_per_token_ms":"float","predicted_per_second":"float"}}"#,
        ),
        (
            Persona::Vllm,
            r#"{"id":"text","object":"text","created":"int","model":"text",
                "choices":[{"index":"int","message":{"role":"text","content":"text","refusal":"null",
                    "annotations":"null","audio":"null","function_call":"null","reasoning":"null"},
                    "logprobs":"null","finish_reason":"text","stop_reason":"null","token_ids":"null",
                    "routed_experts":"null"}],"service_tier":"null","system_fingerprint":"text",
                "usage":{"prompt_tokens":"int","total_tokens":"int","completion_tokens":"int",
                    "prompt_tokens_details":{"cached_tokens":"int","created_cache_tokens":"int",
                        "multimodal_tokens":"null"},"completion_tokens_details":"null"},
                "prompt_logprobs":"null","prompt_token_ids":"null","prompt_text":"null","kv_transfer_params":"null",
                "ec_transfer_params":"null","metrics":"null"}"#,
        ),
        (
            Persona::Sglang,
            r#"{"id":"text","object":"text","created":"int","model":"text",
                "choices":[{"index":"int","message":{"role":"text","content":"text","reasoning_content":"null"},
                    "logprobs":"null","finish_reason":"text","matched_stop":"null"}],
                "usage":{"prompt_tokens":"int","total_tokens":"int","completion_tokens":"int",
                    "prompt_tokens_details":{"cached_tokens":"int"},"reasoning_tokens":"int",
                    "completion_tokens_details":"null"},
                "metadata":{"weight_version":"text",
                    "weight_versions":[{"version":"text","start":"int","end":"int"}]}}"#,
        ),
    ];
    for (persona, wanted) in shapes {
        let engine = start(options(persona));
        let reply = post(&engine, "/v1/chat/completions", &chat("hi")).await;
        assert_eq!(shape(&reply.json()), expected(wanted), "{persona}");
    }
}

/// The chunks of a stream: first, a token, the last with a choice, then usage if asked for.
async fn stream_shapes(persona: Persona, usage: bool) -> Vec<String> {
    let engine = start(options(persona));
    let mut body = chat_stream("hi");
    if usage {
        body["stream_options"] = json!({"include_usage": true});
    }
    let reply = post(&engine, "/v1/chat/completions", &body).await;
    let mut shapes: Vec<String> = chunks(&reply.events()).iter().map(shape).collect();
    shapes.dedup();
    shapes
}

#[tokio::test]
async fn llamacpp_streams_a_role_tokens_and_an_end_with_timings() {
    let chunk = |choice: &str, more: &str| {
        expected(&format!(
            r#"{{"choices":[{choice}],"created":"int","id":"text","model":"text","system_fingerprint":"text",
                "object":"text"{more}}}"#
        ))
    };
    let timings = r#""timings":{"cache_n":"int","prompt_n":"int","prompt_ms":"float","prompt_per_token_ms":"float",
        "prompt_per_second":"float","predicted_n":"int","predicted_ms":"float","predicted_per_token_ms":"float",
        "predicted_per_second":"float"}"#;
    let role = r#"{"finish_reason":"null","index":"int","delta":{"role":"text","content":"null"}}"#;
    let token = r#"{"finish_reason":"null","index":"int","delta":{"content":"text"}}"#;
    let end = r#"{"finish_reason":"text","index":"int","delta":{}}"#;
    assert_eq!(
        stream_shapes(Persona::LlamaCpp, false).await,
        [chunk(role, ""), chunk(token, ""), chunk(end, &format!(",{timings}"))]
    );
    let usage = r#","usage":{"completion_tokens":"int","prompt_tokens":"int","total_tokens":"int",
        "prompt_tokens_details":{"cached_tokens":"int"}}"#;
    assert_eq!(
        stream_shapes(Persona::LlamaCpp, true).await,
        [
            chunk(role, ""),
            chunk(token, ""),
            chunk(end, ""),
            chunk("", &format!("{usage},{timings}"))
        ]
    );
}

#[tokio::test]
async fn vllm_streams_a_role_tokens_and_the_end_with_the_last_token() {
    let chunk = |choices: &str, more: &str| {
        expected(&format!(
            r#"{{"id":"text","object":"text","created":"int","model":"text","choices":[{choices}]{more}}}"#
        ))
    };
    let role = r#"{"index":"int","delta":{"role":"text","content":"text"},"logprobs":"null","finish_reason":"null"}"#;
    let token = r#"{"index":"int","delta":{"content":"text"},"logprobs":"null","finish_reason":"null",
        "token_ids":"null"}"#;
    let last = r#"{"index":"int","delta":{"content":"text"},"logprobs":"null","finish_reason":"text",
        "stop_reason":"null","token_ids":"null"}"#;
    let first = chunk(role, r#","prompt_token_ids":"null","prompt_text":"null""#);
    assert_eq!(
        stream_shapes(Persona::Vllm, false).await,
        [first.clone(), chunk(token, ""), chunk(last, "")]
    );
    let usage = r#","usage":{"prompt_tokens":"int","total_tokens":"int","completion_tokens":"int",
        "prompt_tokens_details":{"cached_tokens":"int","created_cache_tokens":"int"}},"system_fingerprint":"text""#;
    assert_eq!(
        stream_shapes(Persona::Vllm, true).await,
        [first, chunk(token, ""), chunk(last, ""), chunk("", usage)]
    );
}

#[tokio::test]
async fn vllm_counts_in_every_chunk_when_asked_to() {
    let engine = start(options(Persona::Vllm));
    let mut body = chat_stream("hi");
    body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    let reply = post(&engine, "/v1/chat/completions", &body).await;
    let chunks = chunks(&reply.events());
    let counts: Vec<u64> =
        chunks.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
    assert_eq!(chunks[3]["usage"]["completion_tokens_details"], Value::Null);
}

#[tokio::test]
async fn sglang_streams_a_role_tokens_and_an_empty_end() {
    let chunk = |delta: &str, finish: &str| {
        expected(&format!(
            r#"{{"id":"text","object":"text","created":"int","model":"text","choices":[{{"index":"int",
                "delta":{{"reasoning_content":"null"{delta}}},"logprobs":"null","finish_reason":"{finish}",
                "matched_stop":"null"}}]}}"#
        ))
    };
    let mut wanted = vec![
        chunk(r#","role":"text","content":"text""#, "null"),
        chunk(r#","content":"text""#, "null"),
        chunk("", "text"),
    ];
    assert_eq!(stream_shapes(Persona::Sglang, false).await, wanted);
    wanted.push(expected(
        r#"{"id":"text","object":"text","created":"int","model":"text","choices":[],
            "usage":{"prompt_tokens":"int","total_tokens":"int","completion_tokens":"int",
                "prompt_tokens_details":{"cached_tokens":"int"},"reasoning_tokens":"int",
                "completion_tokens_details":"null"}}"#,
    ));
    assert_eq!(stream_shapes(Persona::Sglang, true).await, wanted);
}

#[tokio::test]
async fn cached_tokens_are_told_as_each_engine_counts_them() {
    // 300 tokens of prompt: enough for blocks of every size.
    let body = chat(&"shearwater ".repeat(109));
    for (persona, block) in [(Persona::Vllm, 32), (Persona::Sglang, 16), (Persona::LlamaCpp, 1)] {
        let engine = start(options(persona));
        let cached = |reply: &Value| {
            reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
        };
        let cold = post(&engine, "/v1/chat/completions", &body).await.json();
        let warm = post(&engine, "/v1/chat/completions", &body).await.json();
        let prompt = warm["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(prompt > 290, "{persona}: {prompt}");
        assert_eq!((cached(&cold), cached(&warm)), (0, (prompt - 1) / block * block), "{persona}");
        let state = engine.state();
        assert_eq!(state.cached_tokens, cached(&warm), "{persona}");
        assert_eq!(state.computed_tokens, 2 * prompt - cached(&warm), "{persona}");
    }
}

#[tokio::test]
async fn hidden_cached_tokens_are_left_out_as_by_default_in_earnest() {
    for persona in [Persona::Vllm, Persona::Sglang] {
        let mut options = options(persona);
        options.report_cached = false;
        let engine = start(options);
        let reply = post(&engine, "/v1/chat/completions", &chat("hi")).await.json();
        assert_eq!(reply["usage"].get("prompt_tokens_details"), Some(&Value::Null), "{persona}");
    }
}

#[tokio::test]
async fn a_conversation_reuses_its_own_reply_in_the_next_turn() {
    let engine = start(options(Persona::Vllm));
    let question = "tell me about ".to_owned() + &"the sea ".repeat(50);
    let first = post(&engine, "/v1/chat/completions", &chat(&question)).await.json();
    let reply = first["choices"][0]["message"]["content"].clone();
    let next = json!({"model": "sim", "messages": [{"role": "user", "content": question},
        {"role": "assistant", "content": reply}, {"role": "user", "content": "more"}]});
    let second = post(&engine, "/v1/chat/completions", &next).await.json();
    let held = (first["usage"]["total_tokens"].as_u64().unwrap()) / 32 * 32;
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], held);
}

#[tokio::test]
async fn the_limit_of_the_request_cuts_a_reply_and_says_so() {
    let engine = start(options(Persona::Vllm));
    let mut body = chat("hi");
    body["max_tokens"] = json!(3);
    let cut = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert_eq!(cut["usage"]["completion_tokens"], 3);
    body["max_tokens"] = json!(100);
    let natural = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(natural["choices"][0]["finish_reason"], "stop");
    assert_eq!(natural["usage"]["completion_tokens"], 8);
    body["ignore_eos"] = json!(true);
    let forced = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(forced["usage"]["completion_tokens"], 100);
}

#[tokio::test]
async fn a_request_id_becomes_the_replys_id_at_vllm_only() {
    for (persona, kept) in [(Persona::Vllm, true), (Persona::LlamaCpp, false)] {
        let engine = start(options(persona));
        let mut client = engine_support::Client::connect(engine.addr()).await;
        client
            .send_with("POST", "/v1/chat/completions", &[("X-Request-Id", "abc123")], &chat("hi"))
            .await;
        let id = client.reply().await.unwrap().json()["id"].as_str().unwrap().to_owned();
        assert_eq!(id == "chatcmpl-abc123", kept, "{persona}: {id}");
    }
}
