//! Job (batch/v1). A job that is not told otherwise chooses its pods by its own
//! uid, which no other job can choose.

mod indexes;
mod policy;
mod status;
mod update;

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, LabelSelector, names};
use serde_json::{Map, Value, json};

use super::workload;
use crate::kind::{Column, Endpoint, Kind, Propagation, Strategy, Subresource};
use crate::podspec::{self, each, fill, fill_text};
use crate::print;
use crate::rest::DeleteOptions;
use crate::validate::{Errors, natural, selector};

/// Describes the kind. Its pods stay when it is deleted without a word about
/// them, as they did before there were propagation policies.
pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    list_kind: "JobList",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    subresources: &[Subresource::status("batch", "v1", "Job")],
    storage_prefix: "jobs",
    definition: "io.k8s.api.batch.v1.Job",
    generation: true,
    propagation: Propagation::Orphan,
    selectable: &["status.successful"],
    columns: &[
        Column::name(),
        Column::text("Status", "How it stands."),
        Column::text(
            "Completions",
            "The number of pods that succeeded of those wanted.",
        ),
        Column::text("Duration", "How long it took, or has taken so far."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
        Column::wide("Selector", "The selector of the pods."),
    ],
    strategy: &Job,
    ..Kind::BASE
};

/// The label of a job's pods that holds its uid, and the name it had before.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The label of a job's pods that holds its name, and the name it had before.
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// The largest parallelism of an indexed job, and its most failed indexes.
const INDEXED_MAX: i64 = 100_000;
/// Beyond this many completions the failures of each index are bounded closer.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
/// The closer bound.
const HIGH_COMPLETIONS_MAX: i64 = 10_000;
/// The longest name of a job's controller.
const MANAGED_BY_MAX: usize = 63;

struct Job;

impl Strategy for Job {
    fn default(&self, object: &mut Value) {
        let labels = at(object, "spec.template.metadata.labels").cloned();
        let spec = workload::default_template(object);
        if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let by_index = spec.contains_key("backoffLimitPerIndex");
        fill(spec, "backoffLimit", if by_index { i32::MAX } else { 6 });
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        fill(spec, "manualSelector", false);
        let replaced = match spec.contains_key("podFailurePolicy") {
            true => "Failed",
            false => "TerminatingOrFailed",
        };
        fill(spec, "podReplacementPolicy", replaced);
        default_policy(spec);
        if let Some(labels) = labels.filter(is_filled) {
            workload::default_labels(object, labels);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::reset_status(object);
        if at(object, "spec.manualSelector") != Some(&Value::Bool(true)) {
            generate_selector(object);
            // What was generated is a default of the labels too, once it is read.
            if let Some(labels) = at(object, "spec.template.metadata.labels").cloned() {
                workload::default_labels(object, labels);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        generated(object, errors);
        let spec = at(object, "spec").unwrap_or(&Value::Null);
        self::spec(spec, "spec", errors);
        match spec.get("selector") {
            None => errors.push(FieldError::required("spec.selector", "")),
            Some(value) => {
                selector(Some(value), "spec.selector", errors);
                let template = spec.get("template").unwrap_or(&Value::Null);
                if let Ok(chosen) = LabelSelector::from_value(value) {
                    workload::chooses(&chosen, template, "spec.template", errors);
                }
            }
        }
        let completions = int_at(spec, "completions").unwrap_or(0);
        if str_at(spec, "completionMode") == "Indexed" && completions > 0 {
            let name = meta::value::name(object);
            let longest = format!("{name}-{}", completions - 1);
            if !names::label_errors(&longest).is_empty() {
                let words =
                    format!("will not able to create pod with invalid DNS label: {longest}");
                errors.push(FieldError::invalid("metadata.name", name, words));
            }
        }
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        match endpoint {
            Endpoint::Status => {
                status::validate(new, errors);
                status::validate_update(new, old, errors);
            }
            _ => update::validate(new, old, errors),
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::named_warnings(new, old)
    }

    fn delete_warnings(&self, options: &DeleteOptions) -> Vec<String> {
        match options.propagation {
            Some(_) => Vec::new(),
            None => vec![
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
                    .to_owned(),
            ],
        }
    }

    fn selectable_field(&self, object: &Value, _: &str) -> String {
        let succeeded = int_at(object, "status.succeeded").unwrap_or(0);
        succeeded.to_string()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "spec.template.spec"));
        vec![
            print::name(object),
            Value::from(status::printed(object)),
            Value::from(completions(object)),
            Value::from(duration(object, now)),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
            Value::from(print::selector(at(object, "spec.selector"))),
        ]
    }
}

fn is_filled(labels: &Value) -> bool {
    labels.as_object().is_some_and(|map| !map.is_empty())
}

fn default_policy(spec: &mut Map<String, Value>) {
    let Some(Value::Object(policy)) = spec.get_mut("podFailurePolicy") else {
        return;
    };
    for rule in each(policy, "rules") {
        for pattern in each(rule, "onPodConditions") {
            fill_text(pattern, "status", "True");
        }
    }
}

/// Labels the template with the job's name and uid and chooses by the uid,
/// where nothing else is given.
fn generate_selector(object: &mut Value) {
    let name = meta::value::name(object).to_owned();
    let uid = meta::value::uid(object).to_owned();
    let spec = object_mut(object, "spec");
    let template = spec.entry("template").or_insert_with(|| json!({}));
    object_mut(template, "metadata");
    let labels = object_mut(&mut template["metadata"], "labels");
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            fill(labels, key, value.as_str());
        }
    }
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    fill(object_mut(selector, "matchLabels"), UID_LABELS[0], uid);
}

/// Checks that a generated selector, and the labels it needs, are the job's own.
fn generated(object: &Value, errors: &mut Errors) {
    let manual = at(object, "spec.manualSelector") == Some(&Value::Bool(true));
    let Some(chosen) = at(object, "spec.selector").filter(|_| !manual) else {
        return;
    };
    let (name, uid) = (meta::value::name(object), meta::value::uid(object));
    if uid.is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let template = at(object, "spec.template.metadata.labels");
    let mut expected = std::collections::BTreeMap::new();
    for (keys, value) in [(UID_LABELS, uid), (NAME_LABELS, name)] {
        for key in keys {
            expected.insert(key.to_owned(), value.to_owned());
            let path = format!("spec.template.metadata.labels[{key}]");
            match template.and_then(|l| l.get(key)).and_then(Value::as_str) {
                None => {
                    let words = format!("must be '{value}'");
                    errors.push(FieldError::required(path, words));
                }
                Some(is) if is != value => {
                    let words = format!("must be '{value}'");
                    let all = template.cloned().unwrap_or_default();
                    errors.push(FieldError::invalid(path, all, words));
                }
                Some(_) => {}
            }
        }
    }
    if LabelSelector::from_value(chosen).is_ok_and(|s| !s.matches(&expected)) {
        let words = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", chosen.clone(), words));
    }
}

/// Checks a specification without its selector; `path` is where it stands.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        natural(spec, path, field, errors);
    }
    let by_index = spec.get("backoffLimitPerIndex").is_some();
    if spec.get("maxFailedIndexes").is_some() && !by_index {
        let words = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(at("backoffLimitPerIndex"), words));
    }
    managed_by(spec, path, errors);
    let mode = spec.get("completionMode").and_then(Value::as_str);
    match mode {
        Some("Indexed") => indexed(spec, path, errors),
        None | Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = spec.get(field) {
                    let words = "requires indexed completion mode";
                    errors.push(FieldError::invalid(at(field), value.clone(), words));
                }
            }
        }
        Some(other) => errors.push(FieldError::not_supported(
            at("completionMode"),
            other,
            &["NonIndexed", "Indexed"],
        )),
    }
    policy::failure(spec, path, errors);
    policy::success(spec, path, errors);
    policy::replacement(spec, path, errors);
    podspec::validate::template(spec.get("template"), &at("template"), errors);
    restart_policy(spec, path, errors);
}

fn managed_by(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else {
        return;
    };
    let path = format!("{path}.managedBy");
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(FieldError::required(path.as_str(), "")),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            for error in names::subdomain_errors(domain) {
                errors.push(FieldError::invalid(path.as_str(), domain, error));
            }
        }
        _ => errors.push(FieldError::invalid(
            path.as_str(),
            manager,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        )),
    }
    if manager.len() > MANAGED_BY_MAX {
        errors.push(FieldError::too_long(path, MANAGED_BY_MAX));
    }
}

fn indexed(spec: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let find = |field: &str| int_at(spec, field);
    let (completions, failed) = (find("completions"), find("maxFailedIndexes"));
    if completions.is_none() {
        let words = "when completion mode is Indexed";
        errors.push(FieldError::required(at("completions"), words));
    }
    let parallelism = find("parallelism").unwrap_or(0);
    if parallelism > INDEXED_MAX {
        let words =
            format!("must be less than or equal to {INDEXED_MAX} when completion mode is Indexed");
        errors.push(FieldError::invalid(at("parallelism"), parallelism, words));
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        let words = "must be less than or equal to completions";
        errors.push(FieldError::invalid(at("maxFailedIndexes"), failed, words));
    }
    if let Some(failed) = failed.filter(|f| *f > INDEXED_MAX) {
        let words = format!("must be less than or equal to {INDEXED_MAX}");
        errors.push(FieldError::invalid(at("maxFailedIndexes"), failed, words));
    }
    let many = completions.is_some_and(|c| c > COMPLETIONS_SOFT_MAX);
    if !many || spec.get("backoffLimitPerIndex").is_none() {
        return;
    }
    if failed.is_none() {
        let words = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
        errors.push(FieldError::required(at("maxFailedIndexes"), words));
    }
    for field in ["parallelism", "maxFailedIndexes"] {
        if let Some(value) = find(field).filter(|v| *v > HIGH_COMPLETIONS_MAX) {
            let words = format!(
                "must be less than or equal to {HIGH_COMPLETIONS_MAX} when completions are above {COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
            );
            errors.push(FieldError::invalid(at(field), value, words));
        }
    }
}

fn restart_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let at = format!("{path}.template.spec.restartPolicy");
    match str_at(spec, "template.spec.restartPolicy") {
        "" | "Always" => errors.push(FieldError::required(
            at,
            "valid values: \"OnFailure\", \"Never\"",
        )),
        "Never" => {}
        "OnFailure" => {
            if spec.get("podFailurePolicy").is_some() {
                let words = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.push(FieldError::invalid(at, "OnFailure", words));
            }
        }
        other => errors.push(FieldError::not_supported(
            at,
            other,
            &["OnFailure", "Never"],
        )),
    }
}

fn completions(object: &Value) -> String {
    let succeeded = int_at(object, "status.succeeded").unwrap_or(0);
    let parallelism = int_at(object, "spec.parallelism").unwrap_or(0);
    match int_at(object, "spec.completions") {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn duration(object: &Value, now: Timestamp) -> String {
    let moment = |path: &str| meta::time::parse(str_at(object, path));
    match moment("status.startTime") {
        None => String::new(),
        Some(start) => {
            let end = moment("status.completionTime").unwrap_or(now);
            meta::time::human_duration(end.as_second() - start.as_second())
        }
    }
}
