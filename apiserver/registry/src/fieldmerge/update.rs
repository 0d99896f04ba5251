//! Apply and Update over the sets of all managers (structured-merge-diff,
//! `merge`): what they do to the object, and to who owns what.

use std::collections::BTreeMap;

use super::element::compare;
use super::entries::{Managed, ManagerId, Owned};
use super::error::{Conflict, MergeError, Problems};
use super::reset::{Filter, ResetFields};
use super::set::Set;
use super::typed::{self, Comparison, Typed};

/// Why an object is not to be had in a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertError {
    /// Nobody serves the version any more: what was owned in it is forgotten.
    UnknownVersion,
    /// The conversion failed.
    Failed(String),
}

/// Turns objects into other versions of their kind.
pub trait Converter: Send + Sync {
    /// Returns the object in a version, typed by that version's schema. An
    /// object that is in the version already comes back as it is.
    fn convert(&self, object: &Typed, version: &str) -> Result<Typed, ConvertError>;
}

/// Knows one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion<'v>(pub &'v str);

impl Converter for OneVersion<'_> {
    fn convert(&self, object: &Typed, version: &str) -> Result<Typed, ConvertError> {
        match version == self.0 {
            true => Ok(object.clone()),
            false => Err(ConvertError::UnknownVersion),
        }
    }
}

/// Brings objects and sets up to date with a write.
#[derive(Clone, Copy)]
pub struct Updater<'c> {
    /// The other versions.
    pub converter: &'c dyn Converter,
    /// What cannot be owned through the endpoint of the write.
    pub reset: &'c ResetFields,
}

/// The outcome of an apply.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The object; `None` when it stays as it is.
    pub object: Option<Typed>,
    /// What everybody owns. The times are those of before.
    pub managed: Managed,
}

/// An applied configuration, and who applies it.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The configuration.
    pub object: &'a Typed,
    /// Its version.
    pub version: &'a str,
    /// The entry of who applies it.
    pub id: &'a ManagerId,
    /// Whether to take what others own.
    pub force: bool,
}

pub(super) fn value_error(doing: &'static str) -> impl FnOnce(Problems) -> MergeError {
    move |problems| MergeError::Value { doing, problems }
}

impl Updater<'_> {
    /// Converts; `None` stands for a version that nobody serves.
    fn convert(&self, object: &Typed, version: &str) -> Result<Option<Typed>, MergeError> {
        match self.converter.convert(object, version) {
            Ok(object) => Ok(Some(object)),
            Err(ConvertError::UnknownVersion) => Ok(None),
            Err(ConvertError::Failed(why)) => Err(MergeError::Convert {
                version: version.to_owned(),
                why,
            }),
        }
    }

    fn filter(&self, version: &str) -> Option<&Filter> {
        self.reset.get(version)
    }

    fn filtered(&self, version: &str, set: Set) -> Set {
        match self.filter(version) {
            Some(filter) => filter.apply(&set),
            None => set,
        }
    }

    /// Brings the sets up to the schema of today; entries in versions that
    /// nobody serves go.
    fn reconcile(&self, live: &Typed, managed: &Managed) -> Result<Managed, MergeError> {
        let mut out = Managed::default();
        for (id, owned) in &managed.0 {
            if let Some(typed) = self.convert(live, &owned.api_version)? {
                let mut owned = owned.clone();
                typed::reconcile_in_place(typed.schema(), &mut owned.set);
                out.0.insert(id.clone(), owned);
            }
        }
        Ok(out)
    }

    /// Takes from every manager but one what a write changed: conflicts unless
    /// forced. Returns the changes in the write's version.
    fn take(
        &self,
        (old, new): (&Typed, &Typed),
        version: &str,
        managed: &mut Managed,
        writer: Option<&ManagerId>,
        force: bool,
    ) -> Result<Comparison, MergeError> {
        let own = self.changes(old, new, version)?;
        let mut by_version = BTreeMap::from([(version.to_owned(), own.clone())]);
        let mut conflicts = Vec::new();
        let mut left = Managed::default();
        for (id, mut owned) in std::mem::take(&mut managed.0) {
            if Some(&id) == writer {
                left.0.insert(id, owned);
                continue;
            }
            if !by_version.contains_key(&owned.api_version) {
                let old = self.convert(old, &owned.api_version)?;
                let new = self.convert(new, &owned.api_version)?;
                let (Some(old), Some(new)) = (old, new) else {
                    continue;
                };
                let changes = self.changes(&old, &new, &owned.api_version)?;
                by_version.insert(owned.api_version.clone(), changes);
            }
            let Some(changes) = by_version.get(&owned.api_version) else {
                continue;
            };
            let modified = owned.set.intersection(&changes.modified);
            let conflict = modified.union(&owned.set.intersection(&changes.added));
            conflicts.extend(conflict.paths().into_iter().map(|path| Conflict {
                manager: id.clone(),
                path,
            }));
            // Most own nothing of what changed, and nothing of theirs is copied.
            for lost in [&conflict, &changes.removed] {
                if !owned.set.intersection(lost).is_empty() {
                    owned.set = owned.set.difference(lost);
                }
            }
            if !owned.set.is_empty() {
                left.0.insert(id, owned);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(MergeError::Conflict(conflicts));
        }
        *managed = left;
        Ok(own)
    }

    fn changes(&self, old: &Typed, new: &Typed, version: &str) -> Result<Comparison, MergeError> {
        let changes = old.compare(new).map_err(value_error("compare objects"))?;
        Ok(changes.filtered(self.filter(version)))
    }

    /// Accounts for an object that was written in any way but apply. Returns
    /// what others, and the writer from before, still own, and what the writer
    /// owns by this write.
    pub fn update(
        &self,
        live: &Typed,
        new: &Typed,
        version: &str,
        managed: &Managed,
    ) -> Result<(Managed, Set), MergeError> {
        let mut managed = self.reconcile(live, managed)?;
        let changes = self.take((live, new), version, &mut managed, None, true)?;
        let set = changes.modified.union(&changes.added);
        Ok((managed, self.filtered(version, set)))
    }

    /// Merges a configuration into an object.
    pub fn apply(
        &self,
        live: &Typed,
        config: Config<'_>,
        managed: &Managed,
    ) -> Result<Merged, MergeError> {
        let mut managed = self.reconcile(live, managed)?;
        let merged = live
            .merge(config.object)
            .map_err(value_error("merge config"))?;
        let last = managed.0.remove(config.id);
        let owned = Owned {
            set: self.filtered(config.version, config.object.to_set()),
            api_version: config.version.to_owned(),
            time: last.as_ref().and_then(|last| last.time),
        };
        managed.0.insert(config.id.clone(), owned);
        let new = match last {
            // Who states all that it stated before gives nothing up.
            Some(last) if !self.is_stated(&last, config, &managed) => {
                let pruned = self.prune(&merged, &managed, config.version, &last)?;
                // What lost all it had goes, unless somebody states it to be empty.
                let mut owned = Set::new();
                for other in managed.0.values() {
                    if other.api_version == config.version {
                        owned = owned.union(&other.set);
                    }
                }
                pruned
                    .without_emptied(&merged, &owned)
                    .merge(config.object)
                    .map_err(value_error("merge config"))?
            }
            _ => merged.clone(),
        };
        self.take(
            (live, &new),
            config.version,
            &mut managed,
            Some(config.id),
            config.force,
        )?;
        managed.0.retain(|_, owned| !owned.set.is_empty());
        let same = compare(live.value(), new.value()).is_eq();
        Ok(Merged {
            object: Some(new).filter(|_| !same),
            managed,
        })
    }

    /// Tells whether a configuration states all that its manager applied last.
    fn is_stated(&self, last: &Owned, config: Config<'_>, managed: &Managed) -> bool {
        let now = managed.0.get(config.id);
        last.set.is_empty()
            || last.api_version == config.version
                && now.is_some_and(|now| last.set.difference(&now.set).is_empty())
    }

    /// Removes what the manager applied last time and does not apply now, unless
    /// somebody else owns it.
    fn prune(
        &self,
        merged: &Typed,
        managed: &Managed,
        version: &str,
        last: &Owned,
    ) -> Result<Typed, MergeError> {
        let Some(merged) = self.convert(merged, &last.api_version)? else {
            return Ok(merged.clone());
        };
        let pruned = merged.remove(&merged.named(&last.set));
        let pruned = self.add_back_owned(&merged, pruned, &last.api_version, managed)?;
        let pruned = self.add_back_dangling(&merged, &pruned, last)?;
        match self.convert(&pruned, version)? {
            Some(pruned) => Ok(pruned),
            None => Err(MergeError::Convert {
                version: version.to_owned(),
                why: "the version of the write is not served".to_owned(),
            }),
        }
    }

    /// Adds back what pruning removed and somebody owns, the new configuration
    /// included. The pruned version comes first: what it lost may be needed to
    /// convert it.
    fn add_back_owned(
        &self,
        merged: &Typed,
        mut pruned: Typed,
        version: &str,
        managed: &Managed,
    ) -> Result<Typed, MergeError> {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for owned in managed.0.values() {
            let set = by_version.entry(&owned.api_version).or_default();
            *set = std::mem::take(set).union(&owned.set);
        }
        let own = by_version.remove(version).map(|set| (version, set));
        for (version, owned) in own.into_iter().chain(by_version) {
            let merged = self.convert(merged, version)?;
            let (Some(merged), Some(in_version)) = (merged, self.convert(&pruned, version)?) else {
                continue;
            };
            let kept = in_version
                .named(&in_version.to_set())
                .union(&merged.named(&owned));
            pruned = merged.remove(&merged.named(&merged.to_set()).difference(&kept));
        }
        Ok(pruned)
    }

    /// Adds back what pruning removed along with an item or a field and the
    /// manager did not own: what nobody owns, or somebody by an update.
    fn add_back_dangling(
        &self,
        merged: &Typed,
        pruned: &Typed,
        last: &Owned,
    ) -> Result<Typed, MergeError> {
        let Some(pruned) = self.convert(pruned, &last.api_version)? else {
            return Ok(merged.clone());
        };
        let gone = merged
            .named(&merged.to_set())
            .difference(&merged.named(&pruned.to_set()));
        Ok(merged.remove(&gone.intersection(&merged.named(&last.set))))
    }
}
