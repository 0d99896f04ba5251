//! Transactions: nested, with every kind of comparison, and the ones etcd refuses.

use bytes::Bytes;
use proto::etcdserverpb::{self as pb, compare::TargetUnion, request_op::Request};

use super::Generator;
use crate::diff::{process::TXN_OPS_MAX, program::Step, symbol::HEAD};

/// How deep transactions are put into each other.
const DEPTH_MAX: u32 = 3;

impl Generator {
    pub(super) fn txn(&mut self) {
        let txn = match self.below(100) {
            0..4 => self.too_many(),
            4..6 => self.crowded(),
            6..16 => self.compare_and_swap(),
            _ => {
                // Mostly no key twice, or nearly every one would be refused.
                let mut free = match self.chance(85) {
                    true => Some(shuffled(self)),
                    false => None,
                };
                self.txn_request(0, &mut free)
            }
        };
        self.push(Step::call("KV/Txn", &txn));
    }

    fn txn_request(&mut self, depth: u32, free: &mut Option<Vec<Bytes>>) -> pb::TxnRequest {
        let compares = self.pick(&[0, 1, 1, 1, 2, 3]);
        let (yes, no) = (self.pick(&[0, 1, 1, 2, 3, 4]), self.pick(&[0, 0, 1, 2, 3]));
        pb::TxnRequest {
            compare: (0..compares).map(|_| self.comparison()).collect(),
            success: (0..yes).map(|_| self.op(depth, free)).collect(),
            failure: (0..no).map(|_| self.op(depth, free)).collect(),
        }
    }

    fn op(&mut self, depth: u32, free: &mut Option<Vec<Bytes>>) -> pb::RequestOp {
        let request = match self.below(100) {
            0..30 => {
                let mut range = self.range_request();
                // A revision fails the whole transaction too easily.
                if self.chance(60) {
                    range.revision = 0;
                }
                Request::RequestRange(range)
            }
            30..65 => {
                let mut put = self.put_request();
                match free.as_mut().map(Vec::pop) {
                    None => {}
                    Some(Some(key)) => put.key = key,
                    Some(None) => return self.op(depth, &mut None),
                }
                Request::RequestPut(put)
            }
            65..80 => {
                let mut delete = self.delete_request();
                match free.as_mut().map(Vec::pop) {
                    None => {}
                    Some(Some(key)) if self.chance(80) => {
                        (delete.key, delete.range_end) = (key, Bytes::new());
                    }
                    Some(_) => {}
                }
                Request::RequestDeleteRange(delete)
            }
            80..98 if depth < DEPTH_MAX => Request::RequestTxn(self.txn_request(depth + 1, free)),
            80..99 => Request::RequestRange(self.range_request()),
            _ => return pb::RequestOp { request: None },
        };
        pb::RequestOp {
            request: Some(request),
        }
    }

    pub(super) fn comparison(&mut self) -> pb::Compare {
        let target = self.pick(&[0, 1, 2, 3, 4]);
        let result = self.pick(&[0, 0, 1, 2, 3]);
        let mut value = match target {
            0 => TargetUnion::Version(self.pick(&[0, 1, 1, 2, 3])),
            1 => TargetUnion::CreateRevision(self.near()),
            2 => TargetUnion::ModRevision(self.near()),
            3 => TargetUnion::Value(self.value()),
            _ => TargetUnion::Lease(match self.chance(50) {
                true => 0,
                false => self.lease_id(),
            }),
        };
        // What is given need not be what is asked for.
        if self.chance(3) {
            value = TargetUnion::Version(1);
        }
        let (key, range_end) = match self.chance(70) {
            true => (self.key(), Bytes::new()),
            false => self.range(),
        };
        let odd = self.below(100);
        pb::Compare {
            result: if odd == 0 { 9 } else { result },
            target: if odd == 1 { 9 } else { target },
            key,
            target_union: (odd != 2).then_some(value),
            range_end,
        }
    }

    /// What Kubernetes does: one comparison of the revision, one change, one look.
    fn compare_and_swap(&mut self) -> pb::TxnRequest {
        let key = self.key();
        let revision = if self.chance(30) {
            0
        } else {
            HEAD - self.below(5)
        };
        let compare = pb::Compare {
            target: pb::compare::CompareTarget::Mod.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::ModRevision(revision)),
            ..pb::Compare::default()
        };
        let change = match self.chance(70) {
            true => Request::RequestPut(pb::PutRequest {
                key: key.clone(),
                value: self.value(),
                ..pb::PutRequest::default()
            }),
            false => Request::RequestDeleteRange(pb::DeleteRangeRequest {
                key: key.clone(),
                ..pb::DeleteRangeRequest::default()
            }),
        };
        let look = Request::RequestRange(pb::RangeRequest {
            key,
            ..pb::RangeRequest::default()
        });
        let ops = |request| {
            vec![pb::RequestOp {
                request: Some(request),
            }]
        };
        pb::TxnRequest {
            compare: vec![compare],
            success: ops(change),
            failure: ops(look),
        }
    }

    /// One operation more than are allowed, in any of the places they are counted.
    fn too_many(&mut self) -> pb::TxnRequest {
        let count = TXN_OPS_MAX + self.rng_usize(2);
        let look = |key: Bytes| pb::RequestOp {
            request: Some(Request::RequestRange(pb::RangeRequest {
                key,
                ..pb::RangeRequest::default()
            })),
        };
        let mut txn = pb::TxnRequest::default();
        match self.below(4) {
            0 => txn.compare = (0..count).map(|_| self.comparison()).collect(),
            1 => txn.success = (0..count).map(|_| look(self.key())).collect(),
            2 => txn.failure = (0..count).map(|_| look(self.key())).collect(),
            _ => {
                // Inner ones count together with the ones around them.
                let inner = pb::TxnRequest {
                    success: (0..count - 4).map(|_| look(self.key())).collect(),
                    ..pb::TxnRequest::default()
                };
                txn.success = (0..4).map(|_| look(self.key())).collect();
                txn.success.push(pb::RequestOp {
                    request: Some(Request::RequestTxn(inner)),
                });
            }
        }
        txn
    }

    /// As many puts as are allowed, whatever their keys.
    fn crowded(&mut self) -> pb::TxnRequest {
        let put = |n: usize| pb::RequestOp {
            request: Some(Request::RequestPut(pb::PutRequest {
                key: format!("n/{n}").into(),
                value: "v".into(),
                ..pb::PutRequest::default()
            })),
        };
        pb::TxnRequest {
            success: (0..TXN_OPS_MAX).map(put).collect(),
            ..pb::TxnRequest::default()
        }
    }

    fn rng_usize(&mut self, end: usize) -> usize {
        rand::Rng::random_range(&mut self.rng, 0..end)
    }
}

/// Each key once, in some order.
fn shuffled(generator: &mut Generator) -> Vec<Bytes> {
    const KEYS: &[&[u8]] = &[b"a", b"b", b"c", b"aa", b"ab", b"d", b"e/1", b"e/2", b"b\0"];
    let mut keys: Vec<Bytes> = KEYS.iter().map(|key| Bytes::from_static(key)).collect();
    for at in (1..keys.len()).rev() {
        let other = generator.rng_usize(at + 1);
        keys.swap(at, other);
    }
    keys
}
