//! `--dry-run`, `--validate`, `diff`, kustomizations and pruning.

use std::path::Path;
use std::process::Output;

use crate::harness::{Cluster, Kubectl, alone};

with_each_kubectl![nothing_is_written validation differences kustomizations pruning];

fn nothing(k: &Kubectl) {
    assert!(k.fail("get configmap d").contains("not found"));
}

fn nothing_is_written(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let client = k.run("create configmap d --from-literal=a=b --dry-run=client -o yaml");
    assert!(
        client.contains("name: d") && !client.contains("uid"),
        "{client}"
    );
    let server = k.run("create configmap d --from-literal=a=b --dry-run=server -o yaml");
    assert!(
        server.contains("uid:") && server.contains("creationTimestamp:"),
        "{server}"
    );
    nothing(&k);
    let file = cluster.file(
        "d.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {a: b}\n",
    );
    assert_eq!(
        k.run(&format!("apply -f {file} --dry-run=server")),
        "configmap/d created (server dry run)\n"
    );
    nothing(&k);
    assert!(
        k.fail("create namespace Wrong_ --dry-run=server")
            .contains("Invalid value")
    );

    k.run(&format!("apply -f {file}"));
    let version = "get configmap d -o jsonpath={.metadata.resourceVersion}";
    let before = k.run(version);
    k.run("patch configmap d --type=merge -p {\"data\":{\"a\":\"c\"}} --dry-run=server");
    for line in [
        "label configmap d x=y --dry-run=server",
        "delete configmap d --dry-run=server",
        "delete configmap d --dry-run=client",
    ] {
        assert!(k.run(line).contains("dry run"), "{line}");
    }
    let replaced = k.run(&format!("replace -f {file} --dry-run=server"));
    assert!(replaced.contains("server dry run"), "{replaced}");
    assert_eq!(k.run(version), before);
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    k.run("scale deployment web --replicas=3 --dry-run=server");
    assert_eq!(
        k.run("get deployment web -o jsonpath={.spec.replicas}"),
        "0"
    );
}

fn validation(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let file = cluster.file(
        "odd.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\ndatum: {a: b}\n",
    );
    let said = k.fail(&format!("create -f {file}"));
    assert!(
        said.contains("strict decoding error: unknown field \"datum\""),
        "{said}"
    );
    let out = k.output(&format!("create -f {file} --validate=warn"));
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("unknown field \"datum\""));
    k.run("delete configmap odd");
    let out = k.output(&format!("create -f {file} --validate=ignore"));
    assert!(out.status.success() && out.stderr.is_empty());
    let wrong = cluster.file(
        "wrong.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: many}]}\n",
    );
    assert!(
        k.fail(&format!("create -f {wrong}"))
            .contains("cannot unmarshal")
    );
}

fn differences(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    for (name, form) in [("m", ""), ("s", "--server-side")] {
        let file = |data: &str| {
            cluster.file(
                "m.yaml",
                &format!(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {data}\n"
                ),
            )
        };
        let diff = |data: &str| k.output(&format!("diff {form} -f {}", file(data)));
        let said = |out: &Output| String::from_utf8_lossy(&out.stdout).into_owned();
        // What is not there yet differs as a whole.
        let out = diff("{a: b}");
        assert_eq!(out.status.code(), Some(1), "{form} {out:?}");
        assert!(said(&out).contains("+kind: ConfigMap"), "{form} {out:?}");
        k.run(&format!("apply {form} -f {}", file("{a: b}")));
        let out = diff("{a: b}");
        assert_eq!((out.status.code(), said(&out).as_str()), (Some(0), ""));
        let out = diff("{a: c, d: e}");
        assert_eq!(out.status.code(), Some(1), "{form} {out:?}");
        for line in ["-  a: b", "+  a: c", "+  d: e"] {
            assert!(said(&out).lines().any(|l| l == line), "{form} {out:?}");
        }
        assert_eq!(
            k.run(&format!("get configmap {name} -o jsonpath={{.data.a}}")),
            "b"
        );
    }
    let broken = k.output(&format!("diff -f {}", cluster.file("b.yaml", "kind: [")));
    assert!(broken.status.code().is_some_and(|c| c > 1), "{broken:?}");
}

fn kustomizations(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let folder = cluster.data_dir().parent().unwrap().join("kustom");
    for (path, text) in [
        (
            "base/kustomization.yaml",
            "resources: [web.yaml]\nconfigMapGenerator:\n- {name: settings, literals: [colour=red]}\n",
        ),
        (
            "base/web.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      - {name: c, image: 'nobody/has:1', envFrom: [{configMapRef: {name: settings}}]}\n",
        ),
        (
            "over/kustomization.yaml",
            "resources: [../base]\nnamePrefix: prod-\nnamespace: prod\nlabels:\n- {pairs: {stage: prod}}\nimages:\n- {name: nobody/has, newTag: '2'}\npatches:\n- target: {kind: Deployment}\n  patch: |-\n    - {op: replace, path: /spec/revisionHistoryLimit, value: 3}\n",
        ),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let over = folder.join("over");
    let over = over.to_str().unwrap();
    k.run("create namespace prod");
    let built = k.run(&format!("kustomize {over}"));
    assert!(
        built.contains("name: prod-web") && built.contains("nobody/has:2"),
        "{built}"
    );
    let said = k.run(&format!("apply -k {over}"));
    assert!(said.contains("deployment.apps/prod-web created"), "{said}");
    let name = k.run("get deployment prod-web -n prod -o jsonpath={.spec.template.spec.containers[0].envFrom[0].configMapRef.name}");
    assert!(name.starts_with("prod-settings-"), "{name}");
    assert_eq!(
        k.run(&format!(
            "get configmap {name} -n prod -o jsonpath={{.data.colour}}"
        )),
        "red"
    );
    assert_eq!(k.run(&format!("diff -k {over}")), "");
    assert!(
        k.run(&format!("get -k {over} -o name"))
            .contains("deployment.apps/prod-web")
    );
    k.run(&format!("delete -k {over}"));
    assert_eq!(k.run("get deployments -n prod -o name"), "");
}

fn pruning(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: p}}}}\n---\n"
        )
    };
    let both = cluster.file("both.yaml", &(map("keep") + &map("lose")));
    let one = cluster.file("one.yaml", &map("keep"));
    let prune = "--prune -l set=p --prune-allowlist=core/v1/ConfigMap";
    k.run(&format!("apply -f {both} {prune}"));
    let said = k.run(&format!("apply -f {one} {prune}"));
    assert!(said.contains("configmap/lose pruned"), "{said}");
    assert_eq!(k.run("get configmaps -l set=p -o name"), "configmap/keep\n");
    // The last applied configuration can be seen, and set.
    let last = k.run("apply view-last-applied configmap keep -o json");
    assert!(last.contains("\"set\": \"p\""), "{last}");
    k.run("create configmap plain --from-literal=a=b");
    let plain = cluster.file(
        "plain.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\ndata: {a: b}\n",
    );
    k.run(&format!(
        "apply set-last-applied -f {plain} --create-annotation=true"
    ));
    k.run(&format!("apply -f {plain}"));
    assert_eq!(
        k.run(&format!("apply -f {plain}")),
        "configmap/plain unchanged\n"
    );
}
