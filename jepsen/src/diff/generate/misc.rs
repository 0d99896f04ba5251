//! Alarms, hashes, status and members, and the last look at everything.

use bytes::Bytes;
use proto::etcdserverpb as pb;

use super::Generator;
use crate::diff::{program::Step, symbol::MEMBER};

impl Generator {
    pub(super) fn misc(&mut self) {
        match self.below(100) {
            0..25 => self.alarm(),
            25..60 => {
                let revision = self.revision();
                let hash = pb::HashKvRequest { revision };
                self.push(Step::call("Maintenance/HashKV", &hash));
            }
            60..75 => self.push(Step::call("Maintenance/Status", &pb::StatusRequest {})),
            75..78 => self.push(Step::call(
                "Maintenance/Defragment",
                &pb::DefragmentRequest {},
            )),
            78..81 => {
                let target_id = self.member();
                let transfer = pb::MoveLeaderRequest { target_id };
                self.push(Step::call("Maintenance/MoveLeader", &transfer));
            }
            _ => self.cluster(),
        }
    }

    fn member(&mut self) -> u64 {
        self.pick(&[MEMBER, MEMBER, 0, 7]).cast_unsigned()
    }

    fn alarm(&mut self) {
        let alarm = pb::AlarmRequest {
            // An unknown one ends etcd, whatever its version.
            action: self.pick(&[0, 0, 1, 2, 2]),
            member_id: self.member(),
            alarm: self.pick(&[0, 1, 1, 1, 2]),
        };
        let raised = alarm.action == 1 && alarm.alarm != 0;
        self.push(Step::call("Maintenance/Alarm", &alarm));
        if !raised {
            return;
        }
        // A store that refuses everything is dull after a few steps.
        for _ in 0..3 {
            match self.below(3) {
                0 => self.lease(),
                1 => self.txn(),
                _ => self.kv(),
            }
        }
        let cleared = pb::AlarmRequest { action: 2, ..alarm };
        self.push(Step::call("Maintenance/Alarm", &cleared));
    }

    /// Nothing here changes the membership: a lone member could not undo it.
    fn cluster(&mut self) {
        match self.below(10) {
            0..5 => {
                let linearizable = self.chance(50);
                let list = pb::MemberListRequest { linearizable };
                self.push(Step::call("Cluster/MemberList", &list));
            }
            5 => {
                let remove = pb::MemberRemoveRequest {
                    id: self.pick(&[0, 7]),
                };
                self.push(Step::call("Cluster/MemberRemove", &remove));
            }
            6 => {
                let update = pb::MemberUpdateRequest {
                    id: self.pick(&[0, 7]),
                    peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()],
                };
                self.push(Step::call("Cluster/MemberUpdate", &update));
            }
            7 => {
                let id = self.member();
                let promote = pb::MemberPromoteRequest { id };
                self.push(Step::call("Cluster/MemberPromote", &promote));
            }
            _ => {
                let urls: &[&[&str]] = &[
                    &[],
                    &["http://127.0.0.1:2380"],
                    &["127.0.0.1:2380"],
                    &["http://127.0.0.1"],
                    &["http://127.0.0.1:2380/path"],
                    &["ftp://127.0.0.1:2380"],
                    &[""],
                ];
                let add = pb::MemberAddRequest {
                    peer_ur_ls: self.pick(urls).iter().map(ToString::to_string).collect(),
                    is_learner: self.chance(30),
                };
                self.push(Step::call("Cluster/MemberAdd", &add));
            }
        }
    }

    /// Looks at all keys, their hash, all leases and all alarms.
    pub(super) fn look(&mut self) -> Vec<Step> {
        let user = self.auth_root();
        let all = pb::RangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            ..pb::RangeRequest::default()
        };
        [
            Step::call("KV/Range", &all),
            Step::call("Maintenance/HashKV", &pb::HashKvRequest::default()),
            Step::call("Lease/LeaseLeases", &pb::LeaseLeasesRequest {}),
            Step::call("Maintenance/Alarm", &pb::AlarmRequest::default()),
        ]
        .map(|step| step.by(user))
        .into()
    }
}
