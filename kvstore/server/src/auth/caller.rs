//! What a request shows of its sender.

use std::{fmt, sync::Arc};

use http::Extensions;
use tonic::{Request, metadata::MetadataMap};

use crate::handle::Handle;

/// Metadata that carries a token: what gRPC clients send, and what comes over HTTP
/// (etcd: rpctypes/metadatafields.go).
const TOKEN_FIELDS: [&str; 2] = ["token", "authorization"];

/// The certificate a client showed in its TLS handshake, as far as it names a user.
/// The connection puts it into each request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject's common name; the user under `--client-cert-auth`.
    pub common_name: Arc<str>,
}

/// Who calls.
#[derive(Clone, Debug, Default)]
pub(crate) enum Caller {
    /// This process: what embeds the member, and the member itself. Never checked.
    #[default]
    Internal,
    /// A client, known by what it shows.
    Client(Credentials),
}

/// What a client shows. It is looked up at each call, because a token may end, and
/// authentication begin, while a stream is open.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    /// The token, without a scheme before it.
    pub(crate) token: Option<Arc<str>>,
    /// The common name of the certificate.
    pub(crate) common_name: Option<Arc<str>>,
}

impl fmt::Debug for Credentials {
    /// Keeps tokens out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("token", &self.token.is_some())
            .field("common_name", &self.common_name)
            .finish()
    }
}

impl Caller {
    /// Reads who calls from a request's metadata and extensions.
    pub(crate) fn of(metadata: &MetadataMap, extensions: &Extensions) -> Self {
        let token = shown_token(|field| metadata.as_ref().get(field));
        let common_name = extensions
            .get::<PeerCertificate>()
            .map(|peer| Arc::clone(&peer.common_name));
        Self::Client(Credentials { token, common_name })
    }
}

/// Finds the token among the headers of a request.
pub(crate) fn shown_token<'a>(
    header: impl Fn(&'static str) -> Option<&'a http::HeaderValue>,
) -> Option<Arc<str>> {
    let value = TOKEN_FIELDS.into_iter().find_map(header)?;
    // What is not text is no token anybody was given.
    Some(Arc::from(bearer(value.to_str().unwrap_or_default())))
}

/// Takes the scheme off (etcd 3.7: "Bearer " is accepted before a token).
fn bearer(value: &str) -> &str {
    value.strip_prefix("Bearer ").unwrap_or(value)
}

impl Handle {
    /// Returns the same way in, for whoever sent a request: every call on it is
    /// checked and logged as theirs.
    pub(crate) fn for_caller<T>(&self, request: &Request<T>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            caller: Caller::of(request.metadata(), request.extensions()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &'static str)]) -> Credentials {
        let mut request = Request::new(());
        for (field, value) in fields {
            request
                .metadata_mut()
                .insert(*field, value.parse().unwrap());
        }
        match Caller::of(request.metadata(), request.extensions()) {
            Caller::Client(credentials) => credentials,
            Caller::Internal => panic!("a request is never internal"),
        }
    }

    #[test]
    fn a_token_comes_in_either_field() {
        assert_eq!(of(&[]).token, None);
        assert_eq!(of(&[("token", "abc.1")]).token.as_deref(), Some("abc.1"));
        assert_eq!(
            of(&[("authorization", "abc.1")]).token.as_deref(),
            Some("abc.1")
        );
        assert_eq!(
            of(&[("authorization", "Bearer abc.1")]).token.as_deref(),
            Some("abc.1")
        );
        let both = of(&[("authorization", "late"), ("token", "first")]);
        assert_eq!(both.token.as_deref(), Some("first"));
    }

    #[test]
    fn a_token_is_not_printed() {
        let shown = format!("{:?}", of(&[("token", "secret.7")]));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
