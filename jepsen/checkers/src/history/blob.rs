//! Keys and values: any bytes, shared, and readable in a file where they are text.

use std::{borrow::Borrow, fmt, ops::Deref};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Marks bytes that are no text, in a file.
const CODED: &str = "base64:";

/// Is a key or a value.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob(pub Bytes);

impl Blob {
    /// Is the empty one.
    pub const EMPTY: Self = Self(Bytes::new());

    /// Ends the range of every key that starts with these bytes, in etcd's way.
    #[must_use]
    pub fn prefix_end(&self) -> Self {
        let mut end = self.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return Self(end.into());
            }
        }
        Self(Bytes::from_static(b"\0"))
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Blob {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Blob {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for Blob {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) => f.write_str(text),
            Err(_) => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with(CODED) => serializer.serialize_str(text),
            _ => serializer.collect_str(&format_args!("{CODED}{}", STANDARD.encode(&self.0))),
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "text, or {CODED} and base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Blob, E> {
                match text.strip_prefix(CODED) {
                    Some(coded) => STANDARD.decode(coded).map(Blob::from).map_err(E::custom),
                    None => Ok(Blob::from(text)),
                }
            }
        }
        deserializer.deserialize_str(Text)
    }
}
