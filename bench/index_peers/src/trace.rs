//! Mooncake's trace format (Qin et al., FAST 2025): one JSON object a line, with the time in milliseconds and an id for
//! every 512-token block of the prompt. It knows nothing of backends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;

/// Tokens of one block of the trace.
pub(crate) const BLOCK_TOKENS: u32 = 512;

/// One request of the trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Seconds since the trace began.
    pub(crate) at: f64,
    /// Ids of its blocks; equal ids mean equal prompts up to there.
    pub(crate) blocks: Vec<u64>,
}

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    hash_ids: Vec<u64>,
}

/// Reads a trace, packed or not.
pub(crate) fn read(path: &Path) -> Result<Vec<Arrival>, String> {
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|why| told(&why))?;
    let packed = path.extension().is_some_and(|ending| ending == "gz");
    let text: Box<dyn Read> = if packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut arrivals = Vec::new();
    for line in BufReader::new(text).lines() {
        let line: Line =
            serde_json::from_str(&line.map_err(|why| told(&why))?).map_err(|why| told(&why))?;
        arrivals.push(Arrival { at: line.timestamp / 1000.0, blocks: line.hash_ids });
    }
    arrivals.retain(|arrival| !arrival.blocks.is_empty());
    if arrivals.len() < 2 {
        return Err(told(&"no requests"));
    }
    spread_ticks(&mut arrivals);
    Ok(arrivals)
}

/// Requests of one tick (the conversation trace has ticks of 3 s) are spread evenly up to the next, or every replay
/// would see bursts that nobody sent.
fn spread_ticks(arrivals: &mut [Arrival]) {
    let mut gap = 1.0;
    let mut from = 0;
    while from < arrivals.len() {
        let tick = arrivals[from].at;
        let upto = arrivals[from..].partition_point(|arrival| arrival.at <= tick) + from;
        gap = arrivals.get(upto).map_or(gap, |next| next.at - tick);
        let step = gap / (upto - from) as f64;
        for (place, arrival) in arrivals[from..upto].iter_mut().enumerate() {
            arrival.at = tick + step * place as f64;
        }
        from = upto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_tick_are_spread_up_to_the_next() {
        let at = |at| Arrival { at, blocks: vec![0] };
        let mut arrivals = [at(0.0), at(0.0), at(0.0), at(3.0), at(3.0)];
        spread_ticks(&mut arrivals);
        assert_eq!(arrivals.map(|arrival| arrival.at), [0.0, 1.0, 2.0, 3.0, 4.5]);
    }
}
