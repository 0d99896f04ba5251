//! Types as data: which kinds the API server serves, what it knows of their
//! fields, and what it does to an object before it is stored.
//!
//! Pure: objects are `serde_json::Value`s, time and randomness are passed in,
//! nothing here waits or reads a file. The way of a written object is
//! [`json`] (bytes to value), [`schema`] (types, unknown fields),
//! [`Strategy::default`], [`admission`], [`rest`] (metadata rules and the
//! kind's checks). Who owns which field of it, and what an applied configuration
//! makes of it, is [`fieldmerge`]. What leaves is [`openapi`] (documents) and the cells of
//! [`Kind::cells`] (tables).
//!
//! Deliberately absent: storage, HTTP, authorization, and any knowledge of
//! which other objects exist.

pub mod admission;
pub mod binding;
pub mod checks;
pub mod crd;
pub mod eviction;
pub mod fieldmerge;
mod index;
pub mod ipalloc;
pub mod json;
pub mod kind;
pub mod kinds;
pub mod limits;
pub mod merge;
pub mod openapi;
pub mod pem;
pub mod podparts;
pub mod podspec;
pub mod portalloc;
pub mod print;
pub mod rest;
pub mod scale;
pub mod schema;
pub mod standing;
pub mod table;
pub mod unstored;
pub mod validate;

pub use kind::{Column, Endpoint, Kind, KindRef, Propagation, Strategy, Subresource};
