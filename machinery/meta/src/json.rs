//! Reads JSON into a tree, and writes it, at a fraction of what a reader of any type
//! costs: nearly all that passes through the server goes that way.
//!
//! It reads what is in order and ordinary. Of anything else it says nothing, and
//! `serde_json` is asked, which has the last word on what JSON is, and on every error.

use serde_json::{Map, Value};

/// The deepest nesting that is read here.
const DEPTH_MAX: usize = 64;
/// The most digits of a number that is read here: no such number is too large.
const DIGITS_MAX: usize = 18;

/// A tree that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The tree; of a key that stands twice in an object, the last value.
    pub value: Value,
    /// Whether some key does.
    pub twice: bool,
}

/// Reads JSON into a tree, as `serde_json` does.
pub fn from_slice(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    // Looked at as a whole, it need not be looked at text by text.
    let text = std::str::from_utf8(bytes).ok();
    match text.and_then(read) {
        Some(tree) => Ok(tree.value),
        None => serde_json::from_slice(bytes),
    }
}

/// Reads JSON into a tree; `None` where that is not as simple.
pub fn read(text: &str) -> Option<Tree> {
    let mut reader = Reader {
        text,
        at: 0,
        twice: false,
    };
    let value = reader.value(0)?;
    reader.skip_space();
    (reader.at == text.len()).then_some(Tree {
        value,
        twice: reader.twice,
    })
}

struct Reader<'t> {
    text: &'t str,
    /// The next byte to look at.
    at: usize,
    twice: bool,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes this byte, if it is the next that means something.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.peek()? {
            b'"' => self.string().map(|(text, _)| Value::String(text)),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let rest = self.text.get(self.at..)?;
        rest.starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut map = Map::new();
        if self.take(b'}') {
            return Some(Value::Object(map));
        }
        // The last key, while all stood in order and as they are.
        let mut last = Some("");
        loop {
            self.skip_space();
            let (key, raw) = self.string()?;
            if !self.take(b':') {
                return None;
            }
            // Keys that stand in order stand once.
            let in_order = map.is_empty() || raw.zip(last).is_some_and(|(raw, last)| raw > last);
            if !in_order && map.contains_key(&key) {
                self.twice = true;
            }
            last = raw.filter(|_| in_order);
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            if self.take(b',') {
                continue;
            }
            return self.take(b'}').then_some(Value::Object(map));
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b',') {
                continue;
            }
            return self.take(b']').then_some(Value::Array(items));
        }
    }

    /// Reads a string, and returns it also as it stands there if it stands as it is.
    fn string(&mut self) -> Option<(String, Option<&'t str>)> {
        if self.peek()? != b'"' {
            return None;
        }
        let from = self.at + 1;
        let mut to = from;
        let mut escaped = false;
        loop {
            to += plain(self.text.as_bytes().get(to..)?);
            match self.text.as_bytes().get(to)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    to += 2;
                }
                // A control character.
                _ => return None,
            }
        }
        self.at = to + 1;
        if escaped {
            let text = serde_json::from_str(self.text.get(from - 1..=to)?);
            return Some((text.ok()?, None));
        }
        let raw = self.text.get(from..to)?;
        Some((raw.to_owned(), Some(raw)))
    }

    fn number(&mut self) -> Option<Value> {
        let bytes = self.text.as_bytes().get(self.at..)?;
        let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = bytes.iter().take_while(is_part).count();
        let token = self.text.get(self.at..self.at + length)?;
        self.at += length;
        match token.as_bytes() {
            [b'1'..=b'9', rest @ ..]
                if rest.len() < DIGITS_MAX && rest.iter().all(u8::is_ascii_digit) =>
            {
                token.parse::<u64>().ok().map(Value::from)
            }
            // Zero, a sign, a fraction, or many digits.
            _ => serde_json::from_str(token).ok().filter(Value::is_number),
        }
    }
}

/// Writes a tree as `serde_json` does. Tells whether there is a number in it that is no
/// integer.
pub fn write(out: &mut Vec<u8>, value: &Value) -> Result<bool, serde_json::Error> {
    let mut has_float = false;
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => {
            serde_json::to_writer(out, number)?;
            has_float = number.is_f64();
        }
        Value::String(text) => write_string(out, text)?,
        Value::Array(items) => {
            out.push(b'[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                has_float |= write(out, item)?;
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (nth, (key, member)) in members.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                write_string(out, key)?;
                out.push(b':');
                has_float |= write(out, member)?;
            }
            out.push(b'}');
        }
    }
    Ok(has_float)
}

/// Writes a string as `serde_json` does.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
    if plain(text.as_bytes()) < text.len() {
        return serde_json::to_writer(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

/// Counts the bytes before the first one that ends a string, escapes something or has
/// no place in one: eight at a time.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (nth, chunk) in chunks.iter().enumerate() {
        let eight = u64::from_le_bytes(*chunk);
        let control = eight.wrapping_sub(ONES * 0x20) & !eight;
        let zero_if = |byte: u8| eight ^ (ONES * u64::from(byte));
        let (quote, escape) = (zero_if(b'"'), zero_if(b'\\'));
        let quote = quote.wrapping_sub(ONES) & !quote;
        let escape = escape.wrapping_sub(ONES) & !escape;
        let found = (control | quote | escape) & HIGH;
        if found != 0 {
            // The lowest one is always a true one.
            return nth * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let ends = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
    let of_rest = rest.iter().position(ends).unwrap_or(rest.len());
    chunks.len() * 8 + of_rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// What is read here is what `serde_json` reads; what it refuses is refused.
    fn check(text: &str) -> Option<Tree> {
        let theirs = serde_json::from_str::<Value>(text);
        let ours = read(text);
        if let Some(tree) = &ours {
            let theirs = theirs.as_ref().unwrap_or_else(|e| panic!("{text:?}: {e}"));
            // Debug tells -0.0 from 0.0.
            assert_eq!(
                format!("{:?}", tree.value),
                format!("{theirs:?}"),
                "{text:?}"
            );
        }
        let either = from_slice(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(either, theirs.map_err(|e| e.to_string()), "{text:?}");
        ours
    }

    #[test]
    fn ordinary_json_is_read() {
        for text in [
            "{}",
            "[]",
            " [ ] ",
            "{ }",
            "null",
            "\t\"a\"\r\n",
            "[true, false , null]",
            r#"{"a":{"b":[1,-2,3.5,1e3,0,-0,0.0,"x"]},"c":""}"#,
            r#"{"b":1,"a":2,"é":"漢🦀","\u0061b":"\n\"\\\ud83e\udd80"}"#,
            "[18446744073709551615,18446744073709551616,-9223372036854775808,123456789012345678]",
            "[999999999999999999,1000000000000000000,-9223372036854775809]",
            r#"["1234567","12345678","123456789","1234567\\","12345678\"9"]"#,
        ] {
            assert!(check(text).is_some_and(|tree| !tree.twice), "{text}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_found() {
        for (text, twice, value) in [
            (r#"{"a":1,"a":2}"#, true, json!({"a": 2})),
            (r#"{"":1,"":2}"#, true, json!({"": 2})),
            (
                r#"{"b":1,"a":2,"c":3,"b":4}"#,
                true,
                json!({"a": 2, "b": 4, "c": 3}),
            ),
            (r#"{"a":1,"\u0061":2}"#, true, json!({"a": 2})),
            (r#"{"\u0061":1,"b":2,"a":3}"#, true, json!({"a": 3, "b": 2})),
            (r#"{"b":1,"\u0063":2,"b":3}"#, true, json!({"b": 3, "c": 2})),
            (
                r#"{"c":1,"b":2,"a":{"a":1},"d":{"a":1}}"#,
                false,
                json!({"a": {"a": 1}, "b": 2, "c": 1, "d": {"a": 1}}),
            ),
            (
                "{\"b\":0,\"a\":1,\"\u{10ffff}b\":2,\"\u{10ffff}b\":3}",
                true,
                json!({"a": 1, "b": 0, "\u{10ffff}b": 3}),
            ),
            (
                r#"[{"a":1},{"a":1,"b":[{"a":0,"a":0}]}]"#,
                true,
                json!([{"a": 1}, {"a": 1, "b": [{"a": 0}]}]),
            ),
        ] {
            assert_eq!(check(text), Some(Tree { value, twice }), "{text}");
        }
    }

    #[test]
    fn what_is_not_in_order_is_left_to_others() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "\"",
            "{\"",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{,}",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{1:2}",
            "{a:1}",
            "nul",
            "truex",
            "tru",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "--1",
            "1-1",
            "[1]x",
            "{}{}",
            "\"\u{1}\"",
            "\"\n\"",
            r#""\x""#,
            r#""\"#,
            r#""\u12""#,
            r#""\ud800""#,
            "\u{feff}{}",
            "'a'",
            "NaN",
            "[1}",
            "{]",
            "1e400",
        ] {
            assert_eq!(check(text), None, "{text:?}");
        }
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(check(&nested(DEPTH_MAX)).is_some());
        for deep in [DEPTH_MAX + 2, 127, 128, 10_000] {
            assert_eq!(check(&nested(deep)), None);
        }
        assert!(from_slice(b"\"\xff\"").is_err());
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z\"\\\\\n ]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::vec(("[a-c]{0,2}|\\PC{0,3}", inner), 0..8)
                    .prop_map(|pairs| pairs.into_iter().collect()),
            ]
        })
    }

    fn has_float_in(tree: &Value) -> bool {
        match tree {
            Value::Array(items) => items.iter().any(has_float_in),
            Value::Object(members) => members.values().any(has_float_in),
            leaf => leaf.is_f64(),
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read(value in tree(), pretty in any::<bool>()) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            prop_assert!(check(&text).is_some_and(|tree| !tree.twice));
            let mut written = Vec::new();
            let has_float = write(&mut written, &value).unwrap();
            prop_assert_eq!(has_float, has_float_in(&value));
            prop_assert_eq!(String::from_utf8(written).unwrap(), value.to_string());
        }

        /// Cut short, or with something else somewhere in it.
        #[test]
        fn whatever_comes_is_read_like_by_others(
            value in tree(), cut in any::<prop::sample::Index>(), with in "[\\[\\]{}\",:\\\\0-9eE+. a]{0,2}",
        ) {
            let text = value.to_string();
            let mut at = cut.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            check(&text[..at]);
            check(&format!("{}{with}{}", &text[..at], &text[at..]));
        }

        #[test]
        fn the_end_of_a_string_is_found(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let ends = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
            prop_assert_eq!(plain(&bytes), bytes.iter().position(ends).unwrap_or(bytes.len()));
        }
    }
}
