//! What clients ask for.

use super::{LEASE_SECONDS, World};
use crate::history::{
    Blob, Is, LeaseId, Put, Range, Request, Target, Txn, TxnOp, delete, get, prefix, put,
};

impl World<'_> {
    pub(super) fn key(&mut self) -> Blob {
        format!("k{}", self.random.below(self.shape.keys)).into()
    }

    fn value(&mut self) -> Blob {
        self.values += 1;
        format!("v{}", self.values).into()
    }

    fn put(&mut self) -> Put {
        Put {
            key: self.key(),
            value: self.value(),
            prev_kv: self.random.below(4) == 0,
            ..Put::default()
        }
    }

    fn get(&mut self) -> Range {
        Range {
            key: self.key(),
            ..Range::default()
        }
    }

    /// Swaps what is there now for something else: by the time it happens that may
    /// have changed.
    fn swap(&mut self) -> Request {
        let put = self.put();
        let now = self.store.live().get(&put.key);
        let target = match (now, self.random.below(2)) {
            (Some(kv), 0) => Target::Mod(kv.modified),
            (Some(kv), _) => Target::Value(kv.value.clone()),
            (None, _) => Target::Create(0),
        };
        let txn = Txn::default().when(&put.key.to_string(), Is::Equal, target);
        let read = Range {
            key: put.key.clone(),
            ..Range::default()
        };
        txn.then(put).or_else(read).into()
    }

    pub(super) fn request(&mut self) -> Request {
        if self.shape.registers {
            return match self.random.below(10) {
                0..=3 => self.get().into(),
                4..=6 => self.put().into(),
                7 => delete(&self.key().to_string()).into(),
                _ => self.swap(),
            };
        }
        match self.random.below(100) {
            0..=24 => self.get().into(),
            25..=29 => prefix("k").into(),
            30..=33 => self.get().stale().into(),
            34..=36 => {
                let back = self.random.below(10) as i64;
                let revision = (self.store.revision() - back + 1).max(1);
                prefix("k").at(revision).into()
            }
            37..=38 => Range {
                limit: 2,
                ..prefix("k")
            }
            .into(),
            39..=64 => self.put().into(),
            65..=69 => delete(&self.key().to_string()).into(),
            70..=79 => self.swap(),
            80..=87 => self.txn(2).into(),
            88..=93 => self.lease(),
            _ => {
                let back = self.random.below(30) as i64;
                Request::Compact {
                    revision: (self.store.revision() - back).max(1),
                }
            }
        }
    }

    fn lease(&mut self) -> Request {
        let known = match self.leases.len() as u64 {
            0 => None,
            many => {
                let at = self.random.below(many) as usize;
                self.leases.get(at).map(|(id, _)| *id)
            }
        };
        match (known, self.random.below(8)) {
            (None, _) | (_, 0) => {
                let id = LeaseId::try_from(self.ops.len()).unwrap_or_default() + 1;
                let ttl = LEASE_SECONDS.cast_signed();
                Request::Grant { id, ttl }
            }
            (Some(id), 1) => Request::Revoke { id },
            (Some(id), 2) => Request::KeepAlive { id },
            (Some(lease), _) => self.put().with(lease).into(),
        }
    }

    /// Makes a transaction that writes each key once at most, as etcd demands.
    fn txn(&mut self, depth: u32) -> Txn {
        let mut txn = Txn::default();
        let key = self.key().to_string();
        let target = match self.random.below(3) {
            0 => Target::Version(self.random.below(4) as i64),
            1 => Target::Lease(0),
            _ => Target::Mod(self.random.below(self.store.revision() as u64 + 1) as i64),
        };
        let is = match self.random.below(4) {
            0 => Is::Equal,
            1 => Is::NotEqual,
            2 => Is::Greater,
            _ => Is::Less,
        };
        txn = txn.when(&key, is, target);
        for success in [true, false] {
            let mut ops: Vec<TxnOp> = Vec::new();
            let first = self.random.below(self.shape.keys);
            for step in 0..self.random.below(3).min(self.shape.keys) {
                // One key after the other: none twice.
                let key = format!("k{}", (first + step) % self.shape.keys);
                let value = self.value().to_string();
                ops.push(match self.random.below(4) {
                    0 => delete(&key).into(),
                    1 => get(&key).into(),
                    _ => put(&key, &value).prev().into(),
                });
            }
            if ops.is_empty() && depth > 0 {
                ops.push(self.txn(depth - 1).into());
            }
            if success {
                txn.success = ops;
            } else {
                txn.failure = ops;
            }
        }
        txn
    }
}
