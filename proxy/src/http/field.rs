//! The fields of a head as offsets into one owned copy of its bytes, each classified once. Reused
//! from head to head.

use super::error::HeadError;
use super::grammar::list_elements;
use crate::limits::HEAD_FIELDS_CEILING;

/// A range of bytes of the copy. Heads are far below 4 GiB, see
/// [`crate::limits::HEAD_BYTES_CEILING`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// `start..end`. A head that does not fit 32 bits was refused before; the saturation only keeps
    /// this total.
    pub(super) fn new(start: usize, end: usize) -> Self {
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: narrow(start), end: narrow(end) }
    }

    /// The last `length` bytes of it.
    pub(super) fn last(self, length: usize) -> Self {
        let end = self.end as usize;
        Self::new(end.saturating_sub(length).max(self.start as usize), end)
    }

    /// How many bytes are meant.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// The bytes meant, empty when out of range.
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// What a field is to this hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldClass {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    KeepAlive,
    Te,
    Expect,
    ContentType,
    /// Hop-by-hop and of no interest: Trailer, Upgrade, HTTP2-Settings, Proxy-*.
    Hop,
    /// End-to-end.
    Other,
}

impl FieldClass {
    /// The class of a field name, whatever its case.
    pub(super) fn of(name: &[u8]) -> Self {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            2 if is(b"te") => Self::Te,
            4 if is(b"host") => Self::Host,
            6 if is(b"expect") => Self::Expect,
            7 if is(b"trailer") || is(b"upgrade") => Self::Hop,
            10 if is(b"connection") => Self::Connection,
            10 if is(b"keep-alive") => Self::KeepAlive,
            12 if is(b"content-type") => Self::ContentType,
            14 if is(b"content-length") => Self::ContentLength,
            14 if is(b"http2-settings") => Self::Hop,
            17 if is(b"transfer-encoding") => Self::TransferEncoding,
            _ if is_proxy_field(name) => Self::Hop,
            _ => Self::Other,
        }
    }

    /// Whether a field of this class stays on this hop. Content-Length counts: we write our own.
    pub(super) fn is_hop_by_hop(self) -> bool {
        !matches!(self, Self::Host | Self::ContentType | Self::Other)
    }

    /// Whether a field of this class decides where a message ends or where it goes.
    pub(super) fn frames_or_routes(self) -> bool {
        matches!(self, Self::Host | Self::ContentLength | Self::TransferEncoding)
    }
}

/// `Proxy-Connection`, `Proxy-Authorization` and their like, with an underscore too.
fn is_proxy_field(name: &[u8]) -> bool {
    matches!(name.split_at_checked(5),
        Some((start, [b'-' | b'_', ..])) if start.eq_ignore_ascii_case(b"proxy"))
}

/// Whether this unknown name spells one that belongs to the hop, its punctuation and what stands
/// for the hyphen aside: `Transfer_Encoding`, `Content.Length`. Servers that map `_` to `-`, or
/// drop what they do not like in a name, would take it for that one. Underscores as such are fine:
/// clients do send `session_id` and `conversation_id`.
fn imitates_a_hop_field(name: &[u8]) -> bool {
    const IMITATED: [(&[u8], &[u8]); 4] = [
        (b"content", b"length"),
        (b"transfer", b"encoding"),
        (b"keep", b"alive"),
        (b"http2", b"settings"),
    ];
    // Most names begin with another letter, and are done here.
    let may_start = |byte: &u8| match byte.to_ascii_lowercase() {
        b'c' | b't' | b'k' | b'h' => true,
        byte => !byte.is_ascii_alphanumeric(),
    };
    if !name.first().is_some_and(may_start) {
        return false;
    }
    let mut room = [0; 24];
    let Some(letters) = letters_of(name, &mut room) else { return false };
    IMITATED.iter().any(|(first, second)| {
        let between = letters.strip_prefix(*first).and_then(|rest| rest.strip_suffix(*second));
        between.is_some_and(|between| between.len() <= 1)
    })
}

/// The letters and digits of `name` in lower case, `None` when there are more than `room`.
fn letters_of<'a>(name: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut count = 0;
    for byte in name.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        *room.get_mut(count)? = byte.to_ascii_lowercase();
        count += 1;
    }
    room.get(..count)
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
    pub(super) class: FieldClass,
    /// Named by a Connection field, so meant for this hop only.
    pub(super) listed: bool,
}

/// A head's bytes and its fields.
#[derive(Debug, Default)]
pub(super) struct FieldTable {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// Bit n is set when a name of n bytes is here (63 stands for more, too). A dozen names are asked for with
    /// every request, and hardly any of them is there.
    name_lengths: u64,
}

/// The bit of [`FieldTable::name_lengths`] for names of so many bytes.
fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

impl FieldTable {
    /// Bytes of memory it holds on to.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// Forgets the head, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.name_lengths = 0;
    }

    /// Takes a copy of a head whose lines are known to end in CRLF, with `lines` header lines from
    /// `fields_at` on, and parses them.
    pub(super) fn load(
        &mut self,
        head: &[u8],
        fields_at: usize,
        lines: usize,
        line_bytes_max: usize,
    ) -> Result<(), HeadError> {
        /// Most heads have fewer fields than this, and a small table is cheap to prepare.
        const FEW: usize = 32;
        self.clear();
        self.bytes.extend_from_slice(head);
        if lines <= FEW {
            self.parse::<FEW>(fields_at, line_bytes_max)
        } else {
            self.parse::<HEAD_FIELDS_CEILING>(fields_at, line_bytes_max)
        }
    }

    fn parse<const N: usize>(&mut self, at: usize, line_max: usize) -> Result<(), HeadError> {
        let mut parsed = [httparse::EMPTY_HEADER; N];
        let block = self.bytes.get(at..).unwrap_or_default();
        let headers = match httparse::parse_headers(block, &mut parsed) {
            Ok(httparse::Status::Complete((_, headers))) => headers,
            Ok(httparse::Status::Partial) => return Err(HeadError::BareCr),
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyHeaders),
            Err(httparse::Error::HeaderValue) => return Err(HeadError::BadHeaderValue),
            Err(_) => return Err(HeadError::BadHeaderName),
        };
        let base = self.bytes.as_ptr().addr();
        for header in headers {
            let field = accept(header, base)?;
            // Written again, a line has one blank after its colon whatever it had before.
            if header.name.len() + header.value.len() + b": \r\n".len() > line_max {
                return Err(HeadError::LineTooLong);
            }
            self.name_lengths |= length_bit(header.name.len());
            self.fields.push(field);
        }
        Ok(())
    }

    /// Appends `prefix` and a copy of the bytes `span` means to the copy, for text that was never
    /// sent in one piece.
    pub(super) fn append(&mut self, prefix: &[u8], span: Span) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(prefix);
        let from = (span.start as usize).min(start);
        self.bytes.extend_from_within(from..(span.end as usize).clamp(from, start));
        Span::new(start, self.bytes.len())
    }

    /// The bytes `span` means.
    #[inline]
    pub(super) fn text(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Every field, in order.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Marks the fields that a Connection field names as meant for this hop only.
    pub(super) fn mark_listed(&mut self) {
        for index in 0..self.fields.len() {
            let listed = self.fields.get(index).is_some_and(|field| self.is_listed(field));
            if let Some(field) = self.fields.get_mut(index) {
                field.listed = listed;
            }
        }
    }

    fn is_listed(&self, field: &Field) -> bool {
        let name = self.text(field.name);
        self.fields
            .iter()
            .filter(|field| field.class == FieldClass::Connection)
            .flat_map(|field| list_elements(self.text(field.value)))
            .any(|option| option.eq_ignore_ascii_case(name))
    }

    /// The value of the first field called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        if self.name_lengths & length_bit(name.len()) == 0 {
            return None;
        }
        let named = |field: &&Field| {
            field.name.len() == name.len()
                && self.text(field.name).eq_ignore_ascii_case(name.as_bytes())
        };
        self.fields.iter().find(named).map(|field| self.text(field.value))
    }

    /// The value of the first field of `class`.
    pub(super) fn first(&self, class: FieldClass) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| field.class == class)?;
        Some(self.text(field.value))
    }

    /// Names and values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.text(field.name), self.text(field.value)))
    }

    /// Whether a tab stands anywhere between the colon and the end of the line, where the trimmed
    /// value no longer shows it.
    pub(super) fn has_tab(&self, field: &Field) -> bool {
        let line = self.bytes.get(field.name.end as usize..).unwrap_or_default();
        line.iter().take_while(|&&byte| byte != b'\r').any(|&byte| byte == b'\t')
    }
}

/// Turns a parsed header into offsets, and refuses names that only look harmless. `base` is the
/// address of the copy.
fn accept(header: &httparse::Header<'_>, base: usize) -> Result<Field, HeadError> {
    let name = header.name.as_bytes();
    let class = FieldClass::of(name);
    if class == FieldClass::Other && imitates_a_hop_field(name) {
        return Err(HeadError::AliasedName);
    }
    let span = |part: &[u8]| {
        let start = part.as_ptr().addr().saturating_sub(base);
        Span::new(start, start + part.len())
    };
    Ok(Field { name: span(name), value: span(header.value), class, listed: false })
}
