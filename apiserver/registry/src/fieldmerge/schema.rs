//! What merging must know of types, from wherever it comes: the table of the
//! built-in kinds, the schema of a custom resource, or nothing.
//!
//! A schema is an arena of [`Atom`]s that refer to one another by number, so
//! that types may be recursive, and the number of its root. Schemas that come
//! from one arena share it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::index::Index;

/// Numbers a type within its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(u32);

/// Which scalars a type takes. Null is taken by all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Any of them.
    Untyped,
    /// Strings.
    String,
    /// Integers and floats.
    Numeric,
    /// Booleans.
    Boolean,
}

/// How the items of a list belong to managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The list is one value (`x-kubernetes-list-type: atomic`, the default).
    Atomic,
    /// Each item, a scalar, stands for itself (`set`).
    Set,
    /// Each item, a struct, is told by these keys (`map`).
    Map(Vec<String>),
}

/// Describes a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListType {
    /// What its items are.
    pub element: TypeId,
    /// How they belong to managers.
    pub kind: ListKind,
}

/// Describes a declared field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldType {
    /// What it is.
    pub ty: TypeId,
    /// What an absent one means when it is a key of a list (`protocol: TCP`).
    pub default: Option<Value>,
}

/// The declared fields of a struct.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Sorted by name.
    list: Vec<(Cow<'static, str>, FieldType)>,
    index: Index,
}

impl Fields {
    /// Tells whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns a field by name.
    pub fn get(&self, name: &str) -> Option<&FieldType> {
        let list = &self.list;
        let place = self.index.find(name, list.len(), |at| &*list[at].0)?;
        list.get(place).map(|(_, field)| field)
    }

    /// Tells whether a field is declared.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Declares more fields, or the same anew.
    pub fn declare(&mut self, more: impl IntoIterator<Item = (Cow<'static, str>, FieldType)>) {
        let before = std::mem::take(&mut self.list).into_iter();
        *self = before.chain(more).collect();
    }
}

impl FromIterator<(Cow<'static, str>, FieldType)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Cow<'static, str>, FieldType)>>(fields: I) -> Self {
        let sorted: BTreeMap<_, _> = fields.into_iter().collect();
        let list: Vec<_> = sorted.into_iter().collect();
        let index = Index::of(list.iter().map(|(name, _)| &**name));
        Self { list, index }
    }
}

/// Describes a struct, a map, or a struct that also takes other fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapType {
    /// The declared fields.
    pub fields: Fields,
    /// What other fields are; `None` when there may be none.
    pub element: Option<TypeId>,
    /// Whether the whole is one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
}

impl MapType {
    /// Returns the type of a field, declared or not.
    pub fn field(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).map(|f| f.ty).or(self.element)
    }
}

/// Describes a type: what it is as a scalar, as a list and as a map. Most types
/// are one of them; what is not typed is all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Atom {
    /// The scalars it takes.
    pub scalar: Option<Scalar>,
    /// The list it may be.
    pub list: Option<ListType>,
    /// The map it may be.
    pub map: Option<MapType>,
}

impl Atom {
    /// Describes a scalar.
    pub fn scalar(scalar: Scalar) -> Self {
        Self {
            scalar: Some(scalar),
            ..Self::default()
        }
    }

    /// Describes a list.
    pub fn list(element: TypeId, kind: ListKind) -> Self {
        Self {
            list: Some(ListType { element, kind }),
            ..Self::default()
        }
    }

    /// Describes a map of one type of values.
    pub fn map(element: TypeId, atomic: bool) -> Self {
        Self {
            map: Some(MapType {
                element: Some(element),
                atomic,
                ..MapType::default()
            }),
            ..Self::default()
        }
    }

    /// Returns the type with its map, or else its list, made one value or many:
    /// what a field says of itself overrides what its type says.
    #[must_use]
    pub fn made_atomic(mut self, atomic: bool) -> Self {
        if let Some(map) = &mut self.map {
            map.atomic = atomic;
        } else if let Some(list) = &mut self.list
            && atomic
        {
            list.kind = ListKind::Atomic;
        }
        self
    }
}

/// Types under construction. Every builder has the two untyped ones.
#[derive(Debug)]
pub struct Builder {
    atoms: Vec<Atom>,
}

impl Default for Builder {
    fn default() -> Self {
        let atomic = Atom {
            scalar: Some(Scalar::Untyped),
            list: Atom::list(Self::UNTYPED_ATOMIC, ListKind::Atomic).list,
            map: Atom::map(Self::UNTYPED_ATOMIC, true).map,
        };
        let deduced = Atom {
            map: Atom::map(Self::DEDUCED, false).map,
            ..atomic.clone()
        };
        Self {
            atoms: vec![atomic, deduced],
        }
    }
}

impl Builder {
    /// Anything, as one value.
    pub const UNTYPED_ATOMIC: TypeId = TypeId(0);
    /// Anything: maps field by field, lists and scalars as one value.
    pub const DEDUCED: TypeId = TypeId(1);

    /// Adds a type.
    pub fn add(&mut self, atom: Atom) -> TypeId {
        let id = TypeId(u32::try_from(self.atoms.len()).unwrap_or(u32::MAX));
        self.atoms.push(atom);
        id
    }

    /// Says what an added type is, for one that refers to itself.
    pub fn set(&mut self, id: TypeId, atom: Atom) {
        if let Some(slot) = self.atoms.get_mut(id.0 as usize) {
            *slot = atom;
        }
    }

    /// Returns what an added type is.
    pub fn get(&self, id: TypeId) -> Option<&Atom> {
        self.atoms.get(id.0 as usize)
    }

    /// Ends the construction.
    pub fn build(self, root: TypeId) -> Schema {
        Schema {
            atoms: self.atoms.into(),
            root,
        }
    }
}

/// Types, and which of them is the object's.
#[derive(Clone, Debug)]
pub struct Schema {
    atoms: Arc<[Atom]>,
    root: TypeId,
}

impl Schema {
    /// Returns the schema of an object of which nothing is known.
    pub fn deduced() -> Self {
        Builder::default().build(Builder::DEDUCED)
    }

    /// Returns the same types with another root.
    #[must_use]
    pub fn rooted(&self, root: TypeId) -> Self {
        Self {
            atoms: Arc::clone(&self.atoms),
            root,
        }
    }

    /// Returns the object's type.
    pub fn root(&self) -> TypeId {
        self.root
    }

    /// Returns what a type is; of a number that is none, the type of anything.
    pub fn atom(&self, id: TypeId) -> &Atom {
        self.atoms
            .get(id.0 as usize)
            .unwrap_or(&self.atoms[Builder::UNTYPED_ATOMIC.0 as usize])
    }
}

/// A type narrowed to what a value is. A value that the type does not take, and
/// null, narrow nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrowed<'s> {
    pub(super) map: Option<&'s MapType>,
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<&'s ListType>,
}

/// The one thing as which a value is walked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'s> {
    Map(&'s MapType),
    Scalar(Scalar),
    List(&'s ListType),
    Nothing,
}

impl Atom {
    pub(super) fn narrow(&self, value: Option<&Value>) -> Narrowed<'_> {
        let all = Narrowed {
            map: self.map.as_ref(),
            scalar: self.scalar,
            list: self.list.as_ref(),
        };
        let none = Narrowed {
            map: None,
            scalar: None,
            list: None,
        };
        let only = match value {
            None | Some(Value::Null) => all,
            Some(Value::Object(_)) => Narrowed {
                map: all.map,
                ..none
            },
            Some(Value::Array(_)) => Narrowed {
                list: all.list,
                ..none
            },
            Some(_) => Narrowed {
                scalar: all.scalar,
                ..none
            },
        };
        match only.shape() {
            Shape::Nothing => all,
            _ => only,
        }
    }
}

impl<'s> Narrowed<'s> {
    pub(super) fn shape(self) -> Shape<'s> {
        match self {
            Self { map: Some(map), .. } => Shape::Map(map),
            Self {
                scalar: Some(scalar),
                ..
            } => Shape::Scalar(scalar),
            Self {
                list: Some(list), ..
            } => Shape::List(list),
            _ => Shape::Nothing,
        }
    }

    /// Tells whether two values narrowed the same type alike.
    pub(super) fn same(self, other: Self) -> bool {
        self.map.is_some() == other.map.is_some()
            && self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
    }
}
