//! Unsafe code, memory orderings and locks: where they may be and what must stand beside them.

use super::layers::is_word;
use super::{File, Finding, Tree};

/// Files that may hold unsafe code, each with its reason.
pub const UNSAFE_FILES: [(&str, &str); 6] = [
    (
        "proxy/src/socket.rs",
        "the runtime's stream wants a unique borrow for what only clones a handle",
    ),
    ("proxy/src/stream_ring/uring.rs", "a ring's entries and buffers are raw memory"),
    (
        "proxy/src/prompt/json/vectors.rs",
        "only the processor knows whether it has what a function is compiled for",
    ),
    ("proxy/src/pages.rs", "the allocator's options are set by a function of C"),
    ("bench/src/bin/bare_ring/ring.rs", "io_uring shares buffers with the kernel"),
    ("bench/src/bin/counted/counting.rs", "an allocator that counts is still an allocator"),
];

/// Crates that forbid unsafe code in the compiler too.
const SAFE_CRATES: [&str; 3] = ["index/", "config/", "loadgen/"];

/// Crates whose atomics explain themselves.
const ATOMIC_CRATES: [&str; 2] = ["index/src/", "proxy/src/"];

/// The one file of `index` that names the atomics' home: the standard library, or loom.
const ATOMIC_HOME: &str = "index/src/sync.rs";

/// How far above an ordering its comment may stand, in lines.
const COMMENT_LINES: usize = 5;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// Modules of `proxy` on the path of a request, where no thread may wait for another.
const DATA_PATH: [&str; 26] = [
    "alarm",
    "answer",
    "api",
    "body",
    "classify",
    "client",
    "conversation",
    "encoding",
    "exchange",
    "forward",
    "http",
    "memory",
    "place",
    "plan",
    "pool",
    "prompt",
    "record",
    "relay",
    "reply",
    "ring",
    "session",
    "shard",
    "sse",
    "stream_ring",
    "upstream",
    "usage",
];

/// Lines of code that hold `word` as a whole word.
fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let holds = move |line: &str| has_word(line, word);
    code.lines().enumerate().filter(move |(_, line)| holds(line)).map(|(index, _)| index + 1)
}

/// Whether a line holds `word` with no letter, digit or `_` before it, nor after it if it ends in one.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let bytes = line.as_bytes();
        let before = at > 0 && is_word(bytes[at - 1]);
        let last = word.bytes().last().is_some_and(is_word);
        let after = last && bytes.get(at + word.len()).copied().is_some_and(is_word);
        !before && !after
    })
}

/// Unsafe code stands only in the files listed for it.
pub fn unsafe_code_stands_where_it_is_expected(tree: &Tree) -> Vec<Finding> {
    let expected = |file: &&File| !UNSAFE_FILES.iter().any(|(path, _)| file.path == *path);
    let findings = |file: &File| -> Vec<Finding> {
        let what = "unsafe code outside the files listed for it";
        let lines = lines_with(&file.layers.code, "unsafe");
        lines.map(|line| Finding::new(&file.path, line, what)).collect()
    };
    tree.rust().filter(expected).flat_map(findings).collect()
}

/// The crates that need no unsafe code say so to the compiler.
pub fn safe_crates_forbid_unsafe_code(tree: &Tree) -> Vec<Finding> {
    let root = |file: &&File| {
        let name = SAFE_CRATES.iter().find_map(|folder| file.path.strip_prefix(folder));
        matches!(name, Some("src/lib.rs" | "src/main.rs"))
    };
    let allows = |file: &&File| !file.layers.code.contains("#![forbid(unsafe_code)]");
    let what = "the crate's root must say #![forbid(unsafe_code)]";
    let roots = tree.rust().filter(root).filter(allows);
    roots.map(|file| Finding::new(&file.path, 0, what)).collect()
}

/// Every memory ordering has a comment saying what it pairs with.
pub fn orderings_are_explained(tree: &Tree) -> Vec<Finding> {
    let files = ATOMIC_CRATES.iter().flat_map(|folder| tree.rust_in(folder));
    files.flat_map(unexplained).collect()
}

fn unexplained(file: &File) -> Vec<Finding> {
    let comments: Vec<&str> = file.layers.comments.lines().collect();
    let explains = |line: &&str| {
        let comment = line.trim();
        let plain = !comment.starts_with("///") && !comment.starts_with("//!");
        plain && comment.contains("//") || ORDERINGS.iter().any(|name| comment.contains(name))
    };
    let mut findings = Vec::new();
    for (index, line) in file.shipped.lines().enumerate() {
        if line.contains("Ordering::{") || line.contains("Ordering::*") {
            let what = "import Ordering alone, so that each use is seen as one";
            findings.push(Finding::new(&file.path, index + 1, what));
        }
        let above = index.saturating_sub(COMMENT_LINES)..=index;
        if ordering(line) && !comments.get(above).unwrap_or_default().iter().any(explains) {
            let what = "say in a // comment above what this ordering pairs with, or why Relaxed";
            findings.push(Finding::new(&file.path, index + 1, what));
        }
    }
    findings
}

/// Whether a line names a memory ordering; the `Ordering` of a comparison is another thing.
fn ordering(line: &str) -> bool {
    ORDERINGS.iter().any(|name| has_word(line, &format!("Ordering::{name}")))
}

/// Files of `index` with atomics open with a section on them.
pub fn files_with_atomics_open_with_their_orderings(tree: &Tree) -> Vec<Finding> {
    let atomic = |file: &&File| file.path != ATOMIC_HOME && file.shipped.lines().any(ordering);
    let silent = |file: &&File| {
        let mut head = file.text.lines().take_while(|line| line.starts_with("//!"));
        !head.any(|line| line.trim_end() == "//! # Orderings")
    };
    let what = "atomics are used here: the head must have a section `//! # Orderings`";
    let files = tree.rust_in("index/src/").filter(atomic).filter(silent);
    files.map(|file| Finding::new(&file.path, 0, what)).collect()
}

/// In `index`, atomics come through one module, so that loom can replace them all.
pub fn atomics_come_through_one_module(tree: &Tree) -> Vec<Finding> {
    let foreign = |line: &str| has_word(line, "atomic::") || has_word(line, "loom::");
    let mut findings = Vec::new();
    for file in tree.rust_in("index/src/").filter(|file| file.path != ATOMIC_HOME) {
        for (index, _) in file.shipped.lines().enumerate().filter(|(_, line)| foreign(line)) {
            let what = format!("take it from {ATOMIC_HOME}, so that loom can replace it");
            findings.push(Finding::new(&file.path, index + 1, what));
        }
    }
    findings
}

/// No lock in `index` nor on the path of a request.
pub fn nothing_on_the_data_path_locks(tree: &Tree) -> Vec<Finding> {
    let on_path = |file: &&File| {
        file.path.starts_with("index/src/")
            || DATA_PATH.iter().any(|name| file.is_module("proxy/src/", name))
    };
    let mut findings = Vec::new();
    for file in tree.rust().filter(on_path) {
        for lock in ["Mutex", "RwLock", "Condvar"] {
            for line in lines_with(&file.shipped, lock) {
                let what = format!("{lock}: no thread waits for another on the data path");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// The proxy's compiler refuses panics where hostile bytes arrive.
pub fn the_proxy_denies_panics(tree: &Tree) -> Vec<Finding> {
    let lints = ["unwrap_used", "expect_used", "panic", "indexing_slicing"];
    let Some(file) = tree.file("proxy/src/lib.rs") else { return Vec::new() };
    let attributes = file.layers.code.split("#![").skip(1);
    let attributes = attributes.filter_map(|rest| rest.split(']').next());
    let denied: String = attributes.filter(|attribute| attribute.contains("deny(")).collect();
    let missing = lints.iter().filter(|lint| !denied.contains(&format!("clippy::{lint}")));
    let what = |lint: &&str| format!("the crate's root must deny clippy::{lint} outside tests");
    missing.map(|lint| Finding::new(&file.path, 0, what(lint))).collect()
}
