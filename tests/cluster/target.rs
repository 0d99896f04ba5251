//! Whose store is tested, and how long: both are said by the environment.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::tool;

/// Whose program the members run.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Ours.
    Keelson,
    /// A real etcd, the oracle.
    Etcd(PathBuf),
}

impl Target {
    /// Returns what the environment asks for; `None` if it is not there.
    pub(crate) fn asked() -> Option<Self> {
        match std::env::var("KEELSON_CLUSTER_TARGET").as_deref() {
            Ok("keelson") | Err(_) => Some(Self::Keelson),
            Ok("etcd") => tool("etcd").map(Self::Etcd),
            Ok(other) => panic!("KEELSON_CLUSTER_TARGET is etcd or keelson, not {other:?}"),
        }
    }

    /// Begins a command that runs a member; a prefix may put it somewhere else.
    pub(crate) fn command(&self, prefix: &[String]) -> Command {
        let mut words: Vec<std::ffi::OsString> = prefix.iter().map(Into::into).collect();
        match self {
            Self::Keelson => {
                words.push(env!("CARGO_BIN_EXE_keelson").into());
                words.push("kvstore".into());
            }
            Self::Etcd(program) => words.push(program.into()),
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

/// Takes the target or ends the test.
macro_rules! target {
    () => {
        match $crate::target::Target::asked() {
            Some(target) => target,
            None => return,
        }
    };
}
pub(crate) use target;

/// Returns the number for every run, or that for a release.
pub(crate) fn rounds<N>(small: N, full: N) -> N {
    if std::env::var_os("KEELSON_CLUSTER_FULL").is_some() {
        full
    } else {
        small
    }
}
