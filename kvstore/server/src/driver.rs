//! The driver: waits for something to do, takes one turn, waits again.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior};

use crate::shared::Shared;

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
        let now = shared.now();
        let again = match action {
            Action::Stop => return,
            Action::Tick => {
                let ticked = shared.with(|core| core.tick(now));
                if ticked.is_err() {
                    return;
                }
                false
            }
            Action::Turn => take_turn(&shared, now),
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
    let again = shared.with(|core| {
        core.turn(done, now);
        shared.term.store(core.member.standing().term, std::sync::atomic::Ordering::Relaxed);
        core.wants_turn()
    });
    again.unwrap_or(false)
}
