//! Rows as text and as JSON.

use super::ArenaError;
use super::results::Row;

/// The head of the table.
pub fn head() -> String {
    format!(
        "{:26} {:>4} {:>6} {:16} {:>6} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7} {:>8} {:>7}  {}",
        "trace",
        "N",
        "C",
        "policy",
        "hit",
        "p50 s",
        "p99 s",
        "mean s",
        "imb",
        "forgot",
        "moved",
        "done",
        "late s",
        "late",
        "setting"
    )
}

/// One row.
pub fn line(row: &Row) -> String {
    format!(
        "{:26} {:>4} {:>6} {:16} {:6.3} {:8.2} {:8.1} {:8.2} {:6.2} {:6.3} {:6.3} {:>7} {:8.2} {:>7}  {}",
        row.trace,
        row.backends,
        row.capacity,
        row.policy,
        row.hit,
        row.ttft_p50,
        row.ttft_p99,
        row.ttft_mean,
        row.imbalance,
        row.again_evicted,
        row.again_moved,
        row.done,
        row.late_ttft_mean,
        row.late_done,
        row.setting
    )
}

/// All rows, an array with a row a line.
pub fn json(rows: &[Row]) -> Result<String, ArenaError> {
    let lines: Result<Vec<String>, serde_json::Error> =
        rows.iter().map(serde_json::to_string).collect();
    Ok(format!("[\n{}\n]\n", lines.map_err(ArenaError::Json)?.join(",\n")))
}
