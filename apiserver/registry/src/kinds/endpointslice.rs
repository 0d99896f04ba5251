//! EndpointSlice (discovery.k8s.io/v1): a part of the addresses behind a
//! service.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use meta::value::{at, int_at, str_at};
use meta::{FieldError, names};
use serde_json::{Map, Value};

use super::addresses;
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::{each, fill, fill_text};
use crate::print;
use crate::validate::{Errors, immutable, items, one_of, same};

/// The most endpoints of a slice.
const ENDPOINTS_MAX: usize = 1000;
/// The most addresses of an endpoint.
const ADDRESSES_MAX: usize = 100;
/// The most ports of a slice.
const PORTS_MAX: usize = 20_000;
/// The most zones, or nodes, an endpoint is meant for.
const HINTS_MAX: usize = 8;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    list_kind: "EndpointSliceList",
    plural: "endpointslices",
    singular: "endpointslice",
    storage_prefix: "endpointslices",
    definition: "io.k8s.api.discovery.v1.EndpointSlice",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("AddressType", "The kind of its addresses."),
        Column::text("Ports", "The ports."),
        Column::text("Endpoints", "The addresses."),
        Column::age(),
    ],
    strategy: &EndpointSlice,
    ..Kind::BASE
};

struct EndpointSlice;

/// Drops what the first version of the kind had, and this one only shows where an
/// older slice has it still.
fn drop_topology(object: &mut Value, is_dropped: impl Fn(&Value) -> bool) {
    let Value::Object(map) = object else { return };
    for endpoint in each(map, "endpoints") {
        if endpoint.get("deprecatedTopology").is_some_and(&is_dropped) {
            endpoint.remove("deprecatedTopology");
        }
    }
}

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        let Value::Object(map) = object else { return };
        for entry in each(map, "ports") {
            fill(entry, "name", "");
            fill_text(entry, "protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        drop_topology(object, |_| true);
    }

    fn prepare_for_update(&self, _endpoint: Endpoint, new: &mut Value, old: &Value) {
        let anew = !same(new.get("endpoints"), old.get("endpoints"));
        // An empty one says no more than none.
        drop_topology(new, |of| anew || of.as_object().is_some_and(Map::is_empty));
    }

    fn changes_desired(&self, new: &Value, old: &Value) -> bool {
        let fields = ["addressType", "endpoints", "ports"];
        let labels = |o| at(o, "metadata.labels");
        fields.iter().any(|f| !same(new.get(f), old.get(f))) || !same(labels(new), labels(old))
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let ty = str_at(object, "addressType");
        one_of(ty, "addressType", &["FQDN", "IPv4", "IPv6"], errors);
        ports(object, errors);
        let list = items(object, "endpoints");
        if list.len() > ENDPOINTS_MAX {
            errors.push(FieldError::too_many("endpoints", list.len(), ENDPOINTS_MAX));
            return;
        }
        for (index, item) in list.iter().enumerate() {
            endpoint(item, ty, &format!("endpoints[{index}]"), errors);
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "addressType", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let ports: Vec<String> = items(object, "ports").iter().map(port_text).collect();
        let all: Vec<String> = items(object, "endpoints")
            .iter()
            .flat_map(|e| items(e, "addresses"))
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        vec![
            print::name(object),
            Value::from(str_at(object, "addressType")),
            addresses::shortened(&ports, "<unset>"),
            addresses::shortened(&all, "<unset>"),
            print::age(object, now),
        ]
    }
}

fn port_text(entry: &Value) -> String {
    match (int_at(entry, "port"), entry.get("name")) {
        (Some(number), _) => number.to_string(),
        (None, Some(Value::String(name))) => name.clone(),
        (None, _) => "*".to_owned(),
    }
}

fn ports(object: &Value, errors: &mut Errors) {
    let list = items(object, "ports");
    if list.len() > PORTS_MAX {
        errors.push(FieldError::too_many("ports", list.len(), PORTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, entry) in list.iter().enumerate() {
        let at = |field: &str| format!("ports[{index}].{field}");
        let name = str_at(entry, "name");
        if !name.is_empty() {
            for error in names::label_errors(name) {
                errors.push(FieldError::invalid(at("name"), name, error));
            }
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at("name"), name));
        }
        let protocol = str_at(entry, "protocol");
        one_of(protocol, &at("protocol"), &["SCTP", "TCP", "UDP"], errors);
        if let Some(application) = entry.get("appProtocol").and_then(Value::as_str) {
            for error in names::qualified_name_errors(application) {
                errors.push(FieldError::invalid(at("appProtocol"), application, error));
            }
        }
    }
}

fn endpoint(endpoint: &Value, ty: &str, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let list = items(endpoint, "addresses");
    if list.is_empty() {
        errors.push(FieldError::required(
            at("addresses"),
            "must contain at least 1 address",
        ));
    } else if list.len() > ADDRESSES_MAX {
        errors.push(FieldError::too_many(
            at("addresses"),
            list.len(),
            ADDRESSES_MAX,
        ));
    }
    for (index, text) in list.iter().filter_map(Value::as_str).enumerate() {
        address(text, ty, &at(&format!("addresses[{index}]")), errors);
    }
    for (field, check) in [
        (
            "nodeName",
            names::subdomain_errors as fn(&str) -> Vec<String>,
        ),
        ("hostname", names::label_errors),
    ] {
        if let Some(text) = endpoint.get(field).and_then(Value::as_str) {
            for error in check(text) {
                errors.push(FieldError::invalid(at(field), text, error));
            }
        }
    }
    for (list, check) in [
        (
            "forZones",
            names::label_value_errors as fn(&str) -> Vec<String>,
        ),
        ("forNodes", names::subdomain_errors),
    ] {
        hints(endpoint, list, check, &at(&format!("hints.{list}")), errors);
    }
}

fn address(text: &str, ty: &str, path: &str, errors: &mut Errors) {
    let words = match ty {
        "IPv4" if text.parse::<Ipv4Addr>().is_err() => "must be a valid IPv4 address",
        "IPv6" if text.parse::<Ipv6Addr>().is_err() => "must be a valid IPv6 address",
        _ => "",
    };
    if !words.is_empty() {
        errors.push(FieldError::invalid(path, text, words));
    }
    match ty {
        "IPv4" | "IPv6" => addresses::not_special(text, path, errors),
        "FQDN" => {
            let name = text.strip_suffix('.').unwrap_or(text);
            for error in names::subdomain_errors(name) {
                errors.push(FieldError::invalid(path, text, error));
            }
            if !name.contains('.') {
                let words = "should be a domain with at least two segments separated by dots";
                errors.push(FieldError::invalid(path, text, words));
            }
        }
        _ => {}
    }
}

fn hints(
    endpoint: &Value,
    list: &str,
    check: fn(&str) -> Vec<String>,
    path: &str,
    errors: &mut Errors,
) {
    let found = items(endpoint, &format!("hints.{list}"));
    if found.len() > HINTS_MAX {
        errors.push(FieldError::too_many(path, found.len(), HINTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, hint) in found.iter().enumerate() {
        let (at, name) = (format!("{path}[{index}].name"), str_at(hint, "name"));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at.clone(), name));
        }
        for error in check(name) {
            errors.push(FieldError::invalid(at.clone(), name, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topology_is_dropped_from_what_is_written_anew() {
        let slice = |address: &str| json!({"endpoints": [{"addresses": [address], "deprecatedTopology": {"a": "b"}}]});
        let strategy = KIND.strategy();
        let mut made = slice("10.0.0.1");
        strategy.prepare_for_create(&mut made);
        assert_eq!(made, json!({"endpoints": [{"addresses": ["10.0.0.1"]}]}));
        let (mut same, mut other) = (slice("10.0.0.1"), slice("10.0.0.2"));
        strategy.prepare_for_update(Endpoint::Main, &mut same, &slice("10.0.0.1"));
        assert_eq!(same, slice("10.0.0.1"));
        strategy.prepare_for_update(Endpoint::Main, &mut other, &slice("10.0.0.1"));
        assert_eq!(other, json!({"endpoints": [{"addresses": ["10.0.0.2"]}]}));
        let (mut empty, before) = (made.clone(), made.clone());
        empty["endpoints"][0]["deprecatedTopology"] = json!({});
        strategy.prepare_for_update(Endpoint::Main, &mut empty, &before);
        assert_eq!(empty, before);
    }
}
