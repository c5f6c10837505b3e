//! The chat template of every simulated engine: tools, then system text, then the turns in place, then the opening of the
//! reply. A reply that comes back in the next request continues the prompt byte for byte, so its KV can be reused.

use std::ops::Range;

use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::json::{push_arguments, push_canonical, push_string};

/// What an engine does with the billing line Claude Code puts first in its system text, on `/v1/messages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Billing {
    /// It is rendered like any text (SGLang).
    #[default]
    Keep,
    /// Its block is dropped (vLLM).
    Drop,
    /// The five characters after `cch=` are overwritten (llama.cpp).
    Blank,
}

/// How one engine renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Claude Code's billing line.
    pub billing: Billing,
    /// Whether later system messages are moved into the first one.
    pub merge_later_system: bool,
}

const BILLING_PREFIX: &str = "x-anthropic-billing-header:";

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text that is tokenised.
    pub text: String,
    /// The billing line in it, if it is there.
    billing: Range<usize>,
}

impl Rendered {
    pub(super) fn plain(text: String) -> Self {
        Self { text, billing: 0..0 }
    }

    /// The hash from which the reply follows. Two engines that treat the billing line differently still reply the same.
    pub fn hash(&self) -> u64 {
        if self.billing.is_empty() {
            return xxh3_64(self.text.as_bytes());
        }
        let mut hasher = Xxh3::new();
        hasher.update(&self.text.as_bytes()[..self.billing.start]);
        hasher.update(&self.text.as_bytes()[self.billing.end..]);
        hasher.digest()
    }
}

/// A prompt in the making.
#[derive(Debug)]
pub(super) struct Template {
    text: String,
    style: Style,
    billing: Range<usize>,
    /// Where the first system turn's text ends, for engines that merge later ones into it.
    system_end: Option<usize>,
}

impl Template {
    pub(super) fn new(style: Style) -> Self {
        Self { text: String::new(), style, billing: 0..0, system_end: None }
    }

    /// One tool, in the form engines hand to their templates whatever the API it came by.
    pub(super) fn tool(&mut self, name: &str, description: &str, parameters: &Value) {
        self.text.push_str("<tool>{\"name\":");
        push_string(name, &mut self.text);
        self.text.push_str(",\"description\":");
        push_string(description, &mut self.text);
        self.text.push_str(",\"parameters\":");
        push_canonical(parameters, &mut self.text);
        self.text.push_str("}</tool>\n");
    }

    /// A tool of a kind that has no common form.
    pub(super) fn other_tool(&mut self, tool: &Value) {
        self.text.push_str("<tool>");
        push_canonical(tool, &mut self.text);
        self.text.push_str("</tool>\n");
    }

    /// The blocks of the system text, as `/v1/messages` has them.
    pub(super) fn system_blocks<'a>(&mut self, blocks: impl Iterator<Item = &'a str>) {
        self.open("system");
        let mut first = true;
        for block in blocks {
            let billing = block.starts_with(BILLING_PREFIX);
            if billing && self.style.billing == Billing::Drop {
                continue;
            }
            if !first {
                self.text.push('\n');
            }
            first = false;
            let start = self.text.len();
            if !billing {
                self.text.push_str(block);
                continue;
            }
            self.push_billing(block);
            self.text.push('\n');
            self.billing = start..self.text.len();
            // The line end above already separates it from the next block.
            first = true;
        }
        self.system_end = Some(self.text.len());
        self.close();
    }

    fn push_billing(&mut self, line: &str) {
        match line.split_once("cch=") {
            Some((before, after)) if self.style.billing == Billing::Blank => {
                self.text.push_str(before);
                self.text.push_str("cch=fffff");
                self.text.push_str(after.get(5..).unwrap_or_default());
            }
            _ => self.text.push_str(line),
        }
    }

    /// One turn with this text.
    pub(super) fn turn(&mut self, role: &str, text: &str) {
        let system = matches!(role, "system" | "developer");
        if system
            && self.style.merge_later_system
            && let Some(end) = self.system_end
        {
            self.text.insert_str(end, &format!("\n{text}"));
            self.system_end = Some(end + 1 + text.len());
            return;
        }
        self.open(if system { "system" } else { role });
        self.text.push_str(text);
        if system && self.system_end.is_none() {
            self.system_end = Some(self.text.len());
        }
        self.close();
    }

    /// The prompt, ready for the reply's first token.
    pub(super) fn finish(mut self) -> Rendered {
        self.open("assistant");
        Rendered { text: self.text, billing: self.billing }
    }

    fn open(&mut self, role: &str) {
        self.text.push_str("<|im_start|>");
        self.text.push_str(role);
        self.text.push('\n');
    }

    fn close(&mut self) {
        self.text.push_str("<|im_end|>\n");
    }
}

/// Appends a tool call the way templates print it.
pub(super) fn push_tool_call(name: &str, arguments: &Value, out: &mut String) {
    out.push_str("<tool_call>{\"name\":");
    push_string(name, out);
    out.push_str(",\"arguments\":");
    push_arguments(arguments, out);
    out.push_str("}</tool_call>");
}

/// Appends one part of a content array: text as it is, anything else as its canonical JSON, media as a hash of it.
pub(super) fn push_part(part: &Value, out: &mut String) {
    match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
        (Some("text" | "input_text" | "output_text") | None, Some(text)) => out.push_str(text),
        (Some("thinking" | "redacted_thinking" | "reasoning"), _) => {}
        _ => {
            let mut json = String::new();
            push_canonical(part, &mut json);
            if json.len() > 256 {
                out.push_str(&format!("<media {:016x}>", xxh3_64(json.as_bytes())));
            } else {
                out.push_str(&json);
            }
        }
    }
}

/// Appends a content: a string and the same text as one part are equal.
pub(super) fn push_content(content: &Value, out: &mut String) {
    match content {
        Value::Null => {}
        Value::String(text) => out.push_str(text),
        Value::Array(parts) => parts.iter().for_each(|part| push_part(part, out)),
        other => push_part(other, out),
    }
}
