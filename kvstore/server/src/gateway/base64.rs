//! Base64 as Go's `encoding/base64` reads it: the error says at which byte, line ends
//! are passed over, and bits behind the last byte do not matter.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use thiserror::Error;

/// Is text that is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("illegal base64 data at input byte {0}")]
pub(crate) struct Corrupt(usize);

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads padded base64.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, Corrupt> {
    // The crate is strict and fast; what it refuses is looked at again.
    STANDARD.decode(text).or_else(|_strict| decode_as_go(text))
}

fn decode_as_go(text: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match (byte, sextet(*byte)) {
            (b'\r' | b'\n', _) => {}
            (_, Some(six)) => {
                bits = bits << 6 | u32::from(six);
                count += 1;
                if count == 4 {
                    decoded.extend_from_slice(&bits.to_be_bytes()[1..]);
                    (bits, count) = (0, 0);
                }
            }
            (b'=', None) if count >= 2 => {
                check_padding(text, at, count)?;
                bits <<= 6 * (4 - count);
                decoded.extend_from_slice(&bits.to_be_bytes()[1..count]);
                return Ok(decoded);
            }
            _ => return Err(Corrupt(at - 1)),
        }
    }
    match count {
        0 => Ok(decoded),
        // Go points at where the group began.
        _ => Err(Corrupt(at - count)),
    }
}

/// Checks what follows the first `=`: another one if two characters came before it,
/// and then nothing.
fn check_padding(text: &[u8], mut at: usize, count: usize) -> Result<(), Corrupt> {
    let skip = |mut at: usize| {
        while matches!(text.get(at), Some(b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    if count == 2 {
        at = skip(at);
        match text.get(at) {
            Some(b'=') => at += 1,
            Some(_) => return Err(Corrupt(at - 1)),
            None => return Err(Corrupt(text.len())),
        }
    }
    at = skip(at);
    match text.get(at) {
        Some(_) => Err(Corrupt(at)),
        None => Ok(()),
    }
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_and_loose_bits_pass() {
        for (text, bytes) in [
            ("YQ==", "a"),
            ("YQ\n==", "a"),
            ("YQ==\r\n", "a"),
            ("YR==", "a"),
            ("YWI=", "ab"),
            ("Y\nWJj", "abc"),
            ("", ""),
        ] {
            assert_eq!(decode(text.as_bytes()), Ok(bytes.into()), "{text:?}");
        }
    }

    /// The positions are those etcd 3.5.1 reports.
    #[test]
    fn errors_name_the_byte() {
        for (text, at) in [
            ("!!", 0),
            ("YQ", 0),
            ("YWE", 0),
            ("_-8=", 0),
            ("Y+/_", 3),
            ("YWJjYQ", 4),
            ("YQ=", 3),
            ("YQ=x", 2),
            ("YQ==x", 4),
            ("=", 0),
        ] {
            assert_eq!(decode(text.as_bytes()), Err(Corrupt(at)), "{text:?}");
        }
    }
}
