//! Bodies as Go clients write them, and hostile ones; what is written, read back
//! by this code and by another.

mod both_ways;

use serde_json::json;

use super::*;

/// Writes a length-delimited field.
fn field(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = varint(u64::from(number << 3 | 2));
    out.extend(varint(payload.len() as u64));
    out.extend(payload);
    out
}

fn number(number: u32, n: u64) -> Vec<u8> {
    [varint(u64::from(number << 3)), varint(n)].concat()
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [
        MAGIC.to_vec(),
        field(1, &type_meta),
        field(2, raw),
        field(3, b""),
        field(4, b""),
    ]
    .concat()
}

/// Recorded from `kubectl create deployment web --image=nginx -- sleep 3600`
/// (kubectl 1.37.1): the message with all the zeros Go writes.
const DEPLOYMENT: &str = "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412b9010a1f0a0377656212001a0022002a0032003800\
42005a0a0a0361707012037765621287010801120c0a0a0a03617070120377656\
21a6d0a1c0a0012001a0022002a003200380042005a0a0a03617070120377656212\
4d122f0a056e67696e7812056e67696e781a05736c6565701a04333630302a0042006a007200800100880100900100a201001a003200\
42004a00520058006000680082010\
08a01009a0100c20100220\
20a0028003800\
1a0c0800100018002000280038001a002200";

#[test]
fn reads_what_kubectl_sends() {
    let hex: String = DEPLOYMENT.chars().filter(char::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect();
    let value = decode(&bytes, "Deployment").unwrap();
    assert_eq!(
        (&value["apiVersion"], &value["kind"]),
        (&json!("apps/v1"), &json!("Deployment"))
    );
    assert_eq!(
        value["metadata"],
        json!({"name": "web", "labels": {"app": "web"}})
    );
    assert_eq!(value["spec"]["replicas"], 1);
    assert_eq!(
        value["spec"]["selector"],
        json!({"matchLabels": {"app": "web"}})
    );
    let container = &value["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container,
        &json!({"name": "nginx", "image": "nginx", "command": ["sleep", "3600"], "resources": {}})
    );
    // Written again it says the same.
    assert_eq!(decode(&encode(&value).unwrap(), "").unwrap(), value);
}

#[test]
fn zeros_that_are_statements_are_kept() {
    let rolling = [
        field(1, &[number(1, 0), number(2, 0), field(3, b"")].concat()),
        field(2, &[number(1, 1), number(2, 0), field(3, b"25%")].concat()),
    ]
    .concat();
    let spec = [
        number(1, 0),
        field(
            4,
            &[field(1, b"RollingUpdate"), field(2, &rolling)].concat(),
        ),
        number(5, 0),
        number(6, 0),
    ]
    .concat();
    let raw = [field(1, &field(1, b"d")), field(2, &spec)].concat();
    let value = decode(&envelope("apps/v1", "Deployment", &raw), "Deployment").unwrap();
    assert_eq!(
        value["spec"],
        json!({"replicas": 0, "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}}}),
        "minReadySeconds is no pointer, the others are"
    );
}

#[test]
fn reads_every_form_of_field() {
    let metadata = [
        field(1, b"s"),
        field(8, &[number(1, 1_767_225_600), number(2, 0)].concat()),
        field(12, &[field(1, b"k"), field(2, b"v")].concat()),
    ]
    .concat();
    let raw = [
        field(1, &metadata),
        field(2, &[field(1, b"key"), field(2, b"\x00\xff")].concat()),
        field(3, b"Opaque"),
        number(5, 0),
    ]
    .concat();
    let value = decode(&envelope("v1", "Secret", &raw), "Secret").unwrap();
    assert_eq!(
        value,
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": false,
            "data": {"key": "AP8="},
            "metadata": {"name": "s", "annotations": {"k": "v"},
                "creationTimestamp": "2026-01-01T00:00:00Z"}})
    );
    // Embedded handlers, quantities, int-or-string.
    let probe = [
        field(
            1,
            &field(
                2,
                &[
                    field(1, b"/"),
                    field(2, &[number(1, 1), field(3, b"http")].concat()),
                ]
                .concat(),
            ),
        ),
        number(2, 0),
    ]
    .concat();
    let limits = [field(1, b"cpu"), field(2, &field(1, b"500m"))].concat();
    let container = [
        field(1, b"c"),
        field(10, &probe),
        field(8, &field(1, &limits)),
    ]
    .concat();
    let raw = field(2, &field(2, &container));
    let value = decode(&envelope("v1", "Pod", &raw), "Pod").unwrap();
    assert_eq!(
        value["spec"]["containers"][0],
        json!({"name": "c", "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}})
    );
    let raw = [number(1, 0), field(2, &field(1, b"u"))].concat();
    let value = decode(&envelope("v1", "DeleteOptions", &raw), "DeleteOptions").unwrap();
    assert_eq!(value["gracePeriodSeconds"], 0);
    assert_eq!(value["preconditions"], json!({"uid": "u"}));
}

#[test]
fn refuses_hostile_bodies_at_once() {
    assert_eq!(decode(b"{}", "Pod"), Err(DecodeError::Magic));
    let whole = envelope("v1", "Pod", &field(2, &field(2, &field(1, b"c"))));
    for cut in 5..whole.len() {
        // Cut anywhere, it is refused or is a shorter message, never a panic.
        let _ = decode(&whole[..cut], "Pod");
    }
    assert_eq!(
        decode(&[MAGIC, &[0x12, 0xff, 0xff][..]].concat(), "Pod"),
        Err(DecodeError::Malformed)
    );
    assert!(matches!(
        decode(&envelope("v9", "Pod", b""), "Pod"),
        Err(DecodeError::UnknownType(..))
    ));
}
