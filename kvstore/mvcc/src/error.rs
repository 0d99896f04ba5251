//! The refusals a client can meet, under etcd's exact codes and words.
//!
//! Clients match on the message (`rpctypes.Error` looks the description up in
//! a map) and retry by code, so both are contract: etcd main,
//! `api/v3rpc/rpctypes/error.go`. The edge copies `code()` and `Display` into a
//! gRPC status and adds nothing.

use thiserror::Error as ThisError;

/// Reports that the backend could not answer. A state machine that cannot read
/// its own past cannot go on: whoever sees this stops the process.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum BackendError {
    /// Carries what the engine or the operating system said.
    #[error("storage backend: {0}")]
    Io(String),
    /// Says that a view was held for so long that the store let go of it.
    #[error("the view was held for too long")]
    Expired,
    /// Says that an answer takes more reading than it may; see
    /// [`crate::StateMachine::range_if_short`].
    #[error("more to read than a short answer may")]
    TooMuch,
    /// Names a row whose checksum, length or layout is wrong.
    #[error("storage backend: corrupt row {row}: {reason}")]
    Corrupt {
        /// The row, printed as its key.
        row: String,
        /// What did not hold.
        reason: String,
    },
}

impl BackendError {
    /// Builds the corruption error for the row under `key`.
    pub fn corrupt(key: &[u8], reason: impl Into<String>) -> Self {
        let row = key.escape_ascii().to_string();
        Self::Corrupt {
            row,
            reason: reason.into(),
        }
    }
}

/// Declares the table once: variant, gRPC code, message.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal;)*) => {
        /// Is a refusal in etcd's words. Nothing was changed when one is returned.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Error {
            $(
                #[doc = concat!("Says \"", $message, "\".")]
                $(#[$doc])*
                $name,
            )*
            /// Says that the backend failed under a read; the process must stop.
            Storage(BackendError),
        }

        impl Error {
            /// Returns the gRPC status code.
            pub fn code(&self) -> u32 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Storage(_) => 15,
                }
            }

            /// Lists every variant that carries no data, for table tests.
            pub const ALL: &'static [Error] = &[$(Error::$name,)*];
        }

        impl std::fmt::Display for Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$name => f.write_str($message),)*
                    Self::Storage(e) => write!(f, "{e}"),
                }
            }
        }
    };
}

errors! {
    EmptyKey = 3, "etcdserver: key is not provided";
    KeyNotFound = 3, "etcdserver: key not found";
    ValueProvided = 3, "etcdserver: value is provided";
    LeaseProvided = 3, "etcdserver: lease is provided";
    TooManyOps = 3, "etcdserver: too many operations in txn request";
    DuplicateKey = 3, "etcdserver: duplicate key given in txn request";
    InvalidClientApiVersion = 3, "etcdserver: invalid client api version";
    InvalidSortOption = 3, "etcdserver: invalid sort option";
    MemberBadUrls = 3, "etcdserver: given member URLs are invalid";
    RequestTooLarge = 3, "etcdserver: request is too large";
    UserEmpty = 3, "etcdserver: user name is empty";
    RoleEmpty = 3, "etcdserver: role name is empty";
    AuthFailed = 3, "etcdserver: authentication failed, invalid user ID or password";
    PermissionNotGiven = 3, "etcdserver: permission not given";
    InvalidAuthMgmt = 3, "etcdserver: invalid auth management";
    AuthOldRevision = 3, "etcdserver: revision of auth store is old";
    WrongDowngradeVersionFormat = 3, "etcdserver: wrong downgrade target version format";
    InvalidDowngradeTargetVersion = 3, "etcdserver: invalid downgrade target version";

    Compacted = 11, "etcdserver: mvcc: required revision has been compacted";
    FutureRevision = 11, "etcdserver: mvcc: required revision is a future revision";
    LeaseTtlTooLarge = 11, "etcdserver: too large lease TTL";

    NoSpace = 8, "etcdserver: mvcc: database space exceeded";
    TooManyRequests = 8, "etcdserver: too many requests";

    LeaseNotFound = 5, "etcdserver: requested lease not found";
    MemberNotFound = 5, "etcdserver: member not found";

    LeaseExists = 9, "etcdserver: lease already exists";
    MemberExists = 9, "etcdserver: member ID already exist";
    PeerUrlExists = 9, "etcdserver: Peer URLs already exists";
    NotEnoughStartedMembers = 9, "etcdserver: re-configuration failed due to not enough started members";
    MemberNotLearner = 9, "etcdserver: can only promote a learner member";
    LearnerNotReady = 9, "etcdserver: can only promote a learner member which is in sync with leader";
    TooManyLearners = 9, "etcdserver: too many learner members in cluster";
    ClusterIdMismatch = 9, "etcdserver: cluster ID mismatch";
    RootUserNotExist = 9, "etcdserver: root user does not exist";
    RootRoleNotExist = 9, "etcdserver: root user does not have root role";
    UserAlreadyExist = 9, "etcdserver: user name already exists";
    UserNotFound = 9, "etcdserver: user name not found";
    RoleAlreadyExist = 9, "etcdserver: role name already exists";
    RoleNotFound = 9, "etcdserver: role name not found";
    RoleNotGranted = 9, "etcdserver: role is not granted to the user";
    PermissionNotGranted = 9, "etcdserver: permission is not granted to the role";
    AuthNotEnabled = 9, "etcdserver: authentication is not enabled";
    NotLeader = 9, "etcdserver: not leader";
    NotCapable = 9, "etcdserver: not capable";
    NotSupportedForLearner = 9, "etcdserver: rpc not supported for learner";
    BadLeaderTransferee = 9, "etcdserver: bad leader transferee";
    ClusterVersionUnavailable = 9, "etcdserver: cluster version not found during downgrade";
    DowngradeInProcess = 9, "etcdserver: cluster has a downgrade job in progress";
    NoInflightDowngrade = 9, "etcdserver: no inflight downgrade job";

    PermissionDenied = 7, "etcdserver: permission denied";
    InvalidAuthToken = 16, "etcdserver: invalid auth token";
    WatchCanceled = 1, "etcdserver: watch canceled";
    RequestCanceled = 1, "etcdserver: request canceled";
    DeadlineExceeded = 4, "etcdserver: context deadline exceeded";

    NoLeader = 14, "etcdserver: no leader";
    LeaderChanged = 14, "etcdserver: leader changed";
    Stopped = 14, "etcdserver: server stopped";
    Timeout = 14, "etcdserver: request timed out";
    TimeoutLeaderFail = 14, "etcdserver: request timed out, possibly due to previous leader failure";
    TimeoutConnectionLost = 14, "etcdserver: request timed out, possibly due to connection lost";
    TimeoutWaitAppliedIndex = 14, "etcdserver: request timed out, waiting for the applied index took too long";
    Unhealthy = 14, "etcdserver: unhealthy cluster";
    Corrupt = 15, "etcdserver: corrupt cluster";

    /// A proposal id was seen before, so this copy changed nothing; the first
    /// copy's reply is the one that counts. Never reaches a client.
    DuplicateProposal = 6, "etcdserver: proposal already applied";
    /// A proposal reached the log so long after it was made that an earlier copy could
    /// have been forgotten; no copy of it will be applied any more.
    StaleProposal = 14, "etcdserver: request timed out, reaching the log took too long";
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(e) => Some(e),
            _ => None,
        }
    }
}

impl From<BackendError> for Error {
    /// A view that expired is a slow client's matter, no fault of the storage.
    fn from(e: BackendError) -> Self {
        match e {
            BackendError::Expired => Self::Timeout,
            e => Self::Storage(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_unique_and_prefixed() {
        let mut seen = std::collections::BTreeSet::new();
        for e in Error::ALL {
            let text = e.to_string();
            assert!(text.starts_with("etcdserver: "), "{text}");
            assert!((1..=16).contains(&e.code()));
            assert!(seen.insert(text.clone()), "two variants say {text}");
        }
    }
}
