//! How two values differ.

use std::collections::BTreeMap;

use meta::marks::Same;
use serde_json::{Map, Value};

use super::super::element::{self, Path, PathElement};
use super::super::error::Problems;
use super::super::reset::Filter;
use super::super::schema::{ListKind, ListType, MapType, Narrowed, Schema, Shape, TypeId};
use super::super::set::Set;
use super::{array, keys, validate};

/// The paths at which a new value differs from an old one, each in one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What only the new one has.
    pub added: Set,
    /// What both have, and not the same.
    pub modified: Set,
    /// What only the old one has.
    pub removed: Set,
}

impl Comparison {
    /// Tells whether the values are the same.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Leaves out what a filter does.
    #[must_use]
    pub fn filtered(self, filter: Option<&Filter>) -> Self {
        let Some(filter) = filter else { return self };
        Self {
            added: filter.apply(&self.added),
            modified: filter.apply(&self.modified),
            removed: filter.apply(&self.removed),
        }
    }
}

/// Compares two values of one type, of which some members are known to be the same.
pub(in super::super) fn compare(
    schema: &Schema,
    old: &Value,
    new: &Value,
    same: &Same<'_>,
) -> Result<Comparison, Problems> {
    let mut walk = Walk {
        schema,
        same,
        path: Path::new(),
        found: Comparison::default(),
    };
    walk.value(schema.root(), Some(old), Some(new))?;
    Ok(walk.found)
}

struct Walk<'s> {
    schema: &'s Schema,
    same: &'s Same<'s>,
    path: Path,
    found: Comparison,
}

impl Walk<'_> {
    /// Compares two values of which at least one is there.
    fn value(
        &mut self,
        ty: TypeId,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Problems> {
        let schema = self.schema;
        let atom = schema.atom(ty);
        let (a, b) = (atom.narrow(old), atom.narrow(new));
        let is_leaf = match (old, new) {
            (_, None) => self.narrowed(a, old, new)?,
            (None, _) => self.narrowed(b, old, new)?,
            _ if a.same(b) => self.narrowed(b, old, new)?,
            _ => {
                // Of two kinds: what the old one had is gone, and what the new
                // one has is new.
                self.narrowed(a, old, new)?;
                self.narrowed(b, old, new)?
            }
        };
        if !is_leaf {
            if old.is_none() {
                self.found.added.insert(&self.path);
            } else if new.is_none() {
                self.found.removed.insert(&self.path);
            }
        }
        Ok(())
    }

    /// Compares two values as one shape. Returns whether that is a leaf.
    fn narrowed(
        &mut self,
        narrowed: Narrowed<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<bool, Problems> {
        match narrowed.shape() {
            Shape::Scalar(scalar) => {
                let wrong = |value, side| validate::scalar(scalar, value, side);
                if let (Some(a), Some(b)) = (wrong(old, "lhs: "), wrong(new, "rhs: ")) {
                    return Err(Problems::one(a).and(Problems::one(b)));
                }
                self.leaf(old, new);
                Ok(true)
            }
            Shape::Map(map) => {
                if map.atomic || len(old) + len(new) == 0 {
                    self.leaf(old, new);
                    return Ok(true);
                }
                self.fields(map, old, new)?;
                Ok(false)
            }
            Shape::List(list) => {
                let (a, b) = (array(old), array(new));
                if list.kind == ListKind::Atomic || a.is_empty() && b.is_empty() {
                    self.leaf(old, new);
                    return Ok(true);
                }
                self.items(list, a, b)?;
                Ok(false)
            }
            Shape::Nothing => Err(Problems::one("schema error: invalid atom".to_owned())),
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let set = match (old, new) {
            (None, _) => &mut self.found.added,
            (_, None) => &mut self.found.removed,
            (Some(a), Some(b)) if element::compare(a, b).is_ne() => &mut self.found.modified,
            _ => return,
        };
        set.insert(&self.path);
    }

    fn below(
        &mut self,
        element: PathElement,
        ty: TypeId,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Problems> {
        self.path.push(element);
        let result = self.value(ty, old, new);
        let element = self.path.pop();
        result.map_err(|problems| match element {
            Some(element) => problems.below(&element),
            None => problems,
        })
    }

    fn fields<'v>(
        &mut self,
        map: &MapType,
        old: Option<&'v Value>,
        new: Option<&'v Value>,
    ) -> Result<(), Problems> {
        let (old, new) = (
            old.and_then(Value::as_object),
            new.and_then(Value::as_object),
        );
        let members = |fields: Option<&'v Map<String, Value>>| fields.into_iter().flatten();
        let mut names: Vec<&String> = members(old).map(|(name, _)| name).collect();
        let sorted = names.len();
        names.extend(
            members(new)
                .map(|(name, _)| name)
                .filter(|name| old.is_none_or(|old| !old.contains_key(*name))),
        );
        if names.len() > sorted {
            names.sort_unstable();
        }
        for name in names {
            if self.path.is_empty() && self.same.member(name) {
                continue;
            }
            let (old, new) = (
                old.and_then(|fields| fields.get(name)),
                new.and_then(|fields| fields.get(name)),
            );
            // Most writes leave most fields alone; those need no walk, and no path.
            if old == new {
                continue;
            }
            let element = PathElement::field(name.as_str());
            let Some(ty) = map.field(name) else {
                let why = Problems::one("field not declared in schema".to_owned());
                return Err(why.below(&element));
            };
            self.below(element, ty, old, new)?;
        }
        Ok(())
    }

    fn items(&mut self, list: &ListType, old: &[Value], new: &[Value]) -> Result<(), Problems> {
        let mut by_name: BTreeMap<PathElement, [Vec<&Value>; 2]> = BTreeMap::new();
        for (side, items) in [old, new].into_iter().enumerate() {
            for (index, item) in items.iter().enumerate() {
                let name = keys::item(self.schema, list, item)
                    .map_err(|why| Problems::one(format!("element {index}: {why}")))?;
                if let Some(items) = by_name.entry(name).or_default().get_mut(side) {
                    items.push(item);
                }
            }
        }
        for (name, [old, new]) in by_name {
            self.named(list, name, &old, &new)?;
        }
        Ok(())
    }

    /// Compares the items of one name. Several of one name count as one value,
    /// since what is inside of them cannot be told apart.
    fn named(
        &mut self,
        list: &ListType,
        name: PathElement,
        old: &[&Value],
        new: &[&Value],
    ) -> Result<(), Problems> {
        match (old.len(), new.len()) {
            (1, 1) if old == new => return Ok(()),
            (0 | 1, 0 | 1) => {
                return self.below(
                    name,
                    list.element,
                    old.first().copied(),
                    new.first().copied(),
                );
            }
            (0 | 1, _) => {
                if let Some(old) = old.first() {
                    self.below(name.clone(), list.element, Some(old), None)?;
                }
                self.path.push(name);
                self.found.added.insert(&self.path);
            }
            (_, 0 | 1) => {
                if let Some(new) = new.first() {
                    self.below(name.clone(), list.element, None, Some(new))?;
                }
                self.path.push(name);
                self.found.removed.insert(&self.path);
            }
            _ => {
                let same = old.len() == new.len()
                    && old
                        .iter()
                        .zip(new)
                        .all(|(a, b)| element::compare(a, b).is_eq());
                self.path.push(name);
                if !same {
                    self.found.modified.insert(&self.path);
                }
            }
        }
        self.path.pop();
        Ok(())
    }
}

fn len(value: Option<&Value>) -> usize {
    value.and_then(Value::as_object).map_or(0, Map::len)
}
