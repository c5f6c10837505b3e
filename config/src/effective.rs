//! The configuration in force as TOML: every key with its value, whether typed or default.
//!
//! Reading the output back gives the same [`Config`], but for the fingerprint key: that is a
//! secret and never printed, only that it is set.

use std::fmt::Write;

use crate::model::{AccessLog, Backend, Config, Health, Limits, Log, Repair, Routing, Timeouts};
use crate::units::show_bytes;

impl Config {
    /// This configuration as the text of a file.
    pub fn effective_toml(&self) -> String {
        let mut out = Text::default();
        out.key("listen", list(self.listen.iter().map(ToString::to_string)));
        out.key("admin", quoted(&self.admin.to_string()));
        if let Some(path) = &self.takeover_socket {
            // The path came from a TOML string, so it is valid UTF-8.
            out.key("takeover_socket", quoted(&path.to_string_lossy()));
        }
        out.key("shards", self.shards.unwrap_or(0));
        out.key("passthrough", self.passthrough);
        out.key("unknown_model", quoted(self.unknown_model.name()));
        out.key("response_headers", self.response_headers);
        routing(&mut out, &self.routing);
        repair(&mut out, &self.repair);
        limits(&mut out, &self.limits);
        timeouts(&mut out, &self.timeouts);
        out.table("[stream]");
        out.key("keepalive_ms", self.stream.keepalive_ms.unwrap_or(0));
        health(&mut out, &self.health);
        log(&mut out, &self.log);
        out.table("[explain]");
        out.key("decisions_max", self.explain.decisions_max);
        for one in &self.backends {
            backend(&mut out, one);
        }
        out.0
    }
}

/// The file under construction.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    fn key(&mut self, key: &str, value: impl std::fmt::Display) {
        self.line(format_args!("{key} = {value}"));
    }

    fn table(&mut self, header: &str) {
        self.line(format_args!("\n{header}"));
    }
}

fn routing(out: &mut Text, routing: &Routing) {
    out.table("[routing]");
    out.key("policy", quoted(routing.policy.name()));
    out.key("block_bytes", routing.block_bytes);
    if routing.fingerprint_key.is_some() {
        out.line(format_args!("# fingerprint_key is set; it is secret and not printed"));
    }
    out.key("home_wait_ms", routing.home_wait_ms);
    out.key("turn_wait_ms", routing.turn_wait_ms);
    out.key("give_way_max", routing.give_way_max);
    out.key("queue_wait_ms", routing.queue_wait_ms);
    out.key("queue_max", routing.queue_max);
    if let Some(name) = &routing.session_header {
        out.key("session_header", quoted(name));
    }
    if let Some(name) = &routing.tenant_header {
        out.key("tenant_header", quoted(name));
    }
    out.key("affinity_entries", routing.affinity_entries);
    out.key("affinity_idle_s", routing.affinity_idle_s);
    out.key("output_tokens_default", routing.output_tokens_default);
    out.key("output_tokens_cap", routing.output_tokens_cap);
    out.key("pin_llamacpp_slots", routing.pin_llamacpp_slots);
    out.key("evidence_blocks_default", routing.evidence_blocks_default);
    out.key("weight_hit", float(routing.weight_hit));
    out.key("weight_queue", float(routing.weight_queue));
    out.key("weight_pressure", float(routing.weight_pressure));
    out.key("a_max", float(routing.a_max));
    out.key("request_charge_tokens", float(routing.request_charge_tokens));
}

fn repair(out: &mut Text, repair: &Repair) {
    out.table("[repair]");
    out.key("drop_billing_block", repair.drop_billing_block);
    out.key("include_usage", repair.include_usage);
    out.key("max_tokens_cap", repair.max_tokens_cap.unwrap_or(0));
}

fn limits(out: &mut Text, limits: &Limits) {
    out.table("[limits]");
    out.key("head_bytes_max", show_bytes(u64::from(limits.head_bytes_max)));
    out.key("headers_max", limits.headers_max);
    out.key("body_bytes_max", show_bytes(limits.body_bytes_max));
    out.key("body_memory", show_bytes(limits.body_memory.unwrap_or(0)));
    out.key("connections_max", limits.connections_max.unwrap_or(0));
}

fn timeouts(out: &mut Text, timeouts: &Timeouts) {
    out.table("[timeouts]");
    out.key("head_ms", timeouts.head_ms);
    out.key("body_idle_ms", timeouts.body_idle_ms);
    out.key("keep_alive_idle_ms", timeouts.keep_alive_idle_ms);
    out.key("connect_ms", timeouts.connect_ms);
    out.key("first_byte_ms", timeouts.first_byte_ms.unwrap_or(0));
    out.key("stream_idle_ms", timeouts.stream_idle_ms);
    out.key("write_stall_ms", timeouts.write_stall_ms);
    out.key("upstream_idle_ms", timeouts.upstream_idle_ms);
    out.key("drain_grace_ms", timeouts.drain_grace_ms);
    out.key("drain_max_ms", timeouts.drain_max_ms);
}

fn health(out: &mut Text, health: &Health) {
    out.table("[health]");
    out.key("interval_ms", health.interval_ms);
    out.key("timeout_ms", health.timeout_ms);
    out.key("failures_to_down", health.failures_to_down);
    out.key("successes_to_up", health.successes_to_up);
    out.key("scrape_interval_ms", health.scrape_interval_ms);
    out.key("wedged_after_ms", health.wedged_after_ms.unwrap_or(0));
}

fn log(out: &mut Text, log: &Log) {
    out.table("[log]");
    let access = match &log.access {
        AccessLog::Off => "off".to_owned(),
        AccessLog::Stdout => "stdout".to_owned(),
        // The path came from a TOML string, so it is valid UTF-8.
        AccessLog::File(path) => path.to_string_lossy().into_owned(),
    };
    out.key("access", quoted(&access));
    out.key("format", quoted(log.format.name()));
    out.key("level", quoted(log.level.name()));
}

fn backend(out: &mut Text, backend: &Backend) {
    out.table("[[backend]]");
    out.key("name", quoted(&backend.name));
    out.key("url", quoted(&backend.origin.to_string()));
    out.key("kind", quoted(backend.kind.name()));
    out.key("models", list(backend.models.iter().cloned()));
    out.key("tags", list(backend.tags.iter().cloned()));
    if let Some(slots) = backend.slots {
        out.key("slots", slots);
    }
    if let Some(tokens) = backend.kv_tokens {
        out.key("kv_tokens", tokens);
    }
    if let Some(ranks) = backend.ranks {
        out.key("ranks", ranks);
    }
    out.key("enabled", backend.enabled);
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| quoted(&item)).collect();
    format!("[{}]", items.join(", "))
}

/// A TOML string with whatever quotes and escapes it needs.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A TOML float: always with a point or an exponent.
fn float(value: f64) -> String {
    format!("{value:?}")
}
