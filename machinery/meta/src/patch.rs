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

/// What is said of a patch that does not fit the object it is for.
const MISFIT: &str = "the server rejected our request due to an error in our request";

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
    /// Words the error as the API answers it. Of a patch that does not fit, upstream says
    /// only that, and clients know the sentence.
    pub fn status(&self) -> Status {
        match self {
            Self::Malformed(text) => Status::bad_request(text.clone()),
            Self::TooManyOperations { .. } => {
                Status::failure(Reason::RequestEntityTooLarge, self.to_string())
            }
            Self::Unprocessable(_) | Self::TestFailed(_) => {
                let mut status = Status::failure(Reason::Invalid, MISFIT);
                status.details_mut();
                status
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What upstream answers, byte by byte.
    #[test]
    fn what_does_not_fit_is_refused_in_one_sentence() {
        for error in [
            PatchError::TestFailed("/spec/replicas".to_owned()),
            PatchError::Unprocessable("path is invalid".to_owned()),
        ] {
            let status = serde_json::to_value(error.status()).unwrap();
            let want = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "the server rejected our request due to an error in our request",
                "reason": "Invalid", "details": {}, "code": 422,
            });
            assert_eq!(status, want, "{error}");
        }
    }
}
