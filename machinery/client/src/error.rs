//! Errors of the client, by what the caller can do about them.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use meta::{Reason, Status};

/// Is any error a body, a connection or a service may end with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Is what every request of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says why a request to the API server did not give the wanted answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a `Status` that is not success.
    #[error("{}", .0.message)]
    Api(Box<Status>),
    /// No answer, or only part of one, came back.
    #[error("request to the api server failed: {0}")]
    Transport(#[source] BoxError),
    /// An answer came back that is not what the type expects.
    #[error("cannot decode the api server's answer: {0}")]
    Decode(#[source] serde_json::Error),
    /// The object to send cannot be written as JSON.
    #[error("cannot encode the request body: {0}")]
    Encode(#[source] serde_json::Error),
    /// The request could not be formed, for instance from a name with a slash.
    #[error("invalid request: {0}")]
    Request(String),
    /// The configuration (kubeconfig, certificates, server URL) is unusable.
    #[error("invalid client configuration: {0}")]
    Config(String),
}

impl Error {
    /// Returns the server's status, if the server answered.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the HTTP code of the server's status, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|s| s.code)
    }

    /// Tells whether the server answered with this `reason`.
    pub fn is_reason(&self, reason: Reason) -> bool {
        self.status().is_some_and(|s| s.reason == reason)
    }

    /// Tells whether the object, or the resource, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is_reason(Reason::NotFound) || self.code() == Some(404)
    }

    /// Tells whether a create met an object of the same name.
    pub fn is_already_exists(&self) -> bool {
        self.is_reason(Reason::AlreadyExists)
    }

    /// Tells whether a write lost a race or a precondition did not hold.
    pub fn is_conflict(&self) -> bool {
        self.is_reason(Reason::Conflict)
    }

    /// Tells whether the resource version asked for is no longer kept.
    ///
    /// Counts both reasons the server uses with code 410, as the reflector must.
    pub fn is_expired(&self) -> bool {
        self.is_reason(Reason::Expired) || self.is_reason(Reason::Gone) || self.code() == Some(410)
    }

    /// Tells whether the server does not yet know the resource version asked for.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.has_cause("ResourceVersionTooLarge")
            || self
                .status()
                .is_some_and(|s| s.message.contains("Too large resource version"))
    }

    /// Tells whether a create was refused because its namespace is going away.
    pub fn is_namespace_terminating(&self) -> bool {
        self.has_cause("NamespaceTerminating")
    }

    /// Tells whether the server asks to slow down.
    pub fn is_too_many_requests(&self) -> bool {
        self.is_reason(Reason::TooManyRequests) || self.code() == Some(429)
    }

    /// Tells whether the object did not pass validation.
    pub fn is_invalid(&self) -> bool {
        self.is_reason(Reason::Invalid)
    }

    /// Tells whether access was denied.
    pub fn is_forbidden(&self) -> bool {
        self.is_reason(Reason::Forbidden)
    }

    /// Tells whether the server failed inside.
    pub fn is_internal(&self) -> bool {
        self.is_reason(Reason::InternalError)
    }

    /// Tells whether the server, or a part behind it, did not answer in time.
    pub fn is_timeout(&self) -> bool {
        self.is_reason(Reason::Timeout) || self.is_reason(Reason::ServerTimeout)
    }

    /// Tells whether nothing listens at the server's address (yet).
    pub fn is_connection_refused(&self) -> bool {
        let Error::Transport(source) = self else {
            return false;
        };
        let mut next: Option<&(dyn StdError + 'static)> = Some(source.as_ref());
        while let Some(error) = next {
            if let Some(io) = error.downcast_ref::<io::Error>()
                && io.kind() == io::ErrorKind::ConnectionRefused
            {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// Returns how long the server asks to wait before trying again.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    fn has_cause(&self, reason: &str) -> bool {
        self.status().is_some_and(|s| s.has_cause(reason))
    }
}
