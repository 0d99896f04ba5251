//! The kinds whose behaviour is that they exist and live.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::{Api, MERGE};
use crate::kinds::{Subject, contains, lifecycle, operations};

/// A condition such as controllers write.
fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "False", "reason": "Conformance",
        "message": "set by a test", "lastTransitionTime": "2024-05-01T10:00:00Z"})
}

pub(crate) fn flow_schemas(api: &Api) {
    let subject = Subject::new(
        "flowcontrol.apiserver.k8s.io/v1",
        "flowschemas",
        "FlowSchema",
    )
    .body(json!({"spec": {
        "matchingPrecedence": 9000,
        "priorityLevelConfiguration": {"name": "global-default"},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "nobody-we-know"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    }}))
    .status(json!({"conditions": [condition("Dangling")]}));
    operations(api, &subject);
}

pub(crate) fn priority_levels(api: &Api) {
    let subject = Subject::new(
        "flowcontrol.apiserver.k8s.io/v1",
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
    )
    .body(json!({"spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 2, "limitResponse": {"type": "Reject"}}}}))
    .status(json!({"conditions": [condition("Conformance")]}));
    operations(api, &subject);
}

fn policy() -> Subject {
    Subject::new(
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
    )
    .body(json!({"spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["example.com"], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["things"]}]},
        "validations": [{"expression": "object.spec.replicas <= 100"}],
    }}))
    .status(json!({"conditions": [condition("Conformance")]}))
}

pub(crate) fn admission_policies(api: &Api) {
    operations(api, &policy());
}

pub(crate) fn admission_policy_bindings(api: &Api) {
    let subject = Subject::new(
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
    )
    .body(json!({"spec": {"policyName": "none-such", "validationActions": ["Deny"]}}));
    operations(api, &subject);
}

pub(crate) fn webhooks_in_discovery(api: &Api) {
    for (resource, kind) in [
        (
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
        ),
        (
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        ),
    ] {
        let subject = Subject::new("admissionregistration.k8s.io/v1", resource, kind);
        crate::kinds::discovered(api, &subject);
    }
}

/// A webhook configuration keeps its match conditions, and a new set of them.
fn match_conditions(api: &Api, resource: &'static str, kind: &'static str) {
    let subject = Subject::new("admissionregistration.k8s.io/v1", resource, kind).body(json!({
        "webhooks": [{
            "name": "conditions.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": {"url": "https://127.0.0.1:1/never-called"},
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["things"]}],
            "matchConditions": [{"name": "one", "expression": "object.metadata.name != 'a'"}],
        }],
    }));
    let path = subject.path("");
    let name = api.name("conditions");
    let made = api.post(&path, &subject.object(&name, &json!({}))).ok();
    let first = json!([{"name": "one", "expression": "object.metadata.name != 'a'"}]);
    assert_eq!(made["webhooks"][0]["matchConditions"], first);
    let mut object = api.get(&format!("{path}/{name}")).ok();
    let both = json!([
        {"name": "one", "expression": "object.metadata.name != 'a'"},
        {"name": "two", "expression": "object.metadata.namespace == 'b'"},
    ]);
    object["webhooks"][0]["matchConditions"] = both.clone();
    api.put(&format!("{path}/{name}"), &object).ok();
    let read = api.get(&format!("{path}/{name}")).ok();
    assert_eq!(read["webhooks"][0]["matchConditions"], both);
    assert!(api.delete(&format!("{path}/{name}")).code < 300);
}

pub(crate) fn mutating_match_conditions(api: &Api) {
    match_conditions(
        api,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    );
}

pub(crate) fn validating_match_conditions(api: &Api) {
    match_conditions(
        api,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    );
}

pub(crate) fn certificate_requests(api: &Api) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let owner = &mut params.distinguished_name;
    owner.push(rcgen::DnType::CommonName, "conformance");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let certificates = "certificates.k8s.io/v1";
    let subject = Subject::new(
        certificates,
        "certificatesigningrequests",
        "CertificateSigningRequest",
    )
    .body(json!({"spec": {
            "request": STANDARD.encode(request), "signerName": "example.com/conformance",
            "expirationSeconds": 3600, "usages": ["digital signature", "client auth"]}}))
    .status(json!({"certificate": STANDARD.encode(certificate)}));
    operations(api, &subject);

    let path = subject.path("");
    let name = api.name("csr");
    let made = api.post(&path, &subject.object(&name, &json!({}))).ok();
    assert!(made["spec"]["username"].is_string(), "{made}");
    let approval = format!("{path}/{name}/approval");
    let mut object = api.get(&approval).ok();
    let mut approved = condition("Approved");
    approved["status"] = json!("True");
    object["status"]["conditions"] = json!([approved]);
    let answer = api.put(&approval, &object).ok();
    assert!(contains(&answer["status"], &object["status"]), "{answer}");
    let patch = json!({"metadata": {"annotations": {"patchedapproval": "true"}}});
    let patched = api.patch(&approval, MERGE, &patch).ok();
    assert_eq!(
        patched["metadata"]["annotations"]["patchedapproval"],
        "true"
    );
    assert_eq!(patched["status"]["conditions"][0]["type"], "Approved");
    assert!(api.delete(&format!("{path}/{name}")).code < 300);
}

pub(crate) fn endpoint_slices(api: &Api) {
    let subject = Subject::new("discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
        .namespaced()
        .body(
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}),
        );
    operations(api, &subject);
}

pub(crate) fn ingresses(api: &Api) {
    let subject = Subject::new("networking.k8s.io/v1", "ingresses", "Ingress")
        .namespaced()
        .body(json!({"spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
            "rules": [{"host": "web.example.com", "http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"name": "http"}}}}]}}],
        }}))
        .status(json!({"loadBalancer": {"ingress": [{"ip": "169.1.1.1"}]}}));
    operations(api, &subject);
}

pub(crate) fn ingress_classes(api: &Api) {
    let subject = Subject::new("networking.k8s.io/v1", "ingressclasses", "IngressClass")
        .body(json!({"spec": {"controller": "example.com/conformance"}}));
    operations(api, &subject);
}

pub(crate) fn runtime_classes(api: &Api) {
    let subject = Subject::new("node.k8s.io/v1", "runtimeclasses", "RuntimeClass")
        .body(json!({"handler": "conformance"}));
    operations(api, &subject);
}

pub(crate) fn csi_drivers(api: &Api) {
    let subject = Subject::new("storage.k8s.io/v1", "csidrivers", "CSIDriver")
        .body(json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}));
    lifecycle(api, &subject);
}

pub(crate) fn csi_nodes(api: &Api) {
    let subject = Subject::new("storage.k8s.io/v1", "csinodes", "CSINode").body(json!({"spec": {
        "drivers": [{"name": "csi.example.com", "nodeID": "n", "topologyKeys": ["zone"]}]}}));
    lifecycle(api, &subject);
}

pub(crate) fn storage_capacities(api: &Api) {
    let subject = Subject::new(
        "storage.k8s.io/v1",
        "csistoragecapacities",
        "CSIStorageCapacity",
    )
    .namespaced()
    .body(json!({"storageClassName": "fast", "capacity": "100Gi", "nodeTopology": {}}));
    operations(api, &subject);
}

pub(crate) fn storage_classes(api: &Api) {
    let subject = Subject::new("storage.k8s.io/v1", "storageclasses", "StorageClass")
        .body(json!({"provisioner": "example.com/none"}));
    lifecycle(api, &subject);
}

fn attachment() -> Subject {
    Subject::new("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment").body(
        json!({"spec": {
        "attacher": "csi.example.com", "nodeName": "nowhere",
        "source": {"persistentVolumeName": "none"}}}),
    )
}

pub(crate) fn volume_attachments(api: &Api) {
    lifecycle(api, &attachment());
}

pub(crate) fn volume_attachment_status(api: &Api) {
    let subject = attachment();
    let path = subject.path("");
    let name = api.name("attachment");
    api.post(&path, &subject.object(&name, &json!({}))).ok();
    let status = format!("{path}/{name}/status");
    let read = api.get(&status).ok();
    assert_eq!(read["status"]["attached"], false, "{read}");
    let patched = api
        .patch(&status, MERGE, &json!({"status": {"attached": true}}))
        .ok();
    assert_eq!(patched["status"]["attached"], true);
    let mut object = api.get(&status).ok();
    object["status"]["attached"] = json!(false);
    let updated = api.put(&status, &object).ok();
    assert_eq!(updated["status"]["attached"], false);
    assert!(api.delete(&format!("{path}/{name}")).code < 300);
    api.get(&format!("{path}/{name}")).refused(404);
}

fn volume() -> Subject {
    Subject::new("v1", "persistentvolumes", "PersistentVolume").body(json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "4Mi"},
        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "none",
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"}}}))
}

fn claim() -> Subject {
    Subject::new("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
        .namespaced()
        .body(
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": {"requests": {"storage": "1Mi"}}}}),
        )
}

pub(crate) fn volumes_and_claims(api: &Api) {
    lifecycle(api, &volume());
    lifecycle(api, &claim());
}

pub(crate) fn volume_and_claim_status(api: &Api) {
    let namespace = api.namespace();
    let labels = json!({"e2e-pv": namespace});
    for (subject, phase, patch) in [
        (
            volume(),
            ["Available", "Pending"],
            json!({"message": "patched", "reason": "Patched"}),
        ),
        (
            claim(),
            ["Pending", "Bound"],
            json!({"conditions": [condition("Conformance")]}),
        ),
    ] {
        let path = subject.path(&namespace);
        let name = api.name("volume");
        api.post(&path, &subject.object(&name, &labels)).ok();
        let list = api
            .get(&format!("{path}?labelSelector=e2e-pv%3D{namespace}"))
            .ok();
        assert_eq!(crate::api::names(&list), [name.as_str()]);
        let status = format!("{path}/{name}/status");
        let read = api.get(&status).ok();
        let is = read["status"]["phase"].as_str().unwrap_or_default();
        assert!(phase.contains(&is), "{read}");
        let patched = api.patch(&status, MERGE, &json!({"status": patch})).ok();
        assert!(contains(&patched["status"], &patch), "{patched}");
        let mut object = api.get(&status).ok();
        let changed = json!({"message": "updated", "reason": "Updated"});
        let into = match subject.kind {
            "PersistentVolume" => &mut object["status"],
            _ => &mut object["status"]["conditions"][0],
        };
        into["message"] = changed["message"].clone();
        into["reason"] = changed["reason"].clone();
        let want = object["status"].clone();
        let updated = api.put(&status, &object).ok();
        assert!(contains(&updated["status"], &want), "{updated}");
        assert!(api.delete(&format!("{path}/{name}")).code < 300);
    }
}

pub(crate) fn pod_with_csi_volume(api: &Api) {
    let subject = Subject::new("v1", "pods", "Pod")
        .namespaced()
        .body(json!({"spec": {
        // Nobody has such a node: the pod is an object, and nothing runs it.
        "nodeSelector": {"conformance": "nowhere"}, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "host", "volumeMounts": [
            {"name": "v", "mountPath": "/v", "readOnly": true}]}],
        "volumes": [{"name": "v", "csi": {"driver": "csi.example.com", "readOnly": true,
            "volumeAttributes": {"a": "b"}}}]}}));
    lifecycle(api, &subject);
}

pub(crate) fn pod_templates(api: &Api) {
    lifecycle(api, &pod_template());
}

pub(crate) fn pod_template() -> Subject {
    Subject::new("v1", "podtemplates", "PodTemplate")
        .namespaced()
        .body(json!({"template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "host"}]}}}))
}

pub(crate) fn pod_template_replaced(api: &Api) {
    let (subject, namespace) = (pod_template(), api.namespace());
    let path = subject.path(&namespace);
    let made = api.post(&path, &subject.object("t", &json!({}))).ok();
    let mut object = made.clone();
    object["metadata"]["annotations"] = json!({"updated": "true"});
    let answer = api.put(&format!("{path}/t"), &object).ok();
    assert_eq!(answer["metadata"]["annotations"]["updated"], "true");
    assert_ne!(crate::api::version(&answer), crate::api::version(&made));
    let read = api.get(&format!("{path}/t")).ok();
    assert_eq!(read["metadata"]["annotations"]["updated"], "true");
}

pub(crate) fn leases(api: &Api) {
    let subject = Subject::new("coordination.k8s.io/v1", "leases", "Lease")
        .namespaced()
        .body(
            json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 30,
            "acquireTime": "2024-05-01T10:00:00.123456Z",
            "renewTime": "2024-05-01T10:00:05.000001Z", "leaseTransitions": 0}}),
        );
    lifecycle(api, &subject);
    let namespace = api.namespace();
    let path = subject.path(&namespace);
    let made = api.post(&path, &subject.object("l", &json!({}))).ok();
    assert_eq!(
        made["spec"], subject.body["spec"],
        "a spec is read as it was written"
    );
    let changed = json!({"holderIdentity": "b", "leaseDurationSeconds": 40,
        "acquireTime": "2024-05-01T11:00:00.000000Z",
        "renewTime": "2024-05-01T11:00:05.000000Z", "leaseTransitions": 1});
    let mut object = made;
    object["spec"] = changed.clone();
    assert_eq!(api.put(&format!("{path}/l"), &object).ok()["spec"], changed);
    let patched = api.patch(
        &format!("{path}/l"),
        MERGE,
        &json!({"spec": {"leaseTransitions": 2}}),
    );
    assert_eq!(patched.ok()["spec"]["leaseTransitions"], 2);
    assert!(api.delete(&format!("{path}/l")).code < 300);
    api.get(&format!("{path}/l")).refused(404);
}

pub(crate) fn nodes(api: &Api) {
    let subject =
        Subject::new("v1", "nodes", "Node").body(json!({"spec": {"unschedulable": true}}));
    lifecycle(api, &subject);
}

pub(crate) fn service_accounts(api: &Api) {
    let subject = Subject::new("v1", "serviceaccounts", "ServiceAccount").namespaced();
    lifecycle(api, &subject);
}

pub(crate) fn endpoints(api: &Api) {
    let subject = Subject::new("v1", "endpoints", "Endpoints")
        .namespaced()
        .body(json!({
        "subsets": [{"addresses": [{"ip": "10.0.0.24"}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}]}));
    lifecycle(api, &subject);
    let namespace = api.namespace();
    let path = subject.path(&namespace);
    api.post(&path, &subject.object("e", &json!({"t": "static"})))
        .ok();
    let subsets = json!([{"addresses": [{"ip": "10.0.0.25"}],
        "ports": [{"name": "http-test", "port": 8080, "protocol": "TCP"}]}]);
    let patched = api
        .patch(&format!("{path}/e"), MERGE, &json!({"subsets": subsets}))
        .ok();
    assert_eq!(patched["subsets"], subsets);
}
