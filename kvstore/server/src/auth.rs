//! Who calls, and whether they may.
//!
//! [`caller`] keeps what a request showed of its sender, [`tokens`] and [`jwt`] say
//! whose a token is, [`guard`] puts that together into the identity that proposals
//! carry and reads are checked against; [`service`] is what the Auth service asks of
//! a member. Passwords end in [`password`]: only their hashes are proposed.
//!
//! Nothing here knows what a role allows: that is replicated state, and crate `mvcc`
//! decides by it.

mod caller;
mod guard;
mod jwt;
mod options;
mod password;
mod service;
mod tokens;

pub(crate) use self::{
    caller::Caller,
    guard::{Asker, refusal_text},
    jwt::Jwt,
    options::{BCRYPT_COST, SIMPLE_TOKEN_TTL},
    tokens::SimpleTokens,
};
pub use self::{
    caller::PeerCertificate,
    options::{AuthToken, JwtOptions},
};
