//! JSONPath as client-go reads it, as far as printed columns use it: members,
//! indexes and slices of lists, wildcards, descent, and filters that compare a
//! path with a literal.

use serde_json::Value;

/// A path that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPath(String);

/// A path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name`, `['name']`
    Member(String),
    /// `[2]`, `[-1]`
    Index(i64),
    /// `[1:3]`, `[:2]`, `[::2]`
    Slice(Option<i64>, Option<i64>, i64),
    /// `.*`, `[*]`
    All,
    /// `..`
    Descend,
    /// `[?(@.type=="Ready")]`
    Filter(Filter),
    /// `['a','b']`, `[0,2]`
    Union(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq)]
enum Filter {
    /// There is something at the path.
    Exists(JsonPath),
    /// What is at the path compares so with a literal.
    Compare(JsonPath, Comparison, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Those of two characters first, so that they are found first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

fn bad<T>(text: impl Into<String>) -> Result<T, BadPath> {
    Err(BadPath(text.into()))
}

impl JsonPath {
    /// Reads a path, such as `.spec.replicas`.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest.strip_prefix(['$', '@']).unwrap_or(rest);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '.' if rest.starts_with("..") => {
                    steps.push(Step::Descend);
                    let rest = &rest[2..];
                    if rest.is_empty() {
                        return bad(format!("invalid path {text:?}"));
                    }
                    match rest.starts_with('[') {
                        true => rest,
                        false => member(rest, &mut steps),
                    }
                }
                '.' => member(&rest[1..], &mut steps),
                '[' => bracket(rest, &mut steps)?,
                _ if steps.is_empty() => member(rest, &mut steps),
                _ => return bad(format!("unexpected {first:?} in {text:?}")),
            };
        }
        Ok(Self { steps })
    }

    /// Finds what is at the path.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|v| step.take(v)).collect();
        }
        found
    }

    /// Finds the first of what is at the path.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value).into_iter().next()
    }
}

/// Reads a member's name, in which a backslash makes the next character plain.
fn member<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    match name.as_str() {
        "" => {}
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Member(name)),
    }
    &text[end..]
}

/// Reads what stands in brackets.
fn bracket<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, BadPath> {
    let Some(end) = closing(text) else {
        return bad(format!("unterminated array in {text:?}"));
    };
    let inner = text[1..end].trim();
    steps.push(match inner.strip_prefix("?(") {
        Some(filter) => {
            let Some(filter) = filter.strip_suffix(')') else {
                return bad(format!("unterminated filter in {text:?}"));
            };
            Step::Filter(Filter::parse(filter)?)
        }
        None => {
            let parts = split(inner);
            let mut each = parts.iter().map(|p| element(p.trim()));
            match parts.len() {
                1 => each.next().unwrap_or_else(|| bad("empty brackets"))?,
                _ => Step::Union(each.collect::<Result<_, _>>()?),
            }
        }
    });
    Ok(&text[end + 1..])
}

/// Walks the characters outside quotes.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    text.char_indices().filter(move |(_, c)| match quote {
        Some(open) => {
            if *c == open {
                quote = None;
            }
            false
        }
        None if matches!(c, '\'' | '"') => {
            quote = Some(*c);
            false
        }
        None => true,
    })
}

fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in unquoted(text) {
        match c {
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in unquoted(text).filter(|(_, c)| *c == ',') {
        parts.push(&text[from..at]);
        from = at + 1;
    }
    parts.push(&text[from..]);
    parts
}

fn quoted(text: &str) -> Option<&str> {
    let inner = |q: char| text.strip_prefix(q)?.strip_suffix(q);
    inner('\'').or_else(|| inner('"'))
}

fn element(text: &str) -> Result<Step, BadPath> {
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Ok(Step::Member(name.to_owned()));
    }
    let number = |text: &str| -> Result<Option<i64>, BadPath> {
        match text.trim() {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => bad(format!("invalid array index {text}")),
            },
        }
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [one] => match number(one)? {
            Some(index) => Ok(Step::Index(index)),
            None => bad("empty brackets"),
        },
        [from, to] => Ok(Step::Slice(number(from)?, number(to)?, 1)),
        [from, to, by] => match number(by)?.unwrap_or(1) {
            by if by > 0 => Ok(Step::Slice(number(from)?, number(to)?, by)),
            _ => bad("step must be > 0"),
        },
        _ => bad(format!("invalid array index {text}")),
    }
}

impl Filter {
    fn parse(text: &str) -> Result<Self, BadPath> {
        let at = unquoted(text).find_map(|(at, _)| {
            let rest = &text[at..];
            COMPARISONS
                .iter()
                .find(|(sign, _)| rest.starts_with(sign))
                .map(|(sign, comparison)| (at, sign.len(), *comparison))
        });
        let Some((at, length, comparison)) = at else {
            return Ok(Self::Exists(JsonPath::parse(text)?));
        };
        let right = text[at + length..].trim();
        let literal = match quoted(right) {
            Some(text) => Value::from(text),
            None => match serde_json::from_str(right) {
                Ok(value) => value,
                Err(_) => return bad(format!("unrecognized literal {right:?}")),
            },
        };
        let path = JsonPath::parse(&text[..at])?;
        Ok(Self::Compare(path, comparison, literal))
    }

    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Exists(path) => path.first(value).is_some(),
            Self::Compare(path, comparison, literal) => path
                .first(value)
                .is_some_and(|v| comparison.holds(v, literal)),
        }
    }
}

impl Comparison {
    fn holds(self, a: &Value, b: &Value) -> bool {
        let order = match (a, b) {
            (Value::Number(a), Value::Number(b)) => a
                .as_f64()
                .zip(b.as_f64())
                .and_then(|(a, b)| a.partial_cmp(&b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        let Some(order) = order else {
            return self == Self::NotEqual;
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    found.push(value);
    for child in children(value) {
        descend(child, found);
    }
}

impl Step {
    fn take<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Member(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let at = place(*index, items.len());
                usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .collect()
            }
            (Self::Slice(from, to, by), Value::Array(items)) => {
                let length = items.len();
                let bound = |n: i64| {
                    let at = place(n, length).clamp(0, i64::try_from(length).unwrap_or(i64::MAX));
                    usize::try_from(at).unwrap_or(0)
                };
                let from = from.map_or(0, bound);
                let to = to.map_or(length, bound).max(from);
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                items[from..to].iter().step_by(by).collect()
            }
            (Self::All, value) => children(value),
            (Self::Descend, value) => {
                let mut found = Vec::new();
                descend(value, &mut found);
                found
            }
            (Self::Filter(filter), Value::Array(items)) => {
                items.iter().filter(|item| filter.holds(item)).collect()
            }
            (Self::Union(steps), value) => steps.iter().flat_map(|s| s.take(value)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Counts from the end what is negative.
fn place(index: i64, length: usize) -> i64 {
    match index < 0 {
        true => index + i64::try_from(length).unwrap_or(i64::MAX),
        false => index,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_what_columns_ask_for() {
        let object = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"replicas": 3, "hosts": ["a", "b", "c"]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "weight": 1},
                {"type": "Synced", "status": "False", "weight": 5}]},
        });
        for (path, wanted) in [
            (".spec.replicas", json!([3])),
            ("spec.replicas", json!([3])),
            ("$.spec['replicas']", json!([3])),
            (".spec.hosts[0]", json!(["a"])),
            (".spec.hosts[-1]", json!(["c"])),
            (".spec.hosts[1:]", json!(["b", "c"])),
            (".spec.hosts[*]", json!(["a", "b", "c"])),
            (".spec.hosts[0,2]", json!(["a", "c"])),
            (
                ".status.conditions[?(@.type==\"Synced\")].status",
                json!(["False"]),
            ),
            (
                ".status.conditions[?(@.type=='Ready')].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.weight > 2)].type",
                json!(["Synced"]),
            ),
            (".status.conditions[?(@.none)].type", json!([])),
            (
                ".metadata.labels.app\\.kubernetes\\.io/name",
                json!(["web"]),
            ),
            (".metadata.labels['app.kubernetes.io/name']", json!(["web"])),
            ("..weight", json!([1, 5])),
            (".nowhere.at.all", json!([])),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&object)), wanted, "{path}");
        }
        for refused in [".spec[", ".spec[?(@.x", ".spec[x]", ".a[1:2:0]"] {
            assert!(JsonPath::parse(refused).is_err(), "{refused}");
        }
    }
}
