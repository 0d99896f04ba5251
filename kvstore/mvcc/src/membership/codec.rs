//! Membership commands in the log. The rules of [`crate::codec`] hold: a tag or a
//! field is never renumbered.

use bytes::{BufMut as _, BytesMut};

use super::{MemberCommand, MemberInfo};
use crate::auth::name;
use crate::codec::{CodecError, flag, list, unknown};
use crate::wire::{Reader, put_bytes, put_u64};

/// Appends a command.
pub(crate) fn put_member_command(out: &mut BytesMut, c: &MemberCommand) {
    match c {
        MemberCommand::Add(member) => {
            out.put_u8(1);
            put_member_info(out, member);
        }
        MemberCommand::Promote(id) => {
            out.put_u8(2);
            put_u64(out, *id);
        }
        MemberCommand::Remove(id) => {
            out.put_u8(3);
            put_u64(out, *id);
        }
        MemberCommand::Update { id, peer_urls } => {
            out.put_u8(4);
            put_u64(out, *id);
            put_urls(out, peer_urls);
        }
        MemberCommand::Publish {
            id,
            name,
            client_urls,
        } => {
            out.put_u8(5);
            put_u64(out, *id);
            put_bytes(out, name.as_bytes());
            put_urls(out, client_urls);
        }
    }
}

/// Reads a command.
pub(crate) fn member_command(r: &mut Reader) -> Result<MemberCommand, CodecError> {
    Ok(match r.u8()? {
        1 => MemberCommand::Add(member_info(r)?),
        2 => MemberCommand::Promote(r.u64()?),
        3 => MemberCommand::Remove(r.u64()?),
        4 => MemberCommand::Update {
            id: r.u64()?,
            peer_urls: urls(r)?,
        },
        5 => MemberCommand::Publish {
            id: r.u64()?,
            name: name(r, "member")?,
            client_urls: urls(r)?,
        },
        tag => return Err(unknown("member command", u64::from(tag))),
    })
}

/// Appends a member.
pub(super) fn put_member_info(out: &mut BytesMut, m: &MemberInfo) {
    put_u64(out, m.id);
    put_bytes(out, m.name.as_bytes());
    put_urls(out, &m.peer_urls);
    put_urls(out, &m.client_urls);
    out.put_u8(u8::from(m.learner));
}

/// Reads a member.
pub(super) fn member_info(r: &mut Reader) -> Result<MemberInfo, CodecError> {
    Ok(MemberInfo {
        id: r.u64()?,
        name: name(r, "member")?,
        peer_urls: urls(r)?,
        client_urls: urls(r)?,
        learner: flag(r)?,
    })
}

fn put_urls(out: &mut BytesMut, urls: &[String]) {
    put_u64(out, urls.len() as u64);
    for url in urls {
        put_bytes(out, url.as_bytes());
    }
}

fn urls(r: &mut Reader) -> Result<Vec<String>, CodecError> {
    list(r, |r| name(r, "URL"))
}
