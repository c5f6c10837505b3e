//! Every bound of the proxy, with its reason. Nothing grows without one of these; what an operator may
//! change is in the configuration, with its own bounds.

use crate::http::{ChunkLimits, HeadLimits};

// --- Shards -----------------------------------------------------------------------------------------

/// How often a shard looks at its deadlines, ms. Timeouts are seconds, so this is exact enough, and 20
/// wake-ups a second cost nothing measurable.
pub const TICK_MS: u64 = 50;
/// Heads of past replies whose memory a shard keeps: as many as begin within a turn of its loop.
pub const SPARE_HEADS_MAX: usize = 64;
/// A head that grew beyond this gives its memory back; usual ones take a tenth.
pub const SPARE_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Alarms of sessions that are over which a shard keeps beside twice those of the living before it looks for them: 64
/// bytes each.
pub const ALARMS_DROPPED_MAX: usize = 1_024;
/// How often a shard looks at its idle upstream connections, ms: an engine's close is noticed within
/// this, and again when the connection is taken.
pub const POOL_SWEEP_MS: u64 = 250;
/// Submission-queue entries of a shard's ring. One turn of the loop rarely starts more operations; when
/// it does, the ring submits early.
pub const RING_ENTRIES: u32 = 4096;
/// Connections the kernel may queue on a listener before a shard accepts them.
pub const LISTEN_BACKLOG: i32 = 4096;
/// How long accepting pauses after the process ran out of descriptors, ms.
pub const ACCEPT_PAUSE_MS: u64 = 50;
/// How many connections more than the shard with the fewest a shard may have before it leaves the next to
/// others: this many …
pub const ACCEPT_LEAD_MIN: u64 = 2;
/// … and one for so many of the other's, so that a thousand streams lie within a few per cent.
pub const ACCEPT_LEAD_DIVISOR: u64 = 32;
/// How long a shard that is ahead leaves a waiting connection to the others, ms.
pub const ACCEPT_YIELD_MS: u64 = 1;
/// Descriptors kept back from client connections for admin, logs and listeners.
pub const DESCRIPTORS_RESERVED: u64 = 256;
/// Backends may be visited at the same time with so large a part of all descriptors, as a divisor: engines that hang keep
/// their visitors for as long as the timeout, and a whole fleet of them must not take what requests need.
pub const VISITS_DESCRIPTORS_DIVISOR: u64 = 8;
/// Descriptors of a session: its client's connection and its backend's.
pub const DESCRIPTORS_PER_SESSION: usize = 2;
/// Descriptors the process's table has room for from the start, if so many are allowed: 65,000 streams, for 1 MiB of
/// the kernel's memory. Beyond it the kernel doubles the table when it must, and the shards wait meanwhile.
pub const DESCRIPTORS_ROOM: u64 = 131_072;

// --- Buffers ----------------------------------------------------------------------------------------

/// First size of a connection's read buffer, bytes: several SSE events, one page.
pub const READ_BUFFER_FIRST: usize = 4 * 1024;
/// First read of a request: an SDK's head and a chat of 4 KB take one read and not two.
pub const REQUEST_READ_FIRST: usize = 8 * 1024;
/// Largest size of a read buffer, bytes. A read that fills its buffer quadruples it up to here, so bulk
/// bodies move in few reads and token streams keep their page.
pub const READ_BUFFER_MAX: usize = 64 * 1024;
/// Pieces of a request that are handed to the kernel at once; an edited body rarely has more than five. The kernel's
/// own bound is 1,024.
pub const SEND_PIECES_MAX: usize = 64;
/// What is set aside at once for a body whose length the client declared, bytes: addresses, which become memory as they
/// are written. Beyond it the buffer grows, and moves, with what really arrives.
pub const BODY_RESERVE_MAX: usize = 4 * 1024 * 1024;
/// Bodies from this size on leave their memory to later ones, bytes: smaller ones share pages with what else is in use.
pub const SPARE_BODY_MIN: usize = 32 * 1024;
/// What a shard keeps of such memory, bytes: the body of one long conversation, or some twenty usual ones. Far below what
/// one bounded backend's requests take …
pub const SPARE_BODIES_BYTES_MAX: usize = 2560 * 1024;
/// … and for how long after it was used last, ms: a client that sends one every half second finds it.
pub const SPARE_BODY_MS: u64 = 500;
/// A kept buffer is used for bodies down to this much smaller than it, as a divisor: what a body holds beyond its
/// length must stay a small part of it.
pub const SPARE_BODY_FIT_DIVISOR: usize = 5;
/// Room for bodies is a multiple of this, bytes, so that the next turn of a conversation fits where the last one was.
pub const BODY_ROOM_STEP: usize = 16 * 1024;
/// A body in chunks grows by a part of its size, as a divisor, so that its memory is at most so much larger than it …
pub const BODY_GROWTH_DIVISOR: usize = 4;
/// … and by at least this many bytes, so that a small one does not grow with every read.
pub const BODY_GROWTH_MIN: usize = 16 * 1024;
/// Pipelined bytes taken in while a request is being served, bytes. More stays in the kernel.
pub const PIPELINED_MAX: usize = 64 * 1024;
/// What is kept of a reply before it is decided that the reply goes to the client, bytes. An error event
/// is a few hundred bytes; a first event longer than this is content.
pub const HELD_REPLY_MAX: usize = 256 * 1024;
/// Interim (1xx) replies skipped before the real one; more is an upstream that never answers.
pub const INTERIM_REPLIES_MAX: u32 = 16;
/// An open chunk is filled up with blank lines, so that an error event can follow a broken stream, only
/// when at most this many bytes are missing.
pub const CHUNK_FILL_MAX: u64 = 64 * 1024;
/// How long a connection whose request was refused unread is drained before it closes, ms: closing with
/// unread bytes would reset it and take our answer away.
pub const LINGER_MS: u64 = 1_000;
/// How much is drained in that time, bytes.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;

// --- Stream ring ------------------------------------------------------------------------------------

/// Submission-queue entries of a shard's stream ring; when a turn starts more, it submits early.
pub const STREAM_RING_ENTRIES: u32 = 1024;
/// Its completion-queue entries. More wait in the kernel.
pub const STREAM_COMPLETIONS: u32 = 4096;
/// Its read buffers, a power of two. They are held for one turn only, so this bounds what one turn reads.
pub const STREAM_BUFFERS: u16 = 1024;
/// Size of one, bytes: several SSE events. 2 MiB a shard with [`STREAM_BUFFERS`].
pub const STREAM_BUFFER_BYTES: usize = 2048;
/// Bytes a client may leave unread before its stream's upstream is no longer read.
pub const STREAM_BACKLOG_MAX: usize = 64 * 1024;
/// Completions of streams taken in before what follows from them is handed to the kernel: what one engine's step brings
/// may be thousands, and the first client would wait for the last.
pub const STREAM_EVENTS_AT_ONCE: usize = 32;
/// Reads of a stream behind its first event before it rides on the ring: getting on and off costs as much as two or
/// three plain reads, and the shortest replies end here.
pub const READS_BEFORE_RIDE: u32 = 2;
/// Pieces of a stream on the ring after which its engine's acknowledgements are delayed first, and after which it shows whether
/// they still are: an engine that waits for each has sent two by then, and shorter streams need no call.
pub const ACKS_LOOKED_AT_AFTER: u32 = 4;
/// Pieces until they are delayed anew: a pause of 40 ms ends it, and few streams are without one for much longer.
pub const ACKS_ASKED_AGAIN_AFTER: u32 = 64;
/// So many times as long after each try that did not last: an engine that waits for each is late once in most of its streams.
pub const ACKS_ASKED_AGAIN_FACTOR: u32 = 16;
/// The longest of these.
pub const ACKS_ASKED_AGAIN_MAX: u32 = 4096;
/// Rounds of submitting and taking in completions before other tasks of the shard have their turn.
pub const STREAM_ROUNDS_MAX: usize = 64;

// --- Upstream ---------------------------------------------------------------------------------------

/// Idle connections one shard keeps to one backend. llama.cpp spends a thread on each.
pub const POOL_IDLE_PER_BACKEND_MAX: usize = 128;
/// How many backends one request may be sent to before its last error is the answer.
pub const ATTEMPTS_MAX: u32 = 8;
/// Retry budget: retries allowed as a share of requests, per mille, so that retries cannot double a
/// failing fleet's load …
pub const RETRY_SHARE_PERMILLE: u64 = 200;
/// … and the retries always allowed, so that a quiet proxy may retry at all.
pub const RETRY_FLOOR: u64 = 16;
/// Longest a request waits, ms, where nobody takes it only because breakers are open: the last of a pool is tried every second
/// or two, and an engine that is not back after some trials will not be soon.
pub const BREAKER_WAIT_MS: u64 = 5_000;
/// Credentials that engines are remembered to have taken: a word each, and a fleet has teams, not millions, of keys.
pub const CREDENTIALS_KEPT: usize = 4096;
/// How often that is noted anew, ms: seldom against how long it lasts.
pub const CREDENTIAL_NOTED_MS: u64 = 30_000;
/// How long it is remembered, ms: a revoked key is called refused at latest after this, and outages that raise the question
/// are shorter.
pub const CREDENTIAL_KNOWN_MS: u64 = 600_000;
/// How long a backend that refused a key which another took is not believed when it refuses others', ms: its keys are being
/// changed, or it was started with the wrong ones.
pub const REFUSALS_DOUBTED_MS: u64 = 60_000;
/// Requests without a byte that make a silence a backend's and not a prompt's. Two long prompts may meet by chance.
pub const WEDGED_REQUESTS_MIN: u32 = 3;
/// How many times longer silence must last on a backend whose engine says nothing of what it computes: by default ten
/// minutes, after which the SDKs give up by themselves.
pub const WEDGED_BLIND_TIMES: u64 = 10;
/// A prefill is not late before it has taken so many times what it would at the pace learned there: attention makes long
/// prompts slower by the token than the short ones the pace was learned from, and replies are decoded beside it.
pub const PREFILL_LATE_TIMES: u64 = 8;
/// The pace assumed of an engine that has shown none, tokens a second: large models on a CPU prefill this slowly.
pub const PREFILL_TOKENS_PER_S_MIN: u64 = 50;
/// How often a request that waits for its first byte looks whether its backend was given up, ms: short beside the minute
/// that takes, and a thousand waiting requests cost a shard 500 glances a second.
pub const FIRST_BYTE_LOOK_MS: u64 = 2_000;
/// How often one that may have to give way looks whether it has to, ms: an engine's step takes longer than that, and of one
/// backend there is one such request.
pub const GIVE_WAY_LOOK_MS: u64 = 50;
/// How often one looks whether it is late that would then have to give way, ms: no request is late sooner after its turn
/// came, and a thousand waiting ones cost a shard 2,000 glances a second.
pub const LATE_LOOK_MS: u64 = 500;
/// Pause before an engine that said "full" is asked again, ms, if it does not ask for longer …
pub const BUSY_PAUSE_MS: u64 = 100;
/// … and the longest such pause, ms: what it knows is its queue, and somebody may leave it any moment.
pub const BUSY_PAUSE_MAX_MS: u64 = 2_000;
/// Pause before a backend that said "not so many" (429) is asked again for the same request, ms, if it does not say for
/// how long: quotas are counted by the second at the least.
pub const RATE_LIMIT_PAUSE_MS: u64 = 1_000;
/// A reused connection that dies within this long was closed by its engine before the request came, ms: the answer to
/// bytes on a closed connection takes one round trip.
pub const STALE_AFTER_SENT_MS: u64 = 1_000;
/// An engine's error longer than this is not read for what it means, bytes; real ones are a few hundred.
pub const ENGINE_ERROR_BYTES_MAX: usize = 16 * 1024;
/// What of an engine's own message is passed on in an error of ours, bytes.
pub const ENGINE_WORDS_BYTES_MAX: usize = 2 * 1024;

/// Slots of one llama.cpp server that are told apart for pinning; it runs 4 unless told otherwise, and each one is a word
/// to look at for every request there.
pub const PINNED_SLOTS_MAX: usize = 64;
/// How long after a request ended badly its server must be asked before its slot is believed to be idle, ms: a whole reply
/// was seen to be computed for 600 ms after its client had left.
pub const SLOT_SETTLE_MS: u64 = 1_000;

/// Requests of one backend whose clients have left and whose places stay taken at once: as many as it may have slots.
pub const ORPHANS_MAX: usize = 64;
/// How long such a place stays taken at least and at most, ms, where the engine does not say whether it is still at work:
/// one that polls its connections notices within a second, and no first byte is waited for longer than ten minutes.
pub const ORPHAN_MS_MIN: u64 = 2_000;
/// See [`ORPHAN_MS_MIN`].
pub const ORPHAN_MS_MAX: u64 = 600_000;
/// What a token of the reply is taken to cost there, ms: a slow engine's pace, 20 tokens a second.
pub const ORPHAN_TOKEN_MS: u64 = 50;

/// Share of a pool, as a divisor, that a backend whose pool ran out gets back with each reading of its numbers: what made
/// it run out lasts for minutes, and every try fails whoever is served there.
pub const POOL_REGAIN_DIVISOR: u64 = 512;
/// Thousandths of a byte for which a token is reserved on an engine that fails everybody once its pool is used up, until
/// the first reply told what its model makes of bytes: text full of numbers, or in a language that a vocabulary was not
/// made for, comes to two bytes a token. Digits alone come to one, which would let in next to nobody: less is reserved for
/// where they are seen (`density.rs`).
pub const COLD_BYTES_PER_TOKEN_MILLI: u32 = 2_000;
/// Where a body is looked at to tell how many digits it has, and how many bytes there: enough to tell what most of it is,
/// and a few microseconds whatever its size.
pub const DENSITY_LOOKS: usize = 16;
/// See [`DENSITY_LOOKS`].
pub const DENSITY_LOOK_BYTES: usize = 128;

// --- Waiting ----------------------------------------------------------------------------------------

/// How often waiting requests are called to look for room freed by other shards, ms.
pub const WAIT_PULSE_MS: u64 = 2;
/// The same while all of them wait for a turn, which comes once in half a second or more.
pub const WAIT_TURN_PULSE_MS: u64 = 10;
/// How many are called in one pulse by rank, and as many again in turn; bounds the work of a pulse.
pub const WAIT_CALLED_PER_PULSE: usize = 8;
/// One millisecond of waiting counts as this many tokens of prefill less (500 tokens a second was best
/// or near best on every measured workload).
pub const WAIT_AGEING_TOKENS_PER_MS: u64 = 1;

/// Tenants a shard's waiting room tells apart at once; those beyond share one account. It bounds the search for one.
pub const WAIT_TENANTS_MAX: usize = 256;

/// A prompt is answered as too large, instead of waiting, when its estimated tokens are more than so many times the
/// largest pool. Bytes per token differ by less between prompts of one model, and a client told so gives up for good.
pub const PROMPT_TOO_LARGE_TIMES: u64 = 2;

// --- Memory -----------------------------------------------------------------------------------------

/// Bodies and replies may take this part of the memory the process may use, as a divisor, unless configured: what the
/// index, connections and the kernel's socket buffers take is of the same order.
pub const MEMORY_SHARE_DIVISOR: u64 = 4;
/// … and at least this many bytes, the largest body that is allowed by default.
pub const MEMORY_DEFAULT_MIN: u64 = 64 * 1024 * 1024;
/// A shard takes from that budget so many bytes at a time: 40 bodies of coding agents for one write to a shared line.
pub const MEMORY_LEASE_BYTES: u64 = 4 * 1024 * 1024;
/// Of a small budget it takes less at a time: its part divided by this. It keeps up to two leases in hand, so at most a
/// quarter of the budget lies idle with shards that have nothing to do.
pub const MEMORY_LEASES_PER_SHARD: u64 = 8;

/// How long the allocator keeps freed pages before the kernel has them back, ms. A busy process uses them again within
/// this; kept for the second that is its default, bodies that were answered would count for as long.
pub const FREED_PAGES_KEPT_MS: std::ffi::c_long = 10;
/// From this size of the index on the process may use huge pages, bytes: below it they would only be rounding.
pub const HUGE_PAGES_FROM_BYTES: u64 = 64 * 1024 * 1024;

// --- Learning ---------------------------------------------------------------------------------------

/// Notes from the shards waiting for the learn thread. At 100,000 requests a second this is 80 ms; a full
/// queue drops the note and counts it, it never makes a shard wait.
pub const NOTES_MAX: usize = 16 * 1024;
/// How often conversations that have been idle for too long are let go, ms; they idle for half an hour.
pub const AFFINITY_SWEEP_MS: u64 = 60_000;
/// Bytes of a model's name kept in records, logs and metrics.
pub const MODEL_NAME_BYTES_MAX: usize = 128;
/// Bytes of a path kept in records and logs.
pub const PATH_BYTES_MAX: usize = 256;
/// How long the learn thread pauses after a batch of notes while many arrive, ms: the longest an
/// observation of a busy process waits for its snapshot.
pub const LEARN_PAUSE_MIN_MS: u64 = 1;
/// Its longest pause when few or none arrive, ms. What was routed meanwhile is visible to decisions through
/// the index's record of recent routes, which lasts five times longer. A look at nothing costs an idle machine 40 us.
pub const LEARN_PAUSE_MAX_MS: u64 = 50;
/// A batch of fewer notes makes the next pause longer: waking for each costs a quiet process more than what it says, and
/// eight requests leave a small part of what the record of recent routes has room for.
pub const LEARN_BATCH_FEW: usize = 16;
/// Notes taken in before the index is published, so that a flood cannot delay the snapshot.
pub const LEARN_BATCH_MAX: usize = 2048;
/// How often the learn thread looks at budgets, figures of the index and its log, ms.
pub const LEARN_CHORES_MS: u64 = 1_000;
/// A backend's evidence budget is its KV capacity plus this part of it, as a divisor: assumed too high
/// costs nothing measurable, too low costs hits.
pub const EVIDENCE_SPARE_DIVISOR: u64 = 4;
/// A reported shortfall up to this part of the prediction, as a divisor, is rounding and no eviction:
/// bytes per token differ along a prompt.
pub const SHORTFALL_TOLERANCE_DIVISOR: u64 = 16;

// --- Access log -------------------------------------------------------------------------------------

/// Bytes of log lines collected before they are handed to the writing thread.
pub const LOG_CHUNK_BYTES: usize = 64 * 1024;
/// Room for the line that fills a chunk; real ones are below 1 KiB, and a longer one only grows its chunk.
pub const LOG_LINE_BYTES: usize = 1024;
/// Chunks waiting for a slow disk or pipe; beyond it lines are dropped and counted.
pub const LOG_CHUNKS_MAX: usize = 64;
/// How long stopping waits for the log's last lines, ms; a stuck pipe must not keep the process.
pub const LOG_STOP_MS: u64 = 1_000;

// --- Control ----------------------------------------------------------------------------------------

/// Questions the control thread asks of all backends together, a second, for each shard: 4 to 6 % of a core. Beyond it
/// intervals are stretched. With the defaults and one shard that is from 157 backends on.
pub const QUESTIONS_PER_SHARD_SECOND: u64 = 250;
/// Shards that count for it: so many questions take half of what one thread can ask.
pub const QUESTIONS_SHARDS_MAX: u64 = 8;
/// First visits a second while a process starts, for each shard: a thousand backends are known after two seconds, and
/// what they answer does not arrive in one heap.
pub const FIRST_VISITS_PER_SHARD_SECOND: u64 = 500;
/// Shards that count for it: a first visit asks everything, 0.7 ms of work.
pub const FIRST_VISITS_SHARDS_MAX: u64 = 2;
/// What is due within this part of its interval, as a divisor, is asked now, over the connection that is open.
pub const TOGETHER_DIVISOR: u64 = 4;
/// Largest reply of an engine's own endpoints, bytes. SGLang's metrics are 85 KB.
pub const ENGINE_REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often names are resolved again, ms.
pub const RESOLVE_INTERVAL_MS: u64 = 30_000;
/// How often a backend's model list and its fixed facts are read again, ms.
pub const MODELS_INTERVAL_MS: u64 = 10_000;
/// Pause before a backend that refused a connection is asked again, ms: it is either restarting or gone,
/// and either should be known soon.
pub const REFUSED_PAUSE_MS: u64 = 200;
/// How often the control thread looks for breakers that opened, ms.
pub const PATROL_MS: u64 = 100;
/// After a publication of routes none is made for so many times what it took …
pub const PUBLISHING_PAUSE_FACTOR: u64 = 9;
/// … and for no longer than this, ms, however busy the machine was.
pub const PUBLISHING_PAUSE_MAX_MS: u64 = 500;
/// Models taken from one engine's list.
pub const MODELS_PER_BACKEND_MAX: usize = 1_024;
/// Models of the whole fleet.
pub const MODELS_MAX: usize = 4_096;
/// Bytes of a model's name; longer names are ignored.
pub const MODEL_ID_BYTES_MAX: usize = 256;
/// State changes kept for the admin address.
pub const JOURNAL_ENTRIES_MAX: usize = 256;
/// Bytes of an error kept for the admin address; engines put anything into theirs.
pub const ERROR_BYTES_MAX: usize = 200;

// --- Takeover ---------------------------------------------------------------------------------------

/// Listening sockets one process hands over: as many as can be configured, and the admin address.
pub const TAKEOVER_SOCKETS_MAX: usize = 17;
/// Bytes of the message that goes with them: a line of at most 80 for each, and a socket's path.
pub const TAKEOVER_OFFER_BYTES_MAX: usize = 4096;
/// Bytes of every other word between the two processes; the longest is a reason to refuse.
pub const TAKEOVER_WORD_BYTES_MAX: usize = 256;
/// How long either side waits for a word that needs no work, ms.
pub const TAKEOVER_WORD_MS: u64 = 5_000;
/// How long a successor may take to become ready, ms: a first round of questions to a fleet of which some
/// hang takes two timeouts.
pub const TAKEOVER_READY_MS: u64 = 60_000;
/// Prompts of which a successor is told who holds them, the most recently used ones: as many conversations as a large
/// fleet keeps warm, in a fraction of a second of the learn thread's time.
pub const HANDOVER_PATHS_MAX: usize = 64 * 1024;
/// Blocks of all of them together, what they share counted each time: 4 bytes each, so 32 MiB at most.
pub const HANDOVER_BLOCKS_MAX: u64 = 8 * 1024 * 1024;
/// Conversations of which it is told the home, 12 bytes each.
pub const HANDOVER_HOMES_MAX: usize = 1024 * 1024;
/// Bytes it is told in all: those, 14 a prompt, and the backends' names.
pub const HANDOVER_BYTES_MAX: usize = 64 * 1024 * 1024;
const _: () = assert!(
    HANDOVER_BLOCKS_MAX as usize * 4 + HANDOVER_PATHS_MAX * 14 + HANDOVER_HOMES_MAX * 12
        < HANDOVER_BYTES_MAX
);
/// How long the learn thread may take to tell it, or to take it in, ms. Below [`TAKEOVER_WORD_MS`], which the successor
/// waits for each piece.
pub const HANDOVER_MS: u64 = 4_000;
const _: () = assert!(HANDOVER_MS < TAKEOVER_WORD_MS);
/// Callers at the takeover socket at once; all but one are refused anyway.
pub const TAKEOVER_CALLERS_MAX: usize = 4;

// --- Admin ------------------------------------------------------------------------------------------

/// Connections to the admin address at once.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// How long a client of the admin address may take to send a request's head, ms.
pub const ADMIN_HEAD_MS: u64 = 10_000;

// ---- HTTP heads and chunks ----

/// Bytes a head may have, whatever is configured: a bound on what one connection can make us hold,
/// and far below what the 32-bit offsets of a parsed head can name.
pub const HEAD_BYTES_CEILING: usize = 1 << 20;

/// Fields a head may have, whatever is configured: the parser's table lives on the stack, 32 bytes
/// a field.
pub const HEAD_FIELDS_CEILING: usize = 128;

/// Fields the proxy may add to a request on its way (a request id, trace headers, a key, the length
/// of the body).
pub const ADDED_HEADERS_MAX: usize = 8;

/// A client's head. llama.cpp's server answers a bare 400 to a line (request line included) over
/// 8,192 bytes with its CRLF and to more than 100 fields, so no more than that may reach it, our
/// own fields included. 16 KiB in all is what HAProxy takes by default.
pub const REQUEST_HEAD: HeadLimits = HeadLimits {
    bytes_max: 16 * 1024,
    line_bytes_max: 8 * 1024,
    headers_max: 100 - ADDED_HEADERS_MAX,
};

/// An engine's head. Engines send about ten short fields; the room is for proxies between us and
/// them.
pub const RESPONSE_HEAD: HeadLimits = HeadLimits {
    bytes_max: 32 * 1024,
    line_bytes_max: 16 * 1024,
    headers_max: HEAD_FIELDS_CEILING,
};

/// Empty lines passed over before a request line. RFC 9112, 2.2 asks for one; old clients ended a
/// body with one CRLF, and some with two.
pub const LEADING_EMPTY_LINES_MAX: usize = 2;

/// Bytes of a method. The longest registered one has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Options in all Connection fields of a head. Each costs a look at every field; honest heads have
/// one to three.
pub const CONNECTION_OPTIONS_MAX: usize = 16;

/// A client's chunked body. No client of the field uses extensions or trailers; the room is for
/// signing ones.
pub const REQUEST_CHUNKS: ChunkLimits =
    ChunkLimits { extension_bytes_max: 16 * 1024, trailer_bytes_max: 8 * 1024, trailers_max: 32 };

/// An engine's chunked body, which may last for hours: the same per line, more in all.
pub const RESPONSE_CHUNKS: ChunkLimits =
    ChunkLimits { extension_bytes_max: 1 << 20, trailer_bytes_max: 8 * 1024, trailers_max: 32 };
// --- Reading bodies and replies (prompt, conversation, encoding, sse, usage) ---

/// Nesting of a request body. JSON schemas of real tools stay below 30; Python's own parser gives up near 1,000 and some
/// readers overflow their stack near 100,000, so the bound is ours and small.
pub const JSON_DEPTH_MAX: usize = 128;

/// Values in a request body (an array of numbers counts as one). A conversation of 500k tokens with 30 tools has some
/// 30,000; a token costs 16 bytes while the body is read, so this also bounds that table at 16 MiB.
pub const JSON_VALUES_MAX: usize = 1 << 20;

/// Values for which the reading table keeps its memory between requests; beyond it the table is freed after use.
pub const JSON_VALUES_KEPT: usize = 1 << 16;

/// Memory kept between requests for decoding the arguments of one tool call.
pub const DECODED_ARGUMENTS_BYTES_KEPT: usize = 64 * 1024;

/// A conversation id longer than this counts as absent, so that nobody can make us hash megabytes of header.
pub const CONVERSATION_ID_BYTES_MAX: usize = 255;

/// A `metadata.user_id` longer than this is not looked into; real ones are below 300 bytes.
pub const USER_ID_BYTES_MAX: usize = 4096;

/// How much of the first system text and of the first user text identifies a conversation that brings no id.
pub const HEAD_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Decoded size of a compressed request body that is always allowed, whatever its ratio.
pub const DECODED_BYTES_FREE: usize = 1 << 20;

/// How many times larger than its compressed form a body may grow beyond [`DECODED_BYTES_FREE`]. Repetitive JSON
/// reaches about 50; a bomb reaches 1,000.
pub const DECODED_RATIO_MAX: usize = 100;

/// Largest zstd window accepted, as a power of two: 8 MiB, what level 19 uses. The decoder allocates that much.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bytes kept of a stream event that arrives in pieces. Events are 100 to 300 bytes; only a Responses stream repeats the
/// whole reply in its last one, and of that the head (its type) and the tail (its usage) are enough.
pub const SSE_CARRY_BYTES_MAX: usize = 64 * 1024;

/// Bytes at the start of an oversized stream event that are kept for its type; the rest of the carry follows its end.
pub const SSE_CARRY_HEAD_BYTES: usize = 4 * 1024;

/// Last bytes of a JSON reply that are enough to find its usage: the usage object itself is below 600 bytes, and what
/// engines write behind it (timings, metadata, nulls) below 2 KiB.
pub const USAGE_TAIL_BYTES: usize = 16 * 1024;

const _: () = assert!(SSE_CARRY_HEAD_BYTES * 2 < SSE_CARRY_BYTES_MAX);
const _: () = assert!(USAGE_TAIL_BYTES <= SSE_CARRY_BYTES_MAX - SSE_CARRY_HEAD_BYTES);
const _: () = assert!(JSON_VALUES_KEPT <= JSON_VALUES_MAX);
