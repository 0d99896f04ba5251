//! Frames and their bytes.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::compression::{Packer, Unpacker};
use crate::{CONTROL_BYTES_MAX, Headers, SpdyError};

const VERSION: u16 = 3;
const FRAME_HEAD_BYTES: usize = 8;
const CONTROL: u8 = 0x80;
const FIN: u8 = 0x01;
const UNIDIRECTIONAL: u8 = 0x02;
/// The bits of a stream's id; the one above them is reserved.
const STREAM_BITS: u32 = 0x7fff_ffff;
/// The most bytes one data frame can carry.
const DATA_BYTES_MAX: usize = 0x00ff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// One setting of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is told to do with it.
    pub flags: u8,
    /// Which setting, in 24 bits.
    pub id: u32,
    /// The value.
    pub value: u32,
}

/// A frame of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The stream: odd if the client opens it.
        stream: u32,
        /// The stream it belongs to, or 0.
        associated: u32,
        /// 0 is the most urgent, 7 the least.
        priority: u8,
        /// Whether the opener sends nothing on it.
        fin: bool,
        /// Whether the other side sends nothing on it.
        unidirectional: bool,
        /// What it is for.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// The stream.
        stream: u32,
        /// Whether the accepter sends nothing on it.
        fin: bool,
        /// What is said of it.
        headers: Headers,
    },
    /// Ends a stream in both directions, at once.
    Reset {
        /// The stream.
        stream: u32,
        /// Why, by SPDY's numbers.
        status: u32,
    },
    /// Says how the sender would like the session.
    Settings {
        /// Whether what was kept of earlier settings is to be forgotten.
        clear: bool,
        /// The settings.
        settings: Vec<Setting>,
    },
    /// Asks for the same frame back.
    Ping {
        /// Odd if the client asked.
        id: u32,
    },
    /// Announces the end of the session.
    GoAway {
        /// The last stream that was accepted.
        last: u32,
        /// Why, by SPDY's numbers.
        status: u32,
    },
    /// Adds headers to a stream.
    Headers {
        /// The stream.
        stream: u32,
        /// Whether the sender sends nothing more on it.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Lets the other side send more.
    WindowUpdate {
        /// The stream, or 0 for the session.
        stream: u32,
        /// How many bytes more.
        delta: u32,
    },
    /// Bytes of a stream. A decoder hands out a long frame in parts.
    Data {
        /// The stream.
        stream: u32,
        /// Whether the sender sends nothing more on it.
        fin: bool,
        /// The bytes.
        bytes: Bytes,
    },
}

/// Makes the bytes of frames. One for a session: its compression has a state.
#[derive(Debug, Default)]
pub struct Encoder {
    packer: Packer,
}

impl Encoder {
    /// Appends a frame's bytes. Data longer than one frame can carry takes several.
    pub fn encode(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        match frame {
            Frame::SynStream {
                stream,
                associated,
                priority,
                fin,
                unidirectional,
                headers,
            } => {
                let mut body = words(&[stream & STREAM_BITS, associated & STREAM_BITS]);
                body.extend_from_slice(&[priority << 5, 0]);
                body.extend(self.packer.pack(&headers.write()));
                let flags = flag(*fin, FIN) | flag(*unidirectional, UNIDIRECTIONAL);
                control(out, SYN_STREAM, flags, &body);
            }
            Frame::SynReply {
                stream,
                fin,
                headers,
            } => self.with_headers(out, SYN_REPLY, *stream, *fin, headers),
            Frame::Headers {
                stream,
                fin,
                headers,
            } => self.with_headers(out, HEADERS, *stream, *fin, headers),
            Frame::Reset { stream, status } => {
                control(out, RST_STREAM, 0, &words(&[stream & STREAM_BITS, *status]));
            }
            Frame::Settings { clear, settings } => {
                let mut body = words(&[u32::try_from(settings.len()).unwrap_or(u32::MAX)]);
                for s in settings {
                    let head = u32::from(s.flags) << 24 | s.id & 0x00ff_ffff;
                    body.extend(words(&[head, s.value]));
                }
                control(out, SETTINGS, flag(*clear, FIN), &body);
            }
            Frame::Ping { id } => control(out, PING, 0, &words(&[*id])),
            Frame::GoAway { last, status } => {
                control(out, GOAWAY, 0, &words(&[last & STREAM_BITS, *status]));
            }
            Frame::WindowUpdate { stream, delta } => {
                let body = words(&[stream & STREAM_BITS, delta & STREAM_BITS]);
                control(out, WINDOW_UPDATE, 0, &body);
            }
            Frame::Data { stream, fin, bytes } => data(out, *stream, *fin, bytes),
        }
    }

    fn with_headers(
        &mut self,
        out: &mut Vec<u8>,
        ty: u16,
        stream: u32,
        fin: bool,
        headers: &Headers,
    ) {
        let mut body = words(&[stream & STREAM_BITS]);
        body.extend(self.packer.pack(&headers.write()));
        control(out, ty, flag(fin, FIN), &body);
    }
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// Flags and a length of 24 bits.
fn flags_and_length(out: &mut Vec<u8>, flags: u8, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    out.extend_from_slice(&(u32::from(flags) << 24 | length).to_be_bytes());
}

fn control(out: &mut Vec<u8>, ty: u16, flags: u8, body: &[u8]) {
    out.extend_from_slice(&(VERSION | u16::from(CONTROL) << 8).to_be_bytes());
    out.extend_from_slice(&ty.to_be_bytes());
    flags_and_length(out, flags, body.len());
    out.extend_from_slice(body);
}

fn data(out: &mut Vec<u8>, stream: u32, fin: bool, bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let (part, after) = rest.split_at(rest.len().min(DATA_BYTES_MAX));
        out.extend_from_slice(&(stream & STREAM_BITS).to_be_bytes());
        flags_and_length(out, flag(fin && after.is_empty(), FIN), part.len());
        out.extend_from_slice(part);
        rest = after;
        if rest.is_empty() {
            return;
        }
    }
}

/// A data frame of which a part is still to come.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    stream: u32,
    fin: bool,
    left: usize,
}

/// Finds the frames in what arrives. One for a session.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    unfinished: Option<Unfinished>,
    unpacker: Unpacker,
}

impl Decoder {
    /// Takes in what arrived. What is not a whole control frame yet is kept, at
    /// most [`CONTROL_BYTES_MAX`] and what is pushed at once.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` until more arrives. Control frames of
    /// unknown types are left out, as the protocol says.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, SpdyError> {
        loop {
            if let Some(unfinished) = self.unfinished {
                return Ok(self.data(unfinished));
            }
            let Some((head, _)) = self.buffer.split_first_chunk::<FRAME_HEAD_BYTES>() else {
                return Ok(None);
            };
            let [a, b, c, d, flags, x, y, z] = *head;
            let length = usize::from(x) << 16 | usize::from(y) << 8 | usize::from(z);
            if a & CONTROL == 0 {
                self.buffer.advance(FRAME_HEAD_BYTES);
                self.unfinished = Some(Unfinished {
                    stream: u32::from_be_bytes([a, b, c, d]),
                    fin: flags & FIN != 0,
                    left: length,
                });
                continue;
            }
            let version = u16::from_be_bytes([a & !CONTROL, b]);
            if version != VERSION {
                return Err(SpdyError::Version(version));
            }
            if length > CONTROL_BYTES_MAX {
                return Err(SpdyError::TooLong(length));
            }
            if self.buffer.len() < FRAME_HEAD_BYTES + length {
                return Ok(None);
            }
            let ty = u16::from_be_bytes([c, d]);
            let frame = self.buffer.split_to(FRAME_HEAD_BYTES + length).freeze();
            let body = frame.get(FRAME_HEAD_BYTES..).unwrap_or_default();
            if let Some(frame) = self.control(ty, flags, body)? {
                return Ok(Some(frame));
            }
        }
    }

    /// Returns what there is of a data frame.
    fn data(&mut self, mut of: Unfinished) -> Option<Frame> {
        if of.left > 0 && self.buffer.is_empty() {
            return None;
        }
        let bytes = self
            .buffer
            .split_to(self.buffer.len().min(of.left))
            .freeze();
        of.left -= bytes.len();
        self.unfinished = (of.left > 0).then_some(of);
        Some(Frame::Data {
            stream: of.stream,
            fin: of.fin && of.left == 0,
            bytes,
        })
    }

    fn control(&mut self, ty: u16, flags: u8, body: &[u8]) -> Result<Option<Frame>, SpdyError> {
        let malformed = SpdyError::Malformed(ty);
        let fin = flags & FIN != 0;
        let word = |at: usize| -> Result<u32, SpdyError> {
            let word = body.get(at..at + 4).and_then(|w| w.try_into().ok());
            word.map(u32::from_be_bytes).ok_or(malformed)
        };
        let stream = || word(0).map(|id| id & STREAM_BITS);
        Ok(Some(match ty {
            SYN_STREAM => Frame::SynStream {
                stream: stream()?,
                associated: word(4)? & STREAM_BITS,
                priority: body.get(8).ok_or(malformed)? >> 5,
                fin,
                unidirectional: flags & UNIDIRECTIONAL != 0,
                headers: self.headers(body.get(10..).ok_or(malformed)?)?,
            },
            SYN_REPLY => Frame::SynReply {
                stream: stream()?,
                fin,
                headers: self.headers(body.get(4..).ok_or(malformed)?)?,
            },
            HEADERS => Frame::Headers {
                stream: stream()?,
                fin,
                headers: self.headers(body.get(4..).ok_or(malformed)?)?,
            },
            RST_STREAM => Frame::Reset {
                stream: stream()?,
                status: word(4)?,
            },
            SETTINGS => Frame::Settings {
                clear: fin,
                settings: settings(body).ok_or(malformed)?,
            },
            PING => Frame::Ping { id: word(0)? },
            GOAWAY => Frame::GoAway {
                last: stream()?,
                status: word(4)?,
            },
            WINDOW_UPDATE => Frame::WindowUpdate {
                stream: stream()?,
                delta: word(4)? & STREAM_BITS,
            },
            _ => return Ok(None),
        }))
    }

    fn headers(&mut self, packed: &[u8]) -> Result<Headers, SpdyError> {
        Headers::read(&self.unpacker.unpack(packed)?)
    }
}

fn settings(body: &[u8]) -> Option<Vec<Setting>> {
    let (count, entries) = body.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    let (entries, rest) = entries.as_chunks::<8>();
    let read = |entry: &[u8; 8]| {
        let [flags, a, b, c, value @ ..] = *entry;
        Setting {
            flags,
            id: u32::from_be_bytes([0, a, b, c]),
            value: u32::from_be_bytes(value),
        }
    };
    (entries.len() == count && rest.is_empty()).then(|| entries.iter().map(read).collect())
}

#[cfg(test)]
mod test;
