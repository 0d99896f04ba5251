//! What a user may touch: the union of its roles' permissions, as ranges.
//!
//! A request is permitted if the union covers all it asks for, not only if one
//! permission does: two that touch are as good as one (etcd: `adt.IntervalTree`,
//! Contains). A request without an end is covered only by a grant without one.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::model::{Permission, PermissionKind};

/// Holds what one user may read and write.
#[derive(Debug, Default)]
pub(super) struct Grants {
    pub(super) read: Spans,
    pub(super) write: Spans,
}

impl Grants {
    /// Unites permissions.
    pub(super) fn unite<'a>(permissions: impl Iterator<Item = &'a Permission>) -> Self {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        // One that holds no key, from a backup of an older etcd, permits nothing.
        for permission in permissions.filter(|p| p.is_valid()) {
            let span = (permission.key.clone(), end_of(permission));
            if permission.kind != PermissionKind::Write {
                read.push(span.clone());
            }
            if permission.kind != PermissionKind::Read {
                write.push(span);
            }
        }
        Self {
            read: Spans::unite(read),
            write: Spans::unite(write),
        }
    }
}

/// Returns the exclusive end; `None` is no end at all.
fn end_of(permission: &Permission) -> Option<Bytes> {
    match permission.range_end.as_ref() {
        [] => {
            let mut end = BytesMut::with_capacity(permission.key.len() + 1);
            end.put_slice(&permission.key);
            end.put_u8(0);
            Some(end.freeze())
        }
        [0] => None,
        _ => Some(permission.range_end.clone()),
    }
}

/// Holds ranges of keys, sorted, with a gap between any two.
#[derive(Debug, Default)]
pub(super) struct Spans(Vec<(Bytes, Option<Bytes>)>);

impl Spans {
    fn unite(mut spans: Vec<(Bytes, Option<Bytes>)>) -> Self {
        spans.sort_by(|a, b| a.0.cmp(&b.0));
        let mut united: Vec<(Bytes, Option<Bytes>)> = Vec::with_capacity(spans.len());
        for (begin, end) in spans {
            match united.last_mut() {
                Some((_, None)) => break,
                Some((_, Some(last))) if begin <= *last => match end {
                    Some(end) if end <= *last => {}
                    longer => united.last_mut().expect("it was just looked at").1 = longer,
                },
                _ => united.push((begin, end)),
            }
        }
        Self(united)
    }

    /// Reports whether all of a request's range is in one of the spans;
    /// `range_end` as requests have it.
    pub(super) fn cover(&self, key: &[u8], range_end: &[u8]) -> bool {
        let after = self.0.partition_point(|(begin, _)| begin.as_ref() <= key);
        let Some((_, end)) = after.checked_sub(1).map(|at| &self.0[at]) else {
            return false;
        };
        let Some(end) = end else {
            // It begins at or before the key and never ends.
            return true;
        };
        let holds_key = key < end.as_ref();
        match range_end {
            [] => holds_key,
            [0] => false,
            // An end before the key asks for nothing; who may read the key may ask it
            // (etcd: Contains looks at where the two begin, and at the ends).
            _ => holds_key && range_end <= end.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn read(key: &'static str, range_end: &'static str) -> Permission {
        Permission {
            kind: PermissionKind::Read,
            key: Bytes::from_static(key.as_bytes()),
            range_end: Bytes::from_static(range_end.as_bytes()),
        }
    }

    fn spans(permissions: &[Permission]) -> Spans {
        Grants::unite(permissions.iter()).read
    }

    #[test]
    fn what_touches_is_one() {
        let touching = spans(&[read("c", "e"), read("a", "c")]);
        assert!(touching.cover(b"a", b"e"));
        assert!(touching.cover(b"b", b"d"));
        assert!(!touching.cover(b"a", b"f"));
        let apart = spans(&[read("a", "c"), read("d", "e")]);
        assert!(!apart.cover(b"a", b"e"));
        assert!(!apart.cover(b"c", b""));
        let keys = spans(&[read("a", ""), read("a\0", "b")]);
        assert!(keys.cover(b"a", b"b"));
    }

    #[test]
    fn no_end_needs_no_end() {
        let single = spans(&[read("a", "")]);
        assert!(single.cover(b"a", b""));
        assert!(
            single.cover(b"a", b"a"),
            "nothing is asked for, within the span"
        );
        assert!(!single.cover(b"b", b"b"));
        assert!(single.cover(b"a", b"\0a"), "nor here");
        assert!(spans(&[read("b", "\0")]).cover(b"c", b"a"));
        assert!(!spans(&[read("b", "\0")]).cover(b"a", b"a"));
        assert!(!single.cover(b"a", b"\0"));
        assert!(!single.cover(b"a", b"b"));
        assert!(!spans(&[read("a", "\u{7f}")]).cover(b"a", b"\0"));
        let open = spans(&[read("b", "\0"), read("c", "d")]);
        assert!(open.cover(b"b", b"\0"));
        assert!(open.cover(b"zz", b""));
        assert!(!open.cover(b"a", b"\0"));
        assert!(spans(&[read("\0", "\0")]).cover(b"\0", b"\0"));
    }

    #[test]
    fn kinds_are_kept_apart() {
        let mut write = read("w", "");
        write.kind = PermissionKind::Write;
        let mut both = read("b", "");
        both.kind = PermissionKind::ReadWrite;
        let grants = Grants::unite([&write, &both, &read("r", "")].into_iter());
        for (key, can_read, can_write) in [
            (b"r", true, false),
            (b"w", false, true),
            (b"b", true, true),
            (b"x", false, false),
        ] {
            assert_eq!(grants.read.cover(key, b""), can_read);
            assert_eq!(grants.write.cover(key, b""), can_write);
        }
    }

    #[test]
    fn a_permission_for_no_key_permits_nothing() {
        assert!(!spans(&[read("", "\0")]).cover(b"a", b""));
        assert!(!spans(&[read("b", "a")]).cover(b"b", b""));
    }

    proptest! {
        /// Over keys of one letter, a union covers what every letter of is in some
        /// permission: the naive rule.
        #[test]
        fn covers_what_it_holds_letter_by_letter(
            given in prop::collection::vec((b'a'..b'h', b'a'..b'i'), 0..6),
            asked in (b'a'..b'h', b'a'..b'i'),
        ) {
            let permission = |(from, to): (u8, u8)| Permission {
                kind: PermissionKind::Read,
                key: Bytes::from(vec![from]),
                range_end: Bytes::from(vec![to]),
            };
            let permissions: Vec<_> = given.iter().map(|p| permission(*p)).collect();
            let held: BTreeSet<u8> = given.iter().flat_map(|(from, to)| *from..*to).collect();
            let (from, to) = asked;
            prop_assume!(from < to);
            let whole = (from..to).all(|letter| held.contains(&letter));
            prop_assert_eq!(spans(&permissions).cover(&[from], &[to]), whole);
        }
    }
}
