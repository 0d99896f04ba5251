//! The token that says where a paged list goes on.
//!
//! The form is apiserver's own (`storage/continue.go`): base64url without
//! padding over `{"v":"meta.k8s.io/v1","rv":N,"start":"ns/name\u0000"}`, the
//! start relative to the list's prefix. Revision −1 means "at the newest".

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meta::Status;
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";
/// Longer tokens cannot be ours: a key has at most two names of 253 characters.
const TOKEN_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Continuation {
    v: String,
    rv: i64,
    start: String,
}

impl Continuation {
    /// Creates the token that goes on after `last` at a revision; `None` for
    /// the newest.
    pub(super) fn after(last: &str, revision: Option<u64>) -> Self {
        Self::from(format!("{last}\0"), revision)
    }

    /// Creates the token that goes on with `start`.
    pub(super) fn from(start: String, revision: Option<u64>) -> Self {
        Self {
            v: VERSION.to_owned(),
            rv: revision.map_or(-1, |r| i64::try_from(r).unwrap_or(i64::MAX)),
            start,
        }
    }

    pub(super) fn encode(&self) -> String {
        let json = serde_json::to_vec(self).expect("strings and a number always encode");
        URL_SAFE_NO_PAD.encode(json)
    }

    pub(super) fn decode(token: &str) -> Result<Self, Status> {
        let refuse = |why: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refuse("too long"));
        }
        // Clients that pad are forgiven.
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|e| refuse(&e.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|e| refuse(&e.to_string()))?;
        if token.v != VERSION {
            return Err(refuse(&format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.rv == 0 || token.rv < -1 {
            return Err(refuse(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        // A start that climbs out of the list's prefix would read another kind.
        let climbs = token
            .start
            .split('/')
            .any(|part| matches!(part, "." | ".."));
        if token.start.is_empty() {
            return Err(refuse("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if token.start.starts_with('/') || climbs {
            return Err(refuse(&token.start));
        }
        Ok(token)
    }

    /// Returns the revision to read at; `None` for the newest.
    pub(super) fn revision(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }

    pub(super) fn start(&self) -> &str {
        &self.start
    }
}

/// Tells whether a list can go on with a token, as far as that says itself; an empty
/// one is none.
pub(crate) fn check(token: &str) -> Result<(), Status> {
    match token {
        "" => Ok(()),
        token => Continuation::decode(token).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses() {
        for revision in [Some(7), None] {
            let token = Continuation::after("ns/a", revision);
            let back = Continuation::decode(&token.encode()).unwrap();
            assert_eq!(back, token);
            assert_eq!(back.revision(), revision);
            assert_eq!(back.start(), "ns/a\0");
        }
        let of = |json: &str| Continuation::decode(&URL_SAFE_NO_PAD.encode(json));
        assert!(of(r#"{"v":"meta.k8s.io/v1","rv":4,"start":"a"}"#).is_ok());
        for bad in [
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":4,"start":""}"#,
            r#"{"v":"meta.k8s.io/v1","rv":4,"start":"../secrets/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":4,"start":"/a"}"#,
            r#"{"v":"v2","rv":4,"start":"a"}"#,
            "{}",
        ] {
            assert_eq!(of(bad).unwrap_err().code, 400, "{bad}");
        }
        assert_eq!(Continuation::decode("garbage!").unwrap_err().code, 400);
    }
}
