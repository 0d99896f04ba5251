//! The API server over three members keeps serving kubectl while each of them
//! is killed in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{Kubectl, Program, alone, need, until};
use crate::members::Cluster;
use crate::target::{rounds, target};

/// How long kubectl may be without an answer to a read.
const READ_MAX: Duration = Duration::from_secs(10);
/// How often a write is tried: what a dying member had half done may be refused
/// once with "may or may not have been carried out".
const TRIES_MAX: usize = 2;

struct Outage<'a> {
    kubectl: &'a Kubectl,
    made: Vec<String>,
    retries: usize,
    slowest: Duration,
}

impl Outage<'_> {
    /// Writes an object twice, reads it, and reads them all.
    fn serve(&mut self, round: usize, number: usize) {
        let name = format!("c{round}-{number}");
        self.write(&format!("create configmap {name} --from-literal=k=v"));
        self.write(&format!(
            "annotate --overwrite configmap {name} seen={number}"
        ));
        self.made.push(name);
        // Reads are never refused, and never behind.
        let started = Instant::now();
        let listed = self.kubectl.run("get configmaps -o name");
        let took = started.elapsed();
        assert!(took < READ_MAX, "a list took {took:?}");
        self.slowest = self.slowest.max(took);
        for name in &self.made {
            let line = format!("configmap/{name}");
            assert!(
                listed.lines().any(|l| l == line),
                "{name} is missing in {listed}"
            );
        }
    }

    fn write(&mut self, line: &str) {
        let started = Instant::now();
        for left in (0..TRIES_MAX).rev() {
            let out = self.kubectl.output(line);
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            if out.status.success() || said.contains("AlreadyExists") {
                break;
            }
            self.retries += 1;
            eprintln!("kubectl {line}: {}", said.trim());
            assert!(left > 0, "kubectl {line}: {said}");
        }
        self.slowest = self.slowest.max(started.elapsed());
    }
}

#[test]
fn serves_while_each_member_is_killed() {
    let (target, kubectl) = (target!(), need!("kubectl"));
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let urls: Vec<String> = cluster
        .members
        .iter()
        .map(|m| m.client_url.clone())
        .collect();
    let certs = cluster.folder().join("certs");
    let apiserver = Program::start(
        &cluster.folder().join("apiserver.log"),
        &[
            "apiserver",
            &format!("--etcd-servers={}", urls.join(",")),
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            &format!("--cert-dir={}", certs.display()),
        ],
    );
    apiserver.logged("serving the Kubernetes API");
    let kubeconfig = certs.join("admin.kubeconfig");
    let k = Kubectl::new(&kubectl, Path::new(&kubeconfig), cluster.folder());
    k.run("get namespaces");
    let watch_log = cluster.folder().join("watch.log");
    let mut watch = Program::spawn(
        std::process::Command::new(&kubectl)
            .args(["get", "configmaps", "--watch", "-o", "name"])
            .args(["--kubeconfig", kubeconfig.to_str().unwrap()])
            .env("HOME", cluster.folder()),
        &watch_log,
    );
    let mut outage = Outage {
        kubectl: &k,
        made: Vec::new(),
        retries: 0,
        slowest: Duration::ZERO,
    };
    for round in 0..rounds(3, 9) {
        // The one in use, whichever it is, is among the three.
        let at = round % 3;
        let led = cluster.leader() == at;
        cluster.members[at].kill();
        for number in 0..rounds(4, 10) {
            outage.serve(round, number);
        }
        eprintln!(
            "m{at} killed, which led: {led}; slowest answer {:?}",
            outage.slowest
        );
        cluster.restart(at);
        cluster.await_healthy();
    }
    for name in &outage.made {
        watch.line(&format!("configmap/{name}"));
    }
    let (made, retries) = (outage.made.len(), outage.retries);
    eprintln!("{made} objects made, seen by one watch; {retries} writes tried again");
    until("the API server to be ready", || {
        let ready = k.output("get --raw /readyz");
        if ready.status.success() {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        }
    });
}
