//! Field selectors: `metadata.name=web,status.phase!=Running`.
//!
//! Which fields may be selected is the kind's to say; this module parses and
//! matches. Values are escaped with a backslash before `\`, `,` and `=`.

use std::fmt;

/// One requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path.
    pub field: String,
    /// The value to compare with.
    pub value: String,
    /// Whether the field must have the value (`=`, `==`) or must not (`!=`).
    pub equals: bool,
}

/// A conjunction of field requirements; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The requirements, all of which must hold.
    pub requirements: Vec<FieldRequirement>,
}

/// Why a field selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// A term has no operator.
    #[error("invalid selector: '{0}'; can't understand '{1}'")]
    Term(String, String),
    /// A value has an unknown escape.
    #[error("invalid field selector: invalid escape sequence in {0:?}")]
    Escape(String),
}

impl FieldSelector {
    /// Parses a selector.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let Some((field, op, raw)) = split_term(term) else {
                return Err(FieldSelectorError::Term(text.to_owned(), term.to_owned()));
            };
            let value = unescape(raw).ok_or_else(|| FieldSelectorError::Escape(raw.to_owned()))?;
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                value,
                equals: op != "!=",
            });
        }
        Ok(Self { requirements })
    }

    /// Creates a selector of one `field=value`.
    pub fn one(field: &str, value: &str) -> Self {
        Self {
            requirements: vec![FieldRequirement {
                field: field.to_owned(),
                value: value.to_owned(),
                equals: true,
            }],
        }
    }

    /// Tells whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the value a field must have, if the selector pins it.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equals && r.field == field)
            .map(|r| r.value.as_str())
    }

    /// Tells whether the requirements hold; a field that is absent is empty.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|r| (lookup(&r.field).unwrap_or_default() == r.value) == r.equals)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let op = if r.equals { "=" } else { "!=" };
            write!(f, "{comma}{}{op}{}", r.field, escape(&r.value))?;
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    for i in 0..term.len() {
        for op in ["!=", "==", "="] {
            if term.as_bytes()[i..].starts_with(op.as_bytes()) {
                return Some((&term[..i], op, &term[i + op.len()..]));
            }
        }
    }
    None
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                _ => return None,
            },
            '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_matches_and_prints() {
        let s = FieldSelector::parse("metadata.name=web,status.phase!=Running,a==b\\,c").unwrap();
        assert_eq!(s.requirements.len(), 3);
        assert_eq!(s.exact("a"), Some("b,c"));
        assert_eq!(
            s.to_string(),
            "metadata.name=web,status.phase!=Running,a=b\\,c"
        );
        let lookup = |f: &str| match f {
            "metadata.name" => Some("web"),
            "a" => Some("b,c"),
            _ => None,
        };
        assert!(s.matches(lookup));
        assert!(FieldSelector::parse("").unwrap().is_empty());
    }

    #[test]
    fn refuses_nonsense() {
        assert!(FieldSelector::parse("metadata.name").is_err());
        assert!(FieldSelector::parse("a=b\\x").is_err());
        assert!(FieldSelector::parse("a=b=c").is_err());
    }
}
