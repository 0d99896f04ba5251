//! One binary for all tests that use the crate as others do.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod gen_ops;
mod model;
mod props;
mod replica;
mod scripts;
mod watching;
mod world;
