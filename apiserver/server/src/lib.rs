//! The API server: HTTP in front, the store behind, every verb generic over
//! the kinds of crate `registry`.
//!
//! ```text
//! TLS/HTTP -> request_info -> authn -> audit -> authz -> admission -> verb -> storage
//! store watch -> Cacher.ingest -> Dispatch{event, targets} -> bounded queues -> response bodies
//! ```
//!
//! Begin with `pipeline`, which lists the gates a request passes in their
//! order. [`storage`] keeps objects and fans changes out; [`serve`] owns the
//! sockets; [`pki`] the certificates. A component that runs in the same
//! process calls the same pipeline without a socket
//! (`Running::local_service`).
//!
//! Deliberately absent today: RBAC as an authoriser, admission webhooks.

mod admission;
mod api;
pub mod authn;
mod authz;
pub mod body;
mod bootstrap;
pub mod cli;
mod computed;
mod crds;
mod deadline;
mod discovery;
mod fields;
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod impersonation;
mod input;
pub mod kubeconfig;
mod listing;
mod metrics;
mod negotiation;
mod openapi;
mod paths;
mod pipeline;
pub mod pki;
mod protobuf;
mod query;
mod request_info;
mod resources;
mod respond;
mod seldom;
pub mod serve;
pub mod server;
mod service_tokens;
mod services;
pub mod storage;
mod subresources;
mod table;
mod verbs;
mod version;

pub use authn::UserInfo;
pub use server::{Config, Running, Server, ServiceAccountConfig, StartError, StoreSource};
