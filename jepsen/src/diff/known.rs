//! Every known difference from the peer, each with its reason and source.
//!
//! What is not in this list is a failure. The list is for behaviour that newer
//! versions of etcd changed on purpose; a mistake of ours does not belong here.

use bytes::Bytes;
use prost_reflect::{DynamicMessage, Value};

use super::{compare::Difference, program::Step};

/// One known difference.
pub(crate) struct Known {
    /// A short name, counted in the summary.
    pub(crate) name: &'static str,
    /// What differs and why, with the source that says so.
    pub(crate) reason: &'static str,
    /// Whether the two are in different states from here on, so that the program
    /// ends here.
    pub(crate) ends: bool,
    /// Says whether this is it.
    explains: fn(&Step, &Difference) -> bool,
}

/// What a transaction's branch is refused for when it is looked at.
const REFUSALS_ON_APPLY: [&str; 4] = [
    "\"etcdserver: requested lease not found\"",
    "\"etcdserver: key not found\"",
    "\"etcdserver: mvcc: required revision has been compacted\"",
    "\"etcdserver: mvcc: required revision is a future revision\"",
];

/// Returns why this refuses who asks, if it does; whichever package says it.
pub(crate) fn not_allowed(said: &str) -> Option<&'static str> {
    const REASONS: [&str; 3] = [
        "user name is empty",
        "invalid auth token",
        "permission denied",
    ];
    REASONS.into_iter().find(|reason| {
        ["etcdserver", "auth"]
            .iter()
            .any(|package| said.ends_with(&format!("\"{package}: {reason}\"")))
    })
}

/// Says whether something in a request asks for a range that ends before it begins.
fn has_backward_range(message: &DynamicMessage) -> bool {
    let bytes = |name: &str| match message.get_field_by_name(name).as_deref() {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        _ => Bytes::new(),
    };
    let (key, end) = (bytes("key"), bytes("range_end"));
    if !end.is_empty() && end.as_ref() != [0] && end <= key {
        return true;
    }
    fn inside(value: &Value) -> bool {
        match value {
            Value::Message(message) => has_backward_range(message),
            Value::List(values) => values.iter().any(inside),
            _ => false,
        }
    }
    message.fields().any(|(_, value)| inside(value))
}

/// What follows the code in the text of a gRPC error.
fn after_desc(said: &str) -> &str {
    said.split_once("desc = ").map_or(said, |(_, desc)| desc)
}

/// Makes one that is not seen in the difference alone; its finder says where it is.
const fn apart(name: &'static str, reason: &'static str, ends: bool) -> Known {
    Known {
        name,
        reason,
        ends,
        explains: |_, _| false,
    }
}

/// One that is found by looking again; see `ties`.
pub(crate) const TIES: Known = apart(
    "order of ties",
    "keys that sort alike come in no certain order: Go's sort.Sort is not stable \
             (etcdserver, Range); ours keeps the order of keys",
    false,
);

/// Another that is found by looking again; see `boundary`.
pub(crate) const BOUNDARY: Known = apart(
    "delete at the compacted revision",
    "since 3.5.16 the tombstone at the compacted revision is kept, so that a watch from \
             there tells the delete (mvcc/key_index.go; issue 19179); before, it was lost",
    false,
);

/// A third, found by looking whether a key is left.
pub(crate) const EMPTY_HASH: Known = apart(
    "hash of nothing",
    "where every key is deleted, etcd before 3.5.16 finds none to keep and hashes what was \
             compacted too, as far as it is still there (mvcc/hash.go, kvHasher; issue 19179)",
    false,
);

/// One that is found by asking the peer for its alarms; see `authority`.
pub(crate) const SHORT_OF_SPACE: Known = apart(
    "authority while space is short",
    "since 3.6 who may write is asked under a NOSPACE alarm too; before, the alarm put an \
             applier in the place of the one that asks (etcdserver/apply.go, Alarm)",
    true,
);

/// Those that are found by asking the peer something else; see `authority`.
pub(crate) const COMPACTS: Known = apart(
    "compaction by anybody",
    "since 3.4.42, 3.5.28 and 3.6.9 only an administrator compacts (v3rpc/key.go, \
             Compact; CVE-2026-33413); before, anyone did",
    true,
);
pub(crate) const GRANTS: Known = apart(
    "leases of nobody",
    "since 3.4.42, 3.5.28 and 3.6.9 one who is nobody grants and revokes no lease \
             (v3_server.go, requireAuthInfo; CVE-2026-33413); before, anyone did",
    true,
);
pub(crate) const LEASES: Known = apart(
    "leases of others",
    "since 3.4.42, 3.5.28 and 3.6.9 leases are listed to who may read their keys, and \
             kept alive by who may write them (v3_server.go, checkLeaseLeases and \
             checkLeaseRenew; CVE-2026-33413); before, to and by anyone",
    false,
);
pub(crate) const SESSIONS: Known = apart(
    "locks under leases of others",
    "who locks or campaigns keeps his lease alive first (concurrency/session.go, \
             NewSession), which since 3.4.42, 3.5.28 and 3.6.9 takes the right to write its \
             keys; before, anyone did",
    true,
);
pub(crate) const LEASE_KEYS: Known = apart(
    "keys of leases of others",
    "since 3.4.26 and 3.5.9 the keys of a lease are told to who may read them, and since \
             3.4.42, 3.5.28 and 3.6.9 nothing of it to who is nobody (v3_server.go, \
             LeaseTimeToLive); before, all of it to anyone",
    false,
);
pub(crate) const MEMBERS: Known = apart(
    "members for nobody",
    "since 3.4.42, 3.5.28 and 3.6.9 one who is nobody is not told the members \
             (server.go, MemberList; CVE-2026-33413); before, anyone was",
    false,
);
pub(crate) const MAINTENANCE: Known = apart(
    "maintenance by anybody",
    "since 3.5.28 and 3.6.0 only an administrator moves leadership and downgrades, and \
             one who is nobody is not told the status (v3rpc/maintenance.go, \
             authMaintenanceServer); before, anyone did and was",
    false,
);

pub(crate) const OPEN_WATCHES: Known = apart(
    "open watches by one key",
    "since the fix of GHSA-xg4h-6gfc-h4m8 (July 2026) a watch from a key on without end \
             takes the right to all of it (v3rpc/watch.go, isWatchPermitted); before, the right \
             to the key was enough",
    true,
);

pub(crate) const NESTED: Known = apart(
    "authority in nested transactions",
    "since 3.4.42, 3.5.28 and 3.6.9 nested transactions are checked like others \
             (apply/auth.go, CheckTxnAuth; CVE-2026-33343); before, whoever nested could do \
             anything",
    true,
);

/// All of them. Where two versions end up in different states, the random programs
/// mostly avoid the step instead: a negative start of a watch (refused since 3.6), an
/// unknown sort target or alarm action (both end the etcd that is asked).
pub(crate) const KNOWN: &[Known] = &[
    TIES,
    BOUNDARY,
    EMPTY_HASH,
    NESTED,
    SHORT_OF_SPACE,
    COMPACTS,
    GRANTS,
    LEASES,
    SESSIONS,
    LEASE_KEYS,
    MEMBERS,
    MAINTENANCE,
    OPEN_WATCHES,
    Known {
        name: "order of refusals",
        reason: "since 3.6 a transaction's branch is checked in the order of its operations, \
                 and since 3.7 a put's lease before its key (txn/txn.go, checkTxn; txn/put.go, \
                 checkPut); before, all puts came first and keys before leases",
        ends: false,
        explains: |step, difference| {
            let refusal = |said: &String| REFUSALS_ON_APPLY.iter().any(|one| said.contains(one));
            step.name() == "KV/Txn"
                && difference.path.is_empty()
                && refusal(&difference.ours)
                && refusal(&difference.peer)
        },
    },
    Known {
        name: "hash revision",
        reason: "HashKVResponse.hash_revision is new in 3.6 (rpc.proto, etcd_version 3.6)",
        ends: false,
        explains: |step, difference| {
            step.name() == "Maintenance/HashKV"
                && difference.path == "hash_revision"
                && difference.peer == "0"
        },
    },
    Known {
        name: "hash at the compacted revision",
        reason: "since 3.6 and late 3.5 HashKV takes the compacted revision itself, which can be read \
                 after all (mvcc/kvstore.go, hashByRev); before, it was refused",
        ends: false,
        explains: |step, difference| {
            let compacted = "etcdserver: mvcc: required revision has been compacted";
            step.name() == "Maintenance/HashKV"
                && difference.path.is_empty()
                && difference.peer.contains(compacted)
        },
    },
    Known {
        name: "id of a denied watch",
        reason: "since 3.5.6 a watch that is refused has the id -1, whatever was asked for \
                 (v3rpc/watch.go, recvLoop)",
        ends: false,
        explains: |_, difference| {
            difference.path.contains("refused[")
                && difference.path.ends_with("watch_id")
                && difference.ours == "-1"
        },
    },
    Known {
        name: "reason of a denied watch",
        reason: "since 3.5.6 a watch is told why it is refused (v3rpc/watch.go, recvLoop; pull \
                 14322); before, always that permission is denied",
        ends: false,
        explains: |_, difference| {
            difference.path.contains("refused[")
                && difference.path.ends_with("cancel_reason")
                && not_allowed(&format!("\"{}", after_desc(&difference.ours))).is_some()
                && difference
                    .peer
                    .contains("desc = etcdserver: permission denied")
        },
    },
    Known {
        name: "permissions of root",
        reason: "since 3.6 the role root is shown with what it permits, which is everything \
                 (auth/store.go, RoleGet); before, with what was granted to it, which counts for \
                 nothing",
        ends: false,
        explains: |step, difference| {
            step.name() == "Auth/RoleGet"
                && difference.path.starts_with("perm")
                && step.request.to_string().contains("role:\"root\"")
        },
    },
    Known {
        name: "status of authentication",
        reason: "since 3.7 anyone may ask whether authentication is on (apply/auth.go, \
                 needAdminPermission; PR 20802); before, only an administrator",
        ends: false,
        explains: |step, difference| {
            step.name() == "Auth/AuthStatus"
                && difference.path.is_empty()
                && difference.ours.contains("enabled:")
                && matches!(
                    not_allowed(&difference.peer),
                    Some("user name is empty" | "permission denied")
                )
        },
    },
    Known {
        name: "authority over a range that ends before it begins",
        reason: "whether etcd finds the permission that holds the key depends on the order in \
                 which permissions came into its tree, for the search looks at the end too \
                 (pkg/adt/interval_tree.go, visit); ours takes the permission for the key",
        ends: true,
        explains: |step, difference| {
            let denied = |said: &str| not_allowed(said) == Some("permission denied");
            // A watch is refused for the range itself by whoever lets it so far.
            let watch = difference.path.ends_with("cancel_reason")
                && difference.ours.contains("mvcc: watcher range is empty")
                && difference.peer.contains("etcdserver: permission denied");
            let answer = difference.path.is_empty()
                && denied(&difference.peer)
                && !denied(&difference.ours)
                && has_backward_range(&step.request);
            watch || answer
        },
    },
    Known {
        name: "header of alarms",
        reason: "since 3.5 the answer to an alarm request has a header (v3rpc/maintenance.go, \
                 Alarm); before, it had none",
        ends: false,
        explains: |step, difference| {
            step.name() == "Maintenance/Alarm"
                && difference.path == "header"
                && difference.peer == "nothing"
        },
    },
    Known {
        name: "unconverted refusal",
        reason: "since 3.6 the refusals of Maintenance are converted like all others \
                 (v3rpc/maintenance.go); before, they had no code",
        ends: false,
        explains: |step, difference| {
            step.name().starts_with("Maintenance/")
                && difference.path.is_empty()
                && difference.peer.starts_with("Unknown (2) \"auth: ")
                && difference
                    .ours
                    .ends_with(&difference.peer["Unknown (2) \"auth: ".len()..])
        },
    },
    Known {
        name: "space for nested puts",
        reason: "since 3.7 the puts of nested transactions count when space is short \
                 (storage/quota.go, costTxnReq); before, only those of the outermost",
        ends: true,
        explains: |step, difference| {
            step.name() == "KV/Txn"
                && difference.path.is_empty()
                && difference
                    .ours
                    .contains("etcdserver: mvcc: database space exceeded")
                && step.request.to_string().contains("request_txn")
        },
    },
    Known {
        name: "put of what is deleted",
        reason: "a transaction is checked against the keys as they are before it (etcdserver/apply.go, \
                 checkRequests); one that deletes a key and then puts it with ignore_lease or \
                 ignore_value passes, and ends an etcd 3.5 with a panic",
        ends: true,
        explains: |step, difference| {
            let request = step.request.to_string();
            let risky = request.contains("request_delete_range")
                && (request.contains("ignore_lease:true") || request.contains("ignore_value:true"));
            let ended = match difference.path.as_str() {
                "process" => difference.peer.contains("etcdserver/apply.go"),
                "" => difference.peer.ends_with("\"transport error\""),
                _ => false,
            };
            step.name() == "KV/Txn" && risky && ended
        },
    },
    Known {
        name: "unknown sort order",
        reason: "since 3.6 a sort order without a name is refused (v3rpc/key.go, \
                 checkRangeRequest); before, it meant no order",
        ends: true,
        explains: |step, difference| {
            matches!(
                step.name().as_str(),
                "KV/Range" | "KV/Txn" | "KV/RangeStream"
            ) && difference.path.is_empty()
                && difference.ours.contains("etcdserver: invalid sort option")
                && step.request.to_string().contains("sort_order:7")
        },
    },
];

/// Finds what explains a difference.
pub(crate) fn explain(step: &Step, difference: &Difference) -> Option<&'static Known> {
    KNOWN
        .iter()
        .find(|known| (known.explains)(step, difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_difference_says_why() {
        for known in KNOWN {
            assert!(known.reason.len() > 40, "{}", known.name);
        }
    }
}
