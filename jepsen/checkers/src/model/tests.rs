//! The model against answers that etcd 3.5 gives.

use super::*;
use crate::history::*;

fn ok(store: &mut Store, request: impl Into<Request>) -> Reply {
    store.reply(&request.into()).unwrap()
}

fn refused(store: &mut Store, request: impl Into<Request>) -> Refusal {
    store.reply(&request.into()).unwrap_err()
}

#[test]
fn writes_count_versions_and_deletes_start_over() {
    let mut store = Store::new();
    assert_eq!(ok(&mut store, put("a", "1")), wrote(2));
    let body = Body::Put {
        prev: Some(Box::new(kv("a", "1", 2, 2, 1))),
    };
    assert_eq!(ok(&mut store, put("a", "2").prev()).body, body);
    assert_eq!(ok(&mut store, get("a")), found(3, [kv("a", "2", 2, 3, 2)]));
    assert_eq!(ok(&mut store, delete("b")), deleted(3, 0));
    assert_eq!(ok(&mut store, delete("a")), deleted(4, 1));
    assert_eq!(ok(&mut store, get("a")), found(4, []));
    assert_eq!(ok(&mut store, put("a", "3")), wrote(5));
    assert_eq!(ok(&mut store, get("a")), found(5, [kv("a", "3", 5, 5, 1)]));
    let past = ok(&mut store, get("a").at(3));
    assert_eq!(past, found(5, [kv("a", "2", 2, 3, 2)]));
    assert_eq!(ok(&mut store, get("a").at(4)), found(5, []));
    assert_eq!(refused(&mut store, get("a").at(6)), Refusal::FutureRevision);
}

#[test]
fn compaction_forbids_what_was_before() {
    let mut store = Store::new();
    for value in ["1", "2", "3"] {
        ok(&mut store, put("a", value));
    }
    let compact = |revision| Request::Compact { revision };
    assert_eq!(refused(&mut store, compact(5)), Refusal::FutureRevision);
    assert_eq!(ok(&mut store, compact(3)), done(4));
    assert_eq!(refused(&mut store, compact(3)), Refusal::Compacted);
    assert_eq!(refused(&mut store, get("a").at(2)), Refusal::Compacted);
    let at_it = ok(&mut store, get("a").at(3));
    assert_eq!(at_it, found(4, [kv("a", "2", 2, 3, 2)]));
}

#[test]
fn limits_cut_and_counts_do_not() {
    let mut store = Store::new();
    for key in ["p/a", "p/b", "p/c", "q"] {
        ok(&mut store, put(key, "v"));
    }
    let all = prefix("p/");
    let two = Range {
        limit: 2,
        ..all.clone()
    };
    let body = Body::Range {
        kvs: vec![kv("p/a", "v", 2, 2, 1), kv("p/b", "v", 3, 3, 1)],
        count: 3,
        more: true,
    };
    assert_eq!(ok(&mut store, two).body, body);
    let count = Range {
        count_only: true,
        ..all.clone()
    };
    let body = Body::Range {
        kvs: Vec::new(),
        count: 3,
        more: false,
    };
    assert_eq!(ok(&mut store, count).body, body);
    let empty = Range {
        end: "a".into(),
        ..all
    };
    assert_eq!(ok(&mut store, empty), found(5, []));
}

#[test]
fn a_transaction_is_one_revision_decided_before_it_writes() {
    let mut store = Store::new();
    ok(&mut store, put("a", "1"));
    let nested = txn()
        .when("b", Is::Equal, Target::Create(0))
        .then(put("c", "absent"))
        .or_else(put("c", "present"));
    let outer = txn()
        .when("a", Is::Equal, Target::Value("1".into()))
        .then(put("b", "2"))
        .then(prefix("b"))
        .then(nested)
        .or_else(get("a"));
    let reply = ok(&mut store, outer.clone());
    let inner = decided(0, true, [wrote(0)]);
    let read = found(0, [kv("b", "2", 3, 3, 1)]);
    assert_eq!(reply, decided(3, true, [wrote(0), read, inner]));
    let c = kv("c", "absent", 3, 3, 1);
    assert_eq!(ok(&mut store, get("c")), found(3, [c]));
    ok(&mut store, put("a", "9"));
    let read = found(0, [kv("a", "9", 2, 4, 2)]);
    assert_eq!(ok(&mut store, outer), decided(4, false, [read]));
}

#[test]
fn absent_keys_compare_as_zero_but_not_as_values() {
    let store = Store::new();
    let holds = |is, to| {
        store.holds(&Compare {
            key: "a".into(),
            end: Blob::EMPTY,
            is,
            to,
        })
    };
    assert!(holds(Is::Equal, Target::Mod(0)));
    assert!(holds(Is::Less, Target::Version(1)));
    assert!(!holds(Is::NotEqual, Target::Value("x".into())));
    assert!(!holds(Is::Equal, Target::Value("".into())));
}

#[test]
fn a_lease_takes_its_keys_along() {
    let mut store = Store::new();
    assert_eq!(
        refused(&mut store, put("a", "1").with(7)),
        Refusal::LeaseNotFound
    );
    ok(&mut store, grant(7, 5));
    assert_eq!(refused(&mut store, grant(7, 5)), Refusal::LeaseExists);
    ok(&mut store, put("a", "1").with(7));
    ok(&mut store, put("b", "1").with(7));
    ok(&mut store, put("b", "2"));
    let applied = store.apply(&Request::Revoke { id: 7 }).unwrap();
    assert_eq!(applied.events.len(), 1, "b was put without the lease");
    assert_eq!(applied.events[0].kv.key, "a".into());
    assert_eq!(store.revision(), 5);
    let again = refused(&mut store, Request::Revoke { id: 7 });
    assert_eq!(again, Refusal::LeaseNotFound);
}
