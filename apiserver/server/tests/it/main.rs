//! The API server as its clients see it: every request goes through the whole
//! pipeline, over TLS where sockets matter, in process elsewhere.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod apply;
mod connections;
mod crds;
mod credentials;
mod discovery;
mod drafts;
mod fields;
mod groups;
mod harness;
mod kinds;
mod lists;
mod logs;
mod managers;
mod objects;
mod options;
mod protobuf;
mod reads;
mod refusals;
mod reviews;
mod services;
mod standing;
mod stopping;
mod streams;
mod watches;
mod wire;
