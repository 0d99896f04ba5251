//! SPDY/3.1 framing, as far as port forwarding speaks it: bytes to frames and
//! frames to bytes, with compressed headers.
//!
//! kubectl forwards ports over SPDY inside a websocket. Only the framing is
//! here, as values: a [`Decoder`] is given what arrives and says which frames it
//! holds, an [`Encoder`] makes the bytes of a frame. Who may open which stream,
//! and what flows on it, is the caller's.
//!
//! Flow control is read and not spoken: the Go implementation, which is the only
//! one in use, neither sends nor heeds window updates, and would stall if held to
//! them. What holds a fast sender back is the connection beneath.

mod compression;
mod frame;
mod headers;

pub use frame::{Decoder, Encoder, Frame, Setting};
pub use headers::Headers;

/// The longest control frame that is read, in bytes; beyond it the session is
/// refused. Headers of forwarded ports have about a hundred.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// The most bytes a header block may unpack to; beyond it the session is refused.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Why bytes are not SPDY/3.1. After any of these a session cannot go on: the
/// state of its compression is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    /// A frame of another version of the protocol.
    #[error("SPDY version {0} is not spoken here")]
    Version(u16),
    /// A control frame longer than [`CONTROL_BYTES_MAX`].
    #[error("a control frame of {0} bytes is too long")]
    TooLong(usize),
    /// A frame shorter than its fields, or with fields that contradict it.
    #[error("a frame of type {0} is malformed")]
    Malformed(u16),
    /// A header block that is not zlib with SPDY's dictionary.
    #[error("headers cannot be unpacked")]
    Compression,
    /// A header block longer than [`HEADER_BYTES_MAX`].
    #[error("headers are longer than {HEADER_BYTES_MAX} bytes")]
    HeadersTooLong,
    /// A header block whose counts and lengths do not add up.
    #[error("headers are malformed")]
    Headers,
}
