//! Service Maintenance: how the member does.

use mvcc::{Alarm, AlarmKind};
use proto::etcdserverpb::{
    self as pb, alarm_request::AlarmAction, maintenance_server::Maintenance,
};
use tonic::{Request, Response, Status};

use super::downgrade;
use crate::{
    API_VERSION, STORAGE_VERSION,
    handle::Handle,
    snapshot::{self, SnapshotStream},
};

#[tonic::async_trait]
impl Maintenance for Handle {
    type SnapshotStream = SnapshotStream;

    async fn hash(
        &self,
        request: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let (hash, revision) = Handle::hash(self).await?;
        let header = self.header(revision);
        Ok(Response::new(pb::HashResponse { header, hash }))
    }

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        self.for_caller(&request).check_root()?;
        Ok(Response::new(snapshot::begin(self)?))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        let this = self.for_caller(&request);
        this.check_root()?;
        let version = downgrade::answer(&this, request.into_inner()).await?;
        Ok(Response::new(pb::DowngradeResponse {
            header: self.header(self.revision()),
            version,
        }))
    }

    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        let this = self.for_caller(&request);
        let request = request.into_inner();
        match request.action() {
            AlarmAction::Get => this.check_user()?,
            AlarmAction::Activate | AlarmAction::Deactivate => this.check_root()?,
        }
        let kind = AlarmKind::from_i32(request.alarm);
        let alarms = match (request.action(), kind) {
            (AlarmAction::Get, kind) => this.alarms(kind)?,
            (AlarmAction::Activate, Some(kind)) => {
                this.set_alarm(
                    Alarm {
                        member: request.member_id,
                        kind,
                    },
                    true,
                )
                .await?
            }
            (AlarmAction::Deactivate, Some(kind)) => {
                this.set_alarm(
                    Alarm {
                        member: request.member_id,
                        kind,
                    },
                    false,
                )
                .await?
            }
            // An alarm of no kind: etcd does nothing and says so with nothing.
            (AlarmAction::Activate | AlarmAction::Deactivate, None) => Vec::new(),
        };
        let alarms = alarms.into_iter().map(|alarm| pb::AlarmMember {
            member_id: alarm.member,
            alarm: wire_kind(alarm.kind).into(),
        });
        Ok(Response::new(pb::AlarmResponse {
            header: self.header(self.revision()),
            alarms: alarms.collect(),
        }))
    }

    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        self.for_caller(&request).check_user()?;
        let status = Handle::status(self)?;
        let mut errors = Vec::new();
        if status.leader == 0 {
            errors.push(mvcc::Error::NoLeader.to_string());
        }
        for alarm in &status.alarms {
            errors.push(format!(
                "memberID:{} alarm:{} ",
                alarm.member,
                wire_kind(alarm.kind).as_str_name()
            ));
        }
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(Response::new(pb::StatusResponse {
            header: self.header(status.revision),
            version: API_VERSION.to_owned(),
            db_size: signed(status.db_size),
            leader: status.leader,
            raft_index: status.raft_index,
            raft_term: status.raft_term,
            raft_applied_index: status.raft_applied_index,
            errors,
            db_size_in_use: signed(status.db_size_in_use),
            is_learner: self.shared.is_learner(),
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: signed(self.shared.config.quota_backend_bytes),
            downgrade_info: self.downgrade()?.map(|target| pb::DowngradeInfo {
                enabled: true,
                target_version: target,
            }),
        }))
    }

    /// Gives space back: what was compacted leaves the rows, and the rows are moved
    /// together, apart from the core. Puts go on meanwhile, unlike etcd's, which
    /// stops the world. etcd sends no header either.
    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let compacted = self.shared.with(|core| core.begin_defragment())?;
        self.shared.wake.notify_one();
        let stopped = |_ended| crate::RpcError::from(mvcc::Error::Stopped);
        compacted.await.map_err(stopped)?;
        let together = self.shared.with(|core| core.end_defragment())?;
        together.await.map_err(stopped)?;
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let found = Handle::hash_kv(self, request.into_inner().revision).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.header(self.revision()),
            hash: found.hash,
            compact_revision: found.compact_revision,
            hash_revision: found.hash_revision,
        }))
    }

    /// Hands leadership to whom it is told (etcd: EtcdServer.MoveLeader).
    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        self.for_caller(&request).check_root()?;
        self.move_leader_to(request.into_inner().target_id).await?;
        // etcd sends no header.
        Ok(Response::new(pb::MoveLeaderResponse { header: None }))
    }
}

fn wire_kind(kind: AlarmKind) -> pb::AlarmType {
    match kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    }
}
