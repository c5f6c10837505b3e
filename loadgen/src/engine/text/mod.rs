//! What a prompt is to a simulated engine: the text its chat template would render, the tokens and blocks of that text, and the
//! reply that follows from it. Nothing here depends on how the JSON was spelled, only on what it says.

pub mod chain;
mod chat;
mod json;
mod messages;
mod plain;
mod responses;
mod template;
pub mod words;

pub use words::expected_text;

pub use template::{Billing, Rendered, Style};

use serde_json::Value;

use super::ask::Api;

/// Renders the prompt of a request body. `Err` names the member that is missing or of the wrong type.
pub fn render(api: Api, body: &Value, style: Style) -> Result<Rendered, &'static str> {
    match api {
        Api::Chat => chat::render(body, style),
        Api::Responses => responses::render(body, style),
        Api::Messages => messages::render(body, style),
        Api::Completions | Api::LlamaCompletion => plain::render(body, "prompt"),
        Api::Generate => plain::render_first(body, &["text", "input_ids"]),
        Api::Embeddings => plain::render(body, "input"),
    }
}
