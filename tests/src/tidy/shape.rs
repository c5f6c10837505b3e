//! Small shape: what a file begins with, how long it is, how long its functions are.

use super::layers::{is_word, matching};
use super::{File, Finding, Tree};

/// Longest Rust file, in lines.
pub const FILE_LINES_MAX: usize = 600;
/// Longest function, in lines from its `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// The median function is shorter than this.
pub const FUNCTION_LINES_MEDIAN: usize = 10;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, counted from 1.
    pub line: usize,
    /// Lines from there to its closing brace.
    pub lines: usize,
}

/// Every file begins by saying why it exists.
pub fn files_begin_with_a_purpose(tree: &Tree) -> Vec<Finding> {
    let silent = |file: &&File| {
        let first = file.text.lines().next().unwrap_or_default();
        !first.starts_with("//! ") || first.contains("To be written")
    };
    let what = "the first line must be `//! ` and say why this file exists";
    tree.rust().filter(silent).map(|file| Finding::new(&file.path, 1, what)).collect()
}

/// No file is too long to be read in one sitting.
pub fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &File| {
        let lines = file.text.lines().count();
        let what = format!("{lines} lines, more than {FILE_LINES_MAX}: split it by subject");
        (lines > FILE_LINES_MAX).then(|| Finding::new(&file.path, 0, what))
    };
    tree.rust().filter_map(finding).collect()
}

/// No function is too long to be seen at once.
pub fn functions_are_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in functions(&file.layers.code) {
            if function.lines > FUNCTION_LINES_MAX {
                let Function { name, line, lines } = function;
                let what = format!("fn {name} has {lines} lines, more than {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// Most functions are a few lines.
pub fn the_median_function_is_a_few_lines(tree: &Tree) -> Vec<Finding> {
    let lines = function_lines(tree);
    let median = percentile(&lines, 50);
    let what = format!("the median of {} functions is {median} lines", lines.len());
    let too_long = median >= FUNCTION_LINES_MEDIAN;
    too_long.then(|| Finding::new("all Rust files", 0, what)).into_iter().collect()
}

/// The lengths of all functions, shortest first.
pub fn function_lines(tree: &Tree) -> Vec<usize> {
    let lengths = |file: &File| functions(&file.layers.code).into_iter().map(|found| found.lines);
    let mut lines: Vec<usize> = tree.rust().flat_map(lengths).collect();
    lines.sort_unstable();
    lines
}

/// The value that `percent` of the sorted values are not above; 0 if there are none.
pub fn percentile(sorted: &[usize], percent: usize) -> usize {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or(0)
}

/// The functions of a text whose comments and strings are blank. A function inside another is
/// found too, and counts for both.
pub fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut line = 1;
    let mut counted = 0;
    for (at, _) in code.match_indices("fn ") {
        line += bytes[counted..at].iter().filter(|byte| **byte == b'\n').count();
        counted = at;
        if at > 0 && is_word(bytes[at - 1]) {
            continue;
        }
        let rest = code[at + 3..].trim_start();
        let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
        let Some(body) = body(bytes, at).filter(|_| length > 0) else { continue };
        let end = matching(bytes, body).unwrap_or(bytes.len());
        let lines = 1 + bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        found.push(Function { name: rest[..length].to_owned(), line, lines });
    }
    found
}

/// The opening brace of the function at `at`; `None` for a declaration without a body.
fn body(code: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    while let Some(byte) = code.get(at) {
        match byte {
            b'(' | b'[' => at = matching(code, at)?,
            b'{' => return Some(at),
            b';' | b'}' => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(code: &str) -> Vec<(String, usize, usize)> {
        functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn functions_are_measured_from_fn_to_closing_brace() {
        let code = "impl A {\n    pub(crate) fn a<T, U>(\n        x: [u8; 4],\n    ) -> T {\n    }\n\
                    fn b();\n    fn c() { fn d() {} }\n}\n";
        let expected = [("a", 2, 4), ("c", 7, 1), ("d", 7, 1)];
        assert_eq!(shapes(code), expected.map(|(name, line, n)| (name.to_owned(), line, n)));
    }

    #[test]
    fn function_types_and_words_ending_in_fn_are_no_functions() {
        assert_eq!(shapes("type F = fn (u8) -> u8; often fn\n; let x = my_fn (1);"), []);
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 50), 3);
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 100), 100);
        assert_eq!(percentile(&[], 50), 0);
    }
}
