//! Builds the query part of a URL (RFC 3986 percent-encoding).

use std::fmt::Write;

/// Collects `name=value` pairs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    /// Adds a pair.
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        encode(value, &mut self.0);
    }

    /// Adds a pair if there is a value.
    pub(crate) fn opt(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    /// Puts the query behind a path.
    pub(crate) fn finish(&self, path: &str) -> String {
        if self.0.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", self.0)
        }
    }
}

fn encode(value: &str, out: &mut String) {
    for &byte in value.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_urls_reserve() {
        let mut query = Query::default();
        query.push("a", "x=y&z/ü");
        query.opt("b", None);
        assert_eq!(query.finish("/p"), "/p?a=x%3Dy%26z%2F%C3%BC");
        assert_eq!(Query::default().finish("/p"), "/p");
    }
}
