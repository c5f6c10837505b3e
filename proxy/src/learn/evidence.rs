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

/// Whether a request was answered whole and well, so that its figures can be trusted.
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
    let usage = record.usage.as_ref();
    let tokens = usage.and_then(|usage| Some((usage.prompt_tokens, usage.cached_tokens?)));
    let Some((prompt_tokens, cached_tokens)) = tokens else { return Lesson::Confirmed };
    judge(&Reported {
        blocks: u32::try_from(record.blocks.len()).unwrap_or(u32::MAX),
        predicted_blocks,
        canonical_bytes: record.canonical_bytes,
        prompt_tokens,
        cached_tokens,
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
    let held =
        reported.cached_tokens.saturating_add(u64::from(reported.page_tokens.saturating_sub(1)));
    if reported.prompt_tokens == 0 || held >= reported.prompt_tokens {
        return Lesson::Confirmed;
    }
    let own = u128::from(reported.canonical_bytes) * 1000 / u128::from(reported.prompt_tokens);
    let density_milli = own.max(u128::from(reported.bytes_per_token_milli));
    let bytes = (u128::from(held) * density_milli).saturating_mul(9) / 8 / 1000;
    let cached_blocks = bytes / u128::from(reported.block_bytes.max(1));
    let cached_blocks = u32::try_from(cached_blocks).unwrap_or(u32::MAX).min(reported.blocks);
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
    fn absurd_reports_do_no_harm() {
        assert_eq!(judge(&Reported { prompt_tokens: 0, ..reported(30, 5) }), Lesson::Confirmed);
        assert_eq!(judge(&reported(30, u64::MAX)), Lesson::Confirmed);
        let odd = Reported { block_bytes: 0, canonical_bytes: u64::MAX, ..reported(30, 500) };
        assert_eq!(judge(&odd), Lesson::Confirmed);
    }
}
