//! Texts as Go prints them: JSON inside path elements, literals inside paths,
//! values inside errors. Clients compare the first byte by byte and people know
//! the others by heart.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Number, Value};

/// Appends a JSON string as jsoniter writes it: `"`, `\` and control characters
/// escaped, and with `html` also `<`, `>`, `&` and the two line separators.
pub(super) fn json_string(out: &mut String, text: &str, html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => push_u4(out, c),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => push_u4(out, c),
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn push_u4(out: &mut String, c: char) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// Appends a value as Go's encoder writes it: compact, keys sorted, for HTML.
pub(super) fn json_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::String(text) => json_string(out, text, true),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                json_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (at, (key, item)) in sorted(map).into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                json_string(out, key, true);
                out.push(':');
                json_value(out, item);
            }
            out.push('}');
        }
    }
}

/// Returns a map's members in the order of their keys, whatever the map's own.
pub(super) fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members
}

fn json_number(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(f) => go_float(f, 1e-6..1e21, 1),
        None => number.to_string(),
    }
}

/// Formats a float in full when its size is in the range, else with an exponent
/// of at least so many digits.
fn go_float(f: f64, full: Range<f64>, digits: usize) -> String {
    let size = f.abs();
    if size == 0.0 || full.contains(&size) {
        return format!("{f}");
    }
    let text = format!("{f:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{exponent:0>digits$}")
}

/// Appends a text quoted as Go's `%q` does.
pub(super) fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\x07' => "\\a",
            '\x08' => "\\b",
            '\x0c' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x0b' => "\\v",
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
                continue;
            }
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                push_u4(out, c);
                continue;
            }
            c => {
                out.push(c);
                continue;
            }
        };
        out.push_str(escape);
    }
    out.push('"');
}

/// Returns a text quoted as Go's `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(&mut out, text);
    out
}

/// Appends a literal as it stands in a printed path.
pub(super) fn literal(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => quote(out, text),
        Value::Number(number) => out.push_str(&plain_number(number)),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                literal(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            for (key, item) in sorted(map) {
                out.push_str(key);
                out.push('=');
                literal(out, item);
            }
        }
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

fn plain_number(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(f) => go_float(f, 1e-4..1e6, 2),
        None => number.to_string(),
    }
}

/// Returns a value as Go's `%v` prints what holds it: `&{map[a:1]}`.
pub(super) fn held(value: &Value) -> String {
    let mut out = "&{".to_owned();
    push_plain(&mut out, value);
    out.push('}');
    out
}

/// Returns a value as Go's `%v` prints it: `map[a:[1 2]]`.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    push_plain(&mut out, value);
    out
}

fn push_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&plain_number(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                push_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (at, (key, item)) in sorted(map).into_iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                push_plain(out, item);
            }
            out.push(']');
        }
    }
}

/// Returns a value as Go's `%#v` prints what holds it.
pub(super) fn held_syntax(value: &Value) -> String {
    let mut out = "&value.valueUnstructured{Value:".to_owned();
    push_syntax(&mut out, value);
    out.push('}');
    out
}

fn push_syntax(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => quote(out, text),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                push_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[string]interface {}{");
            for (at, (key, item)) in sorted(map).into_iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                quote(out, key);
                out.push(':');
                push_syntax(out, item);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => push_plain(out, value),
    }
}

/// Returns the name of a value's Go type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encoded(value: &Value) -> String {
        let mut out = String::new();
        json_value(&mut out, value);
        out
    }

    fn shown(value: &Value) -> String {
        let mut out = String::new();
        literal(&mut out, value);
        out
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, encoding, display) in [
            (json!(80), "80", "80"),
            (json!(1.0), "1", "1"),
            (json!(0.5), "0.5", "0.5"),
            (json!(1e21), "1e+21", "1e+21"),
            (json!(1.5e-7), "1.5e-7", "1.5e-07"),
            (json!(0.00001), "0.00001", "1e-05"),
            (json!(123456789.5), "123456789.5", "1.234567895e+08"),
        ] {
            assert_eq!(encoded(&value), encoding);
            assert_eq!(shown(&value), display);
        }
    }

    #[test]
    fn texts_are_escaped_as_go_escapes_them() {
        let mut out = String::new();
        json_string(&mut out, "a\"b\\c\n\u{8}<é\u{2028}", false);
        assert_eq!(out, "\"a\\\"b\\\\c\\n\\u0008<é\u{2028}\"");
        assert_eq!(encoded(&json!("<&\u{2028}")), r#""\u003c\u0026\u2028""#);
        assert_eq!(quoted("a\"\x07\x01é\u{85}"), r#""a\"\a\x01é\u0085""#);
    }

    #[test]
    fn values_are_shown_as_go_shows_them() {
        assert_eq!(
            held(&json!({"b": [1, "x"], "a": null})),
            "&{map[a:<nil> b:[1 x]]}"
        );
        assert_eq!(
            held_syntax(&json!(80)),
            "&value.valueUnstructured{Value:80}"
        );
        assert_eq!(
            held_syntax(&json!({"a": ["x"]})),
            r#"&value.valueUnstructured{Value:map[string]interface {}{"a":[]interface {}{"x"}}}"#
        );
    }
}
