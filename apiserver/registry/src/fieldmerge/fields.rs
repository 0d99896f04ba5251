//! `FieldsV1`: a set of paths as JSON. Every element is a key; below a key whose
//! own path is in the set and that goes on stands a `.`; a key that does not go
//! on is a member by itself.

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use super::element::{FieldsError, PathElement};
use super::gotext;
use super::set::{Node, Set};

impl Set {
    /// Writes the set as `FieldsV1`, byte for byte as Kubernetes does: elements
    /// in their own order, which is not that of their texts (port 80 before 443).
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(false, &mut out);
        out
    }

    fn write(&self, member: bool, out: &mut String) {
        out.push('{');
        let mut first = true;
        let mut comma = |out: &mut String| {
            if !std::mem::take(&mut first) {
                out.push(',');
            }
        };
        if member && !self.is_empty() {
            comma(out);
            out.push_str("\".\":{}");
        }
        for (element, node) in &self.nodes {
            comma(out);
            let mut key = String::new();
            element.encode(&mut key);
            gotext::json_string(out, &key, false);
            out.push(':');
            node.below.write(node.member, out);
        }
        out.push('}');
    }

    /// Returns the set as `FieldsV1` inside an object. What writes the object
    /// decides the order of its keys.
    pub fn to_value(&self) -> Value {
        Value::Object(self.value_of(false))
    }

    fn value_of(&self, member: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if member && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, node) in &self.nodes {
            let mut key = String::new();
            element.encode(&mut key);
            map.insert(key, Value::Object(node.below.value_of(node.member)));
        }
        map
    }

    /// Reads `FieldsV1`. Elements of a type that is not known are skipped.
    pub fn from_value(value: &Value) -> Result<Self, FieldsError> {
        Ok(read(value, 0)?.below)
    }

    /// Reads the text of `FieldsV1`.
    pub fn from_json(text: &str) -> Result<Self, FieldsError> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| FieldsError::Content(e.to_string()))?;
        Self::from_value(&value)
    }
}

/// Reads what stands below a key: whether the key itself is a member, and what
/// goes on from it.
fn read(value: &Value, depth: usize) -> Result<Node, FieldsError> {
    let mut node = Node::default();
    let map = match value {
        Value::Object(map) if depth < MAX_DEPTH => map,
        Value::Object(_) => return Err(FieldsError::TooDeep),
        Value::Null => &Map::new(),
        _ => return Err(FieldsError::NoObject),
    };
    for (key, inner) in map {
        if key == "." {
            node.member = true;
        } else if let Some(element) = PathElement::decode(key)? {
            let read = read(inner, depth + 1)?;
            // Two spellings of one key (`k:` with spaces) are one element.
            let mut both = Set::new();
            both.put(element, read);
            node.below = std::mem::take(&mut node.below).union(&both);
        }
    }
    node.member |= node.below.is_empty();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::set::of_fields;
    use super::*;

    #[test]
    fn sets_are_written_as_kubernetes_writes_them() {
        let mut set = of_fields(&["spec", "spec.replicas", "spec.a\"<"]);
        for port in [443, 80, 8080] {
            set.insert(&[
                PathElement::field("ports"),
                PathElement::key([("port", port)]),
            ]);
        }
        set.insert(&[
            PathElement::field("ports"),
            PathElement::key([("port", 80)]),
            PathElement::field("name"),
        ]);
        let text = concat!(
            r#"{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":443}":{},"#,
            r#""k:{\"port\":8080}":{}},"f:spec":{".":{},"f:a\"<":{},"f:replicas":{}}}"#
        );
        assert_eq!(set.to_json(), text);
        assert_eq!(Set::from_json(text), Ok(set.clone()));
        assert_eq!(Set::from_value(&set.to_value()), Ok(set));
        assert_eq!(Set::new().to_json(), "{}");
        assert_eq!(Set::from_json("{}"), Ok(Set::new()));
    }

    #[test]
    fn odd_sets_are_read_as_kubernetes_reads_them() {
        for (odd, plain) in [
            (r#"{".":{},"f:a":{}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{"q:later":{"f:b":{}}}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":null}"#, r#"{"f:a":{}}"#),
            (
                r#"{"f:b":{},"f:a":{"f:c":{}}}"#,
                r#"{"f:a":{"f:c":{}},"f:b":{}}"#,
            ),
            (
                r#"{"k:{\"a\":1}":{"f:x":{}},"k:{ \"a\":1}":{"f:y":{}}}"#,
                r#"{"k:{\"a\":1}":{"f:x":{},"f:y":{}}}"#,
            ),
        ] {
            assert_eq!(Set::from_json(odd).unwrap().to_json(), plain, "{odd}");
        }
        for bad in [
            "",
            "[]",
            r#"{"f:a":1}"#,
            r#"{"a":{}}"#,
            r#"{"k:x":{}}"#,
            r#"{"x":{}}"#,
        ] {
            assert!(Set::from_json(bad).is_err(), "{bad}");
        }
        let mut deep = json!({});
        for _ in 0..2 * MAX_DEPTH {
            deep = json!({ "f:a": deep });
        }
        assert_eq!(Set::from_value(&deep), Err(FieldsError::TooDeep));
    }
}
