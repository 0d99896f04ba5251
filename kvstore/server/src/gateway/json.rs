//! A JSON value, with numbers and strings kept as they were written: what they mean
//! depends on the field they are for.

use std::collections::BTreeMap;

/// Is a value; it borrows the text it was read from.
#[derive(Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    /// The digits.
    Number(&'a str),
    /// The text with its quotes and escapes.
    Text(&'a [u8]),
    Array(Vec<Json<'a>>),
    /// Of two members of one name the later counts.
    Object(BTreeMap<String, Json<'a>>),
}

impl<'a> Json<'a> {
    /// Reads a value that [`super::scanner`] found complete and well formed.
    pub(crate) fn read(text: &'a [u8]) -> Self {
        Reader { text, at: 0 }.value()
    }

    /// Names the kind of the value as Go does in its errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Json<'a> {
        self.skip(b" \t\r\n");
        match self.text.get(self.at) {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Json::Text(self.string()),
            Some(b't' | b'f' | b'n') => match self.run(u8::is_ascii_alphabetic) {
                b"true" => Json::Bool(true),
                b"false" => Json::Bool(false),
                _ => Json::Null,
            },
            _ => {
                let digits = self.run(|byte| {
                    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
                });
                Json::Number(std::str::from_utf8(digits).unwrap_or_default())
            }
        }
    }

    fn object(&mut self) -> Json<'a> {
        let mut members = BTreeMap::new();
        self.at += 1;
        loop {
            self.skip(b" \t\r\n,");
            match self.text.get(self.at) {
                Some(b'"') => {
                    let name = unquoted(self.string());
                    self.skip(b" \t\r\n:");
                    members.insert(name, self.value());
                }
                _ => {
                    self.at += 1;
                    return Json::Object(members);
                }
            }
        }
    }

    fn array(&mut self) -> Json<'a> {
        let mut elements = Vec::new();
        self.at += 1;
        loop {
            self.skip(b" \t\r\n,");
            match self.text.get(self.at) {
                None | Some(b']') => {
                    self.at += 1;
                    return Json::Array(elements);
                }
                Some(_) => elements.push(self.value()),
            }
        }
    }

    fn string(&mut self) -> &'a [u8] {
        let began = self.at;
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'"' => break,
                _ => {}
            }
        }
        &self.text[began..self.at.min(self.text.len())]
    }

    fn skip(&mut self, bytes: &[u8]) {
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| bytes.contains(byte))
        {
            self.at += 1;
        }
    }

    fn run(&mut self, belongs: impl Fn(&u8) -> bool) -> &'a [u8] {
        let began = self.at;
        while self.text.get(self.at).is_some_and(&belongs) {
            self.at += 1;
        }
        &self.text[began..self.at]
    }
}

/// Resolves the escapes of a string. Halves of surrogate pairs and bytes that are no
/// text become U+FFFD, as in Go.
pub(crate) fn unquoted(text: &[u8]) -> String {
    let inner = text
        .get(1..text.len().saturating_sub(1))
        .unwrap_or_default();
    let inner = String::from_utf8_lossy(inner);
    if !inner.contains('\\') {
        return inner.into_owned();
    }
    let mut resolved = String::with_capacity(inner.len());
    let mut rest = &*inner;
    while let Some((before, escape)) = rest.split_once('\\') {
        resolved.push_str(before);
        let (c, length) = resolve(escape);
        resolved.push(c);
        rest = escape.get(length..).unwrap_or_default();
    }
    resolved.push_str(rest);
    resolved
}

/// Reads what stands behind a backslash; returns the character and its length there.
fn resolve(escape: &str) -> (char, usize) {
    let unit = |text: &str| u16::from_str_radix(text.get(1..5)?, 16).ok();
    match escape.as_bytes().first() {
        Some(b'b') => ('\u{8}', 1),
        Some(b'f') => ('\u{c}', 1),
        Some(b'n') => ('\n', 1),
        Some(b'r') => ('\r', 1),
        Some(b't') => ('\t', 1),
        Some(b'u') => {
            let high = unit(escape).unwrap_or(0xfffd);
            let low = escape
                .get(5..)
                .and_then(|rest| rest.strip_prefix('\\'))
                .filter(|rest| rest.starts_with('u'))
                .and_then(unit);
            let pair = low.and_then(|low| char::decode_utf16([high, low]).next()?.ok());
            match char::from_u32(u32::from(high)) {
                Some(c) => (c, 5),
                // The pair is one character; half of one is none.
                None => pair.map_or(('\u{fffd}', 5), |c| (c, 11)),
            }
        }
        Some(other) => (char::from(*other), 1),
        None => ('\u{fffd}', 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        let text = br#" {"a" : [1, -2.5, "x\"", true, null, []], "b":{}, "a":false}"#;
        let Json::Object(members) = Json::read(text) else {
            panic!("an object");
        };
        assert_eq!(members["a"], Json::Bool(false));
        assert_eq!(members["b"], Json::Object(BTreeMap::new()));
        let list = Json::read(br#"[1, -2.5, "x\"", true, null, []]"#);
        let elements = vec![
            Json::Number("1"),
            Json::Number("-2.5"),
            Json::Text(br#""x\"""#),
            Json::Bool(true),
            Json::Null,
            Json::Array(Vec::new()),
        ];
        assert_eq!(list, Json::Array(elements));
    }

    #[test]
    fn escapes_are_resolved() {
        for (text, resolved) in [
            (r#""plain""#, "plain"),
            (r#""a\n\t\"\\\/""#, "a\n\t\"\\/"),
            (r#""\u00e4\ud83d\ude00!""#, "ä😀!"),
            (r#""\ud83d!""#, "\u{fffd}!"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(unquoted(text.as_bytes()), resolved, "{text}");
        }
        assert_eq!(unquoted(b"\"\xff\""), "\u{fffd}");
    }
}
