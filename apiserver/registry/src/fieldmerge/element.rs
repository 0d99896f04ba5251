//! Path elements: how a field, or an item of a list, is named inside the value
//! that contains it; and the order in which Kubernetes sorts them.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Number, Value};

use super::gotext;

/// A JSON value as part of a path: equal and ordered as structured-merge-diff
/// has it. Numbers compare as numbers, whether or not they have a point; kinds
/// order as number, string, boolean, list, map, null.
#[derive(Clone, Debug)]
pub struct Literal(pub Value);

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Orders two values as [`Literal`] does.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare(a, b));
            first_difference(pairs).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_maps(a, b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

/// Tells whether two values are the same, whatever the order of their members.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            // Members come sorted, unless somebody asks for them as they stand: most are
            // found where they are looked at anyway.
            let found = |(name, a): (&String, &Value), (there, beside): (&String, &Value)| {
                let b = match there == name {
                    true => Some(beside),
                    false => b.get(name),
                };
                b.is_some_and(|b| same(a, b))
            };
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(member, beside)| found(member, beside))
        }
        (a, b) => compare(a, b).is_eq(),
    }
}

fn compare_maps(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let (left, right) = (gotext::sorted(a), gotext::sorted(b));
    let pairs = left
        .iter()
        .zip(&right)
        .map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare(av, bv)));
    first_difference(pairs).then(a.len().cmp(&b.len()))
}

fn first_difference(mut pairs: impl Iterator<Item = Ordering>) -> Ordering {
    pairs
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let integer = |n: &Number| {
        n.as_i64()
            .map(i128::from)
            .or_else(|| n.as_u64().map(i128::from))
    };
    let float = |n: &Number| n.as_f64().unwrap_or_default();
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_mixed(a, float(b)),
        (None, Some(b)) => compare_mixed(b, float(a)).reverse(),
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

/// Compares an integer with a float exactly: where the float has no room for
/// the integer's last digits it is one itself. A rounding comparison would be
/// no order.
fn compare_mixed(integer: i128, float: f64) -> Ordering {
    let rough = (integer as f64)
        .partial_cmp(&float)
        .unwrap_or(Ordering::Equal);
    rough.then_with(|| integer.cmp(&(float as i128)))
}

/// Selects a field or an item inside the value that contains it. The order of
/// the variants, and of what they hold, is the order in which they are sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A field of a struct, or a key of a map (`f:`).
    Field(String),
    /// The item of a list of type `map` that has these keys, sorted by name (`k:`).
    Key(Vec<(String, Literal)>),
    /// The item of a set (`v:`).
    Value(Literal),
    /// The item of an atomic list at a place (`i:`).
    Index(i64),
}

/// A path from the root of an object.
pub type Path = Vec<PathElement>;

/// Why a text is no path element, or a JSON value no set of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A key is shorter than its two characters of type.
    #[error("key must be 2 characters long: {0:?}")]
    Short(String),
    /// A key's second character is no colon.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// What follows the type is not what the type has.
    #[error("parsing key as path element: {0}")]
    Content(String),
    /// A level of the set is no JSON object.
    #[error("expect a JSON object in a set of fields")]
    NoObject,
    /// The set nests too deep.
    #[error("the set of fields nests deeper than {} levels", super::MAX_DEPTH)]
    TooDeep,
}

impl PathElement {
    /// Names a field.
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// Names the item of a list by its keys, in any order.
    pub fn key<N: Into<String>, V: Into<Value>>(keys: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|(name, value)| (name.into(), Literal(value.into())))
            .collect();
        keys.sort();
        Self::Key(keys)
    }

    /// Names the item of a set.
    pub fn value(value: impl Into<Value>) -> Self {
        Self::Value(Literal(value.into()))
    }

    /// Appends the key that stands for this element in `FieldsV1`.
    pub fn encode(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(keys) => {
                out.push_str("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    gotext::json_string(out, name, false);
                    out.push(':');
                    gotext::json_value(out, &value.0);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                gotext::json_value(out, &value.0);
            }
            Self::Index(at) => out.push_str(&format!("i:{at}")),
        }
    }

    /// Parses a key of `FieldsV1`. `None` is a type that is not known: a later
    /// version may have it, and it is skipped.
    pub fn decode(text: &str) -> Result<Option<Self>, FieldsError> {
        let content = |error: String| FieldsError::Content(error);
        let (kind, rest) = match text.as_bytes() {
            [_, _, ..] if !text.is_char_boundary(2) => {
                return Err(FieldsError::NoColon(text.to_owned()));
            }
            [kind, b':', ..] => (*kind, &text[2..]),
            [_, _, ..] => return Err(FieldsError::NoColon(text.to_owned())),
            _ => return Err(FieldsError::Short(text.to_owned())),
        };
        let json = || serde_json::from_str::<Value>(rest).map_err(|e| content(e.to_string()));
        Ok(Some(match kind {
            b'f' => Self::field(rest),
            b'v' => Self::value(json()?),
            b'k' => match json()? {
                Value::Object(keys) => Self::key(keys),
                other => return Err(content(format!("expect an object, found {other}"))),
            },
            b'i' => Self::Index(
                rest.parse()
                    .map_err(|e| content(format!("{e}: {rest:?}")))?,
            ),
            _ => return Ok(None),
        }))
    }
}

impl fmt::Display for PathElement {
    /// Formats as conflicts and errors name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        match self {
            Self::Field(name) => return write!(f, ".{name}"),
            Self::Index(at) => return write!(f, "[{at}]"),
            Self::Value(value) => {
                text.push('=');
                gotext::literal(&mut text, &value.0);
            }
            Self::Key(keys) => {
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    text.push_str(name);
                    text.push('=');
                    gotext::literal(&mut text, &value.0);
                }
            }
        }
        write!(f, "[{text}]")
    }
}

/// Formats a path: `.spec.template.spec.containers[name="app"].image`.
pub fn display(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encoded(element: &PathElement) -> String {
        let mut out = String::new();
        element.encode(&mut out);
        out
    }

    #[test]
    fn elements_are_written_and_read() {
        for text in [
            "f:",
            "f:a.b/c\"d",
            r#"k:{"name":"app"}"#,
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            "k:{}",
            r#"v:"x""#,
            "v:1",
            "v:1.5",
            "v:true",
            "v:null",
            "i:0",
            "i:-7",
        ] {
            let element = PathElement::decode(text).unwrap().unwrap();
            assert_eq!(encoded(&element), text);
        }
        assert_eq!(PathElement::decode("x:1"), Ok(None));
        for bad in [
            "", "f", "fa", "é", "aé", "v:", "v:{", "v:1 2", "k:1", "k:null", "i:x", "i:",
        ] {
            assert!(PathElement::decode(bad).is_err(), "{bad:?}");
        }
        let spaced = PathElement::decode(r#"k:{ "b": 1.0, "a": "<" }"#)
            .unwrap()
            .unwrap();
        assert_eq!(encoded(&spaced), r#"k:{"a":"\u003c","b":1}"#);
    }

    #[test]
    fn paths_read_as_in_conflicts() {
        let path = [
            PathElement::field("spec"),
            PathElement::field("containers"),
            PathElement::key([("name", "app")]),
            PathElement::field("ports"),
            PathElement::key([("protocol", json!("TCP")), ("containerPort", json!(80))]),
        ];
        assert_eq!(
            display(&path),
            r#".spec.containers[name="app"].ports[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(display(&[PathElement::value("a\"b")]), r#"[="a\"b"]"#);
        assert_eq!(display(&[PathElement::Index(3)]), "[3]");
    }

    #[test]
    fn elements_are_sorted_by_kind_and_then_by_meaning() {
        let sorted = [
            PathElement::field(""),
            PathElement::field("B"),
            PathElement::field("a"),
            PathElement::key([("name", "a")]),
            PathElement::key([("port", 80)]),
            PathElement::key([("port", json!(80)), ("protocol", json!("TCP"))]),
            PathElement::key([("port", 443)]),
            PathElement::value(1.5),
            PathElement::value(2),
            PathElement::value(10),
            PathElement::value(u64::MAX),
            PathElement::value("10"),
            PathElement::value(false),
            PathElement::value(true),
            PathElement::value(json!([1])),
            PathElement::value(json!([1, 2])),
            PathElement::value(json!({"a": 1})),
            PathElement::value(json!({"b": 0})),
            PathElement::value(json!(null)),
            PathElement::Index(-1),
            PathElement::Index(2),
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b), "{sorted:?}");
        assert_eq!(Literal(json!(1)), Literal(json!(1.0)));
        assert_eq!(Literal(json!({"a": [1]})), Literal(json!({"a": [1.0]})));
        // Three numbers that a comparison by rounding would put in a circle.
        let (a, b) = (
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
        );
        let float = json!(9_007_199_254_740_992.0);
        assert!(Literal(a.clone()) < Literal(b.clone()));
        assert_eq!(Literal(a), Literal(float.clone()));
        assert!(Literal(float) < Literal(b));
    }
}
