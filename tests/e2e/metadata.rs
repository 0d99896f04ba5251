//! `kubectl label`, `annotate`, `taint`, `cordon`, `drain`.

use std::path::Path;

use crate::harness::{Cluster, alone};

with_each_kubectl![labels annotations nodes drains];

fn labels(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create configmap c --from-literal=a=b");
    let read = || k.run("get configmap c -o jsonpath={.metadata.labels}");
    assert_eq!(
        k.run("label configmap c colour=red"),
        "configmap/c labeled\n"
    );
    let said = k.fail("label configmap c colour=blue");
    assert!(
        said.contains("'colour' already has a value (red), and --overwrite is false"),
        "{said}"
    );
    k.run("label --overwrite configmap c colour=blue size=");
    assert_eq!(read(), r#"{"colour":"blue","size":""}"#);
    assert!(k.run("label configmap c --list").contains("colour=blue"));
    assert_eq!(
        k.run("label configmap c colour=blue"),
        "configmap/c not labeled\n"
    );
    assert_eq!(
        k.run("label configmap c colour-"),
        "configmap/c unlabeled\n"
    );
    assert_eq!(read(), r#"{"size":""}"#);
    k.run("label configmaps --all everywhere=yes");
    assert!(
        k.run("get configmaps -l everywhere=yes -o name")
            .contains("configmap/c")
    );
    assert!(
        k.fail("label configmap c not_ok*=x")
            .contains("name part must consist of")
    );
    assert!(
        k.fail("label --overwrite --resource-version=1 configmap c n=1")
            .contains("modified")
    );
}

fn annotations(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create configmap c --from-literal=a=b");
    let read = || k.run("get configmap c -o jsonpath={.metadata.annotations}");
    k.run_of(&["annotate", "configmap", "c", "note=some words, really"]);
    assert_eq!(read(), r#"{"note":"some words, really"}"#);
    assert!(
        k.fail("annotate configmap c note=x")
            .contains("--overwrite is false")
    );
    k.run("annotate --overwrite configmap c note=x example.com/b=2");
    k.run("annotate configmap c note-");
    assert_eq!(read(), r#"{"example.com/b":"2"}"#);
    let version = k.run("get configmap c -o jsonpath={.metadata.resourceVersion}");
    k.run(&format!(
        "annotate configmap c --resource-version={version} last=3"
    ));
    let said = k.fail(&format!(
        "annotate configmap c --resource-version={version} last=4 --overwrite"
    ));
    assert!(said.contains("modified"), "{said}");
    k.run("annotate configmap c --dry-run=server dry=run");
    assert!(!read().contains("dry"));
}

fn nodes(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let node = k.run("get nodes -o jsonpath={.items[0].metadata.name}");
    let taints = || k.run("get nodes -o jsonpath={.items[0].spec.taints}");
    k.run(&format!("taint node {node} dedicated=yes:PreferNoSchedule"));
    assert!(taints().contains("dedicated"));
    assert!(
        k.fail(&format!("taint node {node} dedicated=no:PreferNoSchedule"))
            .contains("overwrite")
    );
    k.run(&format!("taint node {node} dedicated:PreferNoSchedule-"));
    assert!(!taints().contains("dedicated"));
    assert!(
        k.fail(&format!("taint node {node} a=b:Sometimes"))
            .contains("invalid taint effect")
    );

    assert_eq!(
        k.run(&format!("cordon {node}")),
        format!("node/{node} cordoned\n")
    );
    assert!(k.run("get nodes").contains("Ready,SchedulingDisabled"));
    assert!(
        k.run(&format!("cordon {node}"))
            .contains("already cordoned")
    );
    k.run("run waiting --image=host --restart=Never --command -- true");
    let said = k.fail("wait --for=condition=Ready pod/waiting --timeout=2s");
    assert!(said.contains("timed out"), "{said}");
    assert!(k.run("describe pod waiting").contains("FailedScheduling"));
    k.run(&format!("uncordon {node}"));
    k.run("wait --for=jsonpath={.status.phase}=Succeeded pod/waiting --timeout=60s");
}

fn drains(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let node = k.run("get nodes -o jsonpath={.items[0].metadata.name}");
    k.run("create deployment web --image=host --replicas=2 -- sleep 36130");
    k.run("rollout status deployment web --timeout=60s");
    k.run("run bare --image=host --command -- sleep 36130");
    k.run("wait --for=condition=Ready pod/bare --timeout=60s");
    // Nobody would bring it back, so it has to be said.
    let said = k.fail(&format!("drain {node} --timeout=60s"));
    assert!(
        said.contains("cannot delete") && said.contains("bare"),
        "{said}"
    );
    let before = k.run("get pods -l app=web -o name");
    let said = k.run(&format!(
        "drain {node} --force --ignore-daemonsets --grace-period=1 --timeout=60s"
    ));
    assert!(
        said.contains("evicted") && said.contains("drained"),
        "{said}"
    );
    let after = k.run("get pods -l app=web -o name");
    for pod in before.lines() {
        assert!(!after.lines().any(|l| l == pod), "{pod} is still there");
    }
    assert!(k.fail("get pod bare").contains("not found"));
    k.run(&format!("uncordon {node}"));
    k.running("app=web", 2);
    k.run("delete deployment web");
}
