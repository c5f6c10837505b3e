//! The members of a body that routing reads, found in one pass over its top level. A member that decides where a request
//! goes, and stands twice, is refused: readers of JSON disagree on which one counts, and a request must not be routed by
//! one and served by the other. Members nobody here reads may stand as often as they like.

use super::error::{PromptError, PromptErrorKind};
use super::json::{Kind, Tape, Text, Value};
use crate::limits::USER_ID_BYTES_MAX;
use std::borrow::Cow;

macro_rules! names {
    ($($name:ident = $spelling:literal),* $(,)?) => {
        /// A member that routing reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Name { $($name),* }

        impl Name {
            const ALL: &[Name] = &[$(Name::$name),*];

            /// The member's name in the body.
            pub(super) fn spelling(self) -> &'static str {
                match self { $(Name::$name => $spelling),* }
            }

            fn of(key: &str) -> Option<Name> {
                match key { $($spelling => Some(Name::$name),)* _ => None }
            }
        }
    };
}

names! {
    Model = "model",
    Stream = "stream",
    StreamOptions = "stream_options",
    MaxCompletionTokens = "max_completion_tokens",
    MaxTokens = "max_tokens",
    MaxOutputTokens = "max_output_tokens",
    NPredict = "n_predict",
    SamplingParams = "sampling_params",
    Choices = "n",
    BestOf = "best_of",
    PromptCacheKey = "prompt_cache_key",
    Metadata = "metadata",
    PreviousResponseId = "previous_response_id",
    Conversation = "conversation",
    Store = "store",
    Background = "background",
    LoraPath = "lora_path",
    CacheSalt = "cache_salt",
    ChatTemplate = "chat_template",
    Tools = "tools",
    Functions = "functions",
    Documents = "documents",
    System = "system",
    Instructions = "instructions",
    Messages = "messages",
    Input = "input",
    Prompt = "prompt",
    Text = "text",
    InputIds = "input_ids",
    Content = "content",
    Query = "query",
    Text1 = "text_1",
    Text2 = "text_2",
    ImageData = "image_data",
    InputExtra = "input_extra",
    InputPrefix = "input_prefix",
    InputSuffix = "input_suffix",
}

impl Name {
    /// The names of the bound on generated tokens.
    pub(super) const BOUNDS: [Name; 4] =
        [Name::MaxCompletionTokens, Name::MaxTokens, Name::MaxOutputTokens, Name::NPredict];
}

/// The members found.
pub(super) struct Fields<'t, 'a> {
    values: [Option<Value<'t, 'a>>; Name::ALL.len()],
}

impl<'t, 'a> Fields<'t, 'a> {
    /// Finds the members of `root`.
    pub(super) fn of(root: Value<'t, 'a>) -> Result<Fields<'t, 'a>, PromptError> {
        if root.kind() != Kind::Object {
            return Err(PromptError::new(PromptErrorKind::NotAnObject, root.start()));
        }
        let mut fields = Fields { values: [None; Name::ALL.len()] };
        for (key, value) in root.members() {
            let Some(name) = name_of(key) else { continue };
            let Some(slot) = fields.values.get_mut(name as usize) else { continue };
            if slot.replace(value).is_some() {
                let kind = PromptErrorKind::Duplicate(name.spelling());
                return Err(PromptError::new(kind, value.start()));
            }
        }
        Ok(fields)
    }

    /// A member; null counts as absent.
    pub(super) fn get(&self, name: Name) -> Option<Value<'t, 'a>> {
        self.get_or_null(name).filter(|value| !value.is_null())
    }

    /// A member, null or not.
    pub(super) fn get_or_null(&self, name: Name) -> Option<Value<'t, 'a>> {
        self.values.get(name as usize).copied().flatten()
    }

    /// Does something with a member that is there.
    pub(super) fn with(&self, name: Name, act: impl FnOnce(Value<'t, 'a>)) {
        if let Some(value) = self.get(name) {
            act(value);
        }
    }

    /// A member that is text; an error if it is text but not UTF-8, since nobody can tell how an engine would read it.
    pub(super) fn text(&self, name: Name) -> Result<Option<Cow<'a, str>>, PromptError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Some(text) = value.text() else { return Ok(None) };
        match text.to_str() {
            Some(text) => Ok(Some(text)),
            None => {
                let kind = PromptErrorKind::NotText(name.spelling());
                Err(PromptError::new(kind, value.start()))
            }
        }
    }

    /// Whether a member is `true`.
    pub(super) fn is_true(&self, name: Name) -> bool {
        self.get(name).is_some_and(|value| value.is_true())
    }

    /// The bound on generated tokens, under whichever name the API has for it.
    pub(super) fn output_tokens_max(&self) -> Option<u64> {
        let direct = Name::BOUNDS.into_iter().find_map(|name| self.get(name)?.as_u64());
        direct.or_else(|| self.sampling("max_new_tokens"))
    }

    /// How many replies to each prompt: the larger of what is returned and what is generated.
    pub(super) fn choices(&self) -> u32 {
        let named =
            [Name::Choices, Name::BestOf].into_iter().filter_map(|name| self.get(name)?.as_u64());
        let choices = named.chain(self.sampling("n")).max().unwrap_or(1);
        u32::try_from(choices).unwrap_or(u32::MAX).max(1)
    }

    fn sampling(&self, name: &str) -> Option<u64> {
        self.get(Name::SamplingParams)?.get(name)?.as_u64()
    }

    /// `stream_options.include_usage`.
    pub(super) fn include_usage(&self) -> bool {
        let options = self.get(Name::StreamOptions);
        options
            .and_then(|options| options.get("include_usage"))
            .is_some_and(|value| value.is_true())
    }

    /// The state held by an engine that this request continues.
    pub(super) fn previous_response(&self) -> Option<Cow<'a, str>> {
        let id = self.get(Name::PreviousResponseId).or_else(|| {
            let conversation = self.get(Name::Conversation)?;
            Some(conversation.get("id").unwrap_or(conversation))
        })?;
        id.text()?.to_str()
    }

    /// Whether serving it twice would leave more behind than serving it once.
    pub(super) fn keeps_state(&self) -> bool {
        let continues = [Name::PreviousResponseId, Name::Conversation];
        self.is_true(Name::Store)
            || self.is_true(Name::Background)
            || continues.into_iter().any(|name| self.get(name).is_some())
    }

    /// The session part of `metadata.user_id`, which is JSON inside a string, or (older) `…_session_<id>`.
    pub(super) fn user_session(&self) -> Option<Cow<'a, str>> {
        let user = self.get(Name::Metadata)?.get("user_id")?.text()?;
        if user.raw().len() > USER_ID_BYTES_MAX {
            return None;
        }
        let user = user.to_str()?;
        let session = session_in_json(&user).or_else(|| session_in_name(&user))?;
        (!session.is_empty()).then_some(Cow::Owned(session))
    }
}

fn name_of(key: Text<'_>) -> Option<Name> {
    std::str::from_utf8(key.name().bytes()).ok().and_then(Name::of)
}

fn session_in_json(user: &str) -> Option<String> {
    let mut tape = Tape::default();
    tape.parse(user.as_bytes()).ok()?;
    let session = Value::root(user.as_bytes(), tape.tokens()).get("session_id")?;
    session.text()?.to_str().map(Cow::into_owned)
}

fn session_in_name(user: &str) -> Option<String> {
    user.rsplit_once("_session_").map(|(_, session)| session.to_owned())
}
