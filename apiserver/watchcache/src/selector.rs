//! What a list or a watch wants to see.

use meta::{FieldSelector, LabelSelector, Object};

/// A conjunction of scope and selectors; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this name.
    pub name: Option<String>,
    /// Only objects with such labels.
    pub labels: LabelSelector,
    /// Only objects with such fields.
    pub fields: FieldSelector,
}

impl Selector {
    /// Creates the selector of everything, in one namespace or in all.
    pub fn all(namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Tells whether an object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|ns| *ns == object.meta.namespace)
            && self.name.as_ref().is_none_or(|n| *n == object.meta.name)
            && self.labels.matches(&object.meta.labels)
            && self.fields.matches(|f| object.field(f))
    }

    /// Tells whether every object of the namespace (or of all) is selected, so
    /// that a count of keys is a count of matches.
    pub fn is_whole_scope(&self) -> bool {
        self.name.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the one namespace that can match, if there is only one.
    pub fn pinned_namespace(&self) -> Option<&str> {
        let by_field = || {
            let exact = self.fields.exact("metadata.namespace");
            // An empty value selects what lies at cluster scope.
            exact.filter(|ns| !ns.is_empty())
        };
        self.namespace.as_deref().or_else(by_field)
    }

    /// Returns the one name that can match, if there is only one.
    pub fn pinned_name(&self) -> Option<&str> {
        self.name
            .as_deref()
            .or_else(|| self.fields.exact("metadata.name"))
    }
}
