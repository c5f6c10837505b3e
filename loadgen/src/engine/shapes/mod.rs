//! The exact form of replies: JSON documents and event streams of every API, as each engine prints them. Nothing here writes
//! to a socket or knows about faults.

mod chat;
mod completions;
pub(crate) mod events;
mod facts;
mod messages;
mod native;
mod responses;
mod usage;

use serde_json::Value;

pub(crate) use facts::{Done, Facts};
pub(crate) use messages::message_start;

use super::ask::Api;
use events::Events;

/// The events of one streamed reply.
pub(crate) trait Stream: Send {
    /// The prompt is computed; tokens follow.
    fn open(&mut self, done: &Done, events: &mut Events);
    /// Token `index` (from 0) has this text; `last` if no more will come.
    fn token(&mut self, index: u32, text: &str, last: bool, events: &mut Events);
    /// Everything after the last token.
    fn close(&mut self, done: &Done, events: &mut Events);
}

/// A whole reply.
pub(crate) fn whole(facts: &Facts, done: &Done, text: &str) -> Value {
    match facts.ask.api {
        Api::Chat => chat::whole(facts, done, text),
        Api::Completions => completions::whole(facts, done, text),
        Api::Responses => responses::whole(facts, done, text),
        Api::Messages => messages::whole(facts, done, text),
        Api::LlamaCompletion => native::llama_whole(facts, done, text),
        Api::Generate => native::generate_whole(facts, done, text),
        Api::Embeddings => native::embedding(facts, text),
    }
}

/// A streamed reply.
pub(crate) fn stream(facts: Facts) -> Box<dyn Stream> {
    match facts.ask.api {
        Api::Chat => Box::new(chat::ChatStream::new(facts)),
        Api::Completions => Box::new(completions::CompletionStream::new(facts)),
        Api::Responses => Box::new(responses::ResponsesStream::new(facts)),
        Api::Messages => Box::new(messages::MessagesStream::new(facts)),
        Api::LlamaCompletion => Box::new(native::LlamaStream::new(facts)),
        Api::Generate | Api::Embeddings => Box::new(native::GenerateStream::new(facts)),
    }
}
