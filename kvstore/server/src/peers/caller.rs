//! Who calls: what members put into the metadata of every call, and whom they refuse.

use tonic::{
    Status,
    metadata::{Ascii, MetadataMap, MetadataValue},
};

use crate::{API_VERSION, identity::Ids};

/// The version of what members say to each other. It is raised when an older member
/// would misunderstand; what it may ignore does not raise it.
const PROTOCOL: u32 = 1;
/// The oldest version that is still understood.
const PROTOCOL_MIN: u32 = 1;

const CLUSTER: &str = "keelson-cluster";
const FROM: &str = "keelson-from";
const TO: &str = "keelson-to";
const SPOKEN: &str = "keelson-protocol";
const SPOKEN_MIN: &str = "keelson-protocol-min";
const VERSION: &str = "keelson-version";
const URLS: &str = "keelson-peer-urls";

/// What a member that was removed is told (etcd: rafthttp, errMemberRemoved).
pub(crate) const REMOVED: &str = "the member has been permanently removed from the cluster";
/// What a member of another cluster is told (etcd: rafthttp, ErrClusterIDMismatch).
const OTHER_CLUSTER: &str = "cluster ID mismatch";
/// What a member is told that speaks otherwise (etcd: rafthttp,
/// errIncompatibleVersion).
const INCOMPATIBLE: &str = "incompatible version";
/// What a member is told that reached another one than it wanted (etcd: rafthttp,
/// streamHandler).
const OTHER_MEMBER: &str = "to field mismatch";

/// A member that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) id: u64,
    /// Where it says that it is served.
    pub(super) urls: Vec<String>,
}

/// Writes the metadata of a call by a stranger, who only says what it speaks.
pub(super) fn introduce(metadata: &mut MetadataMap) {
    metadata.insert(SPOKEN, PROTOCOL.into());
    metadata.insert(SPOKEN_MIN, PROTOCOL_MIN.into());
    metadata.insert(VERSION, MetadataValue::from_static(API_VERSION));
}

/// Writes the metadata of a member's call to another.
pub(super) fn sign(metadata: &mut MetadataMap, me: Ids, urls: &[String], to: u64) {
    introduce(metadata);
    let hex = |id: u64| format!("{id:x}").parse::<MetadataValue<Ascii>>().ok();
    for (key, id) in [(CLUSTER, me.cluster), (FROM, me.member), (TO, to)] {
        if let Some(id) = hex(id) {
            metadata.insert(key, id);
        }
    }
    // A URL that is not plain text could not have been dialled either.
    if let Ok(urls) = urls.join(",").parse() {
        metadata.insert(URLS, urls);
    }
}

/// Refuses callers of versions that are not compatible.
pub(super) fn check_version(metadata: &MetadataMap) -> Result<(), Status> {
    let number = |key| text(metadata, key)?.parse::<u32>().ok();
    let (spoken, min) = (number(SPOKEN), number(SPOKEN_MIN));
    let fits = spoken.is_some_and(|spoken| spoken >= PROTOCOL_MIN)
        && min.is_some_and(|min| min <= PROTOCOL);
    if fits {
        return Ok(());
    }
    let shown =
        |number: Option<u32>| number.map_or_else(|| "nothing".to_owned(), |n| n.to_string());
    Err(Status::failed_precondition(format!(
        "{INCOMPATIBLE}: the caller (version {}) speaks {} to {}, this member (version \
         {API_VERSION}) {PROTOCOL_MIN} to {PROTOCOL} of the protocol between members",
        text(metadata, VERSION).unwrap_or("unknown"),
        shown(min),
        shown(spoken),
    )))
}

/// Reads who calls, and refuses whoever is not of this cluster or wants somebody else.
pub(super) fn read(metadata: &MetadataMap, me: Ids) -> Result<Caller, Status> {
    check_version(metadata)?;
    let id = |key| u64::from_str_radix(text(metadata, key)?, 16).ok();
    let cluster = id(CLUSTER);
    if cluster != Some(me.cluster) {
        return Err(Status::failed_precondition(format!(
            "{OTHER_CLUSTER}: the caller is of cluster {:x}, this member of cluster {:x}",
            cluster.unwrap_or(0),
            me.cluster
        )));
    }
    let to = id(TO);
    if to != Some(me.member) {
        return Err(Status::failed_precondition(format!(
            "{OTHER_MEMBER}: the caller wants member {:x}, this is member {:x}",
            to.unwrap_or(0),
            me.member
        )));
    }
    let from = id(FROM).filter(|from| *from != 0 && *from != me.member);
    let Some(id) = from else {
        return Err(Status::failed_precondition(format!(
            "the caller does not say who it is, or that it is member {:x}, which is called",
            me.member
        )));
    };
    let urls = text(metadata, URLS).unwrap_or_default().split(',');
    Ok(Caller {
        id,
        urls: urls
            .filter(|url| !url.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Option<&'a str> {
    metadata.get(key)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ids = Ids {
        member: 0xa,
        cluster: 0xc,
    };
    const B: Ids = Ids {
        member: 0xb,
        cluster: 0xc,
    };

    fn signed(by: Ids, to: u64) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        let urls = ["http://h:1".to_owned(), "http://h:2".to_owned()];
        sign(&mut metadata, by, &urls, to);
        metadata
    }

    #[test]
    fn a_member_is_recognised() {
        let caller = read(&signed(A, B.member), B).unwrap();
        assert_eq!(caller.id, A.member);
        assert_eq!(caller.urls, ["http://h:1", "http://h:2"]);
    }

    #[test]
    fn others_are_told_why_not() {
        let refused = |metadata: &MetadataMap| read(metadata, B).unwrap_err().message().to_owned();
        let other = Ids { cluster: 0xd, ..A };
        let words = refused(&signed(other, B.member));
        assert!(words.starts_with(OTHER_CLUSTER), "{words}");
        let words = refused(&signed(A, 0xe));
        assert!(words.starts_with(OTHER_MEMBER), "{words}");
        let words = refused(&signed(B, B.member));
        assert!(words.contains("which is called"), "{words}");
        let words = refused(&MetadataMap::new());
        assert!(words.starts_with(INCOMPATIBLE), "{words}");
    }

    #[test]
    fn versions_are_compatible_if_they_overlap() {
        for (min, spoken, fits) in [
            (1, 1, true),
            (1, 9, true),
            (PROTOCOL + 1, 9, false),
            (0, PROTOCOL_MIN - 1, false),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert(SPOKEN, spoken.into());
            metadata.insert(SPOKEN_MIN, min.into());
            assert_eq!(check_version(&metadata).is_ok(), fits, "{min} to {spoken}");
        }
    }
}
