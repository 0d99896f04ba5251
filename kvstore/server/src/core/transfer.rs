//! Snapshots for members that lag: taken and sent here, taken in and installed there.
//!
//! ```text
//! leader    raft wants one -> the state of now, frame by frame -> a connection of its own
//! follower  frames -> new rows beside the old, a machine on them -> raft says yes
//!           -> the machine changes places; log and pointer follow on the log's thread
//! ```
//!
//! Nothing here takes time under the lock: the state is a view, and what arrives is
//! written and opened before the core hears of it.

use std::{mem, path::PathBuf, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use disk::{Base, RowsHome};
use member::{Input, PeerMessage, SnapshotMeta};
use mvcc::{Replica, ReplicaImport, StateMachine};
use tokio::sync::oneshot;

use super::Core;
use crate::{
    config::Config,
    fatal::fatal,
    store::{for_raft, open_machine},
    threads::RowsJob,
    views::VIEW_AGE_MAX,
};

/// Bytes of rows between two flushes, so that the engine does not hold them all.
const FLUSH_BYTES: usize = 64 << 20;

/// Waits for the next bytes of a snapshot; none is its end.
pub(crate) type NextFrame<'a> = dyn FnMut() -> Result<Option<Bytes>, String> + 'a;

/// A snapshot on its way to a peer.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) peer: u64,
    /// What raft says with it.
    pub(crate) message: PeerMessage,
    pub(crate) replica: Replica,
}

/// A snapshot that is ready to be installed.
pub(crate) struct Arrival {
    message: Option<PeerMessage>,
    base: Base,
    rows: disk::Rows,
    path: PathBuf,
    machine: StateMachine,
    /// Fires once raft has decided about it.
    decided: Option<oneshot::Sender<()>>,
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrival")
            .field("base", &self.base)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Arrival {
    /// Writes what a peer sends to new rows and opens them. To be called where
    /// waiting is allowed.
    pub(crate) fn take_in(
        config: &Config,
        home: &RowsHome,
        message: PeerMessage,
        next: &mut NextFrame<'_>,
    ) -> Result<(Self, oneshot::Receiver<()>), String> {
        let meta = member::snapshot_meta(&message).ok_or("the message is not of a snapshot")?;
        let path = home.fresh().map_err(|error| error.to_string())?;
        let opened = fill(config, home, &meta, &path, next);
        let (rows, machine) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                if let Err(error) = home.remove(&path) {
                    tracing::warn!(%error, "the next start removes what is left of a snapshot");
                }
                return Err(why);
            }
        };
        let (decided, decision) = oneshot::channel();
        let arrival = Self {
            message: Some(message),
            base: Base {
                index: meta.index,
                term: meta.term,
            },
            rows,
            path,
            machine,
            decided: Some(decided),
        };
        Ok((arrival, decision))
    }
}

/// Fills a directory with rows and opens them.
fn fill(
    config: &Config,
    home: &RowsHome,
    meta: &SnapshotMeta,
    path: &std::path::Path,
    next: &mut NextFrame<'_>,
) -> Result<(disk::Rows, StateMachine), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let rows = home.open_rows(path).map_err(|error| said(&error))?;
    let mut import = ReplicaImport::new(config.write_behind.block_bytes);
    let mut unflushed = 0;
    while let Some(frame) = next()? {
        unflushed += frame.len();
        if let Some(batch) = import.push(&frame).map_err(|error| said(&error))? {
            rows.write(&batch).map_err(|error| said(&error))?;
        }
        if unflushed >= FLUSH_BYTES {
            rows.flush().map_err(|error| said(&error))?;
            unflushed = 0;
        }
    }
    let is = import
        .head()
        .map(|head| (head.applied_index, head.applied_term));
    if is != Some((meta.index, meta.term)) {
        return Err(format!(
            "it is the state after entry {is:?}, not after {} of term {}",
            meta.index, meta.term
        ));
    }
    let last = import.finish().map_err(|error| said(&error))?;
    rows.write(&last).map_err(|error| said(&error))?;
    rows.flush().map_err(|error| said(&error))?;
    let machine = open_machine(config, &rows).map_err(|error| said(&error))?;
    Ok((rows, machine))
}

impl Core {
    /// Prepares a snapshot of now for a peer; whoever drives the core sends it.
    pub(super) fn send_snapshot(&mut self, peer: u64, message: PeerMessage, now: Duration) {
        let replica = self.machine.replica(now);
        let head = replica.head();
        let meta = SnapshotMeta {
            index: head.applied_index,
            term: head.applied_term,
            conf_state: for_raft(&head.conf_state),
        };
        tracing::info!(peer = %format!("{peer:x}"), index = meta.index, "sending a snapshot");
        let message = member::snapshot_message(message, meta);
        self.sendings.push(Sending {
            peer,
            message,
            replica,
        });
    }

    /// Asks raft whether it wants a snapshot that has arrived.
    pub(super) fn arrived(&mut self, mut arrival: Box<Arrival>, now: Duration) {
        let message = arrival.message.take();
        let decided = arrival.decided.take();
        self.arrival = Some(arrival);
        if let Some(message) = message {
            self.step(Input::Peer(Box::new(message)), now);
        }
        if let Some(unwanted) = self.arrival.take() {
            let Arrival { rows, path, .. } = *unwanted;
            let _ended = self.rows_jobs.send(RowsJob::Discard(rows, path));
        }
        if let Some(decided) = decided {
            let _gone = decided.send(());
        }
    }

    /// Lets the machine of the snapshot take the place of the one so far.
    pub(super) fn install(&mut self, meta: &SnapshotMeta, now: Duration) {
        let Some(arrival) = self.arrival.take() else {
            fatal("snapshot", "raft installs one that has not arrived");
        };
        let Arrival {
            base,
            rows,
            path,
            mut machine,
            ..
        } = *arrival;
        if base.index != meta.index {
            fatal(
                "snapshot",
                "raft installs another than the one that arrived",
            );
        }
        tracing::info!(
            index = base.index,
            revision = machine.revision(),
            "installing a snapshot"
        );
        mem::swap(&mut self.machine, &mut machine);
        self.generation += 1;
        let job = RowsJob::Replace {
            rows,
            generation: self.generation,
        };
        let _ended = self.rows_jobs.send(job);
        let replaced = mem::replace(&mut self.rows_path, path);
        self.retired.push((now + VIEW_AGE_MAX, replaced));
        // Views keep the old machine's rows for a while; the machine itself goes.
        drop(machine);
        self.begin_anew(now);
        let on = self.machine.auth().enabled();
        self.auth_on.store(on, Ordering::Release);
        self.address_peers();
        #[cfg(feature = "sim")]
        self.show_machine();
        let streams = self.hub.restored(&self.machine);
        self.wake_streams(&streams);
    }

    /// Removes rows that were replaced so long ago that no read can still use them.
    pub(super) fn remove_retired(&mut self, now: Duration) {
        let due = |(due, _): &(Duration, PathBuf)| *due <= now;
        for (_, path) in self.retired.extract_if(.., |entry| due(entry)) {
            let _ended = self.rows_jobs.send(RowsJob::Remove(path));
        }
    }
}
