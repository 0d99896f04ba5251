//! Types as the scripts write them.
//!
//! A type is a word (`string`, `numeric`, `boolean`, `untyped`, `deduced`,
//! `atomic` for anything as one value, or the name of another type) or one of:
//! `{fields: {name: type}}`, with `atomic: true`, `others: type` and
//! `defaults: {name: value}`; `{map: type}`, with `atomic: true`;
//! `{atomic: type}`, `{set: type}`, `{list: type, keys: [...]}` for lists.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use registry::fieldmerge::schema::{
    Atom, Builder, FieldType, ListKind, MapType, Scalar, Schema, TypeId,
};
use serde_json::Value;

struct Reader<'v> {
    builder: Builder,
    named: BTreeMap<&'v str, TypeId>,
}

/// Reads types by name; `object` is the root.
pub(crate) fn schema(types: &Value) -> Arc<Schema> {
    let types = types.as_object().expect("types by name");
    let mut builder = Builder::default();
    let named: BTreeMap<&str, TypeId> = types
        .keys()
        .map(|name| (name.as_str(), builder.add(Atom::default())))
        .collect();
    let mut reader = Reader { builder, named };
    for (name, ty) in types {
        let atom = reader.atom(ty);
        let id = reader.named[name.as_str()];
        reader.builder.set(id, atom);
    }
    let root = reader.named["object"];
    Arc::new(reader.builder.build(root))
}

impl<'v> Reader<'v> {
    fn id(&mut self, ty: &'v Value) -> TypeId {
        match ty.as_str() {
            Some("deduced") => Builder::DEDUCED,
            Some("atomic") => Builder::UNTYPED_ATOMIC,
            Some(name) if self.named.contains_key(name) => self.named[name],
            _ => {
                let atom = self.atom(ty);
                self.builder.add(atom)
            }
        }
    }

    fn atom(&mut self, ty: &'v Value) -> Atom {
        match ty.as_str() {
            Some("string") => return Atom::scalar(Scalar::String),
            Some("numeric") => return Atom::scalar(Scalar::Numeric),
            Some("boolean") => return Atom::scalar(Scalar::Boolean),
            Some("untyped") => return Atom::scalar(Scalar::Untyped),
            Some("deduced") => return self.builder.get(Builder::DEDUCED).unwrap().clone(),
            Some(other) => panic!("no such type: {other}"),
            None => {}
        }
        let atomic = ty["atomic"] == true;
        if let Some(fields) = ty["fields"].as_object() {
            return self.fields(ty, fields, atomic);
        }
        if let Some(element) = ty.get("map") {
            return Atom::map(self.id(element), atomic);
        }
        let keys = || {
            let keys = ty["keys"].as_array().expect("keys").iter();
            keys.map(|k| k.as_str().unwrap().to_owned()).collect()
        };
        let (element, kind) = match (ty.get("set"), ty.get("list")) {
            (Some(element), _) => (element, ListKind::Set),
            (_, Some(element)) => (element, ListKind::Map(keys())),
            _ => (&ty["atomic"], ListKind::Atomic),
        };
        Atom::list(self.id(element), kind)
    }

    fn fields(
        &mut self,
        ty: &'v Value,
        fields: &'v serde_json::Map<String, Value>,
        atomic: bool,
    ) -> Atom {
        let declared = fields.iter().map(|(name, field)| {
            let field = FieldType {
                ty: self.id(field),
                default: ty["defaults"].get(name).cloned(),
            };
            (Cow::Owned(name.clone()), field)
        });
        let fields = declared.collect();
        Atom {
            map: Some(MapType {
                fields,
                element: ty.get("others").map(|ty| self.id(ty)),
                atomic,
            }),
            ..Atom::default()
        }
    }
}
