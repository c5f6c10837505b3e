//! `/v1/messages`.

use serde_json::{Value, json};

use super::super::persona::Persona;
use super::events::{Events, Frame, TEXT};
use super::facts::{Done, Facts};
use super::{Stream, usage};

pub(super) fn whole(facts: &Facts, done: &Done, text: &str) -> Value {
    let mut reply = json!({"id": id(facts), "type": "message", "role": "assistant",
        "content": [{"type": "text", "text": text}], "model": facts.model,
        "stop_reason": facts.finish.anthropic()});
    if facts.persona == Persona::LlamaCpp {
        reply["stop_sequence"] = Value::Null;
    }
    reply["usage"] = usage::messages(facts, done);
    reply
}

fn id(facts: &Facts) -> String {
    if facts.persona == Persona::Sglang { facts.prefixed_id("msg_") } else { facts.chat_id() }
}

/// A streamed message.
pub(super) struct MessagesStream {
    facts: Facts,
    token: Frame,
}

impl MessagesStream {
    pub(super) fn new(facts: Facts) -> Self {
        let delta = json!({"type": "text_delta", "text": TEXT});
        let data = match facts.persona {
            Persona::Vllm => json!({"type": "content_block_delta", "delta": delta, "index": 0}),
            _ => json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        };
        Self { facts, token: Frame::new(Some("content_block_delta"), &data) }
    }
}

/// The first event, which SGLang also sends when it has only an error to report.
pub(crate) fn message_start(facts: &Facts, done: &Done) -> Value {
    let usage = match facts.persona {
        Persona::Vllm => json!({"input_tokens": facts.prompt_tokens, "output_tokens": 0}),
        _ => usage::messages(facts, &Done { produced: 0, ..*done }),
    };
    let mut message = json!({"id": id(facts), "type": "message", "role": "assistant", "content": [],
        "model": facts.model, "stop_reason": null, "stop_sequence": null, "usage": usage});
    if facts.persona == Persona::Sglang
        && let Value::Object(members) = &mut message
    {
        members.shift_remove("stop_reason");
        members.shift_remove("stop_sequence");
    }
    json!({"type": "message_start", "message": message})
}

impl Stream for MessagesStream {
    fn open(&mut self, done: &Done, events: &mut Events) {
        events.typed(&message_start(&self.facts, done));
        let block = json!({"type": "text", "text": ""});
        events.typed(&match self.facts.persona {
            Persona::Vllm => {
                json!({"type": "content_block_start", "content_block": block, "index": 0})
            }
            _ => json!({"type": "content_block_start", "index": 0, "content_block": block}),
        });
    }

    fn token(&mut self, _: u32, text: &str, _: bool, events: &mut Events) {
        self.token.push(text, events);
    }

    fn close(&mut self, done: &Done, events: &mut Events) {
        let facts = &self.facts;
        events.typed(&json!({"type": "content_block_stop", "index": 0}));
        let stop = facts.finish.anthropic();
        let (delta, usage) = match facts.persona {
            Persona::LlamaCpp => (
                json!({"stop_reason": stop, "stop_sequence": null}),
                json!({"output_tokens": done.produced}),
            ),
            Persona::Vllm => {
                (json!({"stop_reason": stop, "stop_sequence": null}), usage::messages(facts, done))
            }
            Persona::Sglang | Persona::OpenAi => {
                (json!({"stop_reason": stop}), usage::messages(facts, done))
            }
        };
        events.typed(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events.typed(&json!({"type": "message_stop"}));
    }
}
