//! The driver: waits for something to do, takes one turn, waits again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

use crate::{core::Core, shared::Shared};

/// Why the driver woke up.
enum Action {
    /// Somebody proposed or reported something.
    Turn,
    /// A tick of time passed.
    Tick,
    /// The member is to stop.
    Stop,
}

/// Drives the core until it is told to stop.
pub(crate) async fn drive(shared: Arc<Shared>) {
    let period = shared.config.heartbeat_interval;
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    // After a stall one tick is enough: time lost must not look like many
    // heartbeats missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let action = tokio::select! {
            biased;
            () = shared.stop.cancelled() => Action::Stop,
            _ = ticks.tick() => Action::Tick,
            () = shared.wake.notified() => Action::Turn,
        };
        let again = match action {
            Action::Stop => return,
            Action::Tick => pass_tick(&shared, shared.now()),
            Action::Turn => take_turn(&shared, shared.now()),
        };
        if again {
            // Others get their turn before the rest of a compaction.
            tokio::task::yield_now().await;
            shared.wake.notify_one();
        }
    }
}

/// Takes one turn; returns whether another is wanted soon.
pub(crate) fn take_turn(shared: &Shared, now: Duration) -> bool {
    let done = shared.reported();
    with_core(shared, now, |core| core.turn(done, now))
}

/// Lets one tick pass; returns whether a turn is wanted soon.
fn pass_tick(shared: &Shared, now: Duration) -> bool {
    with_core(shared, now, |core| core.tick(now))
}

fn with_core(shared: &Shared, now: Duration, f: impl FnOnce(&mut Core)) -> bool {
    let again = shared.with(|core| {
        f(core);
        let standing = core.member.standing();
        shared.term.store(standing.term, Ordering::Relaxed);
        shared.leadership.note(standing.leader, now);
        core.wants_turn()
    });
    // A core that is gone wants nothing.
    again.unwrap_or(false)
}
