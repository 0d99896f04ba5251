//! How scripts see replies.

use std::fmt::Write as _;

use mvcc::watch::WatchReply;
use mvcc::*;

pub(super) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Put(r) => put(r),
        Reply::DeleteRange(r) => delete(r),
        Reply::Txn(r) => txn(r),
        Reply::Compact(r) => format!("rev={}", r.revision),
        Reply::LeaseGrant(r) => format!("rev={} id={} ttl={}", r.revision, r.id, r.ttl),
        Reply::LeaseRevoke(r) | Reply::LeaseCheckpoint(r) => format!("rev={}", r.revision),
        Reply::Alarm(r) => format!("rev={} {}", r.revision, alarms(&r.alarms)),
        Reply::Downgrade => "done".to_owned(),
        Reply::Members(r) => members(r.iter()),
        Reply::Auth(r) => format!("rev={} auth={}", r.revision, r.auth_revision),
    }
}

pub(super) fn members<'a>(members: impl Iterator<Item = &'a MemberInfo>) -> String {
    let one = |m: &MemberInfo| {
        let kind = if m.learner { "learner" } else { "voter" };
        let (peers, clients) = (m.peer_urls.join(","), m.client_urls.join(","));
        format!(
            "{}:{kind} name={:?} peers={peers} clients={clients}",
            m.id, m.name
        )
    };
    members.map(one).collect::<Vec<_>>().join("\n")
}

pub(super) fn alarms(alarms: &[Alarm]) -> String {
    let one = |a: &Alarm| format!("{}:{:?}", a.member, a.kind);
    format!(
        "alarms=[{}]",
        alarms.iter().map(one).collect::<Vec<_>>().join(" ")
    )
}

pub(super) fn kv(kv: &KeyValue) -> String {
    let text = |b: &[u8]| b.escape_ascii().to_string();
    let mut out = format!("{}={}", text(&kv.key), text(&kv.value));
    let _ = write!(
        out,
        " create={} mod={} version={}",
        kv.create_revision, kv.mod_revision, kv.version
    );
    if kv.lease != 0 {
        let _ = write!(out, " lease={}", kv.lease);
    }
    out
}

fn lines(head: String, kvs: &[KeyValue]) -> String {
    kvs.iter().fold(head, |out, k| out + "\n  " + &kv(k))
}

fn put(r: &PutReply) -> String {
    let prev = r.prev_kv.as_slice();
    lines(format!("put rev={}", r.revision), prev)
}

fn delete(r: &DeleteReply) -> String {
    lines(
        format!("deleted {} rev={}", r.deleted, r.revision),
        &r.prev_kvs,
    )
}

pub(super) fn range(r: &RangeReply) -> String {
    let more = if r.more { " more" } else { "" };
    lines(
        format!("count={} rev={}{more}", r.count, r.revision),
        &r.kvs,
    )
}

pub(super) fn txn(r: &TxnReply) -> String {
    let branch = if r.succeeded { "then" } else { "else" };
    let mut out = format!("{branch} rev={}", r.revision);
    for response in &r.responses {
        let text = match response {
            ResponseOp::Range(r) => range(r),
            ResponseOp::Put(r) => put(r),
            ResponseOp::DeleteRange(r) => delete(r),
            ResponseOp::Txn(r) => txn(r),
        };
        out += &format!("\n{text}").replace('\n', "\n  ");
    }
    out
}

pub(super) fn watch(r: &WatchReply) -> String {
    let mut out = format!("watch={} rev={}", r.watch_id, r.revision);
    if r.created {
        out += " created";
    }
    if r.canceled {
        out += " canceled";
    }
    if r.compact_revision != 0 {
        let _ = write!(out, " compact_revision={}", r.compact_revision);
    }
    if !r.cancel_reason.is_empty() {
        let _ = write!(out, " reason={:?}", r.cancel_reason);
    }
    for event in &r.events {
        let kind = match event.kind {
            EventKind::Put => "PUT",
            EventKind::Delete => "DELETE",
        };
        let _ = write!(out, "\n  {kind} {}", kv(&event.kv));
        if let Some(prev) = event.prev_kv().filter(|_| r.prev_kv) {
            let _ = write!(out, "\n    prev {}", kv(prev));
        }
    }
    out
}
