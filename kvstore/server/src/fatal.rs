//! The end of the process, where going on would break a promise.
//!
//! After a failed sync the kernel may have thrown away what it could not write,
//! and a state machine that cannot read its own past is in no known state. A
//! restart finds out what is really on disk; nothing else may be tried.

/// What unwinds out of a simulated member that cannot go on: its process is over,
/// that of the simulation is not.
#[cfg(feature = "sim")]
#[derive(Debug)]
pub struct Ended {
    /// The part that could not go on.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

#[cfg(feature = "sim")]
thread_local! {
    /// Whether members are simulated on this thread.
    pub(crate) static SIMULATED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Ends the process at once, saying why.
pub(crate) fn fatal(what: &'static str, why: &str) -> ! {
    tracing::error!(what, why, "the store cannot go on and stops at once");
    #[cfg(feature = "sim")]
    if SIMULATED.get() {
        let why = why.to_owned();
        std::panic::resume_unwind(Box::new(Ended { what, why }));
    }
    std::process::abort()
}
