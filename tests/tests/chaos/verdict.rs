//! What became of a request, judged by everything its client saw. Pure: a transcript in, an outcome or a broken rule out.
//!
//! A request ends as a complete reply, as an error in its dialect, or with its client gone. Anything else breaks a rule.

use super::dialect::{Dialect, Told};
use super::wire::{Malformed, Received};

/// What was asked, and the only right answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) dialect: Dialect,
    pub(crate) streamed: bool,
    pub(crate) right: String,
}

/// How a client stopped listening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The reply's framing ended.
    Framed,
    /// The connection was closed under it.
    Closed,
    /// Nothing came for longer than any timer of the proxy runs.
    Silent,
    /// The client left, or took nothing for longer than anybody waits for it, and was left.
    Left,
}

/// A request that ended as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The whole right reply.
    Whole,
    /// An error as a status.
    Refused(u16),
    /// An error after the reply had begun.
    Broken,
    /// The client left.
    Gone,
}

/// A rule a request broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// No byte came, or none more, and nothing ended.
    Silence,
    /// The connection was closed before a reply.
    NoReply,
    /// The bytes are no reply of HTTP.
    Framing(Malformed),
    /// The reply broke off without an end of its framing.
    CutOff,
    /// It looks complete, and its text is not the whole of it.
    Truncated,
    /// It ends neither as a good reply nor as an error.
    Unended,
    /// It ends both ways.
    TwoEnds,
    /// It holds what belongs to no reply of this client.
    Foreign,
    /// It holds half an event and no error.
    Torn,
    /// It is an error in no dialect of this client.
    NoError(u16),
    /// It is not of the kind that was asked for.
    OtherKind,
}

/// Judges what a client saw.
pub(crate) fn judge(asked: &Asked, raw: &[u8], over: Over) -> Result<Outcome, Violation> {
    match over {
        Over::Silent => return Err(Violation::Silence),
        Over::Closed if raw.is_empty() => return Err(Violation::NoReply),
        Over::Left if !raw.windows(4).any(|four| four == b"\r\n\r\n") => return Ok(Outcome::Gone),
        Over::Closed | Over::Left | Over::Framed => {}
    }
    let received = Received::read(raw).map_err(Violation::Framing)?;
    if received.status >= 400 {
        return refused(asked, &received, over);
    }
    let stream =
        received.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    if stream != asked.streamed {
        return Err(Violation::OtherKind);
    }
    if over == Over::Left {
        return left(asked, &received);
    }
    let told = match asked.streamed {
        true => asked.dialect.read_stream(&received.body),
        false => asked.dialect.read_whole(&received.body),
    };
    ended(asked, &received, &told)
}

fn refused(asked: &Asked, received: &Received, over: Over) -> Result<Outcome, Violation> {
    if over == Over::Left {
        return Ok(Outcome::Gone);
    }
    let of_engine = received.header("x-shearwater-backend").is_some();
    if !received.framed {
        return Err(Violation::CutOff);
    }
    if asked.dialect.is_error(&received.body, of_engine) {
        Ok(Outcome::Refused(received.status))
    } else {
        Err(Violation::NoError(received.status))
    }
}

/// A client that left has seen nothing that is not its own.
fn left(asked: &Asked, received: &Received) -> Result<Outcome, Violation> {
    // The last event may be half here.
    let whole = received.body.rfind("\n\n").map_or("", |end| &received.body[..end + 2]);
    if asked.streamed && !asked.right.starts_with(&asked.dialect.read_stream(whole).text) {
        return Err(Violation::Foreign);
    }
    Ok(Outcome::Gone)
}

fn ended(asked: &Asked, received: &Received, told: &Told) -> Result<Outcome, Violation> {
    if !asked.right.starts_with(&told.text) {
        return Err(Violation::Foreign);
    }
    match (told.ended, told.error) {
        _ if !received.framed => Err(Violation::CutOff),
        (true, true) => Err(Violation::TwoEnds),
        (false, true) => Ok(Outcome::Broken),
        (_, false) if told.torn => Err(Violation::Torn),
        (false, false) => Err(Violation::Unended),
        (true, false) if told.text != asked.right => Err(Violation::Truncated),
        (true, false) => Ok(Outcome::Whole),
    }
}
