//! Sections `[repair]`, `[limits]`, `[timeouts]` and `[stream]`: what is mended in bodies, what one client may send, how long
//! each phase may take, and what clients are told meanwhile.

use crate::error::Problem;
use crate::model::{Limits, Repair, Stream, Timeouts};
use crate::raw::{Bound, Section, Unit};

use super::{narrow, not_above};

const MAX_TOKENS_CAP: Bound = Bound {
    default: 0,
    min: 1,
    max: 16_777_216,
    why: "0 is no cap; a reply has at least one token, and no engine generates millions",
};

const HEAD_BYTES_MAX: Bound = Bound {
    default: 32_768,
    min: 1_024,
    max: 1_048_576,
    why: "ordinary clients send a kilobyte, and every connection may hold one head",
};
const HEADERS_MAX: Bound = Bound {
    default: 100,
    min: 16,
    max: 1_000,
    why: "ordinary clients send a dozen, and engines refuse more than 100 to 256",
};
const BODY_BYTES_MAX: Bound = Bound {
    default: 64 << 20,
    min: 1 << 10,
    max: 4 << 30,
    why: "a body is held in memory whole until an engine has it",
};
const BODY_MEMORY: Bound = Bound {
    default: 0,
    min: 1 << 20,
    max: 1 << 40,
    why: "0 is a quarter of the memory this process may use; one body must fit",
};
const CONNECTIONS_MAX: Bound =
    Bound { default: 0, min: 1, max: 4_194_304, why: "0 derives it from the descriptor limit" };

const HEAD_MS: Bound = Bound {
    default: 10_000,
    min: 10,
    max: 600_000,
    why: "a head is one packet; a longer limit only serves slow attacks",
};
const BODY_IDLE_MS: Bound = Bound {
    default: 30_000,
    min: 10,
    max: 600_000,
    why: "a client that pauses longer while sending is gone",
};
const KEEP_ALIVE_IDLE_MS: Bound = Bound {
    default: 75_000,
    min: 10,
    max: 3_600_000,
    why: "an idle connection holds a descriptor",
};
const CONNECT_MS: Bound = Bound {
    default: 3_000,
    min: 10,
    max: 60_000,
    why: "a backend that does not accept for a minute is down",
};
const FIRST_BYTE_MS: Bound = Bound {
    default: 600_000,
    min: 10,
    max: 86_400_000,
    why: "0 is no limit; a long prefill takes minutes",
};
const STREAM_IDLE_MS: Bound = Bound {
    default: 300_000,
    min: 10,
    max: 86_400_000,
    why: "an engine that is silent for a day is gone",
};
const WRITE_STALL_MS: Bound = Bound {
    default: 60_000,
    min: 10,
    max: 3_600_000,
    why: "a client that reads nothing for an hour holds a slot for nobody",
};
const UPSTREAM_IDLE_MS: Bound = Bound {
    default: 3_000,
    min: 1,
    max: 4_999,
    why: "every engine closes idle connections after 5000 ms, and a request sent then is lost",
};
const KEEPALIVE_MS: Bound = Bound {
    default: 0,
    min: 100,
    max: 600_000,
    why: "0 is never; clients give up after minutes, and each sign of life is a write",
};
const DRAIN_GRACE_MS: Bound =
    Bound { default: 2_000, min: 0, max: 600_000, why: "load balancers notice within seconds" };
const DRAIN_MAX_MS: Bound = Bound {
    default: 120_000,
    min: 0,
    max: 86_400_000,
    why: "a reply that takes longer than a day never ends",
};

/// Reads `[repair]`.
pub(super) fn repair(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Repair {
    let s = &mut section;
    let repair = Repair {
        drop_billing_block: s.flag("drop_billing_block", false),
        include_usage: s.flag("include_usage", false),
        max_tokens_cap: s.unless_zero("max_tokens_cap", Unit::Count, &MAX_TOKENS_CAP).map(narrow),
    };
    problems.extend(section.finish());
    repair
}

/// Reads `[limits]`.
pub(super) fn limits(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Limits {
    let s = &mut section;
    let (body_bytes_max, body_memory) = bodies(s);
    let limits = Limits {
        head_bytes_max: narrow(s.whole("head_bytes_max", Unit::Bytes, &HEAD_BYTES_MAX)),
        headers_max: narrow(s.whole("headers_max", Unit::Count, &HEADERS_MAX)),
        body_bytes_max,
        body_memory,
        connections_max: s
            .unless_zero("connections_max", Unit::Count, &CONNECTIONS_MAX)
            .map(narrow),
    };
    problems.extend(section.finish());
    limits
}

fn bodies(section: &mut Section<'_>) -> (u64, Option<u64>) {
    let one = section.whole("body_bytes_max", Unit::Bytes, &BODY_BYTES_MAX);
    let all = section.unless_zero("body_memory", Unit::Bytes, &BODY_MEMORY);
    let one = match all {
        Some(all) => not_above(section, "body_bytes_max", one, ("body_memory", all)),
        None => one,
    };
    (one, all)
}

/// Reads `[timeouts]`.
pub(super) fn timeouts(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Timeouts {
    let s = &mut section;
    let (drain_grace_ms, drain_max_ms) = drain(s);
    let timeouts = Timeouts {
        head_ms: s.whole("head_ms", Unit::Ms, &HEAD_MS),
        body_idle_ms: s.whole("body_idle_ms", Unit::Ms, &BODY_IDLE_MS),
        keep_alive_idle_ms: s.whole("keep_alive_idle_ms", Unit::Ms, &KEEP_ALIVE_IDLE_MS),
        connect_ms: s.whole("connect_ms", Unit::Ms, &CONNECT_MS),
        first_byte_ms: s.unless_zero("first_byte_ms", Unit::Ms, &FIRST_BYTE_MS),
        stream_idle_ms: s.whole("stream_idle_ms", Unit::Ms, &STREAM_IDLE_MS),
        write_stall_ms: s.whole("write_stall_ms", Unit::Ms, &WRITE_STALL_MS),
        upstream_idle_ms: s.whole("upstream_idle_ms", Unit::Ms, &UPSTREAM_IDLE_MS),
        drain_grace_ms,
        drain_max_ms,
    };
    problems.extend(section.finish());
    timeouts
}

/// Reads `[stream]`.
pub(super) fn stream(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Stream {
    let keepalive_ms = section.unless_zero("keepalive_ms", Unit::Ms, &KEEPALIVE_MS);
    problems.extend(section.finish());
    Stream { keepalive_ms }
}

fn drain(section: &mut Section<'_>) -> (u64, u64) {
    let grace = section.whole("drain_grace_ms", Unit::Ms, &DRAIN_GRACE_MS);
    let max = section.whole("drain_max_ms", Unit::Ms, &DRAIN_MAX_MS);
    (not_above(section, "drain_grace_ms", grace, ("drain_max_ms", max)), max)
}
