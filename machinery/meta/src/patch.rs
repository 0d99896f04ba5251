//! The three ways in which a client describes a change: a list of operations
//! ([`json`], RFC 6902), a partial document ([`merge`], RFC 7386), and a partial
//! document that knows the type's lists ([`strategic`], Kubernetes' own).
//!
//! A patch is applied to a value that is then checked like an update; nothing
//! here knows a type.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::status::{Reason, Status};

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not of its format.
    #[error("{0}")]
    Malformed(String),
    /// The patch has more operations than allowed.
    #[error("The allowed maximum operations in a JSON patch is {max}, got {got}")]
    TooManyOperations {
        /// How many are allowed.
        max: usize,
        /// How many there are.
        got: usize,
    },
    /// The patch does not fit the object.
    #[error("{0}")]
    Unprocessable(String),
    /// A `test` operation found another value.
    #[error("testing path {0} failed")]
    TestFailed(String),
}

impl PatchError {
    /// Words the error as the API answers it.
    pub fn status(&self) -> Status {
        let message = match self {
            Self::Malformed(_) | Self::TooManyOperations { .. } => self.to_string(),
            Self::Unprocessable(_) | Self::TestFailed(_) => {
                format!("the server rejected our request due to an error in our request: {self}")
            }
        };
        let reason = match self {
            Self::Malformed(_) => Reason::BadRequest,
            Self::TooManyOperations { .. } => Reason::RequestEntityTooLarge,
            Self::Unprocessable(_) | Self::TestFailed(_) => Reason::Invalid,
        };
        Status::failure(reason, message)
    }
}
