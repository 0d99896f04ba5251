//! What a call needs of its caller beside keys: to be somebody, or to be root.

use super::Caller;
use crate::{handle::Handle, rpc_error::RpcError};

impl Handle {
    /// Refuses whoever is not an administrator (etcd: AuthAdmin.isPermitted).
    pub(crate) fn check_root(&self) -> Result<(), RpcError> {
        match &self.caller {
            Caller::Internal => Ok(()),
            Caller::Client(credentials) => {
                tracing::trace!(?credentials, "authentication is not enabled");
                Ok(())
            }
        }
    }

    /// Refuses whoever is nobody (etcd: AuthAdmin.requireAuthInfo).
    pub(crate) fn check_user(&self) -> Result<(), RpcError> {
        match &self.caller {
            Caller::Internal => Ok(()),
            Caller::Client(credentials) => {
                tracing::trace!(?credentials, "authentication is not enabled");
                Ok(())
            }
        }
    }
}
