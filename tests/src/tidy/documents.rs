//! The architecture document against the tree: it names every module, only what exists, and a
//! test for every invariant.
//!
//! What it must look like:
//! - Each crate has a heading of any level that begins with the crate's name, alone or in
//!   backticks (`### index`, `### `index`: the decision core`), below a heading `Code map`. In its
//!   section every file of the crate's `src`, but `lib.rs` and `main.rs`, is named in backticks by
//!   its path below `src`: `` `tree.rs` ``, `` `http/head.rs` ``, or several at once as
//!   `` `http/{head,framing}.rs` ``. A `mod.rs` is named by its folder: `` `http/` ``.
//! - A heading `Invariants` is followed by a list. Each item ends with its tests:
//!   ``test: `tests/tests/e2e.rs::a_full_backend_is_busy` ``, several separated by commas.
//!
//! And the README against the table of peers that was recorded: it shows the whole of it, letter by letter.

use super::purity::CRATES;
use super::safety::has_word;
use super::{File, Finding, Tree};

/// The document.
pub const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// A heading with the lines up to the next one of its level or above.
struct Section<'t> {
    line: usize,
    title: &'t str,
    lines: Vec<(usize, &'t str)>,
}

/// The file that the README's table of peers comes from.
pub const PEERS_TABLE: &str = "bench/results/peers.md";

/// The README shows the table of peers as it was recorded.
pub fn the_readme_shows_the_recorded_table_of_peers(tree: &Tree) -> Vec<Finding> {
    let Some(recorded) = tree.file(PEERS_TABLE) else { return missing("the recorded table") };
    match tree.file("README.md") {
        Some(readme) if !recorded.text.is_empty() && readme.text.contains(&recorded.text) => {
            Vec::new()
        }
        _ => vec![Finding::new("README.md", 0, format!("does not show what {PEERS_TABLE} holds"))],
    }
}

/// Every module is in the code map.
pub fn the_architecture_names_every_module(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.file(ARCHITECTURE) else { return missing("the document") };
    let sections = code_map(&document.text);
    let mut findings = Vec::new();
    for name in CRATES {
        let named: Vec<String> = entries(&sections, name).into_iter().map(|(_, e)| e).collect();
        for (file, below) in modules(tree, name) {
            if !is_named(below, &named) {
                let what = format!(
                    "not in the code map of {ARCHITECTURE}: name `{below}` under a \
                                    heading `{name}`"
                );
                findings.push(Finding::new(&file.path, 0, what));
            }
        }
    }
    findings
}

/// The code map names only files that exist.
pub fn the_architecture_names_only_what_exists(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.file(ARCHITECTURE) else { return missing("the document") };
    let sections = code_map(&document.text);
    let mut findings = Vec::new();
    for name in CRATES {
        for (line, entry) in entries(&sections, name) {
            let paths = ["src/", ""].map(|folder| format!("{name}/{folder}{entry}"));
            if !exists(tree, &entry) && !paths.iter().any(|path| exists(tree, path)) {
                let what = format!("names `{entry}` of {name}, but there is no {}", paths[0]);
                findings.push(Finding::new(ARCHITECTURE, line, what));
            }
        }
    }
    findings
}

/// Every invariant names tests that exist.
pub fn every_invariant_names_its_test(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.file(ARCHITECTURE) else { return missing("the document") };
    let sections = sections(&document.text);
    let Some(section) = sections.iter().find(|section| section.title == "Invariants") else {
        return missing("a heading `Invariants` with a list");
    };
    let items = items(section);
    if items.is_empty() {
        let what = "the invariants must be a list";
        return vec![Finding::new(ARCHITECTURE, section.line, what)];
    }
    items.iter().flat_map(|(line, item)| item_findings(tree, *line, item)).collect()
}

/// Whether there is such a file, or anything in such a folder.
fn exists(tree: &Tree, path: &str) -> bool {
    let folder = path.ends_with('/');
    tree.files.iter().any(|file| file.path == path || folder && file.path.starts_with(path))
}

fn missing(what: &str) -> Vec<Finding> {
    vec![Finding::new(ARCHITECTURE, 0, format!("{what} is missing"))]
}

fn item_findings(tree: &Tree, line: usize, item: &str) -> Vec<Finding> {
    let finding = |what: String| Finding::new(ARCHITECTURE, line, what);
    let Some((_, tests)) = item.rsplit_once("test: ") else {
        return vec![finding("an invariant without its `test: `file.rs::name``".to_owned())];
    };
    let names: Vec<&str> = backticked(tests).collect();
    if names.is_empty() {
        return vec![finding("`test:` must name `file.rs::name` in backticks".to_owned())];
    }
    let absent = names.into_iter().filter(|name| !is_test(tree, name));
    absent.map(|name| finding(format!("there is no test `{name}`"))).collect()
}

/// Whether `path/file.rs::name` is a function marked as a test.
fn is_test(tree: &Tree, name: &str) -> bool {
    let Some((path, function)) = name.split_once(".rs::") else { return false };
    let Some(file) = tree.file(&format!("{path}.rs")) else { return false };
    let function = function.rsplit("::").next().unwrap_or(function);
    let lines: Vec<&str> = file.layers.code.lines().collect();
    let declared = |line: &str| has_word(line, &format!("fn {function}"));
    let marked = |at: usize| lines[at.saturating_sub(4)..at].iter().any(|line| is_mark(line));
    lines.iter().enumerate().any(|(at, line)| declared(line) && (marked(at) || is_mark(line)))
}

/// Whether a line has an attribute that marks a test, of whatever runtime.
fn is_mark(line: &str) -> bool {
    let attributes = line.split("#[").skip(1).filter_map(|rest| rest.split([']', '(']).next());
    attributes.into_iter().any(|name| name == "test" || name.ends_with("::test"))
}

/// Headings of a Markdown text with what is below them; fenced code has no headings.
fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<(usize, Section<'_>)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if level > 0 && !fenced && line[level..].starts_with(' ') {
            open.retain(|at| sections[*at].0 < level);
            open.push(sections.len());
            let title = line[level..].trim();
            sections.push((level, Section { line: index + 1, title, lines: Vec::new() }));
        }
        for at in &open {
            sections[*at].1.lines.push((index + 1, line));
        }
    }
    sections.into_iter().map(|(_, section)| section).collect()
}

/// The sections below the heading `Code map`.
fn code_map(text: &str) -> Vec<Section<'_>> {
    let all = sections(text);
    let Some(map) = all.iter().find(|section| section.title == "Code map") else {
        return Vec::new();
    };
    let inside = map.line..map.line + map.lines.len();
    all.into_iter().filter(|section| inside.contains(&section.line)).collect()
}

/// Files and folders named in the sections of one crate, with their lines.
fn entries(sections: &[Section<'_>], name: &str) -> Vec<(usize, String)> {
    let of_crate = |section: &&Section<'_>| {
        let title = section.title.trim_start_matches('`');
        let rest = title.strip_prefix(name);
        rest.is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric() || "_/".contains(c))
        })
    };
    let lines = sections.iter().filter(of_crate).flat_map(|section| &section.lines);
    let spans = lines.flat_map(|(line, text)| backticked(text).map(move |span| (*line, span)));
    let files = spans.filter(|(_, span)| is_path(span));
    files.flat_map(|(line, span)| expanded(span).into_iter().map(move |e| (line, e))).collect()
}

fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/{},.".contains(c);
    let path = span.ends_with(".rs") || span.ends_with('/');
    path && span.chars().all(plain) && span.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(span: &str) -> Vec<String> {
    let (Some(open), Some(close)) = (span.find('{'), span.find('}')) else {
        return vec![span.to_owned()];
    };
    if close < open {
        return vec![span.to_owned()];
    }
    let inner = span[open + 1..close].split(',');
    inner.map(|part| format!("{}{part}{}", &span[..open], &span[close + 1..])).collect()
}

/// What stands between backticks on a line.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A crate's files below `src` with their paths there; roots name themselves.
fn modules<'t>(tree: &'t Tree, name: &str) -> Vec<(&'t File, &'t str)> {
    let folder = format!("{name}/src/");
    let files = tree.rust().filter_map(|file| Some((file, file.path.strip_prefix(&folder)?)));
    files.filter(|(_, below)| !["lib.rs", "main.rs"].contains(below)).collect()
}

/// A folder's `mod.rs` is named by the folder, or by anything in it.
fn is_named(below: &str, named: &[String]) -> bool {
    match below.strip_suffix("mod.rs") {
        Some(folder) => named.iter().any(|entry| entry.starts_with(folder)),
        None => named.iter().any(|entry| entry == below),
    }
}

/// The items of a list, each with its first line; what is indented or wrapped belongs to its item.
fn items(section: &Section<'_>) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (line, text) in section.lines.iter().skip(1) {
        if is_item(text) {
            items.push((*line, (*text).to_owned()));
            inside = true;
        } else if text.trim().is_empty() {
            inside = false;
        } else if let Some((_, item)) = items.last_mut().filter(|_| inside || text.starts_with(' '))
        {
            item.push(' ');
            item.push_str(text.trim());
        }
    }
    items
}

fn is_item(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let numbered = digits > 0 && line[digits..].starts_with(". ");
    numbered || line.starts_with("- ") || line.starts_with("* ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_files_can_be_named_at_once() {
        assert_eq!(expanded("http/{head,chunk}.rs"), ["http/head.rs", "http/chunk.rs"]);
        assert_eq!(expanded("tree.rs"), ["tree.rs"]);
        assert_eq!(expanded("}{"), ["}{"]);
    }

    #[test]
    fn a_section_ends_at_the_next_heading_of_its_level() {
        let all = sections("# A\nx\n## B\ny\n```\n# no\n```\n## C\nz\n");
        let shape: Vec<_> = all.iter().map(|s| (s.title, s.line, s.lines.len())).collect();
        assert_eq!(shape, [("A", 1, 9), ("B", 3, 5), ("C", 8, 2)]);
    }

    #[test]
    fn wrapped_items_are_one_item() {
        let all = sections("# Invariants\n1. one\n   more\n2. two\n\ntext\n");
        let found: Vec<_> = items(&all[0]).into_iter().map(|(_, item)| item).collect();
        assert_eq!(found, ["1. one more", "2. two"]);
    }
}
