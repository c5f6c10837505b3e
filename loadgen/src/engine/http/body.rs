//! Request bodies, by length or in chunks, with a limit.

use bytes::{Bytes, BytesMut};

use super::conn::Conn;
use super::head::Head;

/// Why a body is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The other side left before the end.
    Closed,
    /// Larger than allowed.
    TooLarge,
    /// Chunks that are none.
    Malformed,
}

impl Conn {
    /// The body that belongs to `head`.
    pub(crate) async fn body(&mut self, head: &Head, bytes_max: usize) -> Result<Bytes, BodyError> {
        if head.content_length > bytes_max {
            return Err(BodyError::TooLarge);
        }
        let missing = head.chunked || head.content_length > self.ahead.len();
        if head.expects_continue && missing {
            let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
            self.write(go_on).await.map_err(|_| BodyError::Closed)?;
        }
        if head.chunked {
            return self.chunked_body(bytes_max).await;
        }
        self.need(head.content_length).await?;
        let body = self.ahead.split_to(head.content_length).freeze();
        self.forget_buffer();
        Ok(body)
    }

    async fn chunked_body(&mut self, bytes_max: usize) -> Result<Bytes, BodyError> {
        let mut body = BytesMut::new();
        loop {
            let size = self.chunk_size().await?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                self.forget_buffer();
                return Ok(body.freeze());
            }
            if size > bytes_max.saturating_sub(body.len()) {
                return Err(BodyError::TooLarge);
            }
            self.need(size).await?;
            body.extend_from_slice(&self.ahead.split_to(size));
            if !self.line().await?.is_empty() {
                return Err(BodyError::Malformed);
            }
        }
    }

    async fn chunk_size(&mut self) -> Result<usize, BodyError> {
        let line = self.line().await?;
        let digits = line.as_ref().split(|byte: &u8| *byte == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).map_err(|_| BodyError::Malformed)?;
        let digits = digits.trim();
        if digits.starts_with('+') {
            return Err(BodyError::Malformed);
        }
        usize::from_str_radix(digits, 16).map_err(|_| BodyError::Malformed)
    }

    async fn line(&mut self) -> Result<BytesMut, BodyError> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let mut line = self.ahead.split_to(end + 2);
                line.truncate(end);
                return Ok(line);
            }
            if self.ahead.len() > 4_096 {
                return Err(BodyError::Malformed);
            }
            self.need(self.ahead.len() + 1).await?;
        }
    }

    /// Reads until so many bytes are here.
    async fn need(&mut self, bytes: usize) -> Result<(), BodyError> {
        while self.ahead.len() < bytes {
            self.ahead.reserve(bytes - self.ahead.len());
            match self.fill().await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(BodyError::Closed),
            }
        }
        Ok(())
    }

    /// A buffer that grew for a large body is not kept for the rest of the connection.
    fn forget_buffer(&mut self) {
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
    }
}
