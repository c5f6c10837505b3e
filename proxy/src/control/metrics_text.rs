//! Reads the Prometheus text an engine exposes, one sample at a time and without copying it.
//!
//! Only what routing needs is looked at, so a line is split no further than its reader asks. It is
//! never strict: a line that is no sample is skipped.

/// One line of an exposition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample<'t> {
    /// The metric's name.
    pub(crate) name: &'t str,
    labels: &'t str,
    /// Its value; NaN stays NaN.
    pub(crate) value: f64,
}

impl<'t> Sample<'t> {
    /// The raw value of a label: escapes are left as they stand, since no label read here has any.
    pub(crate) fn label(&self, key: &str) -> Option<&'t str> {
        let mut rest = self.labels;
        while !rest.is_empty() {
            let (name, after) = rest.split_once("=\"")?;
            let end = closing_quote(after)?;
            if name.trim() == key {
                return after.get(..end);
            }
            rest = after.get(end + 1..)?.trim_start_matches([',', ' ']);
        }
        None
    }

    /// The value as a count; `None` when it is negative or no number.
    pub(crate) fn count(&self) -> Option<u64> {
        count(self.value)
    }
}

/// A number as a count, rounded towards zero; `None` when it is negative or no number.
pub(crate) fn count(value: f64) -> Option<u64> {
    if !value.is_finite() || value < 0.0 {
        return None;
    }
    // Checked to be finite and not negative; a float-to-integer cast saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(value as u64)
}

/// The samples whose name starts with `prefix`.
pub(crate) fn samples<'t>(text: &'t str, prefix: &'t str) -> impl Iterator<Item = Sample<'t>> {
    text.lines().filter(move |line| line.starts_with(prefix)).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end = closing_brace(inner)?;
            (inner.get(..end)?, inner.get(end + 1..)?)
        }
        None => ("", rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Where the brace is that ends the labels; braces inside quotes do not.
fn closing_brace(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let next = rest.find(['"', '}'])?;
        if rest.as_bytes().get(next) == Some(&b'}') {
            return Some(at + next);
        }
        at += next + 1;
        at += closing_quote(text.get(at..)?)? + 1;
    }
}

/// Where the quote is that ends a label's value; an escaped one does not.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a:x Things\n# TYPE a:x gauge\na:x{p=\"1\",q=\"}\\\"{\", r=\"3\"} 4.5\n\
        a:y 7\na:y{} 8 1795953697\nb:z 1\na:bad{p=\"1\n a:worse\na:nan NaN\n";

    #[test]
    fn samples_are_found_by_prefix_with_their_values() {
        let found: Vec<(&str, f64)> =
            samples(TEXT, "a:").filter(|s| !s.value.is_nan()).map(|s| (s.name, s.value)).collect();
        assert_eq!(found, [("a:x", 4.5), ("a:y", 7.0), ("a:y", 8.0)]);
    }

    #[test]
    fn labels_may_hold_braces_and_escaped_quotes() {
        let sample = samples(TEXT, "a:x").next().unwrap();
        assert_eq!(sample.label("p"), Some("1"));
        assert_eq!(sample.label("q"), Some("}\\\"{"));
        assert_eq!(sample.label("r"), Some("3"));
        assert_eq!(sample.label("s"), None);
    }

    #[test]
    fn a_count_is_neither_negative_nor_infinite() {
        assert_eq!(count(1.9e3), Some(1900));
        assert_eq!(count(-1.0), None);
        assert_eq!(count(f64::NAN), None);
        assert_eq!(count(f64::INFINITY), None);
    }

    #[test]
    fn cut_lines_are_skipped() {
        for cut in
            ["a:x", "a:x{", "a:x{p=\"", "a:x{p=\"1\"", "a:x{p=\"1\"}", "a:x{p=\"1\"} ", "a:x one"]
        {
            assert_eq!(samples(cut, "a:").count(), 0, "{cut}");
        }
    }
}
