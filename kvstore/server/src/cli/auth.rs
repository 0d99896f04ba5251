//! Flags of users, passwords and tokens.

use super::flag::{Flag, Kind, Values};
use crate::config::{Config, StartError};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "auth-token",
        Kind::Text,
        "simple",
        "Token type and its options ('simple' or 'jwt').",
    )
    .refused("users and roles are not served yet"),
    Flag::new(
        "bcrypt-cost",
        Kind::Count,
        "10",
        "Strength of the bcrypt hash of passwords, between 4 and 31.",
    )
    .nothing("users and roles are not served yet"),
    Flag::new(
        "auth-token-ttl",
        Kind::Count,
        "300",
        "Lifetime of a simple token in seconds.",
    )
    .nothing("users and roles are not served yet"),
];

pub(super) fn apply(
    _values: &Values,
    _config: &mut Config,
    _notes: &mut Vec<String>,
) -> Result<(), StartError> {
    Ok(())
}
