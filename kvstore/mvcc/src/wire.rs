//! Bytes in and out: the varints and length-prefixed strings that the codec,
//! the blocks and the small rows share.
//!
//! Reading never panics and never allocates by a number found in the input.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// Says why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireError {
    /// The input ends inside the field.
    Truncated,
    /// A varint does not fit 64 bits.
    Overlong,
}

/// Appends an unsigned number, seven bits a byte, low bits first.
pub(crate) fn put_u64(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8((n as u8) | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

/// Appends a signed number, zigzag, so that small negatives stay short.
pub(crate) fn put_i64(out: &mut BytesMut, n: i64) {
    put_u64(out, ((n << 1) ^ (n >> 63)) as u64);
}

/// Appends a string behind its length.
pub(crate) fn put_bytes(out: &mut BytesMut, b: &[u8]) {
    put_u64(out, b.len() as u64);
    out.put_slice(b);
}

/// Bytes of a sealed row before its body.
const SEAL_BYTES: usize = 5;

/// Makes a row of a body: its version, a checksum, and the body.
pub(crate) fn seal(version: u8, body: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(SEAL_BYTES + body.len());
    row.put_u8(version);
    row.put_u32(crc32fast::hash(body));
    row.put_slice(body);
    row.freeze()
}

/// Checks a sealed row; returns its body, or what is wrong with it.
pub(crate) fn unseal(row: Bytes, version: u8) -> Result<Bytes, String> {
    if row.len() < SEAL_BYTES {
        return Err("shorter than its head".to_owned());
    }
    if row[0] != version {
        let found = row[0];
        return Err(format!("version {found}, this build reads {version}"));
    }
    let body = row.slice(SEAL_BYTES..);
    match row[1..SEAL_BYTES] == crc32fast::hash(&body).to_be_bytes() {
        true => Ok(body),
        false => Err("checksum mismatch".to_owned()),
    }
}

/// Reads fields from the front of a buffer; strings are slices of it.
pub(crate) struct Reader<B = Bytes> {
    buf: B,
    at: usize,
}

impl<B: AsRef<[u8]>> Reader<B> {
    pub(crate) fn new(buf: B) -> Self {
        Self { buf, at: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.buf.as_ref().len() - self.at
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        let b = *self.buf.as_ref().get(self.at).ok_or(WireError::Truncated)?;
        self.at += 1;
        Ok(b)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let bits = u64::from(b & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overlong);
            }
            n |= bits << shift;
            if b & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(WireError::Overlong)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        let n = self.u64()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn be64(&mut self) -> Result<u64, WireError> {
        let end = self.at.checked_add(8).ok_or(WireError::Truncated)?;
        let raw = self.buf.as_ref().get(self.at..end);
        let raw = raw.ok_or(WireError::Truncated)?;
        self.at = end;
        let mut b = [0; 8];
        b.copy_from_slice(raw);
        Ok(u64::from_be_bytes(b))
    }

    /// Passes over a string; returns where it is.
    fn string(&mut self) -> Result<Range<usize>, WireError> {
        let len = usize::try_from(self.u64()?).or(Err(WireError::Truncated))?;
        let end = self.at.checked_add(len).ok_or(WireError::Truncated)?;
        if end > self.buf.as_ref().len() {
            return Err(WireError::Truncated);
        }
        Ok(std::mem::replace(&mut self.at, end)..end)
    }
}

impl Reader {
    /// Returns all that is left.
    pub(crate) fn rest(&mut self) -> Bytes {
        let at = std::mem::replace(&mut self.at, self.buf.len());
        self.buf.slice(at..)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, WireError> {
        let string = self.string()?;
        // An empty slice would still hold the whole buffer in memory.
        Ok(match string.is_empty() {
            true => Bytes::new(),
            false => self.buf.slice(string),
        })
    }
}

impl<'a> Reader<&'a [u8]> {
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], WireError> {
        Ok(&self.buf[self.string()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(u in any::<u64>(), i in any::<i64>(), b in any::<Vec<u8>>()) {
            let mut out = BytesMut::new();
            put_u64(&mut out, u);
            put_i64(&mut out, i);
            put_bytes(&mut out, &b);
            let mut r = Reader::new(out.freeze());
            prop_assert_eq!(r.u64(), Ok(u));
            prop_assert_eq!(r.i64(), Ok(i));
            prop_assert_eq!(r.bytes().unwrap(), b);
            prop_assert_eq!(r.remaining(), 0);
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        let mut r = Reader::new(Bytes::from_static(&[0xff; 10]));
        assert_eq!(r.u64(), Err(WireError::Overlong));
        let mut r = Reader::new(Bytes::from_static(&[
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ]));
        assert_eq!(r.u64(), Ok(u64::MAX));
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut out = BytesMut::new();
        put_u64(&mut out, u64::MAX);
        assert_eq!(Reader::new(out.freeze()).bytes(), Err(WireError::Truncated));
    }
}
