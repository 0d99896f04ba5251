//! The end of the process, where going on would break a promise.
//!
//! After a failed sync the kernel may have thrown away what it could not write,
//! and a state machine that cannot read its own past is in no known state. A
//! restart finds out what is really on disk; nothing else may be tried.

/// Ends the process at once, saying why.
pub(crate) fn fatal(what: &'static str, why: &str) -> ! {
    tracing::error!(what, why, "the store cannot go on and stops at once");
    std::process::abort()
}
