//! What API servers ask of the store, from a seed: objects that are created, updated
//! again and again by whoever looks after them, and deleted; events under leases.

use std::collections::VecDeque;

use bytes::Bytes;
use mvcc::{
    Command, Compare, CompareResult, CompareTarget, DeleteRangeRequest, LeaseGrantRequest, LeaseId,
    LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

/// A small object, of which so much is unlike any other: names, uids, times.
const VALUE_BYTES: usize = 300;
const UNLIKE_BYTES: usize = 120;

/// The part of an object that is like others.
const LIKE: &[u8] = b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"spec\":{\"containers\":[{\"name\":\
    \"web\",\"image\":\"registry.example/web:1.27\",\"ports\":[{\"containerPort\":8080}]}],\
    \"nodeName\":\"node-17\"},\"status\":{\"phase\":\"Running\"}}";

const NAMESPACES: u64 = 50;

/// After a key was created so many others change.
const CHANGES_PER_KEY: u64 = 2;

/// How often a change deletes.
const DELETED_OF_100: u32 = 12;

/// Fewer objects than that are not deleted any more.
const OBJECTS_MIN: usize = 100;

/// Half of all changes are to so many objects that were created last.
const RECENT: usize = 1_000;

/// One of so many keys is an event, and so many events share a lease, as the API
/// server has it. The oldest lease ends when there are more than this.
const EVENT_EVERY: u64 = 10;
const EVENTS_PER_LEASE: u64 = 100;
const LEASES_MAX: u64 = 8;
const LEASE_SECONDS: i64 = 3_600;

/// Makes the commands, knowing what the store then holds.
pub(crate) struct Workload {
    rng: StdRng,
    keys: u64,
    created: u64,
    /// Changes that are still to follow the key that was created last.
    changes: u64,
    /// The revision of the store once all commands so far are applied.
    revision: i64,
    objects: VecDeque<Object>,
    granted: u64,
    revoked: u64,
}

/// An object that is there.
struct Object {
    key: Bytes,
    modified: i64,
}

impl Workload {
    pub(crate) fn new(seed: u64, keys: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            keys,
            created: 0,
            changes: 0,
            revision: 1,
            objects: VecDeque::new(),
            granted: 0,
            revoked: 0,
        }
    }

    /// Returns the revision that the store must have now.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    fn create(&mut self) -> Option<Command> {
        if self.created == self.keys {
            return None;
        }
        let event = self.created % EVENT_EVERY == EVENT_EVERY - 1;
        let group = self.created / (EVENT_EVERY * EVENTS_PER_LEASE) + 1;
        if event && self.granted < group {
            self.granted = group;
            return Some(Command::LeaseGrant(LeaseGrantRequest {
                id: group as LeaseId,
                ttl: LEASE_SECONDS,
            }));
        }
        if self.granted - self.revoked > LEASES_MAX {
            self.revoked += 1;
            self.revision += 1;
            let id = self.revoked as LeaseId;
            return Some(Command::LeaseRevoke(LeaseRevokeRequest { id }));
        }
        self.revision += 1;
        self.changes = CHANGES_PER_KEY;
        let (n, namespace) = (self.created, self.created % NAMESPACES);
        self.created += 1;
        if event {
            let key = format!("/registry/events/ns-{namespace:02}/web-{n:08}.17f5").into();
            return Some(self.put(key, 0, group as LeaseId));
        }
        let key = Bytes::from(format!("/registry/pods/ns-{namespace:02}/web-{n:08}"));
        self.objects.push_back(Object {
            key: key.clone(),
            modified: self.revision,
        });
        Some(self.put(key, 0, 0))
    }

    fn change(&mut self) -> Command {
        self.changes -= 1;
        self.revision += 1;
        let all = self.objects.len();
        let from = match self.rng.random_bool(0.5) {
            true => all.saturating_sub(RECENT),
            false => 0,
        };
        let at = self.rng.random_range(from..all);
        // The oldest takes the place of one that goes: cheap, and the recent stay last.
        if all > OBJECTS_MIN
            && self.rng.random_ratio(DELETED_OF_100, 100)
            && let Some(gone) = self.objects.swap_remove_front(at)
        {
            return delete(gone);
        }
        let object = &mut self.objects[at];
        let (key, modified) = (object.key.clone(), object.modified);
        object.modified = self.revision;
        self.put(key, modified, 0)
    }

    fn put(&mut self, key: Bytes, modified: i64, lease: LeaseId) -> Command {
        let mut value = vec![0; VALUE_BYTES];
        let (unlike, like) = value.split_at_mut(UNLIKE_BYTES);
        self.rng.fill_bytes(unlike);
        like.copy_from_slice(&LIKE[..VALUE_BYTES - UNLIKE_BYTES]);
        let put = PutRequest {
            key: key.clone(),
            value: value.into(),
            lease,
            ..PutRequest::default()
        };
        guarded(key, modified, RequestOp::Put(put))
    }
}

impl Iterator for Workload {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        match self.changes {
            0 => self.create(),
            _ => Some(self.change()),
        }
    }
}

fn delete(object: Object) -> Command {
    let delete = DeleteRangeRequest {
        key: object.key.clone(),
        ..DeleteRangeRequest::default()
    };
    guarded(object.key, object.modified, RequestOp::DeleteRange(delete))
}

/// Makes the transaction that the API server makes of a write: only if the object is
/// as it was read, or is not there.
fn guarded(key: Bytes, modified: i64, then: RequestOp) -> Command {
    let found = RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    };
    Command::Txn(TxnRequest {
        compare: vec![Compare {
            key,
            range_end: Bytes::new(),
            result: CompareResult::Equal,
            target: CompareTarget::ModRevision(modified),
        }],
        success: vec![then],
        failure: vec![RequestOp::Range(found)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_asks_the_same() {
        let all = |seed| Workload::new(seed, 500).collect::<Vec<_>>();
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
    }

    #[test]
    fn everything_an_api_server_asks_is_there() {
        let (mut leases, mut deletes, mut creates, mut updates) = (0, 0, 0, 0);
        for command in Workload::new(1, 20_000) {
            match command {
                Command::LeaseGrant(_) | Command::LeaseRevoke(_) => leases += 1,
                Command::Txn(txn) => match (&txn.success[0], &txn.compare[0].target) {
                    (RequestOp::DeleteRange(_), _) => deletes += 1,
                    (_, CompareTarget::ModRevision(0)) => creates += 1,
                    _ => updates += 1,
                },
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(creates, 20_000);
        assert_eq!(deletes + updates, 40_000);
        assert!(deletes > 4_000 && leases > 20, "{deletes}, {leases}");
    }
}
