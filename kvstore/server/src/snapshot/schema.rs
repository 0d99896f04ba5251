//! How etcd 3.5 lays its data out in buckets (`server/storage/schema`), both ways.

use bytes::{BufMut, Bytes};
use mvcc::{
    Alarm, AlarmKind, Change, ConfState, KeyValue, LeaseFact, MemberInfo, Permission,
    PermissionKind, Role, Secret, User,
};
use prost::Message as _;
use proto::{authpb, etcdserverpb as pb, leasepb, mvccpb};

pub(super) const ALARM: &str = "alarm";
pub(super) const AUTH: &str = "auth";
pub(super) const AUTH_ROLES: &str = "authRoles";
pub(super) const AUTH_USERS: &str = "authUsers";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const KEY: &str = "key";
pub(super) const LEASE: &str = "lease";
pub(super) const MEMBERS: &str = "members";
pub(super) const MEMBERS_REMOVED: &str = "members_removed";
pub(super) const META: &str = "meta";

pub(super) const AUTH_ENABLED: &[u8] = b"authEnabled";
pub(super) const AUTH_REVISION: &[u8] = b"authRevision";
pub(super) const CLUSTER_VERSION: &[u8] = b"clusterVersion";
pub(super) const CONF_STATE: &[u8] = b"confState";
pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
pub(super) const FINISHED_COMPACT: &[u8] = b"finishedCompactRev";
pub(super) const SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
pub(super) const TERM: &[u8] = b"term";
pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";

/// The value of a member that was removed.
pub(super) const REMOVED: &[u8] = b"removed";

/// Bytes of a revision, and of one with the mark of a tombstone.
const REVISION: usize = 17;
const TOMBSTONE: usize = 18;

/// Writes the key of a change: `main _ sub`, and `t` for a tombstone.
pub(super) fn put_revision(main: i64, sub: u32, tombstone: bool, out: &mut Vec<u8>) {
    out.put_i64(main);
    out.put_u8(b'_');
    out.put_u64(u64::from(sub));
    if tombstone {
        out.put_u8(b't');
    }
}

/// Reads the main revision out of a key or of a compaction mark.
pub(super) fn main_revision(key: &[u8]) -> Option<i64> {
    match key.first_chunk::<8>() {
        Some(main) if key.len() >= REVISION && key[8] == b'_' => Some(i64::from_be_bytes(*main)),
        _ => None,
    }
}

/// Writes a change's pair as etcd does, which for a tombstone is its key.
pub(super) fn put_pair(change: &Change, out: &mut Vec<u8>) {
    let kv = &change.kv;
    let pair = mvccpb::KeyValue {
        key: kv.key.clone(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value.clone(),
        lease: kv.lease,
    };
    // A vector grows; there is no other way to fail.
    let _grown = pair.encode(out);
}

/// Reads a change.
pub(super) fn change(key: &[u8], value: &[u8]) -> Result<Change, String> {
    let odd = || format!("key {key:02x?} is not a revision");
    let main = main_revision(key).ok_or_else(odd)?;
    let sub = key[9..REVISION].try_into().map(u64::from_be_bytes);
    let sub = sub.ok().and_then(|sub| u32::try_from(sub).ok());
    let sub = sub.ok_or_else(odd)?;
    let tombstone = match key.len() {
        REVISION => false,
        TOMBSTONE if key[REVISION] == b't' => true,
        _ => return Err(odd()),
    };
    let kv = mvccpb::KeyValue::decode(value)
        .map_err(|error| format!("revision {main}.{sub}: {error}"))?;
    Ok(Change {
        main,
        sub,
        tombstone,
        kv: KeyValue {
            key: kv.key,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            value: kv.value,
            lease: kv.lease,
        },
    })
}

pub(super) fn put_lease(lease: &LeaseFact) -> ([u8; 8], Vec<u8>) {
    let row = leasepb::Lease {
        id: lease.id,
        ttl: lease.ttl,
        remaining_ttl: lease.remaining,
    };
    (lease.id.to_be_bytes(), row.encode_to_vec())
}

pub(super) fn lease(key: &[u8], value: &[u8]) -> Result<LeaseFact, String> {
    let id = key.try_into().map(i64::from_be_bytes);
    let id = id.map_err(|_length| format!("key {key:02x?} is not a lease"))?;
    let row = leasepb::Lease::decode(value).map_err(|error| format!("lease {id:x}: {error}"))?;
    let ttl = row.ttl.clamp(1, mvcc::LEASE_TTL_MAX);
    Ok(LeaseFact {
        id,
        ttl,
        remaining: row.remaining_ttl.clamp(0, ttl),
    })
}

pub(super) fn put_alarm(alarm: Alarm) -> Vec<u8> {
    let row = pb::AlarmMember {
        member_id: alarm.member,
        alarm: alarm.kind as i32,
    };
    row.encode_to_vec()
}

/// Reads an alarm; `None` for one of no kind.
pub(super) fn alarm(key: &[u8]) -> Result<Option<Alarm>, String> {
    let row = pb::AlarmMember::decode(key).map_err(|error| error.to_string())?;
    if row.alarm == 0 {
        return Ok(None);
    }
    let kind = AlarmKind::from_i32(row.alarm);
    let kind = kind.ok_or_else(|| format!("unknown alarm {}", row.alarm))?;
    Ok(Some(Alarm {
        member: row.member_id,
        kind,
    }))
}

pub(super) fn put_user(user: &User) -> Vec<u8> {
    let row = authpb::User {
        name: Bytes::copy_from_slice(user.name.as_bytes()),
        password: Bytes::copy_from_slice(user.password.expose()),
        roles: user.roles.clone(),
        options: Some(authpb::UserAddOptions {
            no_password: user.no_password,
        }),
    };
    row.encode_to_vec()
}

pub(super) fn user(value: &[u8]) -> Result<User, String> {
    let row = authpb::User::decode(value).map_err(|error| error.to_string())?;
    Ok(User {
        name: name(&row.name)?,
        password: Secret::new(row.password),
        no_password: row.options.is_some_and(|options| options.no_password),
        roles: row.roles,
    })
}

pub(super) fn put_role(role: &Role) -> Vec<u8> {
    let permissions = role.permissions.iter().map(|p| authpb::Permission {
        perm_type: p.kind as i32,
        key: p.key.clone(),
        range_end: p.range_end.clone(),
    });
    let row = authpb::Role {
        name: Bytes::copy_from_slice(role.name.as_bytes()),
        key_permission: permissions.collect(),
    };
    row.encode_to_vec()
}

pub(super) fn role(value: &[u8]) -> Result<Role, String> {
    let row = authpb::Role::decode(value).map_err(|error| error.to_string())?;
    let permission = |p: authpb::Permission| {
        let kind = PermissionKind::from_i32(p.perm_type);
        Ok(Permission {
            kind: kind.ok_or_else(|| format!("unknown permission {}", p.perm_type))?,
            key: p.key,
            range_end: p.range_end,
        })
    };
    Ok(Role {
        name: name(&row.name)?,
        permissions: row
            .key_permission
            .into_iter()
            .map(permission)
            .collect::<Result<_, String>>()?,
    })
}

fn name(bytes: &[u8]) -> Result<String, String> {
    let name = std::str::from_utf8(bytes).map_err(|_invalid| format!("name {bytes:02x?}"))?;
    Ok(name.to_owned())
}

/// Writes a member as etcd keeps it: its id in hexadecimal, then JSON.
pub(super) fn put_member(member: &MemberInfo) -> (String, String) {
    let mut row = serde_json::json!({ "id": member.id, "peerURLs": member.peer_urls });
    if !member.name.is_empty() {
        row["name"] = member.name.clone().into();
    }
    if !member.client_urls.is_empty() {
        row["clientURLs"] = member.client_urls.clone().into();
    }
    if member.learner {
        row["isLearner"] = true.into();
    }
    (member_key(member.id), row.to_string())
}

/// Writes a member's id as etcd keeps it.
pub(super) fn member_key(id: u64) -> String {
    format!("{id:x}")
}

/// Writes who votes, as etcd keeps it (raftpb.ConfState).
pub(super) fn put_conf_state(c: &ConfState) -> String {
    let mut row = serde_json::json!({ "voters": c.voters, "auto_leave": c.auto_leave });
    let others = [
        ("learners", &c.learners),
        ("voters_outgoing", &c.voters_outgoing),
        ("learners_next", &c.learners_next),
    ];
    for (name, ids) in others {
        if !ids.is_empty() {
            row[name] = ids.clone().into();
        }
    }
    row.to_string()
}

#[cfg(test)]
mod tests {
    use mvcc::Membership;

    use super::*;

    #[test]
    fn a_change_goes_there_and_back() {
        for tombstone in [false, true] {
            let mut kv = KeyValue {
                key: Bytes::from_static(b"k"),
                ..KeyValue::default()
            };
            if !tombstone {
                kv.create_revision = 3;
                kv.mod_revision = 7;
                kv.version = 2;
                kv.value = Bytes::from_static(b"v");
                kv.lease = -9;
            }
            let before = Change {
                main: 7,
                sub: 1,
                tombstone,
                kv,
            };
            let (mut key, mut value) = (Vec::new(), Vec::new());
            put_revision(7, 1, tombstone, &mut key);
            put_pair(&before, &mut value);
            assert_eq!(change(&key, &value), Ok(before));
            assert!(change(&key[1..], &value).is_err());
        }
        assert!(change(b"\0\0\0\0\0\0\0\x07_\x01\0\0\0\0\0\0\0", b"").is_err());
        assert!(change(b"\0\0\0\0\0\0\0\x07_\0\0\0\0\0\0\0\0", b"\xff").is_err());
    }

    #[test]
    fn a_member_is_written_as_etcd_does() {
        let member = MemberInfo {
            id: 0x8e9e_05c5_2164_694d,
            name: "a".to_owned(),
            peer_urls: vec!["http://p".to_owned()],
            ..MemberInfo::default()
        };
        let (key, row) = put_member(&member);
        assert_eq!(key, "8e9e05c52164694d");
        assert_eq!(
            row,
            r#"{"id":10276657743932975437,"name":"a","peerURLs":["http://p"]}"#
        );
        assert_eq!(
            put_conf_state(Membership::new(1, [member]).conf_state()),
            r#"{"auto_leave":false,"voters":[10276657743932975437]}"#
        );
    }
}
