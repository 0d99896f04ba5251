//! `keelson wal dump`: the log as lines of JSON, one for each record.
//!
//! It only reads, and names what is damaged instead of mending it, so it may look at
//! the log of a member that runs or that refuses to. Keys and values are shortened;
//! passwords and tokens are never shown.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use disk::{Base, DiskError, Dumped, DumpedRecord, RealDisk};
use member::{EntryKind, HardState, LogEntry};
use mvcc::{AuthCommand, Command, CompareTarget, MemberCommand, Proposal, RequestOp, TxnRequest};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Bytes of a key or value that are shown.
const SHOWN_BYTES: usize = 64;

/// Operations of a transaction that are shown, of each branch.
const SHOWN_OPS: usize = 8;

/// Says why a log could not be told.
#[derive(Debug, Error)]
pub enum DumpError {
    /// It could not be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The lines could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// It was read to its end, and is damaged.
    #[error("{file} is damaged at byte {offset}: {reason}")]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

/// Writes the log of a data directory; it may be in a directory of its own. A damaged
/// one is told as far as it goes, and is an error at the end; a torn last write, of
/// which nothing was acknowledged, is not.
pub fn dump(data_dir: &Path, wal_dir: Option<&Path>, out: &mut dyn Write) -> Result<(), DumpError> {
    let dir = wal_dir.map_or_else(|| data_dir.join("wal"), Path::to_owned);
    let mut damage = None;
    let mut written = Ok(());
    disk::dump(&RealDisk, &dir, &mut |dumped| {
        written = writeln!(out, "{}", line(&dumped));
        if let DumpedRecord::Bad {
            reason,
            torn: false,
        } = dumped.record
            && damage.is_none()
        {
            damage = Some(DumpError::Damaged {
                file: dumped.file,
                offset: dumped.offset,
                reason,
            });
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    damage.map_or(Ok(()), Err)
}

fn line(dumped: &Dumped) -> Value {
    let mut line = Map::new();
    let file = dumped.file.file_name().unwrap_or_default();
    line.insert("file".into(), file.to_string_lossy().into());
    line.insert("offset".into(), dumped.offset.into());
    let (record, more) = match &dumped.record {
        DumpedRecord::Segment {
            identity,
            number,
            after,
            hard_state,
        } => {
            let mut more = base(*after);
            more["cluster"] = hex(identity.cluster_id);
            more["member"] = hex(identity.member_id);
            more["number"] = json!(number);
            more["hardState"] = self::hard_state(hard_state);
            ("segment", more)
        }
        DumpedRecord::HardState(state) => ("hardState", hard_state(state)),
        DumpedRecord::Entry(entry) => ("entry", self::entry(entry)),
        DumpedRecord::Snapshot(at) => ("snapshot", base(*at)),
        DumpedRecord::Base(at, state) => {
            let mut more = base(*at);
            more["hardState"] = hard_state(state);
            ("base", more)
        }
        DumpedRecord::Bad { reason, torn } => ("bad", json!({ "reason": reason, "torn": torn })),
    };
    line.insert("record".into(), record.into());
    if let Value::Object(more) = more {
        line.extend(more);
    }
    Value::Object(line)
}

fn base(base: Base) -> Value {
    json!({ "index": base.index, "term": base.term })
}

fn hard_state(state: &HardState) -> Value {
    json!({ "term": state.term, "vote": hex(state.vote), "commit": state.commit })
}

fn entry(entry: &LogEntry) -> Value {
    let mut out = json!({ "index": entry.index, "term": entry.term });
    let mut data = entry.data.clone();
    if entry.kind != EntryKind::Normal {
        out["kind"] = json!("membership");
        match member::decode_change(entry) {
            Ok(change) => data = change.context,
            Err(error) => {
                out["bytes"] = json!(entry.data.len());
                out["unread"] = json!(error.to_string());
                return out;
            }
        }
    }
    if data.is_empty() {
        // A new leader's mark, or the end of a joint change.
        return out;
    }
    match Proposal::decode(data) {
        Ok(proposal) => {
            out["id"] = hex(proposal.id);
            if let Some(since) = proposal.since {
                out["since"] = json!(since);
            }
            if let Some(identity) = &proposal.identity {
                out["user"] = json!(&*identity.user);
            }
            let (name, more) = command(&proposal.command);
            out["command"] = json!(name);
            out[name] = more;
        }
        Err(error) => {
            out["bytes"] = json!(entry.data.len());
            out["unread"] = json!(error.to_string());
        }
    }
    out
}

fn command(command: &Command) -> (&'static str, Value) {
    match command {
        Command::Put(r) => ("put", put(r)),
        Command::DeleteRange(r) => ("deleteRange", range(&r.key, &r.range_end)),
        Command::Txn(r) => ("txn", txn(r)),
        Command::Compact(r) => ("compact", json!({ "revision": r.revision })),
        Command::LeaseGrant(r) => ("leaseGrant", json!({ "lease": r.id, "ttl": r.ttl })),
        Command::LeaseRevoke(r) => ("leaseRevoke", json!({ "lease": r.id })),
        Command::LeaseCheckpoint(r) => {
            ("leaseCheckpoint", json!({ "leases": r.checkpoints.len() }))
        }
        Command::AlarmActivate(a) => ("alarmActivate", alarm(*a)),
        Command::AlarmDeactivate(a) => ("alarmDeactivate", alarm(*a)),
        Command::Auth(c) => ("auth", auth(c)),
        Command::Downgrade(target) => ("downgrade", json!({ "target": target })),
        Command::Member(c) => ("member", membership(c)),
    }
}

fn put(r: &mvcc::PutRequest) -> Value {
    let mut out = json!({ "key": short(&r.key), "value": short(&r.value) });
    if r.lease != 0 {
        out["lease"] = json!(r.lease);
    }
    out
}

fn range(key: &[u8], end: &[u8]) -> Value {
    match end.is_empty() {
        true => json!({ "key": short(key) }),
        false => json!({ "key": short(key), "rangeEnd": short(end) }),
    }
}

fn alarm(alarm: mvcc::Alarm) -> Value {
    json!({ "member": hex(alarm.member), "alarm": format!("{:?}", alarm.kind) })
}

fn txn(r: &TxnRequest) -> Value {
    let compare = |c: &mvcc::Compare| {
        let target = match &c.target {
            CompareTarget::Version(n) => json!({ "version": n }),
            CompareTarget::CreateRevision(n) => json!({ "create": n }),
            CompareTarget::ModRevision(n) => json!({ "mod": n }),
            CompareTarget::Lease(n) => json!({ "lease": n }),
            CompareTarget::Value(value) => json!({ "value": short(value) }),
        };
        json!({ "key": short(&c.key), "is": format!("{:?}", c.result), "than": target })
    };
    let op = |op: &RequestOp| match op {
        RequestOp::Range(r) => json!({ "range": range(&r.key, &r.range_end) }),
        RequestOp::Put(r) => json!({ "put": put(r) }),
        RequestOp::DeleteRange(r) => json!({ "deleteRange": range(&r.key, &r.range_end) }),
        RequestOp::Txn(r) => {
            let ops = r.success.len() + r.failure.len();
            json!({ "txn": { "compares": r.compare.len(), "ops": ops } })
        }
        RequestOp::Empty => json!({}),
    };
    json!({
        "if": some(&r.compare, compare),
        "then": some(&r.success, op),
        "else": some(&r.failure, op),
    })
}

/// Shows the first of a list, and how many more there are.
fn some<T>(list: &[T], show: impl Fn(&T) -> Value) -> Value {
    let mut shown: Vec<_> = list.iter().take(SHOWN_OPS).map(show).collect();
    if list.len() > SHOWN_OPS {
        shown.push(json!({ "more": list.len() - SHOWN_OPS }));
    }
    shown.into()
}

/// Shows what is changed about whom, and no secret.
fn auth(c: &AuthCommand) -> Value {
    let (what, user, role) = match c {
        AuthCommand::Enable => ("enable", None, None),
        AuthCommand::Disable => ("disable", None, None),
        AuthCommand::Authenticate { user, .. } => ("authenticate", Some(user), None),
        AuthCommand::UserAdd { name, .. } => ("userAdd", Some(name), None),
        AuthCommand::UserDelete { name } => ("userDelete", Some(name), None),
        AuthCommand::UserChangePassword { name, .. } => ("userChangePassword", Some(name), None),
        AuthCommand::UserGrantRole { user, role } => ("userGrantRole", Some(user), Some(role)),
        AuthCommand::UserRevokeRole { user, role } => ("userRevokeRole", Some(user), Some(role)),
        AuthCommand::RoleAdd { name } => ("roleAdd", None, Some(name)),
        AuthCommand::RoleDelete { name } => ("roleDelete", None, Some(name)),
        AuthCommand::RoleGrantPermission { role, .. } => ("roleGrant", None, Some(role)),
        AuthCommand::RoleRevokePermission { role, .. } => ("roleRevoke", None, Some(role)),
    };
    let mut out = json!({ "change": what });
    if let Some(user) = user {
        out["user"] = json!(user);
    }
    if let Some(role) = role {
        out["role"] = json!(role);
    }
    out
}

fn membership(c: &MemberCommand) -> Value {
    let mut out = match c {
        MemberCommand::Add(m) => {
            let change = if m.learner { "addLearner" } else { "add" };
            json!({ "change": change, "name": m.name, "peerURLs": m.peer_urls })
        }
        MemberCommand::Promote(_) => json!({ "change": "promote" }),
        MemberCommand::Remove(_) => json!({ "change": "remove" }),
        MemberCommand::Update { peer_urls, .. } => {
            json!({ "change": "update", "peerURLs": peer_urls })
        }
        MemberCommand::Publish {
            name, client_urls, ..
        } => json!({ "change": "publish", "name": name, "clientURLs": client_urls }),
    };
    out["member"] = hex(c.id());
    out
}

fn hex(id: u64) -> Value {
    format!("{id:x}").into()
}

/// Shows bytes as text, the odd ones escaped, the end cut off.
fn short(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let text = shown.escape_ascii().to_string();
    match bytes.len() - shown.len() {
        0 => text,
        more => format!("{text}... and {more} bytes more"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mvcc::{Identity, PutRequest, Secret};

    use super::*;

    fn shown(command: Command) -> Value {
        let proposal = Proposal {
            id: 0xab,
            since: Some(4),
            identity: Some(Identity::new("ann".to_owned(), 2)),
            command,
        };
        entry(&LogEntry {
            term: 2,
            index: 7,
            kind: EntryKind::Normal,
            data: proposal.encode(),
        })
    }

    #[test]
    fn a_put_is_shown_shortened() {
        let put = PutRequest {
            key: Bytes::from_static(b"k\0"),
            value: Bytes::from(vec![b'v'; 100]),
            ..PutRequest::default()
        };
        let v64 = "v".repeat(64);
        assert_eq!(
            shown(Command::Put(put)),
            json!({
                "index": 7, "term": 2, "id": "ab", "since": 4, "user": "ann", "command": "put",
                "put": { "key": "k\\x00", "value": format!("{v64}... and 36 bytes more") },
            })
        );
    }

    #[test]
    fn no_secret_is_shown() {
        let secret = || Secret::new(Bytes::from_static(b"hush"));
        let commands = [
            AuthCommand::UserAdd {
                name: "bob".to_owned(),
                password: secret(),
                no_password: false,
            },
            AuthCommand::UserChangePassword {
                name: "bob".to_owned(),
                password: secret(),
            },
            AuthCommand::Authenticate {
                user: "bob".to_owned(),
                token: secret(),
            },
        ];
        for command in commands {
            let text = shown(Command::Auth(command)).to_string();
            assert!(text.contains("bob") && !text.contains("hush"), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_to_be_so() {
        let odd = LogEntry {
            term: 1,
            index: 3,
            kind: EntryKind::Normal,
            data: Bytes::from_static(b"\xffodd"),
        };
        let said = entry(&odd);
        assert_eq!(said["bytes"], 4);
        assert!(said["unread"].as_str().unwrap().contains("version 255"));
        let mark = LogEntry {
            data: Bytes::new(),
            ..odd
        };
        assert_eq!(entry(&mark), json!({ "index": 3, "term": 1 }));
    }
}
