//! Reads request bodies into a `Value`: JSON and YAML, with the limits that
//! keep a hostile body cheap, and with the duplicate keys that
//! `fieldValidation` reports.
//!
//! Limits: a body may be as large as the caller says; JSON may nest as deep as
//! `serde_json` lets it (128), YAML [`MAX_YAML_DEPTH`]; YAML may repeat itself
//! through aliases in proportion to its size, up to [`MAX_YAML_NODES`] nodes; at most [`MAX_DUPLICATES`]
//! duplicate keys are reported, further ones are not. Everything past a limit
//! is an error at once, before memory is spent.

mod repeated;
mod syntax;

use std::fmt;

use meta::json::{Known, Tree};
use meta::marks::Marks;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub use repeated::{complaints, duplicate, unknown};

pub use crate::fieldmerge::gotext::plain as as_go_prints;

/// The deepest nesting of a YAML body. Its reader takes much more of the stack for a
/// level than that of JSON: without optimisation twice as many levels are more than
/// a thread has. The deepest definitions of real clients have half as many.
pub const MAX_YAML_DEPTH: usize = 64;
/// The most nodes a YAML body may have, its aliases expanded.
pub const MAX_YAML_NODES: usize = 250_000;
/// How many nodes a YAML body may have whatever its size; besides these,
/// [`YAML_NODES_PER_BYTE`]. Keeps a short body from being a long work.
const YAML_NODES_BASE: usize = 1_000;
/// How many nodes a byte of YAML may make. Written out, none makes more than
/// one or two; aliases may make a few more of it.
const YAML_NODES_PER_BYTE: usize = 4;
/// The most aliases a YAML body may have.
pub const MAX_YAML_ALIASES: usize = 1_000;
/// The most duplicate keys that are reported.
pub const MAX_DUPLICATES: usize = 64;

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value; of a duplicate key, the last one.
    pub value: Value,
    /// The paths of the keys that stand more than once.
    pub duplicates: Vec<String>,
}

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is larger than allowed (413).
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    /// The body is not JSON, is cut short, or nests too deep (400).
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// The body is not YAML, or exceeds a limit (400).
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
}

/// Decodes a JSON body of at most `limit` bytes.
pub fn decode(bytes: &[u8], limit: usize) -> Result<Decoded, DecodeError> {
    check_size(bytes, limit)?;
    let simple = std::str::from_utf8(bytes).ok().and_then(meta::json::read);
    match simple {
        Some(tree) if !tree.twice => Ok(tree.into()),
        _ => decode_odd(bytes),
    }
}

/// Does as [`decode`], over the tree of an earlier state of the object if there is one,
/// and tells where in the bytes what stands, unless there is something odd in them.
pub fn decode_over(
    bytes: &[u8],
    limit: usize,
    before: Option<Known<'_>>,
) -> Result<(Decoded, Option<Marks>), DecodeError> {
    check_size(bytes, limit)?;
    let text = std::str::from_utf8(bytes).ok();
    match text.and_then(|text| meta::json::read_over(text, before)) {
        Some((tree, marks)) if !tree.twice => Ok((tree.into(), Some(marks))),
        _ => Ok((decode_odd(bytes)?, None)),
    }
}

impl From<Tree> for Decoded {
    fn from(tree: Tree) -> Self {
        Self {
            value: tree.value,
            duplicates: Vec::new(),
        }
    }
}

/// Decodes JSON in which there is an error, a key that stands twice, or something else
/// that is found more slowly.
fn decode_odd(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut state = State::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let json = |e: serde_json::Error| {
        DecodeError::Json(syntax::error(bytes).unwrap_or_else(|| e.to_string()))
    };
    let value = Node(&mut state).deserialize(&mut reader).map_err(json)?;
    reader.end().map_err(json)?;
    Ok(Decoded {
        value,
        duplicates: state.duplicates,
    })
}

/// Decodes a YAML body (one document) of at most `limit` bytes.
pub fn decode_yaml(bytes: &[u8], limit: usize) -> Result<Decoded, DecodeError> {
    check_size(bytes, limit)?;
    let decoded: Body = serde_saphyr::from_slice_with_options(bytes, yaml_options(bytes.len()))
        .map_err(|e| DecodeError::Yaml(first_line(&e.to_string())))?;
    Ok(decoded.0)
}

/// Says which keys stand more than once in a YAML body, each with its line, as
/// Go's reader does. What [`decode_yaml`] knows of it is enough to know whether
/// to ask.
pub fn yaml_duplicates(bytes: &[u8], limit: usize) -> Result<Vec<String>, DecodeError> {
    check_size(bytes, limit)?;
    repeated::lines(bytes, yaml_options(bytes.len()))
        .map_err(|e| DecodeError::Yaml(first_line(&e.to_string())))
}

/// Returns how a YAML body of a size is read.
fn yaml_options(bytes: usize) -> serde_saphyr::Options {
    let nodes = yaml_nodes(bytes);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            max_nodes: nodes,
            max_events: 2 * nodes,
            max_aliases: MAX_YAML_ALIASES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: nodes,
        },
        // To us, who let the last one win and say so.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        // As YAML 1.1, which upstream reads: `yes` and `on` are booleans, and
        // the file mode 0644 is octal.
        strict_booleans: false,
        legacy_octal_numbers: true,
    }
}

/// Returns how many nodes a YAML body of a size may have, its aliases expanded.
fn yaml_nodes(bytes: usize) -> usize {
    bytes
        .saturating_mul(YAML_NODES_PER_BYTE)
        .saturating_add(YAML_NODES_BASE)
        .min(MAX_YAML_NODES)
}

/// Drops the drawing of the place, which the reader adds in further lines.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn check_size(bytes: &[u8], limit: usize) -> Result<(), DecodeError> {
    if bytes.len() > limit {
        Err(DecodeError::TooLarge(limit))
    } else {
        Ok(())
    }
}

/// A body read through a deserializer that has no seed entry point.
struct Body(Decoded);

impl<'de> serde::Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = State::default();
        let value = Node(&mut state).deserialize(deserializer)?;
        Ok(Self(Decoded {
            value,
            duplicates: state.duplicates,
        }))
    }
}

#[derive(Default)]
struct State {
    path: Vec<Segment>,
    duplicates: Vec<String>,
}

enum Segment {
    Key(String),
    Index(usize),
}

impl State {
    fn report(&mut self, key: &str) {
        if self.duplicates.len() >= MAX_DUPLICATES {
            return;
        }
        let path = path_to(&self.path, key);
        if !self.duplicates.contains(&path) {
            self.duplicates.push(path);
        }
    }
}

/// Writes the path of a key of what these lead to.
fn path_to(segments: &[Segment], key: &str) -> String {
    let mut path = String::new();
    for segment in segments {
        match segment {
            Segment::Key(key) => push_key(&mut path, key),
            Segment::Index(at) => path.push_str(&format!("[{at}]")),
        }
    }
    push_key(&mut path, key);
    path
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

struct Node<'a>(&'a mut State);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a JSON number"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        self.0.path.push(Segment::Index(0));
        while let Some(item) = items.next_element_seed(Node(self.0))? {
            list.push(item);
            if let Some(Segment::Index(at)) = self.0.path.last_mut() {
                *at = list.len();
            }
        }
        self.0.path.pop();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            if map.contains_key(&key) {
                self.0.report(&key);
            }
            self.0.path.push(Segment::Key(key));
            let value = pairs.next_value_seed(Node(self.0))?;
            let Some(Segment::Key(key)) = self.0.path.pop() else {
                return Err(A::Error::custom("the path lost a key"));
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIMIT: usize = 3 << 20;

    #[test]
    fn finds_duplicates_with_their_paths() {
        let body = br#"{"a":1,"b":[{"c":1},{"c":1,"c":2}],"a":{"d":0,"d":0}}"#;
        let decoded = decode(body, LIMIT).unwrap();
        assert_eq!(decoded.duplicates, ["b[1].c", "a", "a.d"]);
        assert_eq!(decoded.value, json!({"a":{"d":0},"b":[{"c":1},{"c":2}]}));
    }

    #[test]
    fn refuses_what_is_not_json() {
        for bad in [&b"{"[..], b"", b"{}{}", b"{\"a\":}", b"\xff", b"nul"] {
            assert!(
                matches!(decode(bad, LIMIT), Err(DecodeError::Json(_))),
                "{bad:?}"
            );
        }
        let deep = "[".repeat(10_000);
        assert!(matches!(
            decode(deep.as_bytes(), LIMIT),
            Err(DecodeError::Json(_))
        ));
        assert_eq!(decode(&[b' '; 11], 10), Err(DecodeError::TooLarge(10)));
    }

    #[test]
    fn reads_yaml_like_json() {
        let yaml = b"a: 1\nb:\n- c: x\n- true\n- null\n- 1.5\n- \"2\"\n8080: z\n";
        let decoded = decode_yaml(yaml, LIMIT).unwrap();
        assert_eq!(
            decoded.value,
            json!({"a":1,"b":[{"c":"x"},true,null,1.5,"2"],"8080":"z"})
        );
        let decoded = decode_yaml(b"mode: 0644\nyes: on\n", LIMIT).unwrap();
        assert_eq!(decoded.value, json!({"mode": 420, "yes": true}));
        let decoded = decode_yaml(b"a:\n  b: 1\n  b: 2\n", LIMIT).unwrap();
        assert_eq!(decoded.value, json!({"a":{"b":2}}));
        assert_eq!(decoded.duplicates, ["a.b"]);
    }

    #[test]
    fn a_short_body_may_not_be_long_work() {
        // Two levels of aliases, from a few hundred bytes: 40 times 200 nodes is too much.
        let list = vec!["x"; 200].join(",");
        let small = format!("a: &a [{list}]\nb: [{}]\n", ["*a"; 3].join(","));
        let decoded = decode_yaml(small.as_bytes(), LIMIT).unwrap();
        assert_eq!(decoded.value["b"][2][199], "x");
        let large = format!("a: &a [{list}]\nb: [{}]\n", ["*a"; 40].join(","));
        let error = decode_yaml(large.as_bytes(), LIMIT).unwrap_err();
        assert!(matches!(error, DecodeError::Yaml(_)), "{error}");
        // Written out the same is fine, as is anything without aliases.
        let rows = vec![format!("[{list}]"); 40].join(",");
        decode_yaml(format!("b: [{rows}]\n").as_bytes(), LIMIT).unwrap();
        for dense in ["{a,b,c,d,e,f}", "[[],[],[],[]]", "-\n-\n-\n"] {
            let body = match dense.starts_with('-') {
                true => dense.repeat(1_000),
                false => format!("[{}]", vec![dense; 1_000].join(",")),
            };
            decode_yaml(body.as_bytes(), LIMIT).unwrap();
        }
    }

    #[test]
    fn nesting_ends_in_an_error_whatever_it_is_written_with() {
        for open in ["[", "{a: ", "- ", "? ", "a:\n ", "!!map {", "- - ", "!a "] {
            for close in ["", "]", "1", "\"\""] {
                for count in [MAX_YAML_DEPTH, 5_000, 20_000] {
                    let text = format!("{}{close}", open.repeat(count));
                    let read = decode_yaml(text.as_bytes(), LIMIT);
                    // The others do not nest, but say one thing again and again.
                    let nests = open.starts_with(['[', '{', '-', '?']);
                    let deep = nests && count > MAX_YAML_DEPTH;
                    assert!(!deep || read.is_err(), "{open:?} {close:?} {count}");
                }
            }
        }
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert!(decode_yaml(nested(MAX_YAML_DEPTH - 1).as_bytes(), LIMIT).is_ok());
        assert!(decode_yaml(nested(MAX_YAML_DEPTH + 1).as_bytes(), LIMIT).is_err());
    }

    #[test]
    fn refuses_yaml_bombs() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(matches!(
            decode_yaml(bomb.as_bytes(), LIMIT),
            Err(DecodeError::Yaml(_))
        ));
        // What such a body may cost follows from its size, not from the ceiling.
        assert!(bomb.len() < 1_000 && yaml_nodes(bomb.len()) < 5_000);
        assert_eq!(yaml_nodes(3 << 20), MAX_YAML_NODES);
        let deep = "[".repeat(10_000);
        assert!(matches!(
            decode_yaml(deep.as_bytes(), LIMIT),
            Err(DecodeError::Yaml(_))
        ));
        assert!(matches!(
            decode_yaml(b"a: [", LIMIT),
            Err(DecodeError::Yaml(_))
        ));
    }
}
