//! The wire format: tags, varints, lengths. Reading is limited by the body's own
//! size, and allocates nothing.

use super::DecodeError;

/// One field's payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    /// A varint.
    Number(u64),
    /// Eight bytes, or four widened.
    Fixed(u64),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
}

/// Reads one message's fields in the order they stand.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field's number and payload.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Scalar<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_ignored| DecodeError::Malformed)?;
        let scalar = match tag & 7 {
            0 => Scalar::Number(self.varint()?),
            1 => Scalar::Fixed(self.fixed::<8>().map(u64::from_le_bytes)?),
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_ignored| DecodeError::Malformed)?;
                Scalar::Bytes(self.take(length)?)
            }
            5 => Scalar::Fixed(self.fixed::<4>().map(u32::from_le_bytes)?.into()),
            _ => return Err(DecodeError::Malformed),
        };
        Ok(Some((number, scalar)))
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Malformed)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?
            .try_into()
            .map_err(|_ignored| DecodeError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Malformed);
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }
}

/// Writes fields, one after another. A message's length stands before it and is
/// known after it: one byte is kept free, and what was written moves where that
/// is not enough.
#[derive(Debug, Default)]
pub(super) struct Out {
    buffer: Vec<u8>,
}

/// A message that was begun.
#[must_use]
pub(super) struct Opened(usize);

impl Out {
    /// Begins with some bytes kept free at the front, for what is put there
    /// when the rest is known.
    pub(super) fn with_headroom(headroom: usize, capacity: usize) -> Self {
        let mut buffer = Vec::with_capacity(headroom + capacity);
        buffer.resize(headroom, 0);
        Self { buffer }
    }

    /// Returns what was written, the headroom before it.
    pub(super) fn into_inner(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns how many bytes there are, the headroom among them.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns what was written from a place on.
    pub(super) fn since(&self, at: usize) -> &[u8] {
        &self.buffer[at..]
    }

    /// Forgets everything, the headroom too.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
    }

    fn tag(&mut self, number: u32, wire_type: u8) {
        varint(
            &mut self.buffer,
            u64::from(number << 3 | u32::from(wire_type)),
        );
    }

    /// Writes an integer. A negative one takes ten bytes whatever its size.
    pub(super) fn int(&mut self, number: u32, value: i64) {
        self.tag(number, 0);
        varint(&mut self.buffer, value.cast_unsigned());
    }

    /// Writes a floating-point number.
    pub(super) fn double(&mut self, number: u32, value: f64) {
        self.tag(number, 1);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes bytes or text.
    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, 2);
        varint(&mut self.buffer, bytes.len() as u64);
        self.buffer.extend_from_slice(bytes);
    }

    /// Begins a message.
    pub(super) fn open(&mut self, number: u32) -> Opened {
        self.tag(number, 2);
        self.buffer.push(0);
        Opened(self.buffer.len())
    }

    /// Takes back a message that was begun and has no fields yet.
    pub(super) fn abandon(&mut self, opened: Opened) {
        // The tag of a number below sixteen is one byte, and the length another.
        self.buffer.truncate(opened.0 - 2);
    }

    /// Ends a message.
    pub(super) fn close(&mut self, opened: Opened) {
        let start = opened.0;
        let length = self.buffer.len() - start;
        if length < 0x80 {
            // Just tested to fit.
            self.buffer[start - 1] = length as u8;
            return;
        }
        let (head, size) = varint_bytes(length as u64);
        let end = self.buffer.len();
        self.buffer.resize(end + size - 1, 0);
        self.buffer.copy_within(start..end, start + size - 1);
        self.buffer[start - 1..start - 1 + size].copy_from_slice(&head[..size]);
    }
}

/// Appends a varint.
fn varint(out: &mut Vec<u8>, n: u64) {
    let (bytes, size) = varint_bytes(n);
    out.extend_from_slice(&bytes[..size]);
}

/// Returns a varint and its size.
fn varint_bytes(mut n: u64) -> ([u8; 10], usize) {
    let (mut bytes, mut size) = ([0; 10], 0);
    loop {
        // The low seven bits, and the mark that more follow.
        bytes[size] = n as u8 & 0x7f | if n >= 0x80 { 0x80 } else { 0 };
        size += 1;
        n >>= 7;
        if n == 0 {
            return (bytes, size);
        }
    }
}

/// Returns the size of a varint.
pub(super) fn varint_size(n: u64) -> usize {
    varint_bytes(n).1
}

/// Puts things before what is there already, from the back to the front, into
/// headroom that was kept free.
#[derive(Debug)]
pub(super) struct Front {
    buffer: Vec<u8>,
    at: usize,
}

impl Front {
    pub(super) fn new(out: Out, headroom: usize) -> Self {
        Self {
            buffer: out.into_inner(),
            at: headroom,
        }
    }

    /// Returns how many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// Appends behind.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Puts bytes in front.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.at {
            // Too little was kept free: make room for this and as much again.
            let more = bytes.len() + 64;
            drop(self.buffer.splice(..0, std::iter::repeat_n(0, more)));
            self.at += more;
        }
        self.at -= bytes.len();
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes all there is the payload of a field.
    pub(super) fn wrap(&mut self, number: u32) {
        self.wrap_with(number, 0);
    }

    /// Makes all there is, and so many bytes that are to follow, the payload of a
    /// field.
    pub(super) fn wrap_with(&mut self, number: u32, follow: usize) {
        let (length, size) = varint_bytes((self.len() + follow) as u64);
        self.put(&length[..size]);
        let (tag, size) = varint_bytes(u64::from(number << 3 | 2));
        self.put(&tag[..size]);
    }

    /// Returns the bytes.
    pub(super) fn finish(self) -> bytes::Bytes {
        bytes::Bytes::from(self.buffer).slice(self.at..)
    }
}
