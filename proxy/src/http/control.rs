//! What the fields of a head say about this hop: where the message ends, and whether the connection
//! lives on. Rules of RFC 9112, sections 6 and 9, in their strictest reading: two ways to read a
//! message is a refusal.

use super::error::HeadError;
use super::field::{Field, FieldClass, FieldTable, Span};
use super::grammar::{is_token, list_elements, parse_decimal};
use super::start_line::Version;
use crate::limits::CONNECTION_OPTIONS_MAX;

/// What was found in the fields that concern this hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) host: Option<Span>,
    pub(super) hosts: usize,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) unknown_expectation: bool,
    pub(super) accepts_trailers: bool,
    pub(super) keep_alive_timeout_s: Option<u32>,
    pub(super) keep_alive_max: Option<u32>,
    options: usize,
    lists_fields: bool,
}

impl Control {
    /// Reads the fields of `table` and marks those a Connection field lists.
    pub(super) fn read(table: &mut FieldTable, version: Version) -> Result<Self, HeadError> {
        let mut control = Self::default();
        for field in table.fields() {
            control.read_field(table, field)?;
        }
        control.check_framing(version)?;
        if control.lists_fields {
            table.mark_listed();
        }
        Ok(control)
    }

    /// Whether the sender of a message of `version` means to keep the connection (RFC 9112, 9.3).
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    fn read_field(&mut self, table: &FieldTable, field: &Field) -> Result<(), HeadError> {
        let value = table.text(field.value);
        match field.class {
            FieldClass::ContentLength => {
                if self.content_length.is_some() {
                    return Err(HeadError::DuplicateContentLength);
                }
                let length = if table.has_tab(field) { None } else { parse_decimal(value) };
                self.content_length = Some(length.ok_or(HeadError::BadContentLength)?);
            }
            FieldClass::TransferEncoding => {
                if self.chunked || table.has_tab(field) {
                    return Err(HeadError::BadTransferEncoding);
                }
                check_transfer_encoding(value)?;
                self.chunked = true;
            }
            FieldClass::Host => {
                self.hosts += 1;
                self.host = Some(field.value);
            }
            FieldClass::Expect if value.eq_ignore_ascii_case(b"100-continue") => {
                self.expects_continue = true;
            }
            FieldClass::Expect => self.unknown_expectation = true,
            FieldClass::Te => {
                self.accepts_trailers |=
                    list_elements(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
            }
            FieldClass::KeepAlive => self.read_keep_alive(value),
            FieldClass::Connection => self.read_connection(value)?,
            FieldClass::ContentType | FieldClass::Hop | FieldClass::Other => {}
        }
        Ok(())
    }

    fn read_connection(&mut self, value: &[u8]) -> Result<(), HeadError> {
        // A list may have empty elements (RFC 9110, 5.6.1.2).
        for option in list_elements(value).filter(|option| !option.is_empty()) {
            let class = FieldClass::of(option);
            self.options += 1;
            if !is_token(option)
                || class.frames_or_routes()
                || self.options > CONNECTION_OPTIONS_MAX
            {
                return Err(HeadError::BadConnection);
            }
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            // Whatever it is, an end-to-end field of that name is not to leave this hop.
            self.lists_fields |= !class.is_hop_by_hop();
        }
        Ok(())
    }

    /// `timeout=5, max=100`. What is not understood is ignored: it only ever makes a pool more
    /// careful.
    fn read_keep_alive(&mut self, value: &[u8]) {
        for element in list_elements(value) {
            let mut parts = element.splitn(2, |&byte| byte == b'=');
            let (Some(name), Some(number)) = (parts.next(), parts.next()) else { continue };
            let number = parse_decimal(number).and_then(|number| u32::try_from(number).ok());
            if name.eq_ignore_ascii_case(b"timeout") {
                self.keep_alive_timeout_s = number.or(self.keep_alive_timeout_s);
            } else if name.eq_ignore_ascii_case(b"max") {
                self.keep_alive_max = number.or(self.keep_alive_max);
            }
        }
    }

    fn check_framing(&self, version: Version) -> Result<(), HeadError> {
        if self.chunked && self.content_length.is_some() {
            Err(HeadError::LengthAndCoding)
        } else if self.chunked && version == Version::Http10 {
            Err(HeadError::CodingOnHttp10)
        } else {
            Ok(())
        }
    }
}

/// Accepts exactly `chunked`. A well-formed list with another coding in it, `chunked` nowhere but
/// at its end, is a coding we do not know (501); everything else has no certain end (400).
fn check_transfer_encoding(value: &[u8]) -> Result<(), HeadError> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(());
    }
    let well_formed = list_elements(value).all(is_token);
    let count = list_elements(value).count();
    let early = list_elements(value).take(count.saturating_sub(1)).any(is_chunked);
    if well_formed && !early {
        Err(HeadError::UnknownCoding)
    } else {
        Err(HeadError::BadTransferEncoding)
    }
}
