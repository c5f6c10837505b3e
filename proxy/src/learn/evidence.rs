//! What one finished request says about the evidence: confirmed, short of what was predicted, or never
//! computed at all. Pure arithmetic; the index does the rest.

use crate::limits::SHORTFALL_TOLERANCE_DIVISOR;
use crate::record::{End, Record};

/// What to do with a request's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// Nothing that was not known when it was routed.
    Nothing,
    /// The backend holds the whole prompt now.
    Confirmed,
    /// It held less than predicted, and holds the whole prompt now.
    Short {
        /// Leading blocks it was expected to hold.
        predicted_blocks: u32,
        /// Leading blocks it plausibly held.
        cached_blocks: u32,
    },
    /// It was sent there and never computed: only what was held before is held.
    NeverRan {
        /// Leading blocks believed held before.
        held_blocks: u32,
    },
}

/// The figures of one request that matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    /// Whole blocks of its prompt.
    pub(crate) blocks: u32,
    /// Leading blocks predicted.
    pub(crate) predicted_blocks: u32,
    /// Canonical bytes of its prompt.
    pub(crate) canonical_bytes: u64,
    /// Prompt tokens the engine counted, cached ones included.
    pub(crate) prompt_tokens: u64,
    /// Prompt tokens it had cached.
    pub(crate) cached_tokens: u64,
    /// Tokens in one page of its cache.
    pub(crate) page_tokens: u32,
    /// Bytes in one block.
    pub(crate) block_bytes: u32,
    /// Thousandths of a canonical byte that a token of this model has been learned to stand for.
    pub(crate) bytes_per_token_milli: u32,
}

/// What is known of the engine and the model besides the record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// See [`Reported::page_tokens`].
    pub(crate) page_tokens: u32,
    /// See [`Reported::block_bytes`].
    pub(crate) block_bytes: u32,
    /// See [`Reported::bytes_per_token_milli`].
    pub(crate) bytes_per_token_milli: u32,
}

/// Whether a request was answered whole and well, so that its figures can be trusted. A reply that its engine aborted
/// was not: the engine leaves or sleeps, and what it holds goes with it.
pub(crate) fn succeeded(record: &Record) -> bool {
    record.end == End::Complete && is_good(record.status)
}

fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}

/// What a record teaches about its blocks.
pub(crate) fn lesson(record: &Record, scale: Scale) -> Lesson {
    let predicted_blocks = record.decision.as_ref().map_or(0, |decision| decision.overlap_blocks);
    if record.backend.is_none() || record.blocks.is_empty() {
        return Lesson::Nothing;
    }
    if !succeeded(record) {
        let left = matches!(record.end, End::ClientGone | End::ClientStalled);
        // Whoever leaves may leave a computed prefix behind; whoever got content surely does.
        let computed = left || record.times.first_byte.is_some() && is_good(record.status);
        let never_ran = Lesson::NeverRan { held_blocks: predicted_blocks };
        return if computed { Lesson::Nothing } else { never_ran };
    }
    // What was found of one that gave way is in part its own.
    let reported = reported(record, scale).filter(|_| record.gave_way == 0);
    reported.map_or(Lesson::Confirmed, |reported| judge(&reported))
}

/// Leading blocks that were cached when the prompt came: at least so many, and at most so many. `None` when nothing
/// trustworthy was said. What was found of one that gave way is in part its own, so it tells only what was missing.
pub(crate) fn cached(record: &Record, scale: Scale) -> Option<(u32, u32)> {
    if !succeeded(record) || record.blocks.is_empty() {
        return None;
    }
    let reported = reported(record, scale).filter(|reported| reported.prompt_tokens > 0)?;
    let least = if record.gave_way == 0 { at_least(&reported) } else { 0 };
    Some((least, at_most(&reported)))
}

fn reported(record: &Record, scale: Scale) -> Option<Reported> {
    let usage = record.usage.as_ref()?;
    Some(Reported {
        blocks: u32::try_from(record.blocks.len()).unwrap_or(u32::MAX),
        predicted_blocks: record.decision.as_ref().map_or(0, |decision| decision.overlap_blocks),
        canonical_bytes: record.canonical_bytes,
        prompt_tokens: usage.prompt_tokens,
        cached_tokens: usage.cached_tokens?,
        page_tokens: scale.page_tokens,
        block_bytes: scale.block_bytes,
        bytes_per_token_milli: scale.bytes_per_token_milli,
    })
}

/// Compares prediction and report in blocks. The engine rounds down to its pages, and bytes per token vary
/// along a prompt: an image is many tokens and few bytes, and what follows a template may be denser than
/// it. So tokens are turned into bytes generously, with this prompt's own density or the model's usual
/// one, whichever is larger, and an eighth on top; and a shortfall must still exceed a block, a page and a
/// sixteenth of the prediction. Believing too much costs a second look; taking too much away costs every
/// conversation that shares the blocks.
pub(crate) fn judge(reported: &Reported) -> Lesson {
    if reported.prompt_tokens == 0 || reported.is_whole() {
        return Lesson::Confirmed;
    }
    let cached_blocks = at_most(reported);
    let predicted = u64::from(reported.predicted_blocks);
    let tolerated = u64::from(cached_blocks) + 1 + predicted / SHORTFALL_TOLERANCE_DIVISOR;
    if predicted <= tolerated {
        return Lesson::Confirmed;
    }
    Lesson::Short { predicted_blocks: reported.predicted_blocks, cached_blocks }
}

/// The most leading blocks that the cached tokens can stand for: the larger density, and an eighth on top.
fn at_most(reported: &Reported) -> u32 {
    let (own, usual) = reported.densities_milli();
    let tokens = if reported.is_whole() { u64::MAX } else { reported.held_tokens() };
    reported.blocks_of(tokens, own.max(usual), 9)
}

/// The fewest they can stand for: the smaller density, and an eighth less. The last page of a prompt is computed anew
/// even where all of it was cached.
fn at_least(reported: &Reported) -> u32 {
    let (own, usual) = reported.densities_milli();
    let tokens = if reported.is_whole() { u64::MAX } else { reported.cached_tokens };
    reported.blocks_of(tokens, own.min(usual), 7)
}

impl Reported {
    /// Cached tokens, with what a page may hide.
    fn held_tokens(&self) -> u64 {
        self.cached_tokens.saturating_add(u64::from(self.page_tokens.saturating_sub(1)))
    }

    /// Whether everything was cached that can be reported as cached.
    fn is_whole(&self) -> bool {
        self.held_tokens() >= self.prompt_tokens
    }

    /// Thousandths of a byte a token: of this prompt, and usually.
    fn densities_milli(&self) -> (u128, u128) {
        let own = u128::from(self.canonical_bytes) * 1000 / u128::from(self.prompt_tokens.max(1));
        (own, u128::from(self.bytes_per_token_milli))
    }

    /// Whole blocks of so many tokens at this density, times so many eighths.
    fn blocks_of(&self, tokens: u64, density_milli: u128, eighths: u128) -> u32 {
        let bytes = u128::from(tokens).saturating_mul(density_milli).saturating_mul(eighths) / 8000;
        let blocks = bytes / u128::from(self.block_bytes.max(1));
        u32::try_from(blocks).unwrap_or(u32::MAX).min(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 tokens of 4 bytes in blocks of 100 bytes: 40 blocks of 25 tokens.
    fn reported(predicted_blocks: u32, cached_tokens: u64) -> Reported {
        Reported {
            blocks: 40,
            predicted_blocks,
            canonical_bytes: 4_000,
            prompt_tokens: 1_000,
            cached_tokens,
            page_tokens: 1,
            block_bytes: 100,
            bytes_per_token_milli: 4_000,
        }
    }

    #[test]
    fn what_was_predicted_and_reported_is_confirmed() {
        assert_eq!(judge(&reported(30, 750)), Lesson::Confirmed);
        assert_eq!(judge(&reported(30, 999)), Lesson::Confirmed);
        assert_eq!(judge(&reported(0, 0)), Lesson::Confirmed);
    }

    #[test]
    fn a_lost_prefix_is_short() {
        let lost = Lesson::Short { predicted_blocks: 30, cached_blocks: 0 };
        assert_eq!(judge(&reported(30, 0)), lost);
        // 500 tokens of 4 bytes are 20 blocks, and an eighth on top.
        let cut = Lesson::Short { predicted_blocks: 30, cached_blocks: 22 };
        assert_eq!(judge(&reported(30, 500)), cut);
    }

    #[test]
    fn rounding_is_no_eviction() {
        assert_eq!(judge(&reported(30, 700)), Lesson::Confirmed);
        let paged = Reported { page_tokens: 256, ..reported(38, 600) };
        assert_eq!(judge(&paged), Lesson::Confirmed);
        assert_ne!(judge(&Reported { page_tokens: 16, ..paged }), Lesson::Confirmed);
    }

    #[test]
    fn a_prompt_sparser_than_its_cached_beginning_takes_nothing_away() {
        // 750 cached tokens of 4 bytes and an image of 2,000 tokens and no bytes to speak of.
        let image = Reported { prompt_tokens: 3_000, ..reported(30, 750) };
        assert_eq!(judge(&image), Lesson::Confirmed);
        let lost = Reported { cached_tokens: 100, ..image };
        assert_ne!(judge(&lost), Lesson::Confirmed);
    }

    #[test]
    fn cached_tokens_are_blocks_within_an_eighth() {
        let half = reported(30, 500);
        assert_eq!((at_least(&half), at_most(&half)), (17, 22));
        let denser = Reported { bytes_per_token_milli: 8_000, ..half };
        assert_eq!((at_least(&denser), at_most(&denser)), (17, 40));
        let (none, whole) = (reported(30, 0), reported(30, 1_000));
        assert_eq!((at_least(&none), at_most(&none)), (0, 0));
        assert_eq!((at_least(&whole), at_most(&whole)), (40, 40));
    }

    #[test]
    fn absurd_reports_do_no_harm() {
        assert_eq!(judge(&Reported { prompt_tokens: 0, ..reported(30, 5) }), Lesson::Confirmed);
        assert_eq!(judge(&reported(30, u64::MAX)), Lesson::Confirmed);
        let odd = Reported { block_bytes: 0, canonical_bytes: u64::MAX, ..reported(30, 500) };
        assert_eq!(judge(&odd), Lesson::Confirmed);
    }
}
