//! Pod.

mod print;
mod update;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::{Value, json};

use crate::kind::{
    Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource, copy_field, keep_other_half,
};
use crate::podspec;
use crate::validate::{self, Errors};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "Pod",
    list_kind: "PodList",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "attach",
            group: "",
            version: "v1",
            kind: "PodAttachOptions",
            verbs: &["create", "get"],
        },
        Subresource {
            name: "binding",
            group: "",
            version: "v1",
            kind: "Binding",
            verbs: &["create"],
        },
        Subresource {
            name: "ephemeralcontainers",
            group: "",
            version: "v1",
            kind: "Pod",
            verbs: STATUS_VERBS,
        },
        Subresource {
            name: "eviction",
            group: "policy",
            version: "v1",
            kind: "Eviction",
            verbs: &["create"],
        },
        Subresource {
            name: "exec",
            group: "",
            version: "v1",
            kind: "PodExecOptions",
            verbs: &["create", "get"],
        },
        Subresource {
            name: "log",
            group: "",
            version: "v1",
            kind: "Pod",
            verbs: &["get"],
        },
        Subresource {
            name: "portforward",
            group: "",
            version: "v1",
            kind: "PodPortForwardOptions",
            verbs: &["create", "get"],
        },
        Subresource {
            name: "resize",
            group: "",
            version: "v1",
            kind: "Pod",
            verbs: STATUS_VERBS,
        },
        Subresource {
            name: "status",
            group: "",
            version: "v1",
            kind: "Pod",
            verbs: STATUS_VERBS,
        },
    ],
    storage_prefix: "pods",
    definition: "io.k8s.api.core.v1.Pod",
    generation: true,
    returns_deleted: true,
    selectable: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    columns: &[
        Column::name(),
        Column::text(
            "Ready",
            "The number of ready containers of those there are.",
        ),
        Column::text("Status", "The phase, or what keeps it from running."),
        Column::text(
            "Restarts",
            "How often containers were started again, and when last.",
        ),
        Column::age(),
        Column::wide("IP", "The address."),
        Column::wide("Node", "The node it runs on."),
        Column::wide(
            "Nominated Node",
            "The node on which room is being made for it.",
        ),
        Column::wide(
            "Readiness Gates",
            "The number of true readiness gates of those there are.",
        ),
    ],
    strategy: &Pod,
    ..Kind::BASE
};

struct Pod;

impl Strategy for Pod {
    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Status => &[
                "spec",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ],
            Endpoint::Main => &["status"],
            Endpoint::Finalize | Endpoint::Other => &[],
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        podspec::defaults::spec(spec);
        podspec::defaults::pod_only(spec);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let class = podspec::qos::class(at(object, "spec").unwrap_or(&Value::Null));
        let mut status = json!({"phase": "Pending", "qosClass": class});
        let gated = crate::print::count(object, "spec.schedulingGates") > 0;
        if gated {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        crate::kind::put(object, "status", Some(status));
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        match endpoint {
            // Labels and annotations of a pod may change with its status.
            Endpoint::Status => {
                copy_field(new, old, "spec");
                if let (Some(new), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
                    copy_field(new, old, "ownerReferences");
                }
                keep_class(new, old);
            }
            other => keep_other_half(other, new, old),
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        podspec::validate::spec(at(object, "spec").unwrap_or(&Value::Null), "spec", errors);
    }

    fn settles(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        if crate::print::count(object, "spec.ephemeralContainers") > 0 {
            let words = "cannot be set on create";
            errors.push(FieldError::forbidden("spec.ephemeralContainers", words));
        }
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Main {
            update::validate(new, old, errors);
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        // A pod that is being deleted, or whose desired state did not change,
        // is no news.
        let same = old.is_some_and(|old| validate::same(new.get("spec"), old.get("spec")));
        if same || at(new, "metadata.deletionTimestamp").is_some() {
            return Vec::new();
        }
        podspec::warnings::spec(at(new, "spec").unwrap_or(&Value::Null), "spec")
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        match name {
            "spec.hostNetwork" => at(object, name)
                .and_then(Value::as_bool)
                .unwrap_or(false)
                .to_string(),
            "status.podIPs" => {
                let list = crate::validate::items(object, name);
                list.first()
                    .map(|ip| str_at(ip, "ip").to_owned())
                    .unwrap_or_default()
            }
            other => str_at(object, other).to_owned(),
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        print::cells(object, now)
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let wanted = asked
            .or_else(|| int_at(object, "spec.terminationGracePeriodSeconds"))
            .unwrap_or(0);
        // A negative period comes from an old default and means "at once".
        let wanted = if wanted < 0 { 1 } else { wanted };
        let unscheduled = str_at(object, "spec.nodeName").is_empty();
        let ended = matches!(str_at(object, "status.phase"), "Succeeded" | "Failed");
        Some(if unscheduled || ended { 0 } else { wanted })
    }
}

/// Keeps the class, which is decided once.
fn keep_class(new: &mut Value, old: &Value) {
    if let Some(class) = at(old, "status.qosClass") {
        object_mut(new, "status").insert("qosClass".to_owned(), class.clone());
    }
}
