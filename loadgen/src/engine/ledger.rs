//! Which prompts engines took, in a file that outlives them: a prompt that stands there twice was worked on twice. It holds
//! hashes and no text, and it is never read here.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The file, or nothing at all.
#[derive(Debug)]
pub(super) struct Ledger(Option<File>);

impl Ledger {
    /// Opened to append, so that several engines may share one file.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(path.map(open).transpose()?))
    }

    /// One line in one write: whole whatever happens to the process after it.
    pub(super) fn note_taken(&self, prompt_hash: u64) {
        if let Some(mut file) = self.0.as_ref() {
            // A full disk must not change how the engine behaves; whoever counts lines will see it.
            let _ = file.write_all(format!("{prompt_hash:016x}\n").as_bytes());
        }
    }
}
