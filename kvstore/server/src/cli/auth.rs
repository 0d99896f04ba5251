//! Flags of users, passwords and tokens.

use std::time::Duration;

use super::{
    flag::{Flag, Kind, Values},
    value,
};
use crate::{
    auth::{AuthToken, BCRYPT_COST, SIMPLE_TOKEN_TTL},
    config::{Config, StartError},
};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "auth-token",
        Kind::Text,
        "simple",
        "Token type and its options: simple, or jwt,sign-method=RS256,pub-key=..,priv-key=..,ttl=5m.",
    ),
    Flag::new(
        "bcrypt-cost",
        Kind::Count,
        "10",
        "Strength of the bcrypt hash of passwords, between 4 and 31.",
    ),
    Flag::new(
        "auth-token-ttl",
        Kind::Count,
        "300",
        "Lifetime of a simple token in seconds.",
    ),
];

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    let flag = "auth-token";
    config.auth_token = AuthToken::parse(values.text(flag), value::duration)
        .map_err(|reason| StartError::Flag { flag, reason })?;
    config.auth_token_ttl = match values.count("auth-token-ttl") {
        // etcd: simple_token.go, enable.
        0 => SIMPLE_TOKEN_TTL,
        seconds => Duration::from_secs(seconds),
    };
    config.bcrypt_cost = match u32::try_from(values.count("bcrypt-cost")) {
        Ok(cost @ 4..=31) => cost,
        _ => {
            // etcd: auth/store.go, NewAuthStore.
            notes.push(format!(
                "using the default bcrypt cost {BCRYPT_COST} instead of the invalid one given"
            ));
            BCRYPT_COST
        }
    };
    config.client_cert_auth = values.boolean("client-cert-auth");
    Ok(())
}
