//! What may be said beside the object: query parameters and request options.

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::query::Query;

/// Narrows and pages a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListParams {
    /// Is a label selector, such as `app=web,tier!=db`.
    pub label_selector: Option<String>,
    /// Is a field selector, such as `spec.nodeName=a`.
    pub field_selector: Option<String>,
    /// Bounds how many objects one answer carries.
    pub limit: Option<u32>,
    /// Is the token of the previous page.
    pub continue_: Option<String>,
    /// Is the resource version the answer must honour.
    pub resource_version: Option<String>,
    /// Says how to honour the resource version: `Exact` or `NotOlderThan`.
    pub resource_version_match: Option<String>,
}

impl ListParams {
    /// Narrows by labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Narrows by fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Bounds the size of a page.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(crate) fn query(&self, query: &mut Query) {
        query.opt("labelSelector", self.label_selector.as_deref());
        query.opt("fieldSelector", self.field_selector.as_deref());
        query.opt("limit", self.limit.map(|n| n.to_string()).as_deref());
        query.opt("continue", self.continue_.as_deref());
        query.opt("resourceVersion", self.resource_version.as_deref());
        query.opt(
            "resourceVersionMatch",
            self.resource_version_match.as_deref(),
        );
    }
}

/// Narrows a watch and says where it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchParams {
    /// Is a label selector.
    pub label_selector: Option<String>,
    /// Is a field selector.
    pub field_selector: Option<String>,
    /// Is where the watch begins; events after this version are sent.
    pub resource_version: Option<String>,
    /// Asks for bookmarks, so that an idle watch still learns new versions.
    pub allow_bookmarks: bool,
    /// Bounds the life of the watch; the server ends it then.
    pub timeout_seconds: Option<u32>,
}

impl WatchParams {
    pub(crate) fn query(&self, query: &mut Query) {
        query.push("watch", "true");
        query.opt("labelSelector", self.label_selector.as_deref());
        query.opt("fieldSelector", self.field_selector.as_deref());
        query.opt("resourceVersion", self.resource_version.as_deref());
        query.opt(
            "timeoutSeconds",
            self.timeout_seconds.map(|n| n.to_string()).as_deref(),
        );
        if self.allow_bookmarks {
            query.push("allowWatchBookmarks", "true");
        }
    }
}

/// Is a change to an object, in one of the four forms the server takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// Is a JSON patch (RFC 6902): a list of operations.
    Json(Value),
    /// Is a merge patch (RFC 7396).
    Merge(Value),
    /// Is a strategic merge patch, which merges lists by their keys.
    Strategic(Value),
    /// Is a server-side apply; conflicts are forced.
    Apply(Value),
}

impl Patch {
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Patch::Json(_) => "application/json-patch+json",
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            // JSON is YAML, which is the only form the server takes here.
            Patch::Apply(_) => "application/apply-patch+yaml",
        }
    }

    pub(crate) fn body(&self) -> Result<Vec<u8>, Error> {
        let (Patch::Json(v) | Patch::Merge(v) | Patch::Strategic(v) | Patch::Apply(v)) = self;
        serde_json::to_vec(v).map_err(Error::Encode)
    }
}

/// Says what happens to the objects an object owns when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Leaves them, without their owner.
    Orphan,
    /// Deletes the owner first; the garbage collector deletes them.
    Background,
    /// Deletes them first.
    Foreground,
}

/// Says how to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteParams {
    /// Is the grace in seconds; zero deletes at once.
    pub grace: Option<i64>,
    /// Says what happens to owned objects; the kind's default if not given.
    pub propagation: Option<Propagation>,
    /// Refuses the deletion unless the object has this UID.
    pub uid: Option<String>,
    /// Refuses the deletion unless the object has this resource version.
    pub resource_version: Option<String>,
}

impl DeleteParams {
    /// Deletes in the background.
    pub fn background() -> Self {
        Self {
            propagation: Some(Propagation::Background),
            ..Self::default()
        }
    }

    /// Sets the grace.
    #[must_use]
    pub fn grace(mut self, seconds: i64) -> Self {
        self.grace = Some(seconds);
        self
    }

    /// Sets what happens to owned objects.
    #[must_use]
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = Some(propagation);
        self
    }

    /// Refuses the deletion unless the object has this UID.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    pub(crate) fn body(&self) -> Result<Vec<u8>, Error> {
        let mut body = Map::new();
        body.insert("kind".into(), json!("DeleteOptions"));
        body.insert("apiVersion".into(), json!("v1"));
        if let Some(seconds) = self.grace {
            body.insert("gracePeriodSeconds".into(), json!(seconds));
        }
        if let Some(propagation) = self.propagation {
            body.insert(
                "propagationPolicy".into(),
                json!(format!("{propagation:?}")),
            );
        }
        let mut preconditions = Map::new();
        if let Some(uid) = &self.uid {
            preconditions.insert("uid".into(), json!(uid));
        }
        if let Some(rv) = &self.resource_version {
            preconditions.insert("resourceVersion".into(), json!(rv));
        }
        if !preconditions.is_empty() {
            body.insert("preconditions".into(), Value::Object(preconditions));
        }
        serde_json::to_vec(&body).map_err(Error::Encode)
    }
}

/// Says which part of a container's log to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogParams {
    /// Names the container; needed when the pod has several.
    pub container: Option<String>,
    /// Keeps the stream open and sends lines as they are written.
    pub follow: bool,
    /// Reads the log of the run before this one.
    pub previous: bool,
    /// Bounds the answer to the last lines.
    pub tail_lines: Option<u64>,
    /// Bounds the answer to the last seconds.
    pub since_seconds: Option<u64>,
    /// Puts the time before each line.
    pub timestamps: bool,
}

impl LogParams {
    pub(crate) fn query(&self, query: &mut Query) {
        query.opt("container", self.container.as_deref());
        query.opt(
            "tailLines",
            self.tail_lines.map(|n| n.to_string()).as_deref(),
        );
        query.opt(
            "sinceSeconds",
            self.since_seconds.map(|n| n.to_string()).as_deref(),
        );
        for (name, on) in [
            ("follow", self.follow),
            ("previous", self.previous),
            ("timestamps", self.timestamps),
        ] {
            if on {
                query.push(name, "true");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_options_carry_only_what_was_said() {
        let body =
            |p: &DeleteParams| -> Value { serde_json::from_slice(&p.body().unwrap()).unwrap() };
        assert_eq!(
            body(&DeleteParams::default()),
            json!({"kind": "DeleteOptions", "apiVersion": "v1"})
        );
        let full = DeleteParams::background().grace(0).uid("u");
        assert_eq!(body(&full)["propagationPolicy"], "Background");
        assert_eq!(body(&full)["gracePeriodSeconds"], 0);
        assert_eq!(body(&full)["preconditions"], json!({"uid": "u"}));
    }

    #[test]
    fn list_query_is_escaped() {
        let mut query = Query::default();
        ListParams::default()
            .labels("a in (b,c)")
            .limit(5)
            .query(&mut query);
        assert_eq!(
            query.finish("/p"),
            "/p?labelSelector=a%20in%20%28b%2Cc%29&limit=5"
        );
    }
}
