//! The numbers a member and its cluster go by, and how a member keeps them.
//!
//! They are made exactly as etcd makes them (server/etcdserver/api/membership,
//! `computeMemberID` and `genID`, 3.5), so that the same flags give the same ids.
//! A member that has data keeps those it began with, whatever its flags say later:
//! the ids are in the log, the peer URLs beside it in `MEMBER`.

use std::{fs, io, path::Path};

use disk::{DataDir, Disk as _, RealDisk, Wal};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use crate::config::{Config, StartError};

const MEMBER_FILE: &str = "MEMBER";
const CHECKSUM: &str = "crc32";

/// The ids of a member and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) member: u64,
    pub(crate) cluster: u64,
}

/// Who a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) ids: Ids,
    pub(crate) peer_urls: Vec<String>,
    /// Whether it was written down already.
    noted: bool,
}

impl Known {
    /// Makes the identity of a member without data.
    pub(crate) fn new(ids: Ids, peer_urls: &[String]) -> Self {
        Self {
            ids,
            peer_urls: peer_urls.to_vec(),
            noted: false,
        }
    }

    /// Finds out who a member is by its data; nobody yet if it has none.
    pub(crate) fn of_data(config: &Config, dir: &DataDir) -> Result<Option<Self>, StartError> {
        let log = Wal::identity(&RealDisk, &dir.wal())?.map(|found| Ids {
            member: found.member_id,
            cluster: found.cluster_id,
        });
        let flag = match config.wal_dir {
            Some(_) => "wal-dir",
            None => "data-dir",
        };
        let refuse = |reason| Err(StartError::Flag { flag, reason });
        let wal = dir.wal();
        match (log, read_note(dir.path())?) {
            (None, None) => Ok(None),
            (Some(ids), None) => Ok(Some(Self::new(ids, &config.initial_advertise_peer_urls))),
            (Some(log), Some(noted)) if log == noted.ids => {
                noted.compare(config);
                Ok(Some(noted))
            }
            (Some(log), Some(Self { ids, .. })) => refuse(format!(
                "the log in {} belongs to member {:x} of cluster {:x}, the data directory {} to \
                 member {:x} of cluster {:x}; use the two that belong together",
                wal.display(),
                log.member,
                log.cluster,
                config.data_dir.display(),
                ids.member,
                ids.cluster
            )),
            (None, Some(_)) => refuse(format!(
                "there is no log in {}, but the data directory {} was in use; the log it was used \
                 with must be there",
                wal.display(),
                config.data_dir.display()
            )),
        }
    }

    /// Says so if the flags say that the member is elsewhere than it was.
    fn compare(&self, config: &Config) {
        let sorted = |urls: &[String]| {
            let mut urls = urls.to_vec();
            urls.sort();
            urls
        };
        if sorted(&self.peer_urls) != sorted(&config.initial_advertise_peer_urls) {
            tracing::warn!(
                member = %format!("{:x}", self.ids.member),
                cluster = %format!("{:x}", self.ids.cluster),
                peer_urls = ?self.peer_urls,
                "the member has data already; ignoring --initial-advertise-peer-urls, \
                 --initial-cluster and --initial-cluster-token"
            );
        }
    }

    /// Writes down who the member is, once its log exists.
    pub(crate) fn note(&self, dir: &DataDir) -> Result<(), StartError> {
        if self.noted {
            return Ok(());
        }
        let text = sealed(json!({
            "member": format!("{:x}", self.ids.member),
            "cluster": format!("{:x}", self.ids.cluster),
            "peerURLs": self.peer_urls,
        }));
        let path = dir.path().join(MEMBER_FILE);
        let temporary = dir.path().join("MEMBER.tmp");
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&temporary)?;
            io::Write::write_all(&mut file, format!("{text}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            RealDisk.sync_dir(dir.path())
        };
        write().map_err(|source| unusable(&path, &source))
    }
}

/// Adds a checksum of all it says to a note.
fn sealed(mut note: Value) -> Value {
    let crc = crc32fast::hash(note.to_string().as_bytes());
    note[CHECKSUM] = format!("{crc:08x}").into();
    note
}

/// Checks a note's checksum. Those that older versions made have none.
fn is_whole(note: &Value) -> bool {
    let mut said = note.clone();
    let crc = said.as_object_mut().and_then(|said| said.remove(CHECKSUM));
    crc.is_none() || sealed(said) == *note
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Flag {
        flag: "data-dir",
        reason: format!("{}: {error}", path.display()),
    }
}

fn read_note(dir: &Path) -> Result<Option<Known>, StartError> {
    let path = dir.join(MEMBER_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&path, &error)),
    };
    let note: Option<Value> = serde_json::from_str(&text).ok();
    if !note.as_ref().is_none_or(is_whole) {
        return Err(unusable(&path, &"checksum mismatch; it is damaged"));
    }
    let known = note.and_then(|note| parse_note(&note));
    match known {
        Some(known) => Ok(Some(known)),
        None => Err(unusable(&path, &"it does not say who the member is")),
    }
}

fn parse_note(note: &Value) -> Option<Known> {
    let id = |key| u64::from_str_radix(note.get(key)?.as_str()?, 16).ok();
    let urls = note.get("peerURLs")?.as_array()?.iter();
    Some(Known {
        ids: Ids {
            member: id("member")?,
            cluster: id("cluster")?,
        },
        peer_urls: urls
            .map(|url| url.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
        noted: true,
    })
}

/// Makes the id of a member of a new cluster (etcd: computeMemberID).
pub(crate) fn member_id(peer_urls: &[String], token: &str) -> u64 {
    let mut urls = peer_urls.to_vec();
    urls.sort();
    first_eight(&[urls.concat().as_bytes(), token.as_bytes()])
}

/// Makes the id of a member that joins a cluster at a time, in seconds.
pub(crate) fn joining_member_id(peer_urls: &[String], seconds: u64) -> u64 {
    member_id(peer_urls, &seconds.to_string())
}

/// Makes the id of a new cluster (etcd: genID).
pub(crate) fn cluster_id(members: &[u64]) -> u64 {
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
    fn a_bit_flipped_in_the_note_is_refused_or_says_the_same() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(home.path()).unwrap();
        let known = Known {
            ids: Ids {
                member: 0x8e9e,
                cluster: 0xcdf8,
            },
            peer_urls: vec!["http://a:2380".to_owned()],
            noted: false,
        };
        known.note(&dir).unwrap();
        let path = home.path().join(MEMBER_FILE);
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            match read_note(home.path()) {
                Ok(read) => {
                    let read = read.unwrap();
                    assert_eq!(
                        (read.ids, read.peer_urls),
                        (known.ids, known.peer_urls.clone())
                    );
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("MEMBER"), "{error}");
                }
            }
        }
        assert!(
            refused > whole.len() * 7,
            "{refused} of {}",
            whole.len() * 8
        );
        fs::write(&path, r#"{"member":"1","cluster":"2","peerURLs":[]}"#).unwrap();
        assert_eq!(read_note(home.path()).unwrap().unwrap().ids.member, 1);
    }

    #[test]
    fn the_default_flags_give_etcds_well_known_ids() {
        // What every etcd started without flags prints.
        let member = member_id(&["http://localhost:2380".to_owned()], "etcd-cluster");
        let cluster = cluster_id(&[member]);
        assert_eq!(
            format!("{member:x} {cluster:x}"),
            "8e9e05c52164694d cdf818194e3a8c32"
        );
    }
}
