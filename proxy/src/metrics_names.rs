//! Every metric's name and meaning, in one place. Counters get their `_total` when they are written.
//!
//! Labels are bounded by construction: endpoints, statuses, ends, configured backends, fixed words.
//! Never a model name a client made up, never a path, never anything of a prompt.

/// A metric's name and its help line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    /// Name without the suffix of its type.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
}

const fn metric(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help }
}

// --- Requests, from the learn thread ------------------------------------------------------------

pub(crate) const REQUESTS: Metric = metric(
    "shearwater_requests",
    "Requests ended, by API, status sent, who ended them and backend",
);
pub(crate) const ATTEMPTS: Metric =
    metric("shearwater_attempts", "Backends tried for requests that had one");
pub(crate) const TIME_TO_FIRST_BYTE: Metric = metric(
    "shearwater_time_to_first_byte_seconds",
    "From the request's head to the first byte or event of the reply's body, by backend",
);
pub(crate) const REQUEST_SECONDS: Metric =
    metric("shearwater_request_seconds", "From the request's head to its end, by API");
pub(crate) const WAITING_SECONDS: Metric = metric(
    "shearwater_waiting_seconds",
    "Time requests waited for room or for their turn, those that waited",
);
pub(crate) const DECISION_SECONDS: Metric = metric(
    "shearwater_decision_seconds",
    "From the whole body to a reserved backend: fingerprint, lookup, score, reservation; requests that did not wait",
);
pub(crate) const PHASE_SECONDS: Metric = metric(
    "shearwater_phase_seconds",
    "From one phase of a request to the next, by the phase that ended",
);
pub(crate) const DECISIONS: Metric =
    metric("shearwater_decisions", "Decisions, by their main reason");
pub(crate) const PROMPT_TOKENS: Metric =
    metric("shearwater_prompt_tokens", "Prompt tokens of replies that reported usage, by backend");
pub(crate) const OUTPUT_TOKENS: Metric =
    metric("shearwater_output_tokens", "Output tokens of replies that reported usage, by backend");
pub(crate) const CACHED_PREDICTED: Metric = metric(
    "shearwater_cached_tokens_predicted",
    "Prompt tokens expected in cache, of replies that reported cached tokens, by backend",
);
pub(crate) const CACHED_REPORTED: Metric = metric(
    "shearwater_cached_tokens_reported",
    "Prompt tokens the engine had in cache, by backend",
);
pub(crate) const CACHED_OF: Metric = metric(
    "shearwater_cached_tokens_of",
    "Prompt tokens of replies that reported cached tokens: what to divide by, by backend",
);
pub(crate) const HIT_RATIO: Metric = metric(
    "shearwater_cache_hit_ratio",
    "Share of prompt tokens that engines had in cache, over about the last thousand reports",
);
pub(crate) const EVICTIONS_SEEN: Metric = metric(
    "shearwater_evictions_seen",
    "Replies whose engine held clearly less than predicted, by backend",
);
pub(crate) const EVICTED_BLOCKS: Metric = metric(
    "shearwater_evicted_blocks_seen",
    "Blocks of evidence corrected by such replies, by backend",
);
pub(crate) const PUBLISH_SECONDS: Metric =
    metric("shearwater_index_publish_seconds", "Time to publish a snapshot of the index");

// --- Shards -------------------------------------------------------------------------------------

pub(crate) const CONNECTIONS_ACCEPTED: Metric =
    metric("shearwater_connections_accepted", "Client connections accepted");
pub(crate) const CONNECTIONS_REFUSED: Metric =
    metric("shearwater_connections_refused", "Client connections refused for lack of room");
pub(crate) const CONNECTIONS_CLOSED: Metric =
    metric("shearwater_connections_closed", "Client connections closed");
pub(crate) const ACCEPT_ERRORS: Metric =
    metric("shearwater_accept_errors", "Failures of accept itself");
pub(crate) const PANICS: Metric =
    metric("shearwater_panics", "Connections ended by a caught panic");
pub(crate) const HEADS_REFUSED: Metric =
    metric("shearwater_heads_refused", "Requests whose head was refused");
pub(crate) const UPSTREAM_CONNECTS: Metric =
    metric("shearwater_upstream_connects", "Upstream connections opened");
pub(crate) const UPSTREAM_REUSED: Metric =
    metric("shearwater_upstream_reused", "Upstream connections taken from the pool");
pub(crate) const UPSTREAM_STALE: Metric = metric(
    "shearwater_upstream_stale",
    "Reused upstream connections found dead before any reply byte, and replaced",
);
pub(crate) const RETRIES: Metric = metric(
    "shearwater_retries",
    "Requests sent to another backend after a failure or a busy answer",
);
pub(crate) const GAVE_WAY: Metric = metric(
    "shearwater_gave_way",
    "Requests ended in their prefill and sent again behind one that came home to the same backend",
);
pub(crate) const BUSY_ANSWERS: Metric =
    metric("shearwater_busy_answers", "Busy answers of engines");
pub(crate) const RATE_LIMITED: Metric =
    metric("shearwater_rate_limited_answers", "Answers by which engines refused a caller's quota");
pub(crate) const KEYS_REFUSED: Metric =
    metric("shearwater_key_refused_answers", "Answers by which engines refused a caller's key");
pub(crate) const UPSTREAM_FAILURES: Metric = metric(
    "shearwater_upstream_failures",
    "Failures of backends before any reply byte went to the client",
);
pub(crate) const BODIES_REFUSED: Metric = metric(
    "shearwater_bodies_refused",
    "Requests answered as busy because bodies and replies took all the memory they may",
);
pub(crate) const MEMORY_HELD: Metric = metric(
    "shearwater_body_memory_bytes",
    "Memory held for request bodies, replies not begun and clients that read slowly",
);
pub(crate) const MEMORY_HELD_MAX: Metric =
    metric("shearwater_body_memory_bytes_max", "Memory that may be held so (limits.body_memory)");
pub(crate) const REPLY_BYTES: Metric = metric("shearwater_reply_bytes", "Bytes sent to clients");
pub(crate) const EVENTS: Metric = metric("shearwater_events", "Server-sent events relayed");
pub(crate) const BODIES_REPAIRED: Metric =
    metric("shearwater_bodies_repaired", "Bodies sent with something mended, as [repair] asks");
pub(crate) const BODIES_OPAQUE: Metric = metric(
    "shearwater_bodies_opaque",
    "Bodies sent unmended because they came in an encoding that cannot be read",
);
pub(crate) const SLOTS_NAMED: Metric =
    metric("shearwater_slots_named", "Requests that named their slot of a llama.cpp server");
pub(crate) const SESSIONS: Metric = metric("shearwater_connections", "Client connections open");
pub(crate) const UPSTREAM_IDLE: Metric =
    metric("shearwater_upstream_idle", "Idle upstream connections");
pub(crate) const WAITING: Metric = metric(
    "shearwater_requests_waiting",
    "Requests waiting for room, or for their turn at a busy backend",
);
pub(crate) const DRIVER: Metric =
    metric("shearwater_shards", "Shards, by the I/O driver they run on");

// --- Backends -----------------------------------------------------------------------------------

pub(crate) const BACKEND_UP: Metric =
    metric("shearwater_backend_up", "1 when health checks let the backend serve");
pub(crate) const BACKEND_ADMITS: Metric =
    metric("shearwater_backend_admits", "1 when the backend takes requests, capacity aside");
pub(crate) const BACKEND_ENABLED: Metric =
    metric("shearwater_backend_enabled", "0 when an operator drained or disabled the backend");
pub(crate) const BACKEND_BREAKER: Metric =
    metric("shearwater_backend_breaker_open", "1 when its breaker is open");
pub(crate) const BACKEND_BREAKER_TRYING: Metric = metric(
    "shearwater_backend_breaker_half_open",
    "1 when its breaker lets a few requests try whether it serves again",
);
pub(crate) const BREAKER_OPENED: Metric =
    metric("shearwater_backend_breaker_opened", "Times its breaker opened");
pub(crate) const BACKEND_IN_FLIGHT: Metric =
    metric("shearwater_backend_in_flight", "Requests in flight there");
pub(crate) const BACKEND_TOKENS: Metric =
    metric("shearwater_backend_tokens", "Tokens of requests in flight there");
pub(crate) const BACKEND_UNCACHED: Metric = metric(
    "shearwater_backend_uncached_tokens",
    "Prompt tokens routed there, believed not cached, whose prefill has not ended",
);
pub(crate) const BACKEND_REQUESTS_MAX: Metric =
    metric("shearwater_backend_requests_max", "Requests allowed there at once; 0 is unlimited");
pub(crate) const BACKEND_TOKENS_MAX: Metric =
    metric("shearwater_backend_tokens_max", "Tokens allowed there at once; 0 is unlimited");
pub(crate) const BACKEND_CONVERSATIONS: Metric =
    metric("shearwater_backend_conversations", "Conversations that live there");
pub(crate) const BACKEND_EVIDENCE: Metric =
    metric("shearwater_backend_evidence_blocks", "Blocks of evidence held for it");
pub(crate) const BACKEND_EVIDENCE_MAX: Metric =
    metric("shearwater_backend_evidence_blocks_max", "Blocks of evidence it may have, as learned");
pub(crate) const BACKEND_EVIDENCE_ASSUMED: Metric = metric(
    "shearwater_backend_evidence_blocks_assumed",
    "Blocks it was assumed to hold before its reports taught how many it does",
);
pub(crate) const BACKEND_QUEUE: Metric =
    metric("shearwater_backend_queue_depth", "Requests waiting inside its engine, as reported");
pub(crate) const BACKEND_KV_USAGE: Metric =
    metric("shearwater_backend_kv_usage_ratio", "Share of its KV cache in use, as reported");
pub(crate) const BACKEND_RESTARTS: Metric =
    metric("shearwater_backend_restarts", "Restarts of its engine noticed");
pub(crate) const PROBE_FAILURES: Metric =
    metric("shearwater_backend_probe_failures", "Health probes that failed");
pub(crate) const SCRAPE_FAILURES: Metric =
    metric("shearwater_backend_scrape_failures", "Readings of its own numbers that failed");
pub(crate) const SCRAPE_AGE: Metric = metric(
    "shearwater_backend_scrape_age_seconds",
    "Age of the last good reading of its own numbers",
);
pub(crate) const PROBE_AGE: Metric = metric(
    "shearwater_backend_probe_age_seconds",
    "Age of the last answered health probe, or of the last that flowing replies made needless",
);

// --- Process ------------------------------------------------------------------------------------

pub(crate) const INDEX_BLOCKS: Metric =
    metric("shearwater_index_blocks", "Blocks of evidence, summed over backends");
pub(crate) const INDEX_BYTES: Metric =
    metric("shearwater_index_bytes", "Memory of the index, estimated");
pub(crate) const INDEX_PUBLISHED: Metric =
    metric("shearwater_index_published", "Snapshots published");
pub(crate) const NOTES: Metric = metric("shearwater_notes", "Notes of shards taken in");
pub(crate) const NOTES_LOST: Metric =
    metric("shearwater_notes_lost", "Notes dropped because the queue was full");
pub(crate) const NOTES_QUEUED: Metric =
    metric("shearwater_notes_queued", "Notes waiting for the learn thread");
pub(crate) const LOG_LINES: Metric =
    metric("shearwater_access_log_lines", "Access log lines formed");
pub(crate) const LOG_DROPPED: Metric = metric(
    "shearwater_access_log_lines_dropped",
    "Access log lines dropped because writing did not keep up",
);
pub(crate) const LOG_ERRORS: Metric =
    metric("shearwater_access_log_write_errors", "Failed writes of the access log");
pub(crate) const TAKEOVERS_REFUSED: Metric = metric(
    "shearwater_takeovers_refused",
    "Callers at the takeover socket that were no successor, or one that failed",
);
pub(crate) const READY: Metric = metric("shearwater_ready", "1 when the process takes work");
pub(crate) const BYTES_PER_TOKEN: Metric = metric(
    "shearwater_bytes_per_token",
    "Canonical prompt bytes a token, as learned over all models",
);
pub(crate) const BUILD: Metric = metric("shearwater_build", "What is running");
pub(crate) const STARTED: Metric =
    metric("process_start_time_seconds", "Start of the process, seconds since 1970");
pub(crate) const RESIDENT: Metric = metric("process_resident_memory_bytes", "Resident memory");
pub(crate) const DESCRIPTORS: Metric = metric("process_open_fds", "Open file descriptors");
