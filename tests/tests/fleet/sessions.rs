//! A conversation's own name brings it home where nothing else can: each turn's prompt is a new one, so that no prefix
//! is known anywhere.

use loadgen::engine::Persona;
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, Reply, eventually};

use crate::said::{chat, prose};

const CONVERSATIONS: u64 = 6;
const TURNS: u64 = 5;
const CHAT: &str = "/v1/chat/completions";

/// Header lines and body of one turn.
type Spell = fn(conversation: u64, turn: u64) -> (String, Vec<u8>);

/// A prompt that was never sent before.
fn unheard(conversation: u64, turn: u64) -> Value {
    chat(&prose(conversation << 8 | turn, 1_500))
}

fn plain(conversation: u64, turn: u64) -> Vec<u8> {
    unheard(conversation, turn).to_string().into_bytes()
}

/// Each conversation's turns all go where its first one went, because it lives there.
async fn comes_home_by_name(settings: &str, path: &str, spell: Spell) {
    let fleet = Fleet::of(4, Persona::Vllm, settings).await;
    let mut client = fleet.proxy.client().await;
    let mut homes: Vec<String> = Vec::new();
    for turn in 0..TURNS {
        for conversation in 0..CONVERSATIONS {
            let reply = send(&mut client, path, spell(conversation, turn)).await;
            let backend = reply.backend().to_owned();
            if turn == 0 {
                homes.push(backend);
                continue;
            }
            assert_eq!(backend, homes[conversation as usize], "turn {turn} of {conversation}");
            let explained = fleet.proxy.explained(&reply).await;
            let decision = &explained["decision"];
            assert_eq!(
                (&decision["reason"], &decision["overlap_blocks"]),
                (&json!("conversation"), &json!(0))
            );
            // The request before may still hold its place for a moment, which would count against its home.
            fleet.proxy.idle().await;
        }
    }
    assert!(homes.iter().any(|home| *home != homes[0]), "all on {} prove nothing", homes[0]);
}

async fn send(client: &mut Client, path: &str, (headers, body): (String, Vec<u8>)) -> Reply {
    client.post_with(path, &headers, &body).await;
    client.reply().await
}

#[tokio::test]
async fn claude_code_is_known_by_its_session() {
    comes_home_by_name("", CHAT, |conversation, turn| {
        (
            format!("X-Claude-Code-Session-Id: 00000000-{conversation}\r\n"),
            plain(conversation, turn),
        )
    })
    .await;
}

#[tokio::test]
async fn subagents_of_one_session_live_where_each_of_them_lives() {
    comes_home_by_name("", CHAT, |agent, turn| {
        let agent_line = match agent {
            0 => String::new(),
            _ => format!(
                "X-Claude-Code-Agent-Id: agent-{agent}\r\nX-Claude-Code-Parent-Agent-Id: p\r\n"
            ),
        };
        (format!("X-Claude-Code-Session-Id: the-same-for-all\r\n{agent_line}"), plain(agent, turn))
    })
    .await;
}

#[tokio::test]
async fn codex_is_known_by_its_headers_new_and_old() {
    comes_home_by_name("", CHAT, |conversation, turn| {
        let id = format!("thread-{conversation}");
        let fresh = format!("x-client-request-id: {conversation}-{turn}\r\n");
        let name =
            ["session-id", "thread-id", "session_id", "conversation_id"][conversation as usize % 4];
        (format!("{name}: {id}\r\n{fresh}"), plain(conversation, turn))
    })
    .await;
}

#[tokio::test]
async fn codex_is_known_by_its_cache_key_where_headers_are_stripped() {
    comes_home_by_name("", "/v1/responses", |conversation, turn| {
        let body = json!({ "model": "sim", "instructions": prose(turn << 8 | conversation, 800),
            "input": "go on", "prompt_cache_key": format!("thread-{conversation}") });
        (String::new(), body.to_string().into_bytes())
    })
    .await;
}

#[tokio::test]
async fn opencode_and_gateways_are_known_by_their_headers() {
    comes_home_by_name("", CHAT, |conversation, turn| {
        let name =
            ["X-Session-Id", "x-session-affinity", "x-opencode-session"][conversation as usize % 3];
        (format!("{name}: ses_{conversation}\r\n"), plain(conversation, turn))
    })
    .await;
}

#[tokio::test]
async fn a_user_id_holds_a_session_in_both_its_forms() {
    comes_home_by_name("", "/v1/messages", |conversation, turn| {
        let session = format!("1111-{conversation}");
        // The client was updated in the middle of the conversation: it is the same one.
        let user = match turn % 2 {
            0 => {
                json!({ "device_id": "d", "account_uuid": "a", "session_id": session }).to_string()
            }
            _ => format!("user_x_account_y_session_{session}"),
        };
        let mut body = unheard(conversation, turn);
        body["max_tokens"] = json!(9);
        body["metadata"] = json!({ "user_id": user });
        (String::new(), body.to_string().into_bytes())
    })
    .await;
}

#[tokio::test]
async fn the_header_an_operator_names_comes_first() {
    comes_home_by_name("[routing]\nsession_header = \"X-Chat\"\n", CHAT, |conversation, turn| {
        // The other one would lead elsewhere every time.
        let lines = format!("X-Session-Id: {turn}-{conversation}\r\nX-Chat: {conversation}\r\n");
        (lines, plain(conversation, turn))
    })
    .await;
}

#[tokio::test]
async fn a_body_nobody_here_can_read_goes_home_by_its_name() {
    comes_home_by_name("", CHAT, |conversation, turn| {
        let lines = format!("Content-Encoding: br\r\nsession-id: {conversation}\r\n");
        // The engine cannot read it either, and says so; where it was sent is what counts.
        (lines, prose(turn << 8 | conversation, 2_000).into_bytes())
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_loses_the_prefix_every_turn_is_still_home() {
    // It keeps the accounting line in its prompt, so that nothing behind it is ever found again, and it says so: the
    // evidence is corrected each time, and the name is what is left.
    let fleet = Fleet::of(4, Persona::Sglang, "").await;
    let mut client = fleet.proxy.client().await;
    for conversation in 0..3 {
        let mut homes = Vec::new();
        for turn in 0..4 {
            let account = format!("x-anthropic-billing-header: cc_version=2.1.36; cch={turn:05x};");
            let body = json!({ "model": "sim", "max_tokens": 9,
                "system": [{ "type": "text", "text": account }, { "type": "text", "text": prose(conversation, 6_000) }],
                "messages": [{ "role": "user", "content": prose(turn, 300) }] });
            let headers = format!("X-Claude-Code-Session-Id: s{conversation}\r\n");
            let spelled = (headers, body.to_string().into_bytes());
            let reply = send(&mut client, "/v1/messages", spelled).await;
            // What stands before the account is a page at most.
            assert!(reply.json()["usage"]["cache_read_input_tokens"].as_u64() <= Some(16));
            homes.push(reply.backend().to_owned());
            fleet.proxy.explained(&reply).await;
        }
        assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
    }
}

/// The conversation a request is taken to belong to.
async fn conversation(fleet: &Fleet, headers: &str, body: &Value) -> String {
    let told = fleet.proxy.dry_run(CHAT, headers, body.to_string().as_bytes()).await;
    told["conversation"].as_str().expect("a hash").to_owned()
}

#[tokio::test]
async fn callers_cannot_steer_each_other() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let body = chat("hello");
    let session = "X-Claude-Code-Session-Id: the-same\r\n";
    let of = async |key: &str| conversation(&fleet, &format!("{session}{key}\r\n"), &body).await;
    let mine = of("Authorization: Bearer mine").await;
    assert_eq!(of("Authorization: Bearer mine").await, mine);
    assert_ne!(of("Authorization: Bearer yours").await, mine);
    assert_ne!(of("x-api-key: mine").await, of("x-api-key: yours").await);
    assert_ne!(conversation(&fleet, session, &body).await, mine, "nobody in particular");
}

#[tokio::test]
async fn what_is_new_with_every_request_names_no_conversation() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let (first, other) = (chat("hello"), chat("good evening"));
    let plain = conversation(&fleet, "", &first).await;
    for name in ["x-request-id", "x-client-request-id", "traceparent", "x-trace-id", "user"] {
        let named =
            conversation(&fleet, &format!("{name}: {}\r\n", fastrand::u64(..)), &first).await;
        assert_eq!(named, plain, "{name}");
    }
    let mut of_everybody = first.clone();
    of_everybody["user"] = json!("the whole organisation");
    assert_eq!(conversation(&fleet, "", &of_everybody).await, plain);
    assert_ne!(conversation(&fleet, "", &other).await, plain);
    // Too long to be a name.
    let long = format!("session-id: {}\r\n", "x".repeat(256));
    assert_eq!(conversation(&fleet, &long, &first).await, plain);
}

#[tokio::test]
async fn a_conversation_whose_home_is_gone_finds_a_new_one_and_stays() {
    let mut fleet = Fleet::of(3, Persona::Vllm, "").await;
    let mut client = fleet.proxy.client().await;
    let named = |turn| ("session-id: s\r\n".to_owned(), plain(1, turn));
    let home = send(&mut client, CHAT, named(0)).await.backend().to_owned();
    let number = tests::harness::fleet::number_of(&home);
    fleet.kill(&home).await;
    eventually("its death is noticed", || !fleet.proxy.admits(number)).await;
    let new_home = send(&mut client, CHAT, named(1)).await.backend().to_owned();
    assert_ne!(new_home, home);
    for turn in 2..6 {
        assert_eq!(send(&mut client, CHAT, named(turn)).await.backend(), new_home);
    }
}
