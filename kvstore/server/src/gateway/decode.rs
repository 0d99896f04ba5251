//! From JSON to a message, field by field as its description says, and as forgiving
//! as the gateway of etcd 3.5 (golang/protobuf: jsonpb): a field goes by either of
//! its names, numbers may be strings, enums names or numbers, and what is not known
//! is passed over.

use bytes::Bytes;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};
use thiserror::Error;

use super::{
    base64,
    json::{Json, unquoted},
    scanner::{self, Malformed, go_quoted},
};

/// Is why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Base64(#[from] base64::Corrupt),
    /// A value of a kind that the field does not take; both in Go's words.
    #[error("json: cannot unmarshal {value} into Go value of type {wanted}")]
    Kind { value: String, wanted: &'static str },
    #[error("unknown value {} for enum {name}", go_quoted(value))]
    Enum { value: String, name: String },
}

/// Reads a message from the text of one well-formed value.
pub(crate) fn message(text: &[u8], kind: &MessageDescriptor) -> Result<DynamicMessage, Refusal> {
    read_message(&Json::read(text), kind)
}

fn read_message(json: &Json<'_>, kind: &MessageDescriptor) -> Result<DynamicMessage, Refusal> {
    let mut message = DynamicMessage::new(kind.clone());
    let members = match json {
        Json::Null => return Ok(message),
        Json::Object(members) => members,
        other => return Err(wrong(other, "map[string]json.RawMessage")),
    };
    for field in kind.fields() {
        // Of both names the one in camel case counts.
        let found = members.get(field.json_name());
        let found = found.or_else(|| members.get(field.name()));
        let Some(json) = found.filter(|json| **json != Json::Null) else {
            continue;
        };
        let value = if field.is_list() {
            read_list(json, &field)?
        } else {
            read_value(json, &field)?
        };
        message.set_field(&field, value);
    }
    Ok(message)
}

fn read_list(json: &Json<'_>, field: &FieldDescriptor) -> Result<Value, Refusal> {
    match json {
        Json::Array(elements) => {
            let values = elements.iter().map(|element| read_value(element, field));
            Ok(Value::List(values.collect::<Result<_, _>>()?))
        }
        other => Err(wrong(other, "[]json.RawMessage")),
    }
}

fn read_value(json: &Json<'_>, field: &FieldDescriptor) -> Result<Value, Refusal> {
    match field.kind() {
        Kind::Message(kind) => read_message(json, &kind).map(Value::Message),
        Kind::Enum(kind) => read_enum(json, &kind).map(Value::EnumNumber),
        Kind::Bool => match json {
            Json::Null => Ok(Value::Bool(false)),
            Json::Bool(value) => Ok(Value::Bool(*value)),
            other => Err(wrong(other, "bool")),
        },
        Kind::String => match json {
            Json::Null => Ok(Value::String(String::new())),
            Json::Text(text) => Ok(Value::String(unquoted(text))),
            other => Err(wrong(other, "string")),
        },
        Kind::Bytes => read_bytes(json).map(Value::Bytes),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => number(json, "int32").map(Value::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => number(json, "int64").map(Value::I64),
        Kind::Uint32 | Kind::Fixed32 => number(json, "uint32").map(Value::U32),
        Kind::Uint64 | Kind::Fixed64 => number(json, "uint64").map(Value::U64),
        Kind::Float => float(json, "float32").map(|value| Value::F32(value as f32)),
        Kind::Double => float(json, "float64").map(Value::F64),
    }
}

fn read_enum(json: &Json<'_>, kind: &EnumDescriptor) -> Result<i32, Refusal> {
    let Json::Text(text) = json else {
        return number(json, "protoreflect.EnumNumber");
    };
    let name = String::from_utf8_lossy(inner(text));
    match kind.get_value_by_name(&name) {
        Some(value) => Ok(value.number()),
        None => Err(Refusal::Enum {
            value: String::from_utf8_lossy(text).into_owned(),
            name: kind.full_name().to_owned(),
        }),
    }
}

fn read_bytes(json: &Json<'_>) -> Result<Bytes, Refusal> {
    match json {
        Json::Null => Ok(Bytes::new()),
        Json::Text(text) => Ok(base64::decode(unquoted(text).as_bytes())?.into()),
        // Go reads a list of numbers as bytes, too.
        Json::Array(elements) => {
            let bytes = elements.iter().map(|element| match element {
                Json::Number(digits) => parse(digits, "uint8"),
                Json::Null => Ok(0),
                other => Err(wrong(other, "uint8")),
            });
            Ok(bytes.collect::<Result<Vec<u8>, _>>()?.into())
        }
        other => Err(wrong(other, "[]uint8")),
    }
}

/// Reads a number, which may stand in quotes.
fn number<T>(json: &Json<'_>, wanted: &'static str) -> Result<T, Refusal>
where
    T: std::str::FromStr + Default,
{
    match json {
        Json::Null => Ok(T::default()),
        Json::Number(digits) => parse(digits, wanted),
        Json::Text(text) => {
            // What is in the quotes is a text of its own, escapes and all.
            let text = inner(text);
            match Json::read(&text[scanner::only_value(text)?]) {
                Json::Text(_) => Err(Refusal::Kind {
                    value: "string".to_owned(),
                    wanted,
                }),
                json => number(&json, wanted),
            }
        }
        other => Err(wrong(other, wanted)),
    }
}

fn parse<T: std::str::FromStr>(digits: &str, wanted: &'static str) -> Result<T, Refusal> {
    digits.parse().map_err(|_not_one| Refusal::Kind {
        value: format!("number {digits}"),
        wanted,
    })
}

fn float(json: &Json<'_>, wanted: &'static str) -> Result<f64, Refusal> {
    match json {
        Json::Text(b"\"NaN\"") => Ok(f64::NAN),
        Json::Text(b"\"Infinity\"") => Ok(f64::INFINITY),
        Json::Text(b"\"-Infinity\"") => Ok(f64::NEG_INFINITY),
        json => number(json, wanted),
    }
}

fn wrong(json: &Json<'_>, wanted: &'static str) -> Refusal {
    Refusal::Kind {
        value: json.kind().to_owned(),
        wanted,
    }
}

/// Takes the quotes off.
fn inner(text: &[u8]) -> &[u8] {
    text.get(1..text.len().saturating_sub(1))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::calls::pool;

    fn read(kind: &str, text: &str) -> Result<DynamicMessage, String> {
        let kind = pool().get_message_by_name(kind).unwrap();
        let found = scanner::only_value(text.as_bytes()).map_err(|error| error.to_string())?;
        message(&text.as_bytes()[found], &kind).map_err(|error| error.to_string())
    }

    fn range(text: &str) -> Result<proto::etcdserverpb::RangeRequest, String> {
        let message = read("etcdserverpb.RangeRequest", text)?;
        message.transcode_to().map_err(|error| error.to_string())
    }

    #[test]
    fn fields_go_by_either_name_and_numbers_by_either_form() {
        let request = range(
            r#"{"key":"YQ==","range_end":"eA==","rangeEnd":"eg==","limit":"5","revision":7,
                "sortOrder":"DESCEND","sort_target":3,"serializable":true,"foo":{"bar":1},
                "keysOnly":null,"min_mod_revision":" 2"}"#,
        )
        .unwrap();
        assert_eq!(
            (&request.key[..], &request.range_end[..]),
            (&b"a"[..], &b"z"[..])
        );
        assert_eq!((request.limit, request.revision), (5, 7));
        assert_eq!((request.sort_order, request.sort_target), (2, 3));
        assert!(request.serializable && !request.keys_only);
        assert_eq!(request.min_mod_revision, 2);
        assert_eq!(range("null").unwrap(), range("{}").unwrap());
        assert_eq!(range(r#"{"key":[97,98]}"#).unwrap().key, "ab");
    }

    /// As the gateway of etcd 3.5.1 says them.
    #[test]
    fn refusals_are_gos() {
        for (text, refusal) in [
            (
                "[]",
                "json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
            ),
            (
                r#"{"key":5}"#,
                "json: cannot unmarshal number into Go value of type []uint8",
            ),
            (
                r#"{"limit":1.0}"#,
                "json: cannot unmarshal number 1.0 into Go value of type int64",
            ),
            (
                r#"{"limit":99999999999999999999}"#,
                "json: cannot unmarshal number 99999999999999999999 into Go value of type int64",
            ),
            (
                r#"{"limit":true}"#,
                "json: cannot unmarshal bool into Go value of type int64",
            ),
            (
                r#"{"limit":"x"}"#,
                "invalid character 'x' looking for beginning of value",
            ),
            (
                r#"{"limit":"0x1"}"#,
                "invalid character 'x' after top-level value",
            ),
            (r#"{"limit":""}"#, "unexpected end of JSON input"),
            (
                r#"{"serializable":"true"}"#,
                "json: cannot unmarshal string into Go value of type bool",
            ),
            (
                r#"{"sort_order":"descend"}"#,
                "unknown value \"\\\"descend\\\"\" for enum etcdserverpb.RangeRequest.SortOrder",
            ),
            (r#"{"key":"YQ"}"#, "illegal base64 data at input byte 0"),
        ] {
            assert_eq!(range(text).unwrap_err(), refusal, "{text}");
        }
    }

    #[test]
    fn of_a_oneof_the_last_declared_counts() {
        let text = r#"{"success":[{"requestPut":{"key":"Yg=="},"request_range":{"key":"YQ=="}}]}"#;
        let txn = read("etcdserverpb.TxnRequest", text).unwrap();
        let txn: proto::etcdserverpb::TxnRequest = txn.transcode_to().unwrap();
        let chosen = txn.success[0].request.as_ref().unwrap();
        assert!(matches!(
            chosen,
            proto::etcdserverpb::request_op::Request::RequestPut(_)
        ));
    }
}
