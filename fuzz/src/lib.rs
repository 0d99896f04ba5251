//! What hostile or decayed bytes must not do: one function per door they come in
//! by. Each takes any bytes, and panics if a promise is broken.
//!
//! A function makes something valid (a log, a file, rows), damages it as its
//! input says, reads it back, and holds what it got against what it knows. So it
//! is useful with a fuzzer that watches coverage, and with a plain seed.

mod bbolt_file;
mod draw;
mod edge;
mod json;
mod kube;
mod request;
mod rows;
mod wal;

pub use bbolt_file::bbolt_file;
pub use edge::edge;
pub use json::json;
pub use kube::{
    applied, bodies, body_json, body_protobuf, body_yaml, patches, paths, requests, selectors,
};
pub use request::request;
pub use rows::rows;
pub use wal::{wal, wal_records};

/// Is one target: it takes any bytes and panics when what it drives is wrong.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("wal", wal),
    ("wal_records", wal_records),
    ("bbolt_file", bbolt_file),
    ("rows", rows),
    ("request", request),
    ("json", json),
    ("edge", edge),
    ("body_json", body_json),
    ("body_yaml", body_yaml),
    ("body_protobuf", body_protobuf),
    ("selectors", selectors),
    ("paths", paths),
    ("patches", patches),
    ("applied", applied),
    ("requests", requests),
];
