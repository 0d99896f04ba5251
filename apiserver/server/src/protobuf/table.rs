//! The table of messages, as `build/` wrote it. Its lines, tab-separated:
//! `M name` begins a message, `F number r|"" type name` is a field of the last
//! one. A type is `s` text, `y` bytes, `b` boolean, `i` integer, `d` double,
//! `@name` a message, `{`type a map from text.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

/// How a field is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer of either size.
    Int,
    /// A floating-point number.
    Double,
    /// A message.
    Message(&'static str),
    /// A map from text.
    Map(Box<Wire>),
}

/// One field of a message.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The number.
    pub(super) number: u32,
    /// Whether it is a list.
    pub(super) repeated: bool,
    /// How it is written.
    pub(super) wire: Wire,
    /// The name, in prost's spelling.
    pub(super) name: &'static str,
}

type Messages = BTreeMap<&'static str, Vec<Field>>;

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/protobuf.bin"));
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .expect("the build wrote this table");
    parse(text.leak())
});

/// Returns the table of this build, made on first use.
pub(super) fn messages() -> &'static Messages {
    &MESSAGES
}

fn parse(text: &'static str) -> Messages {
    let mut messages = Messages::new();
    let mut current = "";
    for line in text.lines() {
        let columns: Vec<&'static str> = line.split('\t').collect();
        match columns.as_slice() {
            ["M", name] => {
                current = name;
                messages.insert(name, Vec::new());
            }
            ["F", number, repeated, ty, name] => {
                if let (Ok(number), Some(fields)) = (number.parse(), messages.get_mut(current)) {
                    let repeated = *repeated == "r";
                    fields.push(Field {
                        number,
                        repeated,
                        wire: wire(ty),
                        name,
                    });
                }
            }
            _ => {}
        }
    }
    messages
}

fn wire(code: &'static str) -> Wire {
    match code.split_at_checked(1) {
        Some(("@", name)) => Wire::Message(name),
        Some(("{", inner)) => Wire::Map(Box::new(wire(inner))),
        Some(("y", _)) => Wire::Bytes,
        Some(("b", _)) => Wire::Bool,
        Some(("i", _)) => Wire::Int,
        Some(("d", _)) => Wire::Double,
        _ => Wire::Text,
    }
}
