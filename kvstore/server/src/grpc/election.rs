//! Service Election: a leader made of leases and transactions.
//!
//! Semantics, key layout and errors are etcd's (server/etcdserver/api/v3election,
//! client/v3/concurrency/election.go): the name's oldest key leads, its value is
//! what the leader has to say.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use mvcc::{EventKind, KeyValue, PutRequest, RequestOp, TxnRequest, watch::WatchCreate};
use proto::v3electionpb::{self as pb, election_server::Election};
use tonic::{Request, Response, Status};

use super::{
    convert,
    queue::{self, Leaving, plain},
};
use crate::{WatchStream, handle::Handle};

const NO_LEADER: &str = "election: no leader";
const NOT_LEADER: &str = "election: not leader";
const NO_LEADER_FIELD: &str = r#""leader" field must be provided"#;

#[tonic::async_trait]
impl Election for Handle {
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::CampaignRequest { name, lease, value } = request.into_inner();
        let stop = self.shared.stop.clone();
        let won = tokio::select! {
            won = campaign(&this, &name, lease, value) => won?,
            () = stop.cancelled() => return Err(plain(mvcc::Error::Stopped.into())),
        };
        let leader = pb::LeaderKey {
            name,
            key: won.key,
            rev: won.created,
            lease: won.lease,
        };
        Ok(Response::new(pb::CampaignResponse {
            header: self.header(won.revision),
            leader: Some(leader),
        }))
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::ProclaimRequest { leader, value } = request.into_inner();
        let leader = leader.ok_or_else(|| Status::unknown(NO_LEADER_FIELD))?;
        let lease = queue::session(&this, leader.lease).await?;
        let revision = proclaim(&this, &leader.key, leader.rev, lease, value).await?;
        let header = self.header(revision);
        Ok(Response::new(pb::ProclaimResponse { header }))
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let this = self.for_caller(&request);
        let prefix = queue::prefix(&request.into_inner().name);
        let reply = this.range(queue::first(&prefix)).await.map_err(plain)?;
        let leader = reply.kvs.into_iter().next();
        let leader = leader.ok_or_else(|| Status::unknown(NO_LEADER))?;
        Ok(Response::new(this.announce(leader, reply.revision)))
    }

    type ObserveStream = BoxStream<'static, Result<pb::LeaderResponse, Status>>;

    async fn observe(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let observer = Observer {
            handle: self.for_caller(&request),
            prefix: queue::prefix(&request.into_inner().name),
            watch: None,
            said: VecDeque::new(),
        };
        let leaders = futures::stream::unfold(observer, async |mut observer| {
            let leader = observer.next().await?;
            Some((Ok(leader), observer))
        });
        let stop = self.shared.stop.clone();
        Ok(Response::new(
            leaders.take_until(stop.cancelled_owned()).boxed(),
        ))
    }

    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        let this = self.for_caller(&request);
        let leader = request.into_inner().leader;
        let leader = leader.ok_or_else(|| Status::unknown(NO_LEADER_FIELD))?;
        // etcd makes itself a session even to leave.
        queue::session(&this, leader.lease).await?;
        let resign = TxnRequest {
            compare: vec![queue::created_at(&leader.key, leader.rev)],
            ..queue::leave(&leader.key, 0)
        };
        let reply = this.txn(resign).await.map_err(plain)?;
        let header = self.header(reply.revision);
        Ok(Response::new(pb::ResignResponse { header }))
    }
}

impl Handle {
    fn announce(&self, leader: KeyValue, revision: i64) -> pb::LeaderResponse {
        pb::LeaderResponse {
            header: self.header(revision),
            kv: Some(convert::key_value(leader)),
        }
    }
}

/// A campaign won.
struct Won {
    key: Bytes,
    /// When the key was created.
    created: i64,
    lease: i64,
    /// The store's revision when the candidate entered, which is what etcd reports.
    revision: i64,
}

/// Becomes a candidate and waits until all earlier ones are gone.
async fn campaign(handle: &Handle, name: &[u8], lease: i64, value: Bytes) -> Result<Won, Status> {
    let lease = queue::session(handle, lease).await?;
    let prefix = queue::prefix(name);
    let key = queue::key(&prefix, lease);
    let put = PutRequest {
        key: key.clone(),
        value: value.clone(),
        lease,
        ..PutRequest::default()
    };
    let enter = TxnRequest {
        compare: vec![queue::created_at(&key, 0)],
        success: vec![RequestOp::Put(put)],
        failure: vec![RequestOp::Range(queue::only(&key))],
    };
    let entered = handle.txn(enter).await.map_err(plain)?;
    let earlier = queue::found(&entered, 0).filter(|_| !entered.succeeded);
    let created = earlier.map_or(entered.revision, |kv| kv.create_revision);
    let leaving = Leaving::new(handle, queue::leave(&key, created));
    if earlier.is_some_and(|kv| kv.value != value) {
        proclaim(handle, &key, created, lease, value).await?;
    }
    let waited = queue::wait_for_turn(handle, &prefix, created - 1).await;
    // Whoever fails without having been cancelled stays a candidate, as in etcd.
    leaving.stay();
    waited?;
    Ok(Won {
        key,
        created,
        lease,
        revision: entered.revision,
    })
}

/// Changes what a leader says, if it still is the one; returns the revision.
async fn proclaim(
    handle: &Handle,
    key: &Bytes,
    created: i64,
    lease: i64,
    value: Bytes,
) -> Result<i64, Status> {
    let put = PutRequest {
        key: key.clone(),
        value,
        lease,
        ..PutRequest::default()
    };
    let request = TxnRequest {
        compare: vec![queue::created_at(key, created)],
        success: vec![RequestOp::Put(put)],
        failure: Vec::new(),
    };
    let reply = handle.txn(request).await.map_err(plain)?;
    match reply.succeeded {
        true => Ok(reply.revision),
        false => Err(Status::unknown(NOT_LEADER)),
    }
}

/// Follows who leads and what they say.
struct Observer {
    handle: Handle,
    prefix: Bytes,
    /// Follows the key of the leader, once there is one.
    watch: Option<WatchStream>,
    /// What it said and was not told yet.
    said: VecDeque<pb::LeaderResponse>,
}

impl Observer {
    /// Waits for the next announcement. None ends the stream, without an error as
    /// in etcd: the caller may not read, history is gone, or the member stops.
    async fn next(&mut self) -> Option<pb::LeaderResponse> {
        loop {
            if let Some(leader) = self.said.pop_front() {
                return Some(leader);
            }
            let Some(watch) = &mut self.watch else {
                let (leader, revision) = find(&self.handle, &self.prefix).await?;
                let create = on(leader.key.clone(), revision + 1);
                self.watch = Some(self.handle.watch(create));
                return Some(self.handle.announce(leader, revision));
            };
            let reply = watch.next().await.filter(|reply| !reply.canceled)?;
            let words = reply
                .events
                .iter()
                .take_while(|event| event.kind == EventKind::Put);
            self.said = words
                .map(|event| self.handle.announce(event.kv.clone(), reply.revision))
                .collect();
            if self.said.len() < reply.events.len() {
                // It was deleted: after its last words look who leads now.
                self.watch = None;
            }
        }
    }
}

/// Returns the leader, and the revision as of which it leads; waits for one.
async fn find(handle: &Handle, prefix: &Bytes) -> Option<(KeyValue, i64)> {
    let reply = handle.range(queue::first(prefix)).await.ok()?;
    if let Some(leader) = reply.kvs.into_iter().next() {
        return Some((leader, reply.revision));
    }
    let mut watch = handle.watch(WatchCreate {
        range_end: queue::end(prefix),
        filter_delete: true,
        ..on(prefix.clone(), reply.revision + 1)
    });
    loop {
        let reply = watch.next().await.filter(|reply| !reply.canceled)?;
        if let Some(event) = reply.events.first() {
            return Some((event.kv.clone(), event.kv.mod_revision));
        }
    }
}

fn on(key: Bytes, start_revision: i64) -> WatchCreate {
    WatchCreate {
        key,
        start_revision,
        ..WatchCreate::default()
    }
}
