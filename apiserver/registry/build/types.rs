//! Reads definitions out of the sources of `k8s-openapi`.
//!
//! Each file there holds one definition, named in its first line, with its
//! schema as the argument of a `json_schema!` macro: JSON but for references,
//! which are Rust expressions naming a type.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, Token};

/// Describes the type of a field.
#[derive(Clone, Debug)]
pub enum Ty {
    /// A primitive: JSON type and format.
    Plain(String, String),
    /// Another definition.
    Ref(String),
    /// A list.
    Array(Box<Ty>),
    /// An object with arbitrary keys.
    Map(Box<Ty>),
    /// Anything.
    Any,
}

/// Describes a field of a definition.
#[derive(Clone, Debug)]
pub struct Field {
    pub ty: Ty,
    pub required: bool,
    pub description: String,
}

/// Describes a definition.
#[derive(Clone, Debug)]
pub struct Definition {
    pub description: String,
    /// What it is when it has no fields.
    pub ty: Ty,
    pub fields: BTreeMap<String, Field>,
}

/// Knows the file of every definition of one Kubernetes version.
pub struct Library {
    files: BTreeMap<String, PathBuf>,
}

impl Library {
    /// Indexes a version's folder by the names in the files' first lines.
    pub fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(name) = defined_in(&fs::read_to_string(&path)?) {
                    files.insert(name, path);
                }
            }
        }
        Ok(Self { files })
    }

    /// Reads one definition.
    pub fn definition(&self, name: &str) -> Result<Definition, Box<dyn Error>> {
        let path = self
            .files
            .get(name)
            .ok_or_else(|| format!("no definition of {name}"))?;
        let text = fs::read_to_string(path)?;
        let start = text
            .find("json_schema!(")
            .ok_or_else(|| format!("{}: no schema", path.display()))?;
        let body = &text[start + "json_schema!(".len()..];
        let end = body
            .rfind("\n        })")
            .ok_or("a schema without an end")?
            + "\n        }".len();
        let node: Node =
            syn::parse_str(&body[..end]).map_err(|e| format!("{}: {e}", path.display()))?;
        read_definition(&node).map_err(|e| format!("{name}: {e}").into())
    }
}

fn defined_in(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    Some(
        line.strip_prefix("// Generated from definition ")?
            .trim()
            .to_owned(),
    )
}

/// A JSON value in which a reference may stand for an object.
enum Node {
    Text(String),
    True,
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Ref {
        name: String,
        description: Option<String>,
    },
}

impl Node {
    fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Object(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct Pair(String, Node);

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key: syn::LitStr = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self(key.value(), input.parse()?))
    }
}

impl Parse for Node {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        if input.peek(syn::token::Brace) {
            syn::braced!(content in input);
            let pairs: Punctuated<Pair, Token![,]> = Punctuated::parse_terminated(&content)?;
            Ok(Node::Object(
                pairs.into_iter().map(|p| (p.0, p.1)).collect(),
            ))
        } else if input.peek(syn::token::Bracket) {
            syn::bracketed!(content in input);
            let items: Punctuated<Node, Token![,]> = Punctuated::parse_terminated(&content)?;
            Ok(Node::List(items.into_iter().collect()))
        } else if input.peek(syn::token::Paren) {
            syn::parenthesized!(content in input);
            let expr: Expr = content.parse()?;
            reference(&expr).ok_or_else(|| content.error("not a reference to a type"))
        } else if input.peek(syn::Ident) {
            // Where the description is empty, the call stands bare.
            let expr: Expr = input.parse()?;
            reference(&expr).ok_or_else(|| input.error("not a reference to a type"))
        } else if input.peek(syn::LitBool) {
            input.parse::<syn::LitBool>()?;
            Ok(Node::True)
        } else if input.peek(syn::Ident) {
            // A reference of which nothing is said stands bare.
            let expr: Expr = input.parse()?;
            reference(&expr).ok_or_else(|| input.error("not a reference to a type"))
        } else {
            Ok(Node::Text(input.parse::<syn::LitStr>()?.value()))
        }
    }
}

/// Returns the name under which a type is published, given its path in Rust,
/// where names have no dashes.
fn published(path: &str) -> String {
    let path = path
        .replace("kube_aggregator.", "kube-aggregator.")
        .replace("apiextensions_apiserver.", "apiextensions-apiserver.");
    format!("io.k8s.{path}")
}

/// Reads `gen.subschema_for::<T>()`, alone or in a block that then inserts a
/// description of its own.
fn reference(expr: &Expr) -> Option<Node> {
    match expr {
        Expr::MethodCall(call) => {
            let generics = call.turbofish.as_ref()?;
            let syn::GenericArgument::Type(syn::Type::Path(path)) = generics.args.first()? else {
                return None;
            };
            let parts: Vec<String> = path
                .path
                .segments
                .iter()
                .skip(1)
                .map(|s| s.ident.to_string())
                // A dash cannot stand in Rust's path of what has one in its name.
                .map(|s| match s.as_str() {
                    "apiextensions_apiserver" => "apiextensions-apiserver".to_owned(),
                    _ => s,
                })
                .collect();
            Some(Node::Ref {
                name: published(&parts.join(".")),
                description: None,
            })
        }
        Expr::Block(block) => {
            let syn::Stmt::Local(local) = block.block.stmts.first()? else {
                return None;
            };
            let Node::Ref { name, .. } = reference(&local.init.as_ref()?.expr)? else {
                return None;
            };
            let description = block.block.stmts.get(1).and_then(inserted_text);
            Some(Node::Ref { name, description })
        }
        _ => None,
    }
}

fn inserted_text(statement: &syn::Stmt) -> Option<String> {
    let syn::Stmt::Expr(Expr::MethodCall(insert), _) = statement else {
        return None;
    };
    let Expr::MethodCall(into) = insert.args.get(1)? else {
        return None;
    };
    match &*into.receiver {
        Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    }
}

fn read_definition(node: &Node) -> Result<Definition, String> {
    let required: Vec<&str> = match node.get("required") {
        Some(Node::List(items)) => items
            .iter()
            .filter_map(|i| {
                if let Node::Text(t) = i {
                    Some(t.as_str())
                } else {
                    None
                }
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut fields = BTreeMap::new();
    if let Some(Node::Object(properties)) = node.get("properties") {
        for (name, property) in properties {
            let description = match property {
                Node::Ref { description, .. } => description.clone(),
                other => other.text("description").map(str::to_owned),
            };
            fields.insert(
                name.clone(),
                Field {
                    ty: read_type(property)?,
                    required: required.contains(&name.as_str()),
                    description: description.unwrap_or_default(),
                },
            );
        }
    }
    Ok(Definition {
        description: node.text("description").unwrap_or_default().to_owned(),
        ty: read_type(node)?,
        fields,
    })
}

fn read_type(node: &Node) -> Result<Ty, String> {
    if let Node::Ref { name, .. } = node {
        return Ok(Ty::Ref(name.clone()));
    }
    if node.get("x-kubernetes-int-or-string").is_some() {
        return Ok(Ty::Plain("string".to_owned(), "int-or-string".to_owned()));
    }
    let format = node.text("format").unwrap_or_default().to_owned();
    match node.text("type") {
        None => Ok(Ty::Any),
        Some("array") => {
            let items = node.get("items").ok_or("an array without items")?;
            Ok(Ty::Array(Box::new(read_type(items)?)))
        }
        Some("object") => match node.get("additionalProperties") {
            Some(values) => Ok(Ty::Map(Box::new(read_type(values)?))),
            None => Ok(Ty::Plain("object".to_owned(), format)),
        },
        Some(other) => Ok(Ty::Plain(other.to_owned(), format)),
    }
}
