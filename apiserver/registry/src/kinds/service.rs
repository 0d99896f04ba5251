//! Service.
//!
//! Addresses and node ports are allocated by the server (see
//! [`crate::ipalloc`]) between the defaults and the checks.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::{Value, json};

use crate::kind::{Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource};
use crate::podspec::{each, fill, fill_text};
use crate::portalloc::is_exposed;
use crate::print;
use crate::validate::{Errors, items, one_of, port, port_or_name};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "Service",
    list_kind: "ServiceList",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[Subresource {
        name: "status",
        group: "",
        version: "v1",
        kind: "Service",
        verbs: STATUS_VERBS,
    }],
    storage_prefix: "services/specs",
    definition: "io.k8s.api.core.v1.Service",
    create_on_update: true,
    returns_deleted: true,
    name_errors: meta::names::label_1035_errors,
    selectable: &["spec.clusterIP", "spec.type"],
    columns: &[
        Column::name(),
        Column::text("Type", "How the service is exposed."),
        Column::text("Cluster-IP", "The address inside the cluster."),
        Column::text("External-IP", "The addresses outside the cluster."),
        Column::text("Port(s)", "The ports, with their node ports."),
        Column::age(),
        Column::wide("Selector", "The labels of the pods behind it."),
    ],
    strategy: &Service,
    ..Kind::BASE
};

struct Service;

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        fill_text(spec, "sessionAffinity", "None");
        fill_text(spec, "type", "ClusterIP");
        if spec.get("sessionAffinity") == Some(&json!("ClientIP")) {
            fill(
                spec,
                "sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 10800}}),
            );
        } else {
            spec.remove("sessionAffinityConfig");
        }
        let ty = spec
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let named = spec
            .get("clusterIP")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if ty != "ExternalName" {
            fill_text(spec, "internalTrafficPolicy", "Cluster");
            if !named.is_empty() && print::count(&Value::Object(spec.clone()), "clusterIPs") == 0 {
                spec.insert("clusterIPs".to_owned(), json!([named]));
            }
        }
        let exposed = matches!(ty.as_str(), "NodePort" | "LoadBalancer");
        if exposed {
            fill_text(spec, "externalTrafficPolicy", "Cluster");
        }
        if ty == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
        for entry in each(spec, "ports") {
            fill_text(entry, "protocol", "TCP");
            let number = entry.get("port").cloned().unwrap_or(Value::from(0));
            match entry.get("targetPort") {
                None => fill(entry, "targetPort", number),
                Some(target) if *target == json!(0) || *target == json!("") => {
                    entry.insert("targetPort".to_owned(), number);
                }
                Some(_) => {}
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        crate::kind::put(object, "status", Some(json!({"loadBalancer": {}})));
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        crate::kind::keep_other_half(endpoint, new, old);
        if endpoint == Endpoint::Main {
            drop_of_type(new, old);
            keep_allocations(new, old);
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let ty = str_at(object, "spec.type");
        one_of(
            ty,
            "spec.type",
            &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
            errors,
        );
        one_of(
            str_at(object, "spec.sessionAffinity"),
            "spec.sessionAffinity",
            &["ClientIP", "None"],
            errors,
        );
        let headless = str_at(object, "spec.clusterIP") == "None";
        if ty == "ExternalName" {
            let name = str_at(object, "spec.externalName");
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                for error in meta::names::subdomain_errors(name) {
                    errors.push(FieldError::invalid("spec.externalName", name, error));
                }
            }
            if !str_at(object, "spec.clusterIP").is_empty() {
                errors.push(FieldError::forbidden(
                    "spec.clusterIP",
                    "may not be set for ExternalName services",
                ));
            }
        }
        if headless && matches!(ty, "NodePort" | "LoadBalancer") {
            errors.push(FieldError::invalid(
                "spec.clusterIP",
                "None",
                format!("may not be set to 'None' for {ty} services"),
            ));
        }
        if items(object, "spec.ports").is_empty() && !headless && ty != "ExternalName" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        ports(object, ty, errors);
        crate::validate::labels(at(object, "spec.selector"), "spec.selector", errors);
        let first = items(object, "spec.clusterIPs")
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default();
        let single = str_at(object, "spec.clusterIP");
        if !first.is_empty() && first != single {
            errors.push(FieldError::invalid(
                "spec.clusterIPs",
                first,
                "first value must match `clusterIP`",
            ));
        }
        if !headless && !single.is_empty() && single.parse::<IpAddr>().is_err() {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                single,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            return;
        }
        let (was, is) = (str_at(old, "spec.clusterIP"), str_at(new, "spec.clusterIP"));
        let external = |o| str_at(o, "spec.type") == "ExternalName";
        if !external(old) && !external(new) && !was.is_empty() && was != is {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                json!([is]),
                "may not change once set",
            ));
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let ty = str_at(object, "spec.type");
        vec![
            print::name(object),
            Value::from(ty),
            print::text_or_none(object, "spec.clusterIP"),
            Value::from(external_ip(object, ty)),
            Value::from(port_list(object)),
            print::age(object, now),
            Value::from(print::labels(at(object, "spec.selector"))),
        ]
    }
}

/// Drops what only the old type had and the update did not change, so that a
/// patch of the type alone works (upstream: `dropTypeDependentFields`).
fn drop_of_type(new: &mut Value, old: &Value) {
    let balanced = |o: &Value| str_at(o, "spec.type") == "LoadBalancer";
    let (exposed, exposed_now) = (is_exposed(old), is_exposed(new));
    let (balanced, balanced_now) = (balanced(old), balanced(new));
    let same_ports = node_ports(new) == node_ports(old);
    let spec = object_mut(new, "spec");
    let mut drop_same = |field: &str| {
        if spec.get(field) == old.get("spec").and_then(|s| s.get(field)) {
            spec.remove(field);
        }
    };
    if balanced && !balanced_now {
        drop_same("allocateLoadBalancerNodePorts");
        drop_same("loadBalancerClass");
    }
    if exposed && !exposed_now {
        drop_same("externalTrafficPolicy");
        drop_same("healthCheckNodePort");
        if same_ports {
            for entry in each(spec, "ports") {
                entry.remove("nodePort");
            }
        }
    }
}

/// Returns the node port of every entry.
fn node_ports(object: &Value) -> Vec<i64> {
    let entries = items(object, "spec.ports").iter();
    entries
        .map(|p| int_at(p, "nodePort").unwrap_or(0))
        .collect()
}

/// Takes over what was allocated and the update does not name, so that an
/// `apply` of the original manifest keeps its address.
fn keep_allocations(new: &mut Value, old: &Value) {
    if str_at(new, "spec.type") == "ExternalName" || str_at(old, "spec.type") == "ExternalName" {
        return;
    }
    let keep = |spec: &mut serde_json::Map<String, Value>, field: &str| {
        if !spec.contains_key(field)
            && let Some(value) = old.get("spec").and_then(|s| s.get(field))
        {
            spec.insert(field.to_owned(), value.clone());
        }
    };
    let exposed = is_exposed(new);
    let spec = object_mut(new, "spec");
    if spec.get("clusterIP") == Some(&json!("")) {
        spec.remove("clusterIP");
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        keep(spec, field);
    }
    if exposed {
        keep(spec, "healthCheckNodePort");
    }
    let old_ports = items(old, "spec.ports");
    for entry in each(spec, "ports") {
        if !exposed {
            continue;
        }
        let same = |o: &&Value| {
            o.get("port") == entry.get("port") && o.get("protocol") == entry.get("protocol")
        };
        let given = entry.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        if given == 0
            && let Some(number) = old_ports.iter().find(same).and_then(|o| o.get("nodePort"))
        {
            entry.insert("nodePort".to_owned(), number.clone());
        }
    }
}

fn ports(object: &Value, ty: &str, errors: &mut Errors) {
    let list = items(object, "spec.ports");
    let (mut names, mut seen, mut nodes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, entry) in list.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        let name = str_at(entry, "name");
        if name.is_empty() && list.len() > 1 {
            errors.push(FieldError::required(at("name"), ""));
        } else if !name.is_empty() {
            for error in meta::names::label_errors(name) {
                errors.push(FieldError::invalid(at("name"), name, error));
            }
            if !names.insert(name) {
                errors.push(FieldError::duplicate(at("name"), name));
            }
        }
        let number = int_at(entry, "port").unwrap_or(0);
        let protocol = str_at(entry, "protocol");
        port(number, &at("port"), errors);
        one_of(protocol, &at("protocol"), &["SCTP", "TCP", "UDP"], errors);
        port_or_name(entry.get("targetPort"), &at("targetPort"), errors);
        if !seen.insert((number, protocol)) {
            errors.push(FieldError::duplicate(
                format!("spec.ports[{index}]"),
                json!({"port": number, "protocol": protocol}),
            ));
        }
        let node = int_at(entry, "nodePort").unwrap_or(0);
        if node != 0 && ty == "ClusterIP" {
            errors.push(FieldError::forbidden(
                at("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
        if node != 0 && !nodes.insert((node, protocol)) {
            errors.push(FieldError::duplicate(at("nodePort"), node));
        }
    }
}

fn external_ip(object: &Value, ty: &str) -> String {
    let texts = |path: &str| -> Vec<String> {
        items(object, path)
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut found = match ty {
        "ExternalName" => vec![str_at(object, "spec.externalName").to_owned()],
        "LoadBalancer" => items(object, "status.loadBalancer.ingress")
            .iter()
            .map(|i| match str_at(i, "ip") {
                "" => str_at(i, "hostname").to_owned(),
                ip => ip.to_owned(),
            })
            .filter(|text| !text.is_empty())
            .collect(),
        _ => Vec::new(),
    };
    if ty != "ExternalName" {
        found.extend(texts("spec.externalIPs"));
    }
    match (found.is_empty(), ty) {
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, _) => print::NONE.to_owned(),
        (false, _) => found.join(","),
    }
}

fn port_list(object: &Value) -> String {
    let parts: Vec<String> = items(object, "spec.ports")
        .iter()
        .map(|p| {
            let number = int_at(p, "port").unwrap_or(0);
            let protocol = str_at(p, "protocol");
            match int_at(p, "nodePort").unwrap_or(0) {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    if parts.is_empty() {
        print::NONE.to_owned()
    } else {
        parts.join(",")
    }
}
