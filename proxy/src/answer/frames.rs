//! Frames of our own inside a stream: failures after the first byte, engines' error frames put into the client's dialect,
//! and signs of life. An end marker never follows a failure: a client must not take a broken reply for a whole one.

use super::fault::{Details, Fault, with_details};
use super::text::{clean_id, escape, shorten};
use crate::api::Dialect;

/// Why a stream ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The backend closed the connection or sent what cannot be relayed.
    UpstreamFailed,
    /// The backend fell silent.
    UpstreamSilent,
    /// The proxy is shutting down and can wait no longer.
    Draining,
}

impl Breakage {
    fn code(self) -> &'static str {
        match self {
            Breakage::UpstreamFailed => "upstream_error",
            Breakage::UpstreamSilent => "upstream_timeout",
            Breakage::Draining => "draining",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Breakage::UpstreamFailed => {
                "The backend failed during the reply. Send the request again."
            }
            Breakage::UpstreamSilent => "The backend stopped answering. Send the request again.",
            Breakage::Draining => "This server is shutting down. Send the request again.",
        }
    }
}

/// Where in the stream a frame is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameFacts<'a> {
    /// The stream stands inside an event ([`crate::sse::Scanner::is_inside_event`]), which is ended first.
    pub inside_event: bool,
    /// Events relayed so far, the sequence number of the next one.
    pub events: u64,
    /// The request's id, from which the id of a failed response is made.
    pub request_id: &'a str,
}

/// The frame that tells a client that its stream has failed. Nothing may follow it but the end of the body.
pub fn failure_frame(dialect: Dialect, breakage: Breakage, facts: &FrameFacts<'_>) -> Vec<u8> {
    let error = FrameError {
        kind: "server_error",
        messages_kind: "api_error",
        code: breakage.code(),
        message: breakage.message(),
    };
    error.frame(dialect, facts)
}

/// An engine's error event in the client's dialect; `None` if it is in it already and can be relayed as it is. llama.cpp
/// sends one frame to all: its Messages errors have no envelope, its Responses errors no type, and clients skip both.
pub fn engine_error_frame(
    dialect: Dialect,
    data: &[u8],
    facts: &FrameFacts<'_>,
) -> Option<Vec<u8>> {
    with_details(data, |details| {
        let details = details.filter(|details| !details.message.is_empty());
        if details.is_some_and(|details| speaks(dialect, details)) {
            return None;
        }
        let fault = details.map_or(Fault::Broken, Details::fault);
        let message = details.map_or("The backend failed.", |details| shorten(&details.message));
        Some(FrameError::of(fault, message).frame(dialect, facts))
    })
}

fn speaks(dialect: Dialect, details: &Details<'_>) -> bool {
    match dialect {
        Dialect::Chat | Dialect::Plain => details.enveloped,
        Dialect::Messages => {
            details.outer_kind == "error" && details.enveloped && details.has_kind()
        }
        Dialect::Responses => matches!(&*details.outer_kind, "response.failed" | "error"),
    }
}

/// A sign of life for a client that waits: a comment where every reader ignores it, a ping where the dialect has one, an
/// event with data where only data resets the client's timer. Only between events.
pub fn keepalive(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::Chat | Dialect::Plain => b": keepalive\n\n",
        Dialect::Messages => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
        Dialect::Responses => b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
    }
}

struct FrameError<'m> {
    kind: &'static str,
    messages_kind: &'static str,
    code: &'static str,
    message: &'m str,
}

impl FrameError<'_> {
    // Codex stops for good at `context_length_exceeded` and `invalid_prompt`, so these stand for the caller's fault only;
    // it repeats after any other code.
    fn of(fault: Fault, message: &str) -> FrameError<'_> {
        let (kind, messages_kind, code) = match fault {
            Fault::Busy | Fault::PoolExhausted => {
                ("server_error", "overloaded_error", "backends_busy")
            }
            Fault::PromptTooLong => {
                ("invalid_request_error", "invalid_request_error", "context_length_exceeded")
            }
            Fault::CallerFault => {
                ("invalid_request_error", "invalid_request_error", "invalid_prompt")
            }
            Fault::Broken => ("server_error", "api_error", "upstream_error"),
        };
        FrameError { kind, messages_kind, code, message }
    }

    fn frame(&self, dialect: Dialect, facts: &FrameFacts<'_>) -> Vec<u8> {
        // The first line feed ends an open line, the second the event.
        let before = if facts.inside_event { "\n\n" } else { "" };
        format!("{before}{}\n\n", self.lines(dialect, facts)).into_bytes()
    }

    fn lines(&self, dialect: Dialect, facts: &FrameFacts<'_>) -> String {
        let FrameError { kind, messages_kind, code, message } = self;
        let message = escape(message);
        match dialect {
            Dialect::Chat | Dialect::Plain => format!(
                r#"data: {{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#
            ),
            Dialect::Messages => format!(
                "event: error\ndata: {}",
                format_args!(
                    r#"{{"type":"error","error":{{"type":"{messages_kind}","message":"{message}"}}}}"#
                )
            ),
            Dialect::Responses => {
                let (number, id) = (facts.events, clean_id(facts.request_id));
                format!(
                    "event: response.failed\ndata: {}",
                    format_args!(
                        r#"{{"type":"response.failed","sequence_number":{number},"response":{{"id":"resp_{id}","object":"response","status":"failed","error":{{"code":"{code}","message":"{message}"}}}}}}"#
                    )
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::{EventKind, Scanner};

    const DIALECTS: [Dialect; 4] =
        [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain];
    const FACTS: FrameFacts<'_> = FrameFacts { inside_event: false, events: 9, request_id: "1" };

    fn text(frame: Vec<u8>) -> String {
        String::from_utf8(frame).expect("UTF-8")
    }

    #[test]
    fn failure_frames_are_what_the_dialects_expect() {
        let frame = |dialect| text(failure_frame(dialect, Breakage::UpstreamFailed, &FACTS));
        let message = Breakage::UpstreamFailed.message();
        assert_eq!(
            frame(Dialect::Chat),
            format!(
                "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_error\"}}}}\n\n"
            )
        );
        assert_eq!(
            frame(Dialect::Messages),
            format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"{message}\"}}}}\n\n"
            )
        );
        assert_eq!(
            frame(Dialect::Responses),
            format!(
                "event: response.failed\ndata: {{\"type\":\"response.failed\",\"sequence_number\":9,\"response\":{{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"failed\",\"error\":{{\"code\":\"upstream_error\",\"message\":\"{message}\"}}}}}}\n\n"
            )
        );
    }

    #[test]
    fn a_frame_inside_an_event_is_seen_as_an_event_of_its_own() {
        for dialect in DIALECTS {
            for cut in ["data: {\"cho", "data: {}\n", "event: x", ": c"] {
                let mut scanner = Scanner::new(dialect);
                let mut input = cut.as_bytes();
                assert!(scanner.next(&mut input).is_none());
                let facts = FrameFacts { inside_event: scanner.is_inside_event(), ..FACTS };
                let frame = failure_frame(dialect, Breakage::UpstreamSilent, &facts);
                let mut input = frame.as_slice();
                assert!(scanner.next(&mut input).is_some(), "the cut event");
                let event = scanner.next(&mut input).expect("the frame");
                assert_eq!(event.kind, EventKind::Error, "{dialect:?} after {cut:?}");
                assert!(serde_json::from_slice::<serde_json::Value>(event.data).is_ok());
                assert!(scanner.next(&mut input).is_none() && !scanner.is_inside_event());
            }
        }
    }

    #[test]
    fn no_end_marker_follows_a_failure() {
        for dialect in DIALECTS {
            for breakage in [Breakage::UpstreamFailed, Breakage::UpstreamSilent, Breakage::Draining]
            {
                let frame = text(failure_frame(dialect, breakage, &FACTS));
                for marker in ["[DONE]", "message_stop", "response.completed"] {
                    assert!(!frame.contains(marker), "{frame}");
                }
            }
        }
    }

    #[test]
    fn a_keepalive_is_no_content_in_any_dialect() {
        for dialect in DIALECTS {
            let mut scanner = Scanner::new(dialect);
            let mut input = keepalive(dialect);
            let event = scanner.next(&mut input).expect("an event");
            assert!(matches!(event.kind, EventKind::Comment | EventKind::Ping), "{dialect:?}");
            assert_eq!(event.data.is_empty(), matches!(dialect, Dialect::Chat | Dialect::Plain));
        }
    }

    #[test]
    fn engines_errors_are_put_into_the_clients_dialect() {
        let bare = br#"{"code":500,"message":"Context \"size\" has been exceeded.","type":"server_error"}"#;
        let frame = text(engine_error_frame(Dialect::Messages, bare, &FACTS).expect("a frame"));
        assert_eq!(
            frame,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Context \\\"size\\\" has been exceeded.\"}}\n\n"
        );
        let pool = br#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        let frame = text(engine_error_frame(Dialect::Responses, pool, &FACTS).expect("a frame"));
        assert!(
            frame.starts_with("event: response.failed\n") && frame.contains("\"backends_busy\""),
            "{frame}"
        );
        assert!(
            !frame.contains("context_length_exceeded"),
            "a full pool is not the caller's fault"
        );
        let frame = text(engine_error_frame(Dialect::Messages, pool, &FACTS).expect("a frame"));
        assert!(frame.contains("overloaded_error"), "{frame}");
        let long = br#"{"error":{"code":400,"message":"exceeds the available context size","type":"exceed_context_size_error"}}"#;
        let frame = text(engine_error_frame(Dialect::Responses, long, &FACTS).expect("a frame"));
        assert!(frame.contains("\"context_length_exceeded\""), "{frame}");
        let frame =
            text(engine_error_frame(Dialect::Messages, b"garbage", &FACTS).expect("a frame"));
        assert!(frame.contains("\"api_error\""), "{frame}");
    }

    #[test]
    fn an_error_in_the_right_dialect_is_left_alone() {
        for (dialect, data) in [
            (Dialect::Chat, r#"{"error":{"message":"m","code":503}}"#),
            (Dialect::Plain, r#"{"error":{"message":"m","code":503}}"#),
            (Dialect::Messages, r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#),
            (
                Dialect::Responses,
                r#"{"type":"response.failed","response":{"error":{"code":"x","message":"m"}}}"#,
            ),
            (Dialect::Responses, r#"{"type":"error","code":"x","message":"m"}"#),
        ] {
            assert_eq!(engine_error_frame(dialect, data.as_bytes(), &FACTS), None, "{data}");
        }
    }
}
