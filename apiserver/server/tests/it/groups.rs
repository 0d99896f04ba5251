//! Every kind of the smaller groups over HTTP: made, read as a table, changed,
//! taken away.

use base64::Engine as _;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, PODS, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "alice");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    base64::engine::general_purpose::STANDARD.encode(pem)
}

/// Group, resource, whether it is in a namespace, and an object.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn one_of_each() -> Vec<(&'static str, &'static str, bool, Value)> {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let hooks = json!([{"name": "a.b.c", "clientConfig": {"url": "https://h/"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": rules}]);
    let matched = json!({"resourceRules": rules});
    let devices = json!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]});
    let role = json!({"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"});
    vec![
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            false,
            json!({"webhooks": hooks}),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            false,
            json!({"webhooks": hooks}),
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies",
            false,
            json!({"spec": {"matchConstraints": matched,
            "reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}}),
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings",
            false,
            json!({"spec": {"policyName": "p"}}),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            false,
            json!({"spec": {"matchConstraints": matched, "validations": [{"expression": "true"}]}}),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            false,
            json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}}),
        ),
        (
            "apiregistration.k8s.io",
            "apiservices",
            false,
            json!({"metadata": {"name": "v1.served-elsewhere.io"}, "spec": {"group": "served-elsewhere.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}),
        ),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            false,
            json!({"spec": {"request": request(), "signerName": "a.io/b", "usages": ["client auth"]}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "flowschemas",
            false,
            json!({"spec": {"priorityLevelConfiguration": {"name": "l"}}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
            false,
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
        ),
        (
            "networking.k8s.io",
            "ingresses",
            true,
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        ),
        (
            "networking.k8s.io",
            "ingressclasses",
            false,
            json!({"spec": {"controller": "a.io/b"}}),
        ),
        (
            "networking.k8s.io",
            "ipaddresses",
            false,
            json!({"metadata": {"name": "10.0.0.9"}, "spec": {"parentRef": {"resource": "services", "name": "s"}}}),
        ),
        (
            "networking.k8s.io",
            "servicecidrs",
            false,
            json!({"spec": {"cidrs": ["10.0.0.0/16"]}}),
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            true,
            json!({"spec": {"podSelector": {}}}),
        ),
        (
            "node.k8s.io",
            "runtimeclasses",
            false,
            json!({"handler": "h"}),
        ),
        (
            "rbac.authorization.k8s.io",
            "clusterroles",
            false,
            json!({"rules": []}),
        ),
        (
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            false,
            json!({"roleRef": role}),
        ),
        (
            "rbac.authorization.k8s.io",
            "roles",
            true,
            json!({"rules": []}),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            true,
            json!({"roleRef": role}),
        ),
        (
            "resource.k8s.io",
            "deviceclasses",
            false,
            json!({"spec": {}}),
        ),
        (
            "resource.k8s.io",
            "resourceclaims",
            true,
            json!({"spec": {"devices": devices}}),
        ),
        (
            "resource.k8s.io",
            "resourceclaimtemplates",
            true,
            json!({"spec": {"spec": {"devices": devices}}}),
        ),
        (
            "resource.k8s.io",
            "resourceslices",
            false,
            json!({"spec": {"driver": "d.io", "allNodes": true, "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}}}),
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            false,
            json!({"value": 1}),
        ),
        ("storage.k8s.io", "csidrivers", false, json!({"spec": {}})),
        (
            "storage.k8s.io",
            "csinodes",
            false,
            json!({"spec": {"drivers": []}}),
        ),
        (
            "storage.k8s.io",
            "csistoragecapacities",
            true,
            json!({"storageClassName": "c"}),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            false,
            json!({"provisioner": "a.io/b"}),
        ),
        (
            "storage.k8s.io",
            "volumeattributesclasses",
            false,
            json!({"driverName": "d.io", "parameters": {"a": "b"}}),
        ),
        (
            "storage.k8s.io",
            "volumeattachments",
            false,
            json!({"spec": {"attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        ),
    ]
}

#[tokio::test]
async fn one_of_each_kind_comes_and_goes() {
    let api = Api::start().await;
    for (group, plural, namespaced, mut object) in one_of_each() {
        let scope = if namespaced {
            "namespaces/default/"
        } else {
            ""
        };
        let path = format!("/apis/{group}/v1/{scope}{plural}");
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("x");
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let made = api.post(&path, &object).await.ok();
        assert_eq!(made["metadata"]["name"], name, "{made}");
        let table = api.get_as(&path, TABLE).await.ok();
        let row = table["rows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["object"]["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("{table}"));
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
        let one = format!("{path}/{name}");
        let labelled = api
            .merge(&one, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .ok();
        assert_eq!(labelled["metadata"]["labels"]["a"], "b", "{plural}");
        let mut replaced = labelled.clone();
        replaced["metadata"]["labels"]["a"] = json!("c");
        let replaced = api.put(&one, &replaced).await.ok();
        assert_eq!(replaced["metadata"]["labels"]["a"], "c", "{plural}");
        assert_eq!(replaced.get("spec"), made.get("spec"), "{plural}");
        api.delete(&one, &json!({})).await.ok();
        api.get(&one).await.refused(404, "NotFound", &name);
    }
}

#[tokio::test]
async fn status_goes_through_its_own_door() {
    let api = Api::start().await;
    for (group, plural, namespaced, mut object) in one_of_each() {
        let status = match plural {
            "ingresses" => json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}),
            "volumeattachments" => json!({"attached": true}),
            "servicecidrs"
            | "flowschemas"
            | "prioritylevelconfigurations"
            | "apiservices"
            | "validatingadmissionpolicies"
            | "certificatesigningrequests" => {
                json!({"conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
            }
            _ => continue,
        };
        let scope = if namespaced {
            "namespaces/default/"
        } else {
            ""
        };
        let path = format!("/apis/{group}/v1/{scope}{plural}");
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("x");
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["status"] = status.clone();
        let made = api.post(&path, &object).await.ok();
        assert_ne!(made["status"], status, "{plural}");
        let one = format!("{path}/{name}");
        let ignored = api.merge(&one, &json!({"status": status})).await.ok();
        assert_eq!(ignored["status"], made["status"], "{plural}");
        let patch = json!({"status": status, "spec": {"nodeName": "other"}});
        let patch = match plural {
            "volumeattachments" => patch,
            _ => json!({"status": status}),
        };
        let set = api.merge(&format!("{one}/status"), &patch).await.ok();
        match plural {
            "ingresses" | "volumeattachments" => assert_eq!(set["status"], status),
            _ => assert_eq!(set["status"]["conditions"][0]["type"], "Ready", "{plural}"),
        }
        assert_eq!(set["spec"], made["spec"], "{plural}");
    }
}

#[tokio::test]
async fn a_request_for_a_certificate_is_approved() {
    const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let api = Api::start().await;
    let object = json!({"metadata": {"name": "x"}, "spec": {"request": request(), "username": "somebody",
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let made = api.post(PATH, &object).await.ok();
    assert_eq!(made["spec"]["username"], "test");
    assert!(
        made["spec"]["groups"]
            .to_string()
            .contains("system:masters")
    );
    let approval = format!("{PATH}/x/approval");
    let mut approved = api.get(&approval).await.ok();
    approved["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]);
    let approved = api.put(&approval, &approved).await.ok();
    let condition = &approved["status"]["conditions"][0];
    assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    let denied = json!({"status": {"conditions": [{"type": "Denied", "status": "True"}]}});
    api.merge(&approval, &denied).await.refused(
        422,
        "Invalid",
        "updates may not remove a condition of type \"Approved\"",
    );
    let by_signer = api
        .get(&format!(
            "{PATH}?fieldSelector=spec.signerName=kubernetes.io/kube-apiserver-client"
        ))
        .await
        .ok();
    assert_eq!(by_signer["items"].as_array().unwrap().len(), 1);

    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::OrganizationName, "system:masters");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let mut greedy = object.clone();
    greedy["metadata"]["name"] = json!("y");
    greedy["spec"]["request"] = json!(base64::engine::general_purpose::STANDARD.encode(pem));
    api.post(PATH, &greedy).await.refused(
        403,
        "Forbidden",
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    );
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    const PATH: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let api = Api::start().await;
    let names: Vec<String> = api.get(PATH).await.ok()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["system-cluster-critical", "system-node-critical"]);
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    api.post(PATH, &class("gold", 9, false)).await.ok();
    let with = |name: &str, class: &str| {
        let mut pod = pod(name);
        if !class.is_empty() {
            pod["spec"]["priorityClassName"] = json!(class);
        }
        pod
    };
    let gold = api.post(PODS, &with("a", "gold")).await.ok();
    assert_eq!(gold["spec"]["priority"], 9);
    let plain = api.post(PODS, &with("b", "")).await.ok();
    assert_eq!(plain["spec"]["priority"], 0);
    let critical = api
        .post(PODS, &with("c", "system-node-critical"))
        .await
        .ok();
    assert_eq!(critical["spec"]["priority"], 2_000_001_000_i64);
    api.post(PODS, &with("d", "none")).await.refused(
        403,
        "Forbidden",
        "no PriorityClass with name none was found",
    );

    api.post(PATH, &class("usual", 5, true)).await.ok();
    // A consistent read, so that the cache has seen the write.
    api.get(PATH).await.ok();
    let usual = api.post(PODS, &with("e", "")).await.ok();
    assert_eq!(usual["spec"]["priority"], 5);
    assert_eq!(usual["spec"]["priorityClassName"], "usual");
    let words = "PriorityClass usual is already marked as default. Only one default can exist";
    let second = class("second", 6, true);
    api.post(PATH, &second)
        .await
        .refused(403, "Forbidden", words);
    let default = json!({"globalDefault": true});
    api.merge(&format!("{PATH}/gold"), &default)
        .await
        .refused(403, "Forbidden", words);
    api.merge(&format!("{PATH}/usual"), &default).await.ok();
    api.merge(&format!("{PATH}/gold"), &json!({"value": 1}))
        .await
        .refused(422, "Invalid", "may not be changed in an update.");
}

#[tokio::test]
async fn a_pod_is_run_as_its_class_says() {
    let api = Api::start().await;
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"memory": "64Mi"}}});
    api.post("/apis/node.k8s.io/v1/runtimeclasses", &class)
        .await
        .ok();
    let mut object = pod("a");
    object["spec"]["runtimeClassName"] = json!("vm");
    let made = api.post(PODS, &object).await.ok();
    assert_eq!(made["spec"]["overhead"]["memory"], "64Mi");
    object["spec"]["runtimeClassName"] = json!("none");
    api.post(PODS, &object).await.refused(
        403,
        "Forbidden",
        "pod rejected: RuntimeClass \"none\" not found",
    );
}

#[tokio::test]
async fn an_ingress_gets_the_default_class() {
    let api = Api::start().await;
    let class = |name: &str| {
        json!({"metadata": {"name": name, "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "a.io/b"}})
    };
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    api.post(classes, &class("b")).await.ok();
    api.get(classes).await.ok();
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    let made = api.post(path, &ingress).await.ok();
    assert_eq!(made["spec"]["ingressClassName"], "b");
    assert_eq!(made["metadata"]["generation"], 1);
    let changed = api
        .merge(
            &format!("{path}/i"),
            &json!({"spec": {"ingressClassName": "c"}}),
        )
        .await
        .ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    let answer = api
        .call(
            Method::PATCH,
            &format!("{path}/i"),
            "application/strategic-merge-patch+json",
            json!({"spec": {"tls": [{"hosts": ["a.b"]}]}}).to_string(),
        )
        .await
        .ok();
    assert_eq!(answer["spec"]["tls"][0]["hosts"][0], "a.b");
}
