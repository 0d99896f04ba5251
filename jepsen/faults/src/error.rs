//! What can go wrong while things are made to go wrong.

/// Why a fault could not be made, healed or waited for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine has no means for it; whoever asked skips it and says so.
    #[error("{0} is missing here: {1}")]
    Missing(&'static str, String),
    /// A file, a process or a socket failed.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// A program such as `ip` refused.
    #[error("{0}: {1}")]
    Tool(String, String),
    /// What was waited for did not come.
    #[error("waited in vain for {what}; last: {last}")]
    Patience {
        /// What was waited for.
        what: String,
        /// Why it was not there at the last look.
        last: String,
    },
    /// A member refused what an operator asked.
    #[error("{0}: {1}")]
    Refused(String, Box<tonic::Status>),
    /// The cluster is not in a state in which this can be done.
    #[error("{0}")]
    Unfit(String),
}

/// What faults return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of the operating system say what it was about.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io(what, source)
    }
}

/// Runs a program to its end and returns what it printed.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String> {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let out = std::process::Command::new(program).args(args).output();
    let out = out.map_err(Error::io(program))?;
    if out.status.success() {
        return Ok(said(&out.stdout));
    }
    let line = format!("{program} {}", args.join(" "));
    Err(Error::Tool(line, said(&out.stderr)))
}
