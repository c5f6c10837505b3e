//! Section `[routing]`: how a backend is chosen.

use toml::de::DeValue;

use crate::error::Problem;
use crate::model::{FingerprintKey, Policy, Routing};
use crate::raw::{Bound, Section, Unit};

use super::{narrow, not_above};

const BLOCK_BYTES: Bound = Bound {
    default: 128,
    min: 64,
    max: 240,
    why: "smaller blocks cost memory and find nothing more, larger ones leave xxh3's short path",
};
/// Blocks are a whole number of these: the stripe of the hash.
const BLOCK_STEP_BYTES: u64 = 16;

const HOME_WAIT_MS: Bound = Bound {
    default: 2_000,
    min: 0,
    max: 600_000,
    why: "no prefill elsewhere takes longer than such a wait",
};
/// As long as a request may wait at all.
const TURN_WAIT_MS: Bound = Bound {
    default: 60_000,
    min: 0,
    max: 600_000,
    why: "no prefill takes longer than such a wait",
};
const GIVE_WAY_MAX: Bound = Bound {
    default: 4,
    min: 0,
    max: 100,
    why: "a prompt that is interrupted so often is never prefilled",
};
const QUEUE_WAIT_MS: Bound = Bound {
    default: 60_000,
    min: 0,
    max: 3_600_000,
    why: "no client is still there after an hour without an answer",
};
const QUEUE_MAX: Bound = Bound {
    default: 4_096,
    min: 0,
    max: 1_000_000,
    why: "each waiting request holds its body in memory",
};
const AFFINITY_ENTRIES: Bound = Bound {
    default: 65_536,
    min: 1,
    max: 16_777_216,
    why: "the table is allocated at the start, and one entry is some tens of bytes",
};
const AFFINITY_IDLE_S: Bound = Bound {
    default: 1_800,
    min: 1,
    max: 43_200,
    why: "ages are kept as 16-bit seconds, which wrap after 18 hours",
};
const OUTPUT_TOKENS_DEFAULT: Bound = Bound {
    default: 512,
    min: 1,
    max: 1_048_576,
    why: "an answer has at least one token, and no engine generates a million",
};
const OUTPUT_TOKENS_CAP: Bound = Bound { default: 2_048, ..OUTPUT_TOKENS_DEFAULT };
const EVIDENCE_BLOCKS_DEFAULT: Bound = Bound {
    default: 65_536,
    min: 64,
    max: 16_777_216,
    why: "less holds no prompt, and more than two gigabytes of text is no cache",
};

// Shares of one. A policy's defaults here are those it has in `index`; a test of the arena holds them equal.
const WEIGHT_HIT: f64 = 0.4;
const WEIGHT_QUEUE: f64 = 0.3;
const WEIGHT_PRESSURE: f64 = 0.3;
const WEIGHT_RANGE: [f64; 2] = [0.0, 1_000.0];
const A_MAX: f64 = 8.0;
/// Below 1, recomputing a token would count less than waiting for one.
const A_MAX_RANGE: [f64; 2] = [1.0, 1_000.0];
const REQUEST_CHARGE_TOKENS: f64 = 100.0;
const REQUEST_CHARGE_RANGE: [f64; 2] = [0.0, 1_000_000.0];

/// Reads the section.
pub(super) fn routing(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Routing {
    let s = &mut section;
    let (home_wait_ms, turn_wait_ms, queue_wait_ms) = waits(s);
    let (output_tokens_default, output_tokens_cap) = output_tokens(s);
    let routing = Routing {
        policy: s.choice("policy", Policy::Cost, &Policy::NAMES),
        block_bytes: block_bytes(s),
        fingerprint_key: fingerprint_key(s),
        home_wait_ms,
        turn_wait_ms,
        give_way_max: narrow(s.whole("give_way_max", Unit::Count, &GIVE_WAY_MAX)),
        queue_wait_ms,
        queue_max: narrow(s.whole("queue_max", Unit::Count, &QUEUE_MAX)),
        session_header: header(s, "session_header"),
        tenant_header: header(s, "tenant_header"),
        affinity_entries: narrow(s.whole("affinity_entries", Unit::Count, &AFFINITY_ENTRIES)),
        affinity_idle_s: s.whole("affinity_idle_s", Unit::Seconds, &AFFINITY_IDLE_S),
        output_tokens_default,
        output_tokens_cap,
        pin_llamacpp_slots: s.flag("pin_llamacpp_slots", false),
        evidence_blocks_default: s.whole(
            "evidence_blocks_default",
            Unit::Count,
            &EVIDENCE_BLOCKS_DEFAULT,
        ),
        weight_hit: s.number("weight_hit", WEIGHT_HIT, WEIGHT_RANGE),
        weight_queue: s.number("weight_queue", WEIGHT_QUEUE, WEIGHT_RANGE),
        weight_pressure: s.number("weight_pressure", WEIGHT_PRESSURE, WEIGHT_RANGE),
        a_max: s.number("a_max", A_MAX, A_MAX_RANGE),
        request_charge_tokens: s.number(
            "request_charge_tokens",
            REQUEST_CHARGE_TOKENS,
            REQUEST_CHARGE_RANGE,
        ),
    };
    problems.extend(section.finish());
    routing
}

/// For a home, for a turn, and for room at all.
fn waits(section: &mut Section<'_>) -> (u64, u64, u64) {
    let home = section.whole("home_wait_ms", Unit::Ms, &HOME_WAIT_MS);
    let turn = section.whole("turn_wait_ms", Unit::Ms, &TURN_WAIT_MS);
    let queue = section.whole("queue_wait_ms", Unit::Ms, &QUEUE_WAIT_MS);
    let home = not_above(section, "home_wait_ms", home, ("queue_wait_ms", queue));
    let turn = not_above(section, "turn_wait_ms", turn, ("queue_wait_ms", queue));
    (home, turn, queue)
}

fn output_tokens(section: &mut Section<'_>) -> (u32, u32) {
    let default = section.whole("output_tokens_default", Unit::Count, &OUTPUT_TOKENS_DEFAULT);
    let cap = section.whole("output_tokens_cap", Unit::Count, &OUTPUT_TOKENS_CAP);
    let default = not_above(section, "output_tokens_default", default, ("output_tokens_cap", cap));
    (narrow(default), narrow(cap))
}

fn block_bytes(section: &mut Section<'_>) -> u32 {
    let value = section.whole("block_bytes", Unit::Bytes, &BLOCK_BYTES);
    if !value.is_multiple_of(BLOCK_STEP_BYTES) {
        let reason = format!("must be a multiple of {BLOCK_STEP_BYTES}");
        section.fail_key("block_bytes", Some(&value.to_string()), &reason);
    }
    narrow(value)
}

/// The key is not repeated in an error, not even a wrong one.
fn fingerprint_key(section: &mut Section<'_>) -> Option<FingerprintKey> {
    let found = section.get("fingerprint_key")?;
    let key = match found.value {
        DeValue::String(text) => hex_key(text),
        _ => None,
    };
    let reason = "must be a string of 16 hexadecimal digits";
    key.or_else(|| section.fail_hidden(&found, reason))
}

fn hex_key(text: &str) -> Option<FingerprintKey> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u64::from_str_radix(text, 16).ok()?;
    digits.then(|| FingerprintKey::new(key))
}

/// Headers that belong to one connection or frame a body never reach the routing.
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const HEADER_BYTES_MAX: usize = 64;

fn header(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    let (found, text) = section.string(key)?;
    let name = text.to_ascii_lowercase();
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > HEADER_BYTES_MAX || !name.bytes().all(token) {
        let reason = format!("must be a header name of 1 to {HEADER_BYTES_MAX} bytes");
        return section.fail(&found, &reason);
    }
    if OF_THE_CONNECTION.contains(&name.as_str()) {
        return section.fail(&found, "this header belongs to the connection, not to the request");
    }
    Some(name)
}
