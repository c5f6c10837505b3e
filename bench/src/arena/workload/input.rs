//! Files as lines, packed or not. It knows no format.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::arena::ArenaError;

/// The lines of a file, unpacked if its name ends in `.gz`.
pub(super) fn lines(path: &Path) -> Result<Vec<String>, ArenaError> {
    let file = File::open(path).map_err(ArenaError::file(path))?;
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let read: Box<dyn Read> = match packed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let lines: Result<Vec<String>, std::io::Error> = BufReader::new(read).lines().collect();
    lines.map_err(ArenaError::file(path))
}

/// A file's name up to its first dot: what its rows are called.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}
