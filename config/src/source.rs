//! Where a configuration comes from: a file, a text, or the command line alone.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

use crate::error::{ConfigError, Problem};
use crate::model::Config;
use crate::{check, raw};

/// Largest file that is read; a thousand backends with long model lists need a tenth of it.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// How errors name a configuration that has no file.
const COMMAND_LINE: &str = "command line";

impl Config {
    /// Reads and checks a file. Errors name it as `path` does.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = read(path).map_err(|reason| ConfigError::whole(&name, reason))?;
        Self::parse(&name, &text)
    }

    /// Checks a TOML text; errors name it as `name`. All problems found are in the error.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problems = errors.iter().map(|error| syntax(text, error)).collect();
            return Err(ConfigError::new(name, problems));
        }
        check::config(text, &document).map_err(|problems| ConfigError::new(name, problems))
    }

    /// The configuration of a start without a file: these backends (`http://host:port`), these
    /// addresses (none means the default), and the default of everything else.
    pub fn from_backends<S: AsRef<str>>(
        urls: &[S],
        listen: &[SocketAddr],
        admin: Option<SocketAddr>,
    ) -> Result<Self, ConfigError> {
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        check::command_line(&urls, listen, admin)
            .map_err(|problems| ConfigError::new(COMMAND_LINE, problems))
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut text = String::new();
    let count = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if count as u64 > FILE_BYTES_MAX {
        return Err(format!("cannot read: larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// What the parser says, on the line it says it about. The parser's message quotes no text.
fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    let line = error.span().map(|span| raw::line_of(text, span.start));
    let reason = format!("not valid TOML: {}", error.message());
    Problem { line, key: String::new(), value: None, reason }
}

/// A document without keys, which the defaults of everything are read from.
pub(crate) fn empty_document() -> Spanned<DeTable<'static>> {
    Spanned::new(0..0, DeTable::new())
}
