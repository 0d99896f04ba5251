//! What `kubectl describe pod` lists, in the words the kubelet uses.

use client::events::{EventRecorder, EventType};
use client::{Client, object_reference};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;

/// Records the kubelet's events.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    recorder: EventRecorder,
}

impl Events {
    pub(crate) fn new(client: Client, node_name: &str) -> Self {
        Events {
            recorder: EventRecorder::new(client, "kubelet", Some(node_name)),
        }
    }

    /// Records something normal about a container.
    pub(crate) fn normal(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.record(pod, Some(container), EventType::Normal, reason, message);
    }

    /// Records trouble of a container.
    pub(crate) fn warning(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.record(pod, Some(container), EventType::Warning, reason, message);
    }

    /// Records trouble of the pod as a whole.
    pub(crate) fn pod_warning(&self, pod: &Pod, reason: &str, message: String) {
        self.record(pod, None, EventType::Warning, reason, message);
    }

    fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: EventType,
        reason: &str,
        message: String,
    ) {
        let mut about = object_reference(pod);
        about.field_path = container.map(|name| {
            let list = if pod::is_main(pod, name) {
                "containers"
            } else {
                "initContainers"
            };
            format!("spec.{list}{{{name}}}")
        });
        self.recorder.event(&about, kind, reason, message);
    }
}
