//! Tokens of service accounts: signed here, and believed while the account and
//! what they are bound to exist.
//!
//! [`ServiceTokens`] knows keys and claims and nothing else; [`identify`] adds
//! what the store says. The claims are upstream's (`pkg/serviceaccount`), so
//! that tokens of either server are understood by the other, given the keys.

mod keys;

use std::collections::BTreeMap;

use jsonwebtoken::{Header, Validation, decode, decode_header, encode};
use meta::{Object, Reason, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::keys::Keys;
use crate::api::Api;
use crate::authn::UserInfo;
use crate::storage::ReadVersion;

/// By how much clocks may differ, and for how long after its deletion began an
/// object still counts, in seconds.
const LEEWAY: u64 = 60;
/// Begins the name of every service account's user.
pub(crate) const USER_PREFIX: &str = "system:serviceaccount:";
/// Where the keys that are believed can be read.
const JWKS_PATH: &str = "openid/v1/jwks";
/// The group of all service accounts; those of a namespace are in one that is
/// named after it.
pub(crate) const GROUP: &str = "system:serviceaccounts";

/// Names an object, and which one of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// The name.
    #[serde(default)]
    pub(crate) name: String,
    /// The uid.
    #[serde(default)]
    pub(crate) uid: String,
}

impl Reference {
    /// Refers to an object.
    pub(crate) fn to(object: &Object) -> Self {
        Self {
            name: object.meta.name.clone(),
            uid: object.meta.uid.clone(),
        }
    }
}

/// Whom a token is for, and with what it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    /// The account's namespace.
    #[serde(default)]
    pub(crate) namespace: String,
    /// The account.
    pub(crate) serviceaccount: Reference,
    /// The pod it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    /// The secret it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    /// The node it is bound to, or where its pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    /// From when on its use is noted, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// One audience or many: JWT allows both forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    aud: Option<Audience>,
    exp: i64,
    iat: i64,
    iss: String,
    #[serde(default)]
    jti: String,
    nbf: i64,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Binding,
}

/// Signs and checks.
pub(crate) struct ServiceTokens {
    keys: Keys,
    issuers: Vec<String>,
    audiences: Vec<String>,
}

impl std::fmt::Debug for ServiceTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServiceTokens({:?})", self.issuers)
    }
}

/// A token that is ours and has not ended.
pub(crate) struct Checked {
    claims: Claims,
    /// Whom it may be shown to.
    audiences: Vec<String>,
}

impl ServiceTokens {
    /// Puts keys to use. The first issuer is the one that new tokens name.
    pub(crate) fn new(keys: Keys, issuers: Vec<String>, audiences: Vec<String>) -> Self {
        Self {
            keys,
            issuers,
            audiences,
        }
    }

    /// Returns what OpenID calls the provider's configuration.
    pub(crate) fn configuration(&self) -> Value {
        let issuer = self.issuers.first().map_or("", String::as_str);
        json!({
            "issuer": issuer,
            "jwks_uri": format!("{}/{}", issuer.trim_end_matches('/'), JWKS_PATH),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.keys.algorithms(),
        })
    }

    /// Returns the keys that others need to check tokens.
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": self.keys.published()})
    }

    /// Returns the audiences of this API, which tokens have that ask for none.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Signs a token that is good from now until then, in Unix seconds.
    pub(crate) fn sign(
        &self,
        binding: Binding,
        audiences: &[String],
        now: i64,
        until: i64,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        let claims = Claims {
            aud: Some(Audience::Many(audiences.to_vec())),
            exp: until,
            iat: now,
            iss: self.issuers.first().cloned().unwrap_or_default(),
            jti: uuid::Uuid::new_v4().to_string(),
            nbf: now,
            sub: format!(
                "{USER_PREFIX}{}:{}",
                binding.namespace, binding.serviceaccount.name
            ),
            kubernetes: binding,
        };
        let signing = self.keys.signing();
        let mut header = Header::new(signing.algorithm);
        header.typ = None;
        header.kid = Some(signing.id.clone());
        encode(&header, &claims, &signing.key)
    }

    /// Checks signature, issuer and time.
    pub(crate) fn check(&self, token: &str) -> Result<Checked, String> {
        const INVALID: &str = "invalid bearer token";
        let header = decode_header(token).map_err(|_malformed| INVALID.to_owned())?;
        let mut said = INVALID.to_owned();
        for key in self.keys.checking(header.kid.as_deref()) {
            if key.algorithm != header.alg {
                continue;
            }
            let mut validation = Validation::new(key.algorithm);
            validation.leeway = LEEWAY;
            validation.validate_nbf = true;
            validation.validate_aud = false;
            validation.set_issuer(&self.issuers);
            match decode::<Claims>(token, &key.key, &validation) {
                Ok(found) => {
                    let claims = found.claims;
                    let audiences = match claims.aud.clone() {
                        None => self.issuers.clone(),
                        Some(Audience::One(one)) => vec![one],
                        Some(Audience::Many(many)) => many,
                    };
                    return Ok(Checked { claims, audiences });
                }
                Err(error) => {
                    use jsonwebtoken::errors::ErrorKind;
                    match error.kind() {
                        ErrorKind::ExpiredSignature => {
                            said = "service account token has expired".to_owned();
                        }
                        ErrorKind::ImmatureSignature => {
                            said = "service account token is not valid yet".to_owned();
                        }
                        _ => {}
                    }
                }
            }
        }
        Err(said)
    }
}

/// Says who holds a token, and to which of the wanted audiences it may be
/// shown; the reason is for the one who asks for a review.
pub(crate) async fn identify(
    api: &Api,
    token: &str,
    wanted: &[String],
) -> Result<(UserInfo, Vec<String>), String> {
    let checked = api.service_tokens.check(token)?;
    let shared: Vec<String> = wanted
        .iter()
        .filter(|w| checked.audiences.contains(w))
        .cloned()
        .collect();
    if shared.is_empty() {
        return Err(format!(
            "token audiences {:?} is invalid for the target audiences {wanted:?}",
            checked.audiences
        ));
    }
    let binding = &checked.claims.kubernetes;
    let namespace = binding.namespace.as_str();
    still_there(
        api,
        "serviceaccounts",
        Some(namespace),
        &binding.serviceaccount,
    )
    .await?;
    for (plural, bound) in [("pods", &binding.pod), ("secrets", &binding.secret)] {
        if let Some(bound) = bound {
            still_there(api, plural, Some(namespace), bound).await?;
        }
    }
    if let (Some(node), None) = (&binding.node, &binding.pod) {
        still_there(api, "nodes", None, node).await?;
    }
    Ok((user(&checked.claims), shared))
}

/// Returns the groups of a service account's user; none for other users.
pub(crate) fn groups_of(user: &str) -> Vec<String> {
    let account = user.strip_prefix(USER_PREFIX);
    match account.and_then(|account| account.split_once(':')) {
        Some((namespace, _)) => vec![GROUP.to_owned(), format!("{GROUP}:{namespace}")],
        None => Vec::new(),
    }
}

fn user(claims: &Claims) -> UserInfo {
    let binding = &claims.kubernetes;
    let account = &binding.serviceaccount;
    let namespace = &binding.namespace;
    let mut extra = BTreeMap::new();
    if !claims.jti.is_empty() {
        extra.insert("credential-id", format!("JTI={}", claims.jti));
    }
    for (kind, bound) in [("node", &binding.node), ("pod", &binding.pod)] {
        if let Some(bound) = bound {
            let (name, uid) = match kind {
                "node" => ("node-name", "node-uid"),
                _ => ("pod-name", "pod-uid"),
            };
            extra.insert(name, bound.name.clone());
            extra.insert(uid, bound.uid.clone());
        }
    }
    let name = format!("{USER_PREFIX}{namespace}:{}", account.name);
    let groups = groups_of(&name);
    UserInfo {
        uid: account.uid.clone(),
        extra: extra
            .into_iter()
            .map(|(key, text)| (format!("authentication.kubernetes.io/{key}"), vec![text]))
            .collect(),
        ..UserInfo::new(name, groups)
    }
}

/// Checks that an object exists, and is the one that was meant. Looks at the
/// cache first, which may not know yet what was just created.
async fn still_there(
    api: &Api,
    plural: &'static str,
    namespace: Option<&str>,
    wanted: &Reference,
) -> Result<(), String> {
    let store = api.core(plural).map_err(|s| s.message)?.store.clone();
    let mut found = store.get(namespace, &wanted.name, ReadVersion::Any).await;
    let other = |o: &Object| o.meta.uid != wanted.uid;
    if found.as_ref().map_or_else(is_missing, |o| other(o)) {
        found = store.get(namespace, &wanted.name, ReadVersion::Unset).await;
    }
    let gone = || match plural {
        "serviceaccounts" => format!(
            "service account {}/{} has been deleted",
            namespace.unwrap_or_default(),
            wanted.name
        ),
        _ => "service account token has been invalidated".to_owned(),
    };
    let object = found.map_err(|status| match is_missing(&status) {
        true => gone(),
        false => status.message,
    })?;
    let ended = object
        .meta
        .deletion_timestamp
        .as_deref()
        .and_then(meta::time::parse)
        .is_some_and(|at| at.as_second() + LEEWAY.cast_signed() < now());
    if other(&object) || ended {
        return Err(gone());
    }
    Ok(())
}

fn is_missing(status: &Status) -> bool {
    status.reason == Reason::NotFound
}

/// Returns the time in Unix seconds.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(issuer: &str) -> ServiceTokens {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = Keys::of_pems(&pem, &[]).unwrap();
        ServiceTokens::new(keys, vec![issuer.to_owned()], vec!["api".to_owned()])
    }

    fn binding() -> Binding {
        Binding {
            namespace: "ns".to_owned(),
            serviceaccount: Reference {
                name: "sa".to_owned(),
                uid: "1".to_owned(),
            },
            pod: Some(Reference {
                name: "p".to_owned(),
                uid: "2".to_owned(),
            }),
            ..Binding::default()
        }
    }

    #[test]
    fn what_was_signed_is_believed_until_it_ends() {
        let tokens = tokens("https://a");
        let now = now();
        let sign = |from, until| {
            tokens
                .sign(binding(), &["x".to_owned()], from, until)
                .unwrap()
        };
        let checked = tokens.check(&sign(now, now + 600)).ok().unwrap();
        assert_eq!(checked.claims.sub, "system:serviceaccount:ns:sa");
        assert_eq!(checked.claims.kubernetes, binding());
        assert_eq!(checked.audiences, ["x"]);
        let user = user(&checked.claims);
        assert_eq!(
            user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated"
            ]
        );
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
        for (token, words) in [
            (sign(now - 900, now - 300), "has expired"),
            (sign(now + 300, now + 900), "not valid yet"),
            ("a.b.c".to_owned(), "invalid bearer token"),
            ("nonsense".to_owned(), "invalid bearer token"),
        ] {
            let said = tokens.check(&token).err().unwrap();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn others_are_not_believed() {
        let (ours, theirs) = (tokens("https://a"), tokens("https://a"));
        let now = now();
        let token = theirs.sign(binding(), &[], now, now + 600).unwrap();
        assert_eq!(ours.check(&token).err().unwrap(), "invalid bearer token");
        let mut parts: Vec<&str> = token.split('.').collect();
        let signature = parts.pop().unwrap().to_owned();
        let payload = parts[1].replace(['a', 'b'], "c");
        let forged = format!("{}.{payload}.{signature}", parts[0]);
        assert!(theirs.check(&forged).is_err());
        let moved = ServiceTokens {
            issuers: vec!["https://b".to_owned()],
            ..theirs
        };
        assert!(moved.check(&token).is_err());
    }
}
