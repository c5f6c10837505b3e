//! The report as text for people.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use super::{Percentiles, Report, TokenCounts};

/// Renders the whole report.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, report);
    out
}

fn write_table(out: &mut String, report: &Report) -> fmt::Result {
    write_requests(out, report)?;
    write_latency(out, report)?;
    write_tokens(out, report)?;
    write_errors(out, report)?;
    write_counts(out, "status", &report.statuses)?;
    write_counts(out, "backend", &report.backends)?;
    let connections = &report.connections;
    writeln!(
        out,
        "connections   {} opened, {} requests on a reused one, {} closed by the server while idle",
        connections.opened, connections.reused, connections.closed_while_idle
    )?;
    writeln!(
        out,
        "bodies        {} sent, {} received, replies' digest {}",
        bytes(report.bytes.sent),
        bytes(report.bytes.received),
        report.replies_digest
    )
}

fn write_requests(out: &mut String, report: &Report) -> fmt::Result {
    let requests = &report.requests;
    writeln!(
        out,
        "requests      {} sent in {:.1} s ({:.1}/s), {} complete ({:.1}/s), {} failed",
        requests.sent,
        report.elapsed_s,
        requests.sent_per_s,
        requests.complete,
        requests.complete_per_s,
        requests.failed
    )?;
    let cancelled = requests.cancelled_in_prefill + requests.cancelled_mid_stream;
    if cancelled > 0 {
        writeln!(
            out,
            "              {cancelled} hung up on by plan: {} before the first token, {} after",
            requests.cancelled_in_prefill, requests.cancelled_mid_stream
        )?;
    }
    if requests.unfinished > 0 {
        writeln!(out, "              {} unfinished at the end", requests.unfinished)?;
    }
    Ok(())
}

fn write_latency(out: &mut String, report: &Report) -> fmt::Result {
    let latency = &report.latency;
    writeln!(
        out,
        "\n{:<14}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "ms", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    for (name, percentiles) in [
        ("ttft", &latency.ttft),
        ("  first turn", &latency.ttft_first_turn),
        ("  follow-up", &latency.ttft_followup),
        ("  from send", &latency.ttft_from_send),
        ("inter-token", &latency.inter_token),
        ("event delay", &latency.event_delay),
        ("total", &latency.total),
        ("issue lag", &latency.issue_lag),
        ("connect", &latency.connect),
    ] {
        write_percentiles(out, name, percentiles)?;
    }
    writeln!(out)
}

fn write_percentiles(out: &mut String, name: &str, values: &Percentiles) -> fmt::Result {
    if values.count == 0 {
        return Ok(());
    }
    write!(out, "{name:<14}{:>9}", values.count)?;
    for value in [
        values.mean_ms,
        values.p50_ms,
        values.p90_ms,
        values.p99_ms,
        values.p99_9_ms,
        values.max_ms,
    ] {
        write!(out, "{value:>10.2}")?;
    }
    writeln!(out)
}

fn write_tokens(out: &mut String, report: &Report) -> fmt::Result {
    for (name, counts) in [("all", &report.tokens.all), ("follow-up", &report.tokens.followup)] {
        let prompt = counts.reused + counts.recomputed;
        if prompt + counts.output > 0 {
            write_token_counts(out, name, counts, prompt)?;
        }
    }
    Ok(())
}

fn write_token_counts(
    out: &mut String,
    name: &str,
    counts: &TokenCounts,
    prompt: u64,
) -> fmt::Result {
    writeln!(
        out,
        "{:<18}{prompt} prompt tokens: {} reused ({:.1} %), {} computed; {} generated; \
         cache reported by {} replies",
        format!("tokens {name}"),
        counts.reused,
        counts.hit_ratio * 100.0,
        counts.recomputed,
        counts.output,
        counts.replies_reporting
    )
}

fn write_errors(out: &mut String, report: &Report) -> fmt::Result {
    for (kind, count) in &report.errors {
        let example = report.error_examples.get(kind).map_or("", String::as_str);
        writeln!(out, "error         {count} {kind}, first: {example}")?;
    }
    Ok(())
}

fn write_counts<K: Display>(
    out: &mut String,
    name: &str,
    counts: &BTreeMap<K, u64>,
) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    write!(out, "{name:<14}")?;
    for (number, (key, count)) in counts.iter().enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        write!(out, "{comma}{key}: {count}")?;
    }
    writeln!(out)
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.0} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let mut report = Report { elapsed_s: 2.0, ..Report::default() };
        report.requests.sent = 12;
        report.requests.complete = 9;
        report.requests.failed = 2;
        report.requests.cancelled_mid_stream = 1;
        report.latency.ttft = Percentiles { count: 9, p99_ms: 12.345, ..Percentiles::default() };
        let counts = TokenCounts {
            replies_reporting: 9,
            reused: 75,
            recomputed: 25,
            output: 5,
            hit_ratio: 0.0,
        };
        report.tokens.all.add(counts);
        report.errors.insert("cut_short".to_owned(), 2);
        report.error_examples.insert("cut_short".to_owned(), "closed".to_owned());
        report.backends.insert("b-0".to_owned(), 7);
        report.backends.insert("b-1".to_owned(), 4);
        report
    }

    #[test]
    fn the_table_tells_what_was_measured() {
        let text = table(&sample());
        for expected in [
            "12 sent in 2.0 s",
            "1 hung up on by plan: 0 before the first token, 1 after",
            "12.35",
            "100 prompt tokens: 75 reused (75.0 %), 25 computed",
            "error         2 cut_short, first: closed",
            "backend       b-0: 7, b-1: 4",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
        }
    }

    #[test]
    fn what_was_not_measured_takes_no_line() {
        let text = table(&sample());
        assert!(!text.contains("inter-token") && !text.contains("unfinished"), "{text}");
        assert!(!text.contains("tokens follow-up") && !text.contains("status"), "{text}");
    }
}
