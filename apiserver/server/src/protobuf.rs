//! The form that Go clients prefer for built-in types: bodies are read from it,
//! answers and watches written in it.
//!
//! The envelope is the magic `k8s\0` and a `runtime.Unknown` whose `raw` is the
//! message. A message becomes the value that its JSON form would be, and JSON
//! becomes a message, both by one table ([`table`]): field numbers joined with
//! the schema's JSON names. Everything between knows JSON alone.
//!
//! One thing is lost on the wire. Go writes a field that is no pointer even
//! when it is zero, and its JSON form would leave that out; a pointer to zero
//! looks the same and must be kept, and so must the zero of a field that is
//! required, which Go's JSON always has. `pointers.txt` names the fields that are
//! pointers.

mod decode;
mod encode;
mod kept;
mod list;
mod special;
mod table;
mod wire;

use bytes::Bytes;
use meta::{Object, Reason, Status};
use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

pub(crate) use list::{List, Piece};
use table::MessageId;
use wire::{Front, Out, Reader, Scalar};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8; 4] = b"k8s\0";
/// What stands behind a message: encoding and type of the content, none, as Go writes
/// them.
const END: &[u8] = &[0x1a, 0, 0x22, 0];
/// The deepest nesting of messages; the deepest real type (schemas of custom
/// resources apart) has less than twenty.
const DEPTH_MAX: usize = 64;

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// It does not begin with the magic.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Magic,
    /// It ends too early, or a length or tag makes no sense.
    #[error("malformed protobuf")]
    Malformed,
    /// It nests too deep.
    #[error("protobuf nests deeper than {DEPTH_MAX} messages")]
    Depth,
    /// The type is not known in protobuf.
    #[error("no kind {1:?} is registered for version {0:?} in protobuf")]
    UnknownType(String, String),
}

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodeError {
    /// The type has no message.
    #[error(
        "object {0} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    )]
    NoMessage(String),
    /// The value is not what its type says.
    #[error("cannot be encoded to a protobuf message: {0}")]
    Value(#[from] serde_json::Error),
}

impl EncodeError {
    /// Turns the error into what a client sees.
    pub(crate) fn into_status(self) -> Status {
        match self {
            Self::NoMessage(_) => Status::failure(Reason::NotAcceptable, self.to_string()),
            Self::Value(_) => Status::internal(self),
        }
    }
}

/// Decodes a body into the value of its JSON form, `apiVersion` and `kind`
/// included as far as it names them. `expected` is the kind to assume when it
/// names none.
pub(crate) fn decode(bytes: &[u8], expected: &str) -> Result<Value, DecodeError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut unknown = Reader::new(body);
    while let Some((number, scalar)) = unknown.next()? {
        match (number, scalar) {
            (1, Scalar::Bytes(type_meta)) => {
                let mut type_meta = Reader::new(type_meta);
                while let Some((number, scalar)) = type_meta.next()? {
                    match (number, scalar) {
                        (1, Scalar::Bytes(b)) => api_version = text(b)?,
                        (2, Scalar::Bytes(b)) => kind = text(b)?,
                        _ => {}
                    }
                }
            }
            (2, Scalar::Bytes(b)) => raw = b,
            _ => {}
        }
    }
    let named = if kind.is_empty() { expected } else { &kind };
    let Some(message) = table::find(&api_version, named) else {
        return Err(DecodeError::UnknownType(api_version, named.to_owned()));
    };
    let mut object = Map::new();
    decode::message(message, raw, &mut object)?;
    for (name, value) in [("apiVersion", api_version), ("kind", kind)] {
        if !value.is_empty() {
            object.insert(name.to_owned(), value.into());
        }
    }
    Ok(Value::Object(object))
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_ignored| DecodeError::Malformed)
}

/// A type that has a message, named as the envelope names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    api_version: &'a str,
    kind: &'a str,
    message: MessageId,
}

impl<'a> Type<'a> {
    /// Finds a type.
    pub(crate) fn find(api_version: &'a str, kind: &'a str) -> Result<Self, EncodeError> {
        match table::find(api_version, kind) {
            Some(message) => Ok(Self {
                api_version,
                kind,
                message,
            }),
            None => {
                let version = api_version.rsplit('/').next().unwrap_or_default();
                Err(EncodeError::NoMessage(format!("*{version}.{kind}")))
            }
        }
    }

    /// How much is kept free before the message: for the envelope and what a
    /// watch puts around it.
    fn headroom(&self) -> usize {
        64 + self.api_version.len() + self.kind.len()
    }

    /// Encodes an object as it is stored.
    pub(crate) fn object(&self, object: &Object) -> Result<Bytes, EncodeError> {
        Ok(self.stored(object)?.finish())
    }

    fn stored(&self, object: &Object) -> Result<Front, EncodeError> {
        let mut out = Out::with_headroom(self.headroom(), object.body().len());
        write_stored(&mut out, self.message, object)?;
        Ok(self.envelope(out))
    }

    /// Encodes a value.
    pub(crate) fn value(&self, value: &Value) -> Result<Bytes, EncodeError> {
        Ok(self.tree(value)?.finish())
    }

    fn tree(&self, value: &Value) -> Result<Front, EncodeError> {
        let mut out = Out::with_headroom(self.headroom(), 1024);
        write_value(&mut out, self.message, value)?;
        Ok(self.envelope(out))
    }

    /// Encodes the event of a watch that shows an object as it is stored.
    pub(crate) fn event(&self, event_type: &str, object: &Object) -> Result<Bytes, EncodeError> {
        Ok(frame(event_type, self.stored(object)?))
    }

    /// Encodes the event of a watch that shows a value.
    pub(crate) fn event_of(&self, event_type: &str, value: &Value) -> Result<Bytes, EncodeError> {
        Ok(frame(event_type, self.tree(value)?))
    }

    /// Puts the envelope around a message.
    fn envelope(&self, out: Out) -> Front {
        let mut front = Front::new(out, self.headroom());
        front.wrap(2);
        front.append(END);
        self.put(&mut front);
        front
    }

    /// Puts what stands before a message.
    fn put(&self, front: &mut Front) {
        let mut type_meta = Out::default();
        type_meta.bytes(1, self.api_version.as_bytes());
        type_meta.bytes(2, self.kind.as_bytes());
        let mut head = Out::default();
        head.bytes(1, &type_meta.into_inner());
        front.put(&head.into_inner());
        front.put(MAGIC);
    }
}

/// Makes an enveloped object the event of a watch, with its length before it.
fn frame(event_type: &str, mut object: Front) -> Bytes {
    object.wrap(1);
    object.wrap(2);
    let mut head = Out::default();
    head.bytes(1, event_type.as_bytes());
    object.put(&head.into_inner());
    // An event is an object of at most some megabytes.
    let length = u32::try_from(object.len()).unwrap_or(u32::MAX);
    object.put(&length.to_be_bytes());
    object.finish()
}

fn write_stored(out: &mut Out, message: MessageId, object: &Object) -> Result<(), EncodeError> {
    let mut json = serde_json::Deserializer::from_slice(object.body());
    let body = encode::Body {
        out,
        message,
        version: Some(object.resource_version.0),
    };
    Ok(body.deserialize(&mut json)?)
}

fn write_value(out: &mut Out, message: MessageId, value: &Value) -> Result<(), EncodeError> {
    Ok(encode::Body::new(out, message).deserialize(value)?)
}

/// Tells whether a type has a message, which nearly every built-in one has.
pub(crate) fn is_known(api_version: &str, kind: &str) -> bool {
    table::find(api_version, kind).is_some()
}

/// Encodes a value under the type it names itself.
pub(crate) fn encode(value: &Value) -> Result<Bytes, EncodeError> {
    let (api_version, kind) = meta::value::type_meta(value);
    Type::find(api_version, kind)?.value(value)
}

#[cfg(test)]
mod test;
