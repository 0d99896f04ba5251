//! What may be asked of a [`ResourceStore`](super::ResourceStore), and what it
//! answers. Everything here is parsed already; nothing is HTTP.

use std::sync::Arc;
use std::time::Duration;

use meta::gvk::GroupVersionKind;
use meta::{FieldError, Object, Status};
use watchcache::Selector;

/// How fresh a read must be: the `resourceVersion` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadVersion {
    /// Unset: as fresh as the store itself. (A watch without
    /// `sendInitialEvents` treats it as `Any`, as Kubernetes does.)
    #[default]
    Unset,
    /// `"0"`: whatever is at hand.
    Any,
    /// `"N"`: at least as fresh as revision N; a watch starts after N.
    At(u64),
}

impl ReadVersion {
    /// Parses the parameter; anything but a number is a 400.
    pub fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" => Ok(Self::Unset),
            "0" => Ok(Self::Any),
            n => match n.parse() {
                Ok(0) => Ok(Self::Any),
                Ok(n) => Ok(Self::At(n)),
                Err(error) => Err(Status::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {n:?}: {}",
                    crate::query::go_parse_error("ParseUint", n, &error)
                ))),
            },
        }
    }
}

/// How a list's or watch's resource version is meant (`resourceVersionMatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly the state at that version.
    Exact,
    /// A state not older than that version.
    NotOlderThan,
}

impl VersionMatch {
    /// Parses the parameter; empty is `None`, an unknown word a 422.
    pub fn parse(text: &str) -> Result<Option<Self>, Status> {
        match text {
            "" => Ok(None),
            "Exact" => Ok(Some(Self::Exact)),
            "NotOlderThan" => Ok(Some(Self::NotOlderThan)),
            other => Err(invalid_options(FieldError::not_supported(
                "resourceVersionMatch",
                other,
                &["Exact", "NotOlderThan", ""],
            ))),
        }
    }
}

/// Refuses list options as apimachinery's `ValidateListOptions` does.
pub(super) fn invalid_options(error: FieldError) -> Status {
    let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "ListOptions");
    Status::invalid(&gvk, "", &[error])
}

/// A list.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// What to list.
    pub selector: Selector,
    /// How fresh.
    pub version: ReadVersion,
    /// How `version` is meant.
    pub version_match: Option<VersionMatch>,
    /// The most items to return; zero for all.
    pub limit: usize,
    /// Where an earlier page ended; empty or `None` for the first page.
    pub continue_token: Option<String>,
}

/// A list's answer.
#[derive(Clone, Debug)]
pub struct ListResult {
    /// The items, in key order.
    pub items: Vec<Arc<Object>>,
    /// The revision all items were read at.
    pub resource_version: u64,
    /// The token for the next page, when there is one.
    pub continue_token: Option<String>,
    /// How many items follow; known only when nothing was filtered.
    pub remaining: Option<u64>,
}

/// A watch.
#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    /// What to watch.
    pub selector: Selector,
    /// Where to start.
    pub version: ReadVersion,
    /// How `version` is meant; must be `NotOlderThan` with
    /// `send_initial_events`, else 422.
    pub version_match: Option<VersionMatch>,
    /// Whether the client understands bookmarks.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// How long the watch will be served; a last bookmark goes out two seconds
    /// before.
    pub timeout: Option<Duration>,
}

/// What must be true of an object for a write to go through (409 if not).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The uid it must have.
    pub uid: Option<String>,
    /// The resource version it must have, as the client gave it.
    pub resource_version: Option<String>,
}

/// What an update did.
#[derive(Clone, Debug)]
pub struct UpdateOutcome {
    /// The object afterwards.
    pub object: Arc<Object>,
    /// Whether anything was written.
    pub changed: bool,
}
