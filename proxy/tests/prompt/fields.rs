//! What a body says beside its prompt, and how bodies that cannot be read are refused.

use crate::support::{Kept, prompt};
use proxy::api::Api;
use proxy::prompt::{PromptErrorKind, read};

#[test]
fn the_model_the_stream_and_the_bound_are_read_whatever_the_api_calls_them() {
    for (api, body, bound) in [
        (Api::ChatCompletions, r#"{"model":"m","stream":true,"max_tokens":7}"#, Some(7)),
        (
            Api::ChatCompletions,
            r#"{"max_tokens":9,"model":"m","stream":true,"max_completion_tokens":7.0}"#,
            Some(7),
        ),
        (Api::Responses, r#"{"model":"\u006d","stream":true,"max_output_tokens":7}"#, Some(7)),
        (Api::LlamaCompletion, r#"{"model":"m","stream":true,"n_predict":-1}"#, None),
        (
            Api::Generate,
            r#"{"model":"m","stream":true,"sampling_params":{"max_new_tokens":7}}"#,
            Some(7),
        ),
        (Api::Messages, r#"{"model":"m","stream":true,"max_tokens":null}"#, None),
    ] {
        let (read, _) = prompt(api, body);
        assert_eq!(read.model.as_deref(), Some("m"), "{body}");
        assert!(read.stream, "{body}");
        assert_eq!(read.output_tokens_max, bound, "{body}");
    }
}

#[test]
fn fields_of_odd_types_are_left_to_the_engine() {
    let body = r#"{"model":7,"stream":"yes","max_tokens":"many","n":-1,"messages":"hi","tools":3,"metadata":[],"stream_options":1}"#;
    let (read, kept) = prompt(Api::ChatCompletions, body);
    assert_eq!(read.model, None);
    assert!(!read.stream && !read.include_usage);
    assert_eq!((read.output_tokens_max, read.choices), (None, 1));
    assert!(!kept.bytes.is_empty());
}

#[test]
fn usage_in_streams_is_noticed() {
    let (read, _) = prompt(Api::ChatCompletions, r#"{"stream_options":{"include_usage":true}}"#);
    assert!(read.include_usage);
}

#[test]
fn both_forms_of_the_session_in_a_user_id_are_read() {
    for (user, session) in [
        (
            r#""{\"device_id\":\"d\",\"account_uuid\":\"a\",\"session_id\":\"1111-2222\"}""#,
            Some("1111-2222"),
        ),
        (r#""user_ab_account__session_1111-2222""#, Some("1111-2222")),
        (r#""user_session_x_account_y_session_1111-2222""#, Some("1111-2222")),
        (r#""alice""#, None),
        (r#""x_session_""#, None),
        (r#""{\"session_id\":7}""#, None),
        ("7", None),
    ] {
        let body = format!(r#"{{"metadata":{{"user_id":{user}}}}}"#);
        assert_eq!(prompt(Api::Messages, &body).0.user_session.as_deref(), session, "{user}");
    }
}

#[test]
fn ids_of_conversations_are_read_and_never_shown() {
    let body = r#"{"model":"m","prompt_cache_key":"thread-1","previous_response_id":"resp_9","metadata":{"user_id":"u_session_abc"},"input":"secret"}"#;
    let (read, _) = prompt(Api::Responses, body);
    assert_eq!(read.prompt_cache_key.as_deref(), Some("thread-1"));
    assert_eq!(read.previous_response.as_deref(), Some("resp_9"));
    let shown = format!("{read:?}");
    for hidden in ["thread-1", "resp_9", "abc", "secret"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    let (read, _) = prompt(Api::Responses, r#"{"conversation":{"id":"conv_1"}}"#);
    assert_eq!(read.previous_response.as_deref(), Some("conv_1"));
}

#[test]
fn the_head_stays_while_a_conversation_grows_and_tells_conversations_apart() {
    let digest = |body: &str| prompt(Api::ChatCompletions, body).0.head_digest();
    let first = digest(
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"caf\u00e9"}]}"#,
    );
    let later = digest(
        r#"{"messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"café"},{"role":"assistant","content":"a"},{"role":"user","content":"b"},{"role":"system","content":"late"}]}"#,
    );
    let other =
        digest(r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"tea"}]}"#);
    assert!(first.is_some());
    assert_eq!(first, later);
    assert_ne!(first, other);
    assert_eq!(digest(r#"{"messages":[{"role":"system","content":"s"}]}"#), None);
}

#[test]
fn the_head_sees_what_was_asked_behind_a_fixed_reminder() {
    let digest = |asked: &str| {
        let body = format!(
            r#"{{"system":"s","messages":[{{"role":"user","content":[{{"type":"text","text":"<reminder>"}},{{"type":"text","text":"{asked}"}}]}}]}}"#
        );
        prompt(Api::Messages, &body).0.head_digest()
    };
    assert_ne!(digest("one"), digest("two"));
}

#[test]
fn the_head_of_a_huge_text_is_its_beginning() {
    let digest =
        |text: &str| prompt(Api::Completions, &format!(r#"{{"prompt":"{text}"}}"#)).0.head_digest();
    let long = "x".repeat(40_000);
    assert_eq!(digest(&long), digest(&format!("{long}y")));
    assert_ne!(digest("x"), digest("xy"));
}

#[test]
fn a_routing_member_that_stands_twice_is_refused_and_others_may() {
    let kind = |body: &str| {
        let outcome = read(Api::ChatCompletions, body.as_bytes(), &mut Kept::default());
        outcome.map(|_| ()).map_err(|error| error.kind)
    };
    for (body, name) in [
        (r#"{"model":"a","model":"b"}"#, "model"),
        (r#"{"model":"a","mod\u0065l":"a"}"#, "model"),
        (r#"{"messages":[],"messages":[]}"#, "messages"),
        (r#"{"stream":true,"x":1,"stream":false}"#, "stream"),
        (r#"{"lora_path":null,"lora_path":"a"}"#, "lora_path"),
    ] {
        assert_eq!(kind(body).err(), Some(PromptErrorKind::Duplicate(name)), "{body}");
    }
    assert!(kind(r#"{"seed":1,"seed":2,"model":"m"}"#).is_ok());
}

#[test]
fn what_is_no_object_is_refused() {
    for body in ["[]", "7", "\"model\"", "null", "[1,2]"] {
        let error = read(Api::Messages, body.as_bytes(), &mut Kept::default()).expect_err(body);
        assert_eq!(error.kind, PromptErrorKind::NotAnObject, "{body}");
    }
}

#[test]
fn errors_say_where_and_never_what() {
    for body in [
        &br#"{"model":"secret" "x"}"#[..],
        br#"{"model":"secret","model":"secret"}"#,
        br#"{"model":"secret"#,
        b"{\"model\":\"secret\xff\"}",
        br#"secret"#,
        br#"{"a":secret}"#,
    ] {
        let error = read(Api::ChatCompletions, body, &mut Kept::default()).expect_err("accepted");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(error.at <= body.len());
    }
    let error = read(Api::ChatCompletions, br#"{"a":1 "b":2}"#, &mut Kept::default())
        .expect_err("accepted");
    assert_eq!(error.at, 7);
    assert!(error.to_string().contains("byte 7"));
}

#[test]
fn hostile_shapes_cost_no_stack_and_end_in_an_error_or_a_prompt() {
    let deep = format!(r#"{{"messages":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    prompt(Api::ChatCompletions, &deep);
    for body in [
        "[".repeat(1_000_000),
        r#"{"messages":["#.repeat(200_000),
        format!(r#"{{"messages":[{}"#, r#"{"role":"user","content":""#.repeat(10)),
        format!(r#"{{"a":"{}"#, "\\\"".repeat(500_000)),
    ] {
        assert!(read(Api::ChatCompletions, body.as_bytes(), &mut Kept::default()).is_err());
    }
    let arguments = "[".repeat(10_000);
    let call = format!(
        r#"{{"messages":[{{"tool_calls":[{{"function":{{"name":"f","arguments":"{arguments}"}}}}]}}]}}"#
    );
    prompt(Api::ChatCompletions, &call);
}

#[test]
fn the_last_of_two_equal_members_of_a_message_counts_as_engines_take_it() {
    crate::support::assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"system","content":"a","content":"b","role":"user"}]}"#,
        ],
    );
}
