//! Each turn of a conversation pushes what the turn before pushed, and more.

use crate::support::assert_grows;
use proxy::api::Api;

#[test]
fn a_chat_grows_by_appending() {
    assert_grows(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hello"}],"tools":[{"name":"t"}]}"#,
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hello"}]},
                {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"t","arguments":"{\"a\":1}"}}]},
                {"role":"tool","tool_call_id":"1","content":"ok"}],"tools":[{"name":"t"}]}"#,
            r#"{"tools":[{"name":"t"}],"messages":[{"role":"system","content":"s"},{"role":"user","content":"hello"},
                {"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1}","name":"t"}}]},
                {"role":"tool","content":"ok"},{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}"#,
        ],
    );
}

#[test]
fn an_agents_messages_grow_while_markers_and_spellings_move() {
    let marked = r#""cache_control":{"type":"ephemeral"}"#;
    let billing = |version: &str| {
        format!(
            r#"{{"type":"text","text":"x-anthropic-billing-header: cc_version={version}; cch=0a1b2;"}}"#
        )
    };
    let system =
        r#"{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}"#;
    let turn = |version: &str, messages: &str| {
        format!(
            r#"{{"system":[{},{system}],"tools":[{{"name":"Read"}}],"messages":[{messages}]}}"#,
            billing(version)
        )
    };
    let call = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a.rs"}}]}"#;
    let first = turn(
        "1",
        &format!(r#"{{"role":"user","content":[{{"type":"text","text":"fix it",{marked}}}]}}"#),
    );
    let second = turn(
        "2",
        &format!(
            r#"{{"role":"user","content":"fix it"}},{{"role":"system","content":"90k tokens left"}},{call},
           {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"fn main",{marked}}}]}}"#
        ),
    );
    let third = turn(
        "3",
        &format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"fix it"}}]}},{{"role":"system","content":"90k tokens left"}},{call},
           {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":[{{"type":"text","text":"fn main"}}]}}]}},
           {{"role":"system","content":"80k tokens left"}},{{"role":"assistant","content":"Done."}},
           {{"role":"user","content":[{{"type":"text","text":"thanks",{marked}}}]}}"#
        ),
    );
    assert_grows(Api::Messages, &[&first, &second, &third]);
}

#[test]
fn a_responses_input_grows_by_items() {
    assert_grows(
        Api::Responses,
        &[
            r#"{"instructions":"i","input":"hi"}"#,
            r#"{"instructions":"i","input":[{"role":"user","content":"hi"},{"type":"reasoning","id":"r1","summary":[],"encrypted_content":"x"},
                {"type":"function_call","id":"f1","call_id":"c1","name":"shell","arguments":"{\"command\":[\"ls\"]}"}]}"#,
            r#"{"instructions":"i","input":[{"role":"user","content":"hi"},{"type":"reasoning","summary":[],"encrypted_content":"y"},
                {"type":"function_call","call_id":"c1","name":"shell","arguments":"{\"command\":[\"ls\"]}"},
                {"type":"function_call_output","call_id":"c1","output":"a.rs"}]}"#,
        ],
    );
}

#[test]
fn a_plain_prompt_grows_by_characters_and_by_token_ids() {
    assert_grows(
        Api::Completions,
        &[
            r#"{"prompt":"a"}"#,
            r#"{"prompt":"a\n"}"#,
            r#"{"prompt":"a\u000ab\u00e9"}"#,
            r#"{"prompt":"a\nbéc"}"#,
        ],
    );
    assert_grows(
        Api::Generate,
        &[r#"{"input_ids":[1,2]}"#, r#"{"input_ids":[1, 2, 3]}"#, r#"{"input_ids":[1,2,3,44]}"#],
    );
}

#[test]
fn an_assistant_message_may_be_continued() {
    assert_grows(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"The ans","prefix":true}]}"#,
            r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"The answer"},{"role":"user","content":"ok"}]}"#,
        ],
    );
}
