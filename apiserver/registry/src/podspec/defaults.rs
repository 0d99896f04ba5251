//! Defaults of a pod specification (upstream: `pkg/apis/core/v1/defaults.go`).

use meta::value::object_mut;
use serde_json::{Map, Value, json};

use super::{CONTAINER_LISTS, each, fill, fill_text};

/// The mode of files that a volume projects, 0644.
const FILE_MODE: i64 = 0o644;

/// Fills in what a pod and a template have in common.
pub fn spec(spec: &mut Map<String, Value>) {
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    mirror_service_account(spec);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for item in each(spec, list) {
            container(item, host_network);
        }
    }
    for item in each(spec, "volumes") {
        volume(item);
    }
}

/// Fills in what only a pod has, not a template.
pub fn pod_only(spec: &mut Map<String, Value>) {
    fill(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for item in each(spec, list) {
            requests_from_limits(item);
        }
    }
}

/// Keeps the deprecated `serviceAccount` equal to `serviceAccountName`.
pub fn mirror_service_account(spec: &mut Map<String, Value>) {
    let text = |name: &str| spec.get(name).and_then(Value::as_str).unwrap_or_default();
    let (now, before) = (text("serviceAccountName"), text("serviceAccount"));
    if now == before {
        return;
    }
    let name = if now.is_empty() { before } else { now }.to_owned();
    spec.insert("serviceAccountName".to_owned(), Value::from(name.as_str()));
    spec.insert("serviceAccount".to_owned(), Value::from(name));
}

fn container(container: &mut Map<String, Value>, host_network: bool) {
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = if has_fixed_tag(image) {
        "IfNotPresent"
    } else {
        "Always"
    };
    fill_text(container, "imagePullPolicy", policy);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    for port in each(container, "ports") {
        fill_text(port, "protocol", "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            fill(port, "hostPort", number);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).and_then(Value::as_object_mut) {
            fill(probe, "timeoutSeconds", 1);
            fill(probe, "periodSeconds", 10);
            fill(probe, "successThreshold", 1);
            fill(probe, "failureThreshold", 3);
            handler(probe);
        }
    }
    if let Some(lifecycle) = container
        .get_mut("lifecycle")
        .and_then(Value::as_object_mut)
    {
        for name in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(name).and_then(Value::as_object_mut) {
                handler(hook);
            }
        }
    }
    for variable in each(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom") {
            field_ref(from);
        }
    }
}

/// Tells whether an image names a digest or a tag other than `latest`.
fn has_fixed_tag(image: &str) -> bool {
    if image.contains('@') {
        return true;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':')
        .is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest")
}

fn handler(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc").and_then(Value::as_object_mut) {
        fill(grpc, "service", "");
    }
}

fn field_ref(holder: &mut Value) {
    if let Some(field) = holder.get_mut("fieldRef").and_then(Value::as_object_mut) {
        fill_text(field, "apiVersion", "v1");
    }
}

fn requests_from_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources") else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object) else {
        return;
    };
    let requests = resources.get("requests").and_then(Value::as_object);
    let has = |name: &String| requests.is_some_and(|requests| requests.contains_key(name));
    if !limits.is_empty() && limits.keys().all(has) {
        return;
    }
    let limits = limits.clone();
    let requests = object_mut(resources, "requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
    if requests.is_empty()
        && let Some(map) = resources.as_object_mut()
    {
        map.remove("requests");
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|name| name == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(name).and_then(Value::as_object_mut) {
            fill(source, "defaultMode", FILE_MODE);
            for item in each(source, "items") {
                if name == "downwardAPI" {
                    field_ref_of(item);
                }
            }
            for projection in each(source, "sources") {
                projected(projection);
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        fill(path, "type", "");
    }
    if let Some(claim) = volume
        .get_mut("ephemeral")
        .and_then(|e| e.get_mut("volumeClaimTemplate"))
        .and_then(|t| t.get_mut("spec"))
        .and_then(Value::as_object_mut)
    {
        fill_text(claim, "volumeMode", "Filesystem");
    }
}

fn projected(source: &mut Map<String, Value>) {
    if let Some(token) = source
        .get_mut("serviceAccountToken")
        .and_then(Value::as_object_mut)
    {
        fill(token, "expirationSeconds", 3600);
    }
    if let Some(downward) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
        for item in each(downward, "items") {
            field_ref_of(item);
        }
    }
}

fn field_ref_of(item: &mut Map<String, Value>) {
    if let Some(field) = item.get_mut("fieldRef").and_then(Value::as_object_mut) {
        fill_text(field, "apiVersion", "v1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, fixed) in [
            ("nginx", false),
            ("nginx:latest", false),
            ("nginx:1.27", true),
            ("registry:5000/nginx", false),
            ("registry:5000/nginx:1", true),
            ("nginx@sha256:0123", true),
            ("", false),
        ] {
            assert_eq!(has_fixed_tag(image), fixed, "{image}");
        }
    }

    #[test]
    fn requests_follow_limits() {
        let mut value = json!({"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}},
            {"name": "b", "resources": {}}]});
        pod_only(value.as_object_mut().unwrap());
        assert_eq!(
            value["containers"][0]["resources"]["requests"],
            json!({"cpu": "100m", "memory": "1Gi"})
        );
        assert_eq!(value["containers"][1]["resources"], json!({}));
    }
}
