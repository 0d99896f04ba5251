//! A structural schema: `openAPIV3Schema` of a version, parsed once so that
//! each object is walked without a look-up by name.
//!
//! Parsing never fails: what a definition may not say is refused when it is
//! written ([`check`](super::check)), and what an older server let through is
//! read as if it were not there.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Number, Value};

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not at all: the list is one value.
    #[default]
    Atomic,
    /// Each by itself.
    Set,
    /// Each by these of its properties.
    Map(Vec<String>),
}

/// What the properties that are not named may be.
#[derive(Clone, Debug)]
pub enum Additional {
    /// Anything, or nothing.
    Allowed(bool),
    /// Of this schema.
    Schema(Box<Structural>),
}

/// A pattern, or why it is none.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The text.
    pub text: String,
    /// What it means.
    pub regex: Result<Regex, String>,
}

/// The limits that a value must keep, whatever its structure.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub(super) format: String,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<Number>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<Number>,
    pub(super) max_length: Option<u64>,
    pub(super) min_length: Option<u64>,
    pub(super) pattern: Option<Pattern>,
    pub(super) max_items: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) max_properties: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
}

/// A schema node.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    /// The type; empty where none is said.
    pub ty: String,
    /// Whether null is a value.
    pub nullable: bool,
    /// What an absent value is.
    pub default: Option<Value>,
    /// The named properties.
    pub properties: BTreeMap<String, Structural>,
    /// The others.
    pub additional: Option<Additional>,
    /// The items of a list.
    pub items: Option<Box<Structural>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type` and its keys.
    pub list_type: ListType,
    /// Whether `x-kubernetes-map-type` is atomic.
    pub atomic_map: bool,
    /// What else must be true of a value.
    pub limits: Box<Limits>,
}

impl Structural {
    /// Parses a schema.
    pub fn parse(schema: &Value) -> Self {
        let Some(map) = schema.as_object() else {
            return Self::default();
        };
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
        let keys = texts(map.get("x-kubernetes-list-map-keys"));
        Self {
            ty: text("type").to_owned(),
            nullable: flag("nullable"),
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            properties: map
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Self::parse(schema)))
                .collect(),
            additional: match map.get("additionalProperties") {
                None | Some(Value::Null) => None,
                Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
                Some(schema) => Some(Additional::Schema(Box::new(Self::parse(schema)))),
            },
            items: child(map, "items"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(keys),
                _ => ListType::Atomic,
            },
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            limits: Box::new(limits(map)),
        }
    }

    /// Returns the schema of a property, named or not.
    pub fn property(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }

    /// Returns the schema at a path of named properties.
    pub fn at<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Option<&Structural> {
        path.into_iter()
            .try_fold(self, |schema, name| schema.properties.get(name))
    }
}

fn child(map: &Map<String, Value>, name: &str) -> Option<Box<Structural>> {
    let schema = map.get(name).filter(|s| s.is_object())?;
    Some(Box::new(Structural::parse(schema)))
}

fn children(map: &Map<String, Value>, name: &str) -> Vec<Structural> {
    let list = map.get(name).and_then(Value::as_array);
    list.into_iter().flatten().map(Structural::parse).collect()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn limits(map: &Map<String, Value>) -> Limits {
    let text = |name: &str| map.get(name).and_then(Value::as_str);
    let number = |name: &str| match map.get(name) {
        Some(Value::Number(number)) => Some(number.clone()),
        _ => None,
    };
    let count = |name: &str| map.get(name).and_then(Value::as_u64);
    let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
    Limits {
        format: text("format").unwrap_or_default().to_owned(),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: text("pattern")
            .filter(|p| !p.is_empty())
            .map(|text| Pattern {
                text: text.to_owned(),
                regex: Regex::new(text).map_err(|e| reason(&e.to_string())),
            }),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        required: texts(map.get("required")),
        allowed: map
            .get("enum")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        all_of: children(map, "allOf"),
        any_of: children(map, "anyOf"),
        one_of: children(map, "oneOf"),
        not: child(map, "not"),
    }
}

/// Returns the last line of a complaint about a pattern, which says what is
/// wrong; the lines before it draw where.
pub(super) fn reason(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
