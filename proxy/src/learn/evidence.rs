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
}

/// Whether a request was answered whole and well, so that its figures can be trusted.
pub(crate) fn succeeded(record: &Record) -> bool {
    record.end == End::Complete && (200..300).contains(&record.status)
}

/// What a record teaches about its blocks.
pub(crate) fn lesson(record: &Record, page_tokens: u32, block_bytes: u32) -> Lesson {
    let predicted_blocks = record.decision.as_ref().map_or(0, |decision| decision.overlap_blocks);
    if record.backend.is_none() || record.blocks.is_empty() {
        return Lesson::Nothing;
    }
    if !succeeded(record) {
        let left = matches!(record.end, End::ClientGone | End::ClientStalled);
        // Whoever leaves may leave a computed prefix behind; whoever got content surely does.
        let computed = left || record.times.first_byte.is_some() && record.status < 400;
        return if computed {
            Lesson::Nothing
        } else {
            Lesson::NeverRan { held_blocks: predicted_blocks }
        };
    }
    let usage = record.usage.as_ref();
    let tokens = usage.and_then(|usage| Some((usage.prompt_tokens, usage.cached_tokens?)));
    let Some((prompt_tokens, cached_tokens)) = tokens else { return Lesson::Confirmed };
    judge(&Reported {
        blocks: u32::try_from(record.blocks.len()).unwrap_or(u32::MAX),
        predicted_blocks,
        canonical_bytes: record.canonical_bytes,
        prompt_tokens,
        cached_tokens,
        page_tokens,
        block_bytes,
    })
}

/// Compares prediction and report in blocks. Tokens are turned into blocks with this very prompt's
/// bytes per token. The engine rounds down to its pages and bytes per token vary along a prompt, so a
/// shortfall must exceed a block, a page and a sixteenth of the prediction.
pub(crate) fn judge(reported: &Reported) -> Lesson {
    let held =
        reported.cached_tokens.saturating_add(u64::from(reported.page_tokens.saturating_sub(1)));
    if reported.prompt_tokens == 0 || held >= reported.prompt_tokens {
        return Lesson::Confirmed;
    }
    let bytes = u128::from(reported.canonical_bytes) * u128::from(held);
    let per_block = u128::from(reported.prompt_tokens) * u128::from(reported.block_bytes.max(1));
    let cached_blocks = u32::try_from(bytes / per_block).unwrap_or(u32::MAX).min(reported.blocks);
    let predicted = u64::from(reported.predicted_blocks);
    let tolerated = u64::from(cached_blocks) + 1 + predicted / SHORTFALL_TOLERANCE_DIVISOR;
    if predicted <= tolerated {
        return Lesson::Confirmed;
    }
    Lesson::Short { predicted_blocks: reported.predicted_blocks, cached_blocks }
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
        let cut = Lesson::Short { predicted_blocks: 30, cached_blocks: 20 };
        assert_eq!(judge(&reported(30, 500)), cut);
    }

    #[test]
    fn rounding_is_no_eviction() {
        assert_eq!(judge(&reported(30, 700)), Lesson::Confirmed);
        let paged = Reported { page_tokens: 256, ..reported(38, 768) };
        assert_eq!(judge(&paged), Lesson::Confirmed);
        assert_ne!(judge(&Reported { page_tokens: 16, ..paged }), Lesson::Confirmed);
    }

    #[test]
    fn absurd_reports_do_no_harm() {
        assert_eq!(judge(&Reported { prompt_tokens: 0, ..reported(30, 5) }), Lesson::Confirmed);
        assert_eq!(judge(&reported(30, u64::MAX)), Lesson::Confirmed);
        let odd = Reported { block_bytes: 0, canonical_bytes: u64::MAX, ..reported(30, 500) };
        assert_eq!(judge(&odd), Lesson::Confirmed);
    }
}
