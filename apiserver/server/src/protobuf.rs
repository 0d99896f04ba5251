//! Reads bodies sent as protobuf, which kubectl and other Go clients prefer
//! for built-in types.
//!
//! The envelope is the magic `k8s\0` and a `runtime.Unknown` whose `raw` is the
//! message. The message becomes the value that its JSON form would be, by the
//! table of field numbers ([`table`]) and the schema's JSON names; from there
//! on nothing knows how it was sent. Answers are JSON: every client that sends
//! protobuf also accepts that.
//!
//! One thing is lost on the wire. Go writes a field that is no pointer even
//! when it is zero, and its JSON form would leave that out; a pointer to zero
//! looks the same and must be kept. [`KEPT_ZEROS`] names the fields that are
//! pointers and for which zero means something.

mod table;
mod wire;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use registry::table::{DefId, Type, table as schema};
use serde_json::{Map, Value};

use table::{Field, Wire, messages};
use wire::{Reader, Scalar};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8; 4] = b"k8s\0";
/// The deepest nesting of messages; the deepest real type (schemas of custom
/// resources apart) has less than twenty.
const DEPTH_MAX: usize = 64;

/// The fields of pointer type whose zero is a statement.
const KEPT_ZEROS: &[&str] = &[
    "activeDeadlineSeconds",
    "allocateLoadBalancerNodePorts",
    "allowPrivilegeEscalation",
    "automountServiceAccountToken",
    "backoffLimit",
    "blockOwnerDeletion",
    "completions",
    "controller",
    "defaultMode",
    "enableServiceLinks",
    "fsGroup",
    "gracePeriodSeconds",
    "hostUsers",
    "immutable",
    "leaseTransitions",
    "minAvailable",
    "mode",
    "optional",
    "orphanDependents",
    "parallelism",
    "partition",
    "privileged",
    "progressDeadlineSeconds",
    "publishNotReadyAddresses",
    "readOnlyRootFilesystem",
    "replicas",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "storageClassName",
    "suspend",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
];

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
    let message = message_name(&api_version, named);
    if !messages().contains_key(message.as_str()) {
        return Err(DecodeError::UnknownType(api_version, named.to_owned()));
    }
    let def = schema().id(&format!("io.k8s.{}", definition_name(&message, named)));
    let mut object = Map::new();
    Decoder { depth: 0 }.message(&message, def, raw, &mut object)?;
    for (name, value) in [("apiVersion", api_version), ("kind", kind)] {
        if !value.is_empty() {
            object.insert(name.to_owned(), value.into());
        }
    }
    Ok(Value::Object(object))
}

/// Returns the table's name of a type.
fn message_name(api_version: &str, kind: &str) -> String {
    // Options travel under the version of whatever they are for.
    if kind.ends_with("Options") && kind != "PodLogOptions" {
        return format!("apimachinery.pkg.apis.meta.v1.{}", kind.to_lowercase());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let group = group.split('.').next().unwrap_or_default();
    format!("api.{group}.{version}.{}", kind.to_lowercase())
}

fn definition_name(message: &str, kind: &str) -> String {
    let package = message.rsplit_once('.').map_or("", |(package, _)| package);
    format!("{package}.{kind}")
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_ignored| DecodeError::Malformed)
}

struct Decoder {
    depth: usize,
}

impl Decoder {
    /// Decodes a message into the members of an object.
    fn message(
        &mut self,
        name: &str,
        def: Option<DefId>,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        if self.depth >= DEPTH_MAX {
            return Err(DecodeError::Depth);
        }
        self.depth += 1;
        if let Some(fields) = messages().get(name) {
            let mut reader = Reader::new(bytes);
            while let Some((number, scalar)) = reader.next()? {
                // A field newer than the table is as if it were not there.
                if let Some(field) = fields.iter().find(|f| f.number == number) {
                    self.field(field, def, scalar, into)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        def: Option<DefId>,
        scalar: Scalar<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let known = def.and_then(|def| json_field(def, field.name));
        let (name, ty) = match known {
            Some((name, ty)) => (name.to_owned(), Some(ty)),
            // A message that the JSON form does not name is a Go embedding:
            // its fields are the outer object's own.
            None if def.is_some() => {
                return match (&field.wire, scalar) {
                    (Wire::Message(inner), Scalar::Bytes(b)) => self.message(inner, def, b, into),
                    _ => Ok(()),
                };
            }
            None => (camel(field.name), None),
        };
        if let Wire::Map(value) = &field.wire {
            let Scalar::Bytes(entry) = scalar else {
                return Err(DecodeError::Malformed);
            };
            let slot = into
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            let (key, value) = self.entry(value, ty, entry)?;
            if let Value::Object(map) = slot {
                map.insert(key, value);
            }
            return Ok(());
        }
        let inner = ty.and_then(referred);
        let Some(value) = self.value(&field.wire, inner, scalar)? else {
            return Ok(());
        };
        if field.repeated {
            let slot = into.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = slot {
                list.push(value);
            }
        } else if !is_zero(&value) || KEPT_ZEROS.contains(&name.as_str()) {
            into.insert(name, value);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        wire: &Wire,
        ty: Option<&'static Type>,
        bytes: &[u8],
    ) -> Result<(String, Value), DecodeError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, scalar)) = reader.next()? {
            match (number, scalar) {
                (1, Scalar::Bytes(b)) => key = text(b)?,
                (2, scalar) => value = self.value(wire, ty.and_then(referred), scalar)?,
                _ => {}
            }
        }
        Ok((key, value.unwrap_or_else(|| Value::from(""))))
    }

    /// Decodes one value; `None` is one that the JSON form writes as null.
    fn value(
        &mut self,
        wire: &Wire,
        def: Option<DefId>,
        scalar: Scalar<'_>,
    ) -> Result<Option<Value>, DecodeError> {
        Ok(Some(match (wire, scalar) {
            (Wire::Text, Scalar::Bytes(b)) => Value::String(text(b)?),
            (Wire::Bytes, Scalar::Bytes(b)) => Value::String(STANDARD.encode(b)),
            (Wire::Bool, Scalar::Number(n)) => Value::Bool(n != 0),
            // A negative int32 is sign-extended to 64 bits on the wire.
            (Wire::Int, Scalar::Number(n)) => Value::from(n.cast_signed()),
            (Wire::Double, Scalar::Fixed(bits)) => Value::from(f64::from_bits(bits)),
            (Wire::Message(name), Scalar::Bytes(b)) => {
                if let Some(special) = special(name, b)? {
                    return Ok(special);
                }
                let mut object = Map::new();
                self.message(name, def, b, &mut object)?;
                Value::Object(object)
            }
            _ => return Err(DecodeError::Malformed),
        }))
    }
}

/// Decodes the messages whose JSON form is not an object of their fields.
#[allow(
    clippy::option_option,
    reason = "outer: is special; inner: is not null"
)]
fn special(name: &str, bytes: &[u8]) -> Result<Option<Option<Value>>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let (mut numbers, mut texts) = ([0_i64; 4], [&[][..]; 4]);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_special = matches!(
        last,
        "time" | "microtime" | "quantity" | "intorstring" | "rawextension" | "fieldsv1"
    ) && name.starts_with("apimachinery.");
    if !is_special {
        return Ok(None);
    }
    while let Some((number, scalar)) = reader.next()? {
        let Some(at) = usize::try_from(number).ok().filter(|n| *n < 4) else {
            continue;
        };
        match scalar {
            Scalar::Number(n) => numbers[at] = n.cast_signed(),
            Scalar::Bytes(b) => texts[at] = b,
            Scalar::Fixed(_) => {}
        }
    }
    let value = match last {
        // An empty message is Go's zero time, which JSON writes as null.
        "time" | "microtime" if bytes.is_empty() => None,
        "time" | "microtime" => {
            let nanos = i32::try_from(numbers[2]).map_err(|_ignored| DecodeError::Malformed)?;
            let t = jiff::Timestamp::new(numbers[1], nanos)
                .map_err(|_ignored| DecodeError::Malformed)?;
            Some(Value::String(match last {
                "time" => meta::time::format(t),
                _ => meta::time::format_micro(t),
            }))
        }
        "quantity" => Some(Value::String(text(texts[1])?)),
        "intorstring" if numbers[1] == 1 => Some(Value::String(text(texts[3])?)),
        "intorstring" => Some(Value::from(numbers[2])),
        _ if texts[1].is_empty() => None,
        _ => Some(serde_json::from_slice(texts[1]).map_err(|_ignored| DecodeError::Malformed)?),
    };
    Ok(Some(value))
}

/// Finds the JSON field of a definition that is spelled like a wire field.
fn json_field(def: DefId, wire_name: &str) -> Option<(&'static str, &'static Type)> {
    let wanted = squeeze(wire_name);
    let fields = &schema().get(def).fields;
    fields
        .iter()
        .find(|f| squeeze(f.name) == wanted)
        .map(|f| (f.name, &f.ty))
}

/// Makes Go, JSON and prost spellings of a name equal.
fn squeeze(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '$' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

fn camel(name: &str) -> String {
    if name == "u_id" {
        return "uid".to_owned();
    }
    let mut out = String::new();
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the definition of a value's, an element's or an entry's fields.
fn referred(ty: &Type) -> Option<DefId> {
    match ty {
        Type::Ref(id) => Some(*id),
        Type::Array(inner) | Type::Map(inner) => referred(inner),
        _ => None,
    }
}

/// Tells whether Go's `omitempty` would leave the value out. A message that is
/// there but empty is kept: its being there may be the statement (`emptyDir`).
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(s) => s.is_empty(),
        Value::Number(n) => n.as_i64() == Some(0),
        Value::Bool(b) => !b,
        _ => false,
    }
}

#[cfg(test)]
mod test;
