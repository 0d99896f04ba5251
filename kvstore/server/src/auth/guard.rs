//! From what a caller showed to what the state machine checks.
//!
//! With authentication off it all comes down to one look at a flag.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mvcc::{Error, Identity, StateMachine};

use super::{Caller, caller, tokens};
use crate::{core::Core, handle::Handle, rpc_error::RpcError};

/// A caller, as far as can be said without the core: signatures are checked before
/// its lock is taken.
pub(crate) enum Asker {
    /// The process itself.
    Internal,
    /// Who showed a signed token; none if the signature or the time is wrong.
    Signed(Option<Identity>),
    /// Who showed a token that the core may know.
    Token(Arc<str>),
    /// Who showed a certificate.
    Named(Arc<str>),
    /// Who showed nothing.
    Nobody,
}

/// How long a call waits for this member to apply the entry that gave out the token
/// it shows. After that the token is taken for unknown.
const TOKEN_WAIT_MAX: Duration = Duration::from_secs(5);

impl Handle {
    /// Waits until this member has applied the entry that gave out a simple token:
    /// the client may have got it from another member, which is ahead (etcd:
    /// simple_token.go, `isValidSimpleToken`).
    pub(crate) async fn await_token(&self, headers: &http::HeaderMap) {
        if !self.shared.auth_on.load(Ordering::Acquire) || self.shared.jwt.is_some() {
            return;
        }
        let Some(index) = given_out_at(headers) else {
            return;
        };
        let mut applied = self.shared.applied.subscribe();
        let caught_up = applied.wait_for(|applied| *applied >= index);
        // Too late or never: then the token is not known, and the call is told so.
        let _late = tokio::time::timeout(TOKEN_WAIT_MAX, caught_up).await;
    }

    /// Looks at what the caller showed.
    pub(crate) fn asker(&self) -> Asker {
        let Caller::Client(shown) = &self.caller else {
            return Asker::Internal;
        };
        if !self.shared.auth_on.load(Ordering::Acquire) {
            return Asker::Nobody;
        }
        // A token says more than a certificate, even if it says nothing good.
        let name = shown.common_name.as_ref();
        let name = name.filter(|_| self.shared.config.client_cert_auth);
        match (&shown.token, &self.shared.jwt, name) {
            (Some(token), Some(jwt), _) => Asker::Signed(jwt.verify(token)),
            (Some(token), None, _) => Asker::Token(Arc::clone(token)),
            (None, _, Some(name)) => Asker::Named(Arc::clone(name)),
            (None, _, None) => Asker::Nobody,
        }
    }

    /// Runs a check of the state machine for the caller, under the lock under which
    /// its answer is used: nothing can change in between, which is what etcd looks
    /// at the auth revision twice for (`v3_server.go`, doSerialize).
    pub(crate) fn admit(
        &self,
        core: &mut Core,
        asker: &Asker,
        may: impl FnOnce(&StateMachine, &Identity) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !core.machine.auth().enabled() {
            return Ok(());
        }
        match self.identify(core, asker)? {
            Some(who) => may(&core.machine, &who),
            None => Ok(()),
        }
    }

    /// Says who a caller is; none is the process itself, which is not checked.
    fn identify(&self, core: &mut Core, asker: &Asker) -> Result<Option<Identity>, Error> {
        let revision = core.machine.auth().revision();
        Ok(Some(match asker {
            Asker::Internal => return Ok(None),
            Asker::Signed(who) => who.clone().ok_or(Error::InvalidAuthToken)?,
            Asker::Token(token) => {
                let user = core.tokens.user_of(token, self.shared.now());
                Identity::new(user.ok_or(Error::InvalidAuthToken)?, revision)
            }
            Asker::Named(name) => Identity::new(Arc::clone(name), revision),
            Asker::Nobody => Identity::nobody(),
        }))
    }

    /// Says who a proposal is from.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, RpcError> {
        match self.asker() {
            Asker::Internal => Ok(None),
            Asker::Nobody => Ok(Some(Identity::nobody())),
            asker => Ok(self.shared.with(|core| self.identify(core, &asker))??),
        }
    }

    /// Runs a check alone.
    pub(crate) fn check(
        &self,
        may: impl FnOnce(&StateMachine, &Identity) -> Result<(), Error>,
    ) -> Result<(), RpcError> {
        match self.asker() {
            Asker::Internal => Ok(()),
            asker => Ok(self.shared.with(|core| self.admit(core, &asker, may))??),
        }
    }

    /// Refuses whoever is not an administrator (etcd: AuthAdmin.isPermitted).
    pub(crate) fn check_root(&self) -> Result<(), RpcError> {
        self.check(|machine, who| machine.auth().check_root(who))
    }

    /// Refuses whoever is nobody (etcd: AuthAdmin.requireAuthInfo).
    pub(crate) fn check_user(&self) -> Result<(), RpcError> {
        self.check(|machine, who| machine.auth().check_user(who))
    }
}

/// Reads the index in the simple token that a request shows, if it shows one.
fn given_out_at(headers: &http::HeaderMap) -> Option<u64> {
    tokens::index_of(&caller::shown_token(|field| headers.get(field))?)
}

/// Says why a watch is refused, as etcd's watch server writes it (`v3rpc/watch.go`).
pub(crate) fn refusal_text(error: &Error) -> String {
    let code = match error {
        Error::InvalidAuthToken => "Unauthenticated",
        Error::AuthOldRevision | Error::UserEmpty => "InvalidArgument",
        _ => "PermissionDenied",
    };
    let said = match code {
        "PermissionDenied" => &Error::PermissionDenied,
        _ => error,
    };
    format!("rpc error: code = {code} desc = {said}")
}
