//! Chance: xoshiro256** from a seed (Blackman, Vigna 2018). Our own, so that a seed
//! means the same run whatever version of a library is in use.

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Makes one of a seed; `stream` tells apart what draws from the same seed, so
    /// that one drawing more often does not change what another draws.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f);
        Self(std::array::from_fn(|_| splitmix(&mut state)))
    }

    /// Draws a number.
    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let drawn = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        drawn
    }

    /// Draws from 0 up to, but not including, `n`; zero if `n` is.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        match n {
            0 => 0,
            n => ((u128::from(self.next()) * u128::from(n)) >> 64) as u64,
        }
    }

    /// Draws from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Says yes with a chance of so many in a million.
    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// Says yes half of the time.
    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Picks one of some.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len() as u64);
        of.get(usize::try_from(at).unwrap_or(0))
    }

    /// Picks one of a list that is known not to be empty.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        *self.pick(of).expect("a list written in the code has items")
    }
}
