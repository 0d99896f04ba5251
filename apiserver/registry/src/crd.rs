//! Custom resources: kinds that come with a definition which a client made.
//!
//! A definition (`apiextensions.k8s.io/v1` CustomResourceDefinition) is an
//! object like any other; `kinds/customresourcedefinition.rs` makes it one. What
//! is made of it is here, from the bottom:
//!
//! - [`schema`]: a version's structural schema, parsed once;
//! - [`prune`], [`defaults`] and [`validate`]: what it does to an object, in
//!   the order of a write; [`lists`] adds what lists of type set and map
//!   promise;
//! - [`path`]: the JSONPaths of printed columns;
//! - [`custom`]: the [`Strategy`](crate::Strategy) of a version, which does all
//!   that a built-in kind's file does;
//! - [`publish`] and [`ownership`]: the schema as OpenAPI documents and as field
//!   merge show and use it;
//! - [`resource`]: a definition as the kinds that it serves;
//! - [`check`] and [`names`]: which definitions are refused, and which names one
//!   may have; [`conditions`]: what is written to its status, and when.
//!
//! Words and order are those of apiextensions-apiserver. Deliberately absent:
//! evaluating `x-kubernetes-validations` (the rules are kept and published),
//! and conversion by webhook.

pub mod check;
pub mod conditions;
pub mod custom;
pub mod defaults;
mod formats;
pub mod intern;
pub mod lists;
pub mod names;
pub mod ownership;
pub mod path;
pub mod prune;
pub mod publish;
pub mod resource;
pub mod schema;
mod schema_rules;
mod structural;
pub mod validate;
mod version;

pub use custom::Custom;
pub use resource::{CustomResource, Renewer};
pub use schema::Structural;
pub use version::Priority;

/// The finalizer that keeps a definition until its instances are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The plural of definitions.
pub const PLURAL: &str = "customresourcedefinitions";
/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
