//! Signed tokens (etcd: `server/auth/jwt.go`): who and as of which auth revision,
//! signed, so that no member need remember them.
//!
//! Because the revision is in the token, every change of users or roles makes all
//! older ones "old", and their clients authenticate again.

use std::{
    fmt, fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, jwk::Jwk,
};
use mvcc::Identity;
use serde::{Deserialize, Serialize};

use super::options::JwtOptions;

/// What is signed to see whether two keys are a pair.
const PROBE_USER: &str = "probe";

/// Signs tokens and checks them.
pub(crate) struct Jwt {
    algorithm: Algorithm,
    /// Without it tokens are only checked.
    signing: Option<EncodingKey>,
    checking: DecodingKey,
    validation: Validation,
    ttl: Duration,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// What a token says when it is made.
#[derive(Serialize)]
struct Said<'a> {
    username: &'a str,
    revision: u64,
    exp: u64,
}

/// What is read of a token; Go writes all numbers alike.
#[derive(Deserialize)]
struct Read {
    username: String,
    revision: f64,
}

impl Jwt {
    /// Loads the keys; an error says what is wrong with the flag.
    pub(crate) fn load(options: &JwtOptions) -> Result<Self, String> {
        let algorithm: Algorithm = options.sign_method.parse().map_err(|_unknown| {
            format!(
                "sign-method {:?} is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, \
                 ES384, HS256, HS384, HS512 and EdDSA",
                options.sign_method
            )
        })?;
        let private = options.private_key.as_deref().map(read).transpose()?;
        let public = options.public_key.as_deref().map(read).transpose()?;
        let (signing, checking) = keys(algorithm, private.as_deref(), public.as_deref())?;
        let mut validation = Validation::new(algorithm);
        // As Go's library has it: what is there must hold, to the second.
        validation.required_spec_claims.clear();
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.validate_aud = false;
        let jwt = Self {
            algorithm,
            signing,
            checking,
            validation,
            ttl: options.ttl,
        };
        if jwt.signing.is_some() {
            let probe = jwt.sign(PROBE_USER, 1)?;
            // A token that ended at once says nothing about the keys.
            if jwt.ttl >= Duration::from_secs(1) && jwt.verify(&probe).is_none() {
                return Err("public and private keys don't match".to_owned());
            }
        }
        Ok(jwt)
    }

    /// Makes a token.
    pub(crate) fn sign(&self, user: &str, revision: u64) -> Result<String, String> {
        let Some(key) = &self.signing else {
            return Err("token signing attempted with verify-only key".to_owned());
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let said = Said {
            username: user,
            revision,
            exp: (now + self.ttl).as_secs(),
        };
        encode(&Header::new(self.algorithm), &said, key).map_err(|error| error.to_string())
    }

    /// Says who a token is for; none if it is not ours or has ended.
    pub(crate) fn verify(&self, token: &str) -> Option<Identity> {
        match decode::<Read>(token, &self.checking, &self.validation) {
            Ok(read) => Some(Identity::new(
                read.claims.username,
                // A claim below zero or of a fraction is cut, as by Go.
                read.claims.revision as u64,
            )),
            Err(error) => {
                tracing::debug!(%error, "a signed token was refused");
                None
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes the keys of what was read. Without a public key it is made of the private.
fn keys(
    algorithm: Algorithm,
    private: Option<&[u8]>,
    public: Option<&[u8]>,
) -> Result<(Option<EncodingKey>, DecodingKey), String> {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512};
    let private_error = |error| format!("priv-key: {error}");
    if matches!(algorithm, HS256 | HS384 | HS512) {
        let secret = private.filter(|secret| !secret.is_empty());
        let secret = secret.ok_or("missing key data: give priv-key")?;
        let (signing, checking) = (
            EncodingKey::from_secret(secret),
            DecodingKey::from_secret(secret),
        );
        return Ok((Some(signing), checking));
    }
    let signing = private.map(|pem| match algorithm {
        EdDSA => EncodingKey::from_ed_pem(pem),
        ES256 | ES384 => EncodingKey::from_ec_pem(pem),
        _ => EncodingKey::from_rsa_pem(pem),
    });
    let signing = signing.transpose().map_err(private_error)?;
    let checking = public.map(|pem| match algorithm {
        EdDSA => DecodingKey::from_ed_pem(pem),
        ES256 | ES384 => DecodingKey::from_ec_pem(pem),
        _ => DecodingKey::from_rsa_pem(pem),
    });
    let checking = match checking.transpose() {
        Ok(Some(checking)) => checking,
        Err(error) => return Err(format!("pub-key: {error}")),
        Ok(None) => match (&signing, private) {
            (Some(_), Some(pem)) if algorithm == EdDSA => ed_public(pem)?,
            (Some(signing), _) => Jwk::from_encoding_key(signing, algorithm)
                .and_then(|jwk| DecodingKey::from_jwk(&jwk))
                .map_err(private_error)?,
            (None, _) => return Err("missing key data: give priv-key or pub-key".to_owned()),
        },
    };
    Ok((signing, checking))
}

/// Makes the public key of an Ed25519 one, which `jsonwebtoken` does not.
fn ed_public(pem: &[u8]) -> Result<DecodingKey, String> {
    use ed25519_dalek::pkcs8::DecodePrivateKey as _;
    let text = std::str::from_utf8(pem).map_err(|error| format!("priv-key: {error}"))?;
    let key = ed25519_dalek::SigningKey::from_pkcs8_pem(text)
        .map_err(|error| format!("priv-key: {error}"))?;
    Ok(DecodingKey::from_ed_der(key.verifying_key().as_bytes()))
}
