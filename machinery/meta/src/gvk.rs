//! Group, version, kind and resource: the coordinates of a type.

use std::fmt;

/// An API group and version, `apps/v1`, or `v1` for the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
}

impl GroupVersion {
    /// Creates a group and version.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Parses an `apiVersion`: `v1` or `group/version`.
    pub fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            None if api_version.is_empty() => None,
            None => Some(Self::new("", api_version)),
            Some((g, v)) if !g.is_empty() && !v.is_empty() && !v.contains('/') => {
                Some(Self::new(g, v))
            }
            Some(_) => None,
        }
    }

    /// Returns the group version with a kind.
    pub fn with_kind(&self, kind: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind::new(&self.group, &self.version, kind)
    }

    /// Returns the group version with a resource.
    pub fn with_resource(&self, resource: impl Into<String>) -> GroupVersionResource {
        GroupVersionResource::new(&self.group, &self.version, resource)
    }

    /// Returns the URL path under which the group version is served.
    pub fn api_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind within a group and version: what a body's `apiVersion` and `kind` say.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The kind, in CamelCase singular.
    pub kind: String,
}

impl GroupVersionKind {
    /// Creates a kind's coordinates.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Returns the `apiVersion` string.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }
}

impl fmt::Display for GroupVersionKind {
    /// Formats as Go's `GroupVersionKind.String` does, which error texts quote.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource within a group and version: what a URL names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The resource, in lower-case plural.
    pub resource: String,
}

impl GroupVersionResource {
    /// Creates a resource's coordinates.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }

    /// Returns the resource without its version, as error messages name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.resource)
    }

    /// Returns the URL path of the collection, in a namespace or across all.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let base = self.group_version().api_path();
        match namespace {
            Some(ns) => format!("{base}/namespaces/{ns}/{}", self.resource),
            None => format!("{base}/{}", self.resource),
        }
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}, Resource={}",
            self.group, self.version, self.resource
        )
    }
}

/// A resource without its version: `deployments.apps`, or `pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The resource, in lower-case plural.
    pub resource: String,
}

impl GroupResource {
    /// Creates a group resource.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_group_versions() {
        for text in ["v1", "apps/v1", "events.k8s.io/v1"] {
            assert_eq!(GroupVersion::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "/v1", "apps/", "a/b/c"] {
            assert_eq!(GroupVersion::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_of_core_and_named_groups() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        assert_eq!(pods.collection_path(Some("a")), "/api/v1/namespaces/a/pods");
        let dep = GroupVersionResource::new("apps", "v1", "deployments");
        assert_eq!(dep.collection_path(None), "/apis/apps/v1/deployments");
        assert_eq!(dep.group_resource().to_string(), "deployments.apps");
    }
}
