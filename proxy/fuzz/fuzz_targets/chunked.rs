//! Chunked bodies: no bytes panic, no cut changes payload or verdict, and the payload written again
//! reads back. The first byte of the input chooses the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::http::{CHUNK_END, ChunkError, ChunkedReader, LAST_CHUNK, write_chunk_head};
use proxy::limits::REQUEST_CHUNKS;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, input)) = data.split_first() else { return };
    let whole = read(input, input.len().max(1));
    assert_eq!(read(input, usize::from(choice).max(1)), whole);
    let Ok((payload, consumed, done)) = whole else { return };
    assert!(done || consumed == input.len());
    assert!(payload.len() <= consumed);
    let mut written = Vec::new();
    if !payload.is_empty() {
        write_chunk_head(&mut written, payload.len());
        written.extend_from_slice(&payload);
        written.extend_from_slice(CHUNK_END);
    }
    written.extend_from_slice(LAST_CHUNK);
    assert_eq!(read(&written, written.len()), Ok((payload, written.len(), true)));
});

fn read(input: &[u8], piece_bytes: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    let (mut payload, mut consumed, mut done) = (Vec::new(), 0, false);
    for piece in input.chunks(piece_bytes) {
        let fed = reader.feed(piece, |run| payload.extend_from_slice(run))?;
        consumed += fed.consumed;
        done = fed.done;
    }
    assert_eq!(reader.payload_bytes(), payload.len() as u64);
    Ok((payload, consumed, done))
}
