//! Header blocks: a count, then names and values with their lengths.

use crate::SpdyError;

/// The headers of a stream, names in lower case, in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Returns the value of a header, by its name in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Writes the block, not yet compressed.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.0.len());
        for (name, value) in &self.0 {
            for text in [name, value] {
                put(&mut out, text.len());
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    /// Reads a block, already unpacked.
    pub(crate) fn read(mut block: &[u8]) -> Result<Self, SpdyError> {
        let count = take_length(&mut block)?;
        // Nothing is reserved on the count's word: it may be a lie.
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = take_text(&mut block)?.to_ascii_lowercase();
            headers.push((name, take_text(&mut block)?));
        }
        if block.is_empty() {
            Ok(Self(headers))
        } else {
            Err(SpdyError::Headers)
        }
    }
}

/// Blocks are made of a few short texts: a length always fits.
fn put(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
}

fn take_length(block: &mut &[u8]) -> Result<usize, SpdyError> {
    let (length, rest) = block.split_first_chunk::<4>().ok_or(SpdyError::Headers)?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*length)).map_err(|_too_long| SpdyError::Headers)
}

fn take_text(block: &mut &[u8]) -> Result<String, SpdyError> {
    let length = take_length(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(SpdyError::Headers)?;
    *block = rest;
    Ok(String::from_utf8_lossy(text).into_owned())
}
