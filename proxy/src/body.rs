//! Reads a request's body whole, before anything is sent upstream.
//!
//! The fingerprint needs all of it, a retry needs it again, and an upstream that never sees half a body
//! cannot be desynchronised by one. A declared length alone reserves little memory, and none beyond the budget of all.

use monoio::buf::{IoBufMut, SliceMut};

use crate::client::{Client, ClientLost};
use crate::clock;
use crate::http::{ChunkedReader, RequestFraming};
use crate::limits::{
    BODY_GROWTH_DIVISOR, BODY_GROWTH_MIN, BODY_RESERVE_MAX, READ_BUFFER_MAX, REQUEST_CHUNKS,
};
use crate::memory::Charge;
use crate::memory::spare::{SpareBodies, room_for};

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The client left or stalled; nobody is there to be answered.
    Lost(ClientLost),
    /// Larger than allowed.
    TooLarge,
    /// Its chunks are malformed.
    Malformed,
    /// There is no memory for it now.
    NoMemory,
}

/// Bounds of reading a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyBounds {
    /// Bytes of the body.
    pub bytes_max: u64,
    /// Silence allowed between two reads, ms.
    pub idle_ms: u64,
}

/// Reads the body that `framing` announces, whose length was checked. What follows it stays with the client's inbox. `charge` counts the memory
/// that the body takes; after an error it is the caller's to clear. Its room is taken from `spare`, if there is any for it.
///
/// # Errors
/// See [`BodyError`]; after one the connection cannot be read any further.
pub async fn read(
    client: &Client,
    framing: RequestFraming,
    bounds: BodyBounds,
    charge: &mut Charge,
    spare: &SpareBodies,
) -> Result<Vec<u8>, BodyError> {
    match framing {
        RequestFraming::None => Ok(Vec::new()),
        RequestFraming::Length(length) => {
            let length = usize::try_from(length).map_err(|_| BodyError::TooLarge)?;
            read_length(client, length, bounds.idle_ms, charge, spare).await
        }
        RequestFraming::Chunked => read_chunked(client, bounds, charge).await,
    }
}

/// Whether a body of this length may be read at all: better refused now than when half of it has come.
///
/// # Errors
/// When it is too large, or would not fit into what others leave.
pub fn check_length(length: u64, bytes_max: u64, charge: &Charge) -> Result<(), BodyError> {
    match length <= bytes_max {
        false => Err(BodyError::TooLarge),
        true if charge.would_fit(length) => Ok(()),
        true => Err(BodyError::NoMemory),
    }
}

async fn read_length(
    client: &Client,
    length: usize,
    idle_ms: u64,
    charge: &mut Charge,
    spare: &SpareBodies,
) -> Result<Vec<u8>, BodyError> {
    let mut body = client.take_inbox();
    if body.len() > length {
        let rest = body.split_off(length);
        client.put_back(rest);
    }
    // Of a buffer that was used before, all of it is memory, not only what is read into it now.
    let mut written = body.capacity();
    if body.len() < length
        && let Some(mut room) = spare.take(length).filter(|room| charge.resize(room.capacity()))
    {
        room.extend_from_slice(&body);
        body = room;
        written = body.capacity();
    }
    hold(charge, written)?;
    let mut more = true;
    while body.len() < length {
        reserve_towards(&mut body, length);
        if more && take_what_is_there(client, &mut body, length, written, charge)? {
            more = false;
            continue;
        }
        // Set aside is not held: it counts as far as the next read may write. So a client that declares much and sends
        // little keeps nobody else out.
        let have = body.len();
        let end = body.capacity().min(length).min(have + have.max(READ_BUFFER_MAX));
        hold(charge, end.max(written))?;
        body = read_into(client, body, end, idle_ms).await?;
        // A read that was filled leaves something behind, more often than not.
        more = body.len() == end;
    }
    Ok(body)
}

fn hold(charge: &mut Charge, bytes: usize) -> Result<(), BodyError> {
    if charge.resize(bytes) { Ok(()) } else { Err(BodyError::NoMemory) }
}

/// Takes what has come, all of it if there is memory for the whole body: one piece, read at once, is still in the
/// processor's cache when it is looked at. Returns whether that was anything.
fn take_what_is_there(
    client: &Client,
    body: &mut Vec<u8>,
    length: usize,
    written: usize,
    charge: &mut Charge,
) -> Result<bool, BodyError> {
    let end = body.capacity().min(length);
    let fits = charge.resize(end.max(written));
    Ok(fits && client.read_now(body, end).map_err(BodyError::Lost)? > 0)
}

/// Makes room for what is missing, all of it if that is little, else as much as has come.
fn reserve_towards(body: &mut Vec<u8>, length: usize) {
    let (have, missing) = (body.len(), length - body.len());
    let room = body.capacity() - have;
    if room == 0 || room < missing.min(READ_BUFFER_MAX) {
        let all = room_for(length) - have;
        body.reserve_exact(all.min(BODY_RESERVE_MAX.max(have)));
    }
}

/// One read towards `end`, never past it.
async fn read_into(
    client: &Client,
    body: Vec<u8>,
    end: usize,
    idle_ms: u64,
) -> Result<Vec<u8>, BodyError> {
    let start = body.len();
    client.alarm.set(clock::recent().millis(), idle_ms);
    client.read(body.slice_mut(start..end)).await.map(SliceMut::into_inner).map_err(BodyError::Lost)
}

async fn read_chunked(
    client: &Client,
    bounds: BodyBounds,
    charge: &mut Charge,
) -> Result<Vec<u8>, BodyError> {
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    let mut body = Vec::new();
    let mut raw = client.take_inbox();
    loop {
        let mut added = Ok(());
        let fed = reader.feed(&raw, |payload| {
            if added.is_ok() {
                added = add(&mut body, payload, bounds.bytes_max, charge);
            }
        });
        let fed = fed.map_err(|_| BodyError::Malformed)?;
        added?;
        if fed.done {
            raw.drain(..fed.consumed.min(raw.len()));
            client.put_back(raw);
            return Ok(body);
        }
        raw.clear();
        client.alarm.set(clock::recent().millis(), bounds.idle_ms);
        raw = client.read_more(raw).await.map_err(BodyError::Lost)?;
    }
}

fn add(
    body: &mut Vec<u8>,
    payload: &[u8],
    bytes_max: u64,
    charge: &mut Charge,
) -> Result<(), BodyError> {
    let length = body.len() + payload.len();
    if length as u64 > bytes_max {
        return Err(BodyError::TooLarge);
    }
    if length > body.capacity() {
        let grown =
            length.max(body.len() + (body.len() / BODY_GROWTH_DIVISOR).max(BODY_GROWTH_MIN));
        hold(charge, grown)?;
        body.reserve_exact(grown - body.len());
    }
    body.extend_from_slice(payload);
    Ok(())
}
