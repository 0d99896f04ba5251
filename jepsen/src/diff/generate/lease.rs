//! Leases: granted with and without ids, kept, asked about, revoked, expired.

use proto::etcdserverpb as pb;

use super::Generator;
use crate::diff::{
    program::{Step, Verb},
    symbol::{LEASE, NO_LEASE},
};

/// Ids that programs give. Few, so that they are taken, revoked and taken again.
const IDS: &[i64] = &[11, 12, 13, 14];

/// An id only for leases that are left to expire.
const EXPIRING: &[i64] = &[21, 22];

impl Generator {
    /// A lease that may exist.
    pub(super) fn lease_id(&mut self) -> i64 {
        match self.below(20) {
            0..14 => self.pick(IDS),
            14..18 if self.leases_unnamed => LEASE + self.below(self.leases_asked.max(1)),
            14..19 => NO_LEASE,
            _ => self.pick(&[-1, 1, i64::MAX, 21]),
        }
    }

    pub(super) fn lease(&mut self) {
        match self.below(100) {
            0..40 => self.grant(),
            40..52 => {
                let id = self.lease_id();
                self.push(Step::call(
                    "Lease/LeaseRevoke",
                    &pb::LeaseRevokeRequest { id },
                ));
            }
            52..72 => {
                let ask = pb::LeaseTimeToLiveRequest {
                    id: self.lease_id(),
                    keys: self.chance(70),
                };
                self.push(Step::call("Lease/LeaseTimeToLive", &ask));
            }
            72..84 => {
                let id = self.lease_id();
                let keep = pb::LeaseKeepAliveRequest { id };
                self.push(Step::call("Lease/LeaseKeepAlive", &keep));
            }
            84..90 => self.push(Step::call("Lease/LeaseLeases", &pb::LeaseLeasesRequest {})),
            90..98 => self.brief(),
            _ => self.expire(),
        }
    }

    /// A lease that lasts longer than any program.
    fn grant(&mut self) {
        let grant = pb::LeaseGrantRequest {
            ttl: match self.below(20) {
                0 => 9_000_000_000,
                1 => 9_000_000_001,
                2 => i64::MAX,
                _ => 500 + self.below(500),
            },
            id: match self.below(10) {
                0..8 => self.pick(IDS),
                8 if self.leases_unnamed => 0,
                _ => self.pick(&[-1, 1, 15, i64::MAX]),
            },
        };
        if grant.id == 0 && grant.ttl <= 9_000_000_000 {
            self.leases_asked += 1;
        }
        self.push(Step::call("Lease/LeaseGrant", &grant));
    }

    /// A time to live that is raised to the least there is.
    fn brief(&mut self) {
        let grant = pb::LeaseGrantRequest {
            ttl: self.pick(&[0, 1, -1, i64::MIN, 3]),
            id: match self.chance(70) {
                true => self.pick(IDS),
                false => 0,
            },
        };
        self.push(Step::lease(Verb::Brief, grant));
    }

    /// It takes seconds, so it is rare.
    fn expire(&mut self) {
        let grant = pb::LeaseGrantRequest {
            ttl: self.pick(&[0, 1, 2]),
            id: self.pick(EXPIRING),
        };
        if self.chance(30) {
            self.push(Step::lease(Verb::Expire, grant));
        }
    }
}
