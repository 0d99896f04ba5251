//! Comparing the members' data, so that one that went wrong is found and named.
//!
//! Whoever leads asks every member for the hash of its keys at one revision and
//! raises the alarm CORRUPT for those that differ; a member that starts may compare
//! itself first (etcd: server/etcdserver/corrupt.go). Right is what most members say,
//! whoever leads; where that is nobody, whoever asks believes itself, as in etcd. What
//! a member has not compacted as far as the others hashes differently without being
//! wrong, so only equal compactions are compared.

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
    let mut hashes = vec![(handle.shared.ids.member, own)];
    hashes.extend(ask_all(handle, own.hash_revision).await);
    for member in odd_ones(&hashes) {
        tracing::error!(
            member = %format!("{member:x}"),
            revision = own.hash_revision,
            hashes = ?hashes.iter().map(|(id, it)| (format!("{id:x}"), it.hash)).collect::<Vec<_>>(),
            "found hash mismatch: the member's data is corrupt"
        );
        let alarm = Alarm {
            member,
            kind: AlarmKind::Corrupt,
        };
        handle.set_alarm(alarm, true).await?;
    }
    Ok(())
}

/// Names the members that differ from what most say, or from the first if there is
/// no such majority.
fn odd_ones(hashes: &[(u64, KvHash)]) -> Vec<u64> {
    let Some((_, first)) = hashes.first() else {
        return Vec::new();
    };
    let hashes: Vec<_> = hashes
        .iter()
        .filter(|(_, it)| comparable(first, it))
        .collect();
    let say = |hash: u32| hashes.iter().filter(|(_, it)| it.hash == hash).count();
    let most = hashes.iter().map(|(_, it)| it.hash);
    let right = most
        .max_by_key(|hash| (say(*hash), *hash == first.hash))
        .filter(|hash| say(*hash) * 2 > hashes.len())
        .unwrap_or(first.hash);
    let odd = hashes.iter().filter(|(_, it)| it.hash != right);
    odd.map(|(id, _)| *id).collect()
}

/// Says whether two hashes are of the same stretch of history.
fn comparable(one: &KvHash, other: &KvHash) -> bool {
    one.hash_revision == other.hash_revision && one.compact_revision == other.compact_revision
}

/// Compares this member with the others before it serves; names one that says
/// otherwise, unless most say what this one does. Members that cannot be asked have no
/// say.
pub(crate) async fn differing_peer(handle: &Handle) -> Result<Option<u64>, RpcError> {
    let own = handle.hash_kv(0).await?;
    let answers = ask_all(handle, own.hash_revision).await;
    let (differing, alike): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .filter(|(_, theirs)| comparable(&own, theirs))
        .partition(|(_, theirs)| theirs.hash != own.hash);
    let Some((peer, _)) = differing.first() else {
        return Ok(None);
    };
    if alike.len() + 1 > differing.len() {
        tracing::error!(peer = %format!("{peer:x}"), "a peer's data is not what most members have");
        return Ok(None);
    }
    Ok(Some(*peer))
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

#[cfg(test)]
mod test {
    use super::*;

    fn hashes(of: &[u32]) -> Vec<(u64, KvHash)> {
        let hash = |hash| KvHash {
            hash,
            compact_revision: 3,
            hash_revision: 9,
        };
        (1..).zip(of.iter().map(|it| hash(*it))).collect()
    }

    #[test]
    fn most_are_right_whoever_leads() {
        assert!(odd_ones(&hashes(&[7, 7, 7])).is_empty());
        assert_eq!(odd_ones(&hashes(&[7, 7, 8])), [3]);
        assert_eq!(odd_ones(&hashes(&[8, 7, 7])), [1]);
        assert_eq!(odd_ones(&hashes(&[7, 8, 9, 7, 7])), [2, 3]);
        // Without a majority whoever asks believes itself.
        assert_eq!(odd_ones(&hashes(&[7, 8])), [2]);
        assert_eq!(odd_ones(&hashes(&[7, 8, 9])), [2, 3]);
    }

    #[test]
    fn other_compactions_have_no_say() {
        let mut found = hashes(&[7, 8, 8]);
        found[1].1.compact_revision = 5;
        assert_eq!(odd_ones(&found), [3]);
        found[2].1.hash_revision = 8;
        assert!(odd_ones(&found).is_empty());
    }
}
