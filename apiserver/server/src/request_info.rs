//! What a request asks for, read from its method, path and query alone.
//!
//! The rules are those of apiserver's `RequestInfoFactory.NewRequestInfo`:
//!
//! ```text
//! /api/v1[/watch]/namespaces/{ns}/{resource}[/{name}[/{subresource}...]]
//! /apis/{group}/{version}[/watch]/{resource}[/{name}[/{subresource}...]]
//! ```
//!
//! Anything else is a non-resource request whose verb is its method.

use std::fmt;

use http::Method;

use crate::query::Query;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows changes.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes part of an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
    /// HEAD, OPTIONS and other methods on any path, and every method on a path
    /// that names no resource.
    Other(&'static str),
}

impl Verb {
    /// Returns the verb as authorization and audit write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other(name) => name,
        }
    }

    /// Returns the verb as metrics write it.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::List => "LIST",
            Self::Watch => "WATCH",
            Self::Create => "POST",
            Self::Update => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::DeleteCollection => "DELETECOLLECTION",
            Self::Other(_) => "OTHER",
        }
    }

    /// Tells whether the verb only reads.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request's meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// What is to be done.
    pub(crate) verb: Verb,
    /// The path as sent, without the query.
    pub(crate) path: String,
    /// The resource, when the path names one.
    pub(crate) resource: Option<ResourceRequest>,
}

/// The resource a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The API version.
    pub(crate) version: String,
    /// The namespace, when the path names one.
    pub(crate) namespace: Option<String>,
    /// The resource, plural.
    pub(crate) resource: String,
    /// The subresource, `status`, or empty.
    pub(crate) subresource: String,
    /// What follows the subresource (proxy paths).
    pub(crate) rest: Vec<String>,
    /// The object's name, when the path or a field selector names one.
    pub(crate) name: Option<String>,
    /// Whether the name stands in the path rather than in a selector.
    pub(crate) name_in_path: bool,
}

impl ResourceRequest {
    /// Returns `resource` or `resource/subresource`.
    pub(crate) fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Returns the resource without its version.
    pub(crate) fn group_resource(&self) -> meta::GroupResource {
        meta::GroupResource::new(&self.group, &self.resource)
    }
}

impl RequestInfo {
    /// Reads a request's meaning. Never fails: what has no meaning is a
    /// non-resource request, and nothing is served there.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let plain = Self {
            verb: method_verb(method),
            path: path.to_owned(),
            resource: None,
        };
        // First decoded and then split: a slash that was escaped is one, as upstream.
        let Some(path) = crate::query::decode_path(path) else {
            return plain;
        };
        let segments = path.split('/').filter(|s| !s.is_empty());
        let mut parts = segments.map(str::to_owned);
        let (group, version) = match parts.next().as_deref() {
            Some("api") => (String::new(), parts.next()),
            Some("apis") => (parts.next().unwrap_or_default(), parts.next()),
            _ => return plain,
        };
        let Some(version) = version else { return plain };
        let mut rest: Vec<String> = parts.collect();
        let legacy_watch = rest.first().is_some_and(|s| s == "watch");
        if legacy_watch {
            rest.remove(0);
        }
        let Some(resource) = resource_of(group, version, rest) else {
            return plain;
        };
        let mut info = Self {
            resource: Some(resource),
            ..plain
        };
        info.verb = resource_verb(method);
        if legacy_watch {
            info.verb = Verb::Watch;
        }
        info.refine(query);
        info
    }

    /// Turns a read or deletion without a name into that of a collection.
    fn refine(&mut self, query: &Query) {
        let Some(r) = &mut self.resource else { return };
        if r.name.is_none() {
            match self.verb {
                Verb::Get if query.flag("watch") => self.verb = Verb::Watch,
                Verb::Get => self.verb = Verb::List,
                Verb::Delete => self.verb = Verb::DeleteCollection,
                _ => {}
            }
        }
        r.name_in_path = r.name.is_some();
        // A selector that pins the name counts as naming it, for authorization.
        if r.name.is_none()
            && matches!(self.verb, Verb::List | Verb::Watch)
            && let Some(text) = query.get("fieldSelector")
            && let Ok(selector) = meta::FieldSelector::parse(text)
            && let Some(name) = selector.exact("metadata.name")
        {
            r.name = Some(name.to_owned());
        }
    }

    /// Tells whether the request may last as long as its client likes, and so
    /// is exempt from the request timeout.
    pub(crate) fn is_long_running(&self, query: &Query) -> bool {
        let Some(r) = &self.resource else {
            return false;
        };
        self.verb == Verb::Watch
            || matches!(
                r.subresource.as_str(),
                "exec" | "attach" | "portforward" | "proxy"
            )
            || (r.subresource == "log" && query.flag("follow"))
    }
}

/// Namespace subresources; any other word there is a resource in the namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

fn resource_of(group: String, version: String, mut parts: Vec<String>) -> Option<ResourceRequest> {
    let mut namespace = None;
    if parts.first().is_some_and(|s| s == "namespaces") && parts.len() > 1 {
        namespace = Some(parts[1].clone());
        let in_namespace = parts.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&parts[2].as_str());
        if in_namespace {
            parts.drain(..2);
        }
    }
    let mut parts = parts.into_iter();
    let resource = parts.next()?;
    Some(ResourceRequest {
        group,
        version,
        namespace,
        resource,
        name: parts.next(),
        subresource: parts.next().unwrap_or_default(),
        rest: parts.collect(),
        name_in_path: false,
    })
}

fn resource_verb(method: &Method) -> Verb {
    match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => method_verb(method),
    }
}

fn method_verb(method: &Method) -> Verb {
    Verb::Other(match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "unknown",
    })
}

#[cfg(test)]
mod test;
