//! Independent random streams from one seed.
//!
//! Every conversation, request and text draws from its own generator, so that what one of them
//! consumes never shifts another, and a run can be repeated from its seed alone.

use fastrand::Rng;

/// What a stream of random numbers is for; keeps streams of equal number apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Arrivals = 1,
    Conversation = 2,
    Request = 3,
    System = 4,
    Tools = 5,
    TraceBlock = 6,
    TraceTimes = 7,
    Population = 8,
    Project = 9,
}

/// A generator for the `number`-th thing of a kind.
pub(crate) fn rng(seed: u64, stream: Stream, number: u64) -> Rng {
    Rng::with_seed(mix(mix(seed ^ ((stream as u64) << 56)) ^ number))
}

/// A random version 4 UUID in its usual spelling.
pub(crate) fn uuid(rng: &mut Rng) -> String {
    let (high, low) = (rng.u64(..), rng.u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0x0fff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff,
    )
}

/// An exponentially distributed value with the given mean.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): neighbouring inputs give unrelated outputs.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_by_kind_and_number() {
        let first = rng(7, Stream::Request, 1).u64(..);
        assert_eq!(first, rng(7, Stream::Request, 1).u64(..));
        assert_ne!(first, rng(7, Stream::Request, 2).u64(..));
        assert_ne!(first, rng(7, Stream::Conversation, 1).u64(..));
        assert_ne!(first, rng(8, Stream::Request, 1).u64(..));
    }

    #[test]
    fn a_uuid_has_the_version_4_layout() {
        let text = uuid(&mut rng(1, Stream::Conversation, 0));
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&text[14..15], "4");
        assert!("89ab".contains(&text[19..20]), "{text}");
    }

    #[test]
    fn exponential_values_have_their_mean() {
        let mut rng = rng(3, Stream::Arrivals, 0);
        let sum: f64 = (0..20_000).map(|_| exponential(&mut rng, 2.0)).sum();
        assert!((sum / 20_000.0 - 2.0).abs() < 0.1, "mean {}", sum / 20_000.0);
    }
}
