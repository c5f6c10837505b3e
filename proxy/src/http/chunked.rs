//! Chunked bodies (RFC 9112, 7.1), read in any cut and written. The reader is strict: CRLF ends
//! every line, a size is one to sixteen hexadecimal digits, nothing stands between payload and its
//! CRLF. Extensions and trailers are checked, counted and dropped. It never holds payload: what it
//! is fed it hands on at once.

use super::error::ChunkError;
use super::grammar::{is_token_byte, is_value_byte};

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Digits of a size: as many as a u64 has.
const SIZE_DIGITS_MAX: u8 = 16;

/// How much besides payload a chunked body may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Bytes of chunk extensions in the whole body, each `;` included.
    pub extension_bytes_max: usize,
    /// Bytes of the trailer section, line ends included, the empty line at its end not.
    pub trailer_bytes_max: usize,
    /// Fields in the trailer section.
    pub trailers_max: usize,
}

/// What one `feed` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of the input that belong to this body. Less than all of it only when `done`.
    pub consumed: usize,
    /// The body is complete; what follows is the next message.
    pub done: bool,
}

/// Walks raw chunked bytes, cut anywhere.
#[derive(Debug, Clone)]
pub struct ChunkedReader {
    limits: ChunkLimits,
    state: State,
    /// Size of the chunk whose size line is being read, then what is left of its payload.
    left: u64,
    payload_bytes: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
    trailer_fields: usize,
}

/// What the next byte has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A size digit, after as many others.
    Size(u8),
    /// The name of an extension, or a blank before it.
    ExtensionStart,
    /// More of an extension.
    Extension,
    /// LF of a size line.
    SizeLf,
    /// Payload.
    Payload,
    /// CR, then LF, after payload.
    PayloadCr,
    PayloadLf,
    /// A trailer's name, or CR of the empty line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// LF of the empty line.
    EndLf,
    Done,
    Failed(ChunkError),
}

impl ChunkedReader {
    /// At the start of a body.
    #[must_use]
    pub fn new(limits: ChunkLimits) -> Self {
        Self {
            limits,
            state: State::Size(0),
            left: 0,
            payload_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_fields: 0,
        }
    }

    /// Reads what the next bytes will need.
    pub fn bring_near(&self) -> u64 {
        self.left ^ self.payload_bytes ^ u64::from(self.state == State::Done)
    }

    /// Walks `input`, calls `payload` for each run of payload bytes in it, and stops at the end of
    /// the body.
    ///
    /// # Errors
    /// The body is not chunked as it should be. Every further call answers with the same error.
    pub fn feed(
        &mut self,
        input: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<Fed, ChunkError> {
        self.feed_until(input, |run| {
            payload(run);
            0
        })
    }

    /// As [`ChunkedReader::feed`], until `payload` gives back bytes from the end of its run: then those were not consumed,
    /// and the reader stands before them.
    ///
    /// # Errors
    /// As [`ChunkedReader::feed`].
    pub fn feed_until(
        &mut self,
        input: &[u8],
        mut payload: impl FnMut(&[u8]) -> usize,
    ) -> Result<Fed, ChunkError> {
        let mut rest = input;
        while let [byte, after @ ..] = rest {
            match self.state {
                State::Payload => {
                    let (run, after) = rest.split_at_checked(self.run_in(rest)).unwrap_or_default();
                    let back = payload(run).min(run.len());
                    self.take_payload(run.len() - back);
                    if back > 0 {
                        return Ok(Fed { consumed: input.len() - after.len() - back, done: false });
                    }
                    rest = after;
                }
                State::Done => break,
                state => {
                    self.state = self.step(state, *byte).unwrap_or_else(State::Failed);
                    rest = after;
                }
            }
            if let State::Failed(error) = self.state {
                return Err(error);
            }
        }
        match self.state {
            State::Failed(error) => Err(error),
            state => Ok(Fed { consumed: input.len() - rest.len(), done: state == State::Done }),
        }
    }

    /// How many of the bytes at hand are payload of the current chunk.
    fn run_in(&self, rest: &[u8]) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len())
    }

    fn take_payload(&mut self, run: usize) {
        self.left = self.left.saturating_sub(run as u64);
        self.payload_bytes = self.payload_bytes.saturating_add(run as u64);
        if self.left == 0 {
            self.state = State::PayloadCr;
        }
    }

    fn step(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        match state {
            State::Size(digits) => self.step_size(digits, byte),
            State::ExtensionStart | State::Extension => self.step_extension(state, byte),
            State::SizeLf => match (byte, self.left) {
                (b'\n', 0) => Ok(State::TrailerStart),
                (b'\n', _) => Ok(State::Payload),
                _ => Err(ChunkError::BadLineEnd),
            },
            State::PayloadCr if byte == b'\r' => Ok(State::PayloadLf),
            State::PayloadLf if byte == b'\n' => {
                self.left = 0;
                Ok(State::Size(0))
            }
            State::PayloadCr | State::PayloadLf => Err(ChunkError::BadDataEnd),
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::EndLf => self.step_trailer(state, byte),
            // `feed` never asks for these; they stay what they are.
            State::Payload | State::Done | State::Failed(_) => Ok(state),
        }
    }

    fn step_size(&mut self, digits: u8, byte: u8) -> Result<State, ChunkError> {
        match (byte, hex_value(byte)) {
            (_, Some(_)) if digits >= SIZE_DIGITS_MAX => Err(ChunkError::SizeOverflow),
            (_, Some(value)) => {
                self.left = self.left << 4 | u64::from(value);
                Ok(State::Size(digits + 1))
            }
            (b'\r', None) if digits > 0 => Ok(State::SizeLf),
            (b';', None) if digits > 0 => {
                self.count_extension()?;
                Ok(State::ExtensionStart)
            }
            (b'\n', None) => Err(ChunkError::BadLineEnd),
            _ => Err(ChunkError::BadSize),
        }
    }

    /// Quotes need no state of their own: no CR or LF may stand inside them either, so the line
    /// ends where it ends.
    fn step_extension(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        let started = state == State::Extension;
        match byte {
            b'\r' if started => return Ok(State::SizeLf),
            b'\n' => return Err(ChunkError::BadLineEnd),
            _ => self.count_extension()?,
        }
        match byte {
            b' ' | b'\t' if !started => Ok(State::ExtensionStart),
            _ if !started && is_token_byte(byte) => Ok(State::Extension),
            _ if started && is_value_byte(byte) => Ok(State::Extension),
            _ => Err(ChunkError::BadExtension),
        }
    }

    fn count_extension(&mut self) -> Result<(), ChunkError> {
        self.extension_bytes += 1;
        if self.extension_bytes > self.limits.extension_bytes_max {
            return Err(ChunkError::ExtensionTooLong);
        }
        Ok(())
    }

    fn step_trailer(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        match (state, byte) {
            (State::TrailerStart, b'\r') => return Ok(State::EndLf),
            (State::EndLf, b'\n') => return Ok(State::Done),
            (State::EndLf, _) => return Err(ChunkError::BadLineEnd),
            _ => self.count_trailer_byte()?,
        }
        match (state, byte) {
            (State::TrailerStart, _) if is_token_byte(byte) => self.count_trailer_field(),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerName, _) if is_token_byte(byte) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::TrailerLf, _) | (_, b'\n') => Err(ChunkError::BadLineEnd),
            _ => Err(ChunkError::BadTrailer),
        }
    }

    fn count_trailer_byte(&mut self) -> Result<(), ChunkError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.limits.trailer_bytes_max {
            return Err(ChunkError::TrailersTooLarge);
        }
        Ok(())
    }

    fn count_trailer_field(&mut self) -> Result<State, ChunkError> {
        self.trailer_fields += 1;
        if self.trailer_fields > self.limits.trailers_max {
            return Err(ChunkError::TrailersTooLarge);
        }
        Ok(State::TrailerName)
    }

    /// `Some(n)`: inside a chunk, with `n` payload bytes to come, the CRLF after them excluded (and
    /// alone to come when `n` is zero). Known as soon as the size line has been read.
    #[must_use]
    pub fn payload_left_in_chunk(&self) -> Option<u64> {
        match self.state {
            State::Payload => Some(self.left),
            State::PayloadCr => Some(0),
            _ => None,
        }
    }

    /// Whether everything fed so far is whole chunks, so that a chunk of our own, the last one
    /// included, may follow here.
    #[must_use]
    pub fn at_chunk_boundary(&self) -> bool {
        self.state == State::Size(0)
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Payload bytes handed on so far.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Fields seen in the trailer section. They are checked and dropped.
    #[must_use]
    pub fn trailer_fields(&self) -> usize {
        self.trailer_fields
    }

    /// Bytes of chunk extensions seen so far. A relay that passes raw bytes on knows by this and by
    /// [`Self::trailer_fields`] whether there is something in them to drop.
    #[must_use]
    pub fn extension_bytes(&self) -> usize {
        self.extension_bytes
    }
}

fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Appends the size line of a chunk of `len` bytes; [`CHUNK_END`] goes after them. A length of zero
/// would end the body, and there is [`LAST_CHUNK`] for that: it writes nothing.
pub fn write_chunk_head(out: &mut Vec<u8>, len: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if len == 0 {
        return;
    }
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.extend(DIGITS.get(len >> (place * 4) & 0xf));
    }
    out.extend_from_slice(b"\r\n");
}
