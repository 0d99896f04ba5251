//! `kubectl apply --server-side`: conflicts, force, the same again, and the way
//! there from client-side apply.

use serde_json::Value;

use crate::harness::{Cluster, Kubectl, alone, need, until};

const MANIFEST: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  greeting: hello
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports:
  - port: 80
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: host
        command: ["sleep", "36011"]
        resources:
          requests: {cpu: 10m, memory: 1024Ki}
"#;

/// The objects of the manifest.
const OBJECTS: &str = "configmap/settings service/web deployment/web";

/// Reads objects whole.
fn read(k: &Kubectl, what: &str) -> Vec<Value> {
    let text = k.run(&format!("get {what} -o json --show-managed-fields"));
    let list: Value = serde_json::from_str(&text).unwrap();
    match list.get("items") {
        Some(items) => items.as_array().unwrap().clone(),
        None => vec![list],
    }
}

/// Returns the managers of an object, and how they came to be that.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let line = |entry| {
        let line = format!(
            "{} {} {}",
            text(entry, "manager"),
            text(entry, "operation"),
            text(entry, "subresource")
        );
        line.trim_end().to_owned()
    };
    entries.into_iter().flatten().map(line).collect()
}

/// Waits until the controllers have nothing more to say about the deployment.
fn settle(k: &Kubectl) {
    k.run("rollout status deployment web --timeout=60s");
    until("a status that stays", || {
        let before = read(k, "deployment/web");
        let ready = before[0]["status"]["readyReplicas"] == 1
            && before[0]["status"]["conditions"]
                .as_array()
                .is_some_and(|c| c.len() >= 2);
        match ready && read(k, "deployment/web") == before {
            true => Ok(()),
            false => Err(before[0]["status"].to_string()),
        }
    });
}

#[test]
fn the_same_manifest_twenty_times_moves_nothing() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let file = cluster.file("web.yaml", MANIFEST);

    let first = k.run(&format!("apply --server-side -f {file}"));
    assert_eq!(first.matches("serverside-applied").count(), 3, "{first}");
    settle(&k);
    let before = read(&k, OBJECTS);
    assert_eq!(managers(&before[0]), ["kubectl Apply"]);
    assert_eq!(managers(&before[1]), ["kubectl Apply"]);
    for _ in 0..20 {
        k.run(&format!("apply --server-side -f {file}"));
    }
    assert_eq!(read(&k, OBJECTS), before);

    // A dry run tells, and a diff sees nothing.
    let dry = k.run(&format!("apply --server-side --dry-run=server -f {file}"));
    assert!(dry.contains("serverside-applied (server dry run)"), "{dry}");
    k.run(&format!("diff --server-side -f {file}"));
    let changed = cluster.file("changed.yaml", &MANIFEST.replace("hello", "bye"));
    let diff = k.output(&format!("diff --server-side -f {changed}"));
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(diff.status.code(), Some(1), "{text}");
    assert!(text.contains("+  greeting: bye"), "{text}");
    assert_eq!(read(&k, OBJECTS), before);
}

#[test]
fn conflicts_are_told_and_force_ends_them() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let file = cluster.file("web.yaml", MANIFEST);
    k.run(&format!("apply --server-side -f {file}"));

    let other = cluster.file(
        "other.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: bye, more: x}\n",
    );
    let apply = format!("apply --server-side --field-manager=other -f {other}");
    let refused = k.fail(&apply);
    for words in [
        "Apply failed with 1 conflict: conflict with \"kubectl\": .data.greeting",
        "--force-conflicts",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    k.run(&format!("{apply} --force-conflicts"));
    let object = &read(&k, "configmap/settings")[0];
    assert_eq!(object["data"]["greeting"], "bye");
    assert_eq!(managers(object), ["kubectl Apply", "other Apply"]);

    // A hand on the scale conflicts with whoever states the replicas.
    settle(&k);
    k.run("scale deployment web --replicas=2");
    let object = &read(&k, "deployment/web")[0];
    assert!(
        managers(object).contains(&"kubectl Update scale".to_owned()),
        "{:?}",
        managers(object)
    );
    let refused = k.fail(&format!("apply --server-side -f {file}"));
    assert!(
        refused.contains(
            "conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas"
        ),
        "{refused}"
    );

    // What is no longer in the manifest goes.
    let less = MANIFEST.replace("  labels: {app: web}\ndata", "data");
    let less = cluster.file("less.yaml", &less);
    k.run(&format!("apply --server-side --force-conflicts -f {less}"));
    let object = &read(&k, "configmap/settings")[0];
    assert_eq!(object["metadata"].get("labels"), None);
    assert_eq!(object["data"]["more"], "x");
    let typo = cluster.file("typo.yaml", &MANIFEST.replace("\ndata:", "\ndate:"));
    let refused = k.fail(&format!("apply --server-side -f {typo}"));
    assert!(
        refused.contains(".date: field not declared in schema"),
        "{refused}"
    );
}

#[test]
fn client_side_apply_can_be_left_behind() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    // As it is stored: another spelling would be a conflict, as upstream.
    let manifest = MANIFEST.replace("1024Ki", "1Mi");
    let file = cluster.file("web.yaml", &manifest);
    k.run(&format!("apply -f {file}"));
    assert_eq!(
        managers(&read(&k, "configmap/settings")[0]),
        ["kubectl-client-side-apply Update"]
    );
    k.run(&format!("apply --server-side -f {file}"));
    // kubectl has a manager of its own for the annotation it keeps.
    let object = &read(&k, "configmap/settings")[0];
    assert_eq!(
        managers(object),
        ["kubectl Apply", "kubectl-last-applied Apply"]
    );

    // What the manifest no longer says goes although the other apply said it.
    let changed = manifest
        .replace("greeting: hello", "farewell: bye")
        .replace("replicas: 1", "replicas: 2");
    let changed = cluster.file("changed.yaml", &changed);
    k.run(&format!("apply --server-side -f {changed}"));
    let object = &read(&k, "configmap/settings")[0];
    assert_eq!(object["data"], serde_json::json!({"farewell": "bye"}));
    assert_eq!(read(&k, "deployment/web")[0]["spec"]["replicas"], 2);

    // And back: the annotation was kept true.
    let back = k.run(&format!("apply -f {file}"));
    assert!(back.contains("configmap/settings configured"), "{back}");
    let object = &read(&k, "configmap/settings")[0];
    assert_eq!(object["data"], serde_json::json!({"greeting": "hello"}));
}
