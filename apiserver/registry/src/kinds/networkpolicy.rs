//! NetworkPolicy (networking.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::{Value, json};

use super::ingress::GROUP;
use crate::checks::{Cidr, all_invalid, sloppy_cidr_errors, texts};
use crate::kind::{Column, Kind, Strategy};
use crate::podspec::{each, fill_text};
use crate::print;
use crate::validate::{Errors, items, port_name_errors, selector};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "NetworkPolicy",
    list_kind: "NetworkPolicyList",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    storage_prefix: "networkpolicies",
    definition: "io.k8s.api.networking.v1.NetworkPolicy",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Pod-Selector", "The pods it is for."),
        Column::age(),
    ],
    strategy: &NetworkPolicy,
    ..Kind::BASE
};

/// The two directions: the field of the rules, that of their peers, the type.
const DIRECTIONS: [(&str, &str, &str); 2] =
    [("ingress", "from", "Ingress"), ("egress", "to", "Egress")];

struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        for (rules, ..) in DIRECTIONS {
            for rule in each(spec, rules) {
                for port in each(rule, "ports") {
                    fill_text(port, "protocol", "TCP");
                }
            }
        }
        let count = |spec: &serde_json::Map<String, Value>, field: &str| {
            spec.get(field)
                .and_then(Value::as_array)
                .map_or(0, Vec::len)
        };
        if count(spec, "policyTypes") == 0 {
            let types = match count(spec, "egress") {
                0 => json!(["Ingress"]),
                _ => json!(["Ingress", "Egress"]),
            };
            spec.insert("policyTypes".to_owned(), types);
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        selector(at(object, "spec.podSelector"), "spec.podSelector", errors);
        for (rules, peers, _) in DIRECTIONS {
            let list = items(object, &format!("spec.{rules}"));
            for (index, rule) in list.iter().enumerate() {
                let path = format!("spec.{rules}[{index}]");
                for (n, one) in items(rule, "ports").iter().enumerate() {
                    port(one, &format!("{path}.ports[{n}]"), errors);
                }
                for (n, one) in items(rule, peers).iter().enumerate() {
                    peer(one, &format!("{path}.{peers}[{n}]"), errors);
                }
            }
        }
        let types = texts(object, "spec.policyTypes");
        if types.len() > DIRECTIONS.len() {
            errors.push(FieldError::invalid(
                "spec.policyTypes",
                json!(types),
                "may not specify more than two policyTypes",
            ));
            return;
        }
        for (index, ty) in types.into_iter().enumerate() {
            if !DIRECTIONS.iter().any(|(.., known)| *known == ty) {
                errors.push(FieldError::not_supported(
                    format!("spec.policyTypes[{index}]"),
                    ty,
                    &["Ingress", "Egress"],
                ));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(print::selector(at(object, "spec.podSelector"))),
            print::age(object, now),
        ]
    }
}

fn port(entry: &Value, path: &str, errors: &mut Errors) {
    let protocol = str_at(entry, "protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        errors.push(FieldError::not_supported(
            format!("{path}.protocol"),
            protocol,
            &["TCP", "UDP", "SCTP"],
        ));
    }
    let at = format!("{path}.port");
    let end = int_at(entry, "endPort");
    let refuse_end = |words: &str, errors: &mut Errors| {
        if let Some(end) = end {
            errors.push(FieldError::invalid(format!("{path}.endPort"), end, words));
        }
    };
    match entry.get("port") {
        None => refuse_end("may not be specified when `port` is not specified", errors),
        Some(Value::String(name)) => {
            refuse_end("may not be specified when `port` is non-numeric", errors);
            all_invalid(name, &at, port_name_errors(name), errors);
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            crate::validate::port(number, &at, errors);
            let Some(end) = end else { return };
            if end < number {
                refuse_end("must be greater than or equal to `port`", errors);
            }
            crate::validate::port(end, &format!("{path}.endPort"), errors);
        }
    }
}

fn peer(peer: &Value, path: &str, errors: &mut Errors) {
    let mut others = 0;
    for field in ["podSelector", "namespaceSelector"] {
        others += usize::from(peer.get(field).is_some());
        selector(peer.get(field), &format!("{path}.{field}"), errors);
    }
    match peer.get("ipBlock") {
        None if others == 0 => errors.push(FieldError::required(path, "must specify a peer")),
        None => {}
        Some(block) => {
            ip_block(block, &format!("{path}.ipBlock"), errors);
            if others > 0 {
                errors.push(FieldError::forbidden(
                    path,
                    "may not specify both ipBlock and another peer",
                ));
            }
        }
    }
}

fn ip_block(block: &Value, path: &str, errors: &mut Errors) {
    let text = str_at(block, "cidr");
    let at = format!("{path}.cidr");
    if text.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    all_invalid(text, &at, sloppy_cidr_errors(text), errors);
    let Some(whole) = Cidr::parse(text) else {
        return;
    };
    for (index, text) in texts(block, "except").into_iter().enumerate() {
        let at = format!("{path}.except[{index}]");
        all_invalid(text, &at, sloppy_cidr_errors(text), errors);
        if Cidr::parse(text).is_some_and(|part| !whole.strictly_holds(part)) {
            errors.push(FieldError::invalid(
                at,
                text,
                "must be a strict subset of `cidr`",
            ));
        }
    }
}
