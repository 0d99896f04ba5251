//! `keelson up --api-only`: the store and the API server, and nobody who acts.

use crate::harness::{Cluster, alone, need};

#[test]
fn there_is_an_api_and_no_node() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up_with(&kubectl, &["--api-only"]);
    let k = cluster.client();
    // What must exist from the start does, and nobody has joined or leads.
    k.run("get namespace default kube-system");
    assert_eq!(k.run("get nodes -o name"), "");
    assert_eq!(k.run("get leases -A -o name"), "");
    // What is written stays as it was written.
    k.run("create deployment web --image=host --replicas=2");
    let status = "get deployment web -o jsonpath={.status}";
    assert_eq!(k.run(status), "{}");
    k.run("run alone --image=host");
    assert_eq!(k.run("get pod alone -o jsonpath={.spec.nodeName}"), "");
    assert_eq!(k.run("get pods -o name"), "pod/alone\n");
}
