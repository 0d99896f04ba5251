//! End to end: the real binary, driven by programs we did not write.
//!
//! `tests/run` brings kubectl, etcdctl and etcd and says in `KEELSON_TOOLS`
//! where they are. A test whose tool is missing says so and passes: run
//! `tests/run`, not bare `cargo test`, to have them all.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

/// Makes of each function two tests, one with each kubectl: the newest, and the oldest
/// that must work.
macro_rules! with_each_kubectl {
    ($($name:ident)*) => {
        mod newest {
            $(#[test] fn $name() { super::$name(&$crate::harness::need!("kubectl")); })*
        }
        mod oldest {
            $(#[test] fn $name() { super::$name(&$crate::harness::need!("kubectl-1.33")); })*
        }
    };
}

mod access;
mod api_only;
mod apply;
mod crd;
mod create;
mod debug;
mod delete;
mod discover;
mod dry_run;
mod envtest;
mod etcd_peer;
mod exec;
mod get;
mod harness;
mod metadata;
mod patch;
mod refuse;
mod restart;
mod rollout;
mod server_side;
mod spine;
mod store;
mod store_flags;
