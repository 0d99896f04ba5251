//! The schema table in memory: what is known of every served type.
//!
//! `build/` writes it from public type data; this file reads it once and keeps
//! it for the life of the process. It is one leaked text whose slices are the
//! names (a few hundred kilobytes with its index). Descriptions, which only
//! OpenAPI needs, stay compressed until asked for.
//!
//! The text's lines, tab-separated:
//! `D name type description map-type union` starts a definition;
//! `F name type r|"" description patch-strategy patch-merge-key list-type
//! list-map-keys map-type default` is a field of the last one. A type is one
//! of the letters in [`parse_type`], `[`type, `{`type or `@`name.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

use crate::index::Index;

/// Numbers a definition in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefId(u32);

/// Describes what a JSON value must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any JSON value.
    Any,
    /// A JSON string.
    String,
    /// A base64 string.
    Byte,
    /// An RFC 3339 time, of whole seconds.
    DateTime,
    /// An RFC 3339 time with six digits of fraction.
    MicroTime,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Number,
    /// A boolean.
    Boolean,
    /// An integer or a string.
    IntOrString,
    /// A resource quantity, as a string or a number.
    Quantity,
    /// An object whose fields are not described.
    Object,
    /// A list.
    Array(Box<Type>),
    /// An object with arbitrary keys.
    Map(Box<Type>),
    /// Another definition.
    Ref(DefId),
}

/// Describes a field of a definition.
#[derive(Clone, Debug)]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// The type.
    pub ty: Type,
    /// Whether the type data says that it must be present. (The API server
    /// reads an absent one as its zero value and leaves the verdict to
    /// validation.)
    pub required: bool,
    /// The number of its description.
    pub description: u32,
    /// `merge`, `retainKeys`, both with a comma, or empty.
    pub patch_strategy: &'static str,
    /// The key by which strategic merge matches the elements of a list.
    pub patch_merge_key: &'static str,
    /// `atomic`, `set`, `map`, or empty.
    pub list_type: &'static str,
    /// The keys of a list of type `map`, comma-separated.
    pub list_map_keys: &'static str,
    /// `atomic`, `granular`, or empty.
    pub map_type: &'static str,
    /// The default as JSON text, or empty.
    pub default: &'static str,
}

/// Describes a type with a name.
#[derive(Debug)]
pub struct Definition {
    /// The name, such as `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// What it is when it has no fields (`Time` is a string).
    pub ty: Type,
    /// The number of its description.
    pub description: u32,
    /// `atomic`, `granular`, or empty.
    pub map_type: &'static str,
    /// If at most one of its fields is meant to be set: the field that says which,
    /// `-` if none does. Else empty.
    pub union: &'static str,
    /// The fields, ordered by name.
    pub fields: Vec<Field>,
    /// Where they are in that.
    index: Index,
}

impl Definition {
    /// Returns a field by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let fields = &self.fields;
        let place = self.index.find(name, fields.len(), |at| fields[at].name)?;
        fields.get(place)
    }

    /// Returns the last part of the name: `Pod`.
    pub fn short_name(&self) -> &'static str {
        self.name
            .rsplit_once('.')
            .map_or(self.name, |(_, last)| last)
    }
}

/// Holds all definitions.
#[derive(Debug)]
pub struct Table {
    definitions: Vec<Definition>,
    by_name: BTreeMap<&'static str, DefId>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let text = inflate(include_bytes!(concat!(env!("OUT_DIR"), "/schema.bin")));
    Table::parse(text.leak())
});

/// Returns the table of this build.
pub fn table() -> &'static Table {
    &TABLE
}

/// Inflates the descriptions; [`Descriptions`] gives them by number.
pub fn descriptions() -> Descriptions {
    let text = inflate(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/descriptions.bin"
    )));
    let mut starts = vec![0];
    starts.extend(text.match_indices('\0').map(|(at, _)| at + 1));
    Descriptions { text, starts }
}

/// Holds the inflated descriptions while a document is made.
#[derive(Debug)]
pub struct Descriptions {
    text: String,
    starts: Vec<usize>,
}

impl Descriptions {
    /// Returns a description by number; number 0 is empty.
    pub fn get(&self, id: u32) -> &str {
        let at = id as usize;
        let Some(&start) = self.starts.get(at) else {
            return "";
        };
        let end = self
            .starts
            .get(at + 1)
            .map_or(self.text.len(), |next| next - 1);
        &self.text[start..end]
    }
}

fn inflate(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(bytes)
        .read_to_string(&mut text)
        .expect("the build script wrote this, and it is part of the program");
    text
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let mut by_name = BTreeMap::new();
        let starts = text.lines().filter(|line| line.starts_with('D'));
        for (id, line) in (0..).zip(starts) {
            by_name.insert(column(line, 1), DefId(id));
        }
        let mut definitions: Vec<Definition> = Vec::with_capacity(by_name.len());
        for line in text.lines() {
            if line.starts_with('D') {
                definitions.push(Definition {
                    name: column(line, 1),
                    ty: parse_type(column(line, 2), &by_name),
                    description: column(line, 3).parse().unwrap_or(0),
                    map_type: column(line, 4),
                    union: column(line, 5),
                    fields: Vec::new(),
                    index: Index::default(),
                });
            } else if let Some(last) = definitions.last_mut() {
                last.fields.push(parse_field(line, &by_name));
            }
        }
        for definition in &mut definitions {
            definition.fields.shrink_to_fit();
            definition.index = Index::of(definition.fields.iter().map(|f| f.name));
        }
        Self {
            definitions,
            by_name,
        }
    }

    /// Returns the number of a definition.
    pub fn id(&self, name: &str) -> Option<DefId> {
        self.by_name.get(name).copied()
    }

    /// Returns a definition by number.
    pub fn get(&self, id: DefId) -> &Definition {
        &self.definitions[id.0 as usize]
    }

    /// Returns a definition by name.
    pub fn named(&self, name: &str) -> Option<&Definition> {
        self.id(name).map(|id| self.get(id))
    }

    /// Walks all definitions in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.by_name.values().map(|id| self.get(*id))
    }
}

fn column(line: &'static str, number: usize) -> &'static str {
    line.split('\t').nth(number).unwrap_or("")
}

fn parse_field(line: &'static str, by_name: &BTreeMap<&'static str, DefId>) -> Field {
    let mut columns = line.split('\t').skip(1);
    let mut next = || columns.next().unwrap_or("");
    Field {
        name: next(),
        ty: parse_type(next(), by_name),
        required: next() == "r",
        description: next().parse().unwrap_or(0),
        patch_strategy: next(),
        patch_merge_key: next(),
        list_type: next(),
        list_map_keys: next(),
        map_type: next(),
        default: next(),
    }
}

fn parse_type(code: &str, by_name: &BTreeMap<&'static str, DefId>) -> Type {
    let inner = |from: &str| Box::new(parse_type(from, by_name));
    match code.as_bytes() {
        b"s" => Type::String,
        b"y" => Type::Byte,
        b"t" => Type::DateTime,
        b"u" => Type::MicroTime,
        b"i" => Type::Int32,
        b"l" => Type::Int64,
        b"n" => Type::Number,
        b"b" => Type::Boolean,
        b"x" => Type::IntOrString,
        b"q" => Type::Quantity,
        b"o" => Type::Object,
        [b'[', ..] => Type::Array(inner(&code[1..])),
        [b'{', ..] => Type::Map(inner(&code[1..])),
        [b'@', ..] => by_name
            .get(&code[1..])
            .map_or(Type::Any, |id| Type::Ref(*id)),
        _ => Type::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_was_followed() {
        let any: Vec<_> = table()
            .iter()
            .flat_map(|d| d.fields.iter().map(move |f| (d.name, f)))
            .filter(|(_, f)| f.ty == Type::Any)
            .map(|(d, f)| format!("{d}.{}", f.name))
            .collect();
        assert!(any.is_empty(), "{any:?}");
        assert!(table().iter().count() > 200);
    }

    #[test]
    fn markers_joined() {
        let field = |d: &str, f: &str| table().named(d).unwrap().field(f).unwrap().clone();
        let containers = field("io.k8s.api.core.v1.PodSpec", "containers");
        assert_eq!(
            (containers.patch_strategy, containers.patch_merge_key),
            ("merge", "name")
        );
        assert_eq!(
            (containers.list_type, containers.list_map_keys),
            ("map", "name")
        );
        let volumes = field("io.k8s.api.core.v1.PodSpec", "volumes");
        assert_eq!(volumes.patch_strategy, "merge,retainKeys");
        let ports = field("io.k8s.api.core.v1.ServiceSpec", "ports");
        assert_eq!(ports.patch_merge_key, "port");
        assert_eq!(ports.list_map_keys, "port,protocol");
        let protocol = field("io.k8s.api.core.v1.ServicePort", "protocol");
        assert_eq!(protocol.default, "\"TCP\"");
        // Reached only through a Go embedding.
        let probe = field("io.k8s.api.core.v1.Probe", "exec");
        assert!(matches!(probe.ty, Type::Ref(_)));
        let finalizers = field(
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "finalizers",
        );
        assert_eq!(
            (finalizers.patch_strategy, finalizers.list_type),
            ("merge", "set")
        );
    }

    #[test]
    fn descriptions_are_found_by_number() {
        let texts = descriptions();
        let pod = table().named("io.k8s.api.core.v1.Pod").unwrap();
        assert!(
            texts
                .get(pod.description)
                .starts_with("Pod is a collection of containers")
        );
        let spec = pod.field("spec").unwrap();
        assert!(
            texts
                .get(spec.description)
                .starts_with("Specification of the desired behavior")
        );
        assert_eq!(texts.get(0), "");
        assert_eq!(texts.get(u32::MAX), "");
    }
}
