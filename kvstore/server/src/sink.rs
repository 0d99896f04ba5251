//! What peers reach of this member: notes go to the driver, questions are answered
//! from the core, a snapshot is taken in and offered to raft.

use std::{fmt, sync::Arc, sync::atomic::Ordering};

use bytes::Bytes;
use disk::RowsHome;
use proto::peer as pb;
use tonic::Status;

use crate::{
    API_VERSION,
    auth::Caller,
    core::{Arrival, Done},
    handle::Handle,
    peers::{Note, Sink, SnapshotBody},
    shared::Shared,
};

/// Takes in what peers send.
pub(crate) struct Inlet {
    shared: Arc<Shared>,
    home: RowsHome,
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}

impl Inlet {
    pub(crate) fn new(shared: Arc<Shared>, home: RowsHome) -> Self {
        Self { shared, home }
    }

    /// The way in for this process itself: what a peer asks for, it has checked.
    fn handle(&self) -> Handle {
        Handle {
            shared: Arc::clone(&self.shared),
            caller: Caller::Internal,
        }
    }
}

#[tonic::async_trait]
impl Sink for Inlet {
    fn notes(&self, from: u64, notes: Vec<Note>) {
        self.shared.report_notes(from, notes);
    }

    fn unreachable(&self, peer: u64) {
        self.shared.report(Done::Unreachable(peer));
    }

    fn linked(&self, peer: u64) {
        self.shared.report(Done::Linked(peer));
    }

    fn removed(&self, by: u64) {
        tracing::error!(
            by = %format!("{by:x}"),
            "another member says that this one was removed from the cluster; it stops"
        );
        self.shared.removed.store(true, Ordering::Release);
        self.shared.stop.cancel();
    }

    async fn snapshot(&self, from: u64, head: Bytes, mut body: SnapshotBody) -> Result<(), Status> {
        let message = member::decode_message(head)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        if message.from != from || message.to != self.shared.ids.member {
            return Err(Status::invalid_argument(
                "the snapshot is not from its sender to this member",
            ));
        }
        let (shared, home) = (Arc::clone(&self.shared), self.home.clone());
        let taken_in = tokio::task::spawn_blocking(move || {
            let mut next = || body.next_blocking().map_err(|cut| cut.to_string());
            Arrival::take_in(&shared.config, &home, message, &mut next)
        });
        let (arrival, decision) = match taken_in.await {
            Ok(Ok(taken_in)) => taken_in,
            Ok(Err(why)) => {
                tracing::warn!(from = %format!("{from:x}"), why, "a snapshot was not taken in");
                return Err(Status::aborted(why));
            }
            Err(_panicked) => return Err(Status::internal("taking the snapshot in failed")),
        };
        self.shared.report(Done::Arrived(Box::new(arrival)));
        // Dropped undecided only when the member stops.
        decision
            .await
            .map_err(|_stopped| Status::unavailable("the member is stopping"))
    }

    async fn lease_renew(&self, id: i64) -> Result<i64, Status> {
        Ok(self.handle().renew_here(id).await?)
    }

    async fn lease_time_to_live(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveReply, Status> {
        let found = self.handle().ttl_here(request.id, request.keys).await?;
        Ok(pb::LeaseTimeToLiveReply {
            ttl: found.ttl,
            granted_ttl: found.granted_ttl,
            keys: found.keys,
        })
    }

    async fn hash_kv(&self, revision: i64) -> Result<pb::HashKvReply, Status> {
        let handle = self.handle();
        let found = handle.hash_kv(revision).await?;
        Ok(pb::HashKvReply {
            hash: found.hash,
            compact_revision: found.compact_revision,
            hash_revision: found.hash_revision,
            current_revision: handle.revision(),
        })
    }

    async fn members(&self) -> Result<pb::MembersReply, Status> {
        let members = self.handle().members().into_iter();
        Ok(pb::MembersReply {
            cluster_id: self.shared.ids.cluster,
            member_id: self.shared.ids.member,
            members: members
                .map(|member| pb::Member {
                    id: member.id,
                    name: member.name,
                    peer_urls: member.peer_ur_ls,
                    client_urls: member.client_ur_ls,
                    learner: member.is_learner,
                })
                .collect(),
            server_version: API_VERSION.to_owned(),
        })
    }

    async fn change_membership(&self, change: Bytes) -> Result<Bytes, Status> {
        let proposal = mvcc::Proposal::decode(change)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mvcc::Command::Member(command) = proposal.command else {
            return Err(Status::invalid_argument("it changes no member"));
        };
        let index = self.handle().change_members_here(command).await?;
        Ok(Bytes::copy_from_slice(&index.to_le_bytes()))
    }

    async fn status(&self) -> Result<pb::StatusReply, Status> {
        let uptime = self.shared.now().as_millis();
        // Asked every second: nothing here looks at the files, as a client's does.
        let status = self.shared.with(|core| {
            let standing = core.member.standing();
            pb::StatusReply {
                server_version: API_VERSION.to_owned(),
                leader: standing.leader,
                term: standing.term,
                applied_index: core.machine.applied_index(),
                committed_index: core.member.commit_index(),
                revision: core.machine.revision(),
                learner: self.shared.is_learner(),
                uptime_millis: u64::try_from(uptime).unwrap_or(u64::MAX),
                low_on_disk: self.shared.is_low_on_disk(),
            }
        })?;
        Ok(status)
    }
}
