//! Checks of a pod specification: the rules that users meet, with upstream's
//! paths and words (`pkg/apis/core/validation`).
//!
//! What is not checked is stored as given: affinity terms, topology spread,
//! the sources of volumes, security contexts.

use std::collections::BTreeSet;

use meta::quantity::Quantity;
use meta::value::{int_at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use crate::validate::{
    Errors, items, natural, one_of, port, port_name_errors, port_or_name, unique,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks a specification; `path` is where it stands (`spec`).
pub fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let volumes = volumes(spec, path, errors);
    let containers = items(spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required(at("containers"), ""));
    }
    for (list, init) in [("containers", false), ("initContainers", true)] {
        for (index, item) in items(spec, list).iter().enumerate() {
            container(
                item,
                &format!("{}[{index}]", at(list)),
                init,
                &volumes,
                errors,
            );
        }
    }
    names_unique(spec, path, errors);
    one_of(
        str_at(spec, "restartPolicy"),
        &at("restartPolicy"),
        &["Always", "Never", "OnFailure"],
        errors,
    );
    one_of(
        str_at(spec, "dnsPolicy"),
        &at("dnsPolicy"),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        errors,
    );
    natural(spec, path, "terminationGracePeriodSeconds", errors);
    if let Some(seconds) = int_at(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            at("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    for (field, check) in [
        (
            "serviceAccountName",
            names::subdomain_errors as fn(&str) -> Vec<String>,
        ),
        ("nodeName", names::subdomain_errors),
        ("hostname", names::label_errors),
        ("subdomain", names::label_errors),
        ("priorityClassName", names::subdomain_errors),
    ] {
        let text = str_at(spec, field);
        if !text.is_empty() {
            for error in check(text) {
                errors.push(FieldError::invalid(at(field), text, error));
            }
        }
    }
    crate::validate::labels(spec.get("nodeSelector"), &at("nodeSelector"), errors);
    for (index, item) in items(spec, "tolerations").iter().enumerate() {
        toleration(item, &format!("{}[{index}]", at("tolerations")), errors);
    }
}

/// Checks the template of a workload's pods.
pub fn template(template: Option<&Value>, path: &str, errors: &mut Errors) {
    let empty = Value::Null;
    let template = template.unwrap_or(&empty);
    let metadata = template.get("metadata").unwrap_or(&empty);
    crate::validate::labels(
        metadata.get("labels"),
        &format!("{path}.metadata.labels"),
        errors,
    );
    crate::validate::annotations(
        metadata.get("annotations"),
        &format!("{path}.metadata.annotations"),
        errors,
    );
    spec(
        template.get("spec").unwrap_or(&empty),
        &format!("{path}.spec"),
        errors,
    );
}

fn names_unique(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for list in super::CONTAINER_LISTS {
        for (index, item) in items(spec, list).iter().enumerate() {
            let name = str_at(item, "name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(
                    format!("{path}.{list}[{index}].name"),
                    name,
                ));
            }
        }
    }
}

fn volumes<'a>(spec: &'a Value, path: &str, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let at = format!("{path}.volumes[{index}]");
        let name = str_at(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else {
            for error in names::label_errors(name) {
                errors.push(FieldError::invalid(format!("{at}.name"), name, error));
            }
        }
        if !name.is_empty() && !found.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), name));
        }
        let sources: Vec<&String> = volume
            .as_object()
            .into_iter()
            .flat_map(|m| m.keys())
            .filter(|k| *k != "name")
            .collect();
        for extra in sources.iter().skip(1) {
            errors.push(FieldError::forbidden(
                format!("{at}.{extra}"),
                "may not specify more than 1 volume type",
            ));
        }
        let empty = |p: &str| volume.get(p).is_some_and(|s| str_at(s, "path").is_empty());
        if empty("hostPath") {
            errors.push(FieldError::required(format!("{at}.hostPath.path"), ""));
        }
        if volume
            .get("secret")
            .is_some_and(|s| str_at(s, "secretName").is_empty())
        {
            errors.push(FieldError::required(format!("{at}.secret.secretName"), ""));
        }
        if volume
            .get("configMap")
            .is_some_and(|s| str_at(s, "name").is_empty())
        {
            errors.push(FieldError::required(format!("{at}.configMap.name"), ""));
        }
    }
    found
}

fn container(
    container: &Value,
    path: &str,
    init: bool,
    volumes: &BTreeSet<&str>,
    errors: &mut Errors,
) {
    let at = |field: &str| format!("{path}.{field}");
    let name = str_at(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    } else {
        for error in names::label_errors(name) {
            errors.push(FieldError::invalid(at("name"), name, error));
        }
    }
    let image = str_at(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(at("image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            at("image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(
        str_at(container, "imagePullPolicy"),
        &at("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    one_of(
        str_at(container, "terminationMessagePolicy"),
        &at("terminationMessagePolicy"),
        &["FallbackToLogsOnError", "File"],
        errors,
    );
    ports(container, path, errors);
    env(container, path, errors);
    mounts(container, path, volumes, errors);
    resources(container.get("resources"), &at("resources"), errors);
    let sidecar = init && str_at(container, "restartPolicy") == "Always";
    for probe_name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(found) = container.get(probe_name) else {
            continue;
        };
        if init && !sidecar {
            errors.push(FieldError::forbidden(
                at(probe_name),
                "may not be set for init containers without restartPolicy=Always",
            ));
        } else {
            probe(found, &at(probe_name), false, errors);
        }
        if probe_name != "readinessProbe" && int_at(found, "successThreshold").unwrap_or(1) != 1 {
            errors.push(FieldError::invalid(
                at(&format!("{probe_name}.successThreshold")),
                int_at(found, "successThreshold").unwrap_or(0),
                "must be 1",
            ));
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(found) = container.get("lifecycle").and_then(|l| l.get(hook)) {
            probe(found, &at(&format!("lifecycle.{hook}")), true, errors);
        }
    }
}

fn ports(container: &Value, path: &str, errors: &mut Errors) {
    let list = items(container, "ports");
    unique(list, &format!("{path}.ports"), "name", errors);
    for (index, item) in list.iter().enumerate() {
        let at = |field: &str| format!("{path}.ports[{index}].{field}");
        let name = str_at(item, "name");
        if !name.is_empty() {
            for error in port_name_errors(name) {
                errors.push(FieldError::invalid(at("name"), name, error));
            }
        }
        match int_at(item, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(at("containerPort"), "")),
            number => port(number, &at("containerPort"), errors),
        }
        if let Some(number) = int_at(item, "hostPort").filter(|n| *n != 0) {
            port(number, &at("hostPort"), errors);
        }
        one_of(
            str_at(item, "protocol"),
            &at("protocol"),
            &PROTOCOLS,
            errors,
        );
    }
}

fn env(container: &Value, path: &str, errors: &mut Errors) {
    for (index, item) in items(container, "env").iter().enumerate() {
        let at = |field: &str| format!("{path}.env[{index}].{field}");
        let name = str_at(item, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        } else if name.contains('=') || !name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            errors.push(FieldError::invalid(
                at("name"),
                name,
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            ));
        }
        if let Some(from) = item.get("valueFrom") {
            if !str_at(item, "value").is_empty() {
                errors.push(FieldError::invalid(
                    at("valueFrom"),
                    "",
                    "may not be specified when `value` is not empty",
                ));
            }
            let sources = from.as_object().map_or(0, serde_json::Map::len);
            if sources != 1 {
                errors.push(FieldError::invalid(
                    at("valueFrom"),
                    "",
                    if sources == 0 {
                        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
                    } else {
                        "may not have more than one field specified at a time"
                    },
                ));
            }
        }
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let mut points = BTreeSet::new();
    for (index, item) in items(container, "volumeMounts").iter().enumerate() {
        let at = |field: &str| format!("{path}.volumeMounts[{index}].{field}");
        let name = str_at(item, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(at("name"), name));
        }
        let point = str_at(item, "mountPath");
        if point.is_empty() {
            errors.push(FieldError::required(at("mountPath"), ""));
        } else if !points.insert(point) {
            errors.push(FieldError::invalid(
                at("mountPath"),
                point,
                "must be unique",
            ));
        }
    }
}

fn resources(resources: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(resources) = resources else { return };
    let map = |kind: &str| resources.get(kind).and_then(Value::as_object);
    for kind in ["limits", "requests"] {
        for (name, value) in map(kind).into_iter().flatten() {
            let at = format!("{path}.{kind}");
            for error in names::qualified_name_errors(name) {
                errors.push(FieldError::invalid(at.clone(), name.as_str(), error));
            }
            match Quantity::from_value(value) {
                Ok(quantity) if quantity.is_negative() => errors.push(FieldError::invalid(
                    format!("{at}[{name}]"),
                    quantity.to_string(),
                    "must be greater than or equal to 0",
                )),
                Ok(_) => {}
                Err(error) => errors.push(FieldError::invalid(
                    format!("{at}[{name}]"),
                    value.clone(),
                    error.to_string(),
                )),
            }
        }
    }
    for (name, request) in map("requests").into_iter().flatten() {
        let Some(limit) = map("limits").and_then(|l| l.get(name)) else {
            continue;
        };
        if let (Ok(request), Ok(limit)) =
            (Quantity::from_value(request), Quantity::from_value(limit))
            && request > limit
        {
            errors.push(FieldError::invalid(
                format!("{path}.requests"),
                request.to_string(),
                format!("must be less than or equal to {name} limit of {limit}"),
            ));
        }
    }
}

/// Checks a probe, or the handler of a lifecycle hook.
fn probe(probe: &Value, path: &str, hook: bool, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let known: &[&str] = if hook {
        &["exec", "httpGet", "tcpSocket", "sleep"]
    } else {
        &["exec", "httpGet", "tcpSocket", "grpc"]
    };
    let handlers: Vec<&str> = known
        .iter()
        .copied()
        .filter(|h| probe.get(h).is_some())
        .collect();
    match handlers.as_slice() {
        [] => errors.push(FieldError::required(path, "must specify a handler type")),
        [_, rest @ ..] => {
            for extra in rest {
                errors.push(FieldError::forbidden(
                    at(extra),
                    "may not specify more than 1 handler type",
                ));
            }
        }
    }
    if let Some(exec) = probe.get("exec")
        && items(exec, "command").is_empty()
    {
        errors.push(FieldError::required(at("exec.command"), ""));
    }
    for handler in ["httpGet", "tcpSocket"] {
        if let Some(found) = probe.get(handler) {
            port_or_name(found.get("port"), &at(&format!("{handler}.port")), errors);
        }
    }
    if let Some(get) = probe.get("httpGet") {
        one_of(
            str_at(get, "scheme"),
            &at("httpGet.scheme"),
            &["HTTP", "HTTPS"],
            errors,
        );
    }
    if hook {
        return;
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        natural(probe, path, field, errors);
    }
}

/// Checks a toleration.
pub fn toleration(toleration: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let (key, operator) = (str_at(toleration, "key"), str_at(toleration, "operator"));
    if !key.is_empty() {
        for error in names::qualified_name_errors(key) {
            errors.push(FieldError::invalid(at("key"), key, error));
        }
    } else if operator != "Exists" {
        errors.push(FieldError::invalid(
            at("operator"),
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    let effect = str_at(toleration, "effect");
    if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
        errors.push(FieldError::invalid(
            at("effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match operator {
        "" | "Equal" => {
            for error in names::label_value_errors(str_at(toleration, "value")) {
                errors.push(FieldError::invalid(
                    at("operator"),
                    str_at(toleration, "value"),
                    error,
                ));
            }
        }
        "Exists" if !str_at(toleration, "value").is_empty() => errors.push(FieldError::invalid(
            at("operator"),
            operator,
            "value must be empty when `operator` is 'Exists'",
        )),
        "Exists" => {}
        other => {
            errors.push(FieldError::not_supported(
                at("operator"),
                other,
                &["Equal", "Exists"],
            ));
        }
    }
    if !effect.is_empty() {
        one_of(
            effect,
            &at("effect"),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            errors,
        );
    }
}
