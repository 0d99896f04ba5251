//! Joins the two sources and writes the table.
//!
//! The table is text, one fact a line, tab-separated, deflated; its reader is
//! `src/table.rs`, which is where the format is described. Descriptions are the
//! larger part by far and only OpenAPI needs them, so they are a file apart,
//! referred to by number.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::markers::{Markers, Set};
use crate::types::{Definition, Library, Ty};

/// The two texts.
pub struct Built {
    pub types: String,
    pub descriptions: String,
}

/// Numbers descriptions, each once.
#[derive(Default)]
struct Descriptions {
    ids: BTreeMap<String, usize>,
    texts: Vec<String>,
}

impl Descriptions {
    fn id(&mut self, text: &str) -> usize {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.texts.len();
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Builds the table of everything the roots reach.
pub fn build(
    library: &Library,
    markers: &mut Markers,
    roots: &[&str],
) -> Result<Built, Box<dyn Error>> {
    let definitions = closure(library, roots)?;
    let mut descriptions = Descriptions::default();
    // Number 0 is "none".
    descriptions.id("");
    let mut types = String::new();
    for (name, definition) in &definitions {
        let own = markers.of_type(name);
        let map_type = value(&own, "structType")
            .or(value(&own, "mapType"))
            .unwrap_or_default();
        let body = if definition.fields.is_empty() {
            own_code(name, &definition.ty)
        } else {
            "o".to_owned()
        };
        let id = descriptions.id(&definition.description);
        let siblings: Vec<String> = definition.fields.keys().cloned().collect();
        let sets: Vec<Set> = siblings
            .iter()
            .map(|field| markers.of_field(name, field, &siblings))
            .collect();
        let union = union(&own, &siblings, &sets);
        types.push_str(&format!("D\t{name}\t{body}\t{id}\t{map_type}\t{union}\n"));
        for ((field_name, field), set) in definition.fields.iter().zip(&sets) {
            let keys: Vec<&str> = set
                .iter()
                .filter(|(n, _)| n == "listMapKey")
                .map(|(_, v)| v.as_str())
                .collect();
            let line = [
                "F".to_owned(),
                field_name.clone(),
                code(&field.ty),
                match field.required || has(set, "required") {
                    true => "r".to_owned(),
                    false => String::new(),
                },
                descriptions.id(&field.description).to_string(),
                value(set, "patchStrategy").unwrap_or_default(),
                value(set, "patchMergeKey").unwrap_or_default(),
                value(set, "listType").unwrap_or_default(),
                keys.join(","),
                value(set, "mapType")
                    .or(value(set, "structType"))
                    .unwrap_or_default(),
                value(set, "default")
                    .filter(|d| !d.starts_with("ref("))
                    .unwrap_or_default(),
            ];
            types.push_str(&line.join("\t"));
            types.push('\n');
        }
    }
    Ok(Built {
        types,
        descriptions: descriptions.texts.join("\0"),
    })
}

fn has(set: &Set, name: &str) -> bool {
    set.iter().any(|(n, _)| n == name)
}

/// Returns the field that says which of the others counts, if the type is a union
/// of them; `-` if there is no such field.
fn union<'a>(own: &Set, fields: &'a [String], sets: &[Set]) -> &'a str {
    if !has(own, "union") {
        return "";
    }
    let mut marked = fields.iter().zip(sets);
    marked
        .find(|(_, set)| has(set, "unionDiscriminator"))
        .map_or("-", |(field, _)| field.as_str())
}

fn value(set: &Set, name: &str) -> Option<String> {
    set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
}

fn closure(
    library: &Library,
    roots: &[&str],
) -> Result<BTreeMap<String, Definition>, Box<dyn Error>> {
    let mut definitions = BTreeMap::new();
    let mut pending: BTreeSet<String> = roots.iter().map(|r| (*r).to_owned()).collect();
    while let Some(name) = pending.pop_first() {
        let definition = library.definition(&name)?;
        for field in definition.fields.values() {
            pending.extend(
                referred(&field.ty)
                    .filter(|r| !definitions.contains_key(*r))
                    .cloned(),
            );
        }
        pending.extend(referred(&definition.ty).cloned());
        pending.remove(&name);
        definitions.insert(name, definition);
    }
    Ok(definitions)
}

fn referred(ty: &Ty) -> std::option::IntoIter<&String> {
    match ty {
        Ty::Ref(name) => Some(name).into_iter(),
        Ty::Array(inner) | Ty::Map(inner) => referred(inner),
        Ty::Plain(..) | Ty::Any => None.into_iter(),
    }
}

/// Encodes what a definition without fields is. The type data describes a
/// quantity as it does any number or text, both times alike, and any JSON value
/// as an object.
fn own_code(name: &str, ty: &Ty) -> String {
    if name.ends_with(".JSON") || name.contains(".JSONSchemaPropsOr") {
        "*".to_owned()
    } else if name.ends_with(".resource.Quantity") {
        "q".to_owned()
    } else if name.ends_with(".MicroTime") {
        "u".to_owned()
    } else {
        code(ty)
    }
}

/// Encodes a type in the few letters `src/table.rs` explains.
fn code(ty: &Ty) -> String {
    match ty {
        Ty::Any => "*".to_owned(),
        Ty::Ref(name) => format!("@{name}"),
        Ty::Array(inner) => format!("[{}", code(inner)),
        Ty::Map(inner) => format!("{{{}", code(inner)),
        Ty::Plain(ty, format) => match (ty.as_str(), format.as_str()) {
            ("string", "int-or-string") => "x",
            ("string", "byte") => "y",
            ("string", "date-time") => "t",
            ("string", _) => "s",
            ("integer", "int64") => "l",
            ("integer", _) => "i",
            ("number", _) => "n",
            ("boolean", _) => "b",
            _ => "o",
        }
        .to_owned(),
    }
}

/// Writes a text deflated.
pub fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let mut out =
        flate2::write::DeflateEncoder::new(File::create(path)?, flate2::Compression::best());
    out.write_all(text.as_bytes())?;
    out.finish()?;
    Ok(())
}
