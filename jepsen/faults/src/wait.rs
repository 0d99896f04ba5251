//! Waiting: for a condition, with a limit, never for luck.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long anything may take before it is given up. Generous, since debug builds
/// share two cores; nothing waits this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How often a condition is looked at again.
const POLL: Duration = Duration::from_millis(50);

/// Waits until a condition gives a value; fails with the last reason.
pub fn until<T>(
    what: impl Into<String>,
    condition: impl FnMut() -> std::result::Result<T, String>,
) -> Result<T> {
    within(PATIENCE, what, condition)
}

/// Waits likewise for so long at most.
pub(crate) fn within<T>(
    patience: Duration,
    what: impl Into<String>,
    mut condition: impl FnMut() -> std::result::Result<T, String>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => {
                let what = what.into();
                return Err(Error::Patience { what, last });
            }
            Err(_) => thread::sleep(POLL),
        }
    }
}
