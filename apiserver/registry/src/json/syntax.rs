//! What is wrong with a text that is no JSON, in the words of Go's decoder, which
//! is what clients are used to read.

use std::fmt::Write as _;

/// How deep Go's decoder follows.
const DEPTH_MAX: usize = 10_000;

/// What may come next.
#[derive(Clone, Copy)]
enum Next {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    /// What follows a value, in what it stands.
    After,
    Text,
    Escape,
    /// So many digits of an escape are missing.
    Hex(u8),
    Minus,
    Digits,
    /// Digits after a zero are none.
    Zero,
    Dot,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// A word, of which so much was seen.
    Word(&'static str, usize),
}

/// What a value stands in.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Key,
    Member,
    List,
}

/// Says why a text is no JSON; `None` if it is.
pub(super) fn error(text: &[u8]) -> Option<String> {
    let mut scan = Scan {
        next: Next::Value,
        within: Vec::new(),
    };
    for byte in text {
        if let Err(wrong) = scan.step(*byte) {
            return Some(match wrong {
                Wrong::Depth => "exceeded max depth".to_owned(),
                Wrong::At(place) => format!("invalid character {} {place}", quoted(*byte)),
            });
        }
    }
    // As a space would, the end ends a number.
    let ended = scan.step(b' ').is_ok() && scan.is_done();
    (!ended).then(|| "unexpected end of JSON input".to_owned())
}

enum Wrong {
    Depth,
    At(String),
}

fn at(place: &str) -> Result<(), Wrong> {
    Err(Wrong::At(place.to_owned()))
}

struct Scan {
    next: Next,
    within: Vec<Within>,
}

impl Scan {
    fn is_done(&self) -> bool {
        self.within.is_empty() && matches!(self.next, Next::After)
    }

    fn step(&mut self, byte: u8) -> Result<(), Wrong> {
        let space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.next = match (self.next, byte) {
            (Next::Value | Next::ValueOrEnd | Next::Key | Next::KeyOrEnd | Next::After, _)
                if space =>
            {
                return Ok(());
            }
            (Next::ValueOrEnd, b']') | (Next::KeyOrEnd, b'}') => return self.end(),
            (Next::Value | Next::ValueOrEnd, byte) => return self.value(byte),
            (Next::Key | Next::KeyOrEnd, b'"') => Next::Text,
            (Next::Key | Next::KeyOrEnd, _) => {
                return at("looking for beginning of object key string");
            }
            (Next::After, byte) => return self.after(byte),
            (Next::Text, b'"') => Next::After,
            (Next::Text, b'\\') => Next::Escape,
            (Next::Text, 0..0x20) => return at("in string literal"),
            (Next::Text, _) => Next::Text,
            (Next::Escape, b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => Next::Text,
            (Next::Escape, b'u') => Next::Hex(4),
            (Next::Escape, _) => return at("in string escape code"),
            (Next::Hex(1), b) if b.is_ascii_hexdigit() => Next::Text,
            (Next::Hex(left), b) if b.is_ascii_hexdigit() => Next::Hex(left - 1),
            (Next::Hex(_), _) => return at("in \\u hexadecimal character escape"),
            (Next::Word(word, seen), b) if word.as_bytes().get(seen) == Some(&b) => {
                match seen + 1 == word.len() {
                    true => Next::After,
                    false => Next::Word(word, seen + 1),
                }
            }
            (Next::Word(word, seen), _) => {
                let wanted = &word[seen..=seen];
                return at(&format!("in literal {word} (expecting '{wanted}')"));
            }
            (number, byte) => return self.number(number, byte),
        };
        Ok(())
    }

    fn value(&mut self, byte: u8) -> Result<(), Wrong> {
        self.next = match byte {
            b'{' => {
                self.within.push(Within::Key);
                Next::KeyOrEnd
            }
            b'[' => {
                self.within.push(Within::List);
                Next::ValueOrEnd
            }
            b'"' => Next::Text,
            b'-' => Next::Minus,
            b'0' => Next::Zero,
            b'1'..=b'9' => Next::Digits,
            b't' => Next::Word("true", 1),
            b'f' => Next::Word("false", 1),
            b'n' => Next::Word("null", 1),
            _ => return at("looking for beginning of value"),
        };
        if self.within.len() > DEPTH_MAX {
            return Err(Wrong::Depth);
        }
        Ok(())
    }

    fn after(&mut self, byte: u8) -> Result<(), Wrong> {
        let Some(within) = self.within.last_mut() else {
            return at("after top-level value");
        };
        self.next = match (*within, byte) {
            (Within::Key, b':') => {
                *within = Within::Member;
                Next::Value
            }
            (Within::Key, _) => return at("after object key"),
            (Within::Member, b',') => {
                *within = Within::Key;
                Next::Key
            }
            (Within::Member, b'}') | (Within::List, b']') => return self.end(),
            (Within::Member, _) => return at("after object key:value pair"),
            (Within::List, b',') => Next::Value,
            (Within::List, _) => return at("after array element"),
        };
        Ok(())
    }

    fn end(&mut self) -> Result<(), Wrong> {
        self.within.pop();
        self.next = Next::After;
        Ok(())
    }

    fn number(&mut self, number: Next, byte: u8) -> Result<(), Wrong> {
        self.next = match (number, byte) {
            (Next::Minus, b'0') => Next::Zero,
            (Next::Minus, b'1'..=b'9') | (Next::Digits, b'0'..=b'9') => Next::Digits,
            (Next::Minus, _) => return at("in numeric literal"),
            (Next::Zero | Next::Digits, b'.') => Next::Dot,
            (Next::Dot | Next::Fraction, b'0'..=b'9') => Next::Fraction,
            (Next::Dot, _) => return at("after decimal point in numeric literal"),
            (Next::Zero | Next::Digits | Next::Fraction, b'e' | b'E') => Next::Exponent,
            (Next::Exponent, b'+' | b'-') => Next::ExponentSign,
            (Next::Exponent | Next::ExponentSign | Next::ExponentDigits, b'0'..=b'9') => {
                Next::ExponentDigits
            }
            (Next::Exponent | Next::ExponentSign, _) => {
                return at("in exponent of numeric literal");
            }
            _ => {
                // The number is over; this belongs to what follows.
                self.next = Next::After;
                return self.step(byte);
            }
        };
        Ok(())
    }
}

/// Quotes a byte as Go quotes a character.
fn quoted(byte: u8) -> String {
    let mut out = "'".to_owned();
    match byte {
        b'\'' => out.push_str("\\'"),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x07 => out.push_str("\\a"),
        0x08 => out.push_str("\\b"),
        0x0b => out.push_str("\\v"),
        0x0c => out.push_str("\\f"),
        0..0x20 | 0x7f => {
            let _infallible = write!(out, "\\x{byte:02x}");
        }
        0x80..=0xa0 | 0xad => {
            let _infallible = write!(out, "\\u{byte:04x}");
        }
        _ => out.push(char::from(byte)),
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and what Go says of them.
    const WRONG: &[(&str, &str)] = &[
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (r#"{"a":"#, "unexpected end of JSON input"),
        (r#"{"a":1"#, "unexpected end of JSON input"),
        (
            "not json",
            "invalid character 'o' in literal null (expecting 'u')",
        ),
        (
            "hello",
            "invalid character 'h' looking for beginning of value",
        ),
        (
            "{a}",
            "invalid character 'a' looking for beginning of object key string",
        ),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (
            r#"{"a":1 "b"}"#,
            "invalid character '\"' after object key:value pair",
        ),
        (
            r#"{"a":1,}"#,
            "invalid character '}' looking for beginning of object key string",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        (
            "[1,]",
            "invalid character ']' looking for beginning of value",
        ),
        ("{} {}", "invalid character '{' after top-level value"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        (r#""\x""#, "invalid character 'x' in string escape code"),
        (
            r#""\u12g""#,
            "invalid character 'g' in \\u hexadecimal character escape",
        ),
        ("-a", "invalid character 'a' in numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        (
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        ),
        (
            "'a'",
            "invalid character '\\'' looking for beginning of value",
        ),
        (
            "\u{e9}",
            "invalid character 'Ã' looking for beginning of value",
        ),
        (
            "\0",
            "invalid character '\\x00' looking for beginning of value",
        ),
    ];

    #[test]
    fn says_what_go_says() {
        for (text, want) in WRONG {
            assert_eq!(error(text.as_bytes()).as_deref(), Some(*want), "{text}");
        }
        let deep = "[".repeat(10_001);
        assert_eq!(
            error(deep.as_bytes()).as_deref(),
            Some("exceeded max depth")
        );
        for good in [
            "1",
            "-0",
            "1.5e-3",
            "null",
            r#"{"a":[{},[],"\u00e9\n",true]} "#,
            "\"\u{e9}\"",
            "[1,2.0 ]",
        ] {
            assert_eq!(error(good.as_bytes()), None, "{good}");
            assert!(serde_json::from_str::<serde_json::Value>(good).is_ok());
        }
    }
}
