//! Bodies in JSON, YAML and protobuf.
//!
//! Promised (`apiserver`): an error or an object of its kind; as much memory as the
//! size of the body justifies, whatever it says; and the laws of `laws.rs`.

use apiserver::fuzzing::{self, Media};
use meta::Status;
use registry::{Kind, kinds};
use serde_json::Value;

use super::super::draw::Draw;
use super::{grow, laws, seeds};

/// Reads a body of JSON.
pub fn body_json(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (kind, bytes) = match draw.byte() % 8 {
        0 => (some_kind(&mut draw), draw.rest().to_vec()),
        1 => deep(
            &mut draw,
            &[
                ("[", "]"),
                ("{\"a\":", "}"),
                ("{\"spec\":[", "]}"),
                ("-", ""),
            ],
        ),
        how => {
            let (kind, object) = changed(&mut draw);
            let mut text = object.to_string().into_bytes();
            if how == 2 {
                draw.damage(&mut text);
            }
            if how == 3 {
                twice(&mut draw, &mut text);
            }
            if how > 5 {
                let mut earlier = object;
                grow::changes(&mut draw, &mut earlier);
                taken_over(kind, &earlier, &text);
            }
            (kind, text)
        }
    };
    taken(kind, Media::Json, &bytes);
}

/// Takes a body over an earlier state of its object: that makes no difference.
fn taken_over(kind: &'static Kind, earlier: &Value, bytes: &[u8]) {
    let earlier = earlier.to_string();
    let Ok((stored, _)) = fuzzing::take(kind, Media::Json, earlier.as_bytes()) else {
        return;
    };
    if let Some(over) = fuzzing::take_over(kind, stored, bytes) {
        let plain = fuzzing::take(kind, Media::Json, bytes);
        let said = |status: Status| status.message;
        assert_eq!(over.map_err(said), plain.map_err(said));
    }
}

/// Reads a body of YAML.
pub fn body_yaml(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (kind, bytes) = match draw.byte() % 8 {
        0 => (some_kind(&mut draw), draw.rest().to_vec()),
        1 => deep(
            &mut draw,
            &[
                ("[", "]"),
                ("{a: ", "}"),
                ("- ", ""),
                ("? ", ""),
                ("a:\n ", ""),
                ("!!map {", "}"),
            ],
        ),
        2 => (some_kind(&mut draw), bomb(&mut draw)),
        3 => (some_kind(&mut draw), pieces(&mut draw)),
        how => {
            let (kind, object) = changed(&mut draw);
            let written = fuzzing::write(Media::Yaml, &object);
            let mut text = written.expect("a value is written").to_vec();
            if how == 4 {
                draw.damage(&mut text);
            }
            (kind, text)
        }
    };
    taken(kind, Media::Yaml, &bytes);
}

/// Reads a body of protobuf.
pub fn body_protobuf(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (kind, bytes) = match draw.byte() % 8 {
        0 => (some_kind(&mut draw), draw.rest().to_vec()),
        1 | 2 => {
            let kind = some_kind(&mut draw);
            let message = message(&mut draw, 0);
            (kind, envelope(kind, &message))
        }
        how => {
            let (kind, mut object) = changed(&mut draw);
            // What is of no type has no message.
            if kind.conform(&mut object).is_err() {
                return;
            }
            meta::value::set_type_meta(&mut object, &kind.gvk());
            let mut bytes = match fuzzing::write(Media::Protobuf, &object) {
                Ok(bytes) => bytes.to_vec(),
                Err(status) => {
                    assert_eq!(status.code, 406, "{}", status.message);
                    return;
                }
            };
            for _ in 3..how {
                draw.damage(&mut bytes);
            }
            (kind, bytes)
        }
    };
    taken(kind, Media::Protobuf, &bytes);
}

fn some_kind(draw: &mut Draw<'_>) -> &'static Kind {
    kinds::all()[draw.below(kinds::all().len())]
}

fn changed(draw: &mut Draw<'_>) -> (&'static Kind, Value) {
    let (kind, mut object) = seeds::any(draw);
    grow::changes(draw, &mut object);
    (kind, object)
}

/// How many nodes a body may make.
fn nodes_max(media: Media, bytes: usize) -> usize {
    match media {
        // What is absent becomes a zero here and there.
        Media::Json | Media::Protobuf => 3 * bytes + 100,
        Media::Yaml => 4 * bytes + 1_100,
    }
}

/// Takes a body, and checks what it was taken for.
fn taken(kind: &'static Kind, media: Media, bytes: &[u8]) {
    match fuzzing::take(kind, media, bytes) {
        Err(status) => {
            assert!(
                (400..500).contains(&status.code),
                "{} {}",
                status.code,
                status.message
            );
            let told = status.message.len();
            assert!(told < 2_000 + 8 * bytes.len(), "{told} of {}", bytes.len());
        }
        Ok((object, _)) => {
            let nodes = grow::nodes(&object);
            assert!(nodes <= nodes_max(media, bytes.len()), "{nodes} nodes");
            laws::of_read(kind, &object);
        }
    }
}

/// Nests as deep as is allowed, or deeper than anything means.
fn deep(draw: &mut Draw<'_>, pairs: &[(&str, &str)]) -> (&'static Kind, Vec<u8>) {
    let (open, close) = pairs[draw.below(pairs.len())];
    let levels = match draw.byte() % 2 {
        0 => 20 + draw.below(130),
        _ => draw.below(20_000),
    };
    let place = [
        "",
        "a: ",
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"x\":",
    ][draw.below(3)];
    let within = ["1", "", "null", "\"\""][draw.below(4)];
    let closes = close.repeat(levels);
    let end = if place.starts_with('{') { "}" } else { "" };
    let text = format!("{place}{}{within}{closes}{end}", open.repeat(levels));
    let mut text = text.into_bytes();
    text.extend(draw.rest());
    let kind = kinds::find_kind("v1", "ConfigMap").expect("it is built in");
    (kind, text)
}

/// Says one member of an object once more.
fn twice(draw: &mut Draw<'_>, text: &mut Vec<u8>) {
    let name = serde_json::to_string(&grow::name(draw)).unwrap_or_default();
    let value = grow::value(draw, 2);
    if text.first() == Some(&b'{') {
        text.splice(1..1, format!("{name}:{value},{name}:{value},").into_bytes());
    }
}

/// Writes anchors whose aliases make each level many times the one before.
fn bomb(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = String::from("apiVersion: v1\nkind: ConfigMap\n");
    let (levels, width) = (draw.below(14), 1 + draw.below(12));
    let first = ["[x]", "{k: v}", "lol", "&in [*in]", "\"\\u0000\""][draw.below(5)];
    text.push_str(&format!("a0: &a0 {first}\n"));
    for level in 1..levels {
        let (before, width) = (level - 1, width + draw.below(4));
        let aliases = match draw.byte() % 4 {
            0 => (0..width).map(|n| format!("k{n}: *a{before}")).collect(),
            1 => vec![format!("<<: *a{before}"), "b: 1".to_owned()],
            _ => vec![format!("*a{before}"); width],
        }
        .join(", ");
        let [open, close] = if aliases.contains(": ") {
            ["{", "}"]
        } else {
            ["[", "]"]
        };
        text.push_str(&format!("a{level}: &a{level} {open}{aliases}{close}\n"));
    }
    let mut text = text.into_bytes();
    text.extend(draw.rest());
    text
}

/// Pieces of YAML that mean something somewhere.
const PIECES: [&str; 40] = [
    "apiVersion: v1\n",
    "kind: ConfigMap\n",
    "metadata:\n  name: a\n",
    "data:\n",
    "  ",
    "\n",
    "- ",
    ": ",
    "? ",
    "|\n",
    ">-\n",
    "|2+\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!binary ",
    "!!str ",
    "!!int ",
    "!<tag:x> ",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "# c\n",
    "'",
    "\"",
    "\\x41",
    "\\N",
    "\t",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    "yes",
    "0o17",
    "0b1",
    "1_000",
    ".inf",
    "12:30:45",
];

fn pieces(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    while !draw.is_empty() {
        match draw.byte() {
            byte @ 0..8 => text.push(byte.wrapping_mul(37)),
            byte => text.extend(PIECES[usize::from(byte) % PIECES.len()].bytes()),
        }
    }
    text
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes fields of small numbers, which most messages have.
fn message(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..draw.below(6) {
        let number = match draw.byte() {
            0..220 => u64::from(draw.byte() % 24),
            _ => draw.long() >> 20,
        };
        match draw.byte() % 8 {
            0 => {
                varint(&mut out, number << 3);
                let value = grow::number(draw).cast_unsigned();
                varint(&mut out, value);
            }
            1 => {
                varint(&mut out, number << 3 | u64::from(draw.byte() % 8));
                out.extend(draw.bytes(8));
            }
            2 => {
                varint(&mut out, number << 3 | 2);
                varint(&mut out, draw.long() >> (draw.byte() % 64));
            }
            kind => {
                let inner = match kind {
                    3..6 if depth < 80 => message(draw, depth + 1),
                    _ => grow::text(draw).into_bytes(),
                };
                varint(&mut out, number << 3 | 2);
                varint(&mut out, inner.len() as u64);
                out.extend(inner);
            }
        }
    }
    if draw.byte() == 255 {
        // Deeper than anything means.
        for _ in 0..draw.below(200) {
            let inner = std::mem::take(&mut out);
            varint(&mut out, u64::from(draw.byte() % 4) << 3 | 2);
            varint(&mut out, inner.len() as u64);
            out.extend(inner);
        }
    }
    out
}

/// Puts around a message what names its kind.
fn envelope(kind: &Kind, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    for (number, text) in [(1_u64, kind.api_version()), (2, kind.kind.to_owned())] {
        varint(&mut type_meta, number << 3 | 2);
        varint(&mut type_meta, text.len() as u64);
        type_meta.extend(text.into_bytes());
    }
    let mut out = b"k8s\0".to_vec();
    for (number, bytes) in [(1_u64, &type_meta[..]), (2, message)] {
        varint(&mut out, number << 3 | 2);
        varint(&mut out, bytes.len() as u64);
        out.extend(bytes);
    }
    out
}
