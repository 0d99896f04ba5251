//! Reads prost structs: their fields' numbers and wire types.

use std::error::Error;

/// Describes every message of a package, one line each for messages and
/// fields.
pub fn describe(package: &str, file: &syn::File) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    for item in &file.items {
        let syn::Item::Struct(item) = item else {
            continue;
        };
        out.push_str(&format!(
            "M\t{package}.{}\n",
            normalise(&item.ident.to_string())
        ));
        for field in &item.fields {
            let Some(name) = &field.ident else { continue };
            let attribute = field.attrs.iter().find(|a| a.path().is_ident("prost"));
            let Some(attribute) = attribute else { continue };
            let syn::Meta::List(list) = &attribute.meta else {
                continue;
            };
            let facts = list.tokens.to_string();
            let number = quoted(&facts, "tag").ok_or_else(|| format!("{name} has no tag"))?;
            let repeated = if facts.contains("repeated") { "r" } else { "" };
            let ty = wire_type(package, &facts, &field.ty)?;
            let name = name.to_string();
            out.push_str(&format!(
                "F\t{number}\t{repeated}\t{ty}\t{}\n",
                name.trim_start_matches("r#")
            ));
        }
    }
    Ok(out)
}

/// Encodes a field's type as the table's reader explains.
fn wire_type(package: &str, facts: &str, ty: &syn::Type) -> Result<String, Box<dyn Error>> {
    let message = || reference(package, ty).ok_or_else(|| format!("no message type in {facts}"));
    if let Some(pair) = quoted(facts, "btree_map") {
        return Ok(match pair.as_str() {
            "string, string" => "{s".to_owned(),
            "string, bytes" => "{y".to_owned(),
            "string, message" => format!("{{@{}", message()?),
            other => return Err(format!("map of {other}").into()),
        });
    }
    let kind = facts.split([',', '=']).next().unwrap_or_default().trim();
    Ok(match kind {
        "string" => "s".to_owned(),
        "bytes" => "y".to_owned(),
        "bool" => "b".to_owned(),
        "int32" | "int64" => "i".to_owned(),
        "double" => "d".to_owned(),
        "message" => format!("@{}", message()?),
        other => return Err(format!("field of {other}").into()),
    })
}

/// Returns the value of `name = "value"`.
fn quoted(facts: &str, name: &str) -> Option<String> {
    let (_, rest) = facts.split_once(&format!("{name} = \""))?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// Returns the full name of the innermost type of a field.
fn reference(package: &str, ty: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = ty else {
        return None;
    };
    let last = path.path.segments.last()?;
    if let syn::PathArguments::AngleBracketed(arguments) = &last.arguments {
        let inner = arguments.args.iter().rev().find_map(|a| match a {
            syn::GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })?;
        return reference(package, inner);
    }
    let mut at: Vec<String> = package.split('.').map(str::to_owned).collect();
    let segments: Vec<String> = path
        .path
        .segments
        .iter()
        .map(|s| s.ident.to_string())
        .collect();
    let (name, modules) = segments.split_last()?;
    for module in modules {
        match module.as_str() {
            "super" => drop(at.pop()),
            "crate" => at.clear(),
            module => at.push(module.to_owned()),
        }
    }
    Some(format!("{}.{}", at.join("."), normalise(name)))
}

fn normalise(name: &str) -> String {
    name.to_lowercase().replace('_', "")
}
