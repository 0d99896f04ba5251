//! Snapshots: when the log no longer reaches back to what a peer needs.
//!
//! raft only decides that one is due and, at the other end, whether it is wanted.
//! What is in it is the state machine's, and goes another way.

use raft::{ProgressState, Ready, SnapshotStatus, eraftpb};

use crate::{conf::ConfState, core::Member, input::PeerMessage, output::Output};

/// What a snapshot stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Index of the last entry applied in it.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The membership as of that entry.
    pub conf_state: ConfState,
}

impl From<SnapshotMeta> for eraftpb::SnapshotMetadata {
    fn from(meta: SnapshotMeta) -> Self {
        let mut out = Self {
            index: meta.index,
            term: meta.term,
            ..Self::default()
        };
        out.set_conf_state(meta.conf_state.into());
        out
    }
}

impl From<&eraftpb::SnapshotMetadata> for SnapshotMeta {
    fn from(meta: &eraftpb::SnapshotMetadata) -> Self {
        Self {
            index: meta.index,
            term: meta.term,
            conf_state: meta.get_conf_state().into(),
        }
    }
}

/// Says in the message of [`Output::SendSnapshot`] what the snapshot that goes with
/// it was really made of: at least what raft asked for.
pub fn snapshot_message(mut message: PeerMessage, meta: SnapshotMeta) -> PeerMessage {
    debug_assert!(meta.index >= message.get_snapshot().get_metadata().index);
    message.mut_snapshot().set_metadata(meta.into());
    message
}

/// Returns what snapshot a message goes with, if it goes with one.
pub fn snapshot_meta(message: &PeerMessage) -> Option<SnapshotMeta> {
    let goes_with = message.get_msg_type() == eraftpb::MessageType::MsgSnapshot;
    goes_with.then(|| message.get_snapshot().get_metadata().into())
}

impl Member {
    /// Takes the snapshot in that raft accepted with the last message, if any.
    pub(crate) fn install(
        &mut self,
        ready: &Ready,
        outputs: &mut Vec<Output>,
    ) -> Option<SnapshotMeta> {
        if ready.snapshot().is_empty() {
            return None;
        }
        let meta = SnapshotMeta::from(ready.snapshot().get_metadata());
        // All that was to be applied is in it.
        self.committed.clear();
        self.raw.mut_store().reset(&meta);
        self.applied = meta.index;
        self.installing = Some(ready.number());
        outputs.push(Output::Install(meta.clone()));
        Some(meta)
    }

    /// Notes that a snapshot leaves for a peer that asked for one.
    pub(crate) fn snapshot_requested(&mut self, peer: u64) {
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(peer) {
            // raft forgets the request only once the snapshot is reported, and would
            // send another if the peer's own word came first (`handle_append_response`).
            progress.pending_request_snapshot = 0;
        }
    }

    pub(crate) fn snapshot_sent(&mut self, peer: u64, ok: bool) {
        let status = match ok {
            true => SnapshotStatus::Finish,
            false => SnapshotStatus::Failure,
        };
        self.raw.report_snapshot(peer, status);
        let next = self.last_index() + 1;
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(peer)
            && progress.matched == 0
            && progress.state == ProgressState::Probe
        {
            // raft would now try the log from its first entry, which must not be
            // the first thing a new member sees (module `peers`).
            progress.next_idx = progress.next_idx.max(next);
        }
    }

    /// Returns the lowest index from which a peer goes on after the snapshot it is
    /// being sent.
    pub(crate) fn snapshot_floor(&self) -> Option<u64> {
        let peers = self.raw.raft.prs().iter().map(|(_, progress)| progress);
        let sending = peers.filter(|progress| progress.state == ProgressState::Snapshot);
        sending.map(|progress| progress.pending_snapshot).min()
    }
}
