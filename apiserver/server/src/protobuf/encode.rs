//! From the JSON form to protobuf, in one pass: the JSON is read token by token
//! and written as it is read, so that an object as it is stored becomes a
//! message without becoming a tree. The same code walks a tree where there is
//! one already.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use meta::Object;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::special::Special;
use super::table::{Field, Message, MessageId, Wire, messages};
use super::wire::{Opened, Out};

/// The number of `metadata.resourceVersion`.
const RESOURCE_VERSION: u32 = 6;

/// Writes the fields of a message. Members that it has no number for are passed
/// over: `apiVersion` and `kind`, which the envelope has, and whatever is newer
/// than the table.
pub(super) struct Body<'o> {
    pub(super) out: &'o mut Out,
    pub(super) message: MessageId,
    /// The resource version, where it is not in the JSON: it goes into the
    /// metadata.
    pub(super) version: Option<u64>,
}

impl<'o> Body<'o> {
    /// Prepares to write a message whose JSON lacks nothing.
    pub(super) fn new(out: &'o mut Out, message: MessageId) -> Self {
        Self {
            out,
            message,
            version: None,
        }
    }

    fn members<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let message = messages().get(self.message);
        while let Some(field) = map.next_key_seed(Name(message))? {
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(Member {
                out: &mut *self.out,
                field,
                stamp: self.version.filter(|_| field.name == "metadata"),
            })?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Body<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Body<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.members(map)
    }
}

/// Writes the metadata of an object as it is stored, as the only field of a message.
pub(super) fn metadata(
    out: &mut Out,
    message: MessageId,
    object: &Object,
) -> Result<(), serde_json::Error> {
    let Some(field) = messages().get(message).field("metadata") else {
        return Ok(());
    };
    let mut json = serde_json::Deserializer::from_slice(object.metadata_json());
    let member = Member {
        out,
        field,
        stamp: Some(object.resource_version.0),
    };
    member.deserialize(&mut json)
}

/// Finds the field that a member's name means.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name))
    }
}

/// Writes one member.
struct Member<'o> {
    out: &'o mut Out,
    field: &'static Field,
    stamp: Option<u64>,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        // An embedded struct is written once for each of its fields: what reads
        // it merges the parts.
        let opened: Vec<_> = self.field.path.iter().map(|n| self.out.open(*n)).collect();
        let (number, wire) = (self.field.number, &self.field.wire);
        match wire {
            Wire::Map(wire) => d.deserialize_any(Entries {
                out: &mut *self.out,
                number,
                wire,
            })?,
            _ if self.field.repeated => d.deserialize_any(Elements {
                out: &mut *self.out,
                number,
                wire,
            })?,
            _ => Single {
                out: &mut *self.out,
                number,
                wire,
                stamp: self.stamp,
                element: false,
            }
            .deserialize(d)?,
        }
        for opened in opened.into_iter().rev() {
            self.out.close(opened);
        }
        Ok(())
    }
}

/// Writes the elements of a list.
struct Elements<'o> {
    out: &'o mut Out,
    number: u32,
    wire: &'static Wire,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            let single = Single {
                out: &mut *self.out,
                number: self.number,
                wire: self.wire,
                stamp: None,
                element: true,
            };
            if list.next_element_seed(single)?.is_none() {
                return Ok(());
            }
        }
    }
}

/// Writes the entries of a map.
struct Entries<'o> {
    out: &'o mut Out,
    number: u32,
    wire: &'static Wire,
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            let key = Key {
                out: &mut *self.out,
                number: self.number,
            };
            let Some(opened) = map.next_key_seed(key)? else {
                return Ok(());
            };
            map.next_value_seed(Single {
                out: &mut *self.out,
                number: 2,
                wire: self.wire,
                stamp: None,
                element: false,
            })?;
            self.out.close(opened);
        }
    }
}

/// Begins an entry with its key.
struct Key<'o> {
    out: &'o mut Out,
    number: u32,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Opened;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Opened, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Opened;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Opened, E> {
        let opened = self.out.open(self.number);
        self.out.bytes(1, key.as_bytes());
        Ok(opened)
    }
}

/// Writes one value under a number; null is nothing, but as an element.
struct Single<'o> {
    out: &'o mut Out,
    number: u32,
    wire: &'static Wire,
    stamp: Option<u64>,
    /// It has a place in a list, which nothing would lose.
    element: bool,
}

impl<'de> DeserializeSeed<'de> for Single<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        if *self.wire != Wire::Special(Special::Raw) {
            return d.deserialize_any(self);
        }
        let raw = Box::<RawValue>::deserialize(d)?;
        let null = raw.get() == "null";
        if !null || self.element {
            let opened = self.out.open(self.number);
            if !null {
                self.out.bytes(1, raw.get().as_bytes());
            }
            self.out.close(opened);
        }
        Ok(())
    }
}

impl Single<'_> {
    fn integer<E: Error>(self, value: i64) -> Result<(), E> {
        match self.wire {
            Wire::Int => self.out.int(self.number, value),
            // As precise as JSON is in Go.
            Wire::Double => self.out.double(self.number, value as f64),
            Wire::Special(Special::Quantity) => {
                let opened = self.out.open(self.number);
                self.out.bytes(1, value.to_string().as_bytes());
                self.out.close(opened);
            }
            Wire::Special(Special::IntOrString) => {
                let opened = self.out.open(self.number);
                self.out.int(1, 0);
                self.out.int(2, value);
                self.out.bytes(3, b"");
                self.out.close(opened);
            }
            _ => return Err(E::custom("a number stands where none may")),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Single<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a value of wire type {:?}", self.wire)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.wire {
            Wire::Bool => self.out.int(self.number, value.into()),
            Wire::Special(Special::SchemaOrBool(_)) => {
                let opened = self.out.open(self.number);
                self.out.int(1, value.into());
                self.out.close(opened);
            }
            _ => return Err(E::custom("a boolean stands where none may")),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.wire {
            Wire::Double => self.out.double(self.number, value),
            _ => return Err(E::custom("a fraction stands where none may")),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.wire {
            Wire::Text => self.out.bytes(self.number, text.as_bytes()),
            Wire::Bytes => {
                let bytes = STANDARD.decode(text).map_err(E::custom)?;
                self.out.bytes(self.number, &bytes);
            }
            Wire::Special(special) => {
                let opened = self.out.open(self.number);
                if !special.write_text(self.out, text) {
                    return Err(E::custom(format!("{text:?} is no {special:?}")));
                }
                self.out.close(opened);
            }
            _ => return Err(E::custom("a text stands where none may")),
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let opened = self.out.open(self.number);
        match *self.wire {
            Wire::Message(id) => {
                Body::new(&mut *self.out, id).members(map)?;
                if let Some(version) = self.stamp {
                    let version = version.to_string();
                    self.out.bytes(RESOURCE_VERSION, version.as_bytes());
                }
            }
            Wire::Special(special) => {
                let (number, id) = match special {
                    Special::SchemaOrBool(id) => {
                        // What Go says of every schema that stands here.
                        self.out.int(1, 1);
                        (2, id)
                    }
                    Special::SchemaOrArray(id) | Special::SchemaOrTexts(id) => (1, id),
                    _ => return Err(A::Error::custom("an object stands where none may")),
                };
                let schema = self.out.open(number);
                Body::new(&mut *self.out, id).members(map)?;
                self.out.close(schema);
            }
            _ => return Err(A::Error::custom("an object stands where none may")),
        }
        self.out.close(opened);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Wire::Special(special) = *self.wire else {
            return Err(A::Error::custom("a list stands where none may"));
        };
        let opened = self.out.open(self.number);
        match special {
            Special::Texts | Special::SchemaOrTexts(_) => {
                let number = if special == Special::Texts { 1 } else { 2 };
                while let Some(text) = list.next_element::<std::borrow::Cow<'_, str>>()? {
                    self.out.bytes(number, text.as_bytes());
                }
            }
            Special::SchemaOrArray(message) => loop {
                let schema = self.out.open(2);
                let body = Body::new(&mut *self.out, message);
                if list.next_element_seed(body)?.is_none() {
                    self.out.abandon(schema);
                    break;
                }
                self.out.close(schema);
            },
            _ => return Err(A::Error::custom("a list stands where none may")),
        }
        self.out.close(opened);
        Ok(())
    }
}
