//! Reads a request's body whole, before anything is sent upstream.
//!
//! The fingerprint needs all of it, a retry needs it again, and an upstream that never sees half a body
//! cannot be desynchronised by one. A declared length alone reserves little memory.

use monoio::buf::{IoBufMut, SliceMut};

use crate::client::{Client, ClientLost};
use crate::clock;
use crate::http::{ChunkedReader, RequestFraming};
use crate::limits::{BODY_RESERVE_MAX, READ_BUFFER_MAX, REQUEST_CHUNKS};

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The client left or stalled; nobody is there to be answered.
    Lost(ClientLost),
    /// Larger than allowed.
    TooLarge,
    /// Its chunks are malformed.
    Malformed,
}

/// Bounds of reading a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyBounds {
    /// Bytes of the body.
    pub bytes_max: u64,
    /// Silence allowed between two reads, ms.
    pub idle_ms: u64,
}

/// Reads the body that `framing` announces. What follows it stays with the client's inbox.
///
/// # Errors
/// See [`BodyError`]; after one the connection cannot be read any further.
pub async fn read(
    client: &Client,
    framing: RequestFraming,
    bounds: BodyBounds,
) -> Result<Vec<u8>, BodyError> {
    match framing {
        RequestFraming::None => Ok(Vec::new()),
        RequestFraming::Length(length) => read_length(client, length, bounds).await,
        RequestFraming::Chunked => read_chunked(client, bounds).await,
    }
}

async fn read_length(
    client: &Client,
    length: u64,
    bounds: BodyBounds,
) -> Result<Vec<u8>, BodyError> {
    if length > bounds.bytes_max {
        return Err(BodyError::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| BodyError::TooLarge)?;
    let mut body = client.take_inbox();
    if body.len() > length {
        let rest = body.split_off(length);
        client.put_back(rest);
        return Ok(body);
    }
    while body.len() < length {
        body = read_into(client, body, length, bounds.idle_ms).await?;
    }
    Ok(body)
}

/// One read towards `length`, never past it.
async fn read_into(
    client: &Client,
    mut body: Vec<u8>,
    length: usize,
    idle_ms: u64,
) -> Result<Vec<u8>, BodyError> {
    let start = body.len();
    if body.capacity() == start || body.capacity() - start < (length - start).min(READ_BUFFER_MAX) {
        body.reserve_exact((length - start).min(BODY_RESERVE_MAX.max(start)));
    }
    let end = body.capacity().min(length);
    client.alarm.set(clock::recent().millis(), idle_ms);
    client.read(body.slice_mut(start..end)).await.map(SliceMut::into_inner).map_err(BodyError::Lost)
}

async fn read_chunked(client: &Client, bounds: BodyBounds) -> Result<Vec<u8>, BodyError> {
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    let mut body = Vec::new();
    let mut raw = client.take_inbox();
    loop {
        let mut fits = true;
        let fed = reader.feed(&raw, |payload| {
            fits = fits && (body.len() + payload.len()) as u64 <= bounds.bytes_max;
            if fits {
                body.extend_from_slice(payload);
            }
        });
        let fed = fed.map_err(|_| BodyError::Malformed)?;
        if !fits {
            return Err(BodyError::TooLarge);
        }
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
