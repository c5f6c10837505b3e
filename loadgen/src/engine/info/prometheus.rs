//! The Prometheus text format, with numbers printed as the engine's own library prints them.

use std::fmt::Write;

use super::histogram::Histogram;

/// A page of metrics in the making.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    /// Labels every sample carries, printed.
    common: String,
    /// Whether whole numbers are printed with `.0`, as Python does.
    python: bool,
}

impl Page {
    pub(super) fn new(common: &[(&str, &str)], python: bool) -> Self {
        let common: Vec<String> = common.iter().map(|(name, value)| label(name, value)).collect();
        Self { text: String::new(), common: common.join(","), python }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, "gauge");
        self.sample(name, &[], value);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, "counter");
        self.sample(name, &[], value);
    }

    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let mut all: Vec<String> = labels.iter().map(|(name, value)| label(name, value)).collect();
        if !self.common.is_empty() {
            all.push(self.common.clone());
        }
        let labels = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {}", self.number(value));
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, help, "histogram");
        let counts = histogram.cumulated();
        let bounds = histogram.bounds.iter().map(|bound| self.number(*bound));
        let bounds: Vec<String> = bounds.chain(std::iter::once("+Inf".to_owned())).collect();
        for (bound, count) in bounds.iter().zip(counts) {
            self.sample(&format!("{name}_bucket"), &[("le", bound)], count as f64);
        }
        self.sample(&format!("{name}_count"), &[], histogram.count() as f64);
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
    }

    fn number(&self, value: f64) -> String {
        if self.python { format!("{value:?}") } else { format!("{value}") }
    }
}

fn label(name: &str, value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{escaped}\"")
}
