//! What a line says, and how it is spelled.
//!
//! Moments are milliseconds since the request's head was complete; a moment that was not reached is
//! left out. It copies nothing from a body or a header. A line is written straight from the record:
//! a serialiser's map and formatter cost more than everything else that is done with a request here.

use config::LogFormat;

use crate::answer::{RequestId, hex};
use crate::clock::{Micros, Stamper};
use crate::published::Upstream;
use crate::record::{Record, Times};

/// Longest moment that is told, µs: 31 years. So many digits are exact in every reader's numbers.
const MOMENT_MAX: u64 = 999_999_999_999_999;

/// A key with what stands around it, one spelling a format.
#[derive(Clone, Copy)]
struct Key {
    json: &'static [u8],
    text: &'static [u8],
}

macro_rules! key {
    ($name:literal) => {
        Key {
            json: concat!(",\"", $name, "\":").as_bytes(),
            text: concat!(" ", $name, "=").as_bytes(),
        }
    };
}

/// Appends a record's line. `wall_ms` is when it ended.
pub fn append(
    out: &mut Vec<u8>,
    format: LogFormat,
    stamper: &mut Stamper,
    record: &Record,
    wall_ms: u64,
    upstreams: &[Upstream],
) {
    let mut line = LineWriter { out, format };
    line.begin(stamper, wall_ms);
    line.who(record, upstreams);
    line.moments(&record.times);
    line.sizes(record);
    line.end();
}

/// A line in the making.
struct LineWriter<'o> {
    out: &'o mut Vec<u8>,
    format: LogFormat,
}

impl LineWriter<'_> {
    fn begin(&mut self, stamper: &mut Stamper, wall_ms: u64) {
        let (before, after): (&[u8], &[u8]) = match self.format {
            LogFormat::Json => (b"{\"time\":\"", b"\""),
            LogFormat::Text => (b"time=", b""),
        };
        self.out.extend_from_slice(before);
        stamper.append(wall_ms, self.out);
        self.out.extend_from_slice(after);
    }

    fn end(&mut self) {
        let end: &[u8] = if self.format == LogFormat::Json { b"}\n" } else { b"\n" };
        self.out.extend_from_slice(end);
    }

    fn who(&mut self, record: &Record, upstreams: &[Upstream]) {
        let decision = record.decision.as_deref();
        self.word(key!("request_id"), RequestId::of(record.request_id).as_bytes());
        self.word(key!("method"), record.method.as_bytes());
        self.string(key!("path"), &record.path);
        self.word(key!("api"), record.api.name().as_bytes());
        if let Some(model) = record.model.as_deref() {
            self.string(key!("model"), model);
        }
        if let Some(id) = record.backend {
            match upstreams.get(id.index()) {
                Some(upstream) => self.string(key!("backend"), &upstream.name),
                None => self.string(key!("backend"), &id.to_string()),
            }
        }
        self.number(key!("status"), u64::from(record.status));
        self.word(key!("end"), record.end.name().as_bytes());
        self.number(key!("attempts"), u64::from(record.attempts));
        if record.gave_way > 0 {
            self.number(key!("gave_way"), u64::from(record.gave_way));
        }
        if let Some(decision) = decision {
            self.word(key!("reason"), decision.reason.name().as_bytes());
        }
        if let Some(conversation) = record.conversation {
            // Half of it, as wherever a conversation is shown.
            let digits = hex(conversation.0);
            self.word(key!("conversation"), digits.get(..8).unwrap_or_default());
        }
    }

    fn moments(&mut self, times: &Times) {
        let moments = [
            (key!("body_ms"), times.body),
            (key!("placed_ms"), times.placed),
            (key!("connected_ms"), times.connected),
            (key!("sent_ms"), times.sent),
            (key!("reply_head_ms"), times.reply_head),
            (key!("first_byte_ms"), times.first_byte),
            (key!("end_ms"), Some(times.end)),
        ];
        for (key, moment) in moments {
            if let Some(moment) = moment {
                self.moment(key, moment, times.head);
            }
        }
    }

    fn sizes(&mut self, record: &Record) {
        let usage = record.usage.as_ref();
        let decision = record.decision.as_deref();
        self.number(key!("waited_ms"), record.waited_ms);
        self.number(key!("request_bytes"), record.request_bytes);
        self.number(key!("reply_bytes"), record.reply_bytes);
        self.key(key!("streamed"));
        self.out.extend_from_slice(if record.streamed { b"true" } else { b"false" });
        self.number(key!("events"), record.events);
        self.number(key!("prompt_tokens_estimated"), record.prompt_tokens_estimate);
        let reported = [
            (key!("prompt_tokens"), usage.map(|usage| usage.prompt_tokens)),
            (key!("output_tokens"), usage.map(|usage| usage.output_tokens)),
            (key!("cached_tokens_predicted"), decision.map(|it| it.predicted_cached_tokens)),
            (key!("cached_tokens"), usage.and_then(|usage| usage.cached_tokens)),
        ];
        for (key, count) in reported {
            if let Some(count) = count {
                self.number(key, count);
            }
        }
        self.number(key!("shard"), u64::from(record.shard));
    }

    fn key(&mut self, key: Key) {
        self.out.extend_from_slice(if self.format == LogFormat::Json {
            key.json
        } else {
            key.text
        });
    }

    fn number(&mut self, key: Key, value: u64) {
        self.key(key);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Milliseconds with as many decimals as they need and at least one, as every number with a point is
    /// spelled in JSON by its shortest form.
    fn moment(&mut self, key: Key, moment: Micros, head: Micros) {
        let micros = moment.since(head).min(MOMENT_MAX);
        self.number(key, micros / 1_000);
        let digit = |of: u64| b'0' + u8::try_from(of % 10).unwrap_or(0);
        let decimals = [b'.', digit(micros / 100), digit(micros / 10), digit(micros)];
        let zeros = decimals.iter().skip(2).rev().take_while(|&&digit| digit == b'0').count();
        self.out.extend_from_slice(decimals.get(..4 - zeros).unwrap_or_default());
    }

    /// A word of ours: no character of it needs escaping, nor quotes in text.
    fn word(&mut self, key: Key, word: &[u8]) {
        self.key(key);
        self.quote();
        self.out.extend_from_slice(word);
        self.quote();
    }

    fn quote(&mut self) {
        if self.format == LogFormat::Json {
            self.out.push(b'"');
        }
    }

    /// A string from outside: quoted and escaped as in JSON, in text only if it must be.
    fn string(&mut self, key: Key, value: &str) {
        self.key(key);
        if self.format == LogFormat::Text && is_bare(value) {
            return self.out.extend_from_slice(value.as_bytes());
        }
        self.out.push(b'"');
        escape_onto(self.out, value);
        self.out.push(b'"');
    }
}

fn is_bare(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"=\\".contains(&byte))
}

/// Appends the inside of a JSON string: quote, backslash and control characters escaped, with the short form
/// where there is one.
fn escape_onto(out: &mut Vec<u8>, value: &str) {
    let needs = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    let mut rest = value.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| needs(byte)) {
        let (plain, from) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = from.split_first() else { return };
        escape_byte(out, byte);
        rest = after;
    }
    out.extend_from_slice(rest);
}

fn escape_byte(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            let low = char::from_digit(u32::from(byte & 15), 16).unwrap_or('0');
            let mut digit = [0; 4];
            out.extend_from_slice(if byte < 16 { b"\\u000" } else { b"\\u001" });
            return out.extend_from_slice(low.encode_utf8(&mut digit).as_bytes());
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests;
