//! Round trips over arbitrary proposals, and hostile bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::auth::{AuthCommand, Permission, PermissionKind, Secret};
use crate::membership::{MemberCommand, MemberInfo};

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn a_put() -> impl Strategy<Value = PutRequest> {
    (bytes(), bytes(), any::<i64>(), any::<[bool; 3]>()).prop_map(|(key, value, lease, f)| {
        PutRequest {
            key,
            value,
            lease,
            prev_kv: f[0],
            ignore_value: f[1],
            ignore_lease: f[2],
        }
    })
}

fn a_delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (bytes(), bytes(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

fn a_range() -> impl Strategy<Value = RangeRequest> {
    let numbers = prop_oneof![Just([0i64; 4]), any::<[i64; 4]>()];
    (
        bytes(),
        bytes(),
        any::<[i64; 2]>(),
        0..3,
        0..5,
        any::<[bool; 3]>(),
        numbers,
    )
        .prop_map(|(key, range_end, n, order, target, f, b)| RangeRequest {
            key,
            range_end,
            limit: n[0],
            revision: n[1],
            sort_order: SortOrder::from_i32(order).unwrap(),
            sort_target: SortTarget::from_i32(target).unwrap(),
            serializable: f[0],
            keys_only: f[1],
            count_only: f[2],
            min_mod_revision: b[0],
            max_mod_revision: b[1],
            min_create_revision: b[2],
            max_create_revision: b[3],
        })
}

fn a_compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        any::<i64>().prop_map(CompareTarget::Version),
        any::<i64>().prop_map(CompareTarget::CreateRevision),
        any::<i64>().prop_map(CompareTarget::ModRevision),
        bytes().prop_map(CompareTarget::Value),
        any::<i64>().prop_map(CompareTarget::Lease),
    ];
    (bytes(), bytes(), 0..4, target).prop_map(|(key, range_end, result, target)| Compare {
        key,
        range_end,
        result: CompareResult::from_i32(result).unwrap(),
        target,
    })
}

fn a_txn() -> impl Strategy<Value = TxnRequest> {
    let leaf = prop_oneof![
        a_put().prop_map(RequestOp::Put),
        a_range().prop_map(RequestOp::Range),
        a_delete().prop_map(RequestOp::DeleteRange),
        Just(RequestOp::Empty),
    ];
    let op = leaf.prop_recursive(3, 16, 3, |inner| {
        (
            vec(a_compare(), 0..3),
            vec(inner.clone(), 0..3),
            vec(inner, 0..3),
        )
            .prop_map(|(compare, success, failure)| {
                RequestOp::Txn(TxnRequest {
                    compare,
                    success,
                    failure,
                })
            })
    });
    (vec(a_compare(), 0..4), vec(op.clone(), 0..4), vec(op, 0..4)).prop_map(
        |(compare, success, failure)| TxnRequest {
            compare,
            success,
            failure,
        },
    )
}

fn an_identity() -> impl Strategy<Value = Option<Identity>> {
    prop::option::of((".{0,9}", any::<u64>()).prop_map(|(user, n)| Identity::new(user, n)))
}

fn a_member_command() -> impl Strategy<Value = MemberCommand> {
    let id = || any::<u64>();
    let text = || ".{0,9}";
    let urls = || vec(".{0,20}", 0..4);
    prop_oneof![
        (id(), text(), urls(), urls(), any::<bool>()).prop_map(
            |(id, name, peer_urls, client_urls, learner)| MemberCommand::Add(MemberInfo {
                id,
                name,
                peer_urls,
                client_urls,
                learner
            })
        ),
        id().prop_map(MemberCommand::Promote),
        id().prop_map(MemberCommand::Remove),
        (id(), urls()).prop_map(|(id, peer_urls)| MemberCommand::Update { id, peer_urls }),
        (id(), text(), urls()).prop_map(|(id, name, client_urls)| MemberCommand::Publish {
            id,
            name,
            client_urls
        }),
    ]
}

fn an_auth_command() -> impl Strategy<Value = AuthCommand> {
    let permission = (0..3, bytes(), bytes()).prop_map(|(kind, key, range_end)| Permission {
        kind: PermissionKind::from_i32(kind).unwrap(),
        key,
        range_end,
    });
    let name = || ".{0,9}";
    let secret = || bytes().prop_map(Secret::new);
    prop_oneof![
        Just(AuthCommand::Enable),
        Just(AuthCommand::Disable),
        (name(), secret()).prop_map(|(user, token)| AuthCommand::Authenticate { user, token }),
        (name(), secret(), any::<bool>()).prop_map(|(name, password, no_password)| {
            AuthCommand::UserAdd {
                name,
                password,
                no_password,
            }
        }),
        name().prop_map(|name| AuthCommand::UserDelete { name }),
        (name(), secret())
            .prop_map(|(name, password)| AuthCommand::UserChangePassword { name, password }),
        (name(), name()).prop_map(|(user, role)| AuthCommand::UserGrantRole { user, role }),
        (name(), name()).prop_map(|(user, role)| AuthCommand::UserRevokeRole { user, role }),
        name().prop_map(|name| AuthCommand::RoleAdd { name }),
        name().prop_map(|name| AuthCommand::RoleDelete { name }),
        (name(), prop::option::of(permission))
            .prop_map(|(role, permission)| AuthCommand::RoleGrantPermission { role, permission }),
        (name(), bytes(), bytes()).prop_map(|(role, key, range_end)| {
            AuthCommand::RoleRevokePermission {
                role,
                key,
                range_end,
            }
        }),
    ]
}

fn a_command() -> impl Strategy<Value = Command> {
    let alarm = (any::<u64>(), 1..3).prop_map(|(member, kind)| Alarm {
        member,
        kind: AlarmKind::from_i32(kind).unwrap(),
    });
    prop_oneof![
        a_put().prop_map(Command::Put),
        a_delete().prop_map(Command::DeleteRange),
        a_txn().prop_map(Command::Txn),
        (any::<i64>(), any::<bool>()).prop_map(|(revision, physical)| Command::Compact(
            CompactRequest { revision, physical }
        )),
        (any::<i64>(), any::<i64>())
            .prop_map(|(id, ttl)| Command::LeaseGrant(LeaseGrantRequest { id, ttl })),
        any::<i64>().prop_map(|id| Command::LeaseRevoke(LeaseRevokeRequest { id })),
        vec(any::<(i64, i64)>(), 0..5).prop_map(|checkpoints| Command::LeaseCheckpoint(
            LeaseCheckpointRequest { checkpoints }
        )),
        alarm.clone().prop_map(Command::AlarmActivate),
        alarm.prop_map(Command::AlarmDeactivate),
        an_auth_command().prop_map(Command::Auth),
        a_member_command().prop_map(Command::Member),
        proptest::option::of("[0-9.]{0,8}").prop_map(Command::Downgrade),
    ]
}

proptest! {
    #[test]
    fn a_proposal_survives(id in any::<u64>(), since in any::<Option<u64>>(), identity in an_identity(), command in a_command()) {
        let p = Proposal { id, since, identity, command };
        prop_assert_eq!(Proposal::decode(p.encode()), Ok(p));
    }

    #[test]
    fn a_prefix_is_refused(since in any::<Option<u64>>(), identity in an_identity(), command in a_command(), cut in any::<prop::sample::Index>()) {
        let whole = Proposal { id: 1, since, identity, command }.encode();
        let part = whole.slice(..cut.index(whole.len()));
        prop_assert!(Proposal::decode(part).is_err());
    }

    #[test]
    fn a_changed_byte_never_panics(identity in an_identity(), command in a_command(), at in any::<prop::sample::Index>(), b in any::<u8>()) {
        let mut raw = Proposal { id: 1, since: None, identity, command }.encode().to_vec();
        let at = at.index(raw.len());
        raw[at] = b;
        let _ = Proposal::decode(Bytes::from(raw));
    }

    #[test]
    fn noise_never_panics(mut raw in vec(any::<u8>(), 0..200), version in VERSION..=4) {
        if let Some(b) = raw.first_mut() { *b = version; }
        let _ = Proposal::decode(Bytes::from(raw));
    }
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let nest = |depth: usize| {
        let mut t = TxnRequest::default();
        for _ in 1..depth {
            t = TxnRequest {
                success: vec![RequestOp::Txn(t)],
                ..TxnRequest::default()
            };
        }
        Proposal {
            id: 1,
            since: None,
            identity: None,
            command: Command::Txn(t),
        }
    };
    let deepest = nest(TXN_DEPTH_MAX);
    assert_eq!(Proposal::decode(deepest.encode()), Ok(deepest));
    let deeper = nest(TXN_DEPTH_MAX + 1);
    assert_eq!(
        Proposal::decode(deeper.encode()),
        Err(CodecError::TooDeep(TXN_DEPTH_MAX))
    );
}

#[test]
fn a_huge_count_is_refused_without_memory() {
    let mut raw = BytesMut::new();
    raw.put_u8(VERSION);
    raw.put_u64(1);
    raw.put_u8(7);
    put_u64(&mut raw, u64::MAX);
    assert_eq!(Proposal::decode(raw.freeze()), Err(CodecError::Truncated));
}

/// What a build without users wrote still means what it meant.
#[test]
fn the_first_form_is_read() {
    let raw = Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 6, 14]);
    let p = Proposal {
        id: 9,
        since: None,
        identity: None,
        command: Command::LeaseRevoke(LeaseRevokeRequest { id: 7 }),
    };
    assert_eq!(Proposal::decode(raw.clone()), Ok(p.clone()));
    assert_eq!(p.encode(), raw);
}

/// The index behind which all copies lie follows the id.
#[test]
fn the_later_forms_are_read() {
    let mut p = Proposal {
        id: 9,
        since: Some(300),
        identity: None,
        command: Command::LeaseRevoke(LeaseRevokeRequest { id: 7 }),
    };
    let raw = &[3, 0, 0, 0, 0, 0, 0, 0, 9, 0xac, 2, 6, 14];
    assert_eq!(p.encode(), &raw[..]);
    p.identity = Some(Identity::new("a".to_owned(), 5));
    let raw = &[4, 0, 0, 0, 0, 0, 0, 0, 9, 0xac, 2, 1, b'a', 5, 6, 14];
    assert_eq!(p.encode(), &raw[..]);
    assert_eq!(Proposal::decode(p.encode()), Ok(p));
    assert_eq!(
        Proposal::decode(Bytes::from_static(&[5, 0])),
        Err(CodecError::Version(5))
    );
}

#[test]
fn a_name_that_is_no_text_is_refused() {
    let mut raw = BytesMut::new();
    raw.put_u8(VERSION_IDENTITY);
    raw.put_u64(1);
    put_bytes(&mut raw, &[0xff]);
    assert_eq!(
        Proposal::decode(raw.freeze()),
        Err(CodecError::NotText("user"))
    );
}

#[test]
fn keys_and_values_are_not_copied() {
    let p = Proposal {
        id: 1,
        since: None,
        identity: None,
        command: Command::Put(PutRequest {
            key: Bytes::from_static(b"key"),
            value: Bytes::from(vec![7; 1000]),
            ..PutRequest::default()
        }),
    };
    let raw = p.encode();
    let inside = raw.as_ptr_range();
    let Command::Put(put) = Proposal::decode(raw.clone()).unwrap().command else {
        panic!("not a put")
    };
    assert!(inside.contains(&put.value.as_ptr()));
}
