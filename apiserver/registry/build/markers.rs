//! Reads the Go markers out of the comments in the sources of `k8s-pb`.
//!
//! Only the lines that start with `+name=value` are read. The newer spelling
//! `+k8s:name` is ignored: where both exist they disagree with what upstream
//! publishes (checked for the resource.k8s.io group). Of the markers without a
//! value those of unions are read. `newer.txt` adds what the crate is too old for.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The markers on one field or type, in source order; the value of one that has
/// none is empty.
pub type Set = Vec<(String, String)>;

/// The markers without a value that are read.
const BARE: [&str; 2] = ["union", "unionDiscriminator"];

/// What the crate does not have.
const NEWER: &str = include_str!("newer.txt");

/// One message: its own markers and its fields.
#[derive(Debug, Default)]
struct Message {
    own: Set,
    fields: BTreeMap<String, FieldMarkers>,
}

#[derive(Debug)]
struct FieldMarkers {
    set: Set,
    /// The normalised name of the message type of this field.
    message: String,
}

/// Reads files as they are asked for.
pub struct Markers {
    source: PathBuf,
    files: BTreeMap<String, BTreeMap<String, Message>>,
}

impl Markers {
    /// Opens the source folder of the crate.
    pub fn open(source: PathBuf) -> Self {
        Self {
            source,
            files: BTreeMap::new(),
        }
    }

    /// Returns the markers on a definition itself.
    pub fn of_type(&mut self, definition: &str) -> Set {
        let (file, message) = split(definition);
        let known = self.load(&file).get(&message).map(|m| m.own.clone());
        with_newer(known.unwrap_or_default(), definition, "-")
    }

    /// Returns the markers on a field. `siblings` are the definition's JSON
    /// fields: a message field that is none of them is a Go embedding, whose
    /// fields count as the definition's own.
    pub fn of_field(&mut self, definition: &str, field: &str, siblings: &[String]) -> Set {
        let known = self.in_crate(definition, field, siblings);
        with_newer(known, definition, field)
    }

    fn in_crate(&mut self, definition: &str, field: &str, siblings: &[String]) -> Set {
        let (file, message) = split(definition);
        let wanted = normalise(field);
        let siblings: Vec<String> = siblings.iter().map(|s| normalise(s)).collect();
        let messages = self.load(&file);
        let mut pending = vec![message];
        while let Some(name) = pending.pop() {
            let Some(message) = messages.get(&name) else {
                continue;
            };
            if let Some(found) = message.fields.get(&wanted) {
                return found.set.clone();
            }
            let embedded = message
                .fields
                .iter()
                .filter(|(name, _)| !siblings.contains(name));
            // A message never embeds itself, so the walk ends.
            pending.extend(
                embedded
                    .map(|(_, f)| f.message.clone())
                    .filter(|m| *m != name),
            );
        }
        Set::new()
    }

    fn load(&mut self, file: &str) -> &BTreeMap<String, Message> {
        if !self.files.contains_key(file) {
            let path = self.source.join(file);
            let messages = std::fs::read_to_string(&path)
                .ok()
                .and_then(|text| syn::parse_file(&text).ok())
                .map(|parsed| messages(&parsed))
                .unwrap_or_default();
            if messages.is_empty() {
                println!("cargo:warning=no markers found in {}", path.display());
            }
            self.files.insert(file.to_owned(), messages);
        }
        &self.files[file]
    }
}

/// Adds the markers of `newer.txt`, and says which of its lines the crate has made
/// superfluous.
fn with_newer(mut known: Set, definition: &str, field: &str) -> Set {
    for line in NEWER.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        if (words.next(), words.next()) != (Some(definition), Some(field)) {
            continue;
        }
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if known.iter().any(|(n, _)| n == name) {
                println!("cargo:warning=k8s-pb has {name} of {definition}.{field} by now");
            }
            known.push((name.to_owned(), value.to_owned()));
        }
    }
    known
}

/// Splits `io.k8s.api.core.v1.Pod` into `api/core/v1/mod.rs` and `pod`.
fn split(definition: &str) -> (String, String) {
    let path = definition.strip_prefix("io.k8s.").unwrap_or(definition);
    let (folder, name) = path.rsplit_once('.').unwrap_or(("", path));
    (
        format!("{}/mod.rs", folder.replace('.', "/").replace('-', "_")),
        normalise(name),
    )
}

/// Makes Go, JSON and prost spellings of a name equal.
fn normalise(name: &str) -> String {
    name.trim_start_matches("r#")
        .replace(['_', '$', '-'], "")
        .to_lowercase()
}

fn messages(file: &syn::File) -> BTreeMap<String, Message> {
    let mut found = BTreeMap::new();
    for item in &file.items {
        let syn::Item::Struct(item) = item else {
            continue;
        };
        let mut message = Message {
            own: markers(&item.attrs),
            ..Message::default()
        };
        for field in &item.fields {
            let Some(name) = &field.ident else { continue };
            message.fields.insert(
                normalise(&name.to_string()),
                FieldMarkers {
                    set: markers(&field.attrs),
                    message: innermost(&field.ty),
                },
            );
        }
        found.insert(normalise(&item.ident.to_string()), message);
    }
    found
}

fn innermost(ty: &syn::Type) -> String {
    let syn::Type::Path(path) = ty else {
        return String::new();
    };
    let Some(last) = path.path.segments.last() else {
        return String::new();
    };
    if let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = arguments.args.last()
    {
        return innermost(inner);
    }
    normalise(&last.ident.to_string())
}

fn markers(attributes: &[syn::Attribute]) -> Set {
    let mut found = Set::new();
    for attribute in attributes.iter().filter(|a| a.path().is_ident("doc")) {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        let syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) = &pair.value
        else {
            continue;
        };
        let line = text.value();
        let Some(marker) = line.trim().strip_prefix('+') else {
            continue;
        };
        match marker.split_once('=') {
            Some((name, value)) if !name.contains(':') => {
                found.push((name.to_owned(), value.trim().to_owned()));
            }
            None if BARE.contains(&marker) => found.push((marker.to_owned(), String::new())),
            _ => {}
        }
    }
    found
}
