//! Time and chance, as a member meets them: everything that a simulation must be able
//! to decide instead of the machine.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

/// Decides time and chance instead of the machine.
pub(crate) trait Surroundings: Send + Sync {
    /// Returns the time since the member was started.
    fn now(&self) -> Duration;
    /// Returns the time since 1970, as the machine's clock has it.
    fn wall(&self) -> Duration;
    /// Draws a number.
    fn random(&self) -> u64;
}

/// Where a member gets time and chance from.
#[derive(Clone)]
pub(crate) enum World {
    /// The machine, since a start.
    Machine(Instant),
    /// Somebody else.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "a simulation's"))]
    Other(Arc<dyn Surroundings>),
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(start) => f.debug_tuple("Machine").field(start).finish(),
            Self::Other(_) => f.debug_tuple("Other").finish(),
        }
    }
}

impl World {
    /// Returns the machine's, from now on.
    pub(crate) fn machine() -> Self {
        Self::Machine(Instant::now())
    }

    /// Returns the time since the member was started.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Machine(start) => start.elapsed(),
            Self::Other(other) => other.now(),
        }
    }

    /// Returns the time since 1970.
    pub(crate) fn wall(&self) -> Duration {
        match self {
            Self::Machine(_) => UNIX_EPOCH.elapsed().unwrap_or_default(),
            Self::Other(other) => other.wall(),
        }
    }

    /// Draws a number.
    pub(crate) fn random(&self) -> u64 {
        match self {
            Self::Machine(_) => rand::random(),
            Self::Other(other) => other.random(),
        }
    }
}
