//! What is wrong with the fields of a body, as it is told to the client: which stand
//! twice, in the words of Go's readers, and in which order it is all said.
//!
//! A body is read a second time for this, so that one that is in order pays nothing.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::{MAX_DUPLICATES, Segment, path_to};
use crate::fieldmerge::gotext;

/// Words the unknown and the repeated fields of a JSON body of a built-in kind: in the
/// order in which they stand, and one that is both only as unknown.
pub fn complaints(bytes: &[u8], unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let duplicates = duplicates.iter().filter(|path| !within(path, unknown));
    let mut walk = Walk {
        path: Vec::new(),
        unknown: unknown.iter().map(String::as_str).collect(),
        duplicates: duplicates.map(String::as_str).collect(),
        found: Vec::new(),
    };
    if walk.unknown.len() + walk.duplicates.len() > 1 {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        // It was read once without an error; what were not found is said all the same.
        let _read = Field(&mut walk).deserialize(&mut reader).is_ok();
    }
    let Walk {
        unknown,
        duplicates,
        mut found,
        ..
    } = walk;
    found.extend(duplicates.into_iter().map(duplicate));
    found.extend(unknown.into_iter().map(super::repeated::unknown));
    found
}

/// Words a field that the kind does not have.
pub fn unknown(path: &str) -> String {
    format!("unknown field {path:?}")
}

/// Words a field that stands twice in JSON.
pub fn duplicate(path: &str) -> String {
    format!("duplicate field {path:?}")
}

/// Tells whether a path is one of these, or leads on from one.
fn within(path: &str, fields: &[String]) -> bool {
    fields.iter().any(|field| {
        path.strip_prefix(field.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// A walk through a JSON body past the fields that are looked for.
struct Walk<'a> {
    path: Vec<Segment>,
    unknown: BTreeSet<&'a str>,
    duplicates: BTreeSet<&'a str>,
    found: Vec<String>,
}

impl Walk<'_> {
    fn meet(&mut self, key: &str, again: bool) {
        let path = path_to(&self.path, key);
        if self.unknown.remove(path.as_str()) {
            self.found.push(unknown(&path));
        } else if again && self.duplicates.remove(path.as_str()) {
            self.found.push(duplicate(&path));
        }
    }
}

struct Field<'w, 'a>(&'w mut Walk<'a>);

impl<'de> DeserializeSeed<'de> for Field<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Says nothing of a value that has no fields.
macro_rules! nothing_of {
    ($value:expr; $($visit:ident: $ty:ty),*) => {
        $(fn $visit<E>(self, _: $ty) -> Result<Self::Value, E> {
            Ok($value)
        })*

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

impl<'de> Visitor<'de> for Field<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    nothing_of!((); visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        self.0.path.push(Segment::Index(at));
        while items.next_element_seed(Field(self.0))?.is_some() {
            at += 1;
            self.0.path.pop();
            self.0.path.push(Segment::Index(at));
        }
        self.0.path.pop();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = pairs.next_key::<String>()? {
            self.0.meet(&key, seen.contains(&key));
            seen.insert(key.clone());
            self.0.path.push(Segment::Key(key));
            pairs.next_value_seed(Field(self.0))?;
            self.0.path.pop();
        }
        Ok(())
    }
}

/// Returns a line for each key that a map of a YAML body has already, in the words and
/// the order of Go's reader: it says the line of the value, after what is within it.
pub(super) fn lines(
    bytes: &[u8],
    options: serde_saphyr::Options,
) -> Result<Vec<String>, serde_saphyr::Error> {
    let below: Below = serde_saphyr::from_slice_with_options(bytes, options)?;
    Ok(below.0)
}

/// The lines that are said of what is in a node.
struct Below(Vec<String>);

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InNode)
    }
}

struct InNode;

impl<'de> Visitor<'de> for InNode {
    type Value = Below;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML node")
    }

    nothing_of!(Below(Vec::new()); visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_none<E>(self) -> Result<Below, E> {
        Ok(Below(Vec::new()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Below, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Below, A::Error> {
        let mut said = Vec::new();
        while let Some(Below(more)) = items.next_element()? {
            say(&mut said, more);
        }
        Ok(Below(said))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Below, A::Error> {
        let (mut said, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = pairs.next_key::<Key>()? {
            let node: Spanned<Below> = pairs.next_value()?;
            say(&mut said, node.value.0);
            if seen.contains(&key) {
                let line = node.referenced.line();
                let text = format!("line {line}: key {} already set in map", key.text());
                say(&mut said, vec![text]);
            }
            seen.insert(key);
        }
        Ok(Below(said))
    }
}

fn say(said: &mut Vec<String>, more: Vec<String>) {
    let room = MAX_DUPLICATES.saturating_sub(said.len());
    said.extend(more.into_iter().take(room));
}

/// A key as Go reads it: `1` and `"1"` are two.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Text(String),
    /// What is not text, as Go prints it.
    Other(String),
}

impl Key {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => gotext::quoted(text),
            Self::Other(text) => text.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AsKey)
    }
}

struct AsKey;

impl Visitor<'_> for AsKey {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Key, E> {
        Ok(Key::Other(v.to_string()))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Key, E> {
        Ok(Key::Other(v.to_string()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Key, E> {
        Ok(Key::Other(v.to_string()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Key, E> {
        Ok(Key::Other(v.to_string()))
    }

    fn visit_str<E>(self, v: &str) -> Result<Key, E> {
        Ok(Key::Text(v.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Key, E> {
        Ok(Key::Other("<nil>".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, yaml_duplicates};
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn lines_of(text: &str) -> Vec<String> {
        yaml_duplicates(text.as_bytes(), LIMIT).unwrap()
    }

    #[test]
    fn yaml_is_told_with_lines() {
        let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n  name: b\nspec:\n  paused: true\n  template:\n    spec:\n      containers:\n      - name: c\n        imagePullPolicy: Always\n        imagePullPolicy: Never\n  paused: false\n";
        assert_eq!(
            lines_of(deployment),
            [
                "line 5: key \"name\" already set in map",
                "line 13: key \"imagePullPolicy\" already set in map",
                "line 14: key \"paused\" already set in map",
            ]
        );
    }

    #[test]
    fn the_line_is_that_of_the_value_and_comes_after_what_is_in_it() {
        for (text, want) in [
            (
                "a: 1\na:\n  b: 1\n  b: 2\n",
                &[
                    "line 4: key \"b\" already set in map",
                    "line 3: key \"a\" already set in map",
                ][..],
            ),
            ("a: 1\na:\n- 1\n", &["line 3: key \"a\" already set in map"]),
            (
                "a: 1\na:\n\n  {x: 1}\n",
                &["line 4: key \"a\" already set in map"],
            ),
            (
                "a: 1\na: 2\na: 3\n",
                &[
                    "line 2: key \"a\" already set in map",
                    "line 3: key \"a\" already set in map",
                ],
            ),
            ("1: a\n\"1\": b\n", &[]),
            ("1: a\n1: b\n", &["line 2: key 1 already set in map"]),
            (
                "true: a\ntrue: b\n",
                &["line 2: key true already set in map"],
            ),
            (
                "\"a\\nb\": 1\n\"a\\nb\": 2\n",
                &["line 2: key \"a\\nb\" already set in map"],
            ),
            (
                "x: &x {a: 1}\nb: 1\nb: *x\n",
                &["line 3: key \"b\" already set in map"],
            ),
            // JSON is YAML, its tabs included.
            (
                "{\n\t\"a\": 1,\n\t\"a\": 2\n}",
                &["line 3: key \"a\" already set in map"],
            ),
        ] {
            assert_eq!(lines_of(text), want, "{text}");
        }
    }

    #[test]
    fn json_is_told_in_the_order_of_the_body() {
        let body = br#"{"metadata":{"name":"a","name":"b","odd":1},
            "spec":{"un1":1,"un2":{"x":1,"x":2},"un2":3,"paused":true,"paused":false,
            "list":[{"z":1,"name":1,"name":2}]}}"#;
        let duplicates = decode(body, LIMIT).unwrap().duplicates;
        let unknown = ["metadata.odd", "spec.list[0].z", "spec.un1", "spec.un2"].map(String::from);
        assert_eq!(
            complaints(body, &unknown, &duplicates),
            [
                "duplicate field \"metadata.name\"",
                "unknown field \"metadata.odd\"",
                "unknown field \"spec.un1\"",
                "unknown field \"spec.un2\"",
                "duplicate field \"spec.paused\"",
                "unknown field \"spec.list[0].z\"",
                "duplicate field \"spec.list[0].name\"",
            ]
        );
    }
}
