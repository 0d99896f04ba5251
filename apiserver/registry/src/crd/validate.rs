//! Whether a value is what its schema says, in the words of kube-openapi's
//! validator, which users know by heart: `spec.replicas in body must be of type
//! integer: "string"`.
//!
//! On an update, what did not change is not held against the client: a schema
//! may have become stricter since it was written (ratcheting). A part is
//! compared with the same part of the old object, where there is one: a
//! property by its name, an item of a list of type map by its keys.

use meta::FieldError;
use serde_json::{Number, Value};

use super::formats;
use super::schema::{Additional, Limits, ListType, Structural};

/// The path of what concerns no single field.
const NOWHERE: &str = "<nil>";
/// The most errors that are collected; a client corrects one after the other.
const ERRORS_MAX: usize = 256;

/// Checks an object; with the old one, only what changed.
pub fn object(value: &Value, old: Option<&Value>, schema: &Structural) -> Vec<FieldError> {
    check("", value, old, schema).errors
}

/// Checks the default of a schema node, which stands at a path. The words name
/// the part of the default, the field the whole of it.
pub fn default_value(path: &str, value: &Value, schema: &Structural) -> Vec<FieldError> {
    let mut errors = check("", value, None, schema).errors;
    for error in &mut errors {
        error.field = match error.field.as_str() {
            NOWHERE => path.to_owned(),
            below => format!("{path}.{below}"),
        };
    }
    errors
}

/// What a check found. The more checks a value passed, the closer it is to
/// what was meant, which decides whose errors are shown of several schemas.
#[derive(Default)]
struct Found {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Found {
    fn one(error: FieldError) -> Self {
        Self {
            errors: vec![error],
            passed: 0,
        }
    }

    fn say(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        for error in other.errors {
            self.say(error);
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

fn check(path: &str, value: &Value, old: Option<&Value>, schema: &Structural) -> Found {
    let mut found = Found::default();
    if old == Some(value) {
        return found;
    }
    found.merge(has_type(path, value, schema));
    if value.is_null() {
        found.merge(one_of(path, value, &schema.limits));
        return found;
    }
    found.merge(junctors(path, value, &schema.limits));
    match value {
        Value::String(text) => {
            found.merge(string(path, text, &schema.limits));
            found.merge(format(path, text, schema));
        }
        Value::Number(n) => found.merge(number(path, n, &schema.limits)),
        Value::Array(items) => found.merge(list(path, items, old, schema)),
        _ => {}
    }
    found.merge(one_of(path, value, &schema.limits));
    if let Value::Object(map) = value {
        found.merge(properties(path, map, old, schema));
    }
    found.passed += 1;
    found
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn has_type(path: &str, value: &Value, schema: &Structural) -> Found {
    let allowed: &[&str] = match schema.int_or_string {
        true => &["integer", "string"],
        false if schema.ty.is_empty() => &[],
        false => &[schema.ty.as_str()],
    };
    let passed = Found {
        passed: 1,
        ..Found::default()
    };
    if allowed.is_empty() || (value.is_null() && schema.nullable) {
        return passed;
    }
    let is = type_of(value);
    let whole = matches!(value, Value::Number(n) if is_whole(n));
    let fits = allowed.contains(&is)
        || (is == "number" && whole && allowed.contains(&"integer"))
        || (is == "integer" && allowed.contains(&"number"));
    // Upstream leaves a text or a list with a format to the format's own check.
    let format = formats::known(&schema.limits.format).is_some();
    let numeric = allowed.contains(&"integer") || allowed.contains(&"number");
    if fits || (format && !numeric && (value.is_string() || value.is_array())) {
        return passed;
    }
    let wanted = allowed.join(",");
    let detail = match path {
        "" => format!(" in body must be of type {wanted}: {is:?}"),
        path => format!("{path} in body must be of type {wanted}: {is:?}"),
    };
    Found::one(FieldError::type_invalid(field(path), is, detail))
}

/// Returns the path as an error names it.
fn field(path: &str) -> &str {
    if path.is_empty() { NOWHERE } else { path }
}

fn is_whole(number: &Number) -> bool {
    number
        .as_f64()
        .is_some_and(|n| n.is_finite() && n.fract() == 0.0)
}

fn junctors(path: &str, value: &Value, limits: &Limits) -> Found {
    let mut found = Found::default();
    let nowhere = |words: String| FieldError::invalid(NOWHERE, "", words);
    if !limits.any_of.is_empty() {
        let (valid, best) = alternatives(path, value, &limits.any_of, true);
        if valid == 0 {
            found.say(nowhere(format!(
                "{path:?} must validate at least one schema (anyOf)"
            )));
        }
        found.merge(best);
    }
    if !limits.one_of.is_empty() {
        let (valid, best) = alternatives(path, value, &limits.one_of, false);
        if valid != 1 {
            let how = match valid {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            found.say(nowhere(format!(
                "{path:?} must validate one and only one schema (oneOf). {how}"
            )));
        }
        found.merge(best);
    }
    if !limits.all_of.is_empty() {
        let mut valid = 0;
        for schema in &limits.all_of {
            let one = check(path, value, None, schema);
            valid += usize::from(one.is_valid());
            found.merge(one);
        }
        if valid < limits.all_of.len() {
            let how = if valid == 0 { ". None validated" } else { "" };
            found.say(nowhere(format!(
                "{path:?} must validate all the schemas (allOf){how}"
            )));
        }
    }
    if let Some(schema) = &limits.not
        && check(path, value, None, schema).is_valid()
    {
        found.say(nowhere(format!(
            "{path:?} must not validate the schema (not)"
        )));
    }
    found.passed += 1;
    found
}

/// Tries schemas; returns how many the value fits, and what is to be said: of
/// the first that fits, or else of the one that comes closest.
fn alternatives(
    path: &str,
    value: &Value,
    schemas: &[Structural],
    first_is_enough: bool,
) -> (usize, Found) {
    let mut valid = 0;
    let mut best: Option<Found> = None;
    for schema in schemas {
        let one = check(path, value, None, schema);
        if one.is_valid() {
            valid += 1;
            if valid == 1 {
                best = Some(one);
            }
            if first_is_enough {
                break;
            }
        } else if valid == 0 && best.as_ref().is_none_or(|b| one.passed > b.passed) {
            best = Some(one);
        }
    }
    (valid, best.unwrap_or_default())
}

fn string(path: &str, text: &str, limits: &Limits) -> Found {
    let length = text.chars().count() as u64;
    let name = field(path);
    if let Some(max) = limits.max_length
        && length > max
    {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        return Found::one(FieldError::too_long(name, max));
    }
    let invalid = |detail: String| Found::one(FieldError::invalid(name, text, detail));
    if let Some(min) = limits.min_length
        && length < min
    {
        return invalid(format!(
            "{path} in body should be at least {min} chars long"
        ));
    }
    if let Some(pattern) = &limits.pattern {
        match &pattern.regex {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => {
                return invalid(format!("{path} in body should match '{}'", pattern.text));
            }
            Err(why) => {
                return invalid(format!(
                    "{path} in body should match '{}, but pattern is invalid: {why}'",
                    pattern.text
                ));
            }
        }
    }
    Found {
        passed: 1,
        ..Found::default()
    }
}

fn format(path: &str, text: &str, schema: &Structural) -> Found {
    let mut found = Found::default();
    let format = &schema.limits.format;
    if let Some(holds) = formats::known(format) {
        if holds(text) {
            found.passed = 1;
        } else {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            found.say(FieldError::type_invalid(field(path), text, detail));
        }
    }
    found
}

/// Writes a number as Go prints one in an error.
fn go(number: &Number, as_integer: bool) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if as_integer {
        return format!("{}", float.trunc());
    }
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{float}")
}

fn compare(a: &Number, b: &Number) -> Option<std::cmp::Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn number(path: &str, value: &Number, limits: &Limits) -> Found {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let mut found = Found::default();
    let integer = !value.is_f64();
    let mut say = |words: &str, limit: &Number| {
        let detail = format!("{path} in body should be {words} {}", go(limit, integer));
        found.say(FieldError::invalid(field(path), value.clone(), detail));
    };
    if let Some(of) = &limits.multiple_of
        && !is_multiple(value, of)
    {
        say("a multiple of", of);
    }
    if let Some(max) = &limits.maximum {
        match (compare(value, max), limits.exclusive_maximum) {
            (Some(Greater | Equal), true) => say("less than", max),
            (Some(Greater), false) => say("less than or equal to", max),
            _ => {}
        }
    }
    if let Some(min) = &limits.minimum {
        match (compare(value, min), limits.exclusive_minimum) {
            (Some(Less | Equal), true) => say("greater than", min),
            (Some(Less), false) => say("greater than or equal to", min),
            _ => {}
        }
    }
    found.passed += 1;
    found
}

fn is_multiple(value: &Number, of: &Number) -> bool {
    if let (Some(value), Some(of)) = (value.as_i64(), of.as_i64()) {
        return of != 0 && value % of == 0;
    }
    let (Some(value), Some(of)) = (value.as_f64(), of.as_f64()) else {
        return true;
    };
    let times = if of < 1.0 {
        1.0 / of * value
    } else {
        value / of
    };
    // As close to a whole number as a float of that size can be.
    (times - times.round()).abs() <= f64::EPSILON * times.abs().max(1.0)
}

fn one_of(path: &str, value: &Value, limits: &Limits) -> Found {
    let mut found = Found::default();
    if limits.allowed.is_empty() || limits.allowed.iter().any(|a| same(a, value)) {
        found.passed = usize::from(!limits.allowed.is_empty());
        return found;
    }
    let allowed: Vec<String> = limits
        .allowed
        .iter()
        .map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned))
        .collect();
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    found.say(FieldError::not_supported(
        field(path),
        value.clone(),
        &allowed,
    ));
    found
}

/// Tells whether two values are equal, numbers by what they count.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(std::cmp::Ordering::Equal),
        _ => a == b,
    }
}

fn list(path: &str, items: &[Value], old: Option<&Value>, schema: &Structural) -> Found {
    let mut found = Found::default();
    let old = old.and_then(Value::as_array);
    if let Some(of) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let before = old.and_then(|old| counterpart(item, old, &schema.list_type));
            found.merge(check(&format!("{path}[{index}]"), item, before, of));
        }
    }
    let limits = &schema.limits;
    let count = items.len() as u64;
    if let Some(min) = limits.min_items.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        found.say(FieldError::invalid(field(path), count, detail));
    }
    if let Some(max) = limits.max_items.filter(|max| count > *max) {
        found.say(FieldError::too_many(
            field(path),
            count as usize,
            max as usize,
        ));
    }
    let doubled = || (1..items.len()).any(|i| items[..i].contains(&items[i]));
    if limits.unique_items && doubled() {
        let detail = format!("{path} in body shouldn't contain duplicates");
        found.say(FieldError::invalid(field(path), "", detail));
    }
    found.passed += 1;
    found
}

/// Finds the item of an old list that is the same thing.
fn counterpart<'a>(item: &Value, old: &'a [Value], list_type: &ListType) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else {
        return None;
    };
    old.iter()
        .find(|o| keys.iter().all(|key| o.get(key) == item.get(key)))
}

fn properties(
    path: &str,
    map: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    schema: &Structural,
) -> Found {
    let limits = &schema.limits;
    let count = map.len() as u64;
    if let Some(min) = limits.min_properties.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        return Found::one(FieldError::invalid(field(path), count, detail));
    }
    if let Some(max) = limits.max_properties.filter(|max| count > *max) {
        return Found::one(FieldError::too_many(
            field(path),
            count as usize,
            max as usize,
        ));
    }
    let mut found = Found::default();
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    let before = |name: &str| old.and_then(|o| o.get(name));
    for (name, value) in map {
        match (schema.properties.get(name), &schema.additional) {
            (Some(schema), _) => {
                found.merge(check(&below(name), value, before(name), schema));
            }
            (None, Some(Additional::Schema(schema))) => {
                found.merge(check(&below(name), value, before(name), schema));
            }
            (None, Some(Additional::Allowed(false))) => {
                let detail = format!("{path}.{name} in body is a forbidden property");
                found.say(FieldError::invalid(field(path), name.as_str(), detail));
            }
            (None, _) => {}
        }
    }
    for name in limits.required.iter().filter(|n| !map.contains_key(*n)) {
        found.say(FieldError::required(below(name), ""));
    }
    found.passed += 1;
    found
}

#[cfg(test)]
mod tests;
