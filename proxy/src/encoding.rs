//! Request bodies that arrive compressed: they are decoded for reading only. What the engine gets is the body as it came,
//! with its `Content-Encoding` unchanged, unless something in it is to be mended; so decoding here never has to be more than careful. An encoding we do not know
//! is never guessed at: such a body is opaque, and its request is routed by the conversation's id alone.

use crate::limits::{DECODED_BYTES_FREE, DECODED_RATIO_MAX, ZSTD_WINDOW_LOG_MAX};
use std::fmt;
use std::io::Read;

/// A body as reading sees it.
#[derive(Clone, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The body was not compressed.
    Plain(&'a [u8]),
    /// The body was compressed; this is what it holds.
    Inflated(Vec<u8>),
    /// The body cannot be looked into.
    Opaque,
}

impl Decoded<'_> {
    /// The readable bytes, `None` for an opaque body.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Decoded::Plain(bytes) => Some(bytes),
            Decoded::Inflated(bytes) => Some(bytes),
            Decoded::Opaque => None,
        }
    }
}

impl fmt::Debug for Decoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decoded::Plain(bytes) => write!(f, "Plain({} bytes)", bytes.len()),
            Decoded::Inflated(bytes) => write!(f, "Inflated({} bytes)", bytes.len()),
            Decoded::Opaque => write!(f, "Opaque"),
        }
    }
}

/// Why a compressed body was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingError {
    /// The bytes are not what the encoding says, or are cut off.
    Corrupt,
    /// It holds more than the given bound.
    TooLarge,
    /// It grows more than [`DECODED_RATIO_MAX`] times, which no real body does.
    Bomb,
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodingError::Corrupt => "the body is not what its content encoding says",
            EncodingError::TooLarge => "the decoded body is too large",
            EncodingError::Bomb => "the body is compressed beyond what is accepted",
        })
    }
}

impl std::error::Error for EncodingError {}

/// Decodes a body by its `Content-Encoding` header, `None` if there was none. `bytes_max` bounds the decoded size.
///
/// # Errors
/// If the bytes do not decode, or decode to more than the bounds allow. Never for an unknown encoding.
pub fn decode<'a>(
    content_encoding: Option<&[u8]>,
    body: &'a [u8],
    bytes_max: usize,
) -> Result<Decoded<'a>, EncodingError> {
    let name = content_encoding.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    match name.as_slice() {
        b"" | b"identity" => Ok(Decoded::Plain(body)),
        b"gzip" | b"x-gzip" => inflate(flate2::bufread::MultiGzDecoder::new(body), body, bytes_max),
        b"zstd" => {
            let mut decoder =
                zstd::Decoder::with_buffer(body).map_err(|_| EncodingError::Corrupt)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|_| EncodingError::Corrupt)?;
            inflate(decoder, body, bytes_max)
        }
        _ => Ok(Decoded::Opaque),
    }
}

/// Bytes that decoding a body of `body_len` bytes may take at most; 0 when there is nothing to decode.
pub fn decoded_max(content_encoding: Option<&[u8]>, body_len: usize, bytes_max: usize) -> usize {
    let name = content_encoding.unwrap_or_default().trim_ascii();
    let decodes =
        [&b"gzip"[..], b"x-gzip", b"zstd"].iter().any(|one| name.eq_ignore_ascii_case(one));
    if decodes { bound(body_len, bytes_max) } else { 0 }
}

fn bound(body_len: usize, bytes_max: usize) -> usize {
    body_len.saturating_mul(DECODED_RATIO_MAX).max(DECODED_BYTES_FREE).min(bytes_max)
}

fn inflate<'a>(
    decoder: impl Read,
    body: &[u8],
    bytes_max: usize,
) -> Result<Decoded<'a>, EncodingError> {
    if body.is_empty() {
        return Err(EncodingError::Corrupt);
    }
    let bound = bound(body.len(), bytes_max);
    let mut bytes = Vec::with_capacity(body.len().saturating_mul(4).min(bound));
    // One byte more than allowed tells "exactly full" from "too large".
    let limit = u64::try_from(bound).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(&mut bytes).map_err(|_| EncodingError::Corrupt)?;
    if bytes.len() <= bound {
        return Ok(Decoded::Inflated(bytes));
    }
    Err(if bound == bytes_max { EncodingError::TooLarge } else { EncodingError::Bomb })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MIB: usize = 1 << 20;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).expect("memory")
    }

    /// Not repetitive, so that its ratio stays small.
    fn text(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..len).map(|_| random.alphanumeric() as u8).collect()
    }

    #[test]
    fn a_body_without_encoding_is_read_as_it_is() {
        for name in [None, Some(&b""[..]), Some(b"identity"), Some(b" Identity ")] {
            assert_eq!(decode(name, b"{}", 1), Ok(Decoded::Plain(b"{}")), "{name:?}");
        }
    }

    #[test]
    fn gzip_and_zstd_are_decoded() {
        let plain = text(100_000);
        for (name, body) in
            [("gzip", gzip(&plain)), ("X-GZIP", gzip(&plain)), ("zstd", zstd(&plain))]
        {
            let decoded = decode(Some(name.as_bytes()), &body, MIB).expect(name);
            assert_eq!(decoded.bytes(), Some(&plain[..]), "{name}");
        }
    }

    #[test]
    fn several_members_or_frames_are_one_body() {
        let twice = |one: Vec<u8>, two: Vec<u8>| [one, two].concat();
        for (name, body) in [
            ("gzip", twice(gzip(b"{\"a\":"), gzip(b"1}"))),
            ("zstd", twice(zstd(b"{\"a\":"), zstd(b"1}"))),
        ] {
            let decoded = decode(Some(name.as_bytes()), &body, MIB).expect(name);
            assert_eq!(decoded.bytes(), Some(&b"{\"a\":1}"[..]), "{name}");
        }
    }

    #[test]
    fn an_unknown_encoding_is_opaque_and_never_guessed_at() {
        for name in ["br", "deflate", "gzip, zstd", "zstd,gzip", "gzipp", "gzip;q=1", "\u{e9}"] {
            assert_eq!(
                decode(Some(name.as_bytes()), &gzip(b"{}"), MIB),
                Ok(Decoded::Opaque),
                "{name}"
            );
        }
        assert_eq!(Decoded::Opaque.bytes(), None);
    }

    #[test]
    fn bytes_that_do_not_decode_are_refused() {
        for name in ["gzip", "zstd"] {
            let whole = if name == "gzip" { gzip(&text(1000)) } else { zstd(&text(1000)) };
            for body in [&b""[..], b"{}", &whole[..whole.len() / 2], &whole[..whole.len() - 1]] {
                let outcome = decode(Some(name.as_bytes()), body, MIB);
                assert_eq!(outcome, Err(EncodingError::Corrupt), "{name} of {} bytes", body.len());
            }
        }
    }

    #[test]
    fn the_decoded_size_is_allowed_to_the_bound_and_refused_one_beyond() {
        let plain = text(50_000);
        for (name, body) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
            assert!(decode(Some(name.as_bytes()), &body, plain.len()).is_ok(), "{name}");
            let outcome = decode(Some(name.as_bytes()), &body, plain.len() - 1);
            assert_eq!(outcome, Err(EncodingError::TooLarge), "{name}");
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = vec![b'0'; 16 * MIB];
        for (name, body) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            let outcome = decode(Some(name.as_bytes()), &body, 1 << 40);
            assert_eq!(outcome, Err(EncodingError::Bomb), "{name}");
        }
        let small = vec![b'0'; DECODED_BYTES_FREE];
        assert!(
            decode(Some(b"zstd"), &zstd(&small), 1 << 40).is_ok(),
            "a small body may be repetitive"
        );
    }

    #[test]
    fn a_window_beyond_the_bound_is_refused() {
        let plain = text(100);
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.window_log(ZSTD_WINDOW_LOG_MAX + 2).expect("a window");
        encoder.include_contentsize(false).expect("a flag");
        encoder.write_all(&plain).expect("memory");
        let body = encoder.finish().expect("memory");
        assert_eq!(decode(Some(b"zstd"), &body, MIB), Err(EncodingError::Corrupt));
    }

    #[test]
    fn a_decoded_body_is_never_shown() {
        let shown = format!("{:?}", decode(Some(b"gzip"), &gzip(b"secret"), MIB));
        assert!(!shown.contains("secret") && shown.contains("6 bytes"), "{shown}");
    }
}
