//! The file as typed: one table at a time, every value with its place in the text.
//!
//! A [`Section`] hands out typed values, remembers which keys were asked for, and collects what is
//! wrong instead of stopping. `serde` would stop at the first mistake, which is why it is not used
//! here. A wrong value is replaced by its default so that checking can go on; it never gets out,
//! because any problem refuses the whole file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Problem;
use crate::units;

/// Characters of a value repeated in an error; more would bury the reason.
const SHOWN_CHARS_MAX: usize = 60;

/// Longer unknown keys get no suggestion: comparing takes time in proportion to their length.
const SUGGESTED_FOR_BYTES_MAX: usize = 64;

/// What a whole number may be. `why` is the reason for the bounds and ends the error message.
pub(crate) struct Bound {
    pub(crate) default: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) why: &'static str,
}

/// What a whole number counts, which decides the units accepted in a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Bytes,
    Ms,
    Seconds,
}

impl Unit {
    fn read(self, text: &str) -> Result<u64, String> {
        match self {
            Self::Count => Err("must be a whole number, without quotes".to_owned()),
            Self::Bytes => units::bytes(text),
            Self::Ms => units::ms(text),
            Self::Seconds => units::seconds(text),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => " bytes",
            Self::Ms => " ms",
            Self::Seconds => " s",
        }
    }
}

/// A value with its place.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    pub(crate) key: String,
    span: Range<usize>,
    pub(crate) value: &'a DeValue<'a>,
}

/// One table of the file.
pub(crate) struct Section<'a> {
    text: &'a str,
    path: String,
    start: usize,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Section<'a> {
    /// The top of the file.
    pub(crate) fn root(text: &'a str, document: &'a Spanned<DeTable<'a>>) -> Self {
        Self::new(text, String::new(), 0, Some(document.get_ref()))
    }

    fn new(text: &'a str, path: String, start: usize, table: Option<&'a DeTable<'a>>) -> Self {
        Self { text, path, start, table, known: Vec::new(), problems: Vec::new() }
    }

    /// A table below this one; an empty one if the file has none.
    pub(crate) fn child(&mut self, key: &'static str) -> Section<'a> {
        let found = self.get(key);
        let start = found.as_ref().map_or(self.start, |found| found.span.start);
        let table = found.and_then(|found| match found.value {
            DeValue::Table(table) => Some(table),
            _ => self.fail(&found, &format!("must be a table: [{key}]")),
        });
        Section::new(self.text, self.full(key), start, table)
    }

    /// The tables of an array of tables, in order, named `key[1]`, `key[2]` and so on.
    pub(crate) fn children(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let Some(found) = self.get(key) else { return Vec::new() };
        let DeValue::Array(items) = found.value else {
            self.fail::<()>(&found, &format!("must be a list of tables: [[{key}]]"));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{}]", found.key, index + 1);
            match item.get_ref() {
                DeValue::Table(table) => {
                    let start = item.span().start;
                    sections.push(Section::new(self.text, path, start, Some(table)));
                }
                value => {
                    let wrong = Value { key: path, span: item.span(), value };
                    self.fail::<()>(&wrong, &format!("must be a table: [[{key}]]"));
                }
            }
        }
        sections
    }

    /// The value of a key, which from now on counts as known.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<Value<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let (_, found) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Value { key: self.full(key), span: found.span(), value: found.get_ref() })
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some(found) = self.get(key) else { return default };
        if let DeValue::Boolean(value) = found.value {
            return *value;
        }
        self.fail(&found, "must be true or false").unwrap_or(default)
    }

    /// A whole number within its bounds.
    pub(crate) fn whole(&mut self, key: &'static str, unit: Unit, bound: &Bound) -> u64 {
        self.given(key, unit, bound).unwrap_or(bound.default)
    }

    /// A whole number, or `None` if the key is not there.
    pub(crate) fn given(&mut self, key: &'static str, unit: Unit, bound: &Bound) -> Option<u64> {
        let found = self.get(key)?;
        match whole_number(found.value, unit) {
            Ok(Some(value)) if (bound.min..=bound.max).contains(&value) => Some(value),
            Ok(_) => self.fail(&found, &outside(unit, bound, "")),
            Err(reason) => self.fail(&found, &reason),
        }
    }

    /// A whole number where 0 stands for "none", and so does an absent key if the default is 0.
    pub(crate) fn unless_zero(
        &mut self,
        key: &'static str,
        unit: Unit,
        bound: &Bound,
    ) -> Option<u64> {
        let default = Some(bound.default).filter(|value| *value != 0);
        let Some(found) = self.get(key) else { return default };
        match whole_number(found.value, unit) {
            Ok(Some(0)) => None,
            Ok(Some(value)) if (bound.min..=bound.max).contains(&value) => Some(value),
            Ok(_) => self.fail(&found, &outside(unit, bound, "0 or ")),
            Err(reason) => self.fail(&found, &reason),
        }
    }

    /// A finite number from `range`; a whole number is accepted as well.
    pub(crate) fn number(&mut self, key: &'static str, default: f64, range: [f64; 2]) -> f64 {
        let Some(found) = self.get(key) else { return default };
        let value = match found.value {
            DeValue::Float(value) => value.as_str().parse().ok(),
            DeValue::Integer(value) if value.radix() == 10 => value.as_str().parse().ok(),
            _ => None,
        };
        let [min, max] = range;
        match value {
            Some(value) if (min..=max).contains(&value) => value,
            Some(_) => {
                self.fail(&found, &format!("must be from {min} to {max}")).unwrap_or(default)
            }
            None => self.fail(&found, "must be a number, without quotes").unwrap_or(default),
        }
    }

    /// A string.
    pub(crate) fn string(&mut self, key: &'static str) -> Option<(Value<'a>, &'a str)> {
        let found = self.get(key)?;
        match found.value {
            DeValue::String(text) => Some((found, text)),
            _ => self.fail(&found, "must be a string in quotes"),
        }
    }

    /// One of a few names.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        names: &[(&str, T)],
    ) -> T {
        let Some((found, text)) = self.string(key) else { return default };
        if let Some((_, value)) = names.iter().find(|(name, _)| *name == text) {
            return *value;
        }
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        self.fail(&found, &format!("must be one of {}", names.join(", "))).unwrap_or(default)
    }

    /// A list of strings, each with its place.
    pub(crate) fn strings(&mut self, key: &'static str) -> Vec<(Value<'a>, &'a str)> {
        let Some(found) = self.get(key) else { return Vec::new() };
        let DeValue::Array(items) = found.value else {
            self.fail::<()>(&found, "must be a list of strings: [\"...\"]");
            return Vec::new();
        };
        let mut strings = Vec::new();
        for item in items.iter() {
            let place = Value { key: found.key.clone(), span: item.span(), value: item.get_ref() };
            match item.get_ref() {
                DeValue::String(text) => strings.push((place, text.as_ref())),
                _ => _ = self.fail::<()>(&place, "must be a list of strings: [\"...\"]"),
            }
        }
        strings
    }

    /// Notes what is wrong with a value. Always `None`, to end a reading function with.
    pub(crate) fn fail<T>(&mut self, found: &Value<'_>, reason: &str) -> Option<T> {
        let typed = self.text.get(found.span.clone()).unwrap_or_default();
        self.fail_shown(found, &shortened(typed), reason)
    }

    /// Like [`Section::fail`] for a value that must not be repeated.
    pub(crate) fn fail_hidden<T>(&mut self, found: &Value<'_>, reason: &str) -> Option<T> {
        self.fail_shown(found, "(hidden)", reason)
    }

    fn fail_shown<T>(&mut self, found: &Value<'_>, shown: &str, reason: &str) -> Option<T> {
        self.problems.push(Problem {
            line: Some(line_of(self.text, found.span.start)),
            key: found.key.clone(),
            value: Some(shown.to_owned()),
            reason: reason.to_owned(),
        });
        None
    }

    /// Like [`Section::fail`] for a key already read: values that do not fit together.
    /// A key that is not there is reported on the line of this table.
    pub(crate) fn fail_key(&mut self, key: &str, shown: Option<&str>, reason: &str) {
        self.problems.push(Problem {
            line: Some(line_of(self.text, self.place(key).unwrap_or(self.start))),
            key: self.full(key),
            value: shown.map(str::to_owned),
            reason: reason.to_owned(),
        });
    }

    /// Whether the file has this key.
    pub(crate) fn is_typed(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// Whether something was already found wrong with this key or what is below it.
    pub(crate) fn has_failed(&self, key: &str) -> bool {
        let path = self.full(key);
        self.problems.iter().any(|problem| problem.key.starts_with(&path))
    }

    fn place(&self, key: &str) -> Option<usize> {
        let (name, _) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(name.span().start)
    }

    /// Refuses what was never asked for, and hands over all problems.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        for (name, _) in self.table.into_iter().flatten() {
            let key = name.get_ref().as_ref();
            if !self.known.contains(&key) {
                let problem = self.unknown(key, name.span().start);
                self.problems.push(problem);
            }
        }
        self.problems
    }

    fn unknown(&self, key: &str, start: usize) -> Problem {
        let reason = match nearest(key, &self.known) {
            Some(name) => format!("unknown key; did you mean `{name}`?"),
            None => format!("unknown key; known here: {}", self.known.join(", ")),
        };
        let line = Some(line_of(self.text, start));
        Problem { line, key: self.full(&shortened(key)), value: None, reason }
    }

    /// The key with the path of this table.
    pub(crate) fn full(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }
}

/// `None` stands for a number below zero or too large for 64 bits.
fn whole_number(value: &DeValue<'_>, unit: Unit) -> Result<Option<u64>, String> {
    match value {
        DeValue::Integer(value) => Ok(u64::from_str_radix(value.as_str(), value.radix()).ok()),
        DeValue::String(text) => unit.read(text).map(Some),
        _ => Err("must be a whole number".to_owned()),
    }
}

fn outside(unit: Unit, bound: &Bound, also: &str) -> String {
    let Bound { min, max, why, .. } = bound;
    format!("must be {also}from {min} to {max}{}: {why}", unit.suffix())
}

/// The line a byte is on, counted from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// One line of a value as typed, cut when it is long.
pub(crate) fn shortened(typed: &str) -> String {
    let line = typed.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < typed.len() {
        shown.push_str("...");
    }
    shown
}

/// The known name that differs from `key` by at most a third of its letters.
fn nearest<'n>(key: &str, known: &[&'n str]) -> Option<&'n str> {
    if key.len() > SUGGESTED_FOR_BYTES_MAX {
        return None;
    }
    let best = known.iter().min_by_key(|name| edit_distance(key, name))?;
    (edit_distance(key, best) * 3 <= best.len()).then_some(best)
}

/// Letters to insert, delete or replace to turn one word into the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(right.bytes()) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(previous + 1);
            previous = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not_suggested() {
        let known = ["connect_ms", "head_ms", "first_byte_ms"];
        assert_eq!(nearest("conect_ms", &known), Some("connect_ms"));
        assert_eq!(nearest("firstbyte_ms", &known), Some("first_byte_ms"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"connect_ms".repeat(100), &known), None);
    }

    #[test]
    fn lines_are_counted_from_one_and_long_values_are_cut() {
        assert_eq!(line_of("a\nb\nc", 0), 1);
        assert_eq!(line_of("a\nb\nc", 4), 3);
        assert_eq!(line_of("a", 99), 1);
        assert_eq!(shortened("[\n1]"), "[...");
        assert_eq!(shortened(&"x".repeat(70)), format!("{}...", "x".repeat(60)));
    }
}
