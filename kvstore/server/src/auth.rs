//! Who calls, and whether they may.
//!
//! [`caller`] keeps what a request showed of its sender. Nothing here knows what a
//! role allows: that is replicated state, and crate `mvcc` decides by it.

mod caller;
mod guard;

pub(crate) use self::caller::Caller;
pub use self::caller::PeerCertificate;
