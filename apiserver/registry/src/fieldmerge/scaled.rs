//! Who owns the replicas, seen through the `scale` subresource (apimachinery's
//! scale handler).
//!
//! A Scale is another object than the one it belongs to, and its replicas stand
//! at a path of their own. So what managers own of the object's replicas is
//! shown as owned in the Scale, the write is accounted for there, and what came
//! of it is carried back.

use std::collections::{BTreeMap, BTreeSet};

use super::element::{Path, PathElement};
use super::entries::{Managed, ManagerId, Operation, Owned};
use super::served;
use super::set::{self, Set};
use crate::kind::Kind;

/// The version of a Scale.
const SCALE: &str = "autoscaling/v1";
/// Where a Scale has its replicas.
const REPLICAS: &str = "spec.replicas";

/// Where each version of a kind, by `apiVersion`, has its replicas; `None` for a
/// version that cannot be scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasPaths(pub BTreeMap<String, Option<Path>>);

impl ReplicasPaths {
    /// Returns the paths of a kind: in every version `spec.replicas`, or what the
    /// definition of a custom resource says.
    pub fn of(kind: &Kind) -> Self {
        let strategy = kind.strategy();
        let custom = strategy.scale();
        let replicas = custom.map_or(REPLICAS, |paths| paths.spec_replicas.as_str());
        let path = || Some(replicas.split('.').map(PathElement::field).collect());
        let versions: Vec<String> = match kind.is_custom() {
            true => strategy.versions(),
            false => served::versions(kind).map(Kind::api_version).collect(),
        };
        Self(versions.into_iter().map(|v| (v, path())).collect())
    }
}

/// Returns what the managers of an object own of its Scale.
pub fn to_scale(object: &Managed, paths: &ReplicasPaths) -> Managed {
    let mut scale: BTreeMap<ManagerId, Owned> = BTreeMap::new();
    for (id, owned) in &object.0 {
        let path = paths.0.get(&owned.api_version).and_then(Option::as_ref);
        if path.is_some_and(|path| owned.set.contains(path)) {
            let shown = Owned {
                set: set::of_fields(&[REPLICAS]),
                api_version: SCALE.to_owned(),
                time: owned.time,
            };
            // Who updates in several versions is one manager here.
            let kept = scale.entry(in_version(id, SCALE)).or_insert(shown);
            kept.time = kept.time.max(owned.time);
        }
    }
    Managed(scale)
}

/// Carries back what the managers own of a Scale that was written through a
/// version of its object. Whoever lost the replicas there has lost them here;
/// who gained them has an entry of his own, of no time as upstream. Entries in
/// versions that are not known go.
pub fn to_object(
    object: &Managed,
    scale: &Managed,
    paths: &ReplicasPaths,
    version: &str,
) -> Managed {
    let mut left = Managed::default();
    let mut had = BTreeSet::new();
    for (id, owned) in &object.0 {
        let Some(path) = paths.0.get(&owned.api_version) else {
            continue;
        };
        let mut owned = owned.clone();
        if let Some(path) = path.as_ref().filter(|path| owned.set.contains(path)) {
            let shown = in_version(id, SCALE);
            if scale.0.contains_key(&shown) {
                had.insert(shown);
            } else {
                owned.set = owned.set.difference(&only(path));
            }
        }
        if !owned.set.is_empty() {
            left.0.insert(id.clone(), owned);
        }
    }
    let Some(path) = paths.0.get(version).and_then(Option::as_ref) else {
        return left;
    };
    let replicas = set::of_fields(&[REPLICAS]);
    for (id, owned) in scale.0.iter().filter(|(id, _)| !had.contains(id)) {
        if owned.set.intersection(&replicas).is_empty() {
            continue;
        }
        let gained = left.0.entry(in_version(id, version)).or_insert(Owned {
            set: Set::new(),
            api_version: version.to_owned(),
            time: None,
        });
        gained.set.insert(path);
    }
    left
}

/// Returns a manager's entry in another version. An applier has the same in all.
fn in_version(id: &ManagerId, version: &str) -> ManagerId {
    ManagerId {
        api_version: match id.operation {
            Operation::Apply => String::new(),
            Operation::Update => version.to_owned(),
        },
        ..id.clone()
    }
}

fn only(path: &Path) -> Set {
    std::iter::once(path).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// An entry: who, how, in which version, through what, which fields.
    type Entry<'a> = (&'a str, Operation, &'a str, &'a str, &'a [&'a str]);

    fn managed(entries: &[Entry<'_>]) -> Managed {
        let entry = |&(manager, operation, version, through, fields): &Entry<'_>| {
            let owned = Owned {
                set: set::of_fields(fields),
                api_version: version.to_owned(),
                time: None,
            };
            (ManagerId::new(manager, operation, version, through), owned)
        };
        Managed(entries.iter().map(entry).collect())
    }

    fn paths() -> ReplicasPaths {
        let path = |text: &str| Some(text.split('.').map(PathElement::field).collect());
        ReplicasPaths(BTreeMap::from([
            ("apps/v1".to_owned(), path("spec.replicas")),
            ("apps/v2".to_owned(), path("spec.count")),
            ("apps/v3".to_owned(), None),
        ]))
    }

    use Operation::{Apply, Update};
    const BOTH: &[&str] = &["spec.replicas", "spec.selector"];
    const R: &[&str] = &["spec.replicas"];
    const S: &[&str] = &["spec.selector"];

    #[test]
    fn a_scale_shows_who_owns_the_replicas() {
        let mut object = managed(&[
            ("a", Apply, "apps/v1", "", BOTH),
            ("b", Update, "apps/v1", "", S),
            ("c", Update, "apps/v2", "scale", &["spec.count"]),
            ("d", Update, "apps/v2", "", R),
            ("e", Update, "apps/v3", "", R),
            ("f", Update, "apps/v9", "", R),
            ("g", Update, "apps/v1", "", R),
            ("g", Update, "apps/v2", "", &["spec.count"]),
        ]);
        let time = Timestamp::from_second(7).ok();
        for owned in object.0.values_mut().filter(|o| o.api_version == "apps/v2") {
            owned.time = time;
        }
        let scale = to_scale(&object, &paths());
        let mut expected = managed(&[
            ("a", Apply, SCALE, "", R),
            ("c", Update, SCALE, "scale", R),
            ("g", Update, SCALE, "", R),
        ]);
        for (id, owned) in &mut expected.0 {
            owned.time = time.filter(|_| id.manager != "a");
        }
        assert_eq!(scale, expected);
    }

    #[test]
    fn what_a_scale_says_is_carried_back() {
        for operation in [Apply, Update] {
            for taken in [Apply, Update] {
                let object = managed(&[
                    ("a", operation, "apps/v1", "", BOTH),
                    ("b", operation, "apps/v2", "", &["spec.count"]),
                    ("c", operation, "apps/v3", "", S),
                    ("d", operation, "apps/v9", "", S),
                ]);
                let scale = managed(&[
                    ("s", taken, SCALE, "scale", R),
                    ("t", taken, SCALE, "scale", &["status.replicas"]),
                ]);
                assert_eq!(
                    to_object(&object, &scale, &paths(), "apps/v1"),
                    managed(&[
                        ("a", operation, "apps/v1", "", S),
                        ("c", operation, "apps/v3", "", S),
                        ("s", taken, "apps/v1", "scale", R),
                    ])
                );
            }
        }
    }

    #[test]
    fn what_a_scale_leaves_alone_stays_as_it_is() {
        let mut object = managed(&[
            ("a", Apply, "apps/v1", "", BOTH),
            ("a", Update, "apps/v1", "", BOTH),
            ("a", Update, "apps/v2", "scale", &["spec.count"]),
        ]);
        for owned in object.0.values_mut() {
            owned.time = Timestamp::from_second(7).ok();
        }
        let scale = to_scale(&object, &paths());
        assert_eq!(to_object(&object, &scale, &paths(), "apps/v1"), object);
        // The same manager through the subresource owns them besides.
        let mut both = scale.clone();
        both.0.extend(managed(&[("a", Apply, SCALE, "scale", R)]).0);
        let mut expected = object.clone();
        expected
            .0
            .extend(managed(&[("a", Apply, "apps/v2", "scale", &["spec.count"])]).0);
        assert_eq!(to_object(&object, &both, &paths(), "apps/v2"), expected);
    }

    #[test]
    fn built_in_kinds_have_their_replicas_in_one_place() {
        let kind = crate::kinds::find("apps", "v1", "deployments").unwrap();
        let path = vec![PathElement::field("spec"), PathElement::field("replicas")];
        let expected = BTreeMap::from([("apps/v1".to_owned(), Some(path))]);
        assert_eq!(ReplicasPaths::of(kind).0, expected);
    }
}
