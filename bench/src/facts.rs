//! Where results came from: the machine and the commit. It names no person, no host and no path.

use std::process::Command;

use serde_json::{Value, json};

/// Asks for changes, but not for those of the results themselves.
const CHANGES: [&str; 4] = ["status", "--porcelain", "--", ":(top,exclude)bench/results"];

/// Machine and commit.
pub(crate) fn facts() -> Value {
    json!({
        "commit": said("git", &["rev-parse", "HEAD"]),
        "uncommitted_changes": !said("git", &CHANGES).is_empty(),
        "compiler": said("rustc", &["--version"]),
        "kernel": said("uname", &["-sr"]),
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    })
}

/// The same as text.
pub(crate) fn text() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&facts()).map(|text| text + "\n")
}

/// What a program says, or nothing where it cannot be run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}
