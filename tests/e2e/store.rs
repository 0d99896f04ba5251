//! The store as etcdctl sees it, alone and under a cluster.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Cluster, Program, alone, need};

struct Etcdctl<'a> {
    program: &'a Path,
    endpoint: &'a str,
}

impl Etcdctl<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoint))
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "etcdctl {args:?}: {errors}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn fail(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        assert!(!out.status.success(), "etcdctl {args:?} succeeded");
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    fn with_input(&self, args: &[&str], input: &str) -> String {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

/// Waits until a store on port 0 serves, and returns where.
fn endpoint(program: &Program) -> String {
    let line = program.logged("ready to serve client requests");
    let start = line.find("127.0.0.1:").unwrap();
    let end = line[start..].find(']').unwrap();
    format!("http://{}", &line[start..start + end])
}

#[test]
fn etcdctl_reads_what_the_cluster_wrote() {
    let (kubectl, etcdctl) = (need!("kubectl"), need!("etcdctl"));
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    cluster
        .client()
        .run("create configmap seen --from-literal=a=1");
    let e = Etcdctl {
        program: &etcdctl,
        endpoint: &cluster.store,
    };
    let keys = e.run(&["get", "/registry", "--prefix", "--keys-only"]);
    for key in [
        "/registry/namespaces/default",
        "/registry/configmaps/default/seen",
        "/registry/leases/",
    ] {
        assert!(keys.contains(key), "{key}: {keys}");
    }
    let value = e.run(&[
        "get",
        "/registry/configmaps/default/seen",
        "--print-value-only",
    ]);
    assert!(
        value.contains("\"a\":\"1\"") && !value.contains("resourceVersion"),
        "{value}"
    );
}

#[test]
fn etcdctl_finds_nothing_strange() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut program = Program::start(
        &folder.path().join("stderr"),
        &[
            "kvstore",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen-client-urls=http://127.0.0.1:0",
        ],
    );
    let endpoint = endpoint(&program);
    let e = Etcdctl {
        program: &etcdctl,
        endpoint: &endpoint,
    };

    assert_eq!(e.run(&["put", "a", "1"]), "OK\n");
    assert_eq!(e.run(&["put", "a", "2", "--prev-kv"]), "OK\na\n1\n");
    assert_eq!(e.run(&["get", "a"]), "a\n2\n");
    assert_eq!(e.run(&["get", "a", "--rev=2"]), "a\n1\n");
    let txn = "value(\"a\") = \"2\"\n\nput b 3\nget a\n\nput b 4\n\n";
    assert_eq!(
        e.with_input(&["txn", "-i=false"], txn),
        "SUCCESS\n\nOK\n\na\n2\n"
    );
    assert_eq!(e.run(&["get", "b", "--print-value-only"]), "3\n");

    let granted = e.run(&["lease", "grant", "60"]);
    let lease = granted.split_whitespace().nth(1).unwrap().to_owned();
    e.run(&["put", "leased", "x", &format!("--lease={lease}")]);
    assert!(
        e.run(&["lease", "keep-alive", "--once", &lease])
            .contains("keepalived with TTL(60)")
    );
    assert!(
        e.run(&["lease", "timetolive", &lease, "--keys"])
            .contains("leased")
    );
    e.run(&["lease", "revoke", &lease]);
    assert_eq!(e.run(&["get", "leased"]), "");

    // A watch from the past sees history, then what comes.
    let log = folder.path().join("watch");
    let mut watch = Program::spawn(
        &mut e.command(&["watch", "a", "--rev=2", "--prev-kv"]),
        &log,
    );
    watch.line("PUT");
    e.run(&["del", "a"]);
    watch.line("DELETE");
    drop(watch);

    e.run(&["compact", "4"]);
    assert!(
        e.fail(&["get", "a", "--rev=3"])
            .contains("required revision has been compacted")
    );
    assert!(
        e.fail(&["get", "a", "--rev=999"])
            .contains("required revision is a future revision")
    );
    assert!(e.fail(&["put", "", "x"]).contains("key is not provided"));
    let table = e.run(&["endpoint", "status", "-w", "table"]);
    assert!(
        table.contains("IS LEADER") && table.contains("true"),
        "{table}"
    );
    assert!(e.run(&["member", "list"]).contains("started"));
    let health = e.command(&["endpoint", "health"]).output().unwrap();
    let said = [health.stdout, health.stderr].concat();
    assert!(String::from_utf8_lossy(&said).contains("is healthy"));
    program.terminate();
}

#[test]
fn a_killed_store_keeps_every_acknowledged_write() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = || {
        Program::start(
            &folder.path().join("stderr"),
            &[
                "kvstore",
                "--data-dir",
                data.to_str().unwrap(),
                "--listen-client-urls=http://127.0.0.1:0",
            ],
        )
    };
    let mut written = 0u32;
    for round in 0..3 {
        let mut program = start();
        let endpoint = endpoint(&program);
        let e = Etcdctl {
            program: &etcdctl,
            endpoint: &endpoint,
        };
        let count = e.run(&["get", "k", "--prefix", "--count-only", "--write-out=fields"]);
        assert!(
            count.contains(&format!("\"Count\" : {written}")),
            "round {round}: {count}"
        );
        assert!(
            count.contains(&format!("\"Revision\" : {}", written + 1)),
            "{count}"
        );
        for _ in 0..20 {
            e.run(&["put", &format!("k{written:04}"), "v"]);
            written += 1;
        }
        program.kill();
    }
}
