//! The version 2 document in protobuf: gnostic's `openapi.v2.Document`, which
//! is all that client-go asks for.
//!
//! The field numbers are those of gnostic's `openapiv2/OpenAPIv2.proto`. Only
//! what our own document contains is written: it is the input, so an unknown
//! member cannot occur.

use serde_json::{Map, Value};

/// The wire type of a length-delimited field.
const BYTES: u64 = 2;

/// Writes a message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: Message) {
        self.bytes(field, &message.0);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        let text = value.and_then(Value::as_str).unwrap_or_default();
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in list(value).filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    /// Writes the members whose names begin with `x-`, as `NamedAny`.
    fn extensions(&mut self, field: u64, value: &Value) {
        for (name, extension) in members(Some(value)).filter(|(name, _)| name.starts_with("x-")) {
            self.message(field, named(name, any(extension)));
        }
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// `Named…`: the name and the message.
fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes());
    message.message(2, value);
    message
}

/// `Any`: a value as YAML, of which JSON is a part.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.bytes(2, format!("{value}\n").as_bytes());
    message
}

/// Encodes a document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, document.get("swagger"));
    let mut info = Message::default();
    info.text(1, document.get("info").and_then(|i| i.get("title")));
    info.text(2, document.get("info").and_then(|i| i.get("version")));
    message.message(2, info);
    let mut paths = Message::default();
    for (path, item) in members(document.get("paths")) {
        paths.message(2, named(path, path_item(item)));
    }
    message.message(8, paths);
    let mut definitions = Message::default();
    for (name, definition) in members(document.get("definitions")) {
        definitions.message(1, named(name, schema(definition)));
    }
    message.message(9, definitions);
    message.0
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (method, field) in [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("patch", 8),
    ] {
        if let Some(found) = item.get(method) {
            message.message(field, operation(found));
        }
    }
    for found in list(item.get("parameters")) {
        message.message(9, parameters_item(found));
    }
    message
}

fn operation(value: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, value.get("tags"));
    message.text(3, value.get("description"));
    message.text(5, value.get("operationId"));
    message.texts(6, value.get("produces"));
    message.texts(7, value.get("consumes"));
    for found in list(value.get("parameters")) {
        message.message(8, parameters_item(found));
    }
    let mut responses = Message::default();
    for (code, found) in members(value.get("responses")) {
        let mut response = Message::default();
        response.text(1, found.get("description"));
        if let Some(answer) = found.get("schema") {
            let mut item = Message::default();
            item.message(1, schema(answer));
            response.message(2, item);
        }
        let mut either = Message::default();
        either.message(1, response);
        responses.message(1, named(code, either));
    }
    message.message(9, responses);
    message.texts(10, value.get("schemes"));
    message.extensions(13, value);
    message
}

/// `ParametersItem` of a `Parameter`, which is one of several messages.
fn parameters_item(value: &Value) -> Message {
    let place = value.get("in").and_then(Value::as_str).unwrap_or_default();
    let mut parameter = Message::default();
    if place == "body" {
        let mut body = Message::default();
        body.text(1, value.get("description"));
        body.text(2, value.get("name"));
        body.text(3, value.get("in"));
        body.flag(4, value.get("required"));
        if let Some(found) = value.get("schema") {
            body.message(5, schema(found));
        }
        parameter.message(1, body);
    } else {
        // A query parameter has one field more before its type.
        let (which, ty, unique) = if place == "query" {
            (3, 6, 20)
        } else {
            (4, 5, 19)
        };
        let mut plain = Message::default();
        plain.flag(1, value.get("required"));
        plain.text(2, value.get("in"));
        plain.text(3, value.get("description"));
        plain.text(4, value.get("name"));
        plain.text(ty, value.get("type"));
        plain.flag(unique, value.get("uniqueItems"));
        let mut other = Message::default();
        other.message(which, plain);
        parameter.message(2, other);
    }
    let mut item = Message::default();
    item.message(1, parameter);
    item
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, value.get("$ref"));
    message.text(2, value.get("format"));
    message.text(4, value.get("description"));
    if let Some(default) = value.get("default") {
        message.message(5, any(default));
    }
    message.texts(19, value.get("required"));
    if let Some(inner) = value.get("additionalProperties") {
        let mut item = Message::default();
        item.message(1, schema(inner));
        message.message(21, item);
    }
    if value.get("type").is_some() {
        let mut item = Message::default();
        item.text(1, value.get("type"));
        message.message(22, item);
    }
    if let Some(inner) = value.get("items") {
        let mut item = Message::default();
        item.message(1, schema(inner));
        message.message(23, item);
    }
    if value.get("properties").is_some() {
        let mut properties = Message::default();
        for (name, property) in members(value.get("properties")) {
            properties.message(1, named(name, schema(property)));
        }
        message.message(25, properties);
    }
    message.extensions(31, value);
    message
}
