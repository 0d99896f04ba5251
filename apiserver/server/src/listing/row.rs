//! An object as the cells of a table need it.

use std::fmt;

use meta::{Object, Status};
use registry::Kind;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::respond;

/// Returns an object for [`Kind::cells`]. Of one that is served as it is stored, who
/// owns which field is left out: that is much of most objects, and no built-in kind
/// shows it. What a custom one shows, its definition says.
pub(super) fn read(kind: &Kind, object: &Object) -> Result<Value, Status> {
    if kind.is_custom() || !kind.is_stored_form() {
        return respond::view(kind, object);
    }
    let mut json = serde_json::Deserializer::from_slice(object.body());
    Part::Object
        .deserialize(&mut json)
        .map_err(|e| Status::internal(format!("stored object cannot be decoded: {e}")))
}

/// What is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Self::Object, "metadata") => map.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => map.next_value()?,
            };
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}
