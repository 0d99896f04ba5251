//! IPAddress and ServiceCIDR (networking.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, str_at};
use serde_json::{Value, json};

use super::ingress::GROUP;
use crate::checks::{
    Cidr, all_invalid, cidr_errors, ip_errors, required_segment, segment_errors, texts,
};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::print;
use crate::validate::{Errors, IMMUTABLE, immutable};

/// How many ranges a ServiceCIDR has at most: one of each family.
const CIDRS_MAX: usize = 2;

/// Describes the kind of addresses that are taken.
pub(crate) static ADDRESS: Kind = Kind {
    group: GROUP,
    kind: "IPAddress",
    list_kind: "IPAddressList",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    namespaced: false,
    storage_prefix: "ipaddresses",
    definition: "io.k8s.api.networking.v1.IPAddress",
    name_errors: ip_errors,
    columns: &[
        Column::name(),
        Column::text("ParentRef", "What has taken the address."),
    ],
    strategy: &Address,
    ..Kind::BASE
};

/// Describes the kind of ranges that addresses are taken from.
pub(crate) static CIDR: Kind = Kind {
    group: GROUP,
    kind: "ServiceCIDR",
    list_kind: "ServiceCIDRList",
    plural: "servicecidrs",
    singular: "servicecidr",
    namespaced: false,
    subresources: &[Subresource::status(GROUP, "v1", "ServiceCIDR")],
    storage_prefix: "servicecidrs",
    definition: "io.k8s.api.networking.v1.ServiceCIDR",
    columns: &[
        Column::name(),
        Column::text("CIDRs", "The ranges."),
        Column::age(),
    ],
    strategy: &Range,
    ..Kind::BASE
};

struct Address;

impl Strategy for Address {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        const PATH: &str = "spec.parentRef";
        let Some(parent) = at(object, PATH) else {
            errors.push(FieldError::required(PATH, ""));
            return;
        };
        let group = str_at(parent, "group");
        if !group.is_empty() {
            let wrong = meta::names::subdomain_errors(group);
            all_invalid(group, &format!("{PATH}.group"), wrong, errors);
        }
        required_segment(parent, "resource", PATH, errors);
        required_segment(parent, "name", PATH, errors);
        let namespace = str_at(parent, "namespace");
        let wrong = segment_errors(namespace);
        all_invalid(namespace, &format!("{PATH}.namespace"), wrong, errors);
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "spec.parentRef", errors);
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let parent = match at(object, "spec.parentRef") {
            None => print::NONE.to_owned(),
            Some(parent) => {
                let mut text = str_at(parent, "resource").to_lowercase();
                let (group, namespace) = (str_at(parent, "group"), str_at(parent, "namespace"));
                if !group.is_empty() {
                    text = format!("{text}.{}", group.to_lowercase());
                }
                if !namespace.is_empty() {
                    text = format!("{text}/{namespace}");
                }
                format!("{text}/{}", str_at(parent, "name"))
            }
        };
        vec![print::name(object), Value::from(parent)]
    }
}

struct Range;

impl Strategy for Range {
    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({})));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        const PATH: &str = "spec.cidrs";
        let list = texts(object, PATH);
        if list.is_empty() {
            errors.push(FieldError::required(PATH, "at least one CIDR required"));
            return;
        }
        if list.len() > CIDRS_MAX {
            errors.push(FieldError::invalid(
                PATH,
                object.get("spec").cloned().unwrap_or_default(),
                "may only hold up to 2 values",
            ));
            return;
        }
        for (index, text) in list.iter().enumerate() {
            all_invalid(text, &format!("{PATH}[{index}]"), cidr_errors(text), errors);
        }
        let family = |text: &&str| Cidr::parse(text).map(|c| c.ip.is_ipv4());
        if let [first, second] = list.as_slice()
            && family(first).is_some()
            && family(first) == family(second)
        {
            errors.push(FieldError::invalid(
                PATH,
                json!(list),
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            ));
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        const PATH: &str = "spec.cidrs";
        let (is, was) = (texts(new, PATH), texts(old, PATH));
        // A second family may join; nothing else changes.
        if is.len() != was.len() && (was.len(), is.len()) != (1, 2) {
            errors.push(FieldError::invalid(PATH, json!(is), IMMUTABLE));
            return;
        }
        for (index, (is, was)) in is.iter().zip(was).enumerate() {
            if *is != was {
                let path = format!("{PATH}[{index}]");
                errors.push(FieldError::invalid(path, *is, IMMUTABLE));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(texts(object, "spec.cidrs").join(",")),
            print::age(object, now),
        ]
    }
}
