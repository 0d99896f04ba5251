//! Label selectors, in the query form (`app=web,tier in (a,b),!old`) and in the
//! object form (`matchLabels` and `matchExpressions`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use crate::names;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer above the one value.
    GreaterThan,
    /// The label is an integer below the one value.
    LessThan,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with.
    pub values: BTreeSet<String>,
}

/// A conjunction of label requirements; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements, all of which must hold.
    pub requirements: Vec<Requirement>,
}

/// Why a label selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// The text is not a selector.
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    /// A key or value is not a label's.
    #[error("{0}")]
    Label(String),
}

impl Requirement {
    /// Tells whether labels satisfy the requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = |s: &String| s.parse::<i64>().ok();
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let (Some(have), Some(bound)) =
                    (value.and_then(number), self.values.first().and_then(number))
                else {
                    return false;
                };
                if self.operator == Operator::GreaterThan {
                    have > bound
                } else {
                    have < bound
                }
            }
        }
    }

    fn check(self) -> Result<Self, LabelSelectorError> {
        let mut wrong = Vec::new();
        let key = names::qualified_name_errors(&self.key).join("; ");
        if !key.is_empty() {
            wrong.push(format!("key: Invalid value: {:?}: {key}", self.key));
        }
        match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => wrong.push(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                    .to_owned(),
            ),
            Operator::Exists | Operator::DoesNotExist if !self.values.is_empty() => {
                let values: Vec<&String> = self.values.iter().collect();
                wrong.push(format!(
                    "values: Invalid value: {values:?}: values set must be empty for exists and does not exist"
                ));
            }
            _ => {}
        }
        let bounds = matches!(self.operator, Operator::GreaterThan | Operator::LessThan);
        for (at, value) in self.values.iter().enumerate() {
            if bounds && value.parse::<i64>().is_err() {
                wrong.push(format!(
                    "values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
        }
        for (at, value) in self.values.iter().enumerate() {
            let why = names::label_value_errors(value).join("; ");
            if !why.is_empty() {
                wrong.push(format!(
                    "values[{at}][{}]: Invalid value: {value:?}: {why}",
                    self.key
                ));
            }
        }
        match wrong.as_slice() {
            [] => Ok(self),
            [one] => Err(LabelSelectorError::Label(one.clone())),
            several => Err(LabelSelectorError::Label(format!(
                "[{}]",
                several.join(", ")
            ))),
        }
    }
}

impl LabelSelector {
    /// Parses the query form.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        Parser {
            tokens: lex(text),
            at: 0,
        }
        .selector()
    }

    /// Creates a selector that wants exactly these labels.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let requirements = labels
            .into_iter()
            .map(|(k, v)| Requirement {
                key: k.clone(),
                operator: Operator::In,
                values: BTreeSet::from([v.clone()]),
            })
            .collect();
        Self { requirements }
    }

    /// Reads the object form, `{"matchLabels":…,"matchExpressions":…}`.
    pub fn from_value(value: &serde_json::Value) -> Result<Self, LabelSelectorError> {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Form {
            match_labels: BTreeMap<String, String>,
            match_expressions: Vec<Expression>,
        }
        #[derive(Deserialize)]
        struct Expression {
            key: String,
            operator: String,
            #[serde(default)]
            values: BTreeSet<String>,
        }
        let form: Form = Option::<Form>::deserialize(value)
            .map_err(|e| LabelSelectorError::Syntax(e.to_string()))?
            .unwrap_or_default();
        let mut selector = Self::from_labels(&form.match_labels);
        for e in form.match_expressions {
            let operator = match e.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(LabelSelectorError::Syntax(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            selector.requirements.push(Requirement {
                key: e.key,
                operator,
                values: e.values,
            });
        }
        for r in &selector.requirements {
            r.clone().check()?;
        }
        Ok(selector)
    }

    /// Tells whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Tells whether labels satisfy every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let list = r
                .values
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(",");
            match r.operator {
                Operator::In if r.values.len() == 1 => write!(f, "{}={list}", r.key)?,
                Operator::NotIn if r.values.len() == 1 => write!(f, "{}!={list}", r.key)?,
                Operator::In => write!(f, "{} in ({list})", r.key)?,
                Operator::NotIn => write!(f, "{} notin ({list})", r.key)?,
                Operator::Exists => f.write_str(&r.key)?,
                Operator::DoesNotExist => write!(f, "!{}", r.key)?,
                Operator::GreaterThan => write!(f, "{}>{list}", r.key)?,
                Operator::LessThan => write!(f, "{}<{list}", r.key)?,
            }
        }
        Ok(())
    }
}

// === the query form ===

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

fn lex(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest
            .find(|c: char| {
                c.is_whitespace() || matches!(c, '=' | '!' | ',' | '(' | ')' | '>' | '<')
            })
            .unwrap_or(rest.len());
        tokens.push(Token::Word(rest[..end].to_owned()));
        rest = &rest[end..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let t = self.tokens.get(self.at).cloned();
        self.at += 1;
        t
    }

    fn peek_symbol(&self, symbol: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Symbol(s)) if *s == symbol)
    }

    fn selector(mut self) -> Result<LabelSelector, LabelSelectorError> {
        let mut requirements = Vec::new();
        if self.tokens.is_empty() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(self.requirement()?.check()?);
            match self.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(Token::Symbol(",")) => {}
                Some(t) => return Err(unexpected(Some(&t), "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, LabelSelectorError> {
        if self.peek_symbol("!") {
            self.at += 1;
            let key = self.word("identifier")?;
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
                values: BTreeSet::new(),
            });
        }
        let key = self.word("!, identifier, or ','")?;
        let (operator, values) = match self.tokens.get(self.at).cloned() {
            None | Some(Token::Symbol(",")) => (Operator::Exists, BTreeSet::new()),
            Some(Token::Symbol(s @ ("=" | "==" | "!=" | ">" | "<"))) => {
                self.at += 1;
                let operator = match s {
                    "!=" => Operator::NotIn,
                    ">" => Operator::GreaterThan,
                    "<" => Operator::LessThan,
                    _ => Operator::In,
                };
                (operator, BTreeSet::from([self.exact_value()?]))
            }
            Some(Token::Word(w)) if w == "in" || w == "notin" => {
                self.at += 1;
                let operator = if w == "in" {
                    Operator::In
                } else {
                    Operator::NotIn
                };
                (operator, self.value_list()?)
            }
            Some(t) => {
                return Err(unexpected(
                    Some(&t),
                    "in, notin, =, ==, !=, gt, lt, or 'end of string'",
                ));
            }
        };
        Ok(Requirement {
            key,
            operator,
            values,
        })
    }

    fn word(&mut self, expected: &str) -> Result<String, LabelSelectorError> {
        match self.next() {
            Some(Token::Word(w)) => Ok(w),
            t => Err(unexpected(t.as_ref(), expected)),
        }
    }

    /// Reads the value after `=`; nothing there is the empty value.
    fn exact_value(&mut self) -> Result<String, LabelSelectorError> {
        match self.tokens.get(self.at) {
            None | Some(Token::Symbol(",")) => Ok(String::new()),
            Some(_) => self.word("identifier"),
        }
    }

    fn value_list(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        match self.next() {
            Some(Token::Symbol("(")) => {}
            t => return Err(unexpected(t.as_ref(), "'('")),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Some(Token::Word(w)) => {
                    values.insert(w);
                    match self.next() {
                        Some(Token::Symbol(",")) => {}
                        Some(Token::Symbol(")")) => return Ok(values),
                        t => return Err(unexpected(t.as_ref(), "',' or ')'")),
                    }
                }
                Some(Token::Symbol(",")) => {
                    values.insert(String::new());
                }
                Some(Token::Symbol(")")) => {
                    values.insert(String::new());
                    return Ok(values);
                }
                t => return Err(unexpected(t.as_ref(), "',', ')' or identifier")),
            }
        }
    }
}

fn unexpected(token: Option<&Token>, expected: &str) -> LabelSelectorError {
    let found = match token {
        None => String::new(),
        Some(Token::Word(w)) => w.clone(),
        Some(Token::Symbol(s)) => (*s).to_owned(),
    };
    LabelSelectorError::Syntax(format!("found '{found}', expected: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn query_form() {
        let have = labels(&[("app", "web"), ("tier", "a"), ("n", "5")]);
        for (text, want) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier in (a, b)", true),
            ("app!=web", false),
            ("tier notin (a)", false),
            ("other notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!old", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("other=", false),
        ] {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(&have),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn prints_what_it_parsed() {
        for text in [
            "app=web",
            "app!=web",
            "tier in (a,b)",
            "!old,app",
            "x notin (a,b)",
            "n>4",
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_nonsense() {
        for text in [
            "a=(", "a in b", "a in (b", ",", "a b", "a=b c", "=x", "a=b=c", "a in (", "-a=b",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            LabelSelector::parse("a=(").unwrap_err().to_string(),
            "unable to parse requirement: found '(', expected: identifier"
        );
    }

    #[test]
    fn labels_that_are_none_are_told_all_at_once() {
        for (text, words) in [
            (
                "n>x",
                "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("n in (a,b_)", "values[1][n]: Invalid value: \"b_\": "),
            (
                "n<-a",
                "[values[0]: Invalid value: \"-a\": for 'Gt', 'Lt' operators, the value must be an integer, values[0][n]: Invalid value: \"-a\": ",
            ),
        ] {
            let error = LabelSelector::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        // The same digits are a bound, but no label.
        assert!(LabelSelector::parse("n>-5").is_err());
        for (operator, values) in [("In", "[]"), ("Exists", "[\"a\"]")] {
            let text = format!(
                r#"{{"matchExpressions":[{{"key":"a","operator":"{operator}","values":{values}}}]}}"#
            );
            let form = serde_json::from_str(&text).unwrap();
            let error = LabelSelector::from_value(&form).unwrap_err().to_string();
            let words = format!("values: Invalid value: {values}: ");
            assert!(error.starts_with(&words), "{error}");
        }
    }

    #[test]
    fn object_form() {
        let v = serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}]
        });
        let s = LabelSelector::from_value(&v).unwrap();
        assert!(s.matches(&labels(&[("app", "web"), ("tier", "a")])));
        assert!(!s.matches(&labels(&[("app", "web"), ("tier", "b")])));
        let bad = serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        assert!(LabelSelector::from_value(&bad).is_err());
        assert!(
            LabelSelector::from_value(&serde_json::Value::Null)
                .unwrap()
                .is_empty()
        );
    }
}
