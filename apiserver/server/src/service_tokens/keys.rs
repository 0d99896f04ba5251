//! The keys of service account tokens: one that signs, and all that are
//! believed, by the id that upstream derives from the public key.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeysError {
    /// The text holds no key that is understood.
    #[error("no private key in PKCS #8 or PKCS #1 form of RSA or of the curves P-256 and P-384")]
    Signing,
    /// The public half of the signing key has to be given.
    #[error("its public key has to be given too")]
    PublicMissing,
    /// The text holds no public key that is understood.
    #[error("no public key or certificate of RSA or of the curves P-256 and P-384")]
    Checking,
    /// No key that is believed fits the one that signs.
    #[error("none of the public keys belongs to the signing key")]
    Pair,
}

/// The key that signs.
pub(crate) struct Signing {
    pub(crate) key: EncodingKey,
    pub(crate) algorithm: Algorithm,
    pub(crate) id: String,
}

/// A key that is believed.
pub(crate) struct Checking {
    pub(crate) key: DecodingKey,
    pub(crate) algorithm: Algorithm,
    id: String,
    /// The key as OpenID publishes it.
    jwk: Value,
}

/// All keys.
pub(crate) struct Keys {
    signing: Signing,
    checking: Vec<Checking>,
}

impl Keys {
    /// Reads the private key that signs, and public keys, certificates or
    /// private keys whose tokens are believed. Without those, the signing key's
    /// own are.
    pub(crate) fn of_pems(signing: &str, checking: &[String]) -> Result<Self, KeysError> {
        let mut believed = Vec::new();
        for text in checking {
            let found = public_keys(text);
            if found.is_empty() {
                return Err(KeysError::Checking);
            }
            believed.extend(found);
        }
        let own = public_keys(signing);
        if checking.is_empty() {
            if own.is_empty() {
                let readable = private_keys(signing).next().is_some();
                return Err(match readable {
                    true => KeysError::PublicMissing,
                    false => KeysError::Signing,
                });
            }
            believed.extend(public_keys(signing));
        }
        let (key, algorithm) = pick(signing, &own, &believed)?;
        let id = fitting(&key, algorithm, &believed).ok_or(KeysError::Pair)?;
        Ok(Self {
            signing: Signing { key, algorithm, id },
            checking: believed,
        })
    }

    /// Returns the key that signs.
    pub(crate) fn signing(&self) -> &Signing {
        &self.signing
    }

    /// Returns all keys that are believed, as OpenID publishes them.
    pub(crate) fn published(&self) -> Vec<Value> {
        self.checking.iter().map(|key| key.jwk.clone()).collect()
    }

    /// Returns the algorithms of the keys that are believed, each once.
    pub(crate) fn algorithms(&self) -> BTreeSet<String> {
        let names = self.checking.iter().map(|k| format!("{:?}", k.algorithm));
        names.collect()
    }

    /// Returns the keys that a token may be signed with: the one it names, or
    /// all.
    pub(crate) fn checking<'a>(
        &'a self,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Checking> {
        let known = id.is_some_and(|id| self.checking.iter().any(|k| k.id == id));
        self.checking
            .iter()
            .filter(move |k| !known || Some(k.id.as_str()) == id)
    }
}

/// Reads the forms a private key may have; the curve is not told apart yet.
fn private_keys(pem: &str) -> impl Iterator<Item = (EncodingKey, &'static [Algorithm])> {
    let ec: &'static [Algorithm] = &[Algorithm::ES256, Algorithm::ES384];
    let rsa: &'static [Algorithm] = &[Algorithm::RS256];
    let ec = EncodingKey::from_ec_pem(pem.as_bytes()).map(|k| (k, ec));
    let rsa = EncodingKey::from_rsa_pem(pem.as_bytes()).map(|k| (k, rsa));
    [ec, rsa].into_iter().filter_map(Result::ok)
}

/// Chooses the algorithm of the signing key: the one with which it signs what
/// one of the public keys believes.
fn pick(
    pem: &str,
    own: &[Checking],
    believed: &[Checking],
) -> Result<(EncodingKey, Algorithm), KeysError> {
    let mut read = false;
    for (key, algorithms) in private_keys(pem) {
        read = true;
        for algorithm in algorithms {
            let plausible = own.is_empty() || own.iter().any(|k| k.algorithm == *algorithm);
            if plausible && fitting(&key, *algorithm, believed).is_some() {
                return Ok((key, *algorithm));
            }
        }
    }
    Err(match read {
        true => KeysError::Pair,
        false => KeysError::Signing,
    })
}

/// Returns the id of the public key that belongs to a private one.
fn fitting(key: &EncodingKey, algorithm: Algorithm, believed: &[Checking]) -> Option<String> {
    const PROBE: &[u8] = b"probe";
    let signature = jsonwebtoken::crypto::sign(PROBE, key, algorithm).ok()?;
    let fits = |k: &&Checking| {
        k.algorithm == algorithm
            && jsonwebtoken::crypto::verify(&signature, PROBE, &k.key, algorithm).unwrap_or(false)
    };
    believed.iter().find(fits).map(|k| k.id.clone())
}

/// Reads every public key of a text: bare, of a certificate, or of a private
/// key in PKCS #8 form.
fn public_keys(text: &str) -> Vec<Checking> {
    let mut found = Vec::new();
    for pem in Pem::iter_from_buffer(text.as_bytes()).map_while(Result::ok) {
        let der = match pem.label.as_str() {
            "PUBLIC KEY" => Some(pem.contents.clone()),
            "CERTIFICATE" => X509Certificate::from_der(&pem.contents)
                .ok()
                .map(|(_, cert)| cert.public_key().raw.to_vec()),
            "PRIVATE KEY" => rcgen::KeyPair::try_from(pem.contents.as_slice())
                .ok()
                .map(|pair| rcgen::PublicKeyData::subject_public_key_info(&pair)),
            _ => None,
        };
        found.extend(der.and_then(|der| public_key(&der)));
    }
    found
}

fn public_key(der: &[u8]) -> Option<Checking> {
    const RSA: &str = "1.2.840.113549.1.1.1";
    const EC: &str = "1.2.840.10045.2.1";
    let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
    let curve = info.algorithm.parameters.as_ref();
    let curve = curve
        .and_then(|p| p.as_oid().ok())
        .map(|o| o.to_id_string());
    let algorithm = match (
        info.algorithm.algorithm.to_id_string().as_str(),
        curve.as_deref(),
    ) {
        (RSA, _) => Algorithm::RS256,
        (EC, Some("1.2.840.10045.3.1.7")) => Algorithm::ES256,
        (EC, Some("1.3.132.0.34")) => Algorithm::ES384,
        _ => return None,
    };
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    );
    let key = match algorithm {
        Algorithm::RS256 => DecodingKey::from_rsa_pem(pem.as_bytes()),
        _ => DecodingKey::from_ec_pem(pem.as_bytes()),
    };
    let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
    Some(Checking {
        key: key.ok()?,
        algorithm,
        jwk: published(&info, algorithm, &id)?,
        id,
    })
}

fn published(info: &SubjectPublicKeyInfo<'_>, algorithm: Algorithm, id: &str) -> Option<Value> {
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|b| **b == 0).count();
        URL_SAFE_NO_PAD.encode(&bytes[zeros..])
    };
    let mut key = match info.parsed().ok()? {
        PublicKey::RSA(rsa) => json!({
            "kty": "RSA", "n": number(rsa.modulus), "e": number(rsa.exponent),
        }),
        PublicKey::EC(point) => {
            // Uncompressed: a four, then both coordinates.
            let both = point.data().strip_prefix(&[4])?;
            let (x, y) = both.split_at(both.len() / 2);
            let curve = match algorithm {
                Algorithm::ES384 => "P-384",
                _ => "P-256",
            };
            json!({
                "kty": "EC", "crv": curve,
                "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
            })
        }
        _ => return None,
    };
    key["use"] = json!("sig");
    key["kid"] = json!(id);
    key["alg"] = json!(format!("{algorithm:?}"));
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        (key.serialize_pem(), key.public_key_pem())
    }

    #[test]
    fn keys_of_both_curves_are_told_apart() {
        for (curve, algorithm) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384),
        ] {
            let (private, public) = pair(curve);
            for checking in [vec![], vec![public.clone()], vec![private.clone()]] {
                let keys = Keys::of_pems(&private, &checking).ok().unwrap();
                assert_eq!(keys.signing().algorithm, algorithm);
                assert_eq!(keys.checking(Some(&keys.signing().id)).count(), 1);
                let published = keys.published();
                assert_eq!(published[0]["kid"], keys.signing().id);
                assert_eq!(published[0]["alg"], format!("{algorithm:?}"));
            }
        }
    }

    #[test]
    fn a_certificate_names_a_key_too() {
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = rcgen::CertificateParams::default()
            .self_signed(&key)
            .unwrap();
        assert!(Keys::of_pems(&key.serialize_pem(), &[cert.pem()]).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (private, _) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (_, other) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (_, edwards) = pair(&rcgen::PKCS_ED25519);
        let why = |signing: &str, checking: &[String]| Keys::of_pems(signing, checking).err();
        assert_eq!(why(&private, &[other]), Some(KeysError::Pair));
        assert_eq!(why(&private, &[edwards]), Some(KeysError::Checking));
        assert_eq!(why("", &[]), Some(KeysError::Signing));
        assert_eq!(why("x", &["y".to_owned()]), Some(KeysError::Checking));
    }
}
