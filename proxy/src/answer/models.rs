//! The list of models in the shape the asking client reads. The proxy answers it itself, from the union over healthy
//! backends; it never says which backend serves which model.

use super::text::escape;

/// A model as it is listed.
#[derive(Clone, Copy, Debug)]
pub struct ModelCard<'a> {
    /// The name to ask for.
    pub id: &'a str,
    /// Who made it, as an engine says.
    pub owned_by: &'a str,
    /// Seconds since 1970; 0 if unknown.
    pub created: u64,
    /// Tokens of the largest prompt and its reply together, if known.
    pub tokens_max: Option<u64>,
}

/// Which list a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelsShape {
    /// `{"object":"list","data":[…]}`
    OpenAi,
    /// `{"data":[{"type":"model",…}],"has_more":false,…}`
    Anthropic,
    /// OpenAI's list with `"models":[{"slug":…}]` beside it, which Codex asks for with `?client_version=`.
    Codex,
}

impl ModelsShape {
    /// The shape for a request: `anthropic_version` is that header, `query` the target's query.
    pub fn of(anthropic_version: Option<&[u8]>, query: &[u8]) -> ModelsShape {
        let codex =
            query.split(|&byte| byte == b'&').any(|part| part.starts_with(b"client_version="));
        match anthropic_version {
            Some(_) => ModelsShape::Anthropic,
            None if codex => ModelsShape::Codex,
            None => ModelsShape::OpenAi,
        }
    }
}

/// The body of the answer.
pub fn models_body(shape: ModelsShape, cards: &[ModelCard<'_>]) -> Vec<u8> {
    let body = match shape {
        ModelsShape::OpenAi => format!(r#"{{"object":"list","data":[{}]}}"#, list(cards, openai)),
        ModelsShape::Codex => format!(
            r#"{{"object":"list","data":[{}],"models":[{}]}}"#,
            list(cards, openai),
            list(cards, codex)
        ),
        ModelsShape::Anthropic => {
            let id = |card: Option<&ModelCard<'_>>| {
                card.map_or("null".to_owned(), |card| format!("\"{}\"", escape(card.id)))
            };
            format!(
                r#"{{"data":[{}],"has_more":false,"first_id":{},"last_id":{}}}"#,
                list(cards, anthropic),
                id(cards.first()),
                id(cards.last())
            )
        }
    };
    body.into_bytes()
}

fn list(cards: &[ModelCard<'_>], one: fn(&ModelCard<'_>) -> String) -> String {
    cards.iter().map(one).collect::<Vec<_>>().join(",")
}

fn openai(card: &ModelCard<'_>) -> String {
    let (id, owner) = (escape(card.id), escape(card.owned_by));
    let size = card.tokens_max.map(|tokens| format!(r#","max_model_len":{tokens}"#));
    format!(
        r#"{{"id":"{id}","object":"model","created":{},"owned_by":"{owner}"{}}}"#,
        card.created,
        size.unwrap_or_default()
    )
}

fn codex(card: &ModelCard<'_>) -> String {
    let id = escape(card.id);
    format!(r#"{{"slug":"{id}","display_name":"{id}"}}"#)
}

fn anthropic(card: &ModelCard<'_>) -> String {
    let id = escape(card.id);
    let created = rfc3339(card.created);
    format!(r#"{{"type":"model","id":"{id}","display_name":"{id}","created_at":"{created}"}}"#)
}

/// A time in UTC. Days become a date by counting in cycles of 400 years that begin on the first of March, so that leap
/// days stand at the end of a year (the days-to-civil formula of H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn rfc3339(seconds: u64) -> String {
    // A year beyond 9999 has no such form.
    let seconds = seconds.min(253_402_300_799);
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARDS: [ModelCard<'_>; 2] = [
        ModelCard { id: "a\"b", owned_by: "vllm", created: 1_767_225_600, tokens_max: Some(2048) },
        ModelCard { id: "m", owned_by: "x", created: 0, tokens_max: None },
    ];

    fn json(shape: ModelsShape, cards: &[ModelCard<'_>]) -> serde_json::Value {
        serde_json::from_slice(&models_body(shape, cards)).expect("JSON")
    }

    #[test]
    fn the_shape_follows_the_version_header_and_the_query() {
        assert_eq!(ModelsShape::of(None, b"limit=1000"), ModelsShape::OpenAi);
        assert_eq!(
            ModelsShape::of(Some(b"2023-06-01"), b"client_version=1"),
            ModelsShape::Anthropic
        );
        assert_eq!(ModelsShape::of(None, b"x=1&client_version=0.130.0"), ModelsShape::Codex);
        assert_eq!(ModelsShape::of(None, b"not_client_version=1"), ModelsShape::OpenAi);
    }

    #[test]
    fn each_list_is_what_its_client_reads() {
        let openai = json(ModelsShape::OpenAi, &CARDS);
        assert_eq!(openai["object"], "list");
        assert_eq!(openai["data"][0]["id"], "a\"b");
        assert_eq!(openai["data"][0]["max_model_len"], 2048);
        assert_eq!(
            openai["data"][1],
            serde_json::json!({"id":"m","object":"model","created":0,"owned_by":"x"})
        );
        let anthropic = json(ModelsShape::Anthropic, &CARDS);
        assert_eq!(anthropic["data"][0]["created_at"], "2026-01-01T00:00:00Z");
        assert_eq!(anthropic["data"][1]["type"], "model");
        assert_eq!((&anthropic["first_id"], &anthropic["last_id"]), (&"a\"b".into(), &"m".into()));
        assert_eq!(anthropic["has_more"], false);
        let codex = json(ModelsShape::Codex, &CARDS);
        assert_eq!(codex["models"][1]["slug"], "m");
        assert_eq!(codex["data"][1]["id"], "m");
    }

    #[test]
    fn an_empty_list_is_a_list() {
        assert_eq!(json(ModelsShape::OpenAi, &[])["data"], serde_json::json!([]));
        assert_eq!(json(ModelsShape::Anthropic, &[])["first_id"], serde_json::Value::Null);
    }

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
