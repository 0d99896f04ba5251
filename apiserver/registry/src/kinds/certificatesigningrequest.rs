//! CertificateSigningRequest (certificates.k8s.io/v1).
//!
//! Three doors, three halves: the main one changes nothing but metadata,
//! `status` the certificate and the conditions of its signer, `approval` the
//! conditions.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use crate::checks::{all_invalid, any_name, no_duplicates, texts};
use crate::kind::{
    Column, Endpoint, Facts, Kind, STATUS_VERBS, Strategy, Subresource, copy_field, put,
};
use crate::pem;
use crate::print;
use crate::validate::{Errors, items, same};

const GROUP: &str = "certificates.k8s.io";
/// The shortest life of a certificate that may be asked for, in seconds.
const SECONDS_MIN: i64 = 600;
/// The signer of a time when signers had no names.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The conditions that only `approval` may set.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that never go away, and are true.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "CertificateSigningRequest",
    list_kind: "CertificateSigningRequestList",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    namespaced: false,
    subresources: &[
        Subresource {
            name: "approval",
            group: GROUP,
            version: "v1",
            kind: "CertificateSigningRequest",
            verbs: STATUS_VERBS,
        },
        Subresource::status(GROUP, "v1", "CertificateSigningRequest"),
    ],
    storage_prefix: "certificatesigningrequests",
    definition: "io.k8s.api.certificates.v1.CertificateSigningRequest",
    name_errors: any_name,
    selectable: &["spec.signerName"],
    columns: &[
        Column::name(),
        Column::age(),
        Column::text("SignerName", "Who is asked to sign."),
        Column::text("Requestor", "Who asks."),
        Column::text("RequestedDuration", "For how long it shall be valid."),
        Column::text("Condition", "What has become of it."),
    ],
    strategy: &Request,
    ..Kind::BASE
};

struct Request;

impl Strategy for Request {
    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({})));
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        copy_field(new, old, "spec");
        match endpoint {
            Endpoint::Main | Endpoint::Finalize => copy_field(new, old, "status"),
            Endpoint::Status => keep_decisions(new, old),
            Endpoint::Other => {
                let conditions = at(new, "status.conditions").cloned();
                copy_field(new, old, "status");
                let mut status = new.get("status").cloned().unwrap_or_else(|| json!({}));
                put(&mut status, "conditions", conditions);
                put(new, "status", Some(status));
            }
        }
    }

    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Main | Endpoint::Finalize => &["spec", "status"],
            Endpoint::Status => &["spec", "status.conditions"],
            Endpoint::Other => &["spec", "status.certificate"],
        }
    }

    fn stamp(&self, endpoint: Endpoint, new: &mut Value, old: Option<&Value>, facts: &Facts<'_>) {
        let Some(old) = old else {
            let spec = object_mut(new, "spec");
            for field in ["username", "uid", "groups", "extra"] {
                spec.remove(field);
            }
            spec.insert("username".to_owned(), Value::from(facts.user));
            if !facts.uid.is_empty() {
                spec.insert("uid".to_owned(), Value::from(facts.uid));
            }
            spec.insert("groups".to_owned(), json!(facts.groups));
            if !facts.extra.is_empty() {
                spec.insert("extra".to_owned(), json!(facts.extra));
            }
            return;
        };
        if matches!(endpoint, Endpoint::Status | Endpoint::Other) {
            date_conditions(new, old, &meta::time::format(facts.now));
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let request = str_at(object, "spec.request");
        let bytes = STANDARD.decode(request).unwrap_or_default();
        if let Err(why) = pem::check_request(&bytes) {
            errors.push(FieldError::invalid("spec.request", request, why));
        }
        let usages = texts(object, "spec.usages");
        if usages.is_empty() {
            errors.push(FieldError::required("spec.usages", ""));
        }
        for (index, usage) in usages.iter().enumerate() {
            if !USAGES.contains(usage) {
                let path = format!("spec.usages[{index}]");
                errors.push(FieldError::not_supported(path, *usage, &USAGES));
            }
        }
        no_duplicates(&usages, "spec.usages", errors);
        let signer = str_at(object, "spec.signerName");
        if signer == LEGACY_SIGNER {
            errors.push(FieldError::invalid(
                "spec.signerName",
                signer,
                "the legacy signerName is not allowed via this API version",
            ));
        } else {
            signer_name(signer, errors);
        }
        if let Some(seconds) = int_at(object, "spec.expirationSeconds")
            && seconds < SECONDS_MIN
        {
            errors.push(FieldError::invalid(
                "spec.expirationSeconds",
                seconds,
                "may not specify a duration less than 600 seconds (10 minutes)",
            ));
        }
        conditions(object, errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        let mut say = |words: String| {
            errors.push(FieldError::forbidden("status.conditions", words));
        };
        for ty in LASTING {
            let (is, was) = (of_type(new, ty), of_type(old, ty));
            let decided = endpoint == Endpoint::Other || !DECISIONS.contains(&ty);
            if is.len() < was.len() {
                say(format!("updates may not remove a condition of type {ty:?}"));
            } else if !decided && is.len() > was.len() {
                say(format!("updates may not add a condition of type {ty:?}"));
            } else if !decided && !is.iter().zip(&was).all(|(a, b)| same(Some(a), Some(b))) {
                say(format!("updates may not modify a condition of type {ty:?}"));
            }
        }
        certificate(endpoint, new, old, errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let lasts = match int_at(object, "spec.expirationSeconds") {
            Some(seconds) => meta::time::human_duration(seconds),
            None => print::NONE.to_owned(),
        };
        vec![
            print::name(object),
            print::age(object, now),
            print::text_or_none(object, "spec.signerName"),
            Value::from(str_at(object, "spec.username")),
            Value::from(lasts),
            Value::from(outcome(object)),
        ]
    }
}

fn outcome(object: &Value) -> String {
    let has = |ty: &str| !of_type(object, ty).is_empty();
    let mut text = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !str_at(object, "status.certificate").is_empty() {
        text.push_str(",Issued");
    }
    text
}

fn of_type<'a>(object: &'a Value, ty: &str) -> Vec<&'a Value> {
    let list = items(object, "status.conditions").iter();
    list.filter(|c| str_at(c, "type") == ty).collect()
}

/// Keeps the decisions as they were, where their number says that none was to
/// come or go.
fn keep_decisions(new: &mut Value, old: &Value) {
    for ty in DECISIONS {
        let was: Vec<Value> = of_type(old, ty).into_iter().cloned().collect();
        if was.len() != of_type(new, ty).len() {
            continue;
        }
        let list = object_mut(new, "status")
            .get_mut("conditions")
            .and_then(Value::as_array_mut);
        let same_type = list
            .into_iter()
            .flatten()
            .filter(|c| str_at(c, "type") == ty);
        for (is, was) in same_type.zip(was) {
            *is = was;
        }
    }
}

/// Fills in when conditions were set and when they last changed.
fn date_conditions(new: &mut Value, old: &Value, now: &str) {
    let list = object_mut(new, "status")
        .get_mut("conditions")
        .and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        if str_at(condition, "lastUpdateTime").is_empty() {
            put(condition, "lastUpdateTime", Some(Value::from(now)));
        }
        if str_at(condition, "lastTransitionTime").is_empty() {
            let before = items(old, "status.conditions").iter().find(|c| {
                str_at(c, "type") == str_at(condition, "type")
                    && str_at(c, "status") == str_at(condition, "status")
                    && !str_at(c, "lastTransitionTime").is_empty()
            });
            let since = before.map_or(now, |c| str_at(c, "lastTransitionTime"));
            put(condition, "lastTransitionTime", Some(Value::from(since)));
        }
    }
}

/// Checks the name of a signer: a domain, a slash, and a path without one.
fn signer_name(name: &str, errors: &mut Errors) {
    const PATH: &str = "spec.signerName";
    if name.is_empty() {
        errors.push(FieldError::required(PATH, ""));
        return;
    }
    let Some((host, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        errors.push(FieldError::invalid(
            PATH,
            name,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ));
        return;
    };
    for error in names::subdomain_errors(host) {
        errors.push(FieldError::invalid(
            PATH,
            host,
            format!("validating label {host:?}: {error}"),
        ));
    }
    if host.split('.').count() < 2 {
        errors.push(FieldError::invalid(
            PATH,
            host,
            "should be a domain with at least two segments separated by dots",
        ));
    }
    all_invalid(path, PATH, names::subdomain_errors(path), errors);
}

fn conditions(object: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, condition) in items(object, "status.conditions").iter().enumerate() {
        let at = |field: &str| format!("status.conditions[{index}].{field}");
        let (ty, status) = (str_at(condition, "type"), str_at(condition, "status"));
        if ty.is_empty() {
            errors.push(FieldError::required(at("type"), ""));
        }
        let allowed: &[&str] = match LASTING.contains(&ty) {
            true => &["True"],
            false => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.push(FieldError::required(at("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(at("status"), status, allowed));
        }
        let other = match ty {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            errors.push(FieldError::invalid(
                at("type"),
                ty,
                "Approved and Denied conditions are mutually exclusive",
            ));
        }
        if !seen.insert(ty) {
            errors.push(FieldError::duplicate(at("type"), ty));
        }
    }
}

fn certificate(endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
    const PATH: &str = "status.certificate";
    let (is, was) = (str_at(new, PATH), str_at(old, PATH));
    if is == was {
        return;
    }
    let bytes = STANDARD.decode(is).unwrap_or_default();
    if let Err(why) = pem::check_certificates(&bytes) {
        errors.push(FieldError::invalid(PATH, "<certificate data>", why));
    }
    let words = match endpoint {
        Endpoint::Status if was.is_empty() => return,
        Endpoint::Status => "updates may not modify existing certificate content",
        _ => "updates may not set certificate content",
    };
    errors.push(FieldError::forbidden(PATH, words));
}
