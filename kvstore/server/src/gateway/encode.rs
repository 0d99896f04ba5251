//! From a message to JSON, as the gateway of etcd 3.5 writes it (golang/protobuf:
//! jsonpb with OrigName): fields in the order they were declared and under the names
//! they were declared with, zeros left out, 64-bit numbers in quotes.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value};

use super::base64;

/// Writes a message behind what is in `out`.
pub(crate) fn message(message: &DynamicMessage, out: &mut String) {
    out.push('{');
    let mut first = true;
    for field in message.descriptor().fields() {
        if !message.has_field(&field) {
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        text(field.name(), out);
        out.push(':');
        value(&message.get_field(&field), &field, out);
    }
    out.push('}');
}

fn value(of: &Value, field: &FieldDescriptor, out: &mut String) {
    match of {
        Value::Message(inner) => message(inner, out),
        Value::List(elements) => {
            for (index, element) in elements.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                value(element, field, out);
            }
            out.push(']');
        }
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::I32(value) => out.push_str(&value.to_string()),
        Value::U32(value) => out.push_str(&value.to_string()),
        Value::I64(value) => in_quotes(&value.to_string(), out),
        Value::U64(value) => in_quotes(&value.to_string(), out),
        Value::F32(value) => out.push_str(&value.to_string()),
        Value::F64(value) => out.push_str(&value.to_string()),
        Value::String(value) => text(value, out),
        Value::Bytes(bytes) => in_quotes(&base64::encode(bytes), out),
        Value::EnumNumber(number) => {
            let name = match field.kind() {
                Kind::Enum(kind) => kind.get_value(*number).map(|value| value.name().to_owned()),
                _ => None,
            };
            match name {
                Some(name) => in_quotes(&name, out),
                None => out.push_str(&number.to_string()),
            }
        }
        // No message of etcd's has a map.
        Value::Map(_) => out.push_str("{}"),
    }
}

fn in_quotes(plain: &str, out: &mut String) {
    out.push('"');
    out.push_str(plain);
    out.push('"');
}

/// Writes a string as Go does, who escapes what HTML might take for its own.
pub(crate) fn text(of: &str, out: &mut String) {
    out.push('"');
    for c in of.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proto::{etcdserverpb as pb, mvccpb};

    use super::*;
    use crate::metrics::calls::pool;

    fn written(kind: &str, of: &impl prost::Message) -> String {
        let kind = pool().get_message_by_name(kind).unwrap();
        let dynamic = DynamicMessage::decode(kind, of.encode_to_vec().as_slice()).unwrap();
        let mut out = String::new();
        message(&dynamic, &mut out);
        out
    }

    #[test]
    fn zeros_are_left_out_and_empty_messages_are_not() {
        let kv = mvccpb::KeyValue {
            key: "a".into(),
            create_revision: 2,
            mod_revision: -3,
            version: 1,
            ..mvccpb::KeyValue::default()
        };
        let range = pb::RangeResponse {
            header: Some(pb::ResponseHeader::default()),
            kvs: vec![kv, mvccpb::KeyValue::default()],
            more: true,
            count: 0,
        };
        assert_eq!(
            written("etcdserverpb.RangeResponse", &range),
            r#"{"header":{},"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"-3","version":"1"},{}],"more":true}"#
        );
    }

    #[test]
    fn enums_are_names_and_odd_names_stay_odd() {
        let alarm = |alarm| pb::AlarmMember {
            member_id: u64::MAX,
            alarm,
        };
        let name = written("etcdserverpb.AlarmMember", &alarm(1));
        assert_eq!(
            name,
            r#"{"memberID":"18446744073709551615","alarm":"NOSPACE"}"#
        );
        assert!(written("etcdserverpb.AlarmMember", &alarm(9)).ends_with(r#""alarm":9}"#));
        let hash = pb::HashKvResponse {
            hash: 7,
            ..pb::HashKvResponse::default()
        };
        assert_eq!(
            written("etcdserverpb.HashKVResponse", &hash),
            r#"{"hash":7}"#
        );
    }

    #[test]
    fn strings_are_safe_in_html() {
        let mut out = String::new();
        text("<a&b>\u{1}\u{2028}\"\\\n\u{7f}ä", &mut out);
        assert_eq!(
            out,
            "\"\\u003ca\\u0026b\\u003e\\u0001\\u2028\\\"\\\\\\n\u{7f}ä\""
        );
    }
}
