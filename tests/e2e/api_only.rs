//! `keelson up --api-only`: the API over its store, and nobody who acts on it.

use std::path::Path;
use std::process::Command;

use crate::harness::{Kubectl, Program, alone, need};

#[test]
fn objects_stay_as_they_are_written() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let args = ["up", "--api-only", "--port=0", "--store-port=0"];
    let start = || {
        let mut args = args.to_vec();
        args.extend(["--data-dir", data]);
        Program::start(&folder.path().join("stderr"), &args)
    };
    let mut program = start();
    program.line("ready in");
    let kubeconfig = program.line("kubeconfig");
    let k = Kubectl::new(&kubectl, Path::new(&kubeconfig), folder.path());

    // A kubelet would have made its node before it was ready, a controller whatever a
    // namespace begins with.
    assert_eq!(k.run("get nodes -o name"), "");
    k.run("create deployment web --image=host --replicas=3 -- sleep 1");
    k.run("create namespace other");
    assert_eq!(k.run("get pods -A -o name"), "");
    let deployment = "get deployment web -o jsonpath={.spec.replicas}/{.status.observedGeneration}";
    assert_eq!(k.run(deployment), "3/");

    assert!(program.terminate().success());
    let mut program = start();
    program.line("ready in");
    assert_eq!(k.run(deployment), "3/");
    assert!(program.terminate().success());
}

#[test]
fn what_only_a_node_has_is_refused() {
    let out = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["up", "--api-only", "--leave-pods"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(errors.contains("cannot be used with"), "{errors}");
}
