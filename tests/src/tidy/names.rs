//! Words: the ones that mean too many things, leftovers of work, and places that are not ours.

use super::safety::has_word;
use super::{File, Finding, Tree};

/// Words that mean something else in every project, with what to say instead.
const BANNED: [(&str, &str); 7] = [
    ("worker", "say backend, shard or thread"),
    ("workers", "say backends, shards or threads"),
    ("node", "say backend, or what it is in its tree"),
    ("manager", "say what it does"),
    ("util", "say what it is for"),
    ("utils", "say what they are for"),
    ("context", "say what is in it"),
];

/// Words that are fine in the name of a function, where the field has no other: a model's context
/// length, a span's child nodes.
const FINE_IN_FUNCTIONS: [&str; 2] = ["context", "node"];

/// Where a tree has nodes.
const TREES: [&str; 2] = ["index/src/", "index/tests/"];

const DECLARING_TYPES: [&str; 6] = ["mod", "struct", "enum", "trait", "type", "union"];
const DECLARING_OTHERS: [&str; 4] = ["fn", "const", "static", "macro_rules!"];

/// Files that print: the output module of each binary.
const PRINTING: [&str; 2] = ["output", "say"];

/// What the root of the repository holds: our crates, and the files that tools and readers expect.
const ROOT: [&str; 19] = [
    ".cargo",
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "bench",
    "clippy.toml",
    "config",
    "deny.toml",
    "index",
    "loadgen",
    "proxy",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "tests",
];

/// No file and no declared name has a word that means too many things.
pub fn names_use_the_fields_words(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|file| [path_words(file), declared_words(file)].concat()).collect()
}

fn path_words(file: &File) -> Vec<Finding> {
    let parts = file.path.trim_end_matches(".rs").split('/');
    let found = parts.filter_map(|part| banned(part, file, &[]));
    found.map(|what| Finding::new(&file.path, 0, what)).collect()
}

fn declared_words(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.layers.code.lines().enumerate() {
        let types = declared(line, &DECLARING_TYPES).into_iter().map(|name| (name, &[][..]));
        let others = declared(line, &DECLARING_OTHERS).into_iter();
        let others = others.map(|name| (name, &FINE_IN_FUNCTIONS[..]));
        for what in types.chain(others).filter_map(|(name, fine)| banned(name, file, fine)) {
            findings.push(Finding::new(&file.path, index + 1, what));
        }
    }
    findings
}

/// The names a line declares: what follows `fn`, `struct` and so on.
fn declared<'l>(line: &'l str, declaring: &[&str]) -> Vec<&'l str> {
    let ends = [' ', '(', ')', '<', ':', '{', ';', '='];
    let mut words = line.split(ends).filter(|word| !word.is_empty());
    let mut names = Vec::new();
    while let Some(word) = words.next() {
        if declaring.contains(&word) {
            names.extend(words.clone().next());
        }
    }
    names
}

fn banned(name: &str, file: &File, fine: &[&str]) -> Option<String> {
    let in_tree = TREES.iter().any(|folder| file.path.starts_with(folder));
    let words = split(name);
    let (word, instead) = BANNED.iter().find(|(word, _)| {
        let allowed = fine.contains(word) || in_tree && *word == "node";
        words.iter().any(|part| part == word) && !allowed
    })?;
    Some(format!("`{name}`: not `{word}`, {instead}"))
}

/// The words of a `snake_case` or `CamelCase` name, in lower case.
fn split(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        let starts = letter.is_uppercase() && before.is_lowercase();
        if starts || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words
}

/// The root holds our crates and what tools and readers expect, and nothing else.
pub fn the_root_holds_only_what_belongs_there(tree: &Tree) -> Vec<Finding> {
    let stray = |file: &&File| {
        let entry = file.path.split('/').next().unwrap_or_default();
        !ROOT.contains(&entry)
    };
    let what = "this does not belong in the root of the repository";
    tree.files.iter().filter(stray).map(|file| Finding::new(&file.path, 0, what)).collect()
}

/// Nothing is left over from work: no debugging macro, no note to oneself.
pub fn nothing_is_left_over_from_work(tree: &Tree) -> Vec<Finding> {
    let macros = ["dbg!", "todo!", "unimplemented!"];
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_ours(file)) {
        let code = file.layers.code.lines().enumerate();
        for (index, line) in code {
            for name in macros.iter().filter(|name| has_word(line, name)) {
                findings.push(Finding::new(&file.path, index + 1, format!("{name} on main")));
            }
        }
        for (index, line) in file.text.lines().enumerate() {
            for note in notes.iter().filter(|note| has_word(line, note)) {
                let what = format!("{note}: do it, or say what is missing in a sentence");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// Only the output module of a binary prints.
pub fn only_output_modules_print(tree: &Tree) -> Vec<Finding> {
    let macros = ["println!", "print!", "eprintln!", "eprint!"];
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !PRINTING.contains(&file.stem())) {
        for (index, line) in file.shipped.lines().enumerate() {
            for name in macros.iter().filter(|name| has_word(line, name)) {
                let what = format!("{name} outside the binary's output module");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// A test that is not run says why.
pub fn ignored_tests_say_why(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (index, line) in file.layers.code.lines().enumerate() {
            if line.contains("#[ignore]") {
                let what = "#[ignore = \"...\"] must say why";
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// No path of somebody's machine.
pub fn no_path_of_a_machine_is_named(tree: &Tree) -> Vec<Finding> {
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp", "/wt"),
        concat!("/tmp", "/target"),
    ];
    named(tree, &paths, "a path of one machine")
}

/// No package registry by its host name: mirrors exist, and tools know their registry.
pub fn no_registry_host_is_named(tree: &Tree) -> Vec<Finding> {
    let hosts = [
        concat!("crates", ".io"),
        concat!("py", "pi."),
        concat!("pythonhosted", ".org"),
        concat!("npmjs", "."),
        concat!("proxy.golang", ".org"),
        concat!("artifact", "ory"),
        concat!("deb.", "debian", ".org"),
        concat!("archive.ubuntu", ".com"),
    ];
    named(tree, &hosts, "a package registry's host")
}

fn named(tree: &Tree, parts: &[&str], what: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_ours(file)) {
        for (index, line) in file.text.lines().enumerate() {
            for part in parts.iter().filter(|part| line.contains(**part)) {
                findings.push(Finding::new(&file.path, index + 1, format!("{what}: {part}")));
            }
        }
    }
    findings
}

/// Files written by hand; the lock file is written by cargo, and the licence by others.
fn is_ours(file: &File) -> bool {
    !file.path.ends_with("Cargo.lock") && file.path != "LICENSE"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_their_words() {
        assert_eq!(split("HttpWorker"), ["http", "worker"]);
        assert_eq!(split("context_menu"), ["context", "menu"]);
        assert_eq!(split("network"), ["network"]);
    }

    #[test]
    fn declared_names_are_found_and_used_names_are_not() {
        assert_eq!(declared("pub fn make<T>(worker: T) -> Node {", &["fn"]), ["make"]);
        assert_eq!(declared("pub(crate) mod util;", &["mod"]), ["util"]);
        let none = declared("let cx = Context::from_waker(w);", &DECLARING_TYPES);
        assert_eq!(none, Vec::<&str>::new());
    }
}
