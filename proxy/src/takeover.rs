//! Handing the listening sockets to a successor, so that a new binary refuses nobody, and what is known of the
//! backends' caches, so that no conversation is computed elsewhere for it.
//!
//! The successor asks over a Unix socket that its own user and root alone reach, makes itself ready, accepts
//! connections beside the running process, and says so. Only then does that one stop accepting, let its
//! streams finish and end; until then nothing has changed for it, so a successor that fails is no loss.
//! Nothing here is reachable from the network, and no byte of what was said is handed over.

mod door;
pub(crate) mod handover;
mod offer;
mod taking;

pub(crate) use door::Door;
pub(crate) use offer::{Offer, Role};
pub(crate) use taking::Taking;

use std::io;

/// What a successor says first. The number changes with the words.
pub(crate) const HELLO: &[u8] = b"shearwater takeover 2\n";
/// What it says if it asks for what the running process knows: its length in eight bytes, least first, and the bytes.
pub(crate) const HANDOVER: &[u8] = b"handover\n";
/// What it says once it accepts connections.
pub(crate) const READY: &[u8] = b"ready\n";
/// What it is then answered: from now on the sockets are its own.
pub(crate) const GO: &[u8] = b"go\n";
/// How every other answer begins; the reason follows.
pub(crate) const NO: &str = "no ";

/// Whether a process of this user may hand over or take: the same user, or root.
pub(crate) fn may(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// An answer that is none of the expected ones, as an error.
fn refusal(answer: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(answer);
    let reason = text.strip_prefix(NO).unwrap_or("it answered what was not understood").trim_end();
    io::Error::other(crate::control::http_client::clipped(reason))
}
