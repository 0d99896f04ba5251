//! A small seeded generator for election timeouts.
//!
//! raft draws its timeouts from the thread's own random source; the simulator
//! needs every draw to come from its seed. SplitMix64 (Steele, Lea and Flood,
//! 2014) is enough for spreading timeouts.

/// Draws numbers from a seed.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number in `[low, high)`; `low` must be below `high`.
    pub(crate) fn draw(&mut self, low: usize, high: usize) -> usize {
        debug_assert!(low < high);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let span = u64::try_from(high - low).unwrap_or(u64::MAX);
        low + usize::try_from(z % span).unwrap_or(0)
    }
}
