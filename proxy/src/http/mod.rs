//! HTTP/1.1 on the wire: heads, framing, chunks.
