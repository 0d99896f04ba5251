//! The driver: waits for something to do, takes one turn, waits again.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    core::{Core, Done, Sending},
    shared::Shared,
};

/// Why the driver woke up.
enum Action {
    /// Somebody proposed or reported something, or what was put off is due.
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
    let mut due = None;
    loop {
        let action = tokio::select! {
            biased;
            () = shared.stop.cancelled() => Action::Stop,
            _ = ticks.tick() => Action::Tick,
            () = shared.wake.notified() => Action::Turn,
            () = at(&shared, due) => Action::Turn,
        };
        let turned = match action {
            Action::Stop => return,
            Action::Tick => pass_tick(&shared, shared.now()),
            Action::Turn => take_turn(&shared, shared.now()),
        };
        due = turned.due;
        for sending in turned.sendings {
            tokio::spawn(send(Arc::clone(&shared), sending));
        }
        if turned.again {
            // Others get their turn before the rest of a compaction.
            tokio::task::yield_now().await;
            shared.wake.notify_one();
        }
    }
}

/// Waits until a moment of the member's clock, or for ever.
async fn at(shared: &Shared, moment: Option<Duration>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.saturating_sub(shared.now())).await,
        None => std::future::pending().await,
    }
}

/// What a turn leaves to do.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    /// Whether another is wanted soon.
    pub(crate) again: bool,
    /// Snapshots to be sent.
    pub(crate) sendings: Vec<Sending>,
    /// When a turn is wanted even if nothing happens: watchers may then be told what they
    /// were not told yet, or history forgotten.
    pub(crate) due: Option<Duration>,
}

/// Takes one turn.
pub(crate) fn take_turn(shared: &Shared, now: Duration) -> Turned {
    let done = shared.reported();
    with_core(shared, now, |core| core.turn(done, now))
}

/// Lets one tick pass.
pub(crate) fn pass_tick(shared: &Shared, now: Duration) -> Turned {
    with_core(shared, now, |core| core.tick(now))
}

fn with_core(shared: &Shared, now: Duration, f: impl FnOnce(&mut Core)) -> Turned {
    let turned = shared.with(|core| {
        f(core);
        shared.note(core, now);
        let told = core.tell_watchers(now);
        let due = [told, core.next_compact_step()].into_iter().flatten().min();
        Turned {
            again: core.wants_turn(),
            sendings: std::mem::take(&mut core.sendings),
            due,
        }
    });
    // A core that is gone wants nothing.
    turned.unwrap_or_default()
}

/// Sends a snapshot, and tells raft how that ended.
async fn send(shared: Arc<Shared>, sending: Sending) {
    let Sending {
        peer,
        message,
        replica,
    } = sending;
    let mut head = Vec::new();
    member::encode_message(&message, &mut head);
    let frames = replica
        .frames()
        .map(|frame| frame.map_err(std::io::Error::other));
    let sent = match shared.peers.get() {
        Some(peers) => peers.send_snapshot(peer, head.into(), frames).await,
        None => Err(tonic::Status::unavailable("there are no links")),
    };
    let ok = match sent {
        Ok(()) => true,
        Err(status) => {
            let why = status.message();
            tracing::warn!(peer = %format!("{peer:x}"), why, "a snapshot did not arrive");
            false
        }
    };
    shared.report(Done::SnapshotSent { peer, ok });
}
