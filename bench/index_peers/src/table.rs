//! A cell as text.

use crate::results::{Cell, Figures, Percentiles, Row};

/// The tables of one cell: what each index did, and where a request's time went at the rate it kept up with.
pub(crate) fn lines(cell: &Cell) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        title(cell),
        format!(
            "{:18} {:>9} {:>10} {:>15} {:>15} {:>15} {:>9} {:>11} {:>6} {:>8}",
            "",
            "keeps up",
            "flat out",
            "lookup p50/p99",
            "at one rate",
            "alone",
            "updates",
            "blocks",
            "bytes",
            "wrong"
        ),
        format!(
            "{:18} {:>9} {:>10} {:>15} {:>15} {:>15} {:>9} {:>11} {:>6} {:>8}",
            "", "req/s", "req/s", "ns", "ns", "ns", "req/s", "blocks/s", "/block", "of pairs"
        ),
    ];
    lines.extend(cell.rows.iter().map(line));
    let parts = ["lookup", "wait", "lag", "hand-over"].map(|part| format!(" {part:>21}"));
    lines.push(format!(
        "{:18}{}  p50 / p99 / p99.9, ns, at the rate kept up with",
        "",
        parts.concat()
    ));
    lines.extend(cell.rows.iter().map(parts_line));
    lines
}

fn title(cell: &Cell) -> String {
    let Cell { backends, block_tokens, capacity_blocks, resident_blocks, distinct_blocks, .. } =
        cell;
    format!(
        "{backends} backends of {capacity_blocks} blocks of {block_tokens} tokens: {resident_blocks} resident, \
         {distinct_blocks} distinct; a request looks up {} and updates {} blocks; {} looking, 1 updating",
        cell.prompt_blocks, cell.updated_blocks, cell.fronts
    )
}

fn line(row: &Row) -> String {
    let Row { index, agreement, keep_up, flat_out, updates, common, alone, .. } = row;
    let two = |figures: &Figures| format!("{}/{}", figures.lookup.p50, figures.lookup.p99);
    let wrong = 100.0 * agreement.differing as f64 / agreement.overlaps.max(1) as f64;
    format!(
        "{index:18} {:>9} {:>10} {:>15} {:>15} {:>15} {:>9} {:>11} {:>6.1} {wrong:>7.2}%",
        keep_up.offered,
        flat_out.requests,
        two(keep_up),
        two(common),
        two(alone),
        updates.requests,
        updates.block_updates,
        row.bytes_per_block,
    )
}

fn parts_line(row: &Row) -> String {
    let Figures { lookup, wait, lag, hand_over, preempted, .. } = &row.keep_up;
    let three = |p: &Percentiles| format!(" {:>21}", format!("{} / {} / {}", p.p50, p.p99, p.p999));
    let parts = [lookup, wait, lag, hand_over].map(three);
    format!("{:18}{}  preempted {preempted} times", row.index, parts.concat())
}
