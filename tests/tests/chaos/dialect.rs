//! The four APIs as a client speaks and understands them: bodies, replies, ends and errors. Pure; it never repairs what an
//! engine or the proxy said.

use loadgen::engine::text::{Style, render};
use loadgen::engine::{Api, expected_text};
use serde_json::{Value, json};

use super::talks::{Takes, Talk};
use super::world::REPLY;

/// Tokens of a reply to a slow reader: more bytes than the kernels in between hold for one, in every dialect.
const LONG_REPLY: u32 = 600;

/// An API, as a client's library speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Completions,
    Responses,
    Messages,
}

/// What was said and answered before.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) user: String,
    pub(crate) reply: String,
}

/// What a reply says, read as its client's library would.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) text: String,
    /// The dialect's mark of a good end was there.
    pub(crate) ended: bool,
    /// An error of the dialect was there.
    pub(crate) error: bool,
    /// Something was no event of the dialect: half an event, for one.
    pub(crate) torn: bool,
}

impl Dialect {
    pub(crate) const ALL: [Dialect; 4] =
        [Dialect::Chat, Dialect::Completions, Dialect::Responses, Dialect::Messages];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Completions => "/v1/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Messages => "/v1/messages",
        }
    }

    /// The body of a request that goes on from `before`.
    pub(crate) fn body(self, talk: &Talk, before: &[Said], says: &str) -> Value {
        let Talk { system, streamed, takes, .. } = talk;
        let turn = |role: &str, text: &str| json!({ "role": role, "content": text });
        let pair = |said: &Said| [turn("user", &said.user), turn("assistant", &said.reply)];
        let mut turns: Vec<Value> = before.iter().flat_map(pair).collect();
        turns.push(turn("user", says));
        let tokens_min = if *takes == Takes::AtOnce { 1 } else { LONG_REPLY };
        let tokens_max = tokens_min.max(4 * REPLY.max);
        let mut body = match self {
            Dialect::Chat => {
                turns.insert(0, turn("system", system));
                json!({ "messages": turns, "max_tokens": tokens_max })
            }
            Dialect::Completions => {
                let line = |said: &Said| format!("{}\n{}\n", said.user, said.reply);
                let before: String = before.iter().map(line).collect();
                json!({ "prompt": format!("{system}\n{before}{says}\n"), "max_tokens": tokens_max })
            }
            Dialect::Responses => {
                json!({ "instructions": system, "input": turns, "max_output_tokens": tokens_max })
            }
            Dialect::Messages => {
                json!({ "system": system, "messages": turns, "max_tokens": tokens_max })
            }
        };
        body["model"] = json!("sim");
        body["stream"] = json!(streamed);
        body["min_tokens"] = json!(tokens_min);
        body
    }

    /// The only right reply to a body: the simulated engines' text follows from the prompt, and so does its length.
    pub(crate) fn right_reply(self, body: &Value) -> String {
        let api = match self {
            Dialect::Chat => Api::Chat,
            Dialect::Completions => Api::Completions,
            Dialect::Responses => Api::Responses,
            Dialect::Messages => Api::Messages,
        };
        let prompt = render(api, body, Style::default()).expect("a body of this dialect").hash();
        let asked = body["min_tokens"].as_u64().and_then(|tokens| tokens.try_into().ok());
        expected_text(prompt, REPLY.pick(prompt).max(asked.unwrap_or(1)))
    }

    /// Reads a reply that came in one piece.
    pub(crate) fn read_whole(self, body: &str) -> Told {
        let Ok(json) = serde_json::from_str::<Value>(body) else {
            return Told { torn: true, ..Told::default() };
        };
        let (text, end) = match self {
            Dialect::Chat => ("/choices/0/message/content", "/choices/0/finish_reason"),
            Dialect::Completions => ("/choices/0/text", "/choices/0/finish_reason"),
            Dialect::Responses => ("/output/0/content/0/text", "/status"),
            Dialect::Messages => ("/content/0/text", "/stop_reason"),
        };
        let member = |pointer| json.pointer(pointer).and_then(Value::as_str);
        let ends = ["stop", "completed", "end_turn"];
        Told {
            text: member(text).unwrap_or_default().to_owned(),
            ended: member(end).is_some_and(|end| ends.contains(&end)),
            error: has_error(&json),
            torn: false,
        }
    }

    /// Reads a stream of events as far as it came.
    pub(crate) fn read_stream(self, body: &str) -> Told {
        let mut told = Told::default();
        for event in body.split("\n\n") {
            let (mut name, mut data) = ("", None);
            for line in event.lines() {
                if let Some(value) = line.strip_prefix("event: ") {
                    name = value;
                } else if let Some(value) = line.strip_prefix("data: ") {
                    data = Some(value);
                } else {
                    told.torn |= !line.is_empty() && !line.starts_with(':');
                }
            }
            if let Some(data) = data {
                self.take(name, data, &mut told);
            }
        }
        told.torn |= !body.is_empty() && !body.ends_with("\n\n");
        told
    }

    fn take(self, name: &str, data: &str, told: &mut Told) {
        if data == "[DONE]" && matches!(self, Dialect::Chat | Dialect::Completions) {
            told.ended = true;
            return;
        }
        let Ok(json) = serde_json::from_str::<Value>(data) else {
            told.torn = true;
            return;
        };
        let kind = json["type"].as_str().unwrap_or_default();
        told.error |= name == "error" || kind == "response.failed" || has_error(&json);
        told.ended |= match self {
            Dialect::Chat | Dialect::Completions => false,
            Dialect::Responses => kind == "response.completed",
            Dialect::Messages => kind == "message_stop",
        };
        let text = match self {
            Dialect::Chat => json.pointer("/choices/0/delta/content"),
            Dialect::Completions => json.pointer("/choices/0/text"),
            Dialect::Responses => json.get("delta"),
            Dialect::Messages => json.pointer("/delta/text"),
        };
        told.text.push_str(text.and_then(Value::as_str).unwrap_or_default());
    }

    /// Whether a body is an error as this dialect's own libraries read one. Those of an engine have its wording.
    pub(crate) fn is_error(self, body: &str, of_engine: bool) -> bool {
        let Ok(json) = serde_json::from_str::<Value>(body) else { return false };
        if of_engine {
            return has_error(&json) || json["object"] == "error";
        }
        let told = |members: &[&str]| members.iter().all(|name| json["error"][name].is_string());
        match self {
            Dialect::Messages => json["type"] == "error" && told(&["type", "message"]),
            _ => told(&["type", "message", "code"]),
        }
    }
}

fn has_error(json: &Value) -> bool {
    json.get("error").is_some_and(|error| !error.is_null())
}
