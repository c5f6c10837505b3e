//! Shared pieces of the reply formats.
//!
//! Every event is parsed into borrowed fields: the whole event is checked to be JSON, but only
//! what is needed is kept, and nothing is allocated for text without escapes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::fault::{Fault, FaultKind};
use crate::report::TokenCounts;

/// Text that borrows from the event where it can. The wrapper is what makes serde borrow inside
/// an `Option`.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes the first element of an array and passes over the others, without a vector.
pub(super) fn first<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct First<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array or null")
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<T>, A::Error> {
            let first = array.next_element()?;
            while array.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_any(First(PhantomData))
}

/// Why an event could not be read into its expected fields.
pub(super) enum Unread {
    /// JSON of another shape: an event this client does not know.
    Unknown,
    /// No JSON at all.
    Malformed(Fault),
}

/// Parses an event's data.
pub(super) fn event<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Unread> {
    serde_json::from_slice(data).map_err(|error| {
        let syntax = error.is_syntax() || error.is_eof();
        if !syntax && serde_json::from_slice::<IgnoredAny>(data).is_ok() {
            return Unread::Unknown;
        }
        Unread::Malformed(Fault::new(FaultKind::BadEvent, format!("no JSON: {error}")))
    })
}

/// The fault told by an `error` member: its message and code, whatever the engine's envelope.
pub(super) fn error_event(error: &Value) -> Fault {
    Fault::new(FaultKind::ErrorEvent, error_text(error))
}

/// The most telling text of an error body, in any of the engines' envelopes.
pub(super) fn error_text(error: &Value) -> String {
    let inner = error.get("error").unwrap_or(error);
    let message = inner.get("message").or_else(|| inner.get("type")).unwrap_or(inner);
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}

/// `usage` of chat and completions, and llama.cpp's `timings` beside it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ChatUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<CachedTokens>,
}

/// `usage` of responses.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ResponsesUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<CachedTokens>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct CachedTokens {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// llama.cpp: tokens reused and computed, in every reply.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Timings {
    cache_n: u64,
    prompt_n: u64,
    #[serde(default)]
    predicted_n: u64,
}

/// `usage` of messages: `input_tokens` does not contain the cached ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct MessagesUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

impl MessagesUsage {
    /// A stream reports in two events; what the later one leaves out is still true.
    pub(super) fn updated(self, later: MessagesUsage) -> MessagesUsage {
        MessagesUsage {
            input_tokens: later.input_tokens.or(self.input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
        }
    }

    pub(super) fn counts(self) -> Option<TokenCounts> {
        let computed = self.input_tokens? + self.cache_creation_input_tokens.unwrap_or(0);
        let cached = self.cache_read_input_tokens;
        Some(counts(computed + cached.unwrap_or(0), cached, self.output_tokens))
    }
}

impl ChatUsage {
    pub(super) fn counts(self) -> Option<TokenCounts> {
        let cached = self.prompt_tokens_details.and_then(|details| details.cached_tokens);
        Some(counts(self.prompt_tokens?, cached, self.completion_tokens))
    }

    /// Whether the cached share is part of the report.
    pub(super) fn reports_cached(self) -> bool {
        self.prompt_tokens_details.is_some_and(|details| details.cached_tokens.is_some())
    }
}

impl ResponsesUsage {
    pub(super) fn counts(self) -> Option<TokenCounts> {
        let cached = self.input_tokens_details.and_then(|details| details.cached_tokens);
        Some(counts(self.input_tokens?, cached, self.output_tokens))
    }
}

impl Timings {
    pub(super) fn counts(self) -> TokenCounts {
        counts(self.cache_n + self.prompt_n, Some(self.cache_n), Some(self.predicted_n))
    }
}

/// An engine that does not say what it reused is taken to have computed all, and is not counted
/// among the replies that reported.
fn counts(prompt: u64, cached: Option<u64>, output: Option<u64>) -> TokenCounts {
    let reused = cached.unwrap_or(0).min(prompt);
    TokenCounts {
        replies_reporting: u64::from(cached.is_some()),
        reused,
        recomputed: prompt - reused,
        output: output.unwrap_or(0),
        hit_ratio: 0.0,
    }
}
