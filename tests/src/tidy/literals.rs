//! Facts with one home: status codes, metric names.

use super::layers::is_word;
use super::{File, Finding, Tree};

/// Files and folders where a status code may stand as a number, each with its reason.
pub const STATUS_FILES: [(&str, &str); 4] = [
    ("proxy/src/answer", "our own answers, and the table of what each failure is answered with"),
    ("proxy/src/limits.rs", "numbers there are bounds"),
    ("proxy/src/http/write.rs", "the reason phrases"),
    ("proxy/src/control", "reads what an engine's own endpoints answer, and answers no client"),
];

/// Status codes from 400 on that are registered, and the two that model servers made up.
const STATUS: [&str; 41] = [
    "400", "401", "402", "403", "404", "405", "406", "407", "408", "409", "410", "411", "412",
    "413", "414", "415", "416", "417", "421", "422", "423", "424", "425", "426", "428", "429",
    "431", "451", "499", "500", "501", "502", "503", "504", "505", "506", "507", "508", "510",
    "511", "529",
];

/// Codes that are also ordinary numbers: they count where the line speaks of a status.
const ROUND: [&str; 2] = ["400", "500"];

/// Where metric names stand: `metrics.rs`, `metrics_names.rs`, `metrics/`.
const METRICS: &str = "proxy/src/metrics";

/// A status code is a number in one place, and a name everywhere else.
pub fn status_codes_have_one_home(tree: &Tree) -> Vec<Finding> {
    let home = |file: &&File| STATUS_FILES.iter().any(|(path, _)| file.path.starts_with(path));
    let mut findings = Vec::new();
    for file in tree.rust_in("proxy/src/").filter(|file| !home(file)) {
        for (index, line) in file.shipped.lines().enumerate() {
            let speaks = line.to_lowercase().contains("status");
            let counts =
                |number: &&str| STATUS.contains(number) && (speaks || !ROUND.contains(number));
            for number in numbers(line).filter(counts) {
                let what = format!(
                    "{number}: status codes stand in proxy/src/answer; a bound that looks like one \
                     belongs in limits.rs"
                );
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// Metric names are written down once, in the metrics module.
pub fn metric_names_have_one_home(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_in("proxy/src/").filter(|file| !file.is_test()) {
        if file.path.starts_with(METRICS) {
            continue;
        }
        for (index, line) in file.layers.strings.lines().enumerate() {
            let shipped = file.shipped.lines().nth(index).is_some_and(|line| line.contains('"'));
            if shipped && line.contains("\"shearwater_") {
                let what = "metric names stand in proxy/src/metrics";
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// The numbers of a line of code that are no part of a word, a longer number or a fraction.
fn numbers(line: &str) -> impl Iterator<Item = &str> {
    let bytes = line.as_bytes();
    let starts = line.char_indices().filter(move |(at, c)| {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let fraction = before == Some(b'.') && at.checked_sub(2).map(|at| bytes[at]) != Some(b'.');
        c.is_ascii_digit() && !before.is_some_and(is_word) && !fraction
    });
    starts.filter_map(|(at, _)| {
        let length = line[at..].bytes().take_while(u8::is_ascii_digit).count();
        let after = &line[at + length..];
        let typed = after.strip_prefix("u16").unwrap_or(after);
        let longer = typed.bytes().next().is_some_and(is_word);
        let float = after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_digit());
        (!longer && !float).then(|| &line[at..at + length])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_found_and_parts_of_others_are_not() {
        let found = |line: &'static str| numbers(line).collect::<Vec<_>>();
        assert_eq!(found("404 | 429u16 => 500..=599"), ["404", "429", "500", "599"]);
        assert_eq!(found("x404 4_000 1.404 404.5 0x404 404_u32"), Vec::<&str>::new());
    }
}
