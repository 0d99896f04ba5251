//! `kubectl get`, `describe` and `events`: every way to look at things.

use std::path::Path;

use crate::harness::{Cluster, alone, until};

with_each_kubectl![forms selections descriptions events];

/// Three config maps and what is asked of them.
fn maps(cluster: &Cluster) {
    let k = cluster.client();
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "front")] {
        k.run(&format!(
            "create configmap {name} --from-literal=key={name}"
        ));
        k.run(&format!("label configmap {name} tier={tier} set=maps"));
    }
}

fn forms(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    maps(&cluster);
    let get = |how: &str| k.run(&format!("get configmaps -l set=maps {how}"));

    assert_eq!(get("-o name"), "configmap/a\nconfigmap/b\nconfigmap/c\n");
    let table = get("");
    assert!(
        table.starts_with("NAME   DATA   AGE\na      1      "),
        "{table}"
    );
    assert!(get("--show-labels").contains("set=maps,tier=front"));
    assert!(get("-L tier").lines().next().unwrap().ends_with("TIER"));
    assert_eq!(get("--no-headers").lines().count(), 3);
    assert_eq!(get("-o jsonpath={.items[*].data.key}"), "a b c");
    assert_eq!(
        k.run("get cm b -o go-template={{.data.key}}-{{.metadata.name}}"),
        "b-b"
    );
    let columns = get("-o custom-columns=N:.metadata.name,K:.data.key --sort-by={.metadata.name}");
    let words: Vec<&str> = columns.split_whitespace().collect();
    assert_eq!(words, ["N", "K", "a", "a", "b", "b", "c", "c"]);
    let yaml = k.run("get configmap a -o yaml");
    for line in ["apiVersion: v1", "kind: ConfigMap", "  key: a", "  name: a"] {
        assert!(yaml.lines().any(|l| l == line), "{line}: {yaml}");
    }
    let json: serde_json::Value = serde_json::from_str(&get("-o json")).unwrap();
    assert_eq!(
        (&json["kind"], json["items"].as_array().unwrap().len()),
        (&"List".into(), 3)
    );
    let wide = k.run("get nodes -o wide");
    for column in [
        "INTERNAL-IP",
        "OS-IMAGE",
        "KERNEL-VERSION",
        "CONTAINER-RUNTIME",
    ] {
        assert!(wide.contains(column), "{wide}");
    }
    // Several kinds at once, and a file for a pattern.
    let both = k.run("get configmap/a serviceaccount/default -o name");
    assert_eq!(both, "configmap/a\nserviceaccount/default\n");
    let raw = k.run("get --raw /api/v1/namespaces/default/configmaps/a");
    assert!(raw.contains("\"key\":\"a\""), "{raw}");
}

fn selections(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    maps(&cluster);
    let names = |how: &str| {
        let said = k.run(&format!("get configmaps {how} -o name"));
        said.replace("configmap/", "").trim_end().replace('\n', " ")
    };
    assert_eq!(names("-l tier=front"), "a c");
    assert_eq!(names("-l tier!=front,set"), "b");
    assert_eq!(names("-l tier,tier"), "a b c");
    let in_set = k.run_of(&[
        "get",
        "configmaps",
        "-o",
        "name",
        "-l",
        "tier in (back, none)",
    ]);
    assert_eq!(in_set, "configmap/b\n");
    assert_eq!(names("--field-selector metadata.name=b"), "b");
    assert_eq!(names("-l set=maps --chunk-size=1"), "a b c");
    k.run("create namespace other");
    k.run("create configmap d -n other --from-literal=x=y");
    let all = k.run("get configmaps -A --field-selector metadata.name=d");
    assert!(all.contains("NAMESPACE") && all.contains("other"), "{all}");

    assert!(
        k.fail("get configmap none")
            .contains(r#"configmaps "none" not found"#)
    );
    assert_eq!(k.run("get configmap none --ignore-not-found"), "");
    assert!(
        k.fail("get nonsense")
            .contains("doesn't have a resource type")
    );
    assert!(
        k.fail("get configmaps -l a==b==c")
            .contains("unable to parse")
    );
    let said = k.fail("get configmaps --field-selector data.key=a");
    assert!(said.contains("is not a known field selector"), "{said}");
    let empty = k.output("get configmaps -n nowhere");
    assert!(String::from_utf8_lossy(&empty.stderr).contains("No resources found in nowhere"));
}

fn descriptions(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    maps(&cluster);
    k.run("create deployment web --image=host --replicas=1 -- sleep 36100");
    k.run("rollout status deployment web --timeout=60s");
    k.run("expose deployment web --port=80");
    k.run("create secret generic s --from-literal=word=hidden");
    for (what, words) in [
        (
            "configmap a",
            &["Name:         a", "Labels:       set=maps", "key:", "----"][..],
        ),
        (
            "deployment web",
            &[
                "Replicas:",
                "1 desired | 1 updated",
                "StrategyType:",
                "OldReplicaSets:",
            ],
        ),
        (
            "pods -l app=web",
            &["Node:", "Status:", "Running", "Controlled By:", "sleep"],
        ),
        (
            "service web",
            &[
                "Type:",
                "ClusterIP",
                "IP Family Policy:",
                "Selector:",
                "app=web",
            ],
        ),
        (
            "node",
            &[
                "Capacity:",
                "Allocatable:",
                "Conditions:",
                "Non-terminated Pods:",
            ],
        ),
        (
            "namespace default",
            &["Name:         default", "Status:       Active"],
        ),
        (
            "serviceaccount default",
            &["Name:", "Namespace:           default"],
        ),
        ("secret s", &["Type:  Opaque", "word:  6 bytes"]),
    ] {
        let said = k.run(&format!("describe {what}"));
        for word in words {
            assert!(said.contains(word), "{what} lacks {word:?}: {said}");
        }
    }
    assert!(!k.run("describe secret s").contains("hidden"));
    assert!(k.fail("describe configmap none").contains("not found"));
    k.run("delete deployment web");
}

fn events(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("run one --image=host --restart=Never --command -- true");
    until("the events of a pod's life", || {
        let said = k.run("events --for pod/one");
        let all = ["Scheduled", "Pulled", "Created", "Started"];
        if all.iter().all(|reason| said.contains(reason)) {
            Ok(())
        } else {
            Err(said)
        }
    });
    let types = k.run("events --types=Normal --no-headers");
    assert!(types.contains("Normal"), "{types}");
    let sorted = k.run("get events --sort-by=.metadata.creationTimestamp");
    assert!(sorted.contains("pod/one"), "{sorted}");
    let some = k.run("get events --field-selector involvedObject.name=one,reason=Started -o name");
    assert_eq!(some.lines().count(), 1, "{some}");
    assert_eq!(
        k.run("get events --field-selector involvedObject.name=two -o name"),
        ""
    );
}
