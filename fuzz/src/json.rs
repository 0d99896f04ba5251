//! Bodies of the JSON gateway.
//!
//! Promised (`kvserver`): an error or a message; what a message is written as is
//! read as the same message again.

use kvserver::fuzzing::json_twice;

use super::draw::Draw;

const PATHS: [&str; 8] = [
    "kv/range",
    "kv/put",
    "kv/txn",
    "watch",
    "lease/grant",
    "maintenance/alarm",
    "auth/role/grant",
    "cluster/member/add",
];

/// Pieces of bodies that mean something somewhere.
const PIECES: [&str; 28] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"key\"",
    "\"YQ==\"",
    "\"range_end\"",
    "\"rangeEnd\"",
    "null",
    "true",
    "\"12\"",
    "-1",
    "1e3",
    "9223372036854775808",
    "\"success\"",
    "\"request_put\"",
    "\"requestTxn\"",
    "\"compare\"",
    "\"target\"",
    "\"VALUE\"",
    "\"create_request\"",
    "\"filters\"",
    "\"\\ud800\"",
    "\"\\u0041\"",
    "\"_-8\"",
    " ",
];

/// Reads a body as a path's message, and what it is written as again.
pub fn json(input: &[u8]) {
    let mut draw = Draw::new(input);
    let path = PATHS[draw.below(PATHS.len())];
    let mut text = Vec::new();
    match draw.byte() % 4 {
        0 => text.extend(draw.rest()),
        1 => {
            // Deeper than anything means.
            let open = if draw.byte().is_multiple_of(2) {
                "["
            } else {
                "{\"success\":[{\"requestTxn\":"
            };
            text.extend(open.repeat(draw.below(20_000)).into_bytes());
            text.extend(draw.rest());
        }
        _ => {
            while !draw.is_empty() {
                match draw.byte() {
                    byte @ 0..8 => text.push(byte.wrapping_mul(37)),
                    byte => text.extend(PIECES[usize::from(byte) % PIECES.len()].bytes()),
                }
            }
        }
    }
    if let Some((once, twice)) = json_twice(path, &text) {
        assert_eq!(twice.as_deref(), Some(&once[..]), "{}", text.escape_ascii());
    }
}
