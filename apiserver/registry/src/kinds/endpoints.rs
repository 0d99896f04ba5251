//! Endpoints: the addresses behind a service, as one object. EndpointSlice
//! replaces it.

use jiff::Timestamp;
use meta::value::{int_at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use super::addresses;
use crate::kind::{Column, Kind, Strategy};
use crate::podspec::{each, fill_text};
use crate::print;
use crate::validate::{Errors, items, one_of, port};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "Endpoints",
    list_kind: "EndpointsList",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    storage_prefix: "services/endpoints",
    definition: "io.k8s.api.core.v1.Endpoints",
    create_on_update: true,
    columns: &[
        Column::name(),
        Column::text("Endpoints", "The addresses with their ports."),
        Column::age(),
    ],
    strategy: &Endpoints,
    ..Kind::BASE
};

struct Endpoints;

impl Strategy for Endpoints {
    fn deprecation(&self) -> Option<&str> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }

    fn default(&self, object: &mut Value) {
        let Value::Object(map) = object else { return };
        for subset in each(map, "subsets") {
            for entry in each(subset, "ports") {
                fill_text(entry, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        for (index, subset) in items(object, "subsets").iter().enumerate() {
            self::subset(subset, &format!("subsets[{index}]"), errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            addresses::shortened(&list(object), empty(object)),
            print::age(object, now),
        ]
    }
}

fn subset(subset: &Value, path: &str, errors: &mut Errors) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| items(subset, list).is_empty()) {
        errors.push(FieldError::required(
            path,
            "must specify `addresses` or `notReadyAddresses`",
        ));
    }
    for list in lists {
        for (index, item) in items(subset, list).iter().enumerate() {
            address(item, &format!("{path}.{list}[{index}]"), errors);
        }
    }
    let ports = items(subset, "ports");
    for (index, item) in ports.iter().enumerate() {
        let at = |field: &str| format!("{path}.ports[{index}].{field}");
        let name = str_at(item, "name");
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(at("name"), ""));
        } else if !name.is_empty() {
            for error in names::label_errors(name) {
                errors.push(FieldError::invalid(at("name"), name, error));
            }
        }
        port(int_at(item, "port").unwrap_or(0), &at("port"), errors);
        let protocol = str_at(item, "protocol");
        one_of(protocol, &at("protocol"), &["SCTP", "TCP", "UDP"], errors);
        let application = str_at(item, "appProtocol");
        if !application.is_empty() {
            for error in names::qualified_name_errors(application) {
                errors.push(FieldError::invalid(at("appProtocol"), application, error));
            }
        }
    }
}

fn address(address: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let ip = str_at(address, "ip");
    if ip.parse::<std::net::IpAddr>().is_err() {
        errors.push(FieldError::invalid(
            at("ip"),
            ip,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
        return;
    }
    for (field, check) in [
        ("hostname", names::label_errors as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain_errors),
    ] {
        let text = str_at(address, field);
        if !text.is_empty() {
            for error in check(text) {
                errors.push(FieldError::invalid(at(field), text, error));
            }
        }
    }
    addresses::not_special(ip, &at("ip"), errors);
}

/// What is printed when no address is there: of no subsets, and of some
/// without addresses that are ready.
fn empty(object: &Value) -> &'static str {
    match items(object, "subsets").is_empty() {
        true => print::NONE,
        false => "",
    }
}

fn list(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for subset in items(object, "subsets") {
        let ips = || items(subset, "addresses").iter().map(|a| str_at(a, "ip"));
        let ports = items(subset, "ports");
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for entry in ports {
            let number = int_at(entry, "port").unwrap_or(0);
            all.extend(ips().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{number}"),
                false => format!("{ip}:{number}"),
            }));
        }
    }
    all
}
