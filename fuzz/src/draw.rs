//! Choices out of the input: what a fuzzer changes to change the story.

/// Draws from the input, and zeros when it is used up.
pub(crate) struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// Draws a number below a limit that is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.word() as usize % limit
    }

    /// Takes bytes, as many as there are up to a length.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Damages bytes in one way out of several.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = self.below(bytes.len());
        let most = match self.byte() {
            0..200 => 16,
            _ => bytes.len(),
        };
        let len = 1 + self.below(most);
        let end = (at + len).min(bytes.len());
        match self.byte() % 8 {
            0 => bytes[at] ^= 1 << (self.byte() % 8),
            1 => bytes[at] = self.byte(),
            2 => bytes[at..end].fill(0),
            3 => bytes.truncate(at),
            4 => {
                // A piece of the file at another place: a misdirected write.
                let from = self.below(bytes.len());
                let piece = bytes[from..(from + end - at).min(bytes.len())].to_vec();
                for (place, byte) in bytes[at..].iter_mut().zip(piece) {
                    *place = byte;
                }
            }
            5 => {
                for byte in &mut bytes[at..end] {
                    *byte = self.byte();
                }
            }
            6 => {
                // The numbers that arithmetic forgets.
                let number = match self.byte() % 6 {
                    0 => u64::MAX,
                    1 => u64::MAX >> 1,
                    2 => u64::from(u32::MAX),
                    3 => 1 << 63,
                    4 => u64::from(self.byte()),
                    _ => u64::from(self.byte()).swap_bytes(),
                };
                let width = [2, 4, 8][self.below(3)];
                for (place, byte) in bytes[at..].iter_mut().zip(&number.to_le_bytes()[..width]) {
                    *place = *byte;
                }
            }
            _ => bytes.extend((0..len.min(4096)).map(|_| self.byte())),
        }
    }
}
