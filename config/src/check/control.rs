//! Sections `[health]`, `[log]` and `[explain]`: what happens beside the data path.

use std::path::PathBuf;

use crate::error::Problem;
use crate::model::{AccessLog, Explain, Health, Level, Log, LogFormat};
use crate::raw::{Bound, Section, Unit};

use super::narrow;

const INTERVAL_MS: Bound = Bound {
    default: 2_000,
    min: 50,
    max: 3_600_000,
    why: "probes cost the engine time, and a dead backend must be noticed",
};
const TIMEOUT_MS: Bound = Bound {
    default: 5_000,
    min: 10,
    max: 600_000,
    why: "a busy engine answers late, a hung one never",
};
const FAILURES_TO_DOWN: Bound = Bound {
    default: 3,
    min: 1,
    max: 1_000,
    why: "a backend that is never taken out is not probed",
};
const SUCCESSES_TO_UP: Bound =
    Bound { default: 1, min: 1, max: 1_000, why: "a backend must be able to come back" };
const SCRAPE_INTERVAL_MS: Bound = Bound {
    default: 1_000,
    min: 50,
    max: 3_600_000,
    why: "readings cost the engine time, and old ones mislead",
};
const WEDGED_AFTER_MS: Bound = Bound {
    default: 60_000,
    min: 100,
    max: 86_400_000,
    why: "0 is never; too short a time mistakes a stall for death",
};
const DECISIONS_MAX: Bound = Bound {
    default: 1_000,
    min: 0,
    max: 100_000,
    why: "one decision takes some kilobytes of memory",
};

/// Reads `[health]`.
pub(super) fn health(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Health {
    let s = &mut section;
    let health = Health {
        interval_ms: s.whole("interval_ms", Unit::Ms, &INTERVAL_MS),
        timeout_ms: s.whole("timeout_ms", Unit::Ms, &TIMEOUT_MS),
        failures_to_down: narrow(s.whole("failures_to_down", Unit::Count, &FAILURES_TO_DOWN)),
        successes_to_up: narrow(s.whole("successes_to_up", Unit::Count, &SUCCESSES_TO_UP)),
        scrape_interval_ms: s.whole("scrape_interval_ms", Unit::Ms, &SCRAPE_INTERVAL_MS),
        wedged_after_ms: s.unless_zero("wedged_after_ms", Unit::Ms, &WEDGED_AFTER_MS),
    };
    problems.extend(section.finish());
    health
}

/// Reads `[log]`.
pub(super) fn log(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Log {
    let log = Log {
        access: access(&mut section),
        format: section.choice("format", LogFormat::Json, &LogFormat::NAMES),
        level: section.choice("level", Level::Info, &Level::NAMES),
    };
    problems.extend(section.finish());
    log
}

fn access(section: &mut Section<'_>) -> AccessLog {
    match section.string("access") {
        None => AccessLog::Stdout,
        Some((_, "off")) => AccessLog::Off,
        Some((_, "stdout")) => AccessLog::Stdout,
        Some((_, path)) if path.contains('/') => AccessLog::File(PathBuf::from(path)),
        Some((found, _)) => section
            .fail(&found, "must be off, stdout, or the path of a file with a / in it")
            .unwrap_or(AccessLog::Off),
    }
}

/// Reads `[explain]`.
pub(super) fn explain(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Explain {
    let decisions_max = narrow(section.whole("decisions_max", Unit::Count, &DECISIONS_MAX));
    problems.extend(section.finish());
    Explain { decisions_max }
}
