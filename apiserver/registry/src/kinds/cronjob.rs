//! CronJob (batch/v1).

mod schedule;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, object_mut, str_at};
use serde_json::Value;

use super::{job, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource};
use crate::podspec::{self, fill, fill_text};
use crate::print;
use crate::validate::{Errors, items, not_negative, one_of, same};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    list_kind: "CronJobList",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::status("batch", "v1", "CronJob")],
    storage_prefix: "cronjobs",
    definition: "io.k8s.api.batch.v1.CronJob",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Schedule", "When jobs are created."),
        Column::text("Timezone", "The time zone of the schedule."),
        Column {
            ty: "boolean",
            ..Column::text("Suspend", "Whether it rests.")
        },
        Column::integer("Active", "The number of jobs that run."),
        Column::text("Last Schedule", "The time since a job was created last."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
        Column::wide("Selector", "The selector of the pods."),
    ],
    strategy: &CronJob,
    ..Kind::BASE
};

/// The longest name; a job's has eleven characters more.
const NAME_MAX: usize = 63 - 11;

struct CronJob;

impl Strategy for CronJob {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        fill_text(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        let template = spec
            .get_mut("jobTemplate")
            .and_then(|t| t.get_mut("spec"))
            .and_then(|s| s.get_mut("template"))
            .and_then(|t| t.get_mut("spec"));
        if let Some(Value::Object(pod)) = template {
            podspec::defaults::spec(pod);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::reset_status(object);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let name = meta::value::name(object);
        if name.len() > NAME_MAX {
            let words = format!("must be no more than {NAME_MAX} characters");
            errors.push(FieldError::invalid("metadata.name", name, words));
        }
        self.schedule(object, false, errors);
        self.zone(object, errors);
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        not_negative(object, "spec.startingDeadlineSeconds", errors);
        one_of(
            str_at(object, "spec.concurrencyPolicy"),
            "spec.concurrencyPolicy",
            &["Allow", "Forbid", "Replace"],
            errors,
        );
        job_template(object, errors);
        not_negative(object, "spec.successfulJobsHistoryLimit", errors);
        not_negative(object, "spec.failedJobsHistoryLimit", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            return;
        }
        // What was accepted with a zone in its schedule may keep it.
        let zoned = str_at(old, "spec.schedule").contains("TZ");
        self.schedule(new, zoned, errors);
        if !same(at(new, "spec.timeZone"), at(old, "spec.timeZone")) {
            self.zone(new, errors);
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none() {
            found.extend(workload::name_warning(new));
        }
        let spec = |object| at(object, "spec.jobTemplate.spec.template.spec");
        if let Some(pod) = spec(new)
            && !old.is_some_and(|old| same(Some(pod), spec(old)))
        {
            let path = "spec.jobTemplate.spec.template.spec";
            found.extend(podspec::warnings::spec(pod, path));
        }
        if str_at(new, "spec.schedule").contains("TZ") {
            let words = "CRON_TZ or TZ used in spec.schedule, this is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
            found.push(words.to_owned());
        }
        found
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let template = "spec.jobTemplate.spec.template.spec";
        let (names, images) = print::containers(at(object, template));
        let last = match str_at(object, "status.lastScheduleTime") {
            "" => print::NONE.to_owned(),
            moment => print::since(moment, now),
        };
        let suspended = match at(object, "spec.suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        vec![
            print::name(object),
            Value::from(str_at(object, "spec.schedule")),
            print::text_or_none(object, "spec.timeZone"),
            Value::from(suspended),
            Value::from(items(object, "status.active").len()),
            Value::from(last),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
            Value::from(print::selector(at(
                object,
                "spec.jobTemplate.spec.selector",
            ))),
        ]
    }
}

impl CronJob {
    fn schedule(&self, object: &Value, zoned: bool, errors: &mut Errors) {
        let path = "spec.schedule";
        let text = str_at(object, path);
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            return;
        }
        if let Err(error) = schedule::check(text) {
            errors.push(FieldError::invalid(path, text, error.to_string()));
        }
        let words = match (text.contains("TZ"), zoned) {
            (true, true) if at(object, "spec.timeZone").is_some() => {
                "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            }
            (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            _ => return,
        };
        errors.push(FieldError::invalid(path, text, words));
    }

    fn zone(&self, object: &Value, errors: &mut Errors) {
        let path = "spec.timeZone";
        let Some(name) = at(object, path).and_then(Value::as_str) else {
            return;
        };
        for words in schedule::zone_errors(name) {
            errors.push(FieldError::invalid(path, name, words));
        }
    }
}

fn job_template(object: &Value, errors: &mut Errors) {
    let path = "spec.jobTemplate.spec";
    let spec = at(object, path).unwrap_or(&Value::Null);
    job::spec(spec, path, errors);
    if let Some(selector) = spec.get("selector") {
        errors.push(FieldError::invalid(
            format!("{path}.selector"),
            selector.clone(),
            "`selector` will be auto-generated",
        ));
    }
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        errors.push(FieldError::not_supported(
            format!("{path}.manualSelector"),
            true,
            &["nil", "false"],
        ));
    }
}
