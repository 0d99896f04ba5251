//! APIService (apiregistration.k8s.io/v1). They are kept; no request goes to
//! another server.

use jiff::Timestamp;
use meta::value::{at, int_at, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use crate::checks::{all_invalid, bool_at, segment_errors};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, items};

const GROUP: &str = "apiregistration.k8s.io";

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "APIService",
    list_kind: "APIServiceList",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    namespaced: false,
    subresources: &[Subresource::status(GROUP, "v1", "APIService")],
    storage_prefix: "apiregistration.k8s.io/apiservices",
    definition: "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
    unconditional_update: false,
    name_errors: segment_errors,
    columns: &[
        Column::name(),
        Column::text("Service", "Who serves the version."),
        Column::text("Available", "Whether it can be reached."),
        Column::age(),
    ],
    strategy: &ApiService,
    ..Kind::BASE
};

struct ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Value) {
        let service = object
            .get_mut("spec")
            .and_then(|s| s.get_mut("service"))
            .and_then(Value::as_object_mut);
        if let Some(service) = service {
            fill(service, "port", 443);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let mut status = json!({});
        if at(object, "spec.service").is_none() {
            status["conditions"] = json!([{
                "type": "Available",
                "status": "True",
                "lastTransitionTime": str_at(object, "metadata.creationTimestamp"),
                "reason": "Local",
                "message": "Local APIServices are always available",
            }]);
        }
        put(object, "status", Some(status));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let (group, version) = (str_at(object, "spec.group"), str_at(object, "spec.version"));
        let (name, needed) = (meta::value::name(object), format!("{version}.{group}"));
        if segment_errors(name).is_empty() && name != needed {
            errors.push(FieldError::invalid(
                "metadata.name",
                name,
                format!("must be `spec.version+\".\"+spec.group`: {needed:?}"),
            ));
        }
        if group.is_empty() && version != "v1" {
            errors.push(FieldError::required(
                "spec.group",
                "only v1 may have an empty group and it better be legacy kube",
            ));
        }
        if !group.is_empty() {
            let wrong = names::subdomain_errors(group);
            all_invalid(group, "spec.group", wrong, errors);
        }
        let wrong = names::label_1035_errors(version);
        all_invalid(version, "spec.version", wrong, errors);
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let path = format!("spec.{field}");
            let number = int_at(object, &path).unwrap_or(0);
            if number <= 0 || number > most {
                let words = format!("must be positive and less than {most}");
                errors.push(FieldError::invalid(path, number, words));
            }
        }
        service(object, errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, _: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            return;
        }
        for (index, one) in items(new, "status.conditions").iter().enumerate() {
            let status = str_at(one, "status");
            if !matches!(status, "True" | "False" | "Unknown") {
                errors.push(FieldError::not_supported(
                    format!("status.conditions[{index}].status"),
                    status,
                    &["True", "False", "Unknown"],
                ));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let service = match at(object, "spec.service") {
            None => "Local".to_owned(),
            Some(s) => format!("{}/{}", str_at(s, "namespace"), str_at(s, "name")),
        };
        let condition = items(object, "status.conditions")
            .iter()
            .find(|c| str_at(c, "type") == "Available");
        let available = match condition {
            None => "Unknown".to_owned(),
            Some(c) => match (str_at(c, "status"), str_at(c, "reason")) {
                ("True", _) => "True".to_owned(),
                (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        };
        vec![
            print::name(object),
            Value::from(service),
            Value::from(available),
            print::age(object, now),
        ]
    }
}

fn service(object: &Value, errors: &mut Errors) {
    const SKIP: &str = "spec.insecureSkipTLSVerify";
    let bundle = str_at(object, "spec.caBundle");
    let skips = bool_at(object, SKIP);
    let Some(service) = at(object, "spec.service") else {
        if !bundle.is_empty() {
            errors.push(FieldError::invalid(
                "spec.caBundle",
                format!("{} bytes", bundle.len() / 4 * 3),
                "local APIServices may not have a caBundle",
            ));
        }
        if skips {
            let words = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(SKIP, true, words));
        }
        return;
    };
    for field in ["namespace", "name"] {
        if str_at(service, field).is_empty() {
            let path = format!("spec.service.{field}");
            errors.push(FieldError::required(path, ""));
        }
    }
    if skips && !bundle.is_empty() {
        let words = "may not be true if caBundle is present";
        errors.push(FieldError::invalid(SKIP, true, words));
    }
}
