//! Whole clusters of the store, hurt from outside: killed, frozen, cut off,
//! filled up, grown and shrunk under load, and asked afterwards whether they
//! lost anything.
//!
//! The same tests run against a real etcd with `KEELSON_CLUSTER_TARGET=etcd`: what
//! etcd does not pass is no fair question. `KEELSON_CLUSTER_FULL=1` takes the
//! numbers of a release in place of those that fit into a few minutes. As in
//! `tests/e2e`, a test whose tool or right is missing says so and passes.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

mod api_server;
mod ex_leader;
mod example;
mod full_disk;
mod handover;
#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod harness;
mod history;
mod http;
mod lagging;
mod leader_lost;
mod load;
mod members;
mod membership;
mod memory;
mod target;
