//! Mooncake-format traces: when requests came, how long they were, which blocks they shared.
//!
//! Each line is `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": […]}`;
//! a hash id names a block of 512 tokens together with all before it, so that equal ids mean equal
//! text (Mooncake, FAST '25). The traces hold no text; it is made up from the ids.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use fastrand::Rng;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use super::Error;
use super::options::TraceOptions;
use super::seed::{self, Stream};
use super::text::escaped_text;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Since the start of the trace.
    pub(crate) at: Duration,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) hash_ids: Vec<u64>,
}

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads a trace, spreads its coarse ticks and applies the speed. In order of time.
pub(crate) fn load(options: &TraceOptions, seed: u64) -> Result<Vec<Entry>, Error> {
    let refuse =
        |line: usize, reason: String| Error::Trace { file: options.file.clone(), line, reason };
    let file = File::open(&options.file).map_err(|error| refuse(0, error.to_string()))?;
    let mut entries = Vec::new();
    for (number, line) in BufReader::new(plain(file)).lines().enumerate() {
        let line = line.map_err(|error| refuse(number + 1, error.to_string()))?;
        if !line.trim().is_empty() {
            entries.push(entry(&line).map_err(|reason| refuse(number + 1, reason))?);
        }
    }
    if entries.is_empty() {
        return Err(refuse(0, "holds no requests".to_owned()));
    }
    entries.sort_by_key(|entry| entry.at);
    spread_ticks(&mut entries, &mut seed::rng(seed, Stream::TraceTimes, 0));
    let begin = entries.first().map_or(Duration::ZERO, |entry| entry.at);
    for entry in &mut entries {
        entry.at = (entry.at - begin).div_f64(options.speed);
    }
    Ok(entries)
}

/// Unpacks gzip, known by its first two bytes (RFC 1952, 2.3.1).
fn plain(file: File) -> Box<dyn Read> {
    let mut file = BufReader::new(file);
    match file.fill_buf() {
        Ok([0x1f, 0x8b, ..]) => Box::new(MultiGzDecoder::new(file)),
        _ => Box::new(file),
    }
}

fn entry(line: &str) -> Result<Entry, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let at = Duration::try_from_secs_f64(line.timestamp / 1e3)
        .map_err(|error| format!("timestamp {}: {error}", line.timestamp))?;
    Ok(Entry {
        at,
        input_tokens: line.input_length,
        output_tokens: line.output_length,
        hash_ids: line.hash_ids,
    })
}

/// Recorded times are often rounded to ticks of seconds, so that many requests share one instant.
/// Sent like that they would be bursts nobody made: each tick's requests are spread at random, in
/// order, up to the next tick. Traces with few requests per instant are left alone.
fn spread_ticks(entries: &mut [Entry], rng: &mut Rng) {
    let mut ticks: BTreeMap<Duration, Vec<&mut Entry>> = BTreeMap::new();
    let count = entries.len();
    for entry in entries {
        ticks.entry(entry.at).or_default().push(entry);
    }
    if count < 2 * ticks.len() || ticks.len() < 2 {
        return;
    }
    let times: Vec<Duration> = ticks.keys().copied().collect();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let last = gaps.last().copied();
    for (entries, gap) in ticks.into_values().zip(gaps.into_iter().chain(last)) {
        let mut shares: Vec<f64> = entries.iter().map(|_| rng.f64()).collect();
        shares.sort_by(f64::total_cmp);
        for (entry, share) in entries.into_iter().zip(shares) {
            entry.at += gap.mul_f64(share);
        }
    }
}

/// The prompt of an entry, escaped for JSON: one text per hash id, the last one cut to length.
pub(crate) fn prompt(entry: &Entry, options: &TraceOptions, seed: u64) -> String {
    let mut tokens_left = entry.input_tokens;
    let mut out = String::new();
    for &id in &entry.hash_ids {
        let tokens = tokens_left.min(options.block_tokens);
        let bytes = tokens as usize * options.token_bytes as usize;
        out.push_str(&escaped_text(&mut seed::rng(seed, Stream::TraceBlock, id), bytes));
        tokens_left -= tokens;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    const LINES: &str = concat!(
        r#"{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}"#,
        "\n",
        r#"{"timestamp": 0, "input_length": 900, "output_length": 6, "hash_ids": [0, 2], "more": 1}"#,
        "\n\n",
        r#"{"timestamp": 3000, "input_length": 10, "output_length": 7, "hash_ids": [3]}"#,
        "\n",
        r#"{"timestamp": 3000, "input_length": 10, "output_length": 8, "hash_ids": [4]}"#,
        "\n",
    );

    /// A file that is removed at the end of its test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, content: &[u8]) -> Temporary {
            let name = format!("shearwater-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, content).expect("a temporary file");
            Temporary(path)
        }

        fn options(&self, speed: f64) -> TraceOptions {
            TraceOptions { file: self.0.clone(), speed, block_tokens: 512, token_bytes: 4 }
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_packed_trace_reads_like_a_plain_one() {
        let plain = Temporary::new("plain", LINES.as_bytes());
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(LINES.as_bytes()).expect("in memory");
        let packed = Temporary::new("packed", &packed.finish().expect("in memory"));
        let entries = load(&plain.options(1.0), 1).expect("plain");
        assert_eq!(entries, load(&packed.options(1.0), 1).expect("packed"));
        let outputs: Vec<u32> = entries.iter().map(|entry| entry.output_tokens).collect();
        assert_eq!(outputs, [5, 6, 7, 8]);
        assert_eq!(entries[1].hash_ids, [0, 2]);
    }

    #[test]
    fn ticks_are_spread_in_order_and_speed_shortens_them() {
        let file = Temporary::new("ticks", LINES.as_bytes());
        let entries = load(&file.options(3.0), 1).expect("valid");
        let at: Vec<Duration> = entries.iter().map(|entry| entry.at).collect();
        let tick = Duration::from_secs(1);
        assert_eq!(at[0], Duration::ZERO, "the first request begins the run");
        assert!(at.windows(2).all(|pair| pair[0] < pair[1]), "{at:?}");
        assert!(at[1] < tick && at[3] < 2 * tick, "{at:?}");
    }

    #[test]
    fn times_that_are_not_coarse_stay_as_they_are() {
        let line = |ms| {
            format!(
                "{{\"timestamp\":{ms},\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}}\n"
            )
        };
        let file = Temporary::new("exact", [line(20), line(27), line(35)].concat().as_bytes());
        let entries = load(&file.options(1.0), 1).expect("valid");
        let at: Vec<u128> = entries.iter().map(|entry| entry.at.as_millis()).collect();
        assert_eq!(at, [0, 7, 15]);
    }

    #[test]
    fn shared_ids_are_shared_text_and_others_are_not() {
        let file = Temporary::new("shared", LINES.as_bytes());
        let options = file.options(1.0);
        let entries = load(&options, 1).expect("valid");
        let texts: Vec<String> = entries
            .iter()
            .map(|entry| format!("\"{}\"", prompt(entry, &options, 1)))
            .map(|quoted| serde_json::from_str(&quoted).expect("escaped"))
            .collect();
        assert_eq!(texts[0].len(), 700 * 4);
        assert_eq!(texts[0][..512 * 4], texts[1][..512 * 4]);
        assert_ne!(texts[0][512 * 4..600 * 4], texts[1][512 * 4..600 * 4]);
        assert_ne!(texts[2], texts[3]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let file = Temporary::new("bad", format!("{LINES}{{\"timestamp\": 1}}\n").as_bytes());
        let error = load(&file.options(1.0), 1).expect_err("no lengths").to_string();
        assert!(error.contains("line 6: missing field `input_length`"), "{error}");
        let file = Temporary::new("empty", b"");
        let error = load(&file.options(1.0), 1).expect_err("empty").to_string();
        assert!(error.ends_with("holds no requests"), "{error}");
    }
}
