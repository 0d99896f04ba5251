//! `kubectl api-resources`, `api-versions`, `explain`, `version`, `cluster-info`,
//! `auth`, `top`: what the server says of itself.

use std::path::Path;

use crate::harness::{Cluster, alone, until};

with_each_kubectl![resources explanations posted who clear_failures];

fn resources(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let versions = k.run("api-versions");
    for version in [
        "apps/v1",
        "v1",
        "events.k8s.io/v1",
        "coordination.k8s.io/v1",
    ] {
        assert!(
            versions.lines().any(|l| l == version),
            "{version}: {versions}"
        );
    }
    assert!(versions.lines().is_sorted(), "{versions}");
    let table = k.run("api-resources -o wide");
    let pods = table.lines().find(|l| l.starts_with("pods ")).unwrap();
    for word in [
        "po",
        "v1",
        "true",
        "Pod",
        "deletecollection",
        "watch",
        "all",
    ] {
        assert!(pods.contains(word), "{pods}");
    }
    let cluster_wide = k.run("api-resources --namespaced=false -o name");
    assert!(cluster_wide.lines().any(|l| l == "nodes"), "{cluster_wide}");
    assert!(!cluster_wide.lines().any(|l| l == "pods"), "{cluster_wide}");
    let apps = k.run("api-resources --api-group=apps -o name");
    assert!(apps.contains("deployments.apps"), "{apps}");
    assert!(apps.lines().all(|l| l.ends_with(".apps")), "{apps}");
    let all = k.run("api-resources --categories=all -o name");
    assert!(all.contains("pods") && !all.contains("configmaps"), "{all}");
    let bindable = k.run("api-resources --verbs=list,watch -o name");
    assert!(!bindable.contains("selfsubjectreviews"), "{bindable}");
    let info = k.run("cluster-info");
    assert!(
        info.contains("Kubernetes control plane") && info.contains("is running at"),
        "{info}"
    );
    let version = k.run("version");
    assert!(version.contains("Server Version: v1.36."), "{version}");
    for check in ["livez", "readyz", "healthz"] {
        assert_eq!(k.run(&format!("get --raw /{check}")), "ok");
    }
    assert!(
        k.run("get --raw /readyz?verbose")
            .contains("readyz check passed")
    );
    assert!(k.run("get --raw /metrics").contains("# TYPE"));
}

fn explanations(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let pod = k.run("explain pod");
    for word in [
        "KIND:       Pod",
        "VERSION:    v1",
        "DESCRIPTION:",
        "FIELDS:",
        "spec\t<PodSpec>",
    ] {
        assert!(pod.contains(word), "{word}: {pod}");
    }
    let required = k.run("explain pod.spec.containers");
    assert!(required.contains("name\t<string> -required-"), "{required}");
    let deep = k.run("explain deployment.spec.template.spec.containers.livenessProbe.exec.command");
    assert!(deep.contains("<[]string>"), "{deep}");
    let tree = k.run("explain lease.spec --recursive");
    assert!(tree.contains("holderIdentity\t<string>"), "{tree}");
    let old = k.run("explain events --api-version=events.k8s.io/v1");
    assert!(old.contains("regarding"), "{old}");
    assert!(
        k.run("explain configmap -o plaintext-openapiv2")
            .contains("binaryData")
    );
    assert!(
        k.fail("explain pod.spec.nothing")
            .contains("does not exist")
    );
    assert!(
        k.fail("explain nothing")
            .contains("doesn't have a resource type")
    );
}

/// What is only posted is known to OpenAPI: kubectl explains it, and finds what it has
/// no field for.
fn posted(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let asked = k.run("explain subjectaccessreview.spec.resourceAttributes");
    assert!(asked.contains("namespace\t<string>"), "{asked}");
    let old = k.run("explain tokenreview.spec -o plaintext-openapiv2");
    assert!(old.contains("audiences\t<[]string>"), "{old}");
    let create = [
        "create",
        "--validate=strict",
        "-f",
        "-",
        "-o",
        "jsonpath={.status.allowed}",
    ];
    let review = |field: &str| {
        let text = format!(
            "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec:\n  {field}: u\n  \
             groups: [system:masters]\n  resourceAttributes: {{verb: get, resource: pods}}\n"
        );
        k.output_with(&create, text.as_bytes())
    };
    let allowed = review("user");
    assert_eq!(
        String::from_utf8_lossy(&allowed.stdout),
        "true",
        "{allowed:?}"
    );
    let refused = review("usre");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("unknown field \"usre\""),
        "{why}"
    );
}

fn who(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let me = k.run("auth whoami");
    assert!(
        me.contains("kubernetes-admin") && me.contains("system:masters"),
        "{me}"
    );
    for question in [
        "create pods",
        "* *",
        "get /metrics",
        "delete nodes",
        "get pods/log",
    ] {
        assert_eq!(
            k.run(&format!("auth can-i {question}")),
            "yes\n",
            "{question}"
        );
    }
    assert!(k.run("auth can-i --list").contains("[*]"));
}

fn clear_failures(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    // Nothing measures, and kubectl says just that.
    for what in ["pods", "pod none", "nodes", "pods --containers -A"] {
        assert_eq!(
            k.fail(&format!("top {what}")),
            "error: Metrics API not available\n",
            "{what}"
        );
    }
    // All that is served is said to be there, and by whom.
    let services = until("the APIServices", || {
        let services = k.run("get apiservices --no-headers");
        match services.contains("v1.storage.k8s.io ") {
            true => Ok(services),
            false => Err(services),
        }
    });
    for line in services.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.get(1..3), Some(&["Local", "True"][..]), "{line}");
    }
    assert!(services.contains("v1.apps "), "{services}");
    assert!(
        k.fail("get --raw /nothing")
            .contains("could not find the requested resource")
    );
    assert!(
        k.fail("get pods --server=https://127.0.0.1:1")
            .contains("refused")
    );
    assert!(k.fail("logs none").contains(r#"pods "none" not found"#));
}
