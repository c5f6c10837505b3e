//! Every bound of the crate, with its reason. Nothing here is tuned at run time; what an operator may set is in
//! [`FleetConfig`](crate::FleetConfig) and [`IndexConfig`](crate::IndexConfig), whose defaults also come from here.

/// Most blocks of one prompt the index keeps. 16,384 blocks of 512 bytes are 8 MiB of prompt, two million tokens: four
/// times the longest conversation seen. Blocks beyond it are ignored, so deeper overlap is undercounted, never wrong.
pub const PROMPT_BLOCKS_MAX: usize = 16_384;

/// Most blocks in one span of the tree. A conversation that grows copies its last span once a turn, so this bounds that
/// copy to 2 KiB; at 512 blocks a span's fixed cost is under half a byte a block.
pub const SPAN_BLOCKS_MAX: usize = 512;

/// Backends held inline in a span before a bitmap is allocated: what fits in 16 bytes beside the
/// tag and a mark.
pub const HOLDERS_INLINE_MAX: usize = 5;

/// Spans held by more backends than this are not fused back together: the check looks at every holder, and a widely
/// shared span is a template, of which there are few.
pub const FUSE_HOLDERS_MAX: usize = 32;

/// Distinct branches below a block that make it a template. Measured on the reference traces: 4 and 16 do alike for
/// chat, 16 keeps an agent's own side branches from counting as one.
pub const TEMPLATE_BRANCHES: u32 = 16;

/// Blocks held over all backends together, unless configured: with 16 bytes a block, the most measured, half a gigabyte.
pub const FLEET_BLOCKS_MAX_DEFAULT: u64 = 32 << 20;

/// Blocks assumed for a backend whose engine does not tell its cache size: 65,536 blocks of 512 bytes are about eight
/// million tokens. Too high costs nothing measurable, a quarter of the real size costs most of the hits.
pub const BACKEND_BLOCKS_MAX_DEFAULT: u64 = 65_536;

/// Backends looked at for one eviction when the fleet's bound is reached: the largest of this many goes first. Looking
/// at all would cost the fleet per block.
pub const EVICTION_SAMPLE: usize = 16;

/// Idle holds forgotten in one publication: a backend that fell silent is forgotten in steps of a few microseconds.
pub const EXPIRY_HOLDS_MAX: usize = 64;

/// Corrections that wait for their end: 24 KiB. One that takes back more than a step's work is rare.
pub const CORRECTIONS_MAX: usize = 1024;

/// Blocks of a backend whose order of use is followed beyond its evidence, at most: 32 KiB a backend, whatever it holds.
pub const REUSE_SAMPLES_MAX: usize = 4096;

/// How many of them stand for the capacity assumed of it, at least (and less than twice as many). Distances are then
/// within a fifteenth, and reach to eight times what is assumed. Where less is found, more blocks are followed, so that
/// no fewer than three quarters as many stand for that.
pub const REUSE_SAMPLES_ASSUMED: u64 = 256;

/// How far the capacity learned of a backend may be from the one assumed, in octaves: an eighth to eight times.
pub const CAPACITY_OCTAVES: usize = 3;

/// Votes on a backend's capacity after which an older one counts for little more than a third: a few hundred requests.
pub const CAPACITY_VOTES: f32 = 4096.0;

/// Votes by which a capacity an octave away has to be better than the one expected: a few prompts that were found or lost.
pub const CAPACITY_PRIOR_VOTES: f32 = 8.0;

/// Standard deviations by which votes must differ from a coin's to speak against the capacity assumed: less than one in
/// seven hundred does so by chance, and the votes of one prompt, which are alike, do so no sooner than nine of them.
pub const CAPACITY_DEVIATIONS: f32 = 3.0;

/// Reports mean nothing when less than this part of what was used before was cached, as a divisor.
pub const CAPACITY_COUNTED_DIVISOR: f32 = 64.0;

/// What votes on a capacity still count for after a restart, perhaps with other settings.
pub const CAPACITY_DOUBT: f32 = 0.25;

/// Steps taken in one go (by an observation, by a publication) to give up what a cleared or removed backend held; one
/// step is one span of the way to a hold. About a millisecond: scattered holds cost three microseconds each, since each
/// publication copies the fans on their ways anew.
pub const PURGE_STEPS_MAX: usize = 1024;

/// Spans and fans freed of old snapshots in one publication, for each that waits: some hundred microseconds. A usual
/// batch replaces fewer.
pub const RECLAIM_STEPS: usize = 4096;

/// Conversation pins kept, unless configured: 8 bytes each, half a megabyte.
pub const AFFINITY_ENTRIES_DEFAULT: usize = if cfg!(loom) { 8 } else { 65_536 };

/// A pin unused for this long is forgotten, unless configured (30 minutes).
pub const AFFINITY_IDLE_MS_DEFAULT: u64 = 30 * 60 * 1000;

/// Longest idle time that can be configured (12 hours): ages are 16-bit seconds, which wrap after 18 hours.
pub const AFFINITY_IDLE_MS_MAX: u64 = 12 * 3600 * 1000;

/// Pins in one set: one cache line of 64 bytes.
pub const AFFINITY_WAYS: usize = if cfg!(loom) { 2 } else { 8 };

/// Entries of the recent-routes table: 32 KiB, which stays in a core's cache. A prompt takes at most 29.
pub const RECENT_ENTRIES: usize = if cfg!(loom) { 2 } else { 4_096 };

/// Entries looked at for one hash: one cache line.
pub const RECENT_WAYS: usize = if cfg!(loom) { 2 } else { 8 };

/// How long a route counts before the index must have published it. The writer publishes every millisecond or so; this
/// is what it may be late. Longer would let a route outlive an eviction.
pub const RECENT_MS: u64 = 250;

/// Most requests counted on one backend: 20 bits of its packed word.
pub const SLOT_REQUESTS_MAX: u64 = (1 << 20) - 1;

/// Most tokens counted on one backend: 44 bits of its packed word.
pub const SLOT_TOKENS_MAX: u64 = (1 << 44) - 1;

/// Most tokens one request can be charged: 2^40, so that no sum of charges overflows before it is refused.
pub const CHARGE_TOKENS_MAX: u64 = 1 << 40;

/// Share of the token pool kept spare, as a divisor: a tenth. Token counts are estimates from bytes, and an engine that
/// runs out of pool stops every generation on it.
pub const POOL_SPARE_DIVISOR: u64 = 10;

/// Candidates kept in a decision, best first.
pub const DECISION_CANDIDATES_MAX: usize = 8;

/// Backends of a pool that are all looked at in one decision. Above it a decision looks at a shortlist of about as many:
/// each costs a cache line that other cores write to.
pub const SCAN_BACKENDS_MAX: usize = if cfg!(loom) { 2 } else { 64 };

/// Of the backends that hold part of a prompt, how many a shortlist takes of those whose depth is their own: the deepest.
pub const SHORTLIST_DEEP_MAX: usize = 16;

/// How many it takes of those that share a depth with many: the least busy of the deepest such group.
pub const SHORTLIST_WIDE_MAX: usize = 16;

/// How many it takes whatever they hold: the least busy. Twenty-four taken at random miss the better tenth of a fleet
/// once in twelve decisions, and are taken at random only among equally busy ones.
pub const SHORTLIST_CALM_MAX: usize = 24;

/// How many it takes of a key's line where a policy follows one: all but the last are passed over only when their load
/// is a quarter above the mean, which that of a whole line hardly ever is.
pub const SHORTLIST_LINE_MAX: usize = 16;

/// Leading blocks of a prompt that tell where it belongs, where no conversation is known: two kilobytes. Fewer are the
/// same for everybody under one system prompt, more differ between requests of one template.
pub const HASH_HEAD_BLOCKS: usize = 16;

/// First tokens seen of a backend before their mean counts; until then it is nobody's slower choice.
pub const LATENCY_SAMPLES_COLD: u32 = 20;

/// Seconds without a first token after which what was seen before says nothing: one that was slow for a while is tried
/// again once in so long.
pub const LATENCY_FRESH_S: u32 = 60;

/// Prefill work that makes a backend a busy one, in tokens: about what an engine prefills in half a second.
pub const HEAVY_TOKENS: u64 = 4096;

/// A prompt whose prefill takes this long, at the rate its backend has shown, waits for its turn, ms: below it, others wait
/// too little behind it to be worth a wait of its own (twice as much and a quarter of it cost 0 to 2 % in simulation).
pub const TURN_LONG_MS: u64 = 500;

/// What no engine is too slow to prefill in about one step, in tokens: such a prompt waits for no turn.
pub const TURN_LONG_TOKENS: u64 = 1024;

/// How long before its backend should be done a prompt's turn comes, ms: the time it takes to get there and be
/// tokenized, so that the engine is never idle for it.
pub const TURN_LEAD_MS: u64 = 50;

/// The most often that a prompt may be asked to give way: what its word has room for.
pub const WAY_TIMES_MAX: u32 = 127;

/// What giving way costs beyond the work repeated, ms: the request that is ended and sent again is noticed, sent and
/// tokenized anew, and an engine ends it only between two steps.
pub const WAY_COST_MS: u64 = 50;

/// What is charged beyond that for each token of the one that gives way which its engine has to compute again.
pub const WAY_LOST_PRICE: f64 = 1.0;

/// Samples remembered of how much engines keep, as a divisor: engines of one fleet do not change in that.
pub const WAY_SAMPLES: u64 = 16;

/// A prompt that is being prefilled for so many times as long as it should take, and [`TURN_LONG_MS`] more, was believed
/// cached and is not: twice the time is what an engine that works beside it may need.
pub const WAY_LATE_TIMES: u64 = 2;

/// Who asks for the way has to prefill at most this part of its prompt there, as a divisor: it comes home.
pub const WAY_OWN_DIVISOR: u64 = 2;

/// Holders that drop out of a path at one depth and are written one by one, at some 14 ns each; more are kept as a bitmap,
/// which costs about as much as two of them. Small enough that the system prompt of 32 backends is not written one by one.
pub const DROPOUTS_SINGLE_MAX: usize = 8;

/// Consecutive failures that open a backend's breaker.
pub const BREAKER_FAILURES: u32 = if cfg!(loom) { 2 } else { 3 };

/// First and longest time a breaker stays open before requests are tried, ms, if the backend asks for no more.
pub const BREAKER_OPEN_FIRST_MS: u64 = 1_000;

/// See [`BREAKER_OPEN_FIRST_MS`]. Closed for as long, what was before is forgotten.
pub const BREAKER_OPEN_MAX_MS: u64 = 60_000;

/// Requests that a half-open breaker lets through, all of which must be served: one may be lucky, and each that fails is
/// a retry somebody waits for.
pub const BREAKER_TRIALS: u32 = if cfg!(loom) { 2 } else { 3 };

/// The longest `Retry-After` that a broken backend is granted, ms: it must not switch itself off for good.
pub const RETRY_AFTER_MAX_MS: u64 = 300_000;

/// Terms of one score.
pub const SCORE_TERMS_MAX: usize = 6;

const _: () = assert!(SPAN_BLOCKS_MAX <= PROMPT_BLOCKS_MAX);
const _: () = assert!(AFFINITY_IDLE_MS_DEFAULT <= AFFINITY_IDLE_MS_MAX);
const _: () = assert!(AFFINITY_IDLE_MS_MAX / 1000 < 1 << 16);
const _: () =
    assert!(RECENT_ENTRIES.is_multiple_of(RECENT_WAYS) && RECENT_ENTRIES.is_power_of_two());
const _: () = assert!(CHARGE_TOKENS_MAX <= SLOT_TOKENS_MAX);
const _: () = assert!(SLOT_REQUESTS_MAX.count_ones() + SLOT_TOKENS_MAX.count_ones() == u64::BITS);
