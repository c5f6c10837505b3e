//! Prompts as text, tokens and blocks, and the replies that follow from them.

use loadgen::engine::text::chain::{chain, token_count};
use loadgen::engine::text::{Billing, Style, render};
use loadgen::engine::{Api, expected_text, text_hash};
use serde_json::{Value, json};

fn text(api: Api, body: &Value) -> String {
    render(api, body, Style::default()).unwrap().text
}

fn hash(api: Api, body: &Value, billing: Billing) -> u64 {
    render(api, body, Style { billing, ..Style::default() }).unwrap().hash()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_spelling_of_json_does_not_change_the_prompt() {
    let one = parsed(r#"{"messages":[{"role":"user","content":"caf\u00e9"}],"temperature":0.70}"#);
    let two = parsed(
        r#"{ "temperature": 0.7, "messages": [ {"content": [{"type":"text","text":"café"}], "role": "user"} ] }"#,
    );
    assert_eq!(text(Api::Chat, &one), text(Api::Chat, &two));
}

#[test]
fn tools_come_first_then_system_then_turns_in_place() {
    let body = json!({
        "messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "note"}],
        "system": "be brief",
        "tools": [{"name": "Read", "description": "reads", "input_schema": {"b": 1, "a": 2}}]
    });
    assert_eq!(
        text(Api::Messages, &body),
        "<tool>{\"name\":\"Read\",\"description\":\"reads\",\"parameters\":{\"a\":2,\"b\":1}}</tool>\n\
         <|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
         <|im_start|>system\nnote<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn the_same_conversation_is_the_same_prompt_in_every_dialect() {
    let chat = json!({"messages": [
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "list"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "x1", "type": "function", "function": {"name": "ls", "arguments": "{\"path\": \".\"}"}}]},
        {"role": "tool", "tool_call_id": "x1", "content": "a.rs"}],
        "tools": [{"type": "function", "function": {"name": "ls", "description": "", "parameters": {"type": "object"}}}]});
    let messages = json!({"system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "list"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.rs"}]}],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}]});
    let responses = json!({"instructions": "be brief", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"path\":\".\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.rs"}],
        "tools": [{"type": "function", "name": "ls", "parameters": {"type": "object"}}]});
    let prompt = text(Api::Chat, &chat);
    assert_eq!(text(Api::Messages, &messages), prompt);
    assert_eq!(text(Api::Responses, &responses), prompt);
}

#[test]
fn a_moved_cache_control_does_not_change_the_prompt() {
    let marked = |first: Value, second: Value| json!({"messages": [{"role": "user", "content": [first]}, {"role": "user", "content": [second]}]});
    let plain = |text: &str| json!({"type": "text", "text": text});
    let with =
        |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let one = text(Api::Messages, &marked(with("a"), plain("b")));
    assert_eq!(one, text(Api::Messages, &marked(plain("a"), with("b"))));
}

#[test]
fn each_engine_treats_the_billing_line_its_own_way_and_still_replies_the_same() {
    let body = |cch: &str| {
        json!({"system": [
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=2.1; cch={cch};")},
            {"type": "text", "text": "identity"}], "messages": [{"role": "user", "content": "hi"}]})
    };
    let shown = |cch: &str, billing: Billing| {
        render(Api::Messages, &body(cch), Style { billing, ..Style::default() }).unwrap().text
    };
    assert_ne!(shown("0a1b2", Billing::Keep), shown("fffe0", Billing::Keep));
    assert_eq!(shown("0a1b2", Billing::Blank), shown("fffe0", Billing::Blank));
    assert!(shown("0a1b2", Billing::Blank).contains("cc_version=2.1; cch=fffff;\nidentity"));
    assert!(shown("0a1b2", Billing::Drop).starts_with("<|im_start|>system\nidentity<|im_end|>"));
    let hashes = [Billing::Keep, Billing::Blank, Billing::Drop]
        .map(|billing| hash(Api::Messages, &body("0a1b2"), billing));
    assert_eq!(hashes, [hashes[0]; 3]);
    let elsewhere = json!({"system": "identity", "messages": [{"role": "user", "content": "bye"}]});
    assert_ne!(hash(Api::Messages, &elsewhere, Billing::Drop), hashes[0]);
}

#[test]
fn later_system_messages_are_merged_only_where_asked() {
    let body = json!({"system": "be brief", "messages": [
        {"role": "user", "content": "hi"}, {"role": "system", "content": "note"}]});
    let style = Style { merge_later_system: true, ..Style::default() };
    assert_eq!(
        render(Api::Messages, &body, style).unwrap().text,
        "<|im_start|>system\nbe brief\nnote<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn unknown_parts_separate_prompts_and_media_are_told_by_a_hash() {
    let with =
        |part: Value| text(Api::Chat, &json!({"messages": [{"role": "user", "content": [part]}]}));
    let image = |data: &str| json!({"type": "image_url", "image_url": {"url": data.repeat(100)}});
    assert_ne!(with(image("abcdef")), with(image("abcdeg")));
    assert!(with(image("abcdef")).len() < 200);
    assert_ne!(with(json!({"type": "new", "x": 1})), with(json!({"type": "new", "x": 2})));
}

#[test]
fn a_missing_or_odd_member_is_named() {
    let style = Style::default();
    assert_eq!(render(Api::Chat, &json!({}), style), Err("messages"));
    assert_eq!(
        render(Api::Messages, &json!({"messages": [{"content": "x"}]}), style),
        Err("messages.role")
    );
    assert_eq!(render(Api::Completions, &json!({"prompt": {}}), style), Err("prompt"));
    assert_eq!(render(Api::Responses, &json!({"input": 3}), style), Err("input"));
}

#[test]
fn the_reply_continues_the_prompt_of_the_next_turn_block_by_block() {
    let first = json!({"messages": [{"role": "user", "content": "tell me about the sea, at length, please"}]});
    let rendered = render(Api::Chat, &first, Style::default()).unwrap();
    let reply = expected_text(rendered.hash(), 100);
    let next = json!({"messages": [{"role": "user", "content": "tell me about the sea, at length, please"},
        {"role": "assistant", "content": reply}, {"role": "user", "content": "more"}]});
    let next = text(Api::Chat, &next);
    assert!(next.starts_with(&format!("{}{reply}", rendered.text)));
    for block_tokens in [1, 8, 16, 32] {
        let before = chain(7, &rendered.text, &reply, block_tokens, false);
        let held: Vec<u64> = before.prompt.iter().chain(&before.reply).copied().collect();
        let after = chain(7, &next, "", block_tokens, false).prompt;
        let whole = (rendered.text.len() + reply.len()) / (4 * block_tokens as usize);
        assert_eq!(held.len(), whole);
        assert_eq!(held[..], after[..whole], "blocks of {block_tokens} tokens");
    }
}

#[test]
fn blocks_differ_from_the_first_difference_on() {
    let long = "a".repeat(400);
    let changed = format!("{}b{}", "a".repeat(200), "a".repeat(199));
    let one = chain(1, &long, "", 16, false).prompt;
    let two = chain(1, &changed, "", 16, false).prompt;
    let shared = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
    assert_eq!((one.len(), shared), (6, 3), "200 bytes are three blocks of 64");
    assert_ne!(one[5], two[5]);
    assert_ne!(chain(2, &long, "", 16, false).prompt[0], one[0], "the root separates models");
}

#[test]
fn a_tail_has_a_block_of_its_own_that_no_longer_prompt_shares() {
    let one = chain(1, &"a".repeat(70), "", 16, true).prompt;
    let two = chain(1, &"a".repeat(71), "", 16, true).prompt;
    assert_eq!((one.len(), one[0] == two[0], one[1] == two[1]), (2, true, false));
    assert_eq!(chain(1, &"a".repeat(64), "", 16, true).prompt.len(), 1);
}

#[test]
fn four_bytes_are_a_token() {
    assert_eq!([0, 1, 4, 5].map(token_count), [0, 1, 1, 2]);
    for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let text = expected_text(hash, 500);
        assert_eq!(text.len(), 2_000);
        assert_eq!(token_count(text.len()), 500);
    }
}

#[test]
fn a_reply_tells_its_prompt_and_any_change_in_it_is_seen() {
    let text = expected_text(0x0123_4567_89ab_cdef, 300);
    assert!(text.starts_with("0123456789abcdef"));
    assert_eq!(text_hash(&text), Some(0x0123_4567_89ab_cdef));
    assert_eq!(
        text_hash(&text[..1_000]),
        Some(0x0123_4567_89ab_cdef),
        "a shorter reply is its prefix"
    );
    assert_eq!(text_hash(&text[4..]), None, "its start is missing");
    assert_eq!(text_hash(&text[..999]), None, "half a token");
    let mut swapped = text[..996].to_owned();
    swapped.push_str(&text[1_000..]);
    assert_eq!(text_hash(&swapped), None, "a token is missing in the middle");
    assert_eq!(text_hash(""), None);
}

#[test]
fn replies_hold_what_json_must_escape_and_more_than_ascii() {
    let text = expected_text(42, 2_000);
    for one in ["\n\n", "\"", "\\", "\t", "é", "🐦"] {
        assert!(text.contains(one), "{one:?}");
    }
}
