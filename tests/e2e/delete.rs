//! `kubectl delete`: cascades, waiting, grace, selections.

use std::path::Path;

use crate::harness::{Cluster, alone, until};

with_each_kubectl![cascades selections grace];

fn cascades(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let make = |name: &str| {
        k.run(&format!(
            "create deployment {name} --image=host --replicas=1 -- sleep 36110"
        ));
        k.run(&format!("rollout status deployment {name} --timeout=60s"));
    };
    let left = |name: &str, kinds: &str| k.run(&format!("get {kinds} -l app={name} -o name"));

    make("back");
    assert_eq!(
        k.run("delete deployment back"),
        "deployment.apps \"back\" deleted\n".replace("deleted", &deleted(&k.run("version")))
    );
    until("dependents to follow", || {
        let rest = left("back", "replicasets,pods");
        if rest.is_empty() { Ok(()) } else { Err(rest) }
    });

    make("front");
    k.run("delete deployment front --cascade=foreground --timeout=60s");
    // Whoever waited for the foreground finds nothing left.
    assert_eq!(left("front", "deployments,replicasets,pods"), "");

    make("leave");
    k.run("delete deployment leave --cascade=orphan --timeout=60s");
    let orphan = left("leave", "replicasets");
    assert_eq!(orphan.lines().count(), 1, "{orphan}");
    until("the orphan to lose its owner", || {
        let owners =
            k.run("get replicasets -l app=leave -o jsonpath={.items[*].metadata.ownerReferences}");
        if owners.is_empty() {
            Ok(())
        } else {
            Err(owners)
        }
    });
    k.running("app=leave", 1);
    k.run("delete replicaset -l app=leave --timeout=60s");
}

/// What kubectl says of a namespaced object that is deleted: newer ones say where.
fn deleted(version: &str) -> String {
    let old = version
        .lines()
        .any(|l| l.starts_with("Client Version: v1.33"));
    if old {
        "deleted"
    } else {
        "deleted from default namespace"
    }
    .to_owned()
}

fn selections(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create namespace many");
    let make = || {
        for name in ["a", "b", "c"] {
            k.run(&format!(
                "create secret generic {name} -n many --from-literal=k=v"
            ));
        }
        k.run("label secret a b -n many half=first");
    };
    let secrets = || k.run("get secrets -n many -o name");
    make();
    k.run("delete secrets -n many -l half=first");
    assert_eq!(secrets(), "secret/c\n");
    k.run("delete secret c -n many --dry-run=server");
    assert_eq!(secrets(), "secret/c\n");
    k.run("delete secret -n many --all");
    assert_eq!(secrets(), "");
    make();
    k.run("delete secrets -n many --field-selector metadata.name=a");
    k.run("delete secret/b secret/c -n many");
    assert_eq!(secrets(), "");
    assert!(k.fail("delete secret a -n many").contains("not found"));
    k.run("delete secret a -n many --ignore-not-found");
    make();
    k.run("delete namespace many --timeout=60s");
    assert!(k.fail("get namespace many").contains("not found"));
}

fn grace(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let run = |name: &str| {
        k.run(&format!(
            "run {name} --image=host --restart=Never --command -- sleep 36111"
        ));
        k.run(&format!(
            "wait --for=condition=Ready pod/{name} --timeout=60s"
        ));
    };
    run("now");
    k.run("delete pod now --now --timeout=60s");
    assert!(k.fail("get pod now").contains("not found"));
    run("forced");
    k.run("delete pod forced --force --grace-period=0");
    assert!(k.fail("get pod forced").contains("not found"));
    // A finalizer holds it for as long as it is there.
    k.run("create configmap held --from-literal=a=b");
    k.run("patch configmap held --type=merge -p {\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}");
    k.run("delete configmap held --wait=false");
    assert_ne!(
        k.run("get configmap held -o jsonpath={.metadata.deletionTimestamp}"),
        ""
    );
    assert!(
        k.fail("delete configmap held --timeout=1s")
            .contains("timed out")
    );
    k.run("patch configmap held --type=json -p [{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]");
    assert!(k.fail("get configmap held").contains("not found"));
}
