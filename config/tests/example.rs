//! The shipped example names every key with its default, and the effective output reads back.

use std::collections::BTreeSet;

use config::{AccessLog, Config, Kind, Policy};

const EXAMPLE: &str = include_str!("../example.toml");

/// Every key, each with a value that is not its default.
const NOTHING_DEFAULT: &str = r#"
listen = ["0.0.0.0:80", "[::]:81"]
admin = "127.0.0.1:9000"
takeover_socket = "/run/a \"b\".sock"
shards = 3
passthrough = false
unknown_model = "any"
response_headers = false
[routing]
policy = "prefix"
block_bytes = 192
session_header = "X-Chat"
tenant_header = "Authorization"
home_wait_ms = 0
turn_wait_ms = 0
give_way_max = 0
queue_wait_ms = "1min"
queue_max = 1
affinity_entries = 10
affinity_idle_s = "2h"
output_tokens_default = 9
output_tokens_cap = 10
pin_llamacpp_slots = true
evidence_blocks_default = 100
weight_hit = 2
weight_queue = 0.25
weight_pressure = 1e-3
a_max = 1.5
request_charge_tokens = 0
[repair]
drop_billing_block = true
include_usage = true
max_tokens_cap = 4096
[limits]
head_bytes_max = "8KiB"
headers_max = 64
body_bytes_max = 1_000_000
body_memory = "2MiB"
connections_max = 5000
[timeouts]
head_ms = "1s"
body_idle_ms = "2s"
keep_alive_idle_ms = "3s"
connect_ms = 0x100
first_byte_ms = 0
stream_idle_ms = "5s"
write_stall_ms = "6s"
upstream_idle_ms = "4s"
drain_grace_ms = 7
drain_max_ms = 8
[stream]
keepalive_ms = "15s"
[health]
interval_ms = 100
timeout_ms = 101
failures_to_down = 4
successes_to_up = 5
scrape_interval_ms = 102
wedged_after_ms = 103
[log]
access = "./quote\"d \\ path.log"
format = "text"
level = "debug"
[explain]
decisions_max = 0
[[backend]]
name = "gpu-1"
url = "http://GPU-1.example.org"
kind = "llamacpp"
models = ["llama \"3\"", "größer"]
tags = ["eu", "tier:gold"]
slots = 4
kv_tokens = 32768
ranks = 2
enabled = false
[[backend]]
url = "http://[::1]:8000/"
"#;

fn parse(text: &str) -> Config {
    Config::parse("test", text).unwrap_or_else(|error| panic!("{error}"))
}

/// Lines `#key = value` become active; prose has a blank after its `#`.
fn with_optional_keys(example: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    example.lines().map(line).collect()
}

fn keys(text: &str) -> BTreeSet<&str> {
    let key = |line: &'_ str| line.split_once(" = ").map(|_| line.find(' ').unwrap_or(0));
    let active = text.lines().filter(|line| !line.starts_with('#'));
    active.filter_map(|line| key(line).and_then(|end| line.get(..end))).collect()
}

#[test]
fn the_example_is_valid_and_holds_the_defaults() {
    let defaults = Config::from_backends(&["http://127.0.0.1:8000"], &[], None);
    assert_eq!(parse(EXAMPLE), defaults.expect("a start without a file"));
}

#[test]
fn the_example_is_valid_with_its_optional_keys_too() {
    let config = parse(&with_optional_keys(EXAMPLE));
    assert_eq!(config.routing.fingerprint_key.map(|key| key.reveal()), Some(0x0123_4567_89ab_cdef));
    assert_eq!(config.backends[0].name, "gpu-1");
    assert_eq!((config.backends[0].slots, config.backends[0].kv_tokens), (Some(64), Some(400_000)));
}

#[test]
fn the_example_names_every_key_that_the_effective_output_has() {
    let effective = parse(NOTHING_DEFAULT).effective_toml();
    let example = with_optional_keys(EXAMPLE);
    let missing: Vec<_> = keys(&effective).difference(&keys(&example)).copied().collect();
    assert_eq!(missing, Vec::<&str>::new());
    // The key is secret: in the example, never in the output.
    let unprinted: Vec<_> = keys(&example).difference(&keys(&effective)).copied().collect();
    assert_eq!(unprinted, ["fingerprint_key"]);
}

#[test]
fn the_effective_output_reads_back_as_the_same_configuration() {
    for text in [EXAMPLE, NOTHING_DEFAULT] {
        let config = parse(text);
        assert_eq!(parse(&config.effective_toml()), config);
    }
}

#[test]
fn typed_values_arrive_in_their_units() {
    let config = parse(NOTHING_DEFAULT);
    assert_eq!(config.routing.affinity_idle_s, 7_200);
    assert_eq!(config.routing.session_header.as_deref(), Some("x-chat"));
    assert_eq!(config.routing.tenant_header.as_deref(), Some("authorization"));
    assert_eq!(config.stream.keepalive_ms, Some(15_000));
    assert_eq!(config.limits.body_memory, Some(2 << 20));
    assert_eq!(config.limits.head_bytes_max, 8_192);
    assert_eq!(config.limits.connections_max, Some(5_000));
    assert_eq!(config.timeouts.connect_ms, 256);
    assert_eq!(config.timeouts.first_byte_ms, None);
    assert_eq!(config.log.access, AccessLog::File("./quote\"d \\ path.log".into()));
    assert_eq!(config.backends[0].origin.authority(), "gpu-1.example.org:80");
    assert_eq!(config.backends[1].name, "[::1]:8000");
}

#[test]
fn every_name_stands_for_one_value() {
    for name in [
        "round_robin",
        "random",
        "least_requests",
        "power_of_two",
        "ewma",
        "consistent_hash",
        "session",
        "prefix",
    ] {
        assert_eq!(Policy::from_name(name).map(Policy::name), Some(name));
    }
    assert_eq!(Policy::from_name("Cost"), None);
    assert_eq!(Kind::from_name("llamacpp"), Some(Kind::LlamaCpp));
}

#[test]
fn a_default_gives_way_to_a_typed_limit_above_it() {
    let text = "[routing]\nqueue_wait_ms = 500\n[timeouts]\ndrain_max_ms = 10\n\
                [[backend]]\nurl = \"http://a:1\"";
    let config = parse(text);
    assert_eq!((config.routing.home_wait_ms, config.timeouts.drain_grace_ms), (500, 10));
}

#[test]
fn the_fingerprint_key_is_never_printed() {
    let text = with_optional_keys(EXAMPLE);
    let config = parse(&text);
    for shown in [config.effective_toml(), format!("{config:?}")] {
        assert!(!shown.contains("123456789abcdef") && !shown.contains("81985529216486895"));
    }
    assert!(config.effective_toml().contains("# fingerprint_key is set"));
    let mut read_back = parse(&config.effective_toml());
    assert_eq!(read_back.routing.fingerprint_key, None);
    read_back.routing.fingerprint_key = config.routing.fingerprint_key;
    assert_eq!(read_back, config);
}
