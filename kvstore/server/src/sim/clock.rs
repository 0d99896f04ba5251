//! Time and chance of a simulated member: whatever the simulator says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::world::Surroundings;

/// A clock that is set by hand, and a seeded source of chance; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<State>);

#[derive(Debug, Default)]
struct State {
    now: AtomicU64,
    wall: AtomicU64,
    chance: AtomicU64,
}

impl Clock {
    /// Makes one with chance from a seed.
    pub fn new(seed: u64) -> Self {
        let clock = Self::default();
        clock.0.chance.store(seed, Ordering::Relaxed);
        clock
    }

    /// Sets the time since the member was started.
    pub fn set(&self, now: Duration) {
        self.0.now.store(nanos(now), Ordering::Relaxed);
    }

    /// Sets the time since 1970.
    pub fn set_wall(&self, wall: Duration) {
        self.0.wall.store(nanos(wall), Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Surroundings for Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos(self.0.wall.load(Ordering::Relaxed))
    }

    /// Draws by splitmix64 (Steele, Lea, Flood 2014).
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.chance.fetch_add(STEP, Ordering::Relaxed);
        let mut z = state.wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
