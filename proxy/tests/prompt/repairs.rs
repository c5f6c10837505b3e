//! Bodies mended: what is changed, and that nothing else is.

use bytes::Bytes;
use fastrand::Rng;
use proxy::api::Api;
use proxy::edits::Edits;
use proxy::prompt::{Repairs, Scratch, Wanted, read_and_mend};
use serde_json::{Value, json};

use crate::support::{Kept, canonical};

const CAP: u64 = 100;
const ALL: Wanted = Wanted {
    drop_billing_block: true,
    include_usage: true,
    max_tokens_cap: Some(CAP),
    id_slot: true,
};

fn found(api: Api, body: &str, wanted: &Wanted) -> Repairs {
    let mut scratch = Scratch::default();
    let read = read_and_mend(&mut scratch, api, body.as_bytes(), &mut Kept::default(), wanted);
    read.unwrap_or_else(|error| panic!("{error} in {body}")).1
}

fn applied(body: &str, edits: &Edits) -> String {
    let pieces: Vec<u8> =
        edits.pieces(&Bytes::copy_from_slice(body.as_bytes())).flatten().collect();
    assert_eq!(pieces.len(), edits.len_of(body.len()));
    String::from_utf8(pieces).expect("text stays text")
}

/// Everything that is found, with this slot named.
fn mended(api: Api, body: &str, wanted: &Wanted, slot: Option<u32>) -> String {
    let repairs = found(api, body, wanted);
    let mut edits = Edits::default();
    edits.add_all(&repairs.always);
    edits.add_all(&repairs.usage);
    edits.add_all(&repairs.id_slot.edits(slot));
    applied(body, &edits)
}

fn capped(api: Api, body: &str) -> String {
    mended(api, body, &Wanted { max_tokens_cap: Some(CAP), ..Wanted::default() }, None)
}

fn with_usage(body: &str) -> String {
    let wanted = Wanted { include_usage: true, ..Wanted::default() };
    mended(Api::ChatCompletions, body, &wanted, None)
}

fn unbilled(body: &str) -> String {
    let wanted = Wanted { drop_billing_block: true, ..Wanted::default() };
    mended(Api::Messages, body, &wanted, None)
}

#[test]
fn nothing_wanted_is_nothing_found() {
    let body = r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],"max_tokens":900,"stream":true}"#;
    for api in Api::ALL {
        assert_eq!(found(api, body, &Wanted::default()), Repairs::default());
    }
}

#[test]
fn numbers_above_the_cap_are_lowered_and_no_other_byte_changes() {
    let chat = Api::ChatCompletions;
    for (api, body, expected) in [
        (chat, r#"{"max_tokens": 101 ,"n":1}"#, r#"{"max_tokens": 100 ,"n":1}"#),
        (chat, r#"{"max_tokens":100}"#, r#"{"max_tokens":100}"#),
        (chat, r#"{"max_tok\u0065ns":1e9}"#, r#"{"max_tok\u0065ns":100}"#),
        (chat, r#"{"max_tokens":"4000"}"#, r#"{"max_tokens":100}"#),
        (chat, r#"{"max_tokens":"many"}"#, r#"{"max_tokens":"many"}"#),
        (chat, r#"{"max_tokens":-1}"#, r#"{"max_tokens":100}"#),
        (
            chat,
            r#"{"max_completion_tokens":32000.0,"max_tokens":7}"#,
            r#"{"max_completion_tokens":100,"max_tokens":7}"#,
        ),
        (
            chat,
            r#"{"max_tokens":null,"x":{"max_tokens":900}}"#,
            r#"{"max_tokens":100,"x":{"max_tokens":900}}"#,
        ),
        (Api::LlamaCompletion, r#"{"n_predict":99999999999999999999999}"#, r#"{"n_predict":100}"#),
        (
            Api::Generate,
            r#"{"sampling_params":{"max_new_tokens":128,"n":1}}"#,
            r#"{"sampling_params":{"max_new_tokens":100,"n":1}}"#,
        ),
        (Api::Embeddings, r#"{"max_tokens":900}"#, r#"{"max_tokens":900}"#),
    ] {
        assert_eq!(capped(api, body), expected);
    }
}

#[test]
fn a_bound_is_added_only_where_none_means_no_end() {
    for (api, body, expected) in [
        (Api::ChatCompletions, r#"{ "model":"m"}"#, r#"{"max_tokens":100, "model":"m"}"#),
        (Api::Responses, r#"{"model":"m"}"#, r#"{"max_output_tokens":100,"model":"m"}"#),
        (Api::LlamaCompletion, r#"{"prompt":"m"}"#, r#"{"n_predict":100,"prompt":"m"}"#),
        (Api::Completions, r#"{"model":"m"}"#, r#"{"model":"m"}"#),
        (Api::Messages, r#"{"model":"m"}"#, r#"{"model":"m"}"#),
        (Api::ChatCompletions, "{}", "{}"),
    ] {
        assert_eq!(capped(api, body), expected);
    }
}

#[test]
fn usage_is_asked_for_in_streams_that_do_not_and_what_else_is_asked_stays() {
    for (body, expected) in [
        (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        (
            r#"{"stream":true,"stream_options":null}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{ "x":1}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true, "x":1}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":false,"include_us\u0061ge":"no"}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true,"include_us\u0061ge":true}}"#,
        ),
    ] {
        assert_eq!(with_usage(body), expected);
    }
    for body in [
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"stream":true,"stream_options":7}"#,
        r#"{"stream":false}"#,
        r#"{"x":{"stream":true}}"#,
    ] {
        assert_eq!(with_usage(body), body);
    }
}

#[test]
fn billing_blocks_go_with_the_commas_around_them() {
    const BILL: &str = r#"{"type":"text","text":"x-anthropic-billing-header: cch=1;"}"#;
    const ODD: &str = r#"{"text":"x-anthropic-billing-h\u0065ader: a","ty\u0070e":"text"}"#;
    const KEPT: &str = r#"{"type":"text","text":"you are x-anthropic-billing-header"}"#;
    for (system, expected) in [
        (format!("[{BILL}, {KEPT}]"), format!("[{KEPT}]")),
        (format!("[ {BILL} ,\n{ODD},{KEPT} , {KEPT} ]"), format!("[ {KEPT} , {KEPT} ]")),
        (format!("[{KEPT}, {ODD}]"), format!("[{KEPT}]")),
        (format!("[{KEPT} ,{BILL}, {KEPT},{BILL},{ODD} ]"), format!("[{KEPT} ,{KEPT} ]")),
        (format!("[ {BILL} ]"), "[  ]".to_owned()),
        ("[]".to_owned(), "[]".to_owned()),
        (
            r#""x-anthropic-billing-header: a""#.to_owned(),
            r#""x-anthropic-billing-header: a""#.to_owned(),
        ),
    ] {
        let body =
            format!(r#"{{"system":{system},"messages":[{{"role":"user","content":[{BILL}]}}]}}"#);
        let wanted = body.replacen(&system, &expected, 1);
        assert_eq!(unbilled(&body), wanted);
        let (before, after) = (canonical(Api::Messages, &body), canonical(Api::Messages, &wanted));
        assert_eq!(before, after, "the fingerprint is of what is sent: {body}");
    }
}

#[test]
fn a_slot_is_named_where_one_may_be_and_a_clients_own_choice_gives_way() {
    let wanted = Wanted { id_slot: true, ..Wanted::default() };
    let chat = |body, slot| mended(Api::ChatCompletions, body, &wanted, slot);
    assert_eq!(chat(r#"{"n":1}"#, Some(3)), r#"{"id_slot":3,"n":1}"#);
    assert_eq!(chat(r#"{"n":1}"#, None), r#"{"n":1}"#);
    assert_eq!(
        chat(r#"{"id_slot":7,"id_sl\u006ft":"1"}"#, Some(0)),
        r#"{"id_slot":0,"id_sl\u006ft":0}"#
    );
    assert_eq!(chat(r#"{"id_slot":7}"#, None), r#"{"id_slot":-1}"#);
    // Several replies, or several prompts, take several slots.
    for (api, body) in [
        (Api::ChatCompletions, r#"{"n":2}"#),
        (Api::Completions, r#"{"prompt":["a","b"]}"#),
        (Api::Messages, r#"{"max_tokens":1}"#),
    ] {
        assert!(!found(api, body, &wanted).id_slot.may_name(), "{body}");
    }
    assert!(found(Api::Completions, r#"{"prompt":["a"]}"#, &wanted).id_slot.may_name());
}

/// A key or text in one of its spellings.
fn spelled(rng: &mut Rng, text: &str) -> String {
    let letter = |letter: char| match rng.u8(0..8) {
        0 => format!("\\u{:04x}", letter as u32),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(letter).collect::<String>())
}

fn blank(rng: &mut Rng) -> &'static str {
    ["", "", "", " ", "\n\t"][rng.usize(0..5)]
}

/// A JSON text of members in this order, spelled at random.
fn object(rng: &mut Rng, members: &[(&str, String)]) -> String {
    let mut text = format!("{{{}", blank(rng));
    for (at, (key, value)) in members.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let (before, between, after) = (blank(rng), blank(rng), blank(rng));
        text +=
            &format!("{comma}{before}{}{between}:{after}{value}{}", spelled(rng, key), blank(rng));
    }
    text + "}"
}

fn random_body(rng: &mut Rng) -> String {
    let numbers = ["1", "100", "101", "3.2e4", "-1", "null", "\"250\"", "99999999999999999999"];
    let options =
        ["null", "{}", "{\"include_usage\":false}", "{\"include_usage\":true}", "{\"a\":[1]}"];
    let bill = "{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: {,}\"}";
    let blocks = [bill, "{\"type\":\"text\",\"text\":\"]\\\"\"}", bill, "{\"text\":\"b\"}"];
    let system: Vec<_> = (0..rng.usize(0..5)).map(|_| blocks[rng.usize(0..4)]).collect();
    let decoy =
        "{\"max_tokens\":900,\"stream_options\":{},\"id_slot\":4,\"x\":\"\\\"max_tokens\\\":900\"}";
    let mut members = vec![
        ("messages", format!("[{{\"role\":\"user\",\"content\":\"max_tokens {}\"}}]", rng.u32(..))),
        ("stream", ["true", "false"][rng.usize(0..2)].to_owned()),
        ("decoy", decoy.to_owned()),
        ("decoy", "[]".to_owned()),
    ];
    let mut maybe = |key, value: String| {
        if rng.bool() {
            members.push((key, value));
        }
    };
    maybe("system", format!("[{}]", system.join(" , ")));
    maybe("max_tokens", numbers[fastrand::usize(0..8)].to_owned());
    maybe("max_completion_tokens", numbers[fastrand::usize(0..8)].to_owned());
    maybe("stream_options", options[fastrand::usize(0..5)].to_owned());
    maybe("id_slot", "9".to_owned());
    rng.shuffle(&mut members);
    object(rng, &members)
}

/// What a body is to mean once it is mended, worked out on its value.
fn expected(api: Api, body: &str) -> Value {
    let mut value: Value = serde_json::from_str(body).expect(body);
    let above = |value: &Value| {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        number.is_some_and(|number| !(0.0..=CAP as f64).contains(&number))
    };
    let bounds = ["max_tokens", "max_completion_tokens"];
    let named = bounds.iter().any(|bound| !value[*bound].is_null());
    for bound in bounds {
        if above(&value[bound]) {
            value[bound] = CAP.into();
        }
    }
    if api == Api::ChatCompletions {
        if !named {
            value["max_tokens"] = CAP.into();
        }
        if value["stream"] == true {
            if value["stream_options"].is_null() {
                value["stream_options"] = json!({});
            }
            value["stream_options"]["include_usage"] = true.into();
        }
        value["id_slot"] = 2.into();
    } else if let Some(system) = value["system"].as_array_mut() {
        let bill = |text: &str| text.starts_with("x-anthropic-billing-header");
        system.retain(|block| !block["text"].as_str().is_some_and(bill));
    }
    value
}

/// Asking a value for an absent member makes it, and null is as good as absent.
fn without_nulls(mut value: Value) -> Value {
    value.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    value
}

#[test]
fn any_body_means_what_it_should_and_keeps_all_its_other_bytes() {
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        fastrand::seed(seed);
        let body = random_body(&mut rng);
        let api = [Api::ChatCompletions, Api::Messages][rng.usize(0..2)];
        let sent = mended(api, &body, &ALL, Some(2));
        let read: Value = serde_json::from_str(&sent).unwrap_or_else(|e| panic!("{e}: {sent}"));
        let wanted = expected(api, &body);
        assert_eq!(without_nulls(read), without_nulls(wanted), "seed {seed}: {body}\n{sent}");
        assert_eq!(canonical(api, &sent), canonical(api, &body), "seed {seed}: {body}\n{sent}");
        // Mended once, there is nothing left to mend.
        assert_eq!(mended(api, &sent, &ALL, Some(2)), sent, "seed {seed}");
        kept_bytes(api, &body, seed);
    }
}

/// Every byte outside the edits is there, in its order, and edits lie apart.
fn kept_bytes(api: Api, body: &str, seed: u64) {
    let repairs = found(api, body, &ALL);
    let mut all = [repairs.always, repairs.usage, repairs.id_slot.edits(Some(2))].concat();
    all.sort_by_key(|edit| edit.range.start);
    let (mut naive, mut from) = (String::new(), 0);
    for edit in &all {
        assert!(from <= edit.range.start && edit.range.end <= body.len(), "seed {seed}: {body}");
        naive += &body[from..edit.range.start];
        naive += std::str::from_utf8(&edit.bytes).expect("text");
        from = edit.range.end;
    }
    naive += &body[from..];
    assert_eq!(naive, mended(api, body, &ALL, Some(2)), "seed {seed}");
}
