//! Compressed headers: one zlib stream per direction for a whole session, primed
//! with SPDY's dictionary, with a flush after each block.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::{HEADER_BYTES_MAX, SpdyError};

/// zlib's header for deflate with a 32 KiB window and a preset dictionary.
const ZLIB_HEADER: [u8; 2] = [0x78, 0xbb];
/// The bit of zlib's second byte that announces a dictionary.
const HAS_DICTIONARY: u8 = 0x20;
/// Adler-32 of the dictionary, by which zlib names it.
const DICTIONARY_ID: [u8; 4] = [0xe3, 0xc6, 0xa7, 0xc2];
/// How far back deflate may refer.
const WINDOW_BYTES: usize = 32 * 1024;
/// The most bytes of one stored block.
const STORED_BYTES_MAX: usize = u16::MAX as usize;

/// The words the dictionary begins with, each after its length.
const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
/// What the dictionary ends with.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416\
    417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad \
    Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not \
    Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,\
    deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS {
        // The longest word has twenty-some letters.
        bytes.extend_from_slice(&[0, 0, 0, u8::try_from(word.len()).unwrap_or(u8::MAX)]);
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// Packs header blocks. Nothing is made smaller: the blocks that are sent are
/// empty or nearly so, and stored blocks are as good a zlib stream as any.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    begun: bool,
}

impl Packer {
    pub(crate) fn pack(&mut self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 16);
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(&ZLIB_HEADER);
            out.extend_from_slice(&DICTIONARY_ID);
        }
        for part in block.chunks(STORED_BYTES_MAX) {
            stored(&mut out, part);
        }
        // An empty stored block is what a flush looks like; readers wait for it.
        stored(&mut out, b"");
        out
    }
}

fn stored(out: &mut Vec<u8>, part: &[u8]) {
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    out.push(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(part);
}

/// Unpacks header blocks.
pub(crate) struct Unpacker {
    inflate: Box<DecompressorOxide>,
    /// What was unpacked last, around in a ring; first the dictionary.
    window: Vec<u8>,
    position: usize,
    begun: bool,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unpacker(at {})", self.position)
    }
}

impl Default for Unpacker {
    fn default() -> Self {
        let mut window = dictionary();
        let position = window.len();
        window.resize(WINDOW_BYTES, 0);
        Self {
            inflate: Box::default(),
            window,
            position,
            begun: false,
        }
    }
}

impl Unpacker {
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut rest = packed;
        if !std::mem::replace(&mut self.begun, true) {
            rest = after_header(packed)?;
        }
        let mut out = Vec::new();
        loop {
            let (status, read, written) = decompress(
                &mut self.inflate,
                rest,
                &mut self.window,
                self.position,
                TINFL_FLAG_HAS_MORE_INPUT,
            );
            let end = self.position + written;
            out.extend_from_slice(self.window.get(self.position..end).unwrap_or_default());
            self.position = end % WINDOW_BYTES;
            rest = rest.get(read..).unwrap_or_default();
            if out.len() > HEADER_BYTES_MAX {
                return Err(SpdyError::HeadersTooLong);
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if rest.is_empty() => return Ok(out),
                // A stream that ends cannot carry the next block.
                _ => return Err(SpdyError::Compression),
            }
        }
    }
}

/// Checks zlib's header, which stands before the first block.
fn after_header(packed: &[u8]) -> Result<&[u8], SpdyError> {
    let ([method, flags], rest) = packed
        .split_first_chunk::<2>()
        .ok_or(SpdyError::Compression)?;
    let sum = u16::from_be_bytes([*method, *flags]);
    if method & 0x0f != 8 || sum % 31 != 0 {
        return Err(SpdyError::Compression);
    }
    if flags & HAS_DICTIONARY == 0 {
        return Ok(rest);
    }
    rest.strip_prefix(&DICTIONARY_ID)
        .ok_or(SpdyError::Compression)
}

#[cfg(test)]
mod test {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn the_dictionary_is_the_one_zlib_names() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(((b << 16) | a).to_be_bytes(), DICTIONARY_ID);
        assert_eq!(dictionary().len(), 1423);
    }

    /// Two blocks as zlib 1.3 packs them at level 9, the second with the window
    /// that the first left.
    #[test]
    fn what_zlib_packed_is_unpacked() {
        let first = "78f9e3c6a7c202253a48f95b044eea16061606409ab308125f99a074cc68004e892545a989b9\
                     d0c2863515141500000000ffff";
        let mut unpacker = Unpacker::default();
        let block = unpacker.unpack(&bytes(first)).unwrap();
        let named = |kind: &str| {
            let pairs = [("port", "8080"), ("requestid", "0"), ("streamtype", kind)];
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            crate::Headers(pairs.map(own).to_vec())
        };
        assert_eq!(crate::Headers::read(&block).unwrap(), named("error"));
        let block = unpacker.unpack(&bytes("225333a8a44a04000000ffff")).unwrap();
        assert_eq!(crate::Headers::read(&block).unwrap(), named("data"));
    }

    #[test]
    fn what_was_packed_is_a_zlib_stream() {
        let mut packer = Packer::default();
        let first = packer.pack(b"one");
        assert!(first.starts_with(&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]));
        // Behind the dictionary's name it is plain deflate.
        let mut raw = first[6..].to_vec();
        raw.extend(packer.pack(b"two"));
        let mut inflate = flate2::Decompress::new(false);
        let mut out = Vec::with_capacity(64);
        inflate
            .decompress_vec(&raw, &mut out, flate2::FlushDecompress::Sync)
            .unwrap();
        assert_eq!(out, b"onetwo");
    }

    #[test]
    fn bombs_and_rubbish_are_refused() {
        let mut packer = flate2::Compress::new(flate2::Compression::best(), true);
        let mut bomb = Vec::with_capacity(4096);
        let zeros = vec![0; HEADER_BYTES_MAX + 1];
        packer
            .compress_vec(&zeros, &mut bomb, flate2::FlushCompress::Sync)
            .unwrap();
        let unpack = |bytes: &[u8]| Unpacker::default().unpack(bytes);
        assert_eq!(unpack(&bomb), Err(SpdyError::HeadersTooLong));
        for bad in [
            &b""[..],
            b"\x78",
            b"\x79\xbb",
            b"\x78\xbb\0\0\0\0",
            b"\x78\x9c\xff\xff",
        ] {
            assert_eq!(unpack(bad), Err(SpdyError::Compression), "{bad:?}");
        }
    }
}
