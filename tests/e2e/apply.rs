//! `kubectl apply`, `diff`, `explain`, `edit`: what leans on the schema.

use crate::harness::{Cluster, alone, need, until};

const MANIFEST: &str = r#"
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
data:
  greeting: hello
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {app: web}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: host
        command: ["sh", "-c", "echo $GREETING; exec sleep 36010"]
        env:
        - name: GREETING
          valueFrom:
            configMapKeyRef: {name: settings, key: greeting}
        readinessProbe:
          exec: {command: ["true"]}
          periodSeconds: 1
        livenessProbe:
          exec: {command: ["true"]}
          periodSeconds: 2
"#;

#[test]
fn apply_is_idempotent_and_delete_leaves_nothing() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let file = cluster.file("shop.yaml", MANIFEST);

    let first = k.run(&format!("apply -f {file}"));
    assert_eq!(first.matches("created").count(), 3, "{first}");
    k.run("rollout status deployment web -n shop --timeout=60s");
    let logs = until("the greeting", || {
        let logs = k.run("logs -n shop deployment/web");
        if logs.is_empty() {
            Err("no log yet".to_owned())
        } else {
            Ok(logs)
        }
    });
    assert_eq!(logs, "hello\n");

    let second = k.run(&format!("apply -f {file}"));
    assert_eq!(second.matches("unchanged").count(), 3, "{second}");

    let changed = cluster.file(
        "changed.yaml",
        &MANIFEST.replace("replicas: 2", "replicas: 3"),
    );
    let diff = k.output(&format!("diff -f {changed}"));
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(diff.status.code(), Some(1), "{text}");
    assert!(
        text.contains("-  replicas: 2") && text.contains("+  replicas: 3"),
        "{text}"
    );
    let third = k.run(&format!("apply -f {changed}"));
    assert!(third.contains("deployment.apps/web configured"), "{third}");

    k.run(&format!("delete -f {changed} --timeout=60s"));
    assert!(k.fail("get namespace shop").contains("not found"));
    assert_eq!(
        k.run("get pods,deployments,replicasets,configmaps -n shop -o name"),
        ""
    );
}

#[test]
fn the_schema_is_there_for_explain_validation_and_edit() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    let explained = k.run("explain deployment.spec.strategy.rollingUpdate.maxSurge");
    assert!(explained.contains("maximum number of pods"), "{explained}");
    let wrong = cluster.file(
        "wrong.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containerz: []\n  containers: [{name: a, image: host}]\n",
    );
    let refused = k.fail(&format!("apply -f {wrong}"));
    assert!(
        refused.contains("unknown field \"spec.containerz\""),
        "{refused}"
    );
    assert!(k.fail("get pod a").contains("not found"));

    k.run("create configmap c --from-literal=colour=red");
    let edited = k.edit("configmap c", "s/red/blue/");
    assert!(edited.contains("configmap/c edited"), "{edited}");
    assert_eq!(k.run("get configmap c -o jsonpath={.data.colour}"), "blue");
    let resources = k.run("api-resources");
    for name in [
        "pods",
        "deployments",
        "leases",
        "events",
        "configmaps",
        "serviceaccounts",
    ] {
        assert!(resources.contains(name), "{resources}");
    }
}
