//! The policies of admission and their bindings (admissionregistration.k8s.io/v1).
//!
//! They are kept and checked as far as their form goes: no expression is
//! compiled, and no policy is applied.

use jiff::Timestamp;
use meta::value::{at, object_mut, str_at};
use meta::{FieldError, names};
use serde_json::{Map, Value, json};

use super::admissionrules::{choice, default_rules, match_conditions, match_resources};
use super::webhookconfiguration::{CATEGORIES, GROUP};
use crate::checks::{all_invalid, no_duplicates, segment_errors, texts};
use crate::kind::{Column, Kind, Strategy, Subresource, put};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, items, selector};

/// How many annotations there may be.
const ANNOTATIONS_MAX: usize = 20;
/// The longest expression of an annotation's value.
const EXPRESSION_MAX: usize = 5 << 10;

const PARAM_KIND: Column = Column::text("ParamKind", "The kind of what parameterises it.");
const BINDING_COLUMNS: &[Column] = &[
    Column::name(),
    Column::text("PolicyName", "The policy it binds."),
    Column::text("ParamRef", "The parameters it binds it with."),
    Column::age(),
];

/// Describes the kind of policies that refuse.
pub(crate) static VALIDATING: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicy",
    list_kind: "ValidatingAdmissionPolicyList",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    categories: CATEGORIES,
    namespaced: false,
    subresources: &[Subresource::status(
        GROUP,
        "v1",
        "ValidatingAdmissionPolicy",
    )],
    storage_prefix: "validatingadmissionpolicies",
    definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
    unconditional_update: false,
    generation: true,
    columns: &[
        Column::name(),
        Column::integer("Validations", "How many validations it has."),
        PARAM_KIND,
        Column::age(),
    ],
    strategy: &Policy { mutating: false },
    ..Kind::BASE
};

/// Describes the kind of policies that change objects.
pub(crate) static MUTATING: Kind = Kind {
    group: GROUP,
    kind: "MutatingAdmissionPolicy",
    list_kind: "MutatingAdmissionPolicyList",
    plural: "mutatingadmissionpolicies",
    singular: "mutatingadmissionpolicy",
    categories: CATEGORIES,
    namespaced: false,
    storage_prefix: "mutatingadmissionpolicies",
    definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy",
    unconditional_update: false,
    generation: true,
    columns: &[
        Column::name(),
        Column::integer("Mutations", "How many mutations it has."),
        PARAM_KIND,
        Column::age(),
    ],
    strategy: &Policy { mutating: true },
    ..Kind::BASE
};

/// Describes the kind of what puts a refusing policy into force.
pub(crate) static VALIDATING_BINDING: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicyBinding",
    list_kind: "ValidatingAdmissionPolicyBindingList",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    categories: CATEGORIES,
    namespaced: false,
    storage_prefix: "validatingadmissionpolicybindings",
    definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
    unconditional_update: false,
    generation: true,
    columns: BINDING_COLUMNS,
    strategy: &Binding { mutating: false },
    ..Kind::BASE
};

/// Describes the kind of what puts a changing policy into force.
pub(crate) static MUTATING_BINDING: Kind = Kind {
    group: GROUP,
    kind: "MutatingAdmissionPolicyBinding",
    list_kind: "MutatingAdmissionPolicyBindingList",
    plural: "mutatingadmissionpolicybindings",
    singular: "mutatingadmissionpolicybinding",
    categories: CATEGORIES,
    namespaced: false,
    storage_prefix: "mutatingadmissionpolicybindings",
    definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBinding",
    unconditional_update: false,
    generation: true,
    columns: BINDING_COLUMNS,
    strategy: &Binding { mutating: true },
    ..Kind::BASE
};

fn default_match(map: &mut Map<String, Value>, field: &str) {
    let Some(matched) = map.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    fill(matched, "matchPolicy", "Equivalent");
    fill(matched, "namespaceSelector", json!({}));
    fill(matched, "objectSelector", json!({}));
    default_rules(matched, "resourceRules");
    default_rules(matched, "excludeResourceRules");
}

struct Policy {
    mutating: bool,
}

impl Strategy for Policy {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        fill(spec, "failurePolicy", "Fail");
        default_match(spec, "matchConstraints");
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let status = (!self.mutating).then(|| json!({}));
        put(object, "status", status);
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let empty = json!({});
        let spec = object.get("spec").unwrap_or(&empty);
        choice(spec, "failurePolicy", "spec", &["Fail", "Ignore"], errors);
        if let Some(kind) = spec.get("paramKind") {
            param_kind(kind, errors);
        }
        match spec.get("matchConstraints") {
            None => errors.push(FieldError::required("spec.matchConstraints", "")),
            Some(matched) => {
                match_resources(matched, "spec.matchConstraints", errors);
                if items(matched, "resourceRules").is_empty() {
                    errors.push(FieldError::required(
                        "spec.matchConstraints.resourceRules",
                        "",
                    ));
                }
            }
        }
        match_conditions(spec, "spec", errors);
        for (index, variable) in items(spec, "variables").iter().enumerate() {
            check_variable(variable, &format!("spec.variables[{index}]"), errors);
        }
        if self.mutating {
            mutations(spec, errors);
        } else {
            validations(spec, meta::value::name(object), errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let kind = match at(object, "spec.paramKind") {
            None => "<unset>".to_owned(),
            Some(p) => format!("{}/{}", str_at(p, "apiVersion"), str_at(p, "kind")),
        };
        let list = match self.mutating {
            true => "spec.mutations",
            false => "spec.validations",
        };
        vec![
            print::name(object),
            Value::from(items(object, list).len()),
            Value::from(kind),
            print::age(object, now),
        ]
    }
}

struct Binding {
    mutating: bool,
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        default_match(object_mut(object, "spec"), "matchResources");
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let policy = str_at(object, "spec.policyName");
        if policy.is_empty() {
            errors.push(FieldError::required("spec.policyName", ""));
        } else {
            let wrong = names::subdomain_errors(policy);
            all_invalid(policy, "spec.policyName", wrong, errors);
        }
        if let Some(parameters) = at(object, "spec.paramRef") {
            param_ref(parameters, errors);
        }
        if let Some(matched) = at(object, "spec.matchResources") {
            // Upstream misspells the path of validating ones.
            let path = match self.mutating {
                true => "spec.matchResources",
                false => "spec.matchResouces",
            };
            match_resources(matched, path, errors);
        }
        if !self.mutating {
            actions(object, errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let parameters = match at(object, "spec.paramRef") {
            None => "<unset>".to_owned(),
            Some(p) => match (str_at(p, "name"), str_at(p, "namespace")) {
                ("", _) => print::selector(p.get("selector")),
                (name, "") => format!("*/{name}"),
                (name, namespace) => format!("{namespace}/{name}"),
            },
        };
        vec![
            print::name(object),
            Value::from(str_at(object, "spec.policyName")),
            Value::from(parameters),
            print::age(object, now),
        ]
    }
}

fn param_kind(kind: &Value, errors: &mut Errors) {
    const VERSION: &str = "spec.paramKind.apiVersion";
    let text = str_at(kind, "apiVersion");
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    if text.is_empty() {
        errors.push(FieldError::required(VERSION, ""));
    } else if version.contains('/') {
        let words = format!("unexpected GroupVersion string: {text}");
        errors.push(FieldError::invalid(VERSION, text, words));
    } else {
        let wrong = names::subdomain_errors(group);
        if !group.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(VERSION, group, wrong.join(",")));
        }
        let wrong = names::label_1035_errors(version);
        if version.is_empty() {
            let words = "version must be specified";
            errors.push(FieldError::invalid(VERSION, text, words));
        } else if !wrong.is_empty() {
            errors.push(FieldError::invalid(VERSION, version, wrong.join(",")));
        }
    }
    let name = str_at(kind, "kind");
    if name.is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
        return;
    }
    let wrong = names::label_1035_errors(&name.to_lowercase());
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(
            "spec.paramKind.kind",
            name,
            format!(
                "may have mixed case, but should otherwise match: {}",
                wrong.join(",")
            ),
        ));
    }
}

fn param_ref(parameters: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.paramRef";
    const WORDS: &str = "name and selector are mutually exclusive";
    let name = str_at(parameters, "name");
    let selects = parameters.get("selector").is_some();
    all_invalid(name, &format!("{PATH}.name"), segment_errors(name), errors);
    selector(
        parameters.get("selector"),
        &format!("{PATH}.selector"),
        errors,
    );
    match (name.is_empty(), selects) {
        (false, true) => {
            for field in ["name", "selector"] {
                errors.push(FieldError::forbidden(format!("{PATH}.{field}"), WORDS));
            }
        }
        (true, false) => errors.push(FieldError::required(
            PATH,
            "one of name or selector must be specified",
        )),
        _ => {}
    }
    let at = format!("{PATH}.parameterNotFoundAction");
    match str_at(parameters, "parameterNotFoundAction") {
        "" => errors.push(FieldError::required(at, "")),
        "Deny" | "Allow" => {}
        other => errors.push(FieldError::not_supported(at, other, &["Deny", "Allow"])),
    }
}

fn actions(object: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.validationActions";
    let list = texts(object, PATH);
    for (index, action) in list.iter().enumerate() {
        if !matches!(*action, "Deny" | "Warn" | "Audit") {
            errors.push(FieldError::not_supported(
                format!("{PATH}[{index}]"),
                *action,
                &["Audit", "Deny", "Warn"],
            ));
        }
    }
    no_duplicates(&list, PATH, errors);
    if list.contains(&"Deny") && list.contains(&"Warn") {
        errors.push(FieldError::invalid(
            PATH,
            json!(list),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if list.is_empty() {
        errors.push(FieldError::required(
            PATH,
            "at least one validation action is required",
        ));
    }
}

fn check_variable(variable: &Value, path: &str, errors: &mut Errors) {
    const RESERVED: [&str; 21] = [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ];
    let name = str_at(variable, "name");
    let letter = |b: u8| b == b'_' || b.is_ascii_alphabetic();
    if name.trim().is_empty() {
        errors.push(FieldError::required(
            format!("{path}.name"),
            "name is not specified",
        ));
    } else if RESERVED.contains(&name)
        || !name.bytes().all(|b| letter(b) || b.is_ascii_digit())
        || !name.bytes().next().is_some_and(letter)
    {
        errors.push(FieldError::invalid(
            format!("{path}.name"),
            name,
            "name is not a valid CEL identifier",
        ));
    }
    expression(variable, "expression", path, errors);
}

fn expression(owner: &Value, field: &str, path: &str, errors: &mut Errors) {
    if str_at(owner, field).trim().is_empty() {
        errors.push(FieldError::required(
            format!("{path}.{field}"),
            format!("{field} is not specified"),
        ));
    }
}

fn validations(spec: &Value, name: &str, errors: &mut Errors) {
    const REASONS: [&str; 4] = [
        "Forbidden",
        "Invalid",
        "RequestEntityTooLarge",
        "Unauthorized",
    ];
    let (list, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    if list.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(
                format!("spec.{field}"),
                "validations or auditAnnotations must contain at least one item",
            ));
        }
    }
    for (index, one) in list.iter().enumerate() {
        let path = format!("spec.validations[{index}]");
        expression(one, "expression", &path, errors);
        let blank = |field: &str| {
            let text = str_at(one, field);
            !text.is_empty() && text.trim().is_empty()
        };
        if blank("messageExpression") {
            errors.push(FieldError::invalid(
                format!("{path}.messageExpression"),
                str_at(one, "messageExpression"),
                "must be non-empty if specified",
            ));
        }
        let message = str_at(one, "message");
        let words = match (blank("message"), message.trim().contains(['\n', '\r'])) {
            (true, _) => Some("message must be non-empty if specified"),
            (false, true) => Some("message must not contain line breaks"),
            (false, false) => None,
        };
        if let Some(words) = words {
            let at = format!("{path}.message");
            errors.push(FieldError::invalid(at, message, words));
        }
        choice(one, "reason", &path, &REASONS, errors);
    }
    audit_annotations(annotations, name, errors);
}

fn audit_annotations(list: &[Value], name: &str, errors: &mut Errors) {
    const PATH: &str = "spec.auditAnnotations";
    if list.len() > ANNOTATIONS_MAX {
        errors.push(FieldError::invalid(
            PATH,
            json!(list),
            format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations"),
        ));
    }
    for (index, one) in list.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let key = format!("{name}/{}", str_at(one, "key"));
        let wrong = names::qualified_name_errors(&key);
        all_invalid(&key, &format!("{path}.key"), wrong, errors);
        expression(one, "valueExpression", &path, errors);
        if str_at(one, "valueExpression").trim().len() > EXPRESSION_MAX {
            errors.push(FieldError::required(
                format!("{path}.valueExpression"),
                format!("must not exceed {EXPRESSION_MAX} bytes in length"),
            ));
        }
    }
    crate::validate::unique(list, PATH, "key", errors);
}

fn mutations(spec: &Value, errors: &mut Errors) {
    let list = items(spec, "mutations");
    if list.is_empty() {
        errors.push(FieldError::required(
            "spec.mutations",
            "mutations must contain at least one item",
        ));
    }
    for (index, one) in list.iter().enumerate() {
        let path = format!("spec.mutations[{index}]");
        let (wanted, other) = match str_at(one, "patchType") {
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            "" => {
                errors.push(FieldError::required(format!("{path}.patchType"), ""));
                continue;
            }
            unknown => {
                errors.push(FieldError::not_supported(
                    format!("{path}.patchType"),
                    unknown,
                    &["ApplyConfiguration", "JSONPatch"],
                ));
                continue;
            }
        };
        let ty = str_at(one, "patchType");
        match one.get(wanted) {
            None => errors.push(FieldError::required(
                format!("{path}.{wanted}"),
                format!("must be specified when patchType is {ty}"),
            )),
            Some(patch) => expression(patch, "expression", &format!("{path}.{wanted}"), errors),
        }
        if one.get(other).is_some() {
            errors.push(FieldError::invalid(
                format!("{path}.{other}"),
                "{...}",
                format!("must not be specified when patchType is {ty}"),
            ));
        }
    }
    match str_at(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required("spec.reinvocationPolicy", "")),
        "Never" | "IfNeeded" => {}
        other => errors.push(FieldError::not_supported(
            "spec.reinvocationPolicy",
            other,
            &["Never", "IfNeeded"],
        )),
    }
}
