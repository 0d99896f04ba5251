//! Reads JSON into a tree, and writes it, at a fraction of what a reader of any type
//! costs: nearly all that passes through the server goes that way.
//!
//! It reads what is in order and ordinary. Of anything else it says nothing, and
//! `serde_json` is asked, which has the last word on what JSON is, and on every error.

use serde_json::Value;

mod read;

pub use read::{Known, Tree, read, read_over};

/// Reads JSON into a tree, as `serde_json` does.
pub fn from_slice(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    // Looked at as a whole, it need not be looked at text by text.
    let text = std::str::from_utf8(bytes).ok();
    match text.and_then(read) {
        Some(tree) => Ok(tree.value),
        None => serde_json::from_slice(bytes),
    }
}

/// Writes a tree as `serde_json` does. Tells whether there is a number in it that is no
/// integer.
pub fn write(out: &mut Vec<u8>, value: &Value) -> Result<bool, serde_json::Error> {
    let mut has_float = false;
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => {
            serde_json::to_writer(out, number)?;
            has_float = number.is_f64();
        }
        Value::String(text) => write_string(out, text)?,
        Value::Array(items) => {
            out.push(b'[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                has_float |= write(out, item)?;
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (nth, (key, member)) in members.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                write_string(out, key)?;
                out.push(b':');
                has_float |= write(out, member)?;
            }
            out.push(b'}');
        }
    }
    Ok(has_float)
}

/// Writes a string as `serde_json` does.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
    if plain(text.as_bytes()) < text.len() {
        return serde_json::to_writer(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

/// Counts the bytes before the first one that ends a string, escapes something or has
/// no place in one: eight at a time.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (nth, chunk) in chunks.iter().enumerate() {
        let eight = u64::from_le_bytes(*chunk);
        let control = eight.wrapping_sub(ONES * 0x20) & !eight;
        let zero_if = |byte: u8| eight ^ (ONES * u64::from(byte));
        let (quote, escape) = (zero_if(b'"'), zero_if(b'\\'));
        let quote = quote.wrapping_sub(ONES) & !quote;
        let escape = escape.wrapping_sub(ONES) & !escape;
        let found = (control | quote | escape) & HIGH;
        if found != 0 {
            // The lowest one is always a true one.
            return nth * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let ends = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
    let of_rest = rest.iter().position(ends).unwrap_or(rest.len());
    chunks.len() * 8 + of_rest
}

#[cfg(test)]
mod tests;
