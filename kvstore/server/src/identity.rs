//! The numbers a member and its cluster go by.
//!
//! They are made exactly as etcd makes them (server/etcdserver/api/membership,
//! `computeMemberID` and `genID`, 3.5), so that the same flags give the same ids.

use sha1::{Digest, Sha1};

/// The ids of a member started with the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) member: u64,
    pub(crate) cluster: u64,
}

/// Makes the ids of the only member of a cluster.
pub(crate) fn lone_member(peer_urls: &[String], token: &str) -> Ids {
    let member = member_id(peer_urls, token);
    Ids {
        member,
        cluster: cluster_id(&[member]),
    }
}

fn member_id(peer_urls: &[String], token: &str) -> u64 {
    let mut urls = peer_urls.to_vec();
    urls.sort();
    first_eight(&[urls.concat().as_bytes(), token.as_bytes()])
}

fn cluster_id(members: &[u64]) -> u64 {
    let mut members = members.to_vec();
    members.sort_unstable();
    let bytes: Vec<u8> = members.iter().flat_map(|id| id.to_be_bytes()).collect();
    first_eight(&[&bytes])
}

fn first_eight(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    let digest: [u8; 20] = hash.finalize().into();
    digest[..8]
        .iter()
        .fold(0, |id, byte| (id << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_flags_give_etcds_well_known_ids() {
        // What every etcd started without flags prints.
        let ids = lone_member(&["http://localhost:2380".to_owned()], "etcd-cluster");
        assert_eq!(
            format!("{:x} {:x}", ids.member, ids.cluster),
            "8e9e05c52164694d cdf818194e3a8c32"
        );
    }
}
