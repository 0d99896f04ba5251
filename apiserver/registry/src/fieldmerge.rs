//! Field merge: who owns which field of an object, and what an applied
//! configuration makes of it (server-side apply, KEP-555).
//!
//! A manager that *applies* states its whole intent: what it no longer states
//! goes, unless somebody else owns it; what another manager owns and it would
//! change is a conflict, unless it forces. A manager that *updates* owns what
//! it changed. The ownership is kept in the object, in
//! `metadata.managedFields`.
//!
//! The rules are those of structured-merge-diff v6 and of apimachinery's
//! `managedfields`, and so are the texts that reach a client. From the bottom:
//!
//! - [`element`] and [`set`]: paths, sets of paths and their JSON, `FieldsV1`;
//! - [`schema`]: what merging must know of a type, from wherever it comes;
//!   [`builtin`] takes it from the table of the built-in kinds;
//! - [`typed`]: a value with its type: which fields it has, merge, compare,
//!   remove, extract;
//! - [`update`]: Apply and Update over the sets of all managers;
//! - [`entries`]: `metadata.managedFields` read and written;
//! - [`chain`]: what the API server does around it, as two functions,
//!   [`apply`] and [`update()`];
//! - [`served`]: the built-in kinds, ready for these two;
//! - [`scaled`]: who owns the replicas, seen through the `scale` subresource.
//!
//! A verb that applies gives [`apply`] the live object as its endpoint shows it
//! and the decoded body, and treats the outcome as it would a body: types,
//! defaults, admission, checks. A verb that writes in any other way gives
//! [`update()`] what it is about to check. Either need not write what
//! [`same_but_times`] finds to be the live object.
//!
//! Pure like the rest of the crate: time is passed in, other versions come
//! through [`Converter`]. Deliberately absent: defaulting, validation and
//! storage of the result, which follow as for any other write.
//!
//! Limit: a value or a set may nest [`MAX_DEPTH`] levels, which is more than a
//! body may; what is deeper is refused before anything recurses into it.

pub mod builtin;
pub mod chain;
pub mod element;
pub mod entries;
pub mod error;
mod fields;
pub(crate) mod gotext;
mod quick;
pub mod reset;
mod same;
pub mod scaled;
pub mod schema;
pub mod served;
pub mod set;
pub mod typed;
pub mod update;

pub use chain::{Applied, Writer, apply, update, update_but};
pub use element::{Literal, Path, PathElement};
pub use entries::{Managed, ManagerId, Operation};
pub use error::{ApplyError, Conflict, MergeError, Problems};
pub use reset::{Filter, ResetFields};
pub use same::same_but_times;
pub use scaled::ReplicasPaths;
pub use schema::Schema;
pub use served::{Endpoints, Served};
pub use set::Set;
pub use typed::Typed;
pub use update::{Converter, OneVersion, Updater};

/// The deepest nesting of a value or of a set.
pub const MAX_DEPTH: usize = 256;
