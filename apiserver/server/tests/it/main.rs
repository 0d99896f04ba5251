//! The API server as its clients see it: every request goes through the whole
//! pipeline, over TLS where sockets matter, in process elsewhere.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod connections;
mod credentials;
mod discovery;
mod harness;
mod logs;
mod objects;
mod reads;
mod refusals;
mod services;
mod stopping;
mod watches;
