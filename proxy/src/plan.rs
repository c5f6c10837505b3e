//! What a request's body means for routing: its model, its prompt's fingerprint, whose conversation it is.
//!
//! The body is decoded and read here once, to be looked at; what is forwarded is what came, but for the
//! bytes an operator asked to have mended. Nothing of the
//! prompt's text outlives this step: only hashes and sizes go on.

use std::borrow::Cow;

use bytes::Bytes;
use index::{
    Ask, BackendSet, ConversationKey, FingerprintKey, Fingerprinter, Millis, SequenceHash,
    conversation_key,
};

use crate::answer::Situation;
use crate::api::Api;
use crate::conversation;
use crate::density;
use crate::encoding::{self, Decoded, EncodingError};
use crate::memory::Loan;
use crate::prompt::{self, Canon, Prompt, Repairs, Wanted};
use crate::published::{Pool, Published, Routes};
use crate::wait::TenantKey;

/// What the decision needs to know of a request.
#[derive(Debug, Default)]
pub struct Plan {
    /// Model asked for; `None` goes to any backend.
    pub model: Option<Box<str>>,
    /// Fingerprint of its prompt.
    pub blocks: Vec<SequenceHash>,
    /// Canonical bytes of its prompt.
    pub canonical_bytes: u64,
    /// Thousandths of such a byte for which a token is to be reserved until a reply told; only where that is asked for.
    pub cold_bytes_per_token_milli: Option<u32>,
    /// Tokens its reply may take, as budgeted.
    pub output_tokens: u64,
    /// Whether its reply comes token by token.
    pub streams: bool,
    /// Whose conversation it is.
    pub conversation: Option<ConversationKey>,
    /// Whose room it takes, where tenants are told apart.
    pub tenant: Option<TenantKey>,
    /// Whether it takes a slot; side calls do not.
    pub reserves: bool,
    /// Whether its body asks an engine to remember something, or could not be read.
    pub keeps_state: bool,
    /// What may be mended in its body, if anything.
    pub mending: Option<Box<Mending>>,
    /// Its body cannot be looked into, so nothing in it can be mended.
    pub opaque: bool,
}

/// What may be mended in a body.
#[derive(Debug)]
pub struct Mending {
    /// What was found.
    pub repairs: Repairs,
    /// The body unpacked, where it came compressed: the edits are of this one.
    pub unpacked: Option<Bytes>,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Planned {
    /// Send it to a backend.
    Forward(Plan),
    /// Answer it.
    Answer(Situation),
}

impl Canon for Fingerprinter {
    fn root(&mut self, part: &[u8]) {
        Fingerprinter::root(self, part);
    }

    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) {
        Fingerprinter::push(self, bytes);
    }
}

/// What planning looks at besides the request.
#[derive(Debug)]
pub struct Views<'v> {
    /// What all threads share.
    pub shared: &'static Published,
    /// Models and pools.
    pub routes: &'v Routes,
    /// Memory for reading bodies.
    pub scratch: &'v mut prompt::Scratch,
}

/// Plans a request whose body is complete. `get` looks a header up by its lower-case name.
pub fn plan<'h>(
    views: &mut Views<'_>,
    api: Api,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
) -> Planned {
    if api == Api::Other && !views.shared.config.passthrough {
        return Planned::Answer(Situation::UnknownPath);
    }
    let mut plan = Plan {
        reserves: api.reserves_slot(),
        tenant: tenant_of(views.shared, get),
        output_tokens: output_tokens(views.shared, None, 1),
        ..Plan::default()
    };
    if !api.reads_prompt() {
        return Planned::Forward(plan);
    }
    let room = lend_for_decoding(views.shared, get, body);
    let read = match decode(&room, get, body) {
        Ok(Some(decoded)) => {
            let read = read_prompt(views, api, get, &decoded, &mut plan);
            if let (Cow::Owned(bytes), Some(mending)) = (decoded, &mut plan.mending) {
                mending.unpacked = Some(bytes.into());
            }
            read
        }
        Ok(None) => {
            plan.opaque = true;
            plan.keeps_state = true;
            plan.conversation = conversation_of(views.shared, get, None);
            Ok(())
        }
        Err(situation) => Err(situation),
    };
    match read {
        Ok(()) => Planned::Forward(plan),
        Err(situation) => Planned::Answer(situation),
    }
}

/// Memory for the decoded copy of a body, which lasts as long as this step. A body that needs no decoding needs none.
fn lend_for_decoding<'s, 'h>(
    shared: &'s Published,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
) -> Room<'s> {
    let body_max = usize::try_from(shared.body_bytes_max()).unwrap_or(usize::MAX);
    let wanted = encoding::decoded_max(get("content-encoding"), body.len(), body_max) as u64;
    Room { body_max, wanted, lent: shared.memory.lend(wanted) }
}

struct Room<'s> {
    body_max: usize,
    wanted: u64,
    lent: Loan<'s>,
}

/// The body as text; `None` when its encoding is unknown, so that only its headers can be gone by.
fn decode<'b, 'h>(
    room: &Room<'_>,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &'b [u8],
) -> Result<Option<Cow<'b, [u8]>>, Situation> {
    let short = room.lent.bytes() < room.wanted;
    let lent = usize::try_from(room.lent.bytes()).unwrap_or(usize::MAX);
    let max = if short { lent } else { room.body_max };
    match encoding::decode(get("content-encoding"), body, max) {
        Ok(Decoded::Plain(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Inflated(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Opaque) => Ok(None),
        Err(EncodingError::TooLarge) if short => Err(Situation::NoMemory),
        Err(EncodingError::TooLarge) => Err(Situation::BodyTooLarge),
        Err(_) => Err(Situation::BadEncoding),
    }
}

fn read_prompt<'h>(
    views: &mut Views<'_>,
    api: Api,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
    plan: &mut Plan,
) -> Result<(), Situation> {
    let shared = views.shared;
    let canon = Fingerprinter::new(shared.key, shared.config.routing.block_bytes);
    let mut canon = canon.expecting(body.len());
    let read = prompt::read_and_mend(views.scratch, api, body, &mut canon, &wanted(shared));
    let (prompt, repairs) = read.map_err(|_| Situation::BadJson)?;
    let pool = shared.pool_of(views.routes, prompt.model.as_deref());
    let pool = pool.ok_or(Situation::UnknownModel)?;
    let cold = pool.learned.is_untaught() && fails_when_full(shared, pool);
    plan.cold_bytes_per_token_milli = cold.then(|| density::bytes_per_token_milli(body));
    plan.keeps_state = prompt.keeps_state;
    plan.model = prompt.model.as_deref().map(Into::into);
    plan.mending =
        (repairs != Repairs::default()).then(|| Box::new(Mending { repairs, unpacked: None }));
    plan.output_tokens = output_tokens(shared, prompt.output_tokens_max, prompt.choices);
    plan.canonical_bytes = prompt.canonical_bytes;
    plan.streams = prompt.stream;
    plan.conversation = conversation_of(shared, get, Some(&prompt));
    if api.fills_cache() {
        plan.blocks = canon.finish().blocks;
    }
    Ok(())
}

/// What is to be looked for while a body is read.
pub fn wanted(shared: &Published) -> Wanted {
    let repair = &shared.config.repair;
    Wanted {
        drop_billing_block: repair.drop_billing_block,
        include_usage: repair.include_usage,
        max_tokens_cap: repair.max_tokens_cap.map(u64::from),
        id_slot: shared.config.routing.pin_llamacpp_slots,
    }
}

/// What a reply is budgeted to take: what was asked for, up to a cap, because clients ask for far more than
/// they use (32,000 is one client's constant), for each of the choices.
fn output_tokens(shared: &Published, asked: Option<u64>, choices: u32) -> u64 {
    let routing = &shared.config.routing;
    let each = asked.unwrap_or(u64::from(routing.output_tokens_default));
    let most = shared.config.repair.max_tokens_cap.unwrap_or(u32::MAX);
    each.min(u64::from(routing.output_tokens_cap.min(most))).saturating_mul(u64::from(choices))
}

/// Room for the usual id with its source and length: UUIDs have 36 bytes.
const CONVERSATION_BYTES_USUAL: usize = 64;

/// Whose conversation it is, scoped by the caller's credential, so that callers cannot steer each other.
fn conversation_of<'h>(
    shared: &Published,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    prompt: Option<&Prompt<'_>>,
) -> Option<ConversationKey> {
    let configured = shared.config.routing.session_header.as_deref();
    let id = conversation::id(configured, &|name| get(name), prompt)?;
    let model = prompt.and_then(|prompt| prompt.model.as_deref()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(CONVERSATION_BYTES_USUAL + model.len());
    id.append_to(&mut bytes);
    // One client session may use several models, and each of them has a home of its own.
    bytes.extend_from_slice(model.as_bytes());
    Some(conversation_key(shared.key, conversation::credential(get), &bytes))
}

/// Whose request it is, where tenants are told apart.
fn tenant_of<'h>(shared: &Published, get: &impl Fn(&str) -> Option<&'h [u8]>) -> Option<TenantKey> {
    let header = shared.config.routing.tenant_header.as_deref()?;
    Some(tenant(shared.key, header, get))
}

/// The tenant that a header names; credentials are looked for where clients send them. Those who name none are one.
fn tenant<'h>(
    key: FingerprintKey,
    header: &str,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
) -> TenantKey {
    let name = match header {
        "authorization" => conversation::credential(get),
        other => get(other).unwrap_or_default(),
    };
    TenantKey(if name.is_empty() { 0 } else { conversation_key(key, b"tenant", name).0 })
}

/// The question to the index that a plan comes to.
pub fn ask<'a>(
    shared: &Published,
    plan: &'a Plan,
    pool: &'a Pool,
    excluded: &'a BackendSet,
    waited_ms: u64,
    now: Millis,
    random: u64,
) -> Ask<'a> {
    let ratio = pool.learned.bytes_per_token();
    let routing = &shared.config.routing;
    Ask {
        blocks: &plan.blocks,
        block_tokens: tokens(u64::from(routing.block_bytes), ratio),
        prompt_tokens: reserved_tokens(plan, pool),
        output_tokens: plan.output_tokens,
        conversation: plan.conversation,
        pool: &pool.backends,
        excluded,
        waited_ms,
        home_wait_ms: routing.home_wait_ms,
        turn_wait_ms: routing.turn_wait_ms,
        // What an engine keeps the state of must not be begun twice.
        give_way_max: if plan.keeps_state { 0 } else { routing.give_way_max },
        streams: plan.streams,
        now,
        random,
    }
}

/// Tokens to reserve for its prompt.
fn reserved_tokens(plan: &Plan, pool: &Pool) -> u64 {
    let ratio = pool.learned.bytes_per_token_reserved(plan.cold_bytes_per_token_milli);
    whole_tokens(plan.canonical_bytes, ratio)
}

/// Whether a pool's engines fail everybody once they are full. It is made of one kind of engine, so its first backend
/// speaks for all.
fn fails_when_full(shared: &Published, pool: &Pool) -> bool {
    let first = pool.backends.iter().next().and_then(|id| shared.upstream(id));
    first.is_some_and(|first| first.kind().fails_when_full())
}

/// Tokens of its prompt, estimated.
pub fn prompt_tokens(plan: &Plan, pool: &Pool) -> u64 {
    whole_tokens(plan.canonical_bytes, pool.learned.bytes_per_token())
}

// An estimate: sizes are far below 2^24 blocks' worth, and a rounding error of one token is no error.
#[allow(clippy::cast_precision_loss)]
fn tokens(bytes: u64, ratio: f32) -> f32 {
    bytes as f32 / ratio
}

// As above; the quotient is not negative and saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_tokens(bytes: u64, ratio: f32) -> u64 {
    tokens(bytes, ratio).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant_by(header: &str, sent: &[(&str, &'static str)], key: u64) -> TenantKey {
        let get = |name: &str| {
            sent.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_bytes())
        };
        tenant(FingerprintKey::new(key), header, &get)
    }

    #[test]
    fn tenants_are_told_apart_by_what_the_header_says_under_this_process_key() {
        let sent = [("x-tenant", "a"), ("authorization", "Bearer a")];
        let a = tenant_by("x-tenant", &sent, 1);
        assert_eq!(a, tenant_by("x-tenant", &[("x-tenant", "a")], 1));
        assert_ne!(a, tenant_by("x-tenant", &[("x-tenant", "b")], 1));
        assert_ne!(a, tenant_by("x-tenant", &sent, 2), "another process knows it by another key");
        assert_ne!(a, tenant_by("x-tenant", &[], 1));
        assert_eq!(tenant_by("x-tenant", &[], 1), tenant_by("x-tenant", &[("x-tenant", "")], 1));
    }

    #[test]
    fn a_credential_is_found_in_either_of_its_headers() {
        let [bearer, key] = [("authorization", "Bearer a"), ("x-api-key", "a")];
        let nobody = tenant_by("authorization", &[], 1);
        assert_ne!(tenant_by("authorization", &[key], 1), nobody);
        assert_ne!(tenant_by("authorization", &[bearer], 1), nobody);
        assert_ne!(tenant_by("authorization", &[bearer], 1), tenant_by("authorization", &[key], 1));
    }
}
