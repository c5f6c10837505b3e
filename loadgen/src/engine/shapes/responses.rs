//! `/v1/responses`. llama.cpp prints fewer members and no sequence numbers.

use serde_json::{Value, json};

use super::super::ask::Finish;
use super::super::persona::Persona;
use super::events::Events;
use super::facts::{Done, Facts};
use super::{Stream, usage};

pub(super) fn whole(facts: &Facts, done: &Done, text: &str) -> Value {
    let output = json!([item(facts, text, "completed")]);
    let usage = usage::responses(facts, done);
    if facts.persona == Persona::LlamaCpp {
        let content = json!([part(facts, text)]);
        let output = json!([{"content": content, "id": facts.prefixed_id("msg_"), "role": "assistant",
            "status": "completed", "type": "message"}]);
        return json!({"completed_at": facts.created, "created_at": facts.created, "id": facts.prefixed_id("resp_"),
            "model": facts.model, "object": "response", "output": output, "status": "completed", "usage": usage});
    }
    document(facts, ended(facts), output, usage)
}

fn ended(facts: &Facts) -> &'static str {
    match facts.finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

fn document(facts: &Facts, status: &str, output: Value, usage: Value) -> Value {
    let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
    json!({"id": facts.prefixed_id("resp_"), "created_at": facts.created, "incomplete_details": incomplete,
        "instructions": null, "metadata": null, "model": facts.model, "object": "response", "output": output,
        "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "background": false, "max_output_tokens": null, "previous_response_id": null, "reasoning": null,
        "service_tier": "auto", "status": status, "truncation": "disabled", "usage": usage, "user": null})
}

fn item(facts: &Facts, text: &str, status: &str) -> Value {
    let id = facts.prefixed_id("msg_");
    let content = if status == "completed" { json!([part(facts, text)]) } else { json!([]) };
    match (facts.persona, status) {
        // llama.cpp prints the finished item of a stream in an order of its own.
        (Persona::LlamaCpp, "completed") => {
            json!({"type": "message", "status": status, "id": id, "content": content, "role": "assistant"})
        }
        (Persona::LlamaCpp, _) => {
            json!({"content": content, "id": id, "role": "assistant", "status": status, "type": "message"})
        }
        _ => {
            json!({"id": id, "content": content, "role": "assistant", "status": status, "type": "message"})
        }
    }
}

fn part(facts: &Facts, text: &str) -> Value {
    match facts.persona {
        Persona::LlamaCpp => {
            json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
        }
        _ => json!({"annotations": [], "text": text, "type": "output_text", "logprobs": []}),
    }
}

/// A streamed response.
pub(super) struct ResponsesStream {
    facts: Facts,
    sequence: u64,
    text: String,
}

impl ResponsesStream {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts, sequence: 0, text: String::new() }
    }

    fn push(&mut self, kind: &str, members: Value, events: &mut Events) {
        let mut event = json!({"type": kind});
        if let (Value::Object(event), Value::Object(members)) = (&mut event, members) {
            event.extend(members);
            if self.facts.persona != Persona::LlamaCpp {
                event.insert("sequence_number".to_owned(), self.sequence.into());
            }
        }
        self.sequence += 1;
        events.typed(&event);
    }

    /// Members that say where in the response an event belongs, then its own; llama.cpp tells the item only.
    fn placed(&self, own: &Value) -> Value {
        let mut members = json!({"item_id": self.facts.prefixed_id("msg_")});
        if self.facts.persona != Persona::LlamaCpp {
            members["output_index"] = 0.into();
            members["content_index"] = 0.into();
        }
        for (name, value) in own.as_object().into_iter().flatten() {
            members[name] = value.clone();
        }
        members
    }

    fn item_event(&mut self, kind: &str, status: &str, events: &mut Events) {
        let mut members = json!({"item": item(&self.facts, &self.text, status)});
        if self.facts.persona != Persona::LlamaCpp {
            members["output_index"] = 0.into();
        }
        self.push(kind, members, events);
    }

    fn progress(&self) -> Value {
        match self.facts.persona {
            Persona::LlamaCpp => {
                json!({"id": self.facts.prefixed_id("resp_"), "object": "response",
                "status": "in_progress"})
            }
            _ => document(&self.facts, "in_progress", json!([]), Value::Null),
        }
    }
}

impl Stream for ResponsesStream {
    fn open(&mut self, _: &Done, events: &mut Events) {
        for kind in ["response.created", "response.in_progress"] {
            self.push(kind, json!({"response": self.progress()}), events);
        }
        self.item_event("response.output_item.added", "in_progress", events);
        let part = match self.facts.persona {
            Persona::LlamaCpp => json!({"type": "output_text", "text": ""}),
            _ => part(&self.facts, ""),
        };
        let members = self.placed(&json!({"part": part}));
        self.push("response.content_part.added", members, events);
    }

    fn token(&mut self, _: u32, text: &str, _: bool, events: &mut Events) {
        self.text.push_str(text);
        let mut members = self.placed(&json!({"delta": text}));
        if self.facts.persona != Persona::LlamaCpp {
            members["logprobs"] = json!([]);
        }
        self.push("response.output_text.delta", members, events);
    }

    fn close(&mut self, done: &Done, events: &mut Events) {
        let members = self.placed(&json!({"text": self.text}));
        self.push("response.output_text.done", members, events);
        let members = self.placed(&json!({"part": part(&self.facts, &self.text)}));
        self.push("response.content_part.done", members, events);
        self.item_event("response.output_item.done", "completed", events);
        let facts = &self.facts;
        let output = json!([item(facts, &self.text, "completed")]);
        let usage = usage::responses(facts, done);
        let mut members = json!({"response": match facts.persona {
            Persona::LlamaCpp => json!({"id": facts.prefixed_id("resp_"), "object": "response",
                "created_at": facts.created, "status": "completed", "model": facts.model, "output": output,
                "usage": usage}),
            _ => document(facts, ended(facts), output, usage),
        }});
        if facts.persona == Persona::LlamaCpp {
            members["timings"] = usage::timings(done);
        }
        let kind = match (facts.persona, ended(facts)) {
            (Persona::OpenAi, "incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        self.push(kind, members, events);
    }
}
