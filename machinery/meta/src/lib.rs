//! The vocabulary every other part of the control plane shares: what an object
//! is, how it is named, selected, patched, and how an API call fails.
//!
//! An object has two forms here. [`Object`] is the one that moves in bulk
//! through the server: the few facts the machinery decides on are decoded once,
//! the rest stays the bytes that were stored. A `serde_json::Value` is the one
//! a write works on; [`value`] reads and changes its metadata.
//!
//! Deliberately absent: any kind. This crate does not know what a Pod is, has
//! no clock, no file, no socket, and depends on no other crate of the workspace.

pub mod field_error;
pub mod fields;
pub mod gvk;
pub mod intstr;
pub mod json;
pub mod keys;
pub mod labels;
pub mod marks;
pub mod names;
pub mod object;
pub mod owner;
pub mod patch;
pub mod quantity;
pub mod status;
pub mod time;
pub mod value;

pub use field_error::FieldError;
pub use fields::FieldSelector;
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use labels::LabelSelector;
pub use object::{Encoded, Object, ObjectMeta, ResourceVersion};
pub use owner::OwnerReference;
pub use status::{Cause, Reason, Status};
