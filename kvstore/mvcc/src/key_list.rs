//! Keys laid one after the other: a list that takes one allocation, holds on to no
//! block that its keys came from, and hands them out in the order they came.

/// Bytes of the length before each key.
const LEN_BYTES: usize = size_of::<u32>();

/// Is a list of keys.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    /// Where the first key lies that was not handed out.
    next: usize,
}

impl KeyList {
    /// Adds a key. Keys are far shorter than their lengths could tell.
    pub(crate) fn push(&mut self, key: &[u8]) {
        let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&key[..len as usize]);
    }

    /// Hands out the first key.
    pub(crate) fn pop(&mut self) -> Option<&[u8]> {
        let (len, rest) = self.bytes[self.next..].split_first_chunk::<LEN_BYTES>()?;
        let len = u32::from_le_bytes(*len) as usize;
        self.next += LEN_BYTES + len;
        Some(&rest[..len])
    }

    /// Reports whether all keys were handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_what_came_in_that_order() {
        let mut list = KeyList::default();
        assert!(list.is_empty());
        for key in [&b"a"[..], b"", &[0xff; 300]] {
            list.push(key);
        }
        assert!(!list.is_empty());
        assert_eq!(list.pop(), Some(&b"a"[..]));
        assert_eq!(list.pop(), Some(&b""[..]));
        assert_eq!(list.pop(), Some(&[0xff; 300][..]));
        assert!(list.is_empty());
        assert_eq!(list.pop(), None);
    }
}
