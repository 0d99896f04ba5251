//! Finds where a JSON value ends, and says what is wrong with it in the words of Go's
//! `encoding/json`: they are the error messages of etcd's gateway, and reach clients.

use thiserror::Error;

/// How deep arrays and objects may stand in each other. Deeper text is refused before
/// anything recurses into it; fifty nested transactions, which is more than the
/// decoder of messages allows, need half of it (Go: 10,000).
const DEPTH_MAX: usize = 300;

/// Is what is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    /// A byte that cannot stand where it does.
    #[error("invalid character {} {place}", quoted(*byte))]
    Byte {
        /// The byte.
        byte: u8,
        /// Where it stands.
        place: String,
    },
    /// Too many open brackets.
    #[error("exceeded max depth")]
    Depth,
    /// A stream that ended within a value.
    #[error("unexpected EOF")]
    Truncated,
    /// A text that ended within a value.
    #[error("unexpected end of JSON input")]
    End,
}

/// What stands open around the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Array,
    Object,
}

/// Is what the next byte may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// Just behind `[`.
    ValueOrEnd,
    Key,
    /// Just behind `{`.
    KeyOrEnd,
    Colon,
    /// Behind a value in an array or object.
    Comma,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    /// Within `true`, `false` or `null`.
    Word {
        word: &'static str,
        at: usize,
    },
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    Done,
}

/// Reads one value, byte for byte, however it is cut.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    open: Vec<Open>,
    /// Bytes taken so far.
    taken: usize,
    /// Where the value began.
    began: Option<usize>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value,
            open: Vec::new(),
            taken: 0,
            began: None,
        }
    }
}

impl Scanner {
    /// Reads on in `text`, which begins with what was read before; returns where the
    /// value stands once it is complete.
    pub(crate) fn scan(
        &mut self,
        text: &[u8],
    ) -> Result<Option<std::ops::Range<usize>>, Malformed> {
        while let Some(byte) = text.get(self.taken) {
            if self.began.is_none() && !is_space(*byte) {
                self.began = Some(self.taken);
            }
            let number_before = self.number_complete();
            self.step(*byte)?;
            if self.state == State::Done {
                // Only a number ends with the byte behind it.
                let end = self.taken + usize::from(!number_before);
                return Ok(Some(self.began.unwrap_or(end)..end));
            }
            self.taken += 1;
        }
        Ok(None)
    }

    /// Says what it means that no more bytes come: a number that ends here, nothing at
    /// all, or an error.
    pub(crate) fn end(&self) -> Result<Option<std::ops::Range<usize>>, Malformed> {
        match self.began {
            None => Ok(None),
            Some(began) if self.number_complete() => Ok(Some(began..self.taken)),
            Some(_) => Err(Malformed::Truncated),
        }
    }

    /// Says whether a number outside of everything could end here.
    fn number_complete(&self) -> bool {
        let number = matches!(
            self.state,
            State::Zero | State::Digits | State::Fraction | State::ExponentDigits
        );
        number && self.open.is_empty()
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        use State::{
            Colon, Comma, Digits, Done, Escape, Exponent, ExponentDigits, ExponentSign, Fraction,
            Hex, Key, KeyOrEnd, Minus, Point, Text, Value, ValueOrEnd, Word, Zero,
        };
        let space = is_space(byte);
        self.state = match (self.state, byte) {
            (Value | ValueOrEnd | Key | KeyOrEnd | Colon | Comma, _) if space => self.state,
            (ValueOrEnd, b']') | (KeyOrEnd, b'}') => return self.close(),
            (Value | ValueOrEnd, _) => return self.begin(byte),
            (Key | KeyOrEnd, b'"') => Text { key: true },
            (Key | KeyOrEnd, _) => {
                return Err(wrong(byte, "looking for beginning of object key string"));
            }
            (Colon, b':') => Value,
            (Colon, _) => return Err(wrong(byte, "after object key")),
            (Comma, _) => return self.after_value(byte),
            (Text { key: true }, b'"') => Colon,
            (Text { key: false }, b'"') => return self.complete(),
            (Text { key }, b'\\') => Escape { key },
            (Text { .. }, 0..0x20) => return Err(wrong(byte, "in string literal")),
            (Text { key }, _) => Text { key },
            (Escape { key }, b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {
                Text { key }
            }
            (Escape { key }, b'u') => Hex { key, left: 4 },
            (Escape { .. }, _) => return Err(wrong(byte, "in string escape code")),
            (Hex { key, left }, _) if byte.is_ascii_hexdigit() => match left {
                1 => Text { key },
                _ => Hex {
                    key,
                    left: left - 1,
                },
            },
            (Hex { .. }, _) => return Err(wrong(byte, "in \\u hexadecimal character escape")),
            (Word { word, at }, _) => return self.spell(word, at, byte),
            (Minus, b'0') => Zero,
            (Minus, b'1'..=b'9') | (Digits, b'0'..=b'9') => Digits,
            (Minus, _) => return Err(wrong(byte, "in numeric literal")),
            (Zero | Digits, b'.') => Point,
            (Zero | Digits | Fraction, b'e' | b'E') => Exponent,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Point, _) => return Err(wrong(byte, "after decimal point in numeric literal")),
            (Exponent, b'+' | b'-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => ExponentDigits,
            (Exponent | ExponentSign, _) => {
                return Err(wrong(byte, "in exponent of numeric literal"));
            }
            // The number is over; the byte belongs to what is around it.
            (Zero | Digits | Fraction | ExponentDigits, _) => return self.after_number(byte),
            (Done, _) => Done,
        };
        Ok(())
    }

    fn begin(&mut self, byte: u8) -> Result<(), Malformed> {
        self.state = match byte {
            b'{' => return self.enter(Open::Object, State::KeyOrEnd),
            b'[' => return self.enter(Open::Array, State::ValueOrEnd),
            b'"' => State::Text { key: false },
            b'-' => State::Minus,
            b'0' => State::Zero,
            b'1'..=b'9' => State::Digits,
            b't' => State::Word {
                word: "true",
                at: 1,
            },
            b'f' => State::Word {
                word: "false",
                at: 1,
            },
            b'n' => State::Word {
                word: "null",
                at: 1,
            },
            _ => return Err(wrong(byte, "looking for beginning of value")),
        };
        Ok(())
    }

    fn enter(&mut self, open: Open, state: State) -> Result<(), Malformed> {
        if self.open.len() == DEPTH_MAX {
            return Err(Malformed::Depth);
        }
        self.open.push(open);
        self.state = state;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Malformed> {
        self.open.pop();
        self.complete()
    }

    fn complete(&mut self) -> Result<(), Malformed> {
        self.state = if self.open.is_empty() {
            State::Done
        } else {
            State::Comma
        };
        Ok(())
    }

    fn after_number(&mut self, byte: u8) -> Result<(), Malformed> {
        self.complete()?;
        match self.state {
            State::Done => Ok(()),
            _ => self.step(byte),
        }
    }

    fn after_value(&mut self, byte: u8) -> Result<(), Malformed> {
        match (self.open.last(), byte) {
            (Some(Open::Array), b',') => self.state = State::Value,
            (Some(Open::Object), b',') => self.state = State::Key,
            (Some(Open::Array), b']') | (Some(Open::Object), b'}') => return self.close(),
            (Some(Open::Array), _) => return Err(wrong(byte, "after array element")),
            _ => return Err(wrong(byte, "after object key:value pair")),
        }
        Ok(())
    }

    fn spell(&mut self, word: &'static str, at: usize, byte: u8) -> Result<(), Malformed> {
        let wanted = word.as_bytes()[at];
        if byte != wanted {
            let place = format!("in literal {word} (expecting {})", quoted(wanted));
            return Err(Malformed::Byte { byte, place });
        }
        if at + 1 == word.len() {
            return self.complete();
        }
        self.state = State::Word { word, at: at + 1 };
        Ok(())
    }
}

fn wrong(byte: u8, place: &str) -> Malformed {
    let place = place.to_owned();
    Malformed::Byte { byte, place }
}

/// Checks a text that must be one value and nothing else; returns where it stands.
pub(crate) fn only_value(text: &[u8]) -> Result<std::ops::Range<usize>, Malformed> {
    let mut scanner = Scanner::default();
    let found = match scanner.scan(text)? {
        Some(found) => found,
        None => match scanner.end() {
            Ok(Some(found)) => found,
            Ok(None) | Err(_) => return Err(Malformed::End),
        },
    };
    match text[found.end..].iter().find(|byte| !is_space(**byte)) {
        Some(byte) => Err(wrong(*byte, "after top-level value")),
        None => Ok(found),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Writes a byte in single quotes, as Go does in these messages.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let text = go_quoted(&char::from(byte).to_string());
            format!("'{}'", &text[1..text.len() - 1])
        }
    }
}

/// Writes a text in double quotes, as Go's `%q` does.
pub(crate) fn go_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c if c.is_control() || c == '\u{a0}' || c == '\u{ad}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a text whole, and byte for byte; both must say the same.
    fn scanned(text: &str) -> Result<&str, String> {
        let whole = scan_in_parts(text, text.len().max(1));
        assert_eq!(whole, scan_in_parts(text, 1), "{text:?}");
        whole
    }

    fn scan_in_parts(text: &str, part: usize) -> Result<&str, String> {
        let mut scanner = Scanner::default();
        let mut seen = 0;
        while seen < text.len() {
            seen = text.len().min(seen + part);
            let found = scanner.scan(&text.as_bytes()[..seen]);
            if let Some(found) = found.map_err(|error| error.to_string())? {
                return Ok(&text[found]);
            }
        }
        let end = scanner.end().map_err(|error| error.to_string())?;
        Ok(end.map_or("", |found| &text[found]))
    }

    #[test]
    fn a_value_ends_where_it_is_complete() {
        for (text, value) in [
            (" {} x", "{}"),
            (
                r#"{"a":[1,-2.5e+3,"}]",{"b":null}]}{"#,
                r#"{"a":[1,-2.5e+3,"}]",{"b":null}]}"#,
            ),
            ("12 3", "12"),
            ("12", "12"),
            ("0x", "0"),
            (r#""a\"\u00e4"tail"#, r#""a\"\u00e4""#),
            ("true false", "true"),
            ("[]]", "[]"),
            ("  ", ""),
            ("", ""),
        ] {
            assert_eq!(scanned(text).as_deref(), Ok(value), "{text:?}");
        }
    }

    #[test]
    fn errors_are_gos() {
        for (text, error) in [
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b"}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\q""#, "invalid character 'q' in string escape code"),
            (
                r#""\u00g""#,
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            (
                "nulL",
                "invalid character 'L' in literal null (expecting 'l')",
            ),
            ("-a", "invalid character 'a' in numeric literal"),
            (
                "1.a",
                "invalid character 'a' after decimal point in numeric literal",
            ),
            (
                "1ea",
                "invalid character 'a' in exponent of numeric literal",
            ),
            ("{\"a\"", "unexpected EOF"),
            ("tru", "unexpected EOF"),
            (
                "'",
                "invalid character '\\'' looking for beginning of value",
            ),
        ] {
            assert_eq!(scanned(text), Err(error.to_owned()), "{text:?}");
        }
        let deep = "[".repeat(DEPTH_MAX + 1);
        assert_eq!(scanned(&deep), Err("exceeded max depth".to_owned()));
    }

    #[test]
    fn one_value_alone() {
        assert_eq!(only_value(b" 5 "), Ok(1..2));
        let error = |text: &[u8]| only_value(text).unwrap_err().to_string();
        assert_eq!(error(b"0x1"), "invalid character 'x' after top-level value");
        assert_eq!(error(b""), "unexpected end of JSON input");
        assert_eq!(error(b"{"), "unexpected end of JSON input");
    }
}
