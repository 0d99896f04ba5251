//! Compares what two members said, field by field.
//!
//! Every field of every message counts, unless [`rule`] names it. Nothing is
//! masked elsewhere.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};

use super::{
    answer::{Answer, Part},
    symbol,
};

/// One place where two answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Which part of the answer, then the field: `watch 1[2]: events[0].kv.lease`.
    pub(crate) path: String,
    pub(crate) ours: String,
    pub(crate) peer: String,
}

impl Difference {
    /// Says where without saying which element, so that the same difference is
    /// known again in another program.
    pub(crate) fn place(&self) -> String {
        self.path.chars().filter(|c| !c.is_ascii_digit()).collect()
    }
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The same, element by element.
    Exact,
    /// Another number in each program, but always the same one for the same.
    Mapped,
    /// The same elements in any order.
    AnyOrder,
    /// Close: it counts down while the two are asked one after the other.
    Within(i64),
    /// Both there or both absent.
    Presence,
    /// Not compared.
    Free,
}

/// Seconds the rest of a lease may differ by.
const LEASE_SLACK_SECONDS: i64 = 10;

/// Says how a field is compared, with the reason where that is not exactly.
fn rule(field: &FieldDescriptor) -> Rule {
    match (field.parent_message().name(), field.name()) {
        // Elections before the first request are the members' own affair.
        ("ResponseHeader" | "StatusResponse", "raftTerm" | "raft_term") => Rule::Mapped,
        // etcd walks a Go map (lessor.go, Keys).
        ("LeaseTimeToLiveResponse", "keys") => Rule::AnyOrder,
        // etcd sorts by what is left of each, which is timing (lessor.go, Leases).
        ("LeaseLeasesResponse", "leases") => Rule::AnyOrder,
        ("LeaseTimeToLiveResponse", "TTL") => Rule::Within(LEASE_SLACK_SECONDS),
        // Random.
        ("AuthenticateResponse", "token") => Rule::Presence,
        // Each listens on a port of its own.
        ("Member", "clientURLs") => Rule::Presence,
        // Engines and versions differ by design; indexes count internal entries.
        (
            "StatusResponse",
            "version" | "dbSize" | "dbSizeInUse" | "dbSizeQuota" | "raftIndex" | "raftAppliedIndex"
            | "storageVersion" | "downgradeInfo",
        ) => Rule::Free,
        _ => Rule::Exact,
    }
}

/// Compares answers; remembers the numbers that stand for each other.
#[derive(Debug, Default)]
pub(crate) struct Comparer {
    mapped: BTreeMap<u64, u64>,
}

impl Comparer {
    /// Returns where two answers to one step differ.
    pub(crate) fn compare(&mut self, ours: &Answer, peer: &Answer) -> Vec<Difference> {
        let mut found = Vec::new();
        let (ours, peer) = (by_label(ours), by_label(peer));
        let labels: std::collections::BTreeSet<_> = ours.keys().chain(peer.keys()).collect();
        for label in labels {
            let (a, b) = (ours.get(label), peer.get(label));
            match (a.map(|part| &part.said), b.map(|part| &part.said)) {
                (Some(Ok(a)), Some(Ok(b))) => self.messages(label, a, b, &mut found),
                (Some(Err(a)), Some(Err(b))) if a == b => {}
                _ => found.push(Difference {
                    path: label.clone(),
                    ours: a.map_or_else(nothing, ToString::to_string),
                    peer: b.map_or_else(nothing, ToString::to_string),
                }),
            }
        }
        found
    }

    fn messages(
        &mut self,
        path: &str,
        ours: &DynamicMessage,
        peer: &DynamicMessage,
        found: &mut Vec<Difference>,
    ) {
        for field in ours.descriptor().fields() {
            let path = match path {
                "" => field.name().to_owned(),
                path if path.ends_with(' ') => format!("{path}{}", field.name()),
                path => format!("{path}.{}", field.name()),
            };
            let (a, b) = (ours.get_field(&field), peer.get_field(&field));
            if field.supports_presence() && ours.has_field(&field) != peer.has_field(&field) {
                let show = |message: &DynamicMessage, value| match message.has_field(&field) {
                    true => print(value),
                    false => nothing(),
                };
                found.push(Difference {
                    path,
                    ours: show(ours, &a),
                    peer: show(peer, &b),
                });
                continue;
            }
            self.field(rule(&field), &path, &a, &b, found);
        }
        let unknown = |message: &DynamicMessage| message.unknown_fields().count();
        if unknown(ours) != unknown(peer) {
            found.push(Difference {
                path: format!("{path}.unknown"),
                ours: format!("{:?}", ours.unknown_fields().collect::<Vec<_>>()),
                peer: format!("{:?}", peer.unknown_fields().collect::<Vec<_>>()),
            });
        }
    }

    fn field(
        &mut self,
        rule: Rule,
        path: &str,
        ours: &Value,
        peer: &Value,
        found: &mut Vec<Difference>,
    ) {
        let same = match rule {
            Rule::Free => true,
            Rule::Exact => return self.values(path, ours, peer, found),
            Rule::AnyOrder => {
                let (ours, peer) = (sorted(ours), sorted(peer));
                return self.values(path, &ours, &peer, found);
            }
            Rule::Within(slack) => match (ours.as_i64(), peer.as_i64()) {
                // Below zero is a sign, no time.
                (Some(a), Some(b)) if a < 0 || b < 0 => a == b,
                (Some(a), Some(b)) => a.abs_diff(b) <= slack.unsigned_abs(),
                _ => false,
            },
            Rule::Mapped => match (ours.as_u64(), peer.as_u64()) {
                // Zero is absence, not one more name.
                (Some(a), Some(b)) if a == 0 || b == 0 => a == b,
                (Some(a), Some(b)) => *self.mapped.entry(a).or_insert(b) == b,
                _ => false,
            },
            Rule::Presence => empty(ours) == empty(peer),
        };
        if !same {
            found.push(Difference {
                path: path.to_owned(),
                ours: print(ours),
                peer: print(peer),
            });
        }
    }

    fn values(&mut self, path: &str, ours: &Value, peer: &Value, found: &mut Vec<Difference>) {
        match (ours, peer) {
            (Value::Message(a), Value::Message(b)) => self.messages(path, a, b, found),
            (Value::List(a), Value::List(b)) => {
                for at in 0..a.len().max(b.len()) {
                    let path = format!("{path}[{at}]");
                    match (a.get(at), b.get(at)) {
                        (Some(a), Some(b)) => self.values(&path, a, b, found),
                        (a, b) => found.push(Difference {
                            path,
                            ours: a.map_or_else(nothing, print),
                            peer: b.map_or_else(nothing, print),
                        }),
                    }
                }
            }
            (a, b) if a == b => {}
            (a, b) => found.push(Difference {
                path: path.to_owned(),
                ours: print(a),
                peer: print(b),
            }),
        }
    }
}

/// Parts by label; a label said twice counts on.
fn by_label(answer: &Answer) -> BTreeMap<String, &Part> {
    let mut parts = BTreeMap::new();
    for part in answer {
        let mut label = match part.label.as_str() {
            "" => String::new(),
            label => format!("{label}: "),
        };
        while parts.contains_key(&label) {
            label = format!("next {label}");
        }
        parts.insert(label, part);
    }
    parts
}

fn nothing() -> String {
    "nothing".to_owned()
}

fn print(value: &Value) -> String {
    symbol::to_names(&value.to_string())
}

fn empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::List(list) => {
            let mut list = list.clone();
            list.sort_by_cached_key(ToString::to_string);
            Value::List(list)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{answer::Refusal, wire};

    fn answer(method: &str, text: &str) -> Answer {
        let kind = wire::method(method).unwrap().output();
        let message = DynamicMessage::parse_text_format(kind, text).unwrap();
        vec![Part::new("", Ok(message))]
    }

    fn paths(method: &str, ours: &str, peer: &str) -> Vec<String> {
        Comparer::default()
            .compare(&answer(method, ours), &answer(method, peer))
            .into_iter()
            .map(|difference| difference.path)
            .collect()
    }

    #[test]
    fn any_field_may_differ() {
        let same = r#"header {revision: 3} kvs: [{key: "a", lease: 1}] count: 1"#;
        assert!(paths("KV/Range", same, same).is_empty());
        assert_eq!(
            paths(
                "KV/Range",
                same,
                r#"header {revision: 4} kvs: [{key: "a"}, {key: "b"}] count: 1 more: true"#
            ),
            ["header.revision", "kvs[0].lease", "kvs[1]", "more"]
        );
        assert_eq!(
            paths("KV/Put", "header {}", "header {} prev_kv {}"),
            ["prev_kv"]
        );
    }

    #[test]
    fn errors_are_compared_by_code_and_message() {
        let refusal = |code, message: &str| {
            let message = message.to_owned();
            vec![Part::new("", Err(Refusal { code, message }))]
        };
        let mut comparer = Comparer::default();
        let mut count = |a: &Answer, b: &Answer| comparer.compare(a, b).len();
        assert_eq!(count(&refusal(3, "a"), &refusal(3, "a")), 0);
        assert_eq!(count(&refusal(3, "a"), &refusal(3, "b")), 1);
        assert_eq!(count(&refusal(3, "a"), &refusal(5, "a")), 1);
        assert_eq!(count(&refusal(3, "a"), &answer("KV/Put", "")), 1);
        assert_eq!(count(&refusal(3, "a"), &Vec::new()), 1);
    }

    #[test]
    fn only_named_fields_are_masked() {
        let ttl = "Lease/LeaseTimeToLive";
        assert!(paths(ttl, "TTL: 99 keys: ['a','b']", "TTL: 97 keys: ['b','a']").is_empty());
        assert_eq!(paths(ttl, "TTL: 99", "TTL: 60"), ["TTL"]);
        assert_eq!(paths(ttl, "TTL: 0", "TTL: -1"), ["TTL"]);
        assert_eq!(paths(ttl, "keys: ['a']", "keys: ['b']"), ["keys[0]"]);
        let term = |ours, peer| {
            let text = |term| format!("header {{raft_term: {term}}}");
            (answer("KV/Put", &text(ours)), answer("KV/Put", &text(peer)))
        };
        let mut comparer = Comparer::default();
        for (ours, peer, differences) in [(2, 3, 0), (2, 3, 0), (2, 4, 1), (0, 4, 1)] {
            let (ours, peer) = term(ours, peer);
            assert_eq!(comparer.compare(&ours, &peer).len(), differences);
        }
    }

    #[test]
    fn a_place_is_known_again() {
        let difference = |path: &str| Difference {
            path: path.to_owned(),
            ours: String::new(),
            peer: String::new(),
        };
        assert_eq!(
            difference("watch 1[0]: events[3].kv").place(),
            difference("watch 2[7]: events[12].kv").place()
        );
    }
}
