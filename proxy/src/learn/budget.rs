//! How much evidence to believe of each backend: as many blocks as its cache holds, and a quarter more.

use crate::limits::EVIDENCE_SPARE_DIVISOR;

/// What a budget follows from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cache {
    /// Tokens its engine keeps as cached prefixes; `None` when it does not say.
    pub(crate) tokens: Option<u64>,
    /// It keeps more than that, nobody knows how much.
    pub(crate) keeps_more: bool,
    /// Canonical bytes a token, as learned.
    pub(crate) bytes_per_token: f32,
    /// Bytes a block.
    pub(crate) block_bytes: u32,
    /// Blocks assumed of an engine that does not say.
    pub(crate) blocks_default: u64,
}

/// Blocks of evidence to keep for a backend.
pub(crate) fn blocks_max(cache: &Cache) -> u64 {
    let Some(tokens) = cache.tokens else { return cache.blocks_default };
    let bytes_per_token_milli = milli(cache.bytes_per_token);
    let bytes = u128::from(tokens) * u128::from(bytes_per_token_milli) / 1000;
    let blocks = bytes / u128::from(cache.block_bytes.max(1));
    let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
    let blocks = blocks.saturating_add(blocks / EVIDENCE_SPARE_DIVISOR).max(1);
    if cache.keeps_more { blocks.max(cache.blocks_default) } else { blocks }
}

/// Whether a budget moved far enough to be told to the index.
pub(crate) fn moved(before: u64, after: u64) -> bool {
    before.abs_diff(after) > before / 20
}

// The ratio is clamped to 0.5..64 where it is learned; a cast saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn milli(ratio: f32) -> u32 {
    (ratio * 1000.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(tokens: Option<u64>) -> Cache {
        Cache {
            tokens,
            keeps_more: false,
            bytes_per_token: 4.0,
            block_bytes: 128,
            blocks_default: 5_000,
        }
    }

    #[test]
    fn tokens_become_blocks_and_a_quarter_more() {
        assert_eq!(blocks_max(&cache(Some(32_000))), 1_250);
        assert_eq!(blocks_max(&Cache { bytes_per_token: 2.0, ..cache(Some(32_000)) }), 625);
    }

    #[test]
    fn an_unknown_cache_gets_the_default_and_an_open_ended_one_at_least_that() {
        assert_eq!(blocks_max(&cache(None)), 5_000);
        let open = |tokens| Cache { keeps_more: true, ..cache(Some(tokens)) };
        assert_eq!(blocks_max(&open(32_000)), 5_000);
        assert_eq!(blocks_max(&open(320_000)), 12_500);
    }

    #[test]
    fn small_changes_are_not_worth_telling() {
        assert!(moved(0, 1) && moved(1_000, 1_051) && !moved(1_000, 1_050));
    }
}
