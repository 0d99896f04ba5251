//! Whose store is tested, and how long: both are said by the environment.

use faults::Target;

use crate::harness::tool;

/// Returns what the environment asks for; `None` if it is not there.
pub(crate) fn asked() -> Option<Target> {
    match std::env::var("KEELSON_CLUSTER_TARGET").as_deref() {
        Ok("keelson") | Err(_) => Some(Target::keelson(env!("CARGO_BIN_EXE_keelson"))),
        Ok("etcd") => tool("etcd").map(Target::etcd),
        Ok(other) => panic!("KEELSON_CLUSTER_TARGET is etcd or keelson, not {other:?}"),
    }
}

/// Takes what this machine has the means for, or says what is missing.
pub(crate) fn here<T>(made: faults::Result<T>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(why @ faults::Error::Missing(..)) => {
            eprintln!("cannot run: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Takes the target or ends the test.
macro_rules! target {
    () => {
        match $crate::target::asked() {
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
