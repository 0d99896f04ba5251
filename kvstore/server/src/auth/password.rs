//! Passwords: hashed before anything is proposed, verified off the core's thread.
//!
//! bcrypt takes long on purpose. It runs on threads of its own, a few at a time, so
//! that whoever guesses passwords cannot take the processor from everybody else.

use mvcc::Secret;
use tokio::sync::Semaphore;

use crate::rpc_error::RpcError;

/// Hashes computed at a time; beyond it callers wait their turn.
const AT_ONCE_MAX: usize = 2;

/// Longest password bcrypt looks at all of. A longer one is refused rather than cut
/// (as by Go's bcrypt since 2022).
const PASSWORD_BYTES_MAX: usize = 72;

/// The gRPC code of what has no other.
const UNKNOWN: u32 = 2;

static TURNS: Semaphore = Semaphore::const_new(AT_ONCE_MAX);

/// Hashes a password.
pub(super) async fn hash(password: String, cost: u32) -> Result<Secret, RpcError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(unknown(
            "bcrypt: password length exceeds 72 bytes".to_owned(),
        ));
    }
    let hashed = apart(move || bcrypt::hash(password, cost)).await?;
    match hashed {
        Ok(hash) => Ok(Secret::new(hash)),
        Err(error) => Err(unknown(format!("bcrypt: {error}"))),
    }
}

/// Compares a password with a hash. What is not a hash fits no password.
pub(super) async fn verify(password: String, hash: Secret) -> Result<bool, RpcError> {
    apart(move || {
        let hash = std::str::from_utf8(hash.expose()).unwrap_or_default();
        bcrypt::verify(password, hash).unwrap_or(false)
    })
    .await
}

/// Runs something slow where it holds nobody up.
pub(super) async fn apart<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RpcError> {
    let turn = TURNS.acquire().await;
    let done = tokio::task::spawn_blocking(run).await;
    drop(turn);
    done.map_err(|_stopping| mvcc::Error::Stopped.into())
}

/// Makes the error for a reason etcd knows no code for.
pub(super) fn unknown(message: String) -> RpcError {
    RpcError {
        code: UNKNOWN,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: u32 = 4;

    #[tokio::test]
    async fn a_hash_fits_its_password_only() {
        let hash = hash("secret".to_owned(), COST).await.unwrap();
        assert!(verify("secret".to_owned(), hash.clone()).await.unwrap());
        assert!(!verify("Secret".to_owned(), hash).await.unwrap());
        assert!(!verify(String::new(), Secret::default()).await.unwrap());
    }

    #[tokio::test]
    async fn hashes_of_etcd_are_understood() {
        // From the tests of golang.org/x/crypto/bcrypt.
        let theirs = Secret::new("$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga");
        assert!(verify("allmine".to_owned(), theirs.clone()).await.unwrap());
        assert!(!verify("allmine ".to_owned(), theirs).await.unwrap());
    }

    #[tokio::test]
    async fn a_password_is_never_cut() {
        assert!(hash("p".repeat(72), COST).await.is_ok());
        let refused = hash("p".repeat(73), COST).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (2, "bcrypt: password length exceeds 72 bytes")
        );
    }
}
