//! `kubectl debug`: containers added to pods that run, and copies of pods.

use std::path::Path;

use crate::harness::{Cluster, alone, until};

with_each_kubectl![ephemeral copies];

fn ephemeral(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("run target --image=host --restart=Never --command -- sleep 36140");
    k.run("wait --for=condition=Ready pod/target --timeout=60s");
    k.run("debug target --image=host --profile=general -c look --attach=false -- sleep 36141");
    let spec = k.run("get pod target -o jsonpath={.spec.ephemeralContainers[0].name},{.spec.ephemeralContainers[0].command}");
    assert_eq!(spec, r#"look,["sleep","36141"]"#);
    // A second one is added to the first; neither is taken away by an update.
    k.run("debug target --image=host --profile=general -c again --attach=false -- sleep 36141");
    let names = k.run("get pod target -o jsonpath={.spec.ephemeralContainers[*].name}");
    assert_eq!(names, "look again");
    k.run("label pod target x=y");
    assert_eq!(
        k.run("get pod target -o jsonpath={.spec.ephemeralContainers[*].name}"),
        names
    );
    assert!(
        k.fail("debug none --image=host --profile=general --attach=false")
            .contains("not found")
    );
    k.run("delete pod target --now");
}

fn copies(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("run target --image=host --restart=Never --labels=a=b --command -- sleep 36142");
    k.run("wait --for=condition=Ready pod/target --timeout=60s");
    k.run_of(&[
        "debug",
        "target",
        "--copy-to=copy",
        "--container=target",
        "--profile=general",
        "--attach=false",
        "--",
        "sh",
        "-c",
        "echo copied",
    ]);
    let logs = until("the copy's output", || {
        let out = k.output("logs copy");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        if said.is_empty() {
            Err(format!("{out:?}"))
        } else {
            Ok(said)
        }
    });
    assert_eq!(logs, "copied\n");
    // A copy has no labels, so that nothing takes it for its own.
    assert_eq!(k.run("get pod copy -o jsonpath={.metadata.labels}"), "");
    k.run("delete pod target copy --now");
}
