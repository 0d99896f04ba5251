//! Who may ask for what: refusals of ours where an older etcd answers.
//!
//! etcd came to ask who calls in more places with time. Such a refusal is explained
//! only if [`RULES`] has its call, and the peer refuses the same user for the same
//! reason something that takes the same right and always did. So a right that a user
//! has and we deny, or a reason that is not etcd's, is found.

use bytes::Bytes;
use prost_reflect::DynamicMessage;
use proto::{etcdserverpb as pb, v3electionpb::CampaignRequest, v3lockpb::LockRequest};

use super::{
    answer::Refusal,
    compare::Difference,
    exec::{EXPIRING_KEY, ROOT},
    known::{self, Known, not_allowed},
    program::Step,
    side::Side,
    wire,
};

/// What a call takes by the rules of the etcd that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// To be somebody.
    Account,
    /// To be an administrator.
    Administer,
    /// To read every key of the lease, if keys are asked for.
    ReadLease,
    /// To read every key of every lease.
    ReadLeases,
    /// To write every key of the lease.
    WriteLease,
    /// To do alone what nested transactions do.
    Nested,
}

/// The calls that take a right they once did not take (etcd: v3rpc/maintenance.go,
/// authMaintenanceServer; v3rpc/key.go, Compact; v3_server.go, requireAuthInfo and
/// checkLease*; server.go, MemberList).
const RULES: &[(&str, Right, &Known)] = &[
    ("KV/Txn", Right::Nested, &known::NESTED),
    ("KV/Compact", Right::Administer, &known::COMPACTS),
    ("Lease/LeaseGrant", Right::Account, &known::GRANTS),
    ("Lease/LeaseRevoke", Right::Account, &known::GRANTS),
    ("Brief", Right::Account, &known::GRANTS),
    ("Expire", Right::ReadLease, &known::GRANTS),
    ("Lease/LeaseKeepAlive", Right::WriteLease, &known::LEASES),
    ("Lock/Lock", Right::WriteLease, &known::SESSIONS),
    ("Election/Campaign", Right::WriteLease, &known::SESSIONS),
    (
        "Lease/LeaseTimeToLive",
        Right::ReadLease,
        &known::LEASE_KEYS,
    ),
    ("Lease/LeaseLeases", Right::ReadLeases, &known::LEASES),
    ("Cluster/MemberList", Right::Account, &known::MEMBERS),
    ("Maintenance/Status", Right::Account, &known::MAINTENANCE),
    (
        "Maintenance/MoveLeader",
        Right::Administer,
        &known::MAINTENANCE,
    ),
    (
        "Maintenance/Downgrade",
        Right::Administer,
        &known::MAINTENANCE,
    ),
];

/// Explains a refusal of ours, if it is one the peer only does not know yet.
/// `request` is what the peer was sent.
pub(crate) async fn explain(
    peer: &Side,
    step: &Step,
    request: &DynamicMessage,
    difference: &Difference,
) -> Option<&'static Known> {
    let refused = not_allowed(&difference.ours)?;
    if not_allowed(&difference.peer).is_some() {
        return None;
    }
    let name = step.name();
    let (_, right, known) = RULES.iter().find(|(call, ..)| *call == name)?;
    let probe = Probe {
        peer,
        user: &step.user,
    };
    let refusal = match right {
        Right::Administer => probe.administer().await,
        // Whoever is nobody reads and writes nothing either.
        _ if refused != DENIED => probe.read(b"?").await,
        Right::Account => None,
        Right::ReadLease if name == "Expire" => probe.read_all(&expiring()).await,
        Right::ReadLease => {
            let ask: pb::LeaseTimeToLiveRequest = wire::typed(request);
            match ask.keys {
                true => probe.read_all(&probe.keys(ask.id).await).await,
                false => None,
            }
        }
        Right::ReadLeases => probe.read_all(&probe.all_keys().await).await,
        Right::WriteLease => {
            let lease = match &*name {
                "Lock/Lock" => wire::typed::<LockRequest>(request).lease,
                "Election/Campaign" => wire::typed::<CampaignRequest>(request).lease,
                _ => wire::typed::<pb::LeaseKeepAliveRequest>(request).id,
            };
            probe.write_all(&probe.keys(lease).await).await
        }
        Right::Nested => probe.each(&wire::typed(request)).await,
    };
    let refusal = not_allowed(&refusal?.to_string())?;
    (refusal == refused).then_some(*known)
}

/// Says whether a refusal of ours comes from a write that the peer, short of space, takes
/// from anybody.
pub(crate) async fn is_forgotten(peer: &Side, step: &Step, difference: &Difference) -> bool {
    let name = step.name();
    let changes = matches!(&*name, "KV/DeleteRange" | "KV/Txn" | "Lease/LeaseRevoke");
    let only_ours = not_allowed(&difference.ours) == Some(DENIED)
        && not_allowed(&difference.peer).is_none()
        && difference.path.is_empty();
    if !(changes || name.starts_with("Auth/")) || !only_ours {
        return false;
    }
    let alarms = pb::AlarmRequest::default();
    let told = peer.ask::<_, pb::AlarmResponse>("Maintenance/Alarm", &alarms, ROOT);
    told.await.is_ok_and(|told| {
        let no_space = i32::from(pb::AlarmType::Nospace);
        told.alarms.iter().any(|member| member.alarm == no_space)
    })
}

/// Says whether only the peer has created a watch, and it is one from a key on without
/// end: that ours refuses it is another part of the answer.
pub(crate) fn is_open_watch(peer: &Side, difference: &Difference) -> bool {
    // As in `stream 1 watch 2[0]: `.
    let mut words = difference.path.split(|c: char| !c.is_ascii_alphanumeric());
    let (Some("stream"), Some(stream), Some("watch"), Some(watch)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    let (Ok(stream), Ok(watch)) = (stream.parse(), watch.parse()) else {
        return false;
    };
    let stream = peer.streams.get(&stream);
    difference.ours == "nothing" && stream.is_some_and(|stream| stream.is_open_ended(watch))
}

fn operations(txn: &pb::TxnRequest) -> impl Iterator<Item = &pb::RequestOp> {
    txn.success.iter().chain(&txn.failure)
}

fn nested_in(op: &pb::RequestOp) -> Option<&pb::TxnRequest> {
    match &op.request {
        Some(pb::request_op::Request::RequestTxn(txn)) => Some(txn),
        _ => None,
    }
}

/// Returns the transactions right inside one.
fn inside(txn: &pb::TxnRequest) -> Vec<&pb::TxnRequest> {
    operations(txn).filter_map(nested_in).collect()
}

const DENIED: &str = "permission denied";

/// The keys of the lease of [`super::program::Verb::Expire`], which are gone by now.
fn expiring() -> Vec<Bytes> {
    [b"a".as_slice(), EXPIRING_KEY]
        .map(Bytes::from_static)
        .into()
}

/// Asks the peer for things that are asked as they always were.
struct Probe<'a> {
    peer: &'a Side,
    user: &'a str,
}

impl Probe<'_> {
    /// Does what only an administrator may.
    async fn administer(&self) -> Option<Refusal> {
        let hash = pb::HashKvRequest::default();
        let asked = self
            .peer
            .ask::<_, pb::HashKvResponse>("Maintenance/HashKV", &hash, self.user);
        asked.await.err()
    }

    async fn read(&self, key: &[u8]) -> Option<Refusal> {
        let range = pb::RangeRequest {
            key: Bytes::copy_from_slice(key),
            ..pb::RangeRequest::default()
        };
        let asked = self
            .peer
            .ask::<_, pb::RangeResponse>("KV/Range", &range, self.user);
        asked.await.err()
    }

    /// Would write a key: the branch that is not taken is checked too.
    async fn write(&self, key: &[u8]) -> Option<Refusal> {
        let put = pb::PutRequest {
            key: Bytes::copy_from_slice(key),
            ..pb::PutRequest::default()
        };
        let request = Some(pb::request_op::Request::RequestPut(put));
        let txn = pb::TxnRequest {
            failure: vec![pb::RequestOp { request }],
            ..pb::TxnRequest::default()
        };
        let asked = self
            .peer
            .ask::<_, pb::TxnResponse>("KV/Txn", &txn, self.user);
        asked.await.err()
    }

    /// Does what nested transactions do, outside of any, until something is refused:
    /// in the branch that is not taken.
    async fn each(&self, txn: &pb::TxnRequest) -> Option<Refusal> {
        let mut nested = inside(txn);
        while let Some(txn) = nested.pop() {
            nested.extend(inside(txn));
            let compares = txn.compare.iter().map(|compare| pb::TxnRequest {
                compare: vec![compare.clone()],
                ..pb::TxnRequest::default()
            });
            let ops = operations(txn).filter(|op| nested_in(op).is_none());
            let ops = ops.map(|op| pb::TxnRequest {
                failure: vec![op.clone()],
                ..pb::TxnRequest::default()
            });
            for alone in compares.chain(ops) {
                let asked = self
                    .peer
                    .ask::<_, pb::TxnResponse>("KV/Txn", &alone, self.user);
                if let Err(refusal) = asked.await
                    && not_allowed(&refusal.to_string()).is_some()
                {
                    return Some(refusal);
                }
            }
        }
        None
    }

    /// Reads keys until one is refused.
    async fn read_all(&self, keys: &[Bytes]) -> Option<Refusal> {
        for key in keys {
            if let Some(refusal) = self.read(key).await {
                return Some(refusal);
            }
        }
        None
    }

    async fn write_all(&self, keys: &[Bytes]) -> Option<Refusal> {
        for key in keys {
            if let Some(refusal) = self.write(key).await {
                return Some(refusal);
            }
        }
        None
    }

    /// Returns the keys of a lease.
    async fn keys(&self, id: i64) -> Vec<Bytes> {
        let ask = pb::LeaseTimeToLiveRequest { id, keys: true };
        let told = self.peer.ask("Lease/LeaseTimeToLive", &ask, ROOT).await;
        told.map_or_else(
            |_| Vec::new(),
            |told: pb::LeaseTimeToLiveResponse| told.keys,
        )
    }

    async fn all_keys(&self) -> Vec<Bytes> {
        let ask = pb::LeaseLeasesRequest {};
        let told = self.peer.ask("Lease/LeaseLeases", &ask, ROOT).await;
        let mut keys = Vec::new();
        for lease in told.map_or_else(|_| Vec::new(), |told: pb::LeaseLeasesResponse| told.leases) {
            keys.extend(self.keys(lease.id).await);
        }
        keys
    }
}
