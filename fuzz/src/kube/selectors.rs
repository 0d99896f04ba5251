//! Label selectors in both forms, and field selectors.
//!
//! Promised (`meta`): an error or a selector; what a selector is printed as is read as
//! the same selector, and both forms select the same.

use std::collections::BTreeMap;

use meta::{FieldSelector, LabelSelector};
use serde_json::{Value, json};

use super::super::draw::Draw;
use super::grow;

/// Pieces of selectors.
const PIECES: [&str; 32] = [
    "a",
    "b",
    "app",
    "a.b/c",
    "in",
    "notin",
    "exists",
    "=",
    "==",
    "!=",
    "!",
    ",",
    "(",
    ")",
    ">",
    "<",
    " ",
    "\t",
    "web",
    "5",
    "-5",
    "",
    "\\",
    "\\,",
    "\\=",
    "\\\\",
    "metadata.name",
    "é",
    "\u{a0}",
    "x-",
    "spec.nodeName",
    "9223372036854775808",
];

/// Keys and values of labels.
const WORDS: [&str; 8] = ["a", "app", "b", "web", "5", "-5", "", "a.b/c"];

/// Reads, prints and reads again.
pub fn selectors(input: &[u8]) {
    let mut draw = Draw::new(input);
    let text = match draw.byte() % 4 {
        0 => String::from_utf8_lossy(draw.bytes(200)).into_owned(),
        1 => terms(&mut draw),
        _ => (0..draw.below(24))
            .map(|_| PIECES[draw.below(PIECES.len())])
            .collect(),
    };
    let labels: BTreeMap<String, String> = (0..draw.below(5))
        .map(|_| (word(&mut draw), word(&mut draw)))
        .collect();
    if let Ok(selector) = LabelSelector::parse(&text) {
        let printed = selector.to_string();
        let again = LabelSelector::parse(&printed);
        assert_eq!(again.as_ref(), Ok(&selector), "{text:?} {printed:?}");
        as_object(&selector, &labels);
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        let printed = selector.to_string();
        let again = FieldSelector::parse(&printed);
        assert_eq!(again.as_ref(), Ok(&selector), "{text:?} {printed:?}");
        let lookup = |field: &str| labels.get(field).map(String::as_str);
        let each = selector.requirements.iter().all(|r| {
            let one = FieldSelector {
                requirements: vec![r.clone()],
            };
            one.matches(lookup)
        });
        assert_eq!(selector.matches(lookup), each, "all hold, or it does not");
    }
    let any = grow::value(&mut draw, 0);
    drop(LabelSelector::from_value(&any));
}

fn word(draw: &mut Draw<'_>) -> String {
    WORDS[draw.below(WORDS.len())].to_owned()
}

/// Writes terms that are right but for what is in them.
fn terms(draw: &mut Draw<'_>) -> String {
    let term = |draw: &mut Draw<'_>| {
        let (key, value) = (word(draw), word(draw));
        let other = PIECES[draw.below(PIECES.len())];
        match draw.byte() % 8 {
            0 => key,
            1 => format!("!{key}"),
            2 => format!("{key} in ({value},{other})"),
            3 => format!("{key} notin ( {value} , {other})"),
            4 => format!("{key}>{value}"),
            5 => format!("{key}<{other}"),
            6 => format!("{key}!={value}"),
            _ => format!("{key}=={other}"),
        }
    };
    (0..draw.below(5))
        .map(|_| term(draw))
        .collect::<Vec<_>>()
        .join(",")
}

/// Checks that a selector in the form of an object selects the same.
fn as_object(selector: &LabelSelector, labels: &BTreeMap<String, String>) {
    use meta::labels::Operator;
    let mut expressions = Vec::new();
    for r in &selector.requirements {
        let operator = match r.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // That form has none of these.
            Operator::GreaterThan | Operator::LessThan => return,
        };
        expressions.push(json!({"key": r.key, "operator": operator, "values": r.values}));
    }
    let form = json!({"matchExpressions": Value::Array(expressions)});
    let other = LabelSelector::from_value(&form).expect("it is one in that form too");
    assert_eq!(
        other.matches(labels),
        selector.matches(labels),
        "{selector}"
    );
}
