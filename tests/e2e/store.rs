//! The store as etcdctl sees it, alone and under a cluster.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Cluster, Program, alone, free_address, need, until};

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
            "--listen-peer-urls=http://127.0.0.1:0",
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
    refusals_and_state(&e);
    program.terminate();
}

/// Asks for what is gone or wrong, and how the member does.
fn refusals_and_state(e: &Etcdctl<'_>) {
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
                "--listen-peer-urls=http://127.0.0.1:0",
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

/// Draws numbers from a seed (xorshift64), so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// All keys with their revisions and values, and the store's revision, as of a
/// revision (0 is now).
fn contents(e: &Etcdctl<'_>, revision: i64) -> (serde_json::Value, serde_json::Value) {
    let at = format!("--rev={revision}");
    let said = e.run(&["get", "", "--prefix", "-w", "json", &at]);
    let mut reply: serde_json::Value = serde_json::from_str(&said).unwrap();
    (reply["kvs"].take(), reply["header"]["revision"].take())
}

/// Puts some keys and deletes others, in one transaction.
fn change(e: &Etcdctl<'_>, dice: &mut Dice) {
    let mut ops = std::collections::BTreeMap::new();
    for _ in 0..1 + dice.below(60) {
        let key = format!("k{:03}", dice.below(250));
        let op = match dice.below(100) < 55 {
            true => format!(
                "put {key} {}",
                "v".repeat([1, 50, 500, 3000][dice.below(4)])
            ),
            false => format!("del {key}"),
        };
        ops.insert(key, op);
    }
    let ops: Vec<_> = ops.into_values().collect();
    e.with_input(&["txn", "-i=false"], &format!("\n{}\n\n\n", ops.join("\n")));
}

/// A value that compaction forgot may still be on disk when the process ends; no
/// end may bring it back to life.
#[test]
fn what_was_deleted_and_compacted_stays_away_however_the_store_ends() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = || {
        let mut args = vec!["kvstore", "--data-dir", data.to_str().unwrap()];
        args.push("--listen-client-urls=http://127.0.0.1:0");
        args.push("--listen-peer-urls=http://127.0.0.1:0");
        Program::start(&folder.path().join("stderr"), &args)
    };
    let mut dice = Dice(0x5EED);
    let mut compacted = 0;
    let mut program = start();
    for round in 0..16 {
        let address = endpoint(&program);
        let e = Etcdctl {
            program: &etcdctl,
            endpoint: &address,
        };
        for _ in 0..3 + dice.below(6) {
            change(&e, &mut dice);
        }
        let before = contents(&e, 0);
        let revision = before.1.as_i64().unwrap();
        if dice.below(10) < 7 && revision > compacted {
            let left = usize::try_from(revision - compacted).unwrap();
            compacted += 1 + i64::try_from(dice.below(left)).unwrap();
            let mut compact = vec!["compact".to_owned(), compacted.to_string()];
            if dice.below(2) == 0 {
                compact.push("--physical".to_owned());
            }
            e.run(&compact.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let past = contents(&e, compacted.max(1));
        match dice.below(2) == 0 {
            true => program.kill(),
            false => assert!(program.terminate().success()),
        }
        program = start();
        let address = endpoint(&program);
        let e = Etcdctl {
            program: &etcdctl,
            endpoint: &address,
        };
        assert_eq!(contents(&e, 0), before, "round {round}");
        assert_eq!(contents(&e, compacted.max(1)), past, "round {round}");
    }
}

#[test]
fn etcdctl_is_told_what_a_lone_member_cannot_do() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut args = vec!["kvstore", "--data-dir", data.to_str().unwrap()];
    args.push("--listen-client-urls=http://127.0.0.1:0");
    args.push("--listen-peer-urls=http://127.0.0.1:0");
    let program = Program::start(&folder.path().join("stderr"), &args);
    let address = endpoint(&program);
    let e = Etcdctl {
        program: &etcdctl,
        endpoint: &address,
    };
    let list = e.run(&["member", "list"]);
    let id = list.split(',').next().unwrap();
    for (args, words) in [
        (
            &["member", "remove", "7"][..],
            "etcdserver: member not found",
        ),
        (&["member", "remove", id], "not enough started members"),
        (&["member", "promote", "7"], "etcdserver: member not found"),
        (
            &["member", "promote", id],
            "can only promote a learner member",
        ),
        (&["move-leader", "7"], "bad leader transferee"),
        (
            &[
                "member",
                "add",
                "b",
                "--learner",
                "--peer-urls=http://localhost:2380",
            ],
            "Peer URLs already exists",
        ),
        (&["auth", "enable"], "etcdserver: root user does not exist"),
    ] {
        let said = e.fail(args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    e.run(&["put", "a", "1"]);
    assert!(e.run(&["endpoint", "hashkv"]).contains(&address));
    assert!(e.run(&["defrag"]).contains("Finished"));
    let status = e.run(&["endpoint", "status", "-w", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    for size in ["dbSize", "dbSizeInUse"] {
        assert!(status[0]["Status"][size].as_i64().unwrap() > 0, "{status}");
    }
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let address = free_address().to_string();
    let mut args = vec!["kvstore", "--data-dir", data.to_str().unwrap()];
    let client = format!("--listen-client-urls=http://{address}");
    let advertised = format!("--advertise-client-urls=http://{address}");
    args.extend([
        &*client,
        &advertised,
        "--listen-peer-urls=http://127.0.0.1:0",
    ]);
    // Every write to it says that there is no room.
    let keelson = env!("CARGO_BIN_EXE_keelson");
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$0" "$@" 2>/dev/full"#, keelson]);
    let mut program = Program::spawn(shell.args(&args), &folder.path().join("stderr"));
    let e = Etcdctl {
        program: &etcdctl,
        endpoint: &address,
    };
    until("it to serve", || {
        match std::net::TcpStream::connect(&address) {
            Ok(_open) => Ok(()),
            Err(error) => Err(format!("{error}; ended: {:?}", program.ended())),
        }
    });
    e.run(&["put", "a", "1"]);
    assert!(program.terminate().success());
}
