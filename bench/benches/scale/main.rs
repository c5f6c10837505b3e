//! The index at the size of a datacenter: what a block costs, how long a lookup, a decision and a publication take, what a
//! saturated writer does to readers, and the worst shapes. Every part runs in a process of its own, so that memory is its
//! own; `--smoke` runs them all, tiny, and `--json FILE` keeps the rows with the machine's facts.

mod decide;
mod resident;
mod shapes;
mod workload;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use bench::Bench;
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One part, by name.
type Part = (&'static str, fn(&Bench));

const PARTS: [Part; 14] = [
    ("decide 10", |bench| decide::decide(bench, 10)),
    ("decide 100", |bench| decide::decide(bench, 100)),
    ("decide 1000", |bench| decide::decide(bench, 1_000)),
    ("decide 10000", |bench| decide::decide(bench, 10_000)),
    ("resident 10", |bench| resident::resident(bench, 10, 512)),
    ("resident 100", |bench| resident::resident(bench, 100, 512)),
    ("resident 1000", |bench| resident::resident(bench, 1_000, 512)),
    ("resident 10000", |bench| resident::resident(bench, 10_000, 512)),
    ("resident 1000, short tails", |bench| resident::resident(bench, 1_000, 64)),
    ("shape: one system prompt", shapes::one_system_prompt),
    ("shape: one long conversation", shapes::one_long_conversation),
    ("shape: a template everywhere", shapes::a_template_everywhere),
    ("shape: random prompts", shapes::random_prompts),
    ("shape: churn", shapes::churn),
];

/// Names the one part a child process runs.
const PART: &str = "SCALE_PART";

fn main() {
    let bench = Bench::from_args();
    if let Ok(name) = std::env::var(PART) {
        let part = PARTS.into_iter().find(|(part, _)| *part == name);
        part.into_iter().for_each(|(_, run)| run(&bench));
        return bench.take_rows().iter().for_each(|row| bench.line(&row.to_string()));
    }
    for (name, _) in PARTS.into_iter().filter(|(name, _)| bench.wants(name)) {
        bench.line(&format!("== {name}"));
        assert!(run_apart(&bench, name).is_some_and(|done| done), "the part `{name}` failed");
    }
    bench.finish();
}

/// Runs one part in a process of its own, passes its text on and keeps its rows. Says whether it went well.
fn run_apart(bench: &Bench, name: &str) -> Option<bool> {
    let mut child = Command::new(std::env::current_exe().ok()?);
    child.env(PART, name).args(bench.is_smoke().then_some("--smoke")).stdout(Stdio::piped());
    let mut child = child.spawn().ok()?;
    for line in BufReader::new(child.stdout.take()?).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Value::Object(mut row)) => {
                row.insert("part".to_owned(), name.into());
                bench.row(Value::Object(row));
            }
            _ => bench.line(&line),
        }
    }
    child.wait().ok().map(|status| status.success())
}
