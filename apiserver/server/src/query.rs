//! Query parameters and the options that verbs read from them.

use meta::{FieldError, FieldSelector, GroupVersionKind, LabelSelector, Status};
use registry::validate;

/// The longest query accepted, in bytes; beyond it the call is refused.
const QUERY_BYTES_MAX: usize = 64 * 1024;

/// A decoded query string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Decodes a query string.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(Status::bad_request(format!(
                "query string is longer than {QUERY_BYTES_MAX} bytes"
            )));
        }
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let bad = || Status::bad_request(format!("invalid URL escape in query: {pair:?}"));
            pairs.push((
                decode(name, true).ok_or_else(bad)?,
                decode(value, true).ok_or_else(bad)?,
            ));
        }
        Ok(Self { pairs })
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// Returns the first value of a parameter, none if it is empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    /// Returns every value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// Reads a boolean as metav1 does: present means true unless it says
    /// `false` or `0`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Reads a number; an unreadable one is a 400, in Go's words.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        self.get(name)
            .map(|v| {
                v.parse().map_err(|error: std::num::ParseIntError| {
                    Status::bad_request(go_parse_error("ParseInt", v, &error))
                })
            })
            .transpose()
    }

    /// Reads the label selector.
    pub(crate) fn label_selector(&self) -> Result<LabelSelector, Status> {
        LabelSelector::parse(self.get("labelSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))
    }

    /// Reads the field selector; whether its fields exist is the kind's to say.
    pub(crate) fn field_selector(&self) -> Result<FieldSelector, Status> {
        FieldSelector::parse(self.get("fieldSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))
    }
}

/// Words the failure to read a number as Go's `strconv` does.
pub(crate) fn go_parse_error(
    function: &str,
    text: &str,
    error: &std::num::ParseIntError,
) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// How unknown and duplicate fields of a body are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped with a warning; the default.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Whether everything is done but the writing.
    pub(crate) dry_run: bool,
    /// How unknown fields are taken.
    pub(crate) field_validation: FieldValidation,
    /// Who writes; empty when the request does not say.
    pub(crate) field_manager: String,
    /// Whether an apply takes what others own.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Reads the options, refusing unknown values as metav1's validation does.
    pub(crate) fn read(query: &Query, options_kind: &str) -> Result<Self, Status> {
        Self::check(query, options_kind, Vec::new())
    }

    /// Reads the options of a patch that is no apply.
    pub(crate) fn read_patch(query: &Query) -> Result<Self, Status> {
        let mut errors = Vec::new();
        if query.get("force").is_some() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", why));
        }
        Self::check(query, "PatchOptions", errors)
    }

    /// Reads the options of an apply, which must say who applies.
    pub(crate) fn read_apply(query: &Query) -> Result<Self, Status> {
        let mut errors = Vec::new();
        if query.non_empty("fieldManager").is_none() {
            let why = "is required for apply patch";
            errors.push(FieldError::required("fieldManager", why));
        }
        Ok(Self {
            force: query.flag("force"),
            ..Self::check(query, "PatchOptions", errors)?
        })
    }

    fn check(query: &Query, kind: &str, mut errors: Vec<FieldError>) -> Result<Self, Status> {
        let field_manager = query.get("fieldManager").unwrap_or_default();
        validate::field_manager(field_manager, "fieldManager", &mut errors);
        let dry_run = dry_run(query.all("dryRun").collect::<Vec<_>>().as_slice());
        if let Err(other) = &dry_run {
            let error = FieldError::not_supported("dryRun", other.as_str(), &["All"]);
            errors.push(error);
        }
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", other, &known));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            let gvk = GroupVersionKind::new("meta.k8s.io", "v1", kind);
            return Err(Status::invalid(&gvk, "", &errors));
        }
        Ok(Self {
            dry_run: dry_run.unwrap_or_default(),
            field_validation,
            field_manager: field_manager.to_owned(),
            force: false,
        })
    }
}

/// Reads the values of `dryRun`; the bad one is returned as the error.
pub(crate) fn dry_run(values: &[&str]) -> Result<bool, String> {
    let mut dry = false;
    for value in values.iter().filter(|v| !v.is_empty()) {
        if *value != "All" {
            return Err((*value).to_owned());
        }
        dry = true;
    }
    Ok(dry)
}

/// Decodes a path; `None` on a broken escape.
pub(crate) fn decode_path(text: &str) -> Option<String> {
    decode(text, false)
}

fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'%' => {
                let digit = |b: u8| char::from(b).to_digit(16);
                let high = digit(bytes.next()?)?;
                let low = digit(bytes.next()?)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_space => b' ',
            b => b,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_pairs() {
        let q = Query::parse("a=1&b=x%3Dy+z&a=2&flag&off=False").unwrap();
        assert_eq!(q.get("a"), Some("1"));
        assert_eq!(q.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(q.get("b"), Some("x=y z"));
        assert!(q.flag("flag") && !q.flag("off") && !q.flag("none"));
        for bad in ["a=%", "a=%1", "a=%zz", "a=%ff"] {
            assert_eq!(Query::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn unreadable_options_are_refused() {
        let q = |t: &str| Query::parse(t).unwrap();
        for (text, words) in [
            (
                "limit=x",
                r#"strconv.ParseInt: parsing "x": invalid syntax"#,
            ),
            ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            (
                "limit=9223372036854775808",
                r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
            ),
        ] {
            let status = q(text).number("limit").unwrap_err();
            assert_eq!((status.code, &*status.message), (400, words));
        }
        assert_eq!(
            q("labelSelector=a%3D(").label_selector().unwrap_err().code,
            400
        );
        for bad in ["dryRun=Some", "fieldValidation=Maybe"] {
            assert_eq!(
                WriteOptions::read(&q(bad), "CreateOptions")
                    .unwrap_err()
                    .code,
                422
            );
        }
        let ok = WriteOptions::read(&q("dryRun=All&fieldValidation=Strict"), "CreateOptions");
        let ok = ok.unwrap();
        assert!(ok.dry_run && ok.field_validation == FieldValidation::Strict);
    }

    #[test]
    fn managers_and_force_are_checked() {
        let q = |t: &str| Query::parse(t).unwrap();
        let apply = |t: &str| WriteOptions::read_apply(&q(t));
        let refused = apply("dryRun=Some&force=true").unwrap_err();
        assert_eq!(
            refused.message,
            "PatchOptions.meta.k8s.io \"\" is invalid: [fieldManager: Required value: \
             is required for apply patch, dryRun: Unsupported value: \"Some\": supported values: \"All\"]"
        );
        for (text, force) in [("force", true), ("force=0", false), ("", false)] {
            let options = apply(&format!("fieldManager=m&{text}")).unwrap();
            assert_eq!(
                (options.field_manager.as_str(), options.force),
                ("m", force)
            );
        }
        let refused = WriteOptions::read_patch(&q("force=false")).unwrap_err();
        assert_eq!(
            refused.message,
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: \
             may not be specified for non-apply patch"
        );
        let odd = WriteOptions::read(&q("fieldManager=a%00b"), "UpdateOptions").unwrap_err();
        assert!(
            odd.message
                .contains("invalid character U+0000 (at position 1)")
        );
    }
}
