//! Ingress and IngressClass (networking.k8s.io/v1).

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::value::{at, int_at, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use crate::checks::{
    all_invalid, domain_prefixed_path, is_ip, required_segment, sloppy_ip_errors, texts,
    wildcard_errors,
};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, immutable, items, port, port_name_errors};

/// The group of what networks are made of.
pub(super) const GROUP: &str = "networking.k8s.io";

/// The annotation by which a class was named before there was a field.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The longest name of a controller.
const CONTROLLER_MAX: usize = 250;
/// How many hosts a row names.
const HOSTS_SHOWN: usize = 3;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "Ingress",
    list_kind: "IngressList",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    subresources: &[Subresource::status(GROUP, "v1", "Ingress")],
    storage_prefix: "ingress",
    definition: "io.k8s.api.networking.v1.Ingress",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Class", "The class, which says who serves it."),
        Column::text("Hosts", "The hosts of its rules."),
        Column::text("Address", "Where it is served."),
        Column::text("Ports", "The ports it is served at."),
        Column::age(),
    ],
    strategy: &Ingress,
    ..Kind::BASE
};

/// Describes the kind of classes of ingresses.
pub(crate) static CLASS: Kind = Kind {
    group: GROUP,
    kind: "IngressClass",
    list_kind: "IngressClassList",
    plural: "ingressclasses",
    singular: "ingressclass",
    namespaced: false,
    storage_prefix: "ingressclasses",
    definition: "io.k8s.api.networking.v1.IngressClass",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Controller", "Who serves ingresses of the class."),
        Column::text("Parameters", "What else the controller needs to know."),
        Column::age(),
    ],
    strategy: &IngressClass,
    ..Kind::BASE
};

struct Ingress;

impl Strategy for Ingress {
    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({"loadBalancer": {}})));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let rules = items(object, "spec.rules");
        let default = at(object, "spec.defaultBackend");
        if rules.is_empty() && default.is_none() {
            errors.push(FieldError::invalid(
                "spec",
                json!([]),
                "either `defaultBackend` or `rules` must be specified",
            ));
        }
        if let Some(default) = default {
            backend(default, "spec.defaultBackend", errors);
        }
        for (index, one) in rules.iter().enumerate() {
            rule(one, &format!("spec.rules[{index}]"), errors);
        }
        for (index, one) in items(object, "spec.tls").iter().enumerate() {
            tls(one, &format!("spec.tls[{index}]"), errors);
        }
        if let Some(class) = at(object, "spec.ingressClassName").and_then(Value::as_str) {
            let wrong = names::subdomain_errors(class);
            all_invalid(class, "spec.ingressClassName", wrong, errors);
        }
        points(object, errors);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let annotations = at(object, "metadata.annotations");
        let noted = annotations.and_then(|a| a.get(CLASS_ANNOTATION));
        let noted = noted.and_then(Value::as_str);
        let named = at(object, "spec.ingressClassName").and_then(Value::as_str);
        if let (Some(noted), Some(named)) = (noted, named)
            && noted != named
        {
            errors.push(FieldError::invalid(
                format!("annotations.{CLASS_ANNOTATION}"),
                noted,
                "must match `ingressClassName` when both are specified",
            ));
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let tls = !items(object, "spec.tls").is_empty();
        vec![
            print::name(object),
            print::text_or_none(object, "spec.ingressClassName"),
            Value::from(hosts(object)),
            Value::from(addresses(object)),
            Value::from(if tls { "80, 443" } else { "80" }),
            print::age(object, now),
        ]
    }
}

fn hosts(object: &Value) -> String {
    let rules = items(object, "spec.rules");
    let (mut shown, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= shown.len() == HOSTS_SHOWN;
        let host = str_at(rule, "host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => {
            let rest = rules.len() - HOSTS_SHOWN;
            format!("{} + {rest} more...", shown.join(","))
        }
    }
}

fn addresses(object: &Value) -> String {
    let of = |point: &Value| match str_at(point, "ip") {
        "" => str_at(point, "hostname").to_owned(),
        ip => ip.to_owned(),
    };
    let points = items(object, "status.loadBalancer.ingress").iter().map(of);
    let sorted: BTreeSet<String> = points.filter(|p| !p.is_empty()).collect();
    sorted.into_iter().collect::<Vec<_>>().join(",")
}

fn points(object: &Value, errors: &mut Errors) {
    let list = items(object, "status.loadBalancer.ingress");
    for (index, point) in list.iter().enumerate() {
        let path = |field: &str| format!("status.loadBalancer.ingress[{index}].{field}");
        let (ip, host) = (str_at(point, "ip"), str_at(point, "hostname"));
        if !ip.is_empty() {
            all_invalid(ip, &path("ip"), sloppy_ip_errors(ip), errors);
        }
        if !host.is_empty() {
            all_invalid(
                host,
                &path("hostname"),
                names::subdomain_errors(host),
                errors,
            );
            not_an_ip(host, &path("hostname"), errors);
        }
    }
}

fn not_an_ip(host: &str, path: &str, errors: &mut Errors) {
    if is_ip(host) {
        errors.push(FieldError::invalid(
            path,
            host,
            "must be a DNS name, not an IP address",
        ));
    }
}

fn host(host: &str, path: &str, errors: &mut Errors) {
    let wrong = if host.contains('*') {
        wildcard_errors(host)
    } else {
        names::subdomain_errors(host)
    };
    all_invalid(host, path, wrong, errors);
}

fn tls(tls: &Value, path: &str, errors: &mut Errors) {
    for (index, name) in texts(tls, "hosts").into_iter().enumerate() {
        host(name, &format!("{path}.hosts[{index}]"), errors);
    }
    let secret = str_at(tls, "secretName");
    if !secret.is_empty() {
        let wrong = names::subdomain_errors(secret);
        all_invalid(secret, &format!("{path}.secretName"), wrong, errors);
    }
}

fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    let name = str_at(rule, "host");
    if !name.is_empty() {
        let path = format!("{path}.host");
        not_an_ip(name, &path, errors);
        host(name, &path, errors);
    }
    let Some(http) = rule.get("http") else { return };
    let paths = items(http, "paths");
    if paths.is_empty() {
        errors.push(FieldError::required(format!("{path}.http.paths"), ""));
    }
    for (index, one) in paths.iter().enumerate() {
        http_path(one, &format!("{path}.http.paths[{index}]"), errors);
    }
}

fn http_path(entry: &Value, at: &str, errors: &mut Errors) {
    let path = str_at(entry, "path");
    let mut say = |words: String| {
        errors.push(FieldError::invalid(format!("{at}.path"), path, words));
    };
    match entry.get("pathType").and_then(Value::as_str) {
        None => {
            errors.push(FieldError::required(
                format!("{at}.pathType"),
                "pathType must be specified",
            ));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                say("must be an absolute path".to_owned());
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(bad) {
                    say(format!("must not contain '{bad}'"));
                }
            }
            for bad in ["/..", "/."] {
                if path.ends_with(bad) {
                    say(format!("cannot end with '{bad}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !path.starts_with('/') {
                say("must be an absolute path".to_owned());
            }
        }
        Some(other) => errors.push(FieldError::not_supported(
            format!("{at}.pathType"),
            other,
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    let empty = json!({});
    backend(
        entry.get("backend").unwrap_or(&empty),
        &format!("{at}.backend"),
        errors,
    );
}

fn backend(backend: &Value, path: &str, errors: &mut Errors) {
    let mut say = |words: &str| errors.push(FieldError::invalid(path, "", words));
    match (backend.get("resource"), backend.get("service")) {
        (Some(_), Some(_)) => say("cannot set both resource and service backends"),
        (None, None) => say("resource or service backend is required"),
        (Some(resource), None) => reference(resource, &format!("{path}.resource"), errors),
        (None, Some(service)) => {
            let name = str_at(service, "name");
            let at = format!("{path}.service.name");
            if name.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else {
                all_invalid(name, &at, names::label_1035_errors(name), errors);
            }
            let number = int_at(service, "port.number").unwrap_or(0);
            match (str_at(service, "port.name"), number) {
                ("", 0) => errors.push(FieldError::required(
                    path,
                    "port name or number is required",
                )),
                ("", number) => port(number, &format!("{path}.service.port.number"), errors),
                (name, 0) => {
                    let at = format!("{path}.service.port.name");
                    all_invalid(name, &at, port_name_errors(name), errors);
                }
                _ => errors.push(FieldError::invalid(
                    path,
                    "",
                    "cannot set both port name & port number",
                )),
            }
        }
    }
}

fn reference(reference: &Value, path: &str, errors: &mut Errors) {
    if let Some(group) = reference.get("apiGroup").and_then(Value::as_str) {
        let wrong = names::subdomain_errors(group);
        all_invalid(group, &format!("{path}.apiGroup"), wrong, errors);
    }
    required_segment(reference, "kind", path, errors);
    required_segment(reference, "name", path, errors);
}

struct IngressClass;

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        let parameters = object
            .get_mut("spec")
            .and_then(|s| s.get_mut("parameters"))
            .and_then(Value::as_object_mut);
        if let Some(parameters) = parameters {
            fill(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let controller = str_at(object, "spec.controller");
        if controller.len() > CONTROLLER_MAX {
            errors.push(FieldError::too_long("spec.controller", CONTROLLER_MAX));
        }
        domain_prefixed_path(controller, "spec.controller", errors);
        let Some(parameters) = at(object, "spec.parameters") else {
            return;
        };
        reference(parameters, "spec.parameters", errors);
        let path = "spec.parameters.namespace";
        let namespace = parameters.get("namespace").and_then(Value::as_str);
        match (str_at(parameters, "scope"), namespace) {
            ("Namespace", None) => errors.push(FieldError::required(
                path,
                "`parameters.scope` is set to 'Namespace'",
            )),
            ("Namespace", Some(name)) => {
                all_invalid(name, path, names::label_errors(name), errors);
            }
            ("Cluster", Some(_)) => errors.push(FieldError::forbidden(
                path,
                "`parameters.scope` is set to 'Cluster'",
            )),
            ("Cluster", None) => {}
            (other, _) => errors.push(FieldError::not_supported(
                "spec.parameters.scope",
                other,
                &["Cluster", "Namespace"],
            )),
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "spec.controller", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let parameters = match at(object, "spec.parameters") {
            None => print::NONE.to_owned(),
            Some(p) => {
                let group = match p.get("apiGroup").and_then(Value::as_str) {
                    Some(group) => format!(".{group}"),
                    None => String::new(),
                };
                format!("{}{group}/{}", str_at(p, "kind"), str_at(p, "name"))
            }
        };
        vec![
            print::name(object),
            Value::from(str_at(object, "spec.controller")),
            Value::from(parameters),
            print::age(object, now),
        ]
    }
}
