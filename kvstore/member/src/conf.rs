//! Who votes and who only listens: raft's configuration as a plain value.
//!
//! It is replicated state. The state machine stores it with the applied index, and
//! a member starts from what is stored there, never from flags.

use std::collections::BTreeSet;

use raft::eraftpb;

/// The members as raft counts them. All lists are ascending.
///
/// While `voters_outgoing` is not empty the configuration is joint: a decision needs
/// a majority of `voters` and one of `voters_outgoing` (Raft thesis, 4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfState {
    /// Those who vote.
    pub voters: Vec<u64>,
    /// Those who only receive the log.
    pub learners: Vec<u64>,
    /// Those who voted before the change that is under way.
    pub voters_outgoing: Vec<u64>,
    /// Those who become learners when the change is complete.
    pub learners_next: Vec<u64>,
    /// Whether the leader completes the change by itself. Always so here.
    pub auto_leave: bool,
}

impl ConfState {
    /// Makes a configuration of voters only.
    pub fn of_voters(ids: impl IntoIterator<Item = u64>) -> Self {
        Self {
            voters: sorted(ids),
            ..Self::default()
        }
    }

    /// Returns whether it names nobody: a member that joins knows nothing yet.
    pub fn is_empty(&self) -> bool {
        self.lists().iter().all(|list| list.is_empty())
    }

    /// Returns whether `id` is the only member, and no change is under way.
    pub fn is_lone(&self, id: u64) -> bool {
        self.voters == [id] && self.lists()[1..].iter().all(|list| list.is_empty())
    }

    /// Returns whether a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Returns whether `id` will vote once a change under way is complete.
    pub fn is_voter(&self, id: u64) -> bool {
        self.voters.contains(&id)
    }

    /// Returns whether `id` is a learner, or will be.
    pub fn is_learner(&self, id: u64) -> bool {
        self.learners.contains(&id) || self.learners_next.contains(&id)
    }

    /// Returns whether `id` is a member in any way.
    pub fn contains(&self, id: u64) -> bool {
        self.lists().iter().any(|list| list.contains(&id))
    }

    /// Returns everybody, those on their way out included.
    pub fn members(&self) -> BTreeSet<u64> {
        self.lists().into_iter().flatten().copied().collect()
    }

    fn lists(&self) -> [&Vec<u64>; 4] {
        [
            &self.voters,
            &self.learners,
            &self.voters_outgoing,
            &self.learners_next,
        ]
    }
}

fn sorted(ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut ids: Vec<u64> = ids.into_iter().collect();
    ids.sort_unstable();
    ids
}

impl From<&eraftpb::ConfState> for ConfState {
    fn from(state: &eraftpb::ConfState) -> Self {
        Self {
            voters: sorted(state.voters.iter().copied()),
            learners: sorted(state.learners.iter().copied()),
            voters_outgoing: sorted(state.voters_outgoing.iter().copied()),
            learners_next: sorted(state.learners_next.iter().copied()),
            auto_leave: state.auto_leave,
        }
    }
}

impl From<ConfState> for eraftpb::ConfState {
    fn from(state: ConfState) -> Self {
        Self {
            voters: state.voters,
            learners: state.learners,
            voters_outgoing: state.voters_outgoing,
            learners_next: state.learners_next,
            auto_leave: state.auto_leave,
            ..Self::default()
        }
    }
}
