//! The messages whose JSON form is not an object of their fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::DecodeError;
use super::table::MessageId;
use super::wire::{Out, Reader, Scalar};

/// Says how such a message and its JSON form correspond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// A time of whole seconds, as text.
    Time,
    /// A time of microseconds, as text.
    MicroTime,
    /// A quantity, as text.
    Quantity,
    /// A number or a text.
    IntOrString,
    /// Any JSON, in its own bytes.
    Raw,
    /// A list of texts.
    Texts,
    /// A schema or a boolean.
    SchemaOrBool(MessageId),
    /// A schema or a list of them.
    SchemaOrArray(MessageId),
    /// A schema or a list of texts.
    SchemaOrTexts(MessageId),
}

const SCHEMA: &str = "apiextensions_apiserver.pkg.apis.apiextensions.v1.jsonschemaprops";

impl Special {
    /// Recognises a message by its name.
    pub(super) fn of(name: &str, ids: &BTreeMap<&'static str, MessageId>) -> Option<Self> {
        let schema = ids.get(SCHEMA).copied();
        Some(match name {
            "apimachinery.pkg.apis.meta.v1.time" => Self::Time,
            "apimachinery.pkg.apis.meta.v1.microtime" => Self::MicroTime,
            "apimachinery.pkg.api.resource.quantity" => Self::Quantity,
            "apimachinery.pkg.util.intstr.intorstring" => Self::IntOrString,
            "apimachinery.pkg.runtime.rawextension"
            | "apimachinery.pkg.apis.meta.v1.fieldsv1"
            | "apiextensions_apiserver.pkg.apis.apiextensions.v1.json" => Self::Raw,
            "apimachinery.pkg.apis.meta.v1.verbs"
            | "api.authentication.v1.extravalue"
            | "api.authorization.v1.extravalue"
            | "api.certificates.v1.extravalue" => Self::Texts,
            "apiextensions_apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorbool" => {
                Self::SchemaOrBool(schema?)
            }
            "apiextensions_apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorarray" => {
                Self::SchemaOrArray(schema?)
            }
            "apiextensions_apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorstringarray" => {
                Self::SchemaOrTexts(schema?)
            }
            _ => return None,
        })
    }

    /// Writes the fields of one whose JSON form is text; false if the text is
    /// none of these.
    pub(super) fn write_text(self, out: &mut Out, text: &str) -> bool {
        match self {
            Self::Time | Self::MicroTime => {
                let Some(time) = meta::time::parse(text) else {
                    return false;
                };
                let nanos = match self {
                    // Whole seconds in either form: what JSON cannot say must
                    // not be said in protobuf.
                    Self::Time => 0,
                    _ => time.subsec_nanosecond() / 1000 * 1000,
                };
                let seconds = time.as_second() - i64::from(nanos < 0);
                let nanos = if nanos < 0 {
                    nanos + 1_000_000_000
                } else {
                    nanos
                };
                out.int(1, seconds);
                out.int(2, nanos.into());
            }
            Self::Quantity => out.bytes(1, text.as_bytes()),
            Self::IntOrString => {
                out.int(1, 1);
                out.int(2, 0);
                out.bytes(3, text.as_bytes());
            }
            _ => return false,
        }
        true
    }

    /// Reads one that is neither a schema nor a list; `None` is one that JSON
    /// writes as null.
    pub(super) fn read(self, bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut numbers, mut texts) = ([0_i64; 4], [&[][..]; 4]);
        let mut list = Vec::new();
        while let Some((number, scalar)) = reader.next()? {
            let Some(at) = usize::try_from(number).ok().filter(|n| *n < 4) else {
                continue;
            };
            match scalar {
                Scalar::Number(n) => numbers[at] = n.cast_signed(),
                Scalar::Bytes(b) => {
                    texts[at] = b;
                    if self == Self::Texts && at == 1 {
                        list.push(Value::String(super::text(b)?));
                    }
                }
                Scalar::Fixed(_) => {}
            }
        }
        Ok(match self {
            // An empty message is Go's zero time, which JSON writes as null.
            Self::Time | Self::MicroTime if bytes.is_empty() => None,
            Self::Time | Self::MicroTime => {
                let nanos = i32::try_from(numbers[2]).map_err(|_ignored| DecodeError::Malformed)?;
                let time = jiff::Timestamp::new(numbers[1], nanos)
                    .ok()
                    .filter(|time| meta::time::is_writable(*time))
                    .ok_or(DecodeError::Malformed)?;
                Some(Value::String(match self {
                    Self::Time => meta::time::format(time),
                    _ => meta::time::format_micro(time),
                }))
            }
            Self::Quantity => Some(Value::String(super::text(texts[1])?)),
            Self::IntOrString if numbers[1] == 1 => Some(Value::String(super::text(texts[3])?)),
            Self::IntOrString => Some(Value::from(numbers[2])),
            Self::Texts => Some(Value::Array(list)),
            _ if texts[1].is_empty() => None,
            _ => Some(serde_json::from_slice(texts[1]).map_err(|_ignored| DecodeError::Malformed)?),
        })
    }
}
