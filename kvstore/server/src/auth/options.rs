//! `--auth-token`: which tokens are given out (etcd: `server/auth/store.go`,
//! decomposeOpts, and `options.go`).

use std::{path::PathBuf, time::Duration};

/// How long a token lives after its last use: etcd's default for `--auth-token-ttl`.
pub(crate) const SIMPLE_TOKEN_TTL: Duration = Duration::from_secs(300);
/// etcd's default for `--bcrypt-cost`.
pub(crate) const BCRYPT_COST: u32 = 10;
/// etcd's default for the option `ttl` of signed tokens.
const JWT_TTL: Duration = Duration::from_secs(300);

/// The kind of token a user gets for its password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthToken {
    /// Random; every member remembers it.
    #[default]
    Simple,
    /// Signed; any member can check it, and nobody can take it back.
    Jwt(JwtOptions),
}

/// How tokens are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtOptions {
    /// The algorithm: RS256, ES256, PS256, HS256 or EdDSA, or longer ones of a kind.
    pub sign_method: String,
    /// The public key, PEM. Alone it can only check tokens.
    pub public_key: Option<PathBuf>,
    /// The private key, PEM, or the secret of an HS method.
    pub private_key: Option<PathBuf>,
    /// How long a token is good for.
    pub ttl: Duration,
}

impl AuthToken {
    /// Reads the flag: `simple`, or `jwt,sign-method=RS256,pub-key=..,priv-key=..,ttl=10m`.
    /// `duration` reads what Go would read as one. An option nobody knows is passed
    /// over, as etcd does.
    pub fn parse(text: &str, duration: impl Fn(&str) -> Option<Duration>) -> Result<Self, String> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        let mut options = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) if !value.contains('=') => {
                    if options.iter().any(|(known, _)| *known == key) {
                        return Err(format!("option {key:?} is given twice"));
                    }
                    options.push((key, value));
                }
                _ => return Err(format!("{part:?} is not option=value")),
            }
        }
        let option = |key: &str| {
            let found = options.iter().find(|(known, _)| *known == key);
            found
                .map(|(_, value)| *value)
                .filter(|value| !value.is_empty())
        };
        match kind {
            "simple" => Ok(Self::Simple),
            "jwt" => Ok(Self::Jwt(JwtOptions {
                sign_method: option("sign-method").unwrap_or_default().to_owned(),
                public_key: option("pub-key").map(PathBuf::from),
                private_key: option("priv-key").map(PathBuf::from),
                ttl: match option("ttl") {
                    None => JWT_TTL,
                    Some(text) => duration(text)
                        .ok_or_else(|| format!("ttl {text:?} is not a duration such as 5m"))?,
                },
            })),
            _ => Err(format!("{kind:?} is neither simple nor jwt")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AuthToken, String> {
        AuthToken::parse(text, |text| match text {
            "10m" => Some(Duration::from_secs(600)),
            _ => None,
        })
    }

    #[test]
    fn simple_takes_no_options_seriously() {
        assert_eq!(parse("simple"), Ok(AuthToken::Simple));
        assert_eq!(parse("simple,ttl=10m"), Ok(AuthToken::Simple));
        assert!(parse("").is_err());
        assert!(parse("opaque").is_err());
    }

    #[test]
    fn jwt_options() {
        let all = parse("jwt,pub-key=a.pub,priv-key=a.key,sign-method=PS512,ttl=10m,x=y").unwrap();
        let expected = JwtOptions {
            sign_method: "PS512".to_owned(),
            public_key: Some("a.pub".into()),
            private_key: Some("a.key".into()),
            ttl: Duration::from_secs(600),
        };
        assert_eq!(all, AuthToken::Jwt(expected));
        assert!(parse("jwt,sign-method").is_err());
        assert!(parse("jwt,ttl=1x").is_err());
        assert!(parse("jwt,ttl=10m,ttl=10m").is_err());
    }
}
