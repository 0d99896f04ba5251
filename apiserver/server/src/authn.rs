//! Who asks: the first gate.
//!
//! Four ways to say who one is: a client certificate (common name = user,
//! organizations = groups), a bearer token of the static token file, a token of
//! a service account (`service_tokens`), or being a component of this very
//! process. A websocket may carry its token among its subprotocols: scripts in a
//! browser can set no other header. Whoever says nothing is refused everywhere
//! but at the health endpoints; whoever says something wrong is refused
//! everywhere.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use meta::Status;

/// The group of everybody who proved an identity.
pub const AUTHENTICATED: &str = "system:authenticated";
/// What a websocket's subprotocol begins with that carries a bearer token.
pub(crate) const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// The group of those who may do everything.
pub const MASTERS: &str = "system:masters";

/// A proven identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The user's uid, where the source of the identity has one.
    pub uid: String,
    /// The groups, `system:authenticated` among them.
    pub groups: Vec<String>,
    /// What else the source of the identity knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Creates an authenticated user.
    pub fn new<I>(name: impl Into<String>, groups: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            name: name.into(),
            groups,
            ..Self::default()
        }
    }

    /// Creates the identity of a component that runs inside this process and
    /// needs everything.
    pub fn component(name: &str) -> Self {
        Self::new(name, [MASTERS])
    }

    /// Creates the identity of those who gave none.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Tells whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What the connection says about the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// It showed no certificate.
    Anonymous,
    /// It showed a certificate that is expired, or of no authority we trust.
    BadCertificate,
    /// It holds this certificate.
    Certificate {
        /// Whom the certificate names.
        user: UserInfo,
        /// When the certificate expires, in Unix seconds; a connection may
        /// outlive it.
        not_after: i64,
    },
    /// It is a component of this process.
    InProcess(UserInfo),
}

/// The bearer tokens of a static token file.
#[derive(Clone, Debug, Default)]
pub struct Tokens(BTreeMap<String, UserInfo>);

impl Tokens {
    /// Reads kube-apiserver's format: `token,user,uid[,"group1,group2"]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut columns = line.splitn(4, ',').map(str::trim);
            let (Some(token), Some(name), Some(uid)) =
                (columns.next(), columns.next(), columns.next())
            else {
                return Err(format!("line {}: needs token,user,uid", number + 1));
            };
            if token.is_empty() || name.is_empty() {
                return Err(format!(
                    "line {}: token and user must not be empty",
                    number + 1
                ));
            }
            let groups = columns.next().unwrap_or_default().trim_matches('"');
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
            let user = UserInfo {
                uid: uid.to_owned(),
                ..UserInfo::new(name, groups)
            };
            tokens.insert(token.to_owned(), user);
        }
        Ok(Self(tokens))
    }

    /// Returns whose token it is.
    pub(crate) fn user(&self, token: &str) -> Option<&UserInfo> {
        self.0.get(token)
    }
}

/// Returns the token that a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(bearer_token)
}

/// Decides who asks, but for service accounts. `Ok(None)` is somebody who said
/// nothing.
pub fn authenticate(
    peer: &Peer,
    headers: &HeaderMap,
    tokens: &Tokens,
    now: i64,
) -> Result<Option<UserInfo>, Status> {
    match peer {
        Peer::InProcess(user) => return Ok(Some(user.clone())),
        Peer::Certificate { user, not_after } if *not_after > now => {
            return Ok(Some(user.clone()));
        }
        _ => {}
    }
    if headers.contains_key(AUTHORIZATION) {
        return match bearer(headers).and_then(|t| tokens.user(t)) {
            Some(user) => Ok(Some(user.clone())),
            None => Err(Status::unauthorized()),
        };
    }
    if let Some(token) = subprotocol_token(headers)? {
        let user = tokens.0.get(&token).cloned();
        return user.map(Some).ok_or_else(Status::unauthorized);
    }
    match peer {
        Peer::Anonymous => Ok(None),
        _ => Err(Status::unauthorized()),
    }
}

/// Lists the subprotocols in a header's value.
pub(crate) fn subprotocols(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|p| !p.is_empty())
}

/// Returns the token among a websocket's subprotocols. There must be another
/// subprotocol beside it, since this one is never answered.
fn subprotocol_token(headers: &HeaderMap) -> Result<Option<String>, Status> {
    let upgrades = headers.get(UPGRADE).and_then(|v| v.to_str().ok());
    if !upgrades.is_some_and(|u| u.eq_ignore_ascii_case("websocket")) {
        return Ok(None);
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let all = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(subprotocols);
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        all.partition(|p| p.starts_with(BEARER_PROTOCOL));
    match tokens.as_slice() {
        [] => Ok(None),
        [one] if !others.is_empty() => {
            let encoded = one.strip_prefix(BEARER_PROTOCOL).unwrap_or_default();
            let token = URL_SAFE_NO_PAD.decode(encoded).ok();
            let token = token.and_then(|t| String::from_utf8(t).ok());
            token
                .filter(|t| !t.is_empty())
                .map(Some)
                .ok_or_else(Status::unauthorized)
        }
        _ => Err(Status::unauthorized()),
    }
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(peer: &Peer, authorization: Option<&str>) -> Result<Option<String>, u16> {
        let tokens = Tokens::parse("# file\nsecret,alice,7,\"dev, ops\"\n").unwrap();
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        authenticate(peer, &headers, &tokens, 1000)
            .map(|u| u.map(|u| u.name))
            .map_err(|s| s.code)
    }

    #[test]
    fn identities() {
        let bob = |not_after| Peer::Certificate {
            user: UserInfo::new("bob", ["dev"]),
            not_after,
        };
        assert_eq!(ask(&bob(2000), None), Ok(Some("bob".into())));
        assert_eq!(ask(&bob(999), None), Err(401), "expired while connected");
        assert_eq!(ask(&Peer::BadCertificate, None), Err(401));
        assert_eq!(ask(&Peer::Anonymous, None), Ok(None));
        assert_eq!(
            ask(&Peer::Anonymous, Some("Bearer secret")),
            Ok(Some("alice".into()))
        );
        assert_eq!(
            ask(&Peer::BadCertificate, Some("bearer secret")),
            Ok(Some("alice".into()))
        );
        for bad in ["Bearer wrong", "Basic secret", "secret", ""] {
            assert_eq!(ask(&Peer::Anonymous, Some(bad)), Err(401), "{bad}");
        }
    }

    #[test]
    fn a_websocket_may_carry_its_token_among_its_subprotocols() {
        let tokens = Tokens::parse("secret,alice,7\n").unwrap();
        let ask = |upgrade: &str, protocols: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
            authenticate(&Peer::Anonymous, &headers, &tokens, 1000)
                .map(|u| u.map(|u| u.name))
                .map_err(|s| s.code)
        };
        let token = format!("{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("secret"));
        let both = format!("{token}, v4.channel.k8s.io");
        assert_eq!(ask("websocket", &both), Ok(Some("alice".into())));
        assert_eq!(ask("h2c", &both), Ok(None), "not a websocket");
        assert_eq!(ask("websocket", "v4.channel.k8s.io"), Ok(None));
        assert_eq!(ask("websocket", &token), Err(401), "nothing else to speak");
        assert_eq!(ask("websocket", &format!("{both}, {token}")), Err(401));
        let wrong = format!("{BEARER_PROTOCOL}%%, v4.channel.k8s.io");
        assert_eq!(ask("websocket", &wrong), Err(401));
    }

    #[test]
    fn token_files() {
        let tokens = Tokens::parse("t,u,1,\"a,b\"\n").unwrap();
        assert_eq!(tokens.0["t"].groups, ["a", "b", AUTHENTICATED]);
        assert!(Tokens::parse("t,u").is_err());
        assert!(Tokens::parse(",u,1").is_err());
    }
}
