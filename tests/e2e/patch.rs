//! `kubectl patch`, three ways, and `edit` and `replace`.

use std::path::Path;

use crate::harness::{Cluster, alone};

with_each_kubectl![three_ways refusals statuses edits replacements];

fn three_ways(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    let patch = |kind: &str, patch: &str| {
        k.run_of(&[
            "patch",
            "deployment",
            "web",
            &format!("--type={kind}"),
            "-p",
            patch,
        ])
    };
    let names = "get deployment web -o jsonpath={.spec.template.spec.containers[*].name}";
    let more = r#"{"spec":{"template":{"spec":{"containers":[{"name":"more","image":"i"}]}}}}"#;
    // By its key a list grows; as a whole it is replaced.
    assert_eq!(patch("strategic", more), "deployment.apps/web patched\n");
    let mut both: Vec<String> = k.run(names).split(' ').map(str::to_owned).collect();
    both.sort();
    assert_eq!(both, ["has", "more"]);
    assert_eq!(
        patch("strategic", more),
        "deployment.apps/web patched (no change)\n"
    );
    patch(
        "strategic",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"more","$patch":"delete"}]}}}}"#,
    );
    assert_eq!(k.run(names), "has");
    patch("merge", more);
    assert_eq!(k.run(names), "more");
    patch(
        "json",
        r#"[{"op":"test","path":"/spec/replicas","value":0},{"op":"replace","path":"/spec/template/spec/containers/0/name","value":"third"}]"#,
    );
    assert_eq!(k.run(names), "third");
    let file = cluster.file("patch.yaml", "metadata: {annotations: {from: file}}\n");
    k.run(&format!("patch deployment web --patch-file={file}"));
    assert_eq!(
        k.run("get deployment web -o jsonpath={.metadata.annotations.from}"),
        "file"
    );
}

fn refusals(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    let fails = |kind: &str, patch: &str| {
        let out = k.output_of(&[
            "patch",
            "deployment",
            "web",
            &format!("--type={kind}"),
            "-p",
            patch,
        ]);
        assert!(!out.status.success(), "{patch}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = fails(
        "json",
        r#"[{"op":"test","path":"/spec/replicas","value":7}]"#,
    );
    // What users of Kubernetes find when they search for it.
    assert_eq!(
        said.trim(),
        "The request is invalid: the server rejected our request due to an error in our request"
    );
    let text = r#"{"spec":{"replicas":"x"}}"#;
    let said = fails("merge", text);
    assert!(
        said.contains("of type int32") && said.contains("The request is invalid: patch:"),
        "{said}"
    );
    let said = fails("strategic", text);
    assert_eq!(
        said.trim(),
        r#"The request is invalid: patch: Invalid value: "map[spec:map[replicas:x]]": unrecognized type: int32"#
    );
    let said = fails(
        "merge",
        r#"{"spec":{"selector":{"matchLabels":{"app":"x"}}}}"#,
    );
    assert!(said.contains("field is immutable"), "{said}");
    let said = fails("merge", r#"{"spec":{"replicas":-1}}"#);
    assert!(
        said.contains("must be greater than or equal to 0"),
        "{said}"
    );
}

fn statuses(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run_of(&[
        "run",
        "p",
        "--image=host",
        "--overrides={\"spec\":{\"nodeSelector\":{\"no\":\"where\"}}}",
    ]);
    k.run_of(&[
        "patch",
        "pod",
        "p",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"message":"said by hand"},"metadata":{"labels":{"x":"y"}}}"#,
    ]);
    assert_eq!(
        k.run("get pod p -o jsonpath={.status.message}"),
        "said by hand"
    );
    // A status is no way to the spec, and the spec none to the status.
    k.run_of(&[
        "patch",
        "pod",
        "p",
        "--type=merge",
        "-p",
        r#"{"status":{"message":"unsaid"}}"#,
    ]);
    assert_eq!(
        k.run("get pod p -o jsonpath={.status.message}"),
        "said by hand"
    );
    assert!(
        k.run("get pod p --subresource=status -o name")
            .contains("pod/p")
    );
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    k.run_of(&[
        "patch",
        "deployment",
        "web",
        "--subresource=scale",
        "--type=merge",
        "-p",
        r#"{"spec":{"replicas":0}}"#,
    ]);
    let scale =
        k.run("get deployment web --subresource=scale -o jsonpath={.kind}:{.spec.replicas}");
    assert!(scale == "Scale:0" || scale == "Scale:", "{scale}");
}

fn edits(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create configmap c --from-literal=colour=red");
    assert!(
        k.edit("configmap c", "s/red/green/")
            .contains("configmap/c edited")
    );
    assert_eq!(k.run("get configmap c -o jsonpath={.data.colour}"), "green");
    let unchanged = k.edit("configmap c", "s/nothing/more/");
    assert_eq!(unchanged, "");
    let patch = k.edit("configmap c --output-patch", "s/green/blue/");
    assert!(patch.contains(r#"{"data":{"colour":"blue"}}"#), "{patch}");
    let json = k.edit("configmap c -o json", "s/blue/black/");
    assert!(json.contains(r#""colour": "black""#), "{json}");
    assert_eq!(k.run("get configmap c -o jsonpath={.data.colour}"), "black");
}

fn replacements(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let map = |value: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: r}}\ndata: {{k: {value}}}\n"
        );
        cluster.file("r.yaml", &text)
    };
    assert!(
        k.fail(&format!("replace -f {}", map("one")))
            .contains("not found")
    );
    k.run(&format!("create -f {}", map("one")));
    assert_eq!(
        k.run(&format!("replace -f {}", map("two"))),
        "configmap/r replaced\n"
    );
    assert_eq!(k.run("get configmap r -o jsonpath={.data.k}"), "two");
    let uid = k.run("get configmap r -o jsonpath={.metadata.uid}");
    let said = k.run(&format!("replace --force -f {}", map("three")));
    assert!(
        said.contains("deleted") && said.contains("replaced"),
        "{said}"
    );
    assert_ne!(k.run("get configmap r -o jsonpath={.metadata.uid}"), uid);
    // An old resource version is refused.
    let stale = k.run("get configmap r -o yaml");
    k.run("annotate configmap r a=b");
    let said = k.fail(&format!(
        "replace -f {}",
        cluster.file("stale.yaml", &stale)
    ));
    assert!(said.contains("the object has been modified"), "{said}");
}
