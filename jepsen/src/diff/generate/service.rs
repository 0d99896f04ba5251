//! Locks and elections on the server. Whoever would wait for another does not ask:
//! the runner leaves such a step out.

use bytes::Bytes;
use proto::{v3electionpb, v3lockpb};

use super::Generator;
use crate::diff::program::Step;

impl Generator {
    pub(super) fn service(&mut self) {
        let name = Bytes::from_static(self.pick(&[b"l1", b"l2"]));
        let lease = self.pick(&[11, 12, 13, 14, 9_999]);
        match self.below(100) {
            0..25 => {
                let lock = v3lockpb::LockRequest { name, lease };
                self.push(Step::call("Lock/Lock", &lock));
            }
            25..40 => {
                let key = match self.chance(90) {
                    true => format!("{}/{lease:x}", String::from_utf8_lossy(&name)).into(),
                    false => self.key(),
                };
                let unlock = v3lockpb::UnlockRequest { key };
                self.push(Step::call("Lock/Unlock", &unlock));
            }
            _ => self.election(lease),
        }
    }

    fn election(&mut self, lease: i64) {
        let name = Bytes::from_static(self.pick(&[b"e1", b"e2"]));
        let leader = Some(v3electionpb::LeaderKey {
            name: name.clone(),
            // Without one the server would grant a lease of its own, with a random id.
            lease,
            ..v3electionpb::LeaderKey::default()
        });
        let value = self.value();
        match self.below(100) {
            0..30 => {
                let campaign = v3electionpb::CampaignRequest { name, lease, value };
                self.push(Step::call("Election/Campaign", &campaign));
            }
            30..50 => {
                let leader = match self.chance(95) {
                    true => leader,
                    false => None,
                };
                let proclaim = v3electionpb::ProclaimRequest { leader, value };
                self.push(Step::call("Election/Proclaim", &proclaim));
            }
            50..70 => {
                let ask = v3electionpb::LeaderRequest { name };
                self.push(Step::call("Election/Leader", &ask));
            }
            70..80 => {
                let ask = v3electionpb::LeaderRequest { name };
                self.push(Step::call("Election/Observe", &ask));
            }
            _ => {
                let leader = match self.chance(95) {
                    true => leader,
                    false => None,
                };
                let resign = v3electionpb::ResignRequest { leader };
                self.push(Step::call("Election/Resign", &resign));
            }
        }
    }
}
