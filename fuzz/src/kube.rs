//! The doors of the API server: bodies in three forms, selectors, paths and queries,
//! patches, applied configurations, and whole requests.
//!
//! An input is mostly a story and seldom bytes to be taken as they are: which valid
//! object to begin with, what to change in it, in what to write it, what to damage of
//! that. So code behind the first checks is reached by any bytes, and by few.

mod applied;
mod bodies;
mod grow;
mod laws;
mod patches;
mod paths;
mod requests;
mod seeds;
mod selectors;

pub use applied::applied;
pub use bodies::{body_json, body_protobuf, body_yaml};
pub use patches::patches;
pub use paths::paths;
pub use requests::requests;
pub use seeds::bodies;
pub use selectors::selectors;
