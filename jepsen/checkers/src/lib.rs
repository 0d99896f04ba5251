//! Judges what clients of a store were told.
//!
//! A run of any harness leaves a [`history::History`]: what each client asked,
//! when, and what came back. Nothing here runs, waits or looks at a clock; a
//! checker is a function from a history to a verdict, and so each of them is
//! tested with histories known to be wrong, which it must refuse by name.

pub mod apiview;
pub mod auth;
pub mod elle;
pub mod finals;
pub mod generate;
pub mod history;
pub mod judge;
pub mod lease;
pub mod lock;
pub mod log;
pub mod model;
pub mod set;
pub mod verdict;
pub mod watch;
pub mod wgl;
pub mod witness;
