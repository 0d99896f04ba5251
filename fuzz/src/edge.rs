//! The client's connection: HTTP/2, gRPC in it, and the gateway beside it.
//!
//! Promised (`kvserver`): whatever a client says, its connection ends when it is
//! gone, nothing panics, and others are served.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use kvserver::fuzzing::Door;

use super::draw::Draw;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most frames one input makes.
const FRAMES_MAX: usize = 48;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Every kind of call. Not those after which the rest would be refused or wait:
/// AuthEnable, and changes of the membership.
const PATHS: [&str; 27] = [
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/HashKV",
    "/etcdserverpb.Maintenance/Snapshot",
    "/etcdserverpb.Maintenance/Downgrade",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.Auth/UserAdd",
    "/etcdserverpb.Auth/RoleGrantPermission",
    "/v3lockpb.Lock/Lock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Observe",
    "/grpc.health.v1.Health/Watch",
    "/etcdserverpb.KV/Nonsense",
    "/",
];

/// The other things a client may ask for over the same connection.
const PAGES: [&str; 8] = [
    "/v3/kv/put",
    "/v3/kv/txn",
    "/v3/watch",
    "/v3/lease/keepalive",
    "/health?exclude=NOSPACE",
    "/metrics",
    "/readyz?verbose",
    "/version",
];

/// Header fields that mean something to gRPC, HTTP/2 or us.
const FIELDS: [(&str, &str); 14] = [
    ("token", "nobody.7"),
    ("authorization", "Bearer x"),
    ("hasleader", "true"),
    ("grpc-timeout", "1n"),
    ("grpc-timeout", "99999999999H"),
    ("grpc-encoding", "gzip"),
    ("grpc-accept-encoding", "identity,\u{0}"),
    ("te", "trailers"),
    ("connection", "close"),
    ("content-length", "7"),
    ("upgrade", "websocket"),
    ("grpc-metadata-token", "x"),
    ("origin", "http://elsewhere"),
    (":path", "/again"),
];

struct Stage {
    door: Door,
    /// Panics of any thread: those of tasks end nothing else.
    panics: &'static AtomicUsize,
}

fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    STAGE.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let at = panic.location().map_or("", |location| location.file());
            // Other targets of the same process panic where they find something. And h2
            // 0.4.20 looks at its count of streams when a connection is dropped, in
            // builds with debug assertions only (proto/streams/counts.rs, Drop): that
            // ends the task of the connection which is ending anyway.
            let of_h2 = at.contains("/h2-") && at.ends_with("proto/streams/counts.rs");
            if !at.contains("fuzz/src") && !of_h2 {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
        Stage {
            door: Door::open().expect("a directory for temporary files"),
            panics: &PANICS,
        }
    })
}

/// Lets a client say what the input says.
pub fn edge(input: &[u8]) {
    let Stage { door, panics } = stage();
    let mut draw = Draw::new(input);
    let said = match draw.byte() % 8 {
        0 => draw.rest().to_vec(),
        1 => [PREFACE, draw.rest()].concat(),
        2 => http_1(&mut draw),
        kind => {
            let mut said = http_2(&mut draw);
            if kind == 3 {
                draw.damage(&mut said);
            }
            said
        }
    };
    door.talk(&said).expect("it ends");
    door.serves().expect("others are served");
    let panicked = panics.swap(0, Ordering::SeqCst);
    assert_eq!(panicked, 0, "a task panicked");
}

fn http_1(draw: &mut Draw<'_>) -> Vec<u8> {
    let method = ["GET", "POST", "OPTIONS", "PRI"][draw.below(4)];
    let page = PAGES[draw.below(PAGES.len())];
    let mut said = format!("{method} {page} HTTP/1.1\r\nHost: x\r\n").into_bytes();
    for _ in 0..draw.below(4) {
        let (name, value) = FIELDS[draw.below(FIELDS.len())];
        said.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    let body = draw.rest();
    said.extend(match body.len() % 3 {
        0 => "Transfer-Encoding: chunked\r\n\r\n".to_owned().into_bytes(),
        _ => format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes(),
    });
    said.extend(body);
    said
}

fn http_2(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut said = PREFACE.to_vec();
    frame(&mut said, SETTINGS, 0, 0, b"");
    let mut stream = 1;
    for _ in 0..FRAMES_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.byte() % 16 {
            0..11 => {
                open(&mut said, draw, stream);
                stream += 2;
            }
            11 | 12 => {
                let message = message(draw);
                let flags = draw.byte() % 2 * END_STREAM;
                frame(&mut said, DATA, flags, other(draw, stream), &message);
            }
            13 => control(&mut said, draw, stream),
            14 => {
                let (kind, flags) = (draw.byte(), draw.byte());
                let len = draw.below(40);
                frame(&mut said, kind, flags, other(draw, stream), draw.bytes(len));
            }
            _ => {
                let len = draw.below(20);
                said.extend(draw.bytes(len));
            }
        }
    }
    said
}

/// A frame about the connection or about a stream as a whole.
fn control(said: &mut Vec<u8>, draw: &mut Draw<'_>, next: u32) {
    match draw.byte() % 4 {
        0 => frame(said, RST_STREAM, 0, other(draw, next), draw.bytes(4)),
        1 => frame(said, PING, draw.byte() % 2, 0, draw.bytes(8)),
        2 => {
            let stream = other(draw, next);
            frame(said, WINDOW_UPDATE, 0, stream, draw.bytes(4));
        }
        _ => frame(said, SETTINGS, draw.byte() % 2, 0, draw.bytes(6)),
    }
}

/// A stream that was opened, mostly.
fn other(draw: &mut Draw<'_>, next: u32) -> u32 {
    match draw.byte() {
        0..240 => next.saturating_sub(2),
        _ => draw.word(),
    }
}

/// Begins a call or asks for a page.
fn open(said: &mut Vec<u8>, draw: &mut Draw<'_>, stream: u32) {
    let mut fields = Vec::new();
    let is_call = !draw.byte().is_multiple_of(4);
    let path = match is_call {
        true => PATHS[draw.below(PATHS.len())],
        false => PAGES[draw.below(PAGES.len())],
    };
    field(&mut fields, ":method", "POST");
    field(&mut fields, ":scheme", "http");
    field(&mut fields, ":path", path);
    field(&mut fields, ":authority", "x");
    if is_call {
        field(&mut fields, "content-type", "application/grpc");
    }
    for _ in 0..draw.byte() % 4 {
        let (name, value) = FIELDS[draw.below(FIELDS.len())];
        field(&mut fields, name, value);
    }
    let alone = draw.byte().is_multiple_of(8);
    let flags = END_HEADERS | if alone { END_STREAM } else { 0 };
    frame(said, HEADERS, flags, stream, &fields);
    if !alone {
        let flags = if draw.byte().is_multiple_of(4) {
            0
        } else {
            END_STREAM
        };
        frame(said, DATA, flags, stream, &message(draw));
    }
}

/// A field as a literal that is not remembered (RFC 7541, 6.2.2).
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    for text in [name, value] {
        out.push(text.len() as u8);
        out.extend(text.as_bytes());
    }
}

/// A message with its prefix, which lies at times.
fn message(draw: &mut Draw<'_>) -> Vec<u8> {
    let len = draw.below(80);
    let body = draw.bytes(len);
    let length = match draw.byte() {
        0..230 => body.len() as u32,
        _ => draw.word(),
    };
    let flag = match draw.byte() {
        0..240 => 0,
        flag => flag,
    };
    let mut message = vec![flag];
    message.extend(length.to_be_bytes());
    message.extend(body);
    message
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}
