//! A value with its type: which fields it has, what it becomes merged with
//! another, how two differ, what is left without some fields.
//!
//! A value was checked when it became a [`Typed`], so everything after that may
//! recurse. Values are shared, never copied, until one is made anew.

mod compare;
mod keys;
mod merge;
mod reconcile;
mod remove;
#[cfg(test)]
mod tests;
mod to_set;
mod validate;

use std::sync::Arc;

use meta::marks::Same;
use serde_json::Value;

pub use compare::Comparison;
pub(super) use compare::compare;
pub use reconcile::reconcile;
pub(super) use reconcile::{is_reconciled, reconcile_in_place};
pub(super) use validate::fits;

use super::error::Problems;
use super::schema::Schema;
use super::set::Set;

/// Says whether a list whose items have names may name one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// It may: a live object that was not applied.
    Allowed,
    /// It may not: an applied configuration.
    Refused,
}

/// A value that conforms to a schema.
#[derive(Clone, Debug)]
pub struct Typed {
    schema: Arc<Schema>,
    value: Arc<Value>,
}

impl Typed {
    /// Checks a value against a schema.
    pub fn new(
        schema: &Arc<Schema>,
        value: impl Into<Arc<Value>>,
        duplicates: Duplicates,
    ) -> Result<Self, Problems> {
        let value = value.into();
        validate::validate(schema, &value, duplicates)?;
        Ok(Self {
            schema: Arc::clone(schema),
            value,
        })
    }

    /// Takes a value that was checked when it was stored, against this schema or an
    /// older one: to be compared, which takes whatever there is.
    pub(super) fn stored(schema: &Arc<Schema>, value: impl Into<Arc<Value>>) -> Self {
        Self {
            schema: Arc::clone(schema),
            value: value.into(),
        }
    }

    /// Returns the value.
    pub fn value(&self) -> &Arc<Value> {
        &self.value
    }

    /// Returns the type.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    fn with(&self, value: Value) -> Self {
        Self {
            schema: Arc::clone(&self.schema),
            value: Arc::new(value),
        }
    }

    /// Returns every leaf and every item of the value: what whoever states this
    /// value owns.
    pub fn to_set(&self) -> Set {
        to_set::to_set(&self.schema, &self.value)
    }

    /// Merges a configuration over this value. Nothing is removed by that; of a
    /// leaf in both, the configuration's stays.
    pub fn merge(&self, config: &Self) -> Result<Self, Problems> {
        let merged = merge::merge(&self.schema, &self.value, &config.value)?;
        Ok(self.with(merged))
    }

    /// Tells how another value differs from this one.
    pub fn compare(&self, new: &Self) -> Result<Comparison, Problems> {
        compare::compare(&self.schema, &self.value, &new.value, &Same::default())
    }

    /// Returns the value without the fields and items of a set.
    #[must_use]
    pub fn remove(&self, set: &Set) -> Self {
        self.with(remove::remove(&self.schema, &self.value, set))
    }

    /// Returns the fields and items of a set, and nothing else, of the value.
    #[must_use]
    pub fn extract(&self, set: &Set) -> Self {
        self.with(remove::extract(&self.schema, &self.value, set))
    }

    /// Drops the nulls that [`Typed::remove`] left of what lost all it had; what is
    /// owned itself stays, empty. `from` is the value from which was removed.
    #[must_use]
    pub(super) fn without_emptied(&self, from: &Self, owned: &Set) -> Self {
        let emptied = remove::Emptied {
            schema: &self.schema,
        };
        self.with(emptied.drop(&from.value, &self.value, owned))
    }

    /// Adds the declared fields that lead to a path of a set of this type.
    pub(super) fn named(&self, set: &Set) -> Set {
        set.with_named_fields(&self.schema, Some(self.schema.root()))
    }
}

/// Returns the items of a list; none of what is no list.
fn array(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
