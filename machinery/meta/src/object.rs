//! An object as it moves through the server in bulk.
//!
//! Stored bytes are JSON *without* a resource version: the version of an object
//! is the store revision of its last change, known only once it is written. It
//! is spliced in when an object is encoded, at a place found once when the
//! object is decoded, so that serving an object is two copies and no parsing.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json;
use crate::owner::OwnerReference;

/// The revision of the store at which an object was last changed.
///
/// Clients must treat it as opaque; here it is the store's `mod_revision`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ResourceVersion {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Self)
    }
}

/// The metadata the machinery decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name, unique within namespace and resource.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The namespace; empty at cluster scope.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
    /// The uid, unique over all time.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// How often the desired state changed.
    #[serde(deserialize_with = "null_is_default")]
    pub generation: i64,
    /// The labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    /// When it was created, as written.
    pub creation_timestamp: Option<String>,
    /// Since when it is being deleted, as written.
    pub deletion_timestamp: Option<String>,
    /// The grace that deletion gives, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Who must act before it may go.
    #[serde(deserialize_with = "null_is_default")]
    pub finalizers: Vec<String>,
    /// Whom it exists for.
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference>,
}

fn null_is_default<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// Why stored bytes are no object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The bytes are not JSON, or the metadata has a wrong type.
    #[error("stored object cannot be decoded: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no `metadata` object to write the version into.
    #[error("stored object has no metadata")]
    NoMetadata,
}

/// An object as it is stored, and where in it the version belongs.
#[derive(Clone, Debug)]
pub struct Encoded {
    bytes: Bytes,
    meta: ObjectMeta,
    splice_at: usize,
    comma: bool,
    metadata_end: usize,
    /// Where each member's value lies.
    members: Vec<Range<usize>>,
    has_float: bool,
}

impl Encoded {
    /// Encodes an object that has no resource version. `size` is about how many bytes
    /// that takes.
    pub fn of(object: &Value, size: usize) -> Result<Self, ObjectError> {
        let Value::Object(all) = object else {
            return Err(ObjectError::NoMetadata);
        };
        let metadata = all.get("metadata").ok_or(ObjectError::NoMetadata)?;
        let Value::Object(in_metadata) = metadata else {
            return Err(ObjectError::NoMetadata);
        };
        let meta = ObjectMeta::deserialize(metadata)?;
        let mut out = Vec::with_capacity(size);
        let (mut splice_at, mut metadata_end) = (0, 0);
        let mut members = Vec::with_capacity(all.len());
        let mut has_float = false;
        for (name, member) in all {
            out.push(if out.is_empty() { b'{' } else { b',' });
            json::write_string(&mut out, name)?;
            out.push(b':');
            let at = out.len();
            has_float |= json::write(&mut out, member)?;
            members.push(at..out.len());
            if name == "metadata" {
                (splice_at, metadata_end) = (at + 1, out.len());
            }
        }
        out.push(b'}');
        // It stays as long as the object does, and all that it has room for.
        if out.capacity() - out.len() > out.len() / 8 {
            out.shrink_to_fit();
        }
        Ok(Self {
            bytes: out.into(),
            meta,
            splice_at,
            comma: !in_metadata.is_empty(),
            metadata_end,
            members,
            has_float,
        })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns where in the bytes the value of each member of the object lies, in the
    /// order of the tree.
    pub fn members(&self) -> &[Range<usize>] {
        &self.members
    }

    /// Tells whether there is a number in the object that is no integer: such a one may
    /// be another once it was read again.
    pub fn has_float(&self) -> bool {
        self.has_float
    }

    /// Returns the object that was stored at a revision. Nothing is decoded for it.
    pub fn stored(
        self,
        resource_version: ResourceVersion,
        fields: Vec<(&'static str, String)>,
    ) -> Object {
        Object {
            resource_version,
            meta: self.meta,
            fields,
            renewed: false,
            body: self.bytes,
            splice_at: self.splice_at,
            comma: self.comma,
            metadata_end: self.metadata_end,
            made: Made::default(),
        }
    }
}

/// A stored object: facts decoded, the rest bytes. Cheap to share, never
/// changed; put it behind an `Arc`.
#[derive(Clone, Debug)]
pub struct Object {
    /// The store revision of this state.
    pub resource_version: ResourceVersion,
    /// The decoded metadata.
    pub meta: ObjectMeta,
    /// The values of the kind's selectable fields besides name and namespace,
    /// in the kind's order.
    pub fields: Vec<(&'static str, String)>,
    /// Whether `body` was made of what is stored, and is not that itself.
    pub renewed: bool,
    /// JSON without a resource version.
    body: Bytes,
    /// Where in `body` the metadata's first member begins.
    splice_at: usize,
    /// Whether the metadata has members, and so a comma is needed.
    comma: bool,
    /// Where in `body` the metadata ends.
    metadata_end: usize,
    made: Made,
}

/// How an object may be encoded besides JSON, where its length must be known before it
/// is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// All of it, as protobuf.
    Protobuf,
    /// Its metadata alone, as protobuf.
    ProtobufMetadata,
}

/// What was made of an object by those who encode it.
#[derive(Debug, Default)]
struct Made {
    /// The lengths of its encodings, zero for one that is not known.
    sizes: [AtomicU32; 2],
    note: OnceLock<Note>,
}

/// Anything at all.
pub type Note = Box<dyn Any + Send + Sync>;

impl Clone for Made {
    /// Nothing was made of a copy: it may become the object of another version, which
    /// is longer.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Object {
    /// Decodes stored bytes.
    pub fn decode(
        body: Bytes,
        resource_version: ResourceVersion,
        fields: Vec<(&'static str, String)>,
    ) -> Result<Self, ObjectError> {
        #[derive(Deserialize)]
        struct Shell<'a> {
            #[serde(borrow)]
            metadata: Option<&'a serde_json::value::RawValue>,
        }
        let shell: Shell<'_> = serde_json::from_slice(&body)?;
        let raw = shell.metadata.ok_or(ObjectError::NoMetadata)?.get();
        if !raw.starts_with('{') {
            return Err(ObjectError::NoMetadata);
        }
        let meta: ObjectMeta = serde_json::from_str(raw)?;
        // The raw value borrows from `body`, so its distance is its position.
        let splice_at = raw.as_ptr() as usize - body.as_ptr() as usize + 1;
        let metadata_end = splice_at - 1 + raw.len();
        let comma = raw[1..].trim_start().as_bytes().first() != Some(&b'}');
        Ok(Self {
            resource_version,
            meta,
            fields,
            renewed: false,
            body,
            splice_at,
            comma,
            metadata_end,
            made: Made::default(),
        })
    }

    /// Decodes bytes that were made of what is stored.
    pub fn decode_renewed(
        body: Bytes,
        resource_version: ResourceVersion,
        fields: Vec<(&'static str, String)>,
    ) -> Result<Self, ObjectError> {
        Ok(Self {
            renewed: true,
            ..Self::decode(body, resource_version, fields)?
        })
    }

    /// Returns the bytes as stored, without a resource version.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Appends the object as a client sees it, resource version spliced in.
    pub fn encode_json(&self, out: &mut BytesMut) {
        self.encode_json_at(self.resource_version, out);
    }

    /// Appends the object under another version: a deletion is shown with the
    /// last content and the revision of the delete.
    pub fn encode_json_at(&self, version: ResourceVersion, out: &mut BytesMut) {
        self.splice(version, 0..self.body.len(), out);
    }

    /// Appends the metadata as a client sees it.
    pub fn encode_metadata(&self, out: &mut BytesMut) {
        let metadata = self.splice_at - 1..self.metadata_end;
        self.splice(self.resource_version, metadata, out);
    }

    /// Returns the metadata as stored, without a resource version.
    pub fn metadata_json(&self) -> &[u8] {
        &self.body[self.splice_at - 1..self.metadata_end]
    }

    /// Returns the length of the object in another encoding, once somebody has said it.
    pub fn size_in(&self, encoding: Encoding) -> Option<usize> {
        let size = self.made.sizes[encoding as usize].load(Ordering::Relaxed);
        (size > 0).then_some(size as usize)
    }

    /// Keeps the length of the object in another encoding.
    pub fn keep_size(&self, encoding: Encoding, size: usize) {
        // One that does not fit stays unknown.
        let size = u32::try_from(size).unwrap_or(0);
        self.made.sizes[encoding as usize].store(size, Ordering::Relaxed);
    }

    /// Returns where whoever encodes objects keeps something that goes with this one.
    pub fn note(&self) -> &OnceLock<Note> {
        &self.made.note
    }

    /// Appends a part of the body that has the beginning of the metadata in it.
    fn splice(&self, version: ResourceVersion, part: Range<usize>, out: &mut BytesMut) {
        out.reserve(part.len() + 48);
        out.put_slice(&self.body[part.start..self.splice_at]);
        out.put_slice(b"\"resourceVersion\":\"");
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut n = version.0;
        loop {
            at -= 1;
            // A digit always fits a byte.
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        out.put_slice(&digits[at..]);
        out.put_u8(b'"');
        if self.comma {
            out.put_u8(b',');
        }
        out.put_slice(&self.body[self.splice_at..part.end]);
    }

    /// Returns the object as a client sees it.
    pub fn to_json(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode_json(&mut out);
        out.freeze()
    }

    /// Parses the object as a client sees it, for the few who change it.
    pub fn to_value(&self) -> Result<Value, serde_json::Error> {
        let mut value = json::from_slice(&self.body)?;
        crate::value::set_metadata(
            &mut value,
            "resourceVersion",
            self.resource_version.to_string(),
        );
        Ok(value)
    }

    /// Returns the value of a selectable field.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(&self.meta.name),
            "metadata.namespace" => Some(&self.meta.namespace),
            _ => self
                .fields
                .iter()
                .find(|(f, _)| *f == name)
                .map(|(_, v)| v.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(body: &'static str) -> Object {
        Object::decode(
            Bytes::from_static(body.as_bytes()),
            ResourceVersion(42),
            Vec::new(),
        )
        .unwrap()
    }

    #[test]
    fn splices_the_version_into_the_metadata() {
        for body in [
            r#"{"kind":"X","metadata":{"name":"a","labels":{"metadata":"{"}},"spec":{"metadata":{}}}"#,
            r#"{"metadata": { } }"#,
            r#"{"spec":"\"metadata\":{","metadata":{"name":"b"}}"#,
        ] {
            let o = object(body);
            let mut want: serde_json::Value = serde_json::from_str(body).unwrap();
            want["metadata"]["resourceVersion"] = "42".into();
            let got: serde_json::Value = serde_json::from_slice(&o.to_json()).unwrap();
            assert_eq!(got, want, "{body}");
            assert_eq!(o.to_value().unwrap(), want);
            let mut alone = BytesMut::new();
            o.encode_metadata(&mut alone);
            let alone: serde_json::Value = serde_json::from_slice(&alone).unwrap();
            assert_eq!(alone, want["metadata"], "{body}");
            let stored: serde_json::Value = serde_json::from_slice(o.metadata_json()).unwrap();
            want["metadata"] = stored;
            assert_eq!(
                want,
                serde_json::from_str::<serde_json::Value>(body).unwrap()
            );
        }
    }

    #[test]
    fn lengths_are_kept_apart() {
        let o = object(r#"{"metadata":{}}"#);
        assert_eq!(o.size_in(Encoding::Protobuf), None);
        o.keep_size(Encoding::Protobuf, 7);
        o.keep_size(Encoding::ProtobufMetadata, 1 << 40);
        assert_eq!(o.size_in(Encoding::Protobuf), Some(7));
        assert_eq!(o.size_in(Encoding::ProtobufMetadata), None);
        assert_eq!(o.clone().size_in(Encoding::Protobuf), None);
        assert!(o.note().set(Box::new(5)).is_ok());
        assert!(o.note().get().is_some() && o.clone().note().get().is_none());
    }

    #[test]
    fn what_was_encoded_is_what_would_be_decoded() {
        for body in [
            r#"{"metadata":{}}"#,
            r#"{"a":[1,"\u0001\"é"],"metadata":{"name":"a"},"spec":{"metadata":{}}}"#,
            r#"{"kind":"X","metadata":{"finalizers":["f"],"generation":3,"labels":{"a":"b"},
                "managedFields":[{"a":1}],"name":"a","namespace":"n","ownerReferences":[
                {"apiVersion":"v1","kind":"K","name":"o","uid":"u","controller":true}],"uid":"u",
                "deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0}}"#,
        ] {
            let value: Value = serde_json::from_str(body).unwrap();
            let encoded = Encoded::of(&value, 0).unwrap();
            assert_eq!(**encoded.bytes(), *serde_json::to_vec(&value).unwrap());
            let fields = vec![("spec.x", "y".to_owned())];
            let version = ResourceVersion(7);
            let read = Object::decode(encoded.bytes().clone(), version, fields.clone()).unwrap();
            let stored = encoded.stored(version, fields);
            assert_eq!(format!("{stored:?}"), format!("{read:?}"));
            assert_eq!(stored.to_json(), read.to_json());
        }
        for bad in [
            r#"{}"#,
            r#"[]"#,
            r#"{"metadata":3}"#,
            r#"{"metadata":{"name":3}}"#,
        ] {
            let value: Value = serde_json::from_str(bad).unwrap();
            assert!(Encoded::of(&value, 0).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_encoded_tells_what_is_in_it() {
        for (body, has_float) in [
            (r#"{"metadata":{}}"#, false),
            (r#"{"a":[1,{"b":0.5}],"metadata":{},"z":"1.5"}"#, true),
            (r#"{"a":1e3,"metadata":{}}"#, true),
            (r#"{"metadata":{"x":-0.0}}"#, true),
            (
                r#"{"\"a\n":null,"metadata":{"name":"é"},"spec":{"a":[{},-1]},"z":18446744073709551615}"#,
                false,
            ),
        ] {
            let value: Value = serde_json::from_str(body).unwrap();
            let encoded = Encoded::of(&value, 0).unwrap();
            assert_eq!(encoded.has_float(), has_float, "{body}");
            let parts = encoded.members().iter();
            let parts: Vec<Value> = parts
                .map(|part| serde_json::from_slice(&encoded.bytes()[part.clone()]).unwrap())
                .collect();
            let members = value.as_object().unwrap().values().cloned();
            assert_eq!(parts, members.collect::<Vec<_>>(), "{body}");
        }
    }

    #[test]
    fn decodes_what_decisions_need() {
        let o = object(
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u","labels":null,"finalizers":["f"],"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
        );
        assert_eq!(o.field("metadata.name"), Some("a"));
        assert_eq!(o.meta.finalizers, ["f"]);
        assert!(o.meta.deletion_timestamp.is_some());
    }

    #[test]
    fn refuses_what_is_no_object() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"metadata":3}"#,
            r#"{"metadata":{"name":3}}"#,
        ] {
            assert!(
                Object::decode(
                    Bytes::from_static(bad.as_bytes()),
                    ResourceVersion(1),
                    Vec::new()
                )
                .is_err(),
                "{bad}"
            );
        }
    }
}
