//! The Mersenne Twister (MT19937, Matsumoto and Nishimura 1998), seeded and drawn from as Python's `random` module does.
//!
//! The reference simulator draws its session order, its tick spreading and its ties from that generator. Drawing the same
//! numbers makes the comparison with it exact instead of statistical. It is never used for anything secret.

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// A generator, a value of one run.
#[derive(Clone)]
pub struct Mersenne {
    state: [u32; WORDS],
    at: usize,
}

impl std::fmt::Debug for Mersenne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mersenne").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Mersenne {
    /// Seeds as `random.Random(seed)` does for a seed of one 32-bit word.
    pub fn new(seed: u32) -> Self {
        let mut state = expanded(19_650_218);
        let mut at = 1;
        for _ in 0..WORDS {
            let mixed = (state[at - 1] ^ (state[at - 1] >> 30)).wrapping_mul(1_664_525);
            state[at] = (state[at] ^ mixed).wrapping_add(seed);
            at = next_place(&mut state, at);
        }
        for _ in 1..WORDS {
            let mixed = (state[at - 1] ^ (state[at - 1] >> 30)).wrapping_mul(1_566_083_941);
            state[at] = (state[at] ^ mixed).wrapping_sub(at as u32);
            at = next_place(&mut state, at);
        }
        state[0] = 0x8000_0000;
        Self { state, at: WORDS }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        if self.at >= WORDS {
            self.refill();
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A number in [0, 1) with 53 bits.
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// A number below `bound`, which is below 2^32; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bits = usize::BITS - bound.leading_zeros();
        if bits == 0 {
            return 0;
        }
        loop {
            let drawn = (self.bits() >> (32 - bits.min(32))) as usize;
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// 64 random bits.
    pub fn wide(&mut self) -> u64 {
        u64::from(self.bits()) << 32 | u64::from(self.bits())
    }

    /// A standard normal number (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// Shuffles as `random.shuffle` does.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    fn refill(&mut self) {
        for at in 0..WORDS {
            let joined =
                (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + SHIFT) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.at = 0;
    }
}

fn expanded(seed: u32) -> [u32; WORDS] {
    let mut state = [seed; WORDS];
    for at in 1..WORDS {
        let before = state[at - 1];
        state[at] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
    }
    state
}

/// The place after `at`, of 1 to 623; the last word is carried over to the first on wrapping.
fn next_place(state: &mut [u32; WORDS], at: usize) -> usize {
    if at + 1 < WORDS {
        return at + 1;
    }
    state[0] = state[WORDS - 1];
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_draws_what_python_draws() {
        let mut random = Mersenne::new(1);
        assert_eq!(random.unit(), 0.134_364_244_112_401_22);
        assert_eq!(random.unit(), 0.847_433_736_937_232_7);
        let mut random = Mersenne::new(7);
        let mut order: Vec<u32> = (0..8).collect();
        random.shuffle(&mut order);
        assert_eq!(order, PYTHON_ORDER);
    }

    /// `r = random.Random(7); l = list(range(8)); r.shuffle(l)`
    const PYTHON_ORDER: [u32; 8] = [6, 7, 2, 4, 0, 3, 1, 5];
}
