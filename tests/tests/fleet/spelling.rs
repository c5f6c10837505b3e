//! One conversation, spelled as its client spells it: differently every time. Each turn is sent by another caller, so
//! that nothing but the prompt's own prefix can bring it home.

use std::io::Write;

use fastrand::Rng;
use loadgen::engine::{Persona, SimEngine};
use serde_json::{Map, Value, json};
use tests::harness::{Client, Fleet, settled};

use crate::said::prose;

const CONVERSATIONS: u64 = 5;
const TURNS: u64 = 4;

/// How a body is put together for one turn of one conversation.
type Spell = fn(Ask) -> String;

/// Which turn of which conversation. `dice` is new for every request.
#[derive(Debug)]
struct Ask {
    conversation: u64,
    turn: u64,
    dice: Rng,
}

/// Sends five conversations turn by turn. Before each turn the proxy must expect its home to hold all of the turn
/// before; then that is where it must go.
async fn comes_home(persona: Persona, path: &str, spell: Spell) {
    let fleet = Fleet::of(4, persona, "").await;
    let seed = fastrand::u64(..);
    let mut client = Client::connect(fleet.proxy.listen).await;
    let mut homes: Vec<(String, u64)> = Vec::new();
    for turn in 0..TURNS {
        for conversation in 0..CONVERSATIONS {
            let dice = Rng::with_seed(seed ^ (turn << 8 | conversation));
            let body = spell(Ask { conversation, turn, dice });
            let caller = format!("Authorization: Bearer {turn}-{conversation}\r\n");
            let known = homes.get(conversation as usize).map_or(0, |home| home.1);
            let told = async || fleet.proxy.dry_run(path, &caller, body.as_bytes()).await;
            let expected = learned(told, known).await.unwrap_or_else(|told| {
                panic!("turn {turn} of {conversation} (seed {seed}): {known} of {told}")
            });
            client.post_with(path, &caller, body.as_bytes()).await;
            let reply = client.reply().await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let (backend, blocks) = (reply.backend().to_owned(), expected["blocks"].as_u64());
            let blocks = blocks.expect("a count");
            assert!(blocks > known + 3, "turn {turn} adds nothing: {expected}");
            if turn == 0 {
                homes.push((backend, blocks));
            } else {
                let home = &mut homes[conversation as usize];
                assert_eq!(
                    backend, home.0,
                    "turn {turn} of {conversation}, seed {seed}: {expected}"
                );
                home.1 = blocks;
            }
        }
    }
    let states: Vec<_> = fleet.alive().map(SimEngine::state).collect();
    let (cached, prompt): (u64, u64) = states
        .iter()
        .map(|state| (state.cached_tokens, state.prompt_tokens))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // Each turn adds to the one before, so most of what is sent was sent before.
    assert!(cached * 2 > prompt, "the engines found {cached} of {prompt} tokens cached");
    let first = &homes[0].0;
    assert!(homes.iter().any(|home| home.0 != *first), "all on {first} prove nothing");
}

/// The dry run, as soon as some backend is known to hold so many blocks of the prompt; the last one, if none ever is.
async fn learned(mut told: impl AsyncFnMut() -> Value, known: u64) -> Result<Value, Value> {
    for pause_ms in 1..100 {
        let told = told().await;
        if told["decision"]["deepest_blocks"].as_u64() >= Some(known) {
            return Ok(told);
        }
        tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
    }
    Err(told().await)
}

/// A request as Claude Code sends it: accounting, identity and instructions as system blocks, tools, and messages with
/// calls and results. Marks sit on the newest block and so move with every turn.
fn claude(ask: &mut Ask) -> Value {
    let Ask { conversation, turn, dice } = ask;
    let mark = json!({ "type": "ephemeral" });
    let account = format!(
        "x-anthropic-billing-header: cc_version=2.1.283.{:03x}; cc_entrypoint=cli; cch={:05x};",
        *conversation,
        dice.u32(..1 << 20)
    );
    let project = format!("{} path /projects/{conversation} {}", prose(1, 700), prose(2, 3_000));
    let mut messages = vec![user(&prose(10 + *conversation, 3_000))];
    for past in 0..*turn {
        let id = format!("toolu_{conversation}_{past}");
        messages.push(json!({ "role": "assistant", "content": [
            { "type": "text", "text": prose(past, 300) },
            { "type": "tool_use", "id": id, "name": "Read", "input": { "path": "a.rs", "limit": past } }] }));
        messages.push(json!({ "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": id, "content": prose(50 + past, 900) }] }));
    }
    let last = messages.last_mut().expect("the first one");
    last["content"][0]["cache_control"] = mark.clone();
    json!({
        "model": "sim", "max_tokens": 32_000, "stream": false,
        "system": [
            { "type": "text", "text": account },
            { "type": "text", "text": "You are a careful engineer.", "cache_control": mark },
            { "type": "text", "text": project, "cache_control": mark }],
        "tools": tools(*conversation),
        "messages": messages,
        "thinking": { "type": "adaptive" },
    })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }] })
}

/// Three tools that no other conversation has: what all share would draw them all to one engine.
fn tools(conversation: u64) -> Value {
    let tool = |name: &str| {
        json!({ "name": name, "description": prose(conversation, 400), "input_schema": {
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": {
                "path": { "type": "string", "description": "where" },
                "limit": { "type": "integer", "minimum": 0, "maximum": 2_000 },
                "share": { "type": "number", "default": 0.7 } } } })
    };
    json!([tool("Read"), tool("Edit"), tool("Bash")])
}

#[tokio::test]
async fn marks_that_move_and_accounts_that_change_are_no_part_of_a_prompt() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| claude(&mut ask).to_string()).await;
}

#[tokio::test]
async fn an_engine_that_blanks_part_of_the_account_is_no_different() {
    comes_home(Persona::LlamaCpp, "/v1/messages", |mut ask| claude(&mut ask).to_string()).await;
}

#[tokio::test]
async fn marks_with_a_lifetime_are_marks() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let body = claude(&mut ask).to_string();
        let longer = "{\"type\":\"ephemeral\",\"ttl\":\"1h\"}";
        let marked = body.replace("{\"type\":\"ephemeral\"}", longer);
        if ask.turn.is_multiple_of(2) { body } else { marked }
    })
    .await;
}

#[tokio::test]
async fn a_text_and_the_same_text_as_one_part_are_equal() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let mut body = claude(&mut ask);
        if ask.turn % 2 == 1 {
            for message in body["messages"].as_array_mut().expect("a list") {
                let content = &mut message["content"];
                let only = content.as_array().is_some_and(|parts| parts.len() == 1);
                if only && content[0]["type"] == "text" {
                    *content = content[0]["text"].take();
                }
            }
        }
        body.to_string()
    })
    .await;
}

#[tokio::test]
async fn a_system_text_and_the_same_as_one_block_are_equal() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let mut body = claude(&mut ask);
        let whole = body["system"][2]["text"].take();
        body["system"] = match ask.turn % 2 {
            0 => whole,
            _ => {
                json!([{ "type": "text", "text": whole, "cache_control": { "type": "ephemeral" } }])
            }
        };
        body.to_string()
    })
    .await;
}

#[tokio::test]
async fn system_messages_in_the_middle_stay_where_they_are() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let mut body = claude(&mut ask);
        let messages = body["messages"].as_array_mut().expect("a list");
        let note =
            |at: usize| json!({ "role": "system", "content": format!("{at} tokens are left") });
        // One after every user turn so far, appended when that turn was new.
        let noted = messages.drain(..).enumerate().flat_map(|(at, message)| {
            let note = (message["role"] == "user").then(|| note(at));
            [Some(message), note].into_iter().flatten()
        });
        let noted: Vec<Value> = noted.collect();
        body["messages"] = noted.into();
        body.to_string()
    })
    .await;
}

#[tokio::test]
async fn the_order_of_keys_is_no_part_of_a_prompt() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let body = claude(&mut ask);
        shuffled(&body, &mut ask.dice).to_string()
    })
    .await;
}

#[tokio::test]
async fn how_json_is_written_is_no_part_of_a_prompt() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let body = claude(&mut ask);
        let mut text = String::new();
        write_oddly(&shuffled(&body, &mut ask.dice), &mut ask.dice, &mut text);
        text
    })
    .await;
}

#[tokio::test]
async fn chats_are_written_oddly_too() {
    comes_home(Persona::Sglang, "/v1/chat/completions", |mut ask| {
        let body = open_ai(&mut ask);
        let mut text = String::new();
        write_oddly(&shuffled(&body, &mut ask.dice), &mut ask.dice, &mut text);
        text
    })
    .await;
}

/// A chat as OpenAI's SDKs send it, with calls whose arguments are JSON in a string.
fn open_ai(ask: &mut Ask) -> Value {
    let Ask { conversation, turn, .. } = ask;
    let mut messages = vec![
        json!({ "role": "system", "content": prose(300 + *conversation, 3_000) }),
        json!({ "role": "user", "content": prose(20 + *conversation, 3_000) }),
    ];
    for past in 0..*turn {
        let id = format!("call_{conversation}_{past}");
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": id,
            "type": "function", "function": { "name": "Read", "arguments": "{\"path\":\"a.rs\"}" } }] }));
        messages
            .push(json!({ "role": "tool", "tool_call_id": id, "content": prose(70 + past, 900) }));
    }
    let tool = |tool: &Value| {
        json!({ "type": "function", "function": { "name": tool["name"],
            "description": tool["description"], "parameters": tool["input_schema"] } })
    };
    let tools: Vec<Value> =
        tools(*conversation).as_array().expect("a list").iter().map(tool).collect();
    json!({ "messages": messages, "model": "sim", "tools": tools, "temperature": 0.7 })
}

/// A request as Codex sends it, without its session.
fn codex(ask: &mut Ask) -> Value {
    let Ask { conversation, turn, .. } = ask;
    let mut input = vec![json!({ "type": "message", "role": "user", "content": [
        { "type": "input_text", "text": format!("cwd /p/{conversation} {}", prose(30 + *conversation, 3_000)) }] })];
    for past in 0..*turn {
        input
            .push(json!({ "type": "function_call", "call_id": format!("c{past}"), "name": "shell",
            "arguments": "{\"command\":[\"ls\"]}" }));
        input.push(json!({ "type": "function_call_output", "call_id": format!("c{past}"),
            "output": prose(90 + past, 900) }));
    }
    json!({ "model": "sim", "instructions": prose(40 + *conversation, 5_000), "input": input, "store": false,
        "tools": [{ "type": "function", "name": "shell", "parameters": { "type": "object" } }] })
}

#[tokio::test]
async fn responses_come_home_by_their_prefix() {
    comes_home(Persona::Vllm, "/v1/responses", |mut ask| codex(&mut ask).to_string()).await;
}

#[tokio::test]
async fn a_list_of_tools_may_be_written_in_any_order_of_keys_in_a_response_too() {
    comes_home(Persona::LlamaCpp, "/v1/responses", |mut ask| {
        let body = codex(&mut ask);
        shuffled(&body, &mut ask.dice).to_string()
    })
    .await;
}

/// An image that only one conversation shows.
fn image(conversation: u64) -> String {
    // Base64's letters; what they stand for is nobody's business here.
    prose(500 + conversation, 40_000).replace([' ', '\n'], "A")
}

#[tokio::test]
async fn images_are_part_of_a_prompt_wherever_they_stand() {
    comes_home(Persona::Vllm, "/v1/messages", |mut ask| {
        let mut body = claude(&mut ask);
        let data = image(ask.conversation);
        // The same words for all: only the image tells the conversations apart.
        body["system"] = json!(prose(5, 100));
        body["tools"] = json!([]);
        body["messages"][0]["content"] = json!([
            { "type": "text", "text": "what is this?" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } },
            { "type": "text", "text": prose(6, 2_000) }]);
        body.to_string()
    })
    .await;
    comes_home(Persona::Vllm, "/v1/chat/completions", |mut ask| {
        let mut body = open_ai(&mut ask);
        let url = format!("data:image/png;base64,{}", image(ask.conversation));
        body["messages"][0]["content"] = json!(prose(5, 100));
        body["tools"] = json!([]);
        body["messages"][1]["content"] = json!([
            { "type": "text", "text": "what is this?" },
            { "type": "image_url", "image_url": { "url": url } },
            { "type": "text", "text": prose(6, 2_000) }]);
        body.to_string()
    })
    .await;
}

#[tokio::test]
async fn prompts_that_differ_only_in_an_image_share_nothing_behind_it() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let body = |picture: u64| {
        json!({ "model": "sim", "messages": [{ "role": "user", "content": [
            { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{}", image(picture)) } },
            { "type": "text", "text": prose(6, 4_000) }] }] })
    };
    let path = "/v1/chat/completions";
    assert_eq!(fleet.proxy.client().await.ask(path, &body(1)).await.status, 200);
    let held = async |picture: u64| {
        let told = fleet.proxy.dry_run(path, "", body(picture).to_string().as_bytes()).await;
        told["decision"]["overlap_blocks"].as_u64()
    };
    settled("the first is learned", async || held(1).await.filter(|blocks| *blocks > 20)).await;
    assert_eq!(held(2).await, Some(0));
}

#[tokio::test]
async fn a_compressed_prompt_is_the_same_prompt() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let path = "/v1/chat/completions";
    let body = open_ai(&mut Ask { conversation: 1, turn: 2, dice: Rng::with_seed(1) });
    let reply = fleet.proxy.client().await.ask(path, &body).await;
    // All that it teaches is known by then, so that the answers below can only differ by the prompt.
    fleet.proxy.explained(&reply).await;
    fleet.proxy.idle().await;
    let plain = body.to_string().into_bytes();
    let told = async || fleet.proxy.dry_run(path, "", &plain).await;
    let blocks = told().await["blocks"].as_u64().expect("a count");
    let expected = learned(told, blocks).await.unwrap_or_else(|told| panic!("{told}"));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).expect("into memory");
    let gzip = gzip.finish().expect("into memory");
    let zstd = zstd::bulk::compress(&plain, 3).expect("into memory");
    for (name, bytes) in [("gzip", gzip), ("zstd", zstd)] {
        let line = format!("Content-Encoding: {name}\r\n");
        let told = fleet.proxy.dry_run(path, &line, &bytes).await;
        assert_eq!(prompt_of(&told), prompt_of(&expected), "{name}");
    }
}

/// What a dry run says of the prompt itself. Its tokens are an estimate that replies go on improving.
fn prompt_of(told: &Value) -> [&Value; 5] {
    let decision = &told["decision"];
    let held = &decision["overlap_blocks"];
    [&told["model"], &told["canonical_bytes"], &told["blocks"], &told["conversation"], held]
}

/// The same value with the members of every object in another order.
fn shuffled(value: &Value, dice: &mut Rng) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| shuffled(item, dice)).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            dice.shuffle(&mut members);
            let again = |(name, member): (&String, &Value)| (name.clone(), shuffled(member, dice));
            Value::Object(members.into_iter().map(again).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Writes JSON that means the same: blanks anywhere, letters as escapes, numbers in other forms.
fn write_oddly(value: &Value, dice: &mut Rng, out: &mut String) {
    let blank = |dice: &mut Rng, out: &mut String| {
        out.push_str(["", "", "", " ", "\n", "\t", "\r\n  "][dice.usize(..7)]);
    };
    blank(dice, out);
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_oddly(item, dice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, member)) in members.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                blank(dice, out);
                write_text_oddly(name, dice, out);
                blank(dice, out);
                out.push(':');
                write_oddly(member, dice, out);
            }
            out.push('}');
        }
        Value::String(text) => write_text_oddly(text, dice, out),
        Value::Number(number) if number.as_f64() == Some(0.7) => {
            out.push_str(["0.7", "0.70", "7e-1", "7.0E-1", "0.07e+1"][dice.usize(..5)]);
        }
        other => out.push_str(&other.to_string()),
    }
    blank(dice, out);
}

fn write_text_oddly(text: &str, dice: &mut Rng, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        let escape = dice.u32(0..20) == 0;
        match letter {
            '\n' if escape => out.push_str("\\n"),
            '/' if escape => out.push_str("\\/"),
            '"' | '\\' => out.extend(['\\', letter]),
            _ if escape || u32::from(letter) < 0x20 => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    let upper = dice.bool();
                    let hex =
                        if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                    out.push_str(&hex);
                }
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}
