//! Comparing the members' data, so that one that went wrong is found and named.
//!
//! Whoever leads asks every member for the hash of its keys at one revision and
//! raises the alarm CORRUPT for one that differs; a member that starts may compare
//! itself first (etcd: server/etcdserver/corrupt.go). What a member has not compacted
//! as far as the others hashes differently without being wrong, so only equal
//! compactions are compared.

use std::time::Duration;

use mvcc::{Alarm, AlarmKind, KvHash};

use crate::{handle::Handle, rpc_error::RpcError};

/// Compares from time to time, as long as this member runs.
pub(crate) async fn watch(handle: Handle) {
    let checks = handle.shared.config.corruption_checks;
    let every = async |interval: Option<Duration>, at_compaction: bool| {
        let Some(interval) = interval else { return };
        loop {
            tokio::time::sleep(interval).await;
            if let Err(error) = compare_all(&handle, at_compaction).await {
                tracing::warn!(%error, "the members' data could not be compared");
            }
        }
    };
    tokio::join!(every(checks.interval, false), every(checks.compacted, true));
}

/// Compares all members with this one, if it leads.
async fn compare_all(handle: &Handle, at_compaction: bool) -> Result<(), RpcError> {
    let leads = handle.shared.with(|core| core.leads())?;
    if !leads {
        return Ok(());
    }
    let revision = match at_compaction {
        false => 0,
        true => handle
            .shared
            .with(|core| core.machine.compact_revision())?
            .max(0),
    };
    if at_compaction && revision == 0 {
        return Ok(());
    }
    handle.catch_up().await?;
    let own = handle.hash_kv(revision).await?;
    for (peer, theirs) in ask_all(handle, own.hash_revision).await {
        if differs(&own, &theirs) {
            tracing::error!(
                member = %format!("{peer:x}"),
                revision = own.hash_revision,
                ours = own.hash,
                theirs = theirs.hash,
                "found hash mismatch: the member's data is corrupt"
            );
            let alarm = Alarm {
                member: peer,
                kind: AlarmKind::Corrupt,
            };
            handle.set_alarm(alarm, true).await?;
        }
    }
    Ok(())
}

/// Compares this member with the others before it serves; says which one differs.
/// Members that cannot be asked have no say.
pub(crate) async fn differing_peer(handle: &Handle) -> Result<Option<u64>, RpcError> {
    let own = handle.hash_kv(0).await?;
    let answers = ask_all(handle, own.hash_revision).await;
    let mut differing = answers
        .into_iter()
        .filter(|(_, theirs)| differs(&own, theirs));
    Ok(differing.next().map(|(peer, _)| peer))
}

fn differs(own: &KvHash, theirs: &KvHash) -> bool {
    own.hash_revision == theirs.hash_revision
        && own.compact_revision == theirs.compact_revision
        && own.hash != theirs.hash
}

/// Asks every other member for its hash at a revision.
async fn ask_all(handle: &Handle, revision: i64) -> Vec<(u64, KvHash)> {
    let Some(peers) = handle.shared.peers.get() else {
        return Vec::new();
    };
    let mut answers = Vec::new();
    for member in handle.members() {
        if member.id == handle.shared.ids.member {
            continue;
        }
        match peers.hash_kv(member.id, revision).await {
            Ok(reply) => answers.push((
                member.id,
                KvHash {
                    hash: reply.hash,
                    compact_revision: reply.compact_revision,
                    hash_revision: reply.hash_revision,
                },
            )),
            Err(status) => tracing::debug!(
                member = %format!("{:x}", member.id),
                why = status.message(),
                "a member does not tell its hash"
            ),
        }
    }
    answers
}
