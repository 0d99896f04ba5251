//! The wire format: tags, varints, lengths. Limits are the body's own size:
//! nothing is allocated here.

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
