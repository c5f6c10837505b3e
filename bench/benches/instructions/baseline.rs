//! The committed counts, and what a new one means beside them.

use std::fmt::Write as _;

/// Instructions an operation, by case.
pub(crate) type Counts = Vec<(&'static str, u64)>;

/// Growth of a count that fails, in hundredths: far above what a harmless change moves, far below what anybody feels.
const GROWTH_MAX_PERCENT: u64 = 5;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/baseline.txt");

const HEAD: &str = "# Instructions an operation, counted by callgrind on x86_64 (see main.rs). Written by\n\
    # `cargo bench -p bench --bench instructions -- --update`; say why in the commit that changes a number.\n";

/// What came of a comparison.
pub(crate) struct Verdict {
    /// Nothing grew too much, and the cases are those of the baseline.
    pub(crate) is_fine: bool,
    /// One line a case.
    pub(crate) lines: Vec<String>,
}

/// Compares with the committed counts.
///
/// # Errors
/// When they cannot be read.
pub(crate) fn compare(counts: &Counts) -> std::io::Result<Verdict> {
    let committed = std::fs::read_to_string(FILE)?;
    let before: Vec<(&str, u64)> = committed.lines().filter_map(parse).collect();
    let mut verdict = Verdict { is_fine: true, lines: Vec::new() };
    for (name, count) in counts {
        let known = before.iter().find(|(other, _)| other == name).map(|(_, count)| *count);
        let (is_fine, said) = judge(known, *count);
        verdict.is_fine &= is_fine;
        verdict.lines.push(format!("{name:24} {count:9} instructions  {said}"));
    }
    for (name, _) in before.iter().filter(|(name, _)| counts.iter().all(|(new, _)| new != name)) {
        verdict.is_fine = false;
        verdict.lines.push(format!("{name:24} is in the baseline and was not counted"));
    }
    Ok(verdict)
}

/// The cases of which a slower count would pass beside these.
pub(crate) fn unseen(counts: &Counts, slower: &Counts) -> Vec<&'static str> {
    let pairs = counts.iter().zip(slower);
    pairs
        .filter(|((_, now), (_, slow))| judge(Some(*now), *slow).0)
        .map(|((name, _), _)| *name)
        .collect()
}

fn judge(before: Option<u64>, count: u64) -> (bool, String) {
    let Some(before) = before else { return (false, "not in the baseline".to_owned()) };
    let percent = change_percent(before, count);
    if count * 100 > before * (100 + GROWTH_MAX_PERCENT) {
        (false, format!("TOO MANY: {percent} from {before}"))
    } else if count * (100 + GROWTH_MAX_PERCENT) < before * 100 {
        (true, format!("{percent} from {before}: write it down with --update"))
    } else {
        (true, format!("{percent} from {before}"))
    }
}

fn change_percent(before: u64, count: u64) -> String {
    let (sign, by) = if count >= before { ('+', count - before) } else { ('-', before - count) };
    let tenths = by * 1_000 / before.max(1);
    format!("{sign}{}.{} %", tenths / 10, tenths % 10)
}

fn parse(line: &str) -> Option<(&str, u64)> {
    let (name, count) = line.split_once(' ')?;
    Some((name, count.trim().parse().ok()?))
}

/// Replaces the committed counts.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(counts: &Counts) -> std::io::Result<()> {
    let mut text = HEAD.to_owned();
    for (name, count) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} {count}");
    }
    std::fs::write(FILE, text)
}
