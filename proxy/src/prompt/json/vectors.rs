//! Where quotes and backslashes stand in a block, with the widest vectors this processor has. Programs are built for every
//! processor of a family, so what only newer ones have is compiled beside it and chosen while running. It never reads
//! outside the block it is given, and both ways say the same of every block.
#![allow(unsafe_code)]

use super::ending::{Block, Ends, Spelling};
use wide::u8x16;

/// [`Ends::end`] where the string ends in another block than the one last looked at.
#[inline(never)]
pub(super) fn end_farther(ends: &mut Ends<'_>, start: usize) -> Option<(usize, Spelling)> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
    {
        // SAFETY: this processor has just said that it has what the function is compiled for.
        return unsafe { end_farther_avx2(ends, start) };
    }
    ends.end_by(start, by_16)
}

/// The whole search is compiled for the wider vectors, so that nothing is called for a block.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn end_farther_avx2(ends: &mut Ends<'_>, start: usize) -> Option<(usize, Spelling)> {
    ends.end_by(start, |block| by_32(block))
}

fn by_16(block: &Block) -> [u64; 3] {
    let (parts, _) = block.as_chunks::<16>();
    let mask = |is: fn(u8x16) -> u8x16| {
        let bits = |part: &[u8; 16]| u64::from(is(u8x16::new(*part)).to_bitmask());
        parts.iter().rev().fold(0, |mask, part| mask << 16 | bits(part))
    };
    [
        mask(|part| part.simd_eq(u8x16::splat(b'"'))),
        mask(|part| part.simd_eq(u8x16::splat(b'\\'))),
        mask(|part| (part & u8x16::splat(1)).simd_eq(u8x16::splat(1))),
    ]
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn by_32(block: &Block) -> [u64; 3] {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_slli_epi16,
    };
    let [low, high]: [__m256i; 2] = bytemuck::cast(*block);
    let joined = |low: i32, high: i32| u64::from(low as u32) | u64::from(high as u32) << 32;
    let equal = |byte: u8| {
        let byte = _mm256_set1_epi8(byte.cast_signed());
        joined(
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, byte)),
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, byte)),
        )
    };
    // A byte's lowest bit, moved to where the highest one stands.
    let odd = joined(
        _mm256_movemask_epi8(_mm256_slli_epi16::<7>(low)),
        _mm256_movemask_epi8(_mm256_slli_epi16::<7>(high)),
    );
    [equal(b'"'), equal(b'\\'), odd]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn wide_vectors_say_what_narrow_ones_say() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("SKIPPED: this processor has no vectors of 32 bytes");
            return;
        }
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..20_000 {
            let block: Block = std::array::from_fn(|_| match round % 2 {
                0 => rng.u8(..),
                _ => b"\"\\!]#["[rng.usize(..6)],
            });
            // SAFETY: the processor has been asked above.
            assert_eq!(unsafe { by_32(&block) }, by_16(&block), "{block:?}");
        }
    }
}
