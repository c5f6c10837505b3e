//! What a request asks for beside its prompt: the API it came by, streaming, usage, length. Unknown members are ignored, as
//! engines do.

use serde_json::Value;

/// The API of an inference request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
    /// llama.cpp's `/completion`.
    LlamaCompletion,
    /// SGLang's `/generate`.
    Generate,
    /// `/v1/embeddings`.
    Embeddings,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

impl Finish {
    /// As OpenAI names it.
    pub(crate) fn openai(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }

    /// As Anthropic names it.
    pub(crate) fn anthropic(self) -> &'static str {
        match self {
            Finish::Stop => "end_turn",
            Finish::Length => "max_tokens",
        }
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// vLLM and SGLang: usage in every chunk.
    pub(crate) continuous_usage: bool,
    /// llama.cpp: the slot asked for, where the API reads it.
    pub(crate) slot: Option<usize>,
    limit: Option<u32>,
    shortest: u32,
    ignore_eos: bool,
}

impl Ask {
    pub(crate) fn parse(api: Api, body: &Value) -> Self {
        let options = body.get("stream_options");
        let option = |name: &str| options.and_then(|o| o.get(name)).is_some_and(is_true);
        let sampling = if api == Api::Generate { body.get("sampling_params") } else { Some(body) };
        let number = |name: &str| sampling.and_then(|s| s.get(name)).and_then(Value::as_u64);
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            api,
            model: body.get("model").and_then(Value::as_str).map(str::to_owned),
            stream: api != Api::Embeddings && body.get("stream").is_some_and(is_true),
            include_usage: option("include_usage"),
            continuous_usage: option("continuous_usage_stats"),
            slot: slot(api, body),
            limit: limit_names(api).iter().find_map(|name| number(name)).map(small),
            shortest: number("min_tokens").map_or(1, small),
            ignore_eos: sampling.and_then(|s| s.get("ignore_eos")).is_some_and(is_true),
        }
    }

    /// Tokens of the reply, if the prompt's natural reply has `natural` and the context leaves room for `room`.
    pub(crate) fn reply_tokens(&self, natural: u32, room: u32) -> (u32, Finish) {
        if self.api == Api::Embeddings {
            return (0, Finish::Stop);
        }
        let most = self.limit.unwrap_or(u32::MAX).min(room).max(1);
        let wanted = natural.max(self.shortest).max(1);
        if self.ignore_eos && self.limit.is_some() || wanted > most {
            (most, Finish::Length)
        } else {
            (wanted, Finish::Stop)
        }
    }
}

/// Below 0 any slot will do.
fn slot(api: Api, body: &Value) -> Option<usize> {
    let reads = matches!(api, Api::Chat | Api::Completions | Api::LlamaCompletion);
    let number = body.get("id_slot").filter(|_| reads)?.as_u64()?;
    usize::try_from(number).ok()
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn limit_names(api: Api) -> &'static [&'static str] {
    match api {
        Api::Chat => &["max_completion_tokens", "max_tokens", "n_predict"],
        Api::Completions | Api::Messages => &["max_tokens", "n_predict"],
        Api::Responses => &["max_output_tokens"],
        Api::LlamaCompletion => &["n_predict", "max_tokens"],
        Api::Generate => &["max_new_tokens"],
        Api::Embeddings => &[],
    }
}
