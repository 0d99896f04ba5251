//! End to end: the real binary, driven by programs we did not write.
//!
//! `tests/run` brings kubectl, etcdctl and etcd and says in `KEELSON_TOOLS`
//! where they are. A test whose tool is missing says so and passes: run
//! `tests/run`, not bare `cargo test`, to have them all.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

mod apply;
mod envtest;
mod etcd_peer;
mod harness;
mod refuse;
mod restart;
mod spine;
mod store;
mod store_flags;
