//! An error as it crosses the wire.

use thiserror::Error;
use tonic::{Code, Status};

/// An answer that is an error, as gRPC would carry it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct RpcError {
    /// The gRPC status code.
    pub code: u32,
    /// etcd's message for it.
    pub message: String,
}

impl From<mvcc::Error> for RpcError {
    fn from(error: mvcc::Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

/// What a peer has answered, to be passed on.
impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        Self {
            code: u32::try_from(i32::from(status.code())).unwrap_or(2),
            message: status.message().to_owned(),
        }
    }
}

impl From<RpcError> for Status {
    fn from(error: RpcError) -> Self {
        let code = i32::try_from(error.code).unwrap_or(2);
        Self::new(Code::from_i32(code), error.message)
    }
}
