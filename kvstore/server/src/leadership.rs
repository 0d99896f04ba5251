//! Whether there is a leader, for callers who want to be told rather than wait.
//!
//! A request with metadata `hasleader: true` is refused while there is none; a
//! stream opened with it is cancelled when there has been none for long (etcd:
//! v3rpc/interceptor.go, `monitorLeader`). kube-apiserver opens all its watches so.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Election timeouts without a leader after which streams are cancelled. Opening
/// one again costs more than refusing a request, so a short election is sat out.
const ELECTIONS_WITHOUT_LEADER_MAX: u32 = 3;

/// Who leads, as this member knows.
pub(crate) struct Leadership {
    /// Zero is nobody.
    leader: watch::Sender<u64>,
    patience: Duration,
    absence: Mutex<Absence>,
}

/// Since when nobody leads, and what to fire once that is too long.
#[derive(Debug, Default)]
struct Absence {
    since: Option<Duration>,
    lost: CancellationToken,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("leader", &self.leader)
            .finish_non_exhaustive()
    }
}

impl Leadership {
    pub(crate) fn new(election_timeout: Duration) -> Self {
        Self {
            leader: watch::Sender::new(0),
            patience: election_timeout * ELECTIONS_WITHOUT_LEADER_MAX,
            absence: Mutex::new(Absence::default()),
        }
    }

    /// Says whether anybody leads.
    pub(crate) fn exists(&self) -> bool {
        *self.leader.borrow() != 0
    }

    /// Returns what follows who leads.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.leader.subscribe()
    }

    /// Returns who leads, waiting until somebody does.
    pub(crate) async fn leader(&self) -> u64 {
        let mut leader = self.watch();
        let known = leader.wait_for(|leader| *leader != 0).await;
        // The sender lives as long as this.
        known.map_or(0, |leader| *leader)
    }

    /// Returns what fires when there has been no leader for too long from now on.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.absence().lost.clone()
    }

    /// Notes who leads; called at every turn and tick of the member.
    pub(crate) fn note(&self, leader: u64, now: Duration) {
        let changed = self
            .leader
            .send_if_modified(|known| std::mem::replace(known, leader) != leader);
        if leader != 0 && !changed {
            return;
        }
        let mut absence = self.absence();
        if leader != 0 {
            absence.since = None;
            return;
        }
        let since = *absence.since.get_or_insert(now);
        if now.saturating_sub(since) >= self.patience && !absence.lost.is_cancelled() {
            tracing::warn!("no leader for long: cancelling the streams that require one");
            // Whoever comes later waits for the next loss.
            std::mem::take(&mut absence.lost).cancel();
            absence.since = Some(now);
        }
    }

    fn absence(&self) -> MutexGuard<'_, Absence> {
        // Nothing in here can be left half done by a panic.
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_given_up_after_three_elections_without_a_leader() {
        let timeout = Duration::from_secs(1);
        let leadership = Leadership::new(timeout);
        leadership.note(7, Duration::ZERO);
        let lost = leadership.lost();
        assert!(leadership.exists());
        leadership.note(0, timeout);
        assert!(!leadership.exists(), "requests are refused at once");
        leadership.note(0, timeout * 3);
        leadership.note(8, timeout * 3);
        leadership.note(0, timeout * 4);
        leadership.note(0, timeout * 6);
        assert!(!lost.is_cancelled(), "an election in between counts anew");
        leadership.note(0, timeout * 7);
        assert!(lost.is_cancelled());
        assert!(!leadership.lost().is_cancelled(), "later ones are not hit");
    }
}
