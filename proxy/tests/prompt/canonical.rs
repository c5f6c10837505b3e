//! Which spellings of a prompt are equal, and which are not.

use crate::support::{assert_different, assert_equal, canonical, prompt};
use proxy::api::Api;

#[test]
fn the_canonical_form_of_a_small_chat_is_what_the_documentation_says() {
    let body = r#"{"model":"m","messages":[
        {"role":"system","content":"Be brief."},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"role":"assistant","content":null,"tool_calls":[
            {"id":"1","type":"function","function":{"name":"ls","arguments":"{\"p\": \"/\", \"a\": 1.0}"}}]},
        {"role":"tool","tool_call_id":"1","content":"x"}],
        "tools":[{"type":"function","function":{"name":"ls"}}]}"#;
    assert_eq!(
        canonical(Api::ChatCompletions, body),
        concat!(
            r#""T{"function":{"name":"ls"},"type":"function"}"#,
            r#""msystem"tBe brief."muser"ta\nb"#,
            r#""massistant"cls"a{"a":1,"p":"/"}"#,
            r#""mtool"tx"#
        )
    );
}

#[test]
fn a_string_and_the_same_text_as_one_part_are_equal() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"hello"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#,
            r#"{"messages":[{"content":[{"text":"hello","type":"text","cache_control":{"type":"ephemeral"}}],"role":"user"}]}"#,
            r#"{"messages":[{"role":"user","content":["hello"]}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":""}]}]}"#,
        ],
    );
}

#[test]
fn parts_are_joined_by_a_newline_as_engines_join_them() {
    assert_equal(
        Api::Messages,
        &[
            r#"{"messages":[{"role":"user","content":"one\ntwo"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]}"#,
        ],
    );
}

#[test]
fn json_spelling_does_not_matter() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"model":"m","messages":[{"role":"user","content":"café\n/\"x\" 😀"}]}"#,
            r#"{"messages":[{"content":"caf\u00e9\u000a\/\u0022x\" \ud83d\ude00","role":"user"}],"model":"m"}"#,
            "{ \"messages\" :\n[ { \"r\\u006fle\" : \"\\u0075ser\", \"content\" : \"café\\n/\\\"x\\\" 😀\" } ]\t}",
            "\u{feff}{\"messages\":[{\"role\":\"user\",\"content\":\"café\\n/\\\"x\\\" 😀\"}]}",
        ],
    );
}

#[test]
fn sampling_fields_do_not_matter() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","content":"x"}],"temperature":0.7,"seed":1,"tool_choice":"none","reasoning_effort":"high","stop":["a"]}"#,
        ],
    );
}

#[test]
fn tool_definitions_are_equal_in_any_key_order_and_number_spelling() {
    assert_equal(
        Api::Messages,
        &[
            r#"{"tools":[{"name":"Read","description":"d","input_schema":{"type":"object","properties":{"n":{"maximum":0.70}}}}],"messages":[]}"#,
            r#"{"messages":[],"tools":[{"input_schema":{"properties":{"n":{"maximum":7e-1}},"type":"object"},"name":"Read","description":"d","cache_control":{"type":"ephemeral","ttl":"1h"}}]}"#,
        ],
    );
}

#[test]
fn the_order_of_tools_matters_because_templates_show_it() {
    assert_different(
        Api::ChatCompletions,
        &[
            r#"{"tools":[{"name":"a"},{"name":"b"}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"tools":[{"name":"b"},{"name":"a"}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"tools":[{"name":"a"}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","content":"x"}]}"#,
        ],
    );
}

#[test]
fn call_arguments_are_equal_as_text_and_in_any_key_order() {
    let body = |arguments: &str| {
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"x","type":"function","function":{{"name":"f","arguments":{arguments}}}}}]}}]}}"#
        )
    };
    let spellings = [
        r#""{\"a\":1,\"b\":\"é\"}""#,
        r#""{ \"b\" : \"\\u00e9\", \"a\" : 1.0 }""#,
        r#"{"b":"\u00e9","a":1}"#,
    ]
    .map(body);
    assert_equal(Api::ChatCompletions, &spellings.each_ref().map(String::as_str));
    let different =
        [r#""{\"a\":1}""#, r#""{\"a\":2}""#, r#""{\"a\":1""#, r#""a""#, r#""{}""#].map(body);
    assert_different(Api::ChatCompletions, &different.each_ref().map(String::as_str));
    let none = [r#""{}""#, r#""""#, "null", "{}"].map(body);
    assert_equal(Api::ChatCompletions, &none.each_ref().map(String::as_str));
}

#[test]
fn a_moved_cache_control_does_not_change_the_fingerprint() {
    assert_equal(
        Api::Messages,
        &[
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]},
                {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"R","input":{"p":1}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},
                {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"R","input":{"p":1}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}"#,
            r#"{"messages":[{"role":"user","content":"a"},
                {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"R","input":{"p":1},"cache_control":{}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x","cache_control":{}}]}]}]}"#,
        ],
    );
}

#[test]
fn the_billing_line_does_not_change_the_fingerprint() {
    assert_equal(
        Api::Messages,
        &[
            r#"{"system":[{"type":"text","text":"You are."}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.2xx.abc; cch=0a1b2;"},{"type":"text","text":"You are."}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"system":[{"type":"text","text":"\u0078-anthropic-billing-header: cch=fffff;"},{"type":"text","text":"You are.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"system":"You are.","messages":[{"role":"user","content":"x"}]}"#,
        ],
    );
}

#[test]
fn a_system_message_stays_where_it_stands() {
    let front =
        r#"{"messages":[{"role":"system","content":"note"},{"role":"user","content":"x"}]}"#;
    let behind =
        r#"{"messages":[{"role":"user","content":"x"},{"role":"system","content":"note"}]}"#;
    assert_different(Api::Messages, &[front, behind]);
    assert_equal(
        Api::Messages,
        &[front, r#"{"system":"note","messages":[{"role":"user","content":"x"}]}"#],
    );
    assert!(canonical(Api::Messages, behind).ends_with(r#""msystem"tnote"#));
}

#[test]
fn ids_that_engines_invent_do_not_matter() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"r"}]}"#,
            r#"{"messages":[{"role":"assistant","id":"msg_2","content":"","tool_calls":[{"id":"call_2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_2","content":"r"}]}"#,
        ],
    );
    assert_equal(
        Api::Responses,
        &[
            r#"{"input":[{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}","status":"completed"},{"type":"function_call_output","call_id":"c1","output":"r"}]}"#,
            r#"{"input":[{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c2","output":"r"}]}"#,
        ],
    );
}

#[test]
fn nulls_and_absent_members_are_equal() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"assistant","content":"x"}]}"#,
            r#"{"messages":[{"role":"assistant","content":"x","name":null,"tool_calls":null,"reasoning":null,"refusal":null,"custom":null}],"tools":null}"#,
            r#"{"messages":[{"role":"assistant","content":"x","tool_calls":[],"prefix":true}],"tools":[]}"#,
        ],
    );
}

#[test]
fn images_count_by_their_content() {
    let chat = |url: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"see"}},{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#
        )
    };
    let (a, b) = (chat("data:image/png;base64,AAAA"), chat("data:image/png;base64,AAAB"));
    let spelled = chat("data:image\\/png;base64,AAAA");
    let link = chat("https://h/a.png");
    assert_different(Api::ChatCompletions, &[&a, &b, &link]);
    assert_equal(Api::ChatCompletions, &[&a, &spelled]);
    let large = chat(&format!("data:image/png;base64,{}", "A".repeat(100_000)));
    let (read, kept) = prompt(Api::ChatCompletions, &large);
    assert_eq!(read.media, 1);
    assert!(kept.bytes.len() < 100, "an image is a digest");
}

#[test]
fn images_and_files_of_every_dialect_are_media_and_documents_with_text_are_text() {
    let message = |part: &str| format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
    for part in [
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#,
        r#"{"type":"document","source":{"type":"url","url":"https://h/x.pdf"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}"#,
        r#"{"type":"file","file":{"file_data":"AA","filename":"x"}}"#,
        r#"{"type":"video_url","video_url":{"url":"https://h/v"}}"#,
        r#"{"type":"input_image","image_url":"https://h/i","detail":"auto"}"#,
    ] {
        assert_eq!(prompt(Api::Messages, &message(part)).0.media, 1, "{part}");
    }
    let document = message(
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"long text"}}"#,
    );
    let (read, kept) = prompt(Api::Messages, &document);
    assert_eq!(read.media, 0);
    assert!(String::from_utf8_lossy(&kept.bytes).contains("long text"));
}

#[test]
fn unknown_parts_and_members_still_separate_prompts() {
    assert_different(
        Api::Messages,
        &[
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"novel","payload":1}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"novel","payload":2}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"}],"weight":2}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"}],"type":"novel","payload":1}]}"#,
            r#"{"messages":[{"role":"user","content":7}]}"#,
            r#"{"messages":[{"role":"user","content":[7,8]}]}"#,
        ],
    );
    assert_equal(
        Api::Messages,
        &[
            r#"{"messages":[{"role":"user","content":[{"type":"novel","a":1,"b":2.0,"id":"r1"}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"b":2,"id":"r2","a":1,"type":"novel","cache_control":{}}]}]}"#,
        ],
    );
}

#[test]
fn role_name_reasoning_calls_and_results_separate_prompts() {
    assert_different(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"role":"assistant","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","name":"bob","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","content":"x","reasoning_content":"hm"}]}"#,
            r#"{"messages":[{"role":"user","content":"x"},{"role":"user","content":""}]}"#,
            r#"{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}"#,
            r#"{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"g","arguments":"{}"}}]}]}"#,
            r#"{"messages":[{"role":"user"},{"content":"x"}]}"#,
        ],
    );
}

#[test]
fn reasoning_is_equal_under_any_of_its_names() {
    assert_equal(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"assistant","reasoning_content":"hm","content":"x"}]}"#,
            r#"{"messages":[{"role":"assistant","content":"x","reasoning":"hm"}]}"#,
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"text","text":"x"}]}]}"#,
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s2"},{"type":"text","text":"x"}]}]}"#,
        ],
    );
}

#[test]
fn text_cannot_forge_a_frame() {
    assert_different(
        Api::ChatCompletions,
        &[
            r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"user","content":"a\"muser\"tb"}]}"#,
            r#"{"messages":[{"role":"user","content":"a\u0022muser\u0022tb"},{"role":"user","content":""}]}"#,
            r#"{"messages":[{"role":"user","content":"a\\"},{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"user\"ta","content":"b"}]}"#,
        ],
    );
}

#[test]
fn what_stands_inside_a_result_differs_from_what_stands_behind_it() {
    assert_different(
        Api::Messages,
        &[
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a"},{"type":"text","text":"b"}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a"}]},{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a","is_error":true},{"type":"text","text":"b"}]}]}"#,
        ],
    );
}

#[test]
fn a_responses_string_is_one_user_message() {
    assert_equal(
        Api::Responses,
        &[
            r#"{"instructions":"Be.","input":"hi"}"#,
            r#"{"input":[{"role":"user","content":"hi"}],"instructions":"Be."}"#,
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"instructions":"Be."}"#,
            r#"{"input":[{"type":"message","id":"msg_1","status":"completed","role":"user","content":[{"type":"input_text","text":"hi"}]}],"instructions":"Be."}"#,
        ],
    );
    assert_different(
        Api::Responses,
        &[
            r#"{"input":"hi"}"#,
            r#"{"input":"hi","instructions":"Be."}"#,
            r#"{"input":"hi","previous_response_id":"resp_1"}"#,
            r#"{"input":"hi","previous_response_id":"resp_2"}"#,
            r#"{"input":"hi","conversation":{"id":"resp_2"}}"#,
            r#"{"input":[{"role":"user","content":"hi"},{"type":"item_reference","name":"x"}]}"#,
            r#"{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hi"}]}]}"#,
        ],
    );
}

#[test]
fn opaque_reasoning_does_not_matter() {
    assert_equal(
        Api::Responses,
        &[
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"AAA"}]}"#,
            r#"{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"BBB"}]}"#,
        ],
    );
}

#[test]
fn token_ids_and_texts_are_prompts_of_their_own_kind() {
    assert_equal(Api::Completions, &[r#"{"prompt":[1,2,3]}"#, r#"{"prompt":[ 1, 2.0,3 ]}"#]);
    assert_different(
        Api::Completions,
        &[
            r#"{"prompt":[1,23]}"#,
            r#"{"prompt":[12,3]}"#,
            r#"{"prompt":"1,23,"}"#,
            r#"{"prompt":[[1],[23]]}"#,
            r#"{"prompt":["1","23"]}"#,
        ],
    );
    assert_equal(Api::Generate, &[r#"{"text":"abc"}"#, r#"{"text":["abc"]}"#]);
    assert_equal(Api::LlamaCompletion, &[r#"{"prompt":["a",1,2]}"#, r#"{"prompt":[ "a", 1, 2 ]}"#]);
}

#[test]
fn batches_are_counted() {
    for (api, body, prompts, choices) in [
        (Api::Completions, r#"{"prompt":"a","n":3}"#, 1, 3),
        (Api::Completions, r#"{"prompt":["a","b"],"best_of":4,"n":2}"#, 2, 4),
        (Api::Completions, r#"{"prompt":[1,2,3]}"#, 1, 1),
        (Api::Completions, r#"{"prompt":[[1,2],[3]]}"#, 2, 1),
        (Api::LlamaCompletion, r#"{"prompt":["a",1,2,"b"]}"#, 1, 1),
        (Api::Generate, r#"{"input_ids":[[1],[2],[3]],"sampling_params":{"n":2}}"#, 3, 2),
        (Api::Embeddings, r#"{"input":["a","b"]}"#, 2, 1),
        (Api::ChatCompletions, r#"{"messages":[],"n":0}"#, 1, 1),
    ] {
        let (read, _) = prompt(api, body);
        assert_eq!((read.prompts, read.choices), (prompts, choices), "{body}");
    }
}

#[test]
fn models_adapters_and_salts_go_into_the_root_and_not_into_the_text() {
    let plain = prompt(Api::Generate, r#"{"text":"x"}"#).1;
    let model = prompt(Api::Generate, r#"{"text":"x","model":"m"}"#).1;
    assert_eq!((plain.bytes.clone(), model.roots), (model.bytes, vec![b"m".to_vec()]));
    let nobody = Vec::new();
    let lora = prompt(Api::Generate, r#"{"text":"x","lora_path":"a"}"#).1;
    let salt = prompt(Api::Generate, r#"{"cache_salt":"a","text":"x"}"#).1;
    assert_eq!(plain.bytes, lora.bytes);
    assert_eq!(plain.roots, std::slice::from_ref(&nobody));
    assert_eq!(lora.roots, [nobody.clone(), b"lora_path".to_vec(), b"a".to_vec()]);
    assert_eq!(salt.roots, [nobody.clone(), b"cache_salt".to_vec(), b"a".to_vec()]);
    let none = prompt(Api::Generate, r#"{"text":"x","lora_path":null,"cache_salt":""}"#).1;
    assert_eq!(none.roots, [nobody]);
}

#[test]
fn prompts_are_equal_across_the_dialects_where_the_text_is() {
    let chat = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}"#;
    let messages = r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"text","text":"a"}]}]}"#;
    let responses = r#"{"instructions":"s","input":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]}]}"#;
    let form = canonical(Api::ChatCompletions, chat);
    assert_eq!(canonical(Api::Messages, messages), form);
    assert_eq!(canonical(Api::CountTokens, messages), form);
    assert_eq!(canonical(Api::Responses, responses), form);
}

#[test]
fn a_text_without_odd_escapes_is_pushed_whole() {
    let long = "line of text with \\\"quotes\\\"\\n".repeat(4000);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"{long}"}}]}}"#);
    let (_, kept) = prompt(Api::ChatCompletions, &body);
    assert!(kept.pushes <= 6, "{} pushes", kept.pushes);
}
