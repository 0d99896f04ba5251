//! CRC-32C (Castagnoli), which etcd hashes its data with: eight bytes a step, by
//! table.

/// Is a checksum under way.
#[derive(Debug, Clone)]
pub struct Crc32c(u32);

/// `TABLES[n]` carries a byte over `n` more bytes.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut n = 0;
        while n < 256 {
            let crc = tables[table - 1][n];
            tables[table][n] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            n += 1;
        }
        table += 1;
    }
    tables
}

impl Crc32c {
    /// Begins one.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Takes in more bytes.
    pub fn update(&mut self, data: &[u8]) {
        let (steps, rest) = data.as_chunks::<8>();
        for step in steps {
            let [a, b, c, d, e, f, g, h] = *step;
            let first = self.0 ^ u32::from_le_bytes([a, b, c, d]);
            let [a, b, c, d] = first.to_le_bytes();
            self.0 = TABLES[7][usize::from(a)]
                ^ TABLES[6][usize::from(b)]
                ^ TABLES[5][usize::from(c)]
                ^ TABLES[4][usize::from(d)]
                ^ TABLES[3][usize::from(e)]
                ^ TABLES[2][usize::from(f)]
                ^ TABLES[1][usize::from(g)]
                ^ TABLES[0][usize::from(h)];
        }
        for byte in rest {
            let at = (self.0 ^ u32::from(*byte)) & 0xff;
            self.0 = TABLES[0][at as usize] ^ (self.0 >> 8);
        }
    }

    /// Returns the checksum.
    pub fn finish(self) -> u32 {
        !self.0
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_standard() {
        let of = |data: &[u8]| {
            let mut crc = Crc32c::new();
            crc.update(data);
            crc.finish()
        };
        assert_eq!(of(b"123456789"), 0xe306_9283);
        // RFC 3720, B.4.
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(of(&ascending), 0x46dd_794e);
    }

    #[test]
    fn where_it_is_cut_does_not_matter() {
        let data: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37)).collect();
        let mut whole = Crc32c::new();
        whole.update(&data);
        for cut in 0..data.len() {
            let mut parts = Crc32c::new();
            parts.update(&data[..cut]);
            parts.update(&data[cut..]);
            assert_eq!(parts.0, whole.0, "cut at {cut}");
        }
    }
}
