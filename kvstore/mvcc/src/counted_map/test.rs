//! The counted map against `BTreeMap`.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

impl Weigh for u8 {
    fn weight(&self) -> u64 {
        u64::from(*self)
    }
}

fn key(n: u16) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

/// Keys that try the heads: of all lengths, with zeros, alike for long.
fn odd_key(n: u16) -> Vec<u8> {
    let n = usize::from(n);
    let stem: &[u8] = [&b""[..], b"a", b"a\0\0", b"aaaaaaaaaaaaaaaaaaaaaaaa", b"b/"][n % 5];
    let mut key = stem.to_vec();
    key.extend(std::iter::repeat_n([0, b'a', 255][n % 3], n / 15 % 20));
    key.extend_from_slice(&(n as u16 / 7).to_be_bytes());
    key
}

/// Checks the invariants below a node; returns its weight and height.
fn audit<V: Weigh>(node: &Node<V>, root: bool) -> (u64, usize) {
    match node {
        Node::Leaf(leaf) => {
            assert!(leaf.keys.len() <= LEAF_MAX);
            leaf.keys.audit();
            (leaf.values.iter().map(V::weight).sum(), 0)
        }
        Node::Inner(inner) => {
            assert!(inner.children.len() <= INNER_MAX);
            assert!(!root || inner.children.len() > 1);
            assert_eq!(inner.children.len(), inner.keys.len() + 1);
            inner.keys.audit();
            let below: Vec<_> = inner.children.iter().map(|c| audit(c, false)).collect();
            assert_eq!(inner.weights, below.iter().map(|b| b.0).collect::<Vec<_>>());
            assert!(below.iter().all(|b| b.1 == below[0].1), "one height");
            (inner.weights.iter().sum(), below[0].1 + 1)
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Upsert(u16, u8),
    Modify(u16, u8),
    Remove(u16),
    RemoveRun(u16, u16),
    InsertRun(u16, u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2000u16, 0..2u8).prop_map(|(k, v)| Op::Upsert(k, v)),
        2 => (0..2000u16, 0..2u8).prop_map(|(k, v)| Op::Modify(k, v)),
        2 => (0..2000u16).prop_map(Op::Remove),
        1 => (0..2000u16, 1..400u16).prop_map(|(k, n)| Op::RemoveRun(k, n)),
        2 => (0..2000u16, 1..400u16).prop_map(|(k, n)| Op::InsertRun(k, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn behaves_as_a_sorted_map(ops in vec(op(), 1..60), probes in vec((0..2400u16, 0..2400u16), 8)) {
        check(&ops, &probes, key);
    }

    #[test]
    fn odd_keys_too(ops in vec(op(), 1..60), probes in vec((0..2400u16, 0..2400u16), 8)) {
        check(&ops, &probes, odd_key);
    }
}

fn check(ops: &[Op], probes: &[(u16, u16)], key: fn(u16) -> Vec<u8>) {
    let mut map = CountedMap::<u8>::new();
    let mut model = BTreeMap::<Vec<u8>, u8>::new();
    for op in ops.iter().cloned() {
        match op {
            Op::Upsert(k, v) => {
                map.upsert(&key(k), |_, e| *e = v);
                model.insert(key(k), v);
            }
            Op::Modify(k, v) => {
                let hit = map.modify(&key(k), |_, e| *e = v).is_some();
                assert_eq!(hit, model.contains_key(&key(k)));
                if hit {
                    model.insert(key(k), v);
                }
            }
            Op::Remove(k) => assert_eq!(map.remove(&key(k)), model.remove(&key(k))),
            Op::RemoveRun(k, n) => {
                for k in k..k + n {
                    assert_eq!(map.remove(&key(k)), model.remove(&key(k)));
                }
            }
            Op::InsertRun(k, n) => {
                for k in k..k + n {
                    map.upsert(&key(k), |_, e| *e = 1);
                    model.insert(key(k), 1);
                }
            }
        }
        let (weight, _) = audit(&map.root, true);
        assert_eq!(weight, map.weight());
        assert_eq!(map.len(), model.len());
    }
    for (a, b) in probes.iter().copied() {
        let (from, to) = (key(a), key(b));
        let open = b % 5 == 0;
        let want: Vec<_> = model
            .range(from.clone()..)
            .take_while(|(k, _)| open || **k < to)
            .map(|(k, v)| (k.clone(), *v))
            .collect();
        let end = (!open).then_some(to.as_slice());
        let got: Vec<_> = map
            .range(&from, end)
            .map(|(k, v)| (k.to_vec(), *v))
            .collect();
        assert_eq!(
            map.count(&from, end),
            want.iter().map(|w| u64::from(w.1)).sum::<u64>()
        );
        assert_eq!(got, want);
        assert_eq!(map.get(&from), model.get(&from));
    }
}

#[test]
fn ascending_keys_fill_leaves() {
    let mut map = CountedMap::<u8>::new();
    for k in 0..10_000 {
        map.upsert(&key(k), |_, e| *e = 1);
    }
    let (_, height) = audit(&map.root, true);
    assert_eq!(height, 2, "10,000 keys fit 157 full leaves below 3 nodes");
    for k in 0..10_000 {
        assert_eq!(map.remove(&key(k)), Some(1));
    }
    assert_eq!((map.len(), map.weight()), (0, 0));
    assert!(map.range(b"", None).next().is_none());
}
