//! bbolt's file format, version 2: what etcd keeps its data in and what its
//! backups are.
//!
//! ```text
//! page 0, 1   meta: where the root is, how far the file is used; the valid one
//!             with the higher transaction counts
//! page 2..    freelist, branches and leaves, each one page or a run of pages
//!             (`overflow`), in any order
//!
//! root bucket --leaf--> name of a bucket -> page of its root
//!                                        -> or, for a small one, its whole leaf
//! ```
//!
//! [`Writer`] makes a file in one pass from sorted input, its memory one page for
//! each level of the tree. [`Db`] reads one from anything with positional
//! reads; every number in it is checked before it is used, so hostile bytes
//! give an error that names the page, never a panic, a loop without end or an
//! allocation the file has no bytes for.
//!
//! Deliberately absent: changing a file in place, transactions, locks, nested
//! buckets, and any knowledge of what etcd keeps in it.

mod check;
mod error;
mod format;
mod reader;
mod source;
mod writer;

pub use crate::{
    error::{MetaProblem, Problem, ReadError, WriteError},
    format::PAGE_SIZE,
    reader::{BUCKETS_MAX, DEPTH_MAX, Db, Entries, Entry, NODE_BYTES_MAX},
    source::ReadAt,
    writer::Writer,
};
