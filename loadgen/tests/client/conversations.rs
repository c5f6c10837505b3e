//! Conversations as they arrive at a server: growth, dialects, shapes, counts.

use loadgen::client::{Dialect, Shape, Sizes};

use crate::server::{Seen, Sender, Server, answer_chat, one_conversation, run};

async fn answer_messages(_: Seen, reply: Sender) {
    let events = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":95}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"one two\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    for event in events {
        reply.send(event).await;
    }
}

async fn answer_responses(_: Seen, reply: Sender) {
    let events = [
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"one two\"}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":2,\"input_tokens_details\":{\"cached_tokens\":95}}}}\n\n",
    ];
    for event in events {
        reply.send(event).await;
    }
}

#[tokio::test]
async fn every_turn_carries_the_real_replies_to_the_earlier_ones() {
    let server = Server::start(answer_chat).await;
    let report = run(one_conversation(&server.url, 3)).await;
    assert_eq!((report.requests.sent, report.requests.complete), (3, 3), "{report:?}");
    let seen = server.seen();
    let messages = |turn: usize| seen[turn].body["messages"].as_array().expect("array").clone();
    assert_eq!([0, 1, 2].map(|turn| messages(turn).len()), [2, 4, 6]);
    assert_eq!(messages(2)[..4], messages(1)[..], "each turn extends the one before");
    assert_eq!(messages(1)[2]["content"], "one two");
    assert_eq!(messages(1)[2]["role"], "assistant");
}

#[tokio::test]
async fn figures_are_told_for_all_turns_and_for_follow_up_turns() {
    let server = Server::start(answer_chat).await;
    let report = run(one_conversation(&server.url, 3)).await;
    assert_eq!((report.tokens.all.reused, report.tokens.all.recomputed), (150, 150));
    assert_eq!((report.tokens.followup.reused, report.tokens.followup.output), (100, 4));
    assert_eq!(report.latency.ttft.count, 3);
    assert_eq!(report.latency.ttft_followup.count, 2);
    assert_eq!(report.latency.inter_token.count, 3, "one gap for two pieces of text");
    assert_eq!(report.backends.values().sum::<u64>(), 3);
    assert_eq!(report.backends["b-1"], 2);
    assert_eq!(report.statuses[&200], 3);
    assert!(report.latency.total.max_ms >= report.latency.ttft.p50_ms);
}

#[tokio::test]
async fn whole_replies_are_read_when_no_stream_is_asked_for() {
    let server = Server::replying("application/json", 200, |_, reply: Sender| async move {
        let body = r#"{"choices":[{"message":{"content":"whole"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        reply.send(body).await;
    })
    .await;
    let mut options = one_conversation(&server.url, 2);
    options.stream = false;
    let report = run(options).await;
    assert_eq!(report.requests.complete, 2, "{report:?}");
    assert_eq!((report.tokens.all.reused, report.tokens.all.recomputed), (8, 10));
    let second = &server.seen()[1].body;
    assert_eq!(second["messages"][2]["content"], "whole");
    assert_eq!(second["stream"], false);
}

#[tokio::test]
async fn claude_code_sessions_look_like_claude_code() {
    let server = Server::start(answer_messages).await;
    let mut options = one_conversation(&server.url, 2);
    options.dialect = Dialect::Anthropic;
    options.shape = Shape::ClaudeCode;
    options.sizes = Sizes::of(Shape::ClaudeCode);
    options.api_key = Some("key".to_owned());
    let report = run(options).await;
    assert_eq!(report.requests.complete, 2, "{report:?}");
    assert_eq!((report.tokens.all.reused, report.tokens.all.recomputed), (190, 10));
    let seen = server.seen();
    assert_eq!(seen[0].path, "/v1/messages?beta=true");
    assert_eq!(seen[0].headers["x-api-key"], "key");
    let session = |turn: usize| seen[turn].headers["x-claude-code-session-id"].clone();
    assert_eq!(session(0), session(1));
    assert_ne!(seen[0].body["system"][0], seen[1].body["system"][0], "the billing line changes");
    assert_eq!(seen[0].body["tools"], seen[1].body["tools"]);
    assert_eq!(seen[1].body["messages"][1]["content"], "one two");
}

#[tokio::test]
async fn codex_sessions_look_like_codex() {
    let server = Server::start(answer_responses).await;
    let mut options = one_conversation(&server.url, 2);
    options.dialect = Dialect::Responses;
    options.shape = Shape::Codex;
    options.sizes = Sizes::of(Shape::Codex);
    options.headers = vec![("user-agent".to_owned(), "mine".to_owned())];
    let report = run(options).await;
    assert_eq!(report.requests.complete, 2, "{report:?}");
    assert_eq!(report.tokens.followup.reused, 95);
    let seen = server.seen();
    assert_eq!(seen[0].headers["session-id"], seen[1].headers["thread-id"]);
    assert_eq!(seen[0].headers["user-agent"], "mine", "a given header wins");
    let key = seen[1].body["prompt_cache_key"].as_str().expect("a key");
    assert_eq!(seen[1].headers["session-id"], key);
}

#[tokio::test]
async fn the_same_seed_sends_the_same_prompts() {
    let mut bodies = Vec::new();
    for seed in [7, 7, 8] {
        let server = Server::start(answer_chat).await;
        let mut options = one_conversation(&server.url, 2);
        options.seed = seed;
        run(options).await;
        bodies.push(server.seen().iter().map(|seen| seen.body.clone()).collect::<Vec<_>>());
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_ne!(bodies[0], bodies[2]);
}
