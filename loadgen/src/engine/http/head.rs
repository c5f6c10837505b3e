//! The head of a request, parsed with httparse and reduced to what an engine looks at.

/// Largest head accepted, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most header lines accepted.
const HEADERS_MAX: usize = 100;

/// A request's head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// HTTP/1.0: no chunks in the reply, no keep-alive.
    pub(crate) old: bool,
    pub(crate) close: bool,
    pub(crate) content_length: usize,
    pub(crate) chunked: bool,
    pub(crate) expects_continue: bool,
    /// `X-Request-Id`, which vLLM takes for the reply's id.
    pub(crate) request_id: Option<String>,
    /// `endpoint-load-metrics-format`, by which vLLM is asked to tell its load.
    pub(crate) wants_load: bool,
    pub(crate) longest_line: usize,
}

/// Why a head is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// Not HTTP/1, or a framing that means two things at once.
    Malformed,
    /// Larger than allowed.
    TooLarge,
}

impl Head {
    /// The head at the start of `bytes` and its length; none if it is not all there yet.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => {
                Ok(Some((Head::from_parsed(&request)?, length)))
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                Err(HeadError::TooLarge)
            }
            Err(_) => Err(HeadError::Malformed),
        }
    }

    fn from_parsed(request: &httparse::Request<'_, '_>) -> Result<Head, HeadError> {
        let target = request.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let old = request.version == Some(0);
        let mut head = Head {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            old,
            close: old,
            ..Head::default()
        };
        let mut length = None;
        for header in request.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            head.longest_line = head.longest_line.max(header.name.len() + header.value.len() + 2);
            head.apply(header.name, value, &mut length)?;
        }
        if head.chunked && length.is_some() {
            return Err(HeadError::Malformed);
        }
        head.content_length = length.unwrap_or(0);
        Ok(head)
    }

    fn apply(
        &mut self,
        name: &str,
        value: &str,
        length: &mut Option<usize>,
    ) -> Result<(), HeadError> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("content-length") {
            // A sign would pass the number parser; it is no length.
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let given: usize = value.parse().map_err(|_| HeadError::Malformed)?;
            if !digits {
                return Err(HeadError::Malformed);
            }
            if length.is_some_and(|before| before != given) {
                return Err(HeadError::Malformed);
            }
            *length = Some(given);
        } else if is("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(HeadError::Malformed);
            }
            self.chunked = true;
        } else if is("connection") {
            self.close |= value.eq_ignore_ascii_case("close");
        } else if is("expect") {
            self.expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if is("x-request-id") {
            self.request_id = Some(value.to_owned());
        } else if is("endpoint-load-metrics-format") {
            self.wants_load = true;
        }
        Ok(())
    }
}
