//! From protobuf to the value of the JSON form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::special::Special;
use super::table::{Field, Meaning, MessageId, Numbers, Wire, messages};
use super::wire::{Reader, Scalar};
use super::{DEPTH_MAX, DecodeError, text};

/// Decodes a message into the members of an object.
pub(super) fn message(
    id: MessageId,
    bytes: &[u8],
    into: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    Decoder { depth: 0 }.message(id, bytes, into)
}

struct Decoder {
    depth: usize,
}

impl Decoder {
    fn message(
        &mut self,
        id: MessageId,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        self.numbers(id, &messages().get(id).numbers, bytes, into)
    }

    fn numbers(
        &mut self,
        id: MessageId,
        numbers: &'static Numbers,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        if self.depth >= DEPTH_MAX {
            return Err(DecodeError::Depth);
        }
        self.depth += 1;
        let mut reader = Reader::new(bytes);
        while let Some((number, scalar)) = reader.next()? {
            // A field newer than the table is as if it were not there.
            let Ok(at) = numbers.binary_search_by_key(&number, |(n, _)| *n) else {
                continue;
            };
            match (&numbers[at].1, scalar) {
                (Meaning::Field(place), scalar) => {
                    self.field(messages().get(id).at(*place), scalar, into)?;
                }
                (Meaning::Embedded(inner), Scalar::Bytes(b)) => {
                    self.numbers(id, inner, b, into)?;
                }
                _ => return Err(DecodeError::Malformed),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static Field,
        scalar: Scalar<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        if let Wire::Map(wire) = &field.wire {
            let Scalar::Bytes(entry) = scalar else {
                return Err(DecodeError::Malformed);
            };
            let (key, value) = self.entry(wire, entry)?;
            let slot = into
                .entry(field.name)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = slot {
                map.insert(key, value);
            }
            return Ok(());
        }
        if field.repeated {
            let value = self.value(&field.wire, scalar)?;
            let slot = into
                .entry(field.name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = slot {
                list.push(value.unwrap_or_default());
            }
            return Ok(());
        }
        // A message may come in parts.
        if let (Wire::Message(id), Scalar::Bytes(bytes), Some(Value::Object(begun))) =
            (&field.wire, scalar, into.get_mut(field.name))
        {
            return self.message(*id, bytes, begun);
        }
        if let Some(value) = self.value(&field.wire, scalar)?
            && (field.keeps_zero || !is_zero(&field.wire, &value))
        {
            into.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    fn entry(&mut self, wire: &'static Wire, bytes: &[u8]) -> Result<(String, Value), DecodeError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, scalar)) = reader.next()? {
            match (number, scalar) {
                (1, Scalar::Bytes(b)) => key = text(b)?,
                (2, scalar) => value = self.value(wire, scalar)?,
                _ => {}
            }
        }
        let absent = || match wire {
            Wire::Message(_) => Value::Object(Map::new()),
            Wire::Special(Special::Texts | Special::SchemaOrTexts(_)) => Value::Array(Vec::new()),
            Wire::Special(_) => Value::Null,
            _ => Value::from(""),
        };
        Ok((key, value.unwrap_or_else(absent)))
    }

    /// Decodes one value; `None` is one that the JSON form writes as null.
    fn value(
        &mut self,
        wire: &'static Wire,
        scalar: Scalar<'_>,
    ) -> Result<Option<Value>, DecodeError> {
        Ok(Some(match (wire, scalar) {
            (Wire::Text, Scalar::Bytes(b)) => Value::String(text(b)?),
            (Wire::Bytes, Scalar::Bytes(b)) => Value::String(STANDARD.encode(b)),
            (Wire::Bool, Scalar::Number(n)) => Value::Bool(n != 0),
            // A negative int32 is sign-extended to 64 bits on the wire.
            (Wire::Int, Scalar::Number(n)) => Value::from(n.cast_signed()),
            (Wire::Double, Scalar::Fixed(bits)) => Value::from(f64::from_bits(bits)),
            (Wire::Message(id), Scalar::Bytes(b)) => {
                let mut object = Map::new();
                self.message(*id, b, &mut object)?;
                Value::Object(object)
            }
            (Wire::Special(special), Scalar::Bytes(b)) => return self.special(*special, b),
            _ => return Err(DecodeError::Malformed),
        }))
    }

    fn special(&mut self, special: Special, bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
        let (Special::SchemaOrBool(id) | Special::SchemaOrArray(id) | Special::SchemaOrTexts(id)) =
            special
        else {
            return special.read(bytes);
        };
        let (mut schema, mut list, mut allows) = (None, None, false);
        // Which number is the schema's, and which the other's.
        let (own, other) = match special {
            Special::SchemaOrBool(_) => (2, 1),
            _ => (1, 2),
        };
        let mut reader = Reader::new(bytes);
        while let Some((number, scalar)) = reader.next()? {
            match (special, scalar) {
                (_, Scalar::Bytes(b)) if number == own => {
                    let mut object = Map::new();
                    self.message(id, b, &mut object)?;
                    schema = Some(Value::Object(object));
                }
                (Special::SchemaOrBool(_), Scalar::Number(n)) if number == other => allows = n != 0,
                (Special::SchemaOrArray(_), Scalar::Bytes(b)) if number == other => {
                    let mut object = Map::new();
                    self.message(id, b, &mut object)?;
                    list.get_or_insert_with(Vec::new).push(object.into());
                }
                (_, Scalar::Bytes(b)) if number == other => {
                    list.get_or_insert_with(Vec::new).push(text(b)?.into());
                }
                _ => {}
            }
        }
        Ok(match (special, list, schema) {
            (Special::SchemaOrBool(_), _, schema) => schema.or(Some(allows.into())),
            (_, Some(list), _) => Some(Value::Array(list)),
            (_, None, schema) => schema,
        })
    }
}

/// Tells whether Go's `omitempty` would leave the value out. A message is never:
/// its being there may be the statement (`emptyDir`), and the number or text
/// zero (`maxUnavailable`) is a message on the wire.
fn is_zero(wire: &Wire, value: &Value) -> bool {
    match (wire, value) {
        (Wire::Message(_) | Wire::Special(_), _) => false,
        (_, Value::String(s)) => s.is_empty(),
        (_, Value::Number(n)) => n.as_f64() == Some(0.0),
        (_, Value::Bool(b)) => !b,
        _ => false,
    }
}
