//! Which definitions are refused. Upstream checks them in an older form, in
//! which what all versions share stands above them; so an error of a schema
//! that is the same in all versions is at `spec.validation`.

use std::collections::BTreeSet;

use meta::value::{at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use super::conditions::{self, APPROVAL};
use super::resource::schema_of;
use super::{schema_rules, structural};
use crate::validate::{Errors, immutable, items};

/// The most fields by which a version may be selected.
const SELECTABLE_MAX: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Checks a definition.
pub fn definition(object: &Value, errors: &mut Errors) {
    let (plural, group) = (
        str_at(object, "spec.names.plural"),
        str_at(object, "spec.group"),
    );
    let name = meta::value::name(object);
    if name != format!("{plural}.{group}") {
        let words = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, words));
    }
    spec(object, errors);
    if let Some(accepted) = at(object, "status.acceptedNames") {
        self::names(accepted, "status.acceptedNames", errors);
    }
    stored_versions(object, errors);
}

/// Checks what only a new definition, or a change, can do wrong.
pub fn change(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        if conditions::is_true(old, conditions::ESTABLISHED) {
            immutable(new, old, "spec.scope", errors);
            immutable(new, old, "spec.names.kind", errors);
        }
        immutable(new, old, "spec.group", errors);
        immutable(new, old, "spec.names.plural", errors);
    }
    approval(new, old, errors);
    let keeps = |o: &Value| at(o, "spec.preserveUnknownFields") == Some(&Value::Bool(true));
    if keeps(new) && !old.is_some_and(keeps) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

fn approval(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    fn said(object: &Value) -> &str {
        at(object, "metadata.annotations")
            .and_then(|a| a.get(APPROVAL))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
    if !conditions::is_protected(str_at(new, "spec.group")) {
        return;
    }
    let text = said(new);
    if old.is_some_and(|old| said(old) == text) {
        return;
    }
    let path = format!("metadata.annotations[{APPROVAL}]");
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let needed = format!("protected groups must have approval annotation {APPROVAL:?}");
    if text.is_empty() {
        errors.push(FieldError::required(path, format!("{needed}, {SEE}")));
    } else if !text.starts_with("unapproved") && !conditions::is_url(text) {
        let words =
            format!("{needed} with either a URL or a reason starting with \"unapproved\", {SEE}");
        errors.push(FieldError::invalid(path, text, words));
    }
}

fn spec(object: &Value, errors: &mut Errors) {
    let group = str_at(object, "spec.group");
    let wrong = names::subdomain_errors(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, wrong.join(",")));
    } else if !group.contains('.') {
        let words = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, words));
    }
    let scopes = &["Cluster", "Namespaced"];
    crate::validate::one_of(str_at(object, "spec.scope"), "spec.scope", scopes, errors);
    versions(object, errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        let path = format!("spec.names.{field}");
        if str_at(object, &path).is_empty() {
            errors.push(FieldError::required(path, ""));
        }
    }
    if let Some(asked) = at(object, "spec.names") {
        names(asked, "spec.names", errors);
    }
    conversion(object, errors);
}

/// A part of a version, and where it stands in upstream's form when it is the
/// same in all.
struct Part {
    field: &'static str,
    shared: &'static str,
}

impl Part {
    /// Returns the path of the part of a version; `None` where the first
    /// version's stands for all.
    fn path(&self, versions: &[Value], index: usize) -> Option<String> {
        let first = versions.first().and_then(|v| v.get(self.field));
        if versions.iter().all(|v| v.get(self.field) == first) {
            return (index == 0).then(|| format!("spec.{}", self.shared));
        }
        Some(format!("spec.versions[{index}].{}", self.field))
    }
}

const SCHEMA: Part = Part {
    field: "schema",
    shared: "validation",
};
const SUBRESOURCES: Part = Part {
    field: "subresources",
    shared: "subresources",
};
const COLUMNS: Part = Part {
    field: "additionalPrinterColumns",
    shared: "additionalPrinterColumns",
};
const SELECTABLE: Part = Part {
    field: "selectableFields",
    shared: "selectableFields",
};

fn versions(object: &Value, errors: &mut Errors) {
    let all = items(object, "spec.versions");
    let whole = || at(object, "spec.versions").cloned().unwrap_or_default();
    for (index, version) in all.iter().enumerate() {
        if !schema_of(version).is_object() {
            errors.push(FieldError::required(
                format!("spec.versions[{index}].schema.openAPIV3Schema"),
                "schemas are required",
            ));
        }
    }
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (index, version) in all.iter().enumerate() {
        let name = str_at(version, "name");
        unique &= seen.insert(name);
        let wrong = names::label_1035_errors(name);
        if !wrong.is_empty() {
            let path = format!("spec.versions[{index}].name");
            errors.push(FieldError::invalid(path, name, wrong.join(",")));
        }
        one_version(version, index, all, errors);
    }
    if !unique {
        let words = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", whole(), words));
    }
    let stored = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
    if all.iter().filter(stored).count() != 1 {
        let words = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", whole(), words));
    }
}

fn one_version(version: &Value, index: usize, all: &[Value], errors: &mut Errors) {
    deprecation(version, index, errors);
    if let Some(path) = SCHEMA.path(all, index) {
        let has_status = |v: &Value| at(v, "subresources.status").is_some();
        let status = match path.starts_with("spec.validation") {
            true => all.iter().any(has_status),
            false => has_status(version),
        };
        schema(schema_of(version), status, &path, errors);
    }
    if let Some(path) = SUBRESOURCES.path(all, index)
        && let Some(scale) = at(version, "subresources.scale")
    {
        scale_paths(scale, &path, errors);
    }
    if let Some(path) = COLUMNS.path(all, index) {
        for (at, column) in items(version, COLUMNS.field).iter().enumerate() {
            self::column(column, &format!("{path}[{at}]"), errors);
        }
    }
    if let Some(path) = SELECTABLE.path(all, index) {
        selectable(version, &path, errors);
    }
}

fn deprecation(version: &Value, index: usize, errors: &mut Errors) {
    let Some(said) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let path = format!("spec.versions[{index}].deprecationWarning");
    let mut say = |words: String| errors.push(FieldError::invalid(&*path, said, words));
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        say("can only be set for deprecated versions".to_owned());
        return;
    }
    if said.len() > 256 {
        say("must be <= 256 characters long".to_owned());
    }
    if said.is_empty() {
        say("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = said.char_indices().find(|(_, c)| c.is_control()) {
        say(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// What a schema may say at its root when the status has an endpoint of its
/// own, as upstream names and orders it.
const AT_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
    ),
    ("x-kubernetes-validations", "XValidations"),
];

fn schema(schema: &Value, has_status: bool, path: &str, errors: &mut Errors) {
    let Some(map) = schema.as_object() else {
        return;
    };
    let path = format!("{path}.openAPIV3Schema");
    if has_status {
        let ty = str_at(schema, "type");
        if !ty.is_empty() && ty != "object" {
            let words = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(format!("{path}.type"), ty, words));
        }
        if map.keys().any(|k| !AT_ROOT.iter().any(|(n, _)| n == k)) {
            let names: Vec<&str> = AT_ROOT.iter().map(|(_, name)| *name).collect();
            let words = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                names.join(" ")
            );
            errors.push(FieldError::invalid(&*path, schema.clone(), words));
        }
    }
    if map.get("nullable") == Some(&Value::Bool(true)) {
        let at = format!("{path}.nullable");
        errors.push(FieldError::forbidden(
            at,
            "nullable cannot be true at the root",
        ));
    }
    let unstructured = structural::check(schema, &path);
    if unstructured.is_empty() {
        structural::check_defaults(schema, &path, errors);
    }
    errors.extend(unstructured);
    schema_rules::check(schema, &path, errors);
}

/// Checks that a path is one of members only.
fn simple_path(text: &str, path: &str, errors: &mut Errors) -> bool {
    if !text.starts_with('.') {
        let words = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(path, text, words));
        return false;
    }
    true
}

fn scale_paths(scale: &Value, path: &str, errors: &mut Errors) {
    for (field, below, needed) in [
        ("specReplicasPath", ".spec", true),
        ("statusReplicasPath", ".status", true),
        ("labelSelectorPath", ".status", false),
    ] {
        let text = str_at(scale, field);
        let path = format!("{path}.scale.{field}");
        if text.is_empty() {
            if needed {
                errors.push(FieldError::required(path, ""));
            }
            continue;
        }
        if !simple_path(text, &path, errors) {
            continue;
        }
        let inside =
            text.starts_with(&format!("{below}.")) || (!needed && text.starts_with(".spec."));
        if !inside {
            let words = match needed {
                true => format!("should be a json path under {below}"),
                false => "should be a json path under either .spec or .status".to_owned(),
            };
            errors.push(FieldError::invalid(path, text, words));
        }
    }
}

fn column(column: &Value, path: &str, errors: &mut Errors) {
    if str_at(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let ty = str_at(column, "type");
    let words = format!("must be one of {}", COLUMN_TYPES.join(","));
    if ty.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), words));
    } else if !COLUMN_TYPES.contains(&ty) {
        errors.push(FieldError::invalid(format!("{path}.type"), ty, words));
    }
    let format = str_at(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let words = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(format!("{path}.format"), format, words));
    }
    let json_path = str_at(column, "jsonPath");
    let path = format!("{path}.JSONPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if simple_path(json_path, &path, errors)
        && let Err(error) = super::path::JsonPath::parse(json_path)
    {
        let words = format!("is an invalid path: {error}");
        errors.push(FieldError::invalid(path, json_path, words));
    }
}

fn selectable(version: &Value, path: &str, errors: &mut Errors) {
    let fields = items(version, SELECTABLE.field);
    if fields.is_empty() {
        return;
    }
    let schema = super::Structural::parse(schema_of(version));
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{path}[{index}].jsonPath");
        let text = str_at(field, "jsonPath");
        if text.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let names: Vec<&str> = text.trim_start_matches('.').split('.').collect();
        let Some(found) = schema
            .at(names.iter().copied())
            .filter(|_| text.starts_with('.'))
        else {
            let unknown = names.iter().scan(&schema, |s, n| {
                Some(match s.properties.get(*n) {
                    Some(inner) => {
                        *s = inner;
                        None
                    }
                    None => Some(*n),
                })
            });
            let unknown = unknown.flatten().next().unwrap_or(text);
            let words = format!("is an invalid path: does not refer to a valid field: {unknown}");
            errors.push(FieldError::invalid(at, text, words));
            continue;
        };
        if names.first() == Some(&"metadata") {
            let words = "must not point to fields in metadata";
            errors.push(FieldError::invalid(&*at, text, words));
        }
        if !matches!(found.ty.as_str(), "string" | "boolean" | "integer") {
            let words = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&*at, text, words));
        }
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(at, text));
        }
    }
    if seen.len() > SELECTABLE_MAX {
        let (is, max) = (seen.len(), SELECTABLE_MAX);
        errors.push(FieldError::too_many(path, is, max));
    }
}

fn names(asked: &Value, path: &str, errors: &mut Errors) {
    for field in ["plural", "singular"] {
        let text = str_at(asked, field);
        let wrong = names::label_1035_errors(text);
        if !text.is_empty() && !wrong.is_empty() {
            let at = format!("{path}.{field}");
            errors.push(FieldError::invalid(at, text, wrong.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let text = str_at(asked, field);
        let wrong = names::label_1035_errors(&text.to_lowercase());
        if !text.is_empty() && !wrong.is_empty() {
            let words = "may have mixed case, but should otherwise match: ";
            let at = format!("{path}.{field}");
            errors.push(FieldError::invalid(
                at,
                text,
                words.to_owned() + &wrong.join(","),
            ));
        }
    }
    let (kind, list_kind) = (str_at(asked, "kind"), str_at(asked, "listKind"));
    for field in ["shortNames", "categories"] {
        for (index, text) in items(asked, field).iter().enumerate() {
            let text = text.as_str().unwrap_or_default();
            let wrong = names::label_1035_errors(text);
            if !wrong.is_empty() {
                let at = format!("{path}.{field}[{index}]");
                errors.push(FieldError::invalid(at, text, wrong.join(",")));
            }
        }
    }
    if !kind.is_empty() && kind == list_kind {
        let words = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            format!("{path}.listKind"),
            list_kind,
            words,
        ));
    }
}

fn conversion(object: &Value, errors: &mut Errors) {
    let Some(conversion) = at(object, "spec.conversion") else {
        return;
    };
    let strategy = str_at(conversion, "strategy");
    let known = &["None", "Webhook"];
    crate::validate::one_of(strategy, "spec.conversion.strategy", known, errors);
    let webhook = at(conversion, "webhook");
    let config = webhook.and_then(|w| at(w, "clientConfig"));
    let at_config = "spec.conversion.webhookClientConfig";
    if strategy != "Webhook" {
        let words = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(FieldError::forbidden(at_config, words));
        }
        return;
    }
    match config {
        None => errors.push(FieldError::required(
            at_config,
            "required when strategy is set to Webhook",
        )),
        Some(config) if config.get("url").is_some() == config.get("service").is_some() => {
            let words = "exactly one of url or service is required";
            errors.push(FieldError::required(at_config, words));
        }
        Some(_) => {}
    }
    if webhook.is_none_or(|w| items(w, "conversionReviewVersions").is_empty()) {
        let path = "spec.conversion.conversionReviewVersions";
        errors.push(FieldError::required(path, ""));
    }
}

fn stored_versions(object: &Value, errors: &mut Errors) {
    let path = "status.storedVersions";
    let stored = items(object, path);
    let whole = || at(object, path).cloned().unwrap_or_default();
    if stored.is_empty() {
        let words = "must have at least one stored version";
        errors.push(FieldError::invalid(path, whole(), words));
        return;
    }
    let versions = items(object, "spec.versions");
    for version in versions {
        let name = str_at(version, "name");
        let is_stored = version.get("storage") == Some(&Value::Bool(true));
        if is_stored && !stored.iter().any(|s| s == name) {
            let words = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path, whole(), words));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !versions.iter().any(|v| str_at(v, "name") == name) {
            let words = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name, words));
        }
    }
}

#[cfg(test)]
mod tests;
