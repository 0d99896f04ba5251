//! The API server over a real etcd serves the same script.

use std::path::Path;
use std::process::Command;

use crate::harness::{Kubectl, Program, alone, free_address, need, until};

fn serves_over(etcd: &Path, kubectl: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let endpoint = format!("http://{}", free_address());
    let peer = format!("http://{}", free_address());
    let mut command = Command::new(etcd);
    command
        .args(["--data-dir", &path("etcd"), "--name=a"])
        .args([
            "--listen-client-urls",
            &endpoint,
            "--advertise-client-urls",
            &endpoint,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("a={peer}")]);
    let _etcd = Program::spawn(&mut command, &folder.path().join("etcd-stderr"));
    let apiserver = Program::start(
        &folder.path().join("stderr"),
        &[
            "apiserver",
            &format!("--etcd-servers={endpoint}"),
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            &format!("--cert-dir={}", path("certs")),
        ],
    );
    apiserver.logged("serving the Kubernetes API");
    let kubeconfig = path("certs/admin.kubeconfig");
    let start = |name: &str, args: &[&str]| {
        let mut all = vec![name, "--kubeconfig", &kubeconfig];
        all.extend(args);
        Program::start(&folder.path().join(format!("{name}-stderr")), &all)
    };
    let _controllers = start("controllers", &[]);
    let _scheduler = start("scheduler", &[]);
    let mut kubelet = start(
        "kubelet",
        &[
            "--root-dir",
            &path("kubelet"),
            "--port=0",
            "--hostname-override=n1",
        ],
    );

    let k = Kubectl::new(kubectl, Path::new(&kubeconfig), folder.path());
    until("a ready node", || {
        let nodes = k.run("get nodes --no-headers");
        if nodes.contains(" Ready ") {
            Ok(())
        } else {
            Err(nodes)
        }
    });
    k.run("create deployment web --image=host -- sleep 36030");
    k.run("scale deployment web --replicas=3");
    k.run("rollout status deployment web --timeout=80s");
    k.running("app=web", 3);
    k.run("delete deployment web");
    until("no pods", || {
        let left = k.run("get pods -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    kubelet.terminate();
}

#[test]
fn over_debians_etcd() {
    let (etcd, kubectl) = (need!("etcd-debian"), need!("kubectl"));
    let _alone = alone();
    serves_over(&etcd, &kubectl);
}

#[test]
fn over_etcd_3_5() {
    let (etcd, kubectl) = (need!("etcd"), need!("kubectl"));
    let _alone = alone();
    serves_over(&etcd, &kubectl);
}
