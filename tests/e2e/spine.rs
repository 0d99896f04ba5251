//! From `kubectl scale` to processes, and back.

use crate::harness::{Cluster, alone, need, processes, resident_bytes, signal, until};

/// Waits until exactly `count` processes with this command line exist.
fn processes_are(command: &[&str], count: usize) -> Vec<u32> {
    until(&format!("{count} processes {command:?}"), || {
        let pids = processes(command);
        if pids.len() == count {
            Ok(pids)
        } else {
            Err(format!("{pids:?}"))
        }
    })
}

#[test]
fn scale_becomes_processes_and_stays_true() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let sleep = ["sleep", "36001"];

    k.run("create deployment web --image=host -- sleep 36001");
    k.run("scale deployment web --replicas=5");
    let status = k.run("rollout status deployment web --timeout=60s");
    assert!(status.contains("successfully rolled out"), "{status}");
    let pods = k.running("app=web", 5);
    let wide = k.run("get pods -o wide");
    for column in ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"] {
        assert!(wide.lines().next().unwrap().contains(column), "{wide}");
    }
    let pids = processes_are(&sleep, 5);
    assert!(
        resident_bytes(cluster.program.pid()) < 120 << 20,
        "resident memory"
    );

    // A killed process is started again and counted.
    signal(pids[0], "KILL");
    until("a restart count of 1", || {
        let counts = k.run(
            "get pods -l app=web -o jsonpath={.items[*].status.containerStatuses[0].restartCount}",
        );
        let mut counts: Vec<&str> = counts.split_whitespace().collect();
        counts.sort_unstable();
        if counts == ["0", "0", "0", "0", "1"] {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    });
    let again = processes_are(&sleep, 5);
    assert!(!again.contains(&pids[0]));

    // A deleted pod is replaced.
    k.run(&format!("delete pod {}", pods[1]));
    let replaced = k.running("app=web", 5);
    assert!(!replaced.contains(&pods[1]));
    processes_are(&sleep, 5);

    k.run("scale deployment web --replicas=2");
    k.running("app=web", 2);
    processes_are(&sleep, 2);

    assert!(
        k.fail("scale deployment web --replicas=-1")
            .contains("must be greater than or equal to 0")
    );
    k.run("delete deployment web");
    processes_are(&sleep, 0);
    until("no pods", || {
        let left = k.run("get pods -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_deployment_rolls_and_rolls_back() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    k.run("create deployment web --image=host --replicas=2 -- sleep 36002");
    k.run("rollout status deployment web --timeout=60s");
    let colour = "get deployment web -o jsonpath={.spec.template.spec.containers[0].env[*].value}";

    k.run("set env deployment/web COLOUR=blue");
    k.run("rollout status deployment web --timeout=60s");
    assert_eq!(k.run(colour), "blue");
    k.running("app=web", 2);
    let history = k.run("rollout history deployment web");
    let revisions: Vec<&str> = history
        .lines()
        .skip(2)
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert_eq!(revisions, ["1", "2"], "{history}");

    k.run("rollout undo deployment web");
    k.run("rollout status deployment web --timeout=60s");
    assert_eq!(k.run(colour), "");
    k.running("app=web", 2);
    processes_are(&["sleep", "36002"], 2);

    // An image nobody has brings up a pod that says why it waits, and the
    // rollout keeps the old ones.
    k.run_of(&["patch", "deployment", "web", "--type=json", "-p",
        r#"[{"op":"remove","path":"/spec/template/spec/containers/0/command"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nobody/has:1"}]"#]);
    until("ErrImagePull", || {
        let pods = k.run("get pods -l app=web");
        if pods.contains("ErrImagePull") || pods.contains("ImagePullBackOff") {
            Ok(())
        } else {
            Err(pods)
        }
    });
    processes_are(&["sleep", "36002"], 2);
    k.run("rollout undo deployment web");
    k.run("rollout status deployment web --timeout=60s");
}

#[test]
fn describe_shows_events_in_order_and_logs_flow() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    k.run_of(&[
        "run",
        "talk",
        "--image=host",
        "--restart=Never",
        "--command",
        "--",
        "sh",
        "-c",
        "echo one; echo two; echo three; sleep 36003",
    ]);
    until("a running pod", || {
        let phase = k.run("get pod talk -o jsonpath={.status.phase}");
        if phase == "Running" {
            Ok(())
        } else {
            Err(phase)
        }
    });
    let logs = until("three lines", || {
        let logs = k.run("logs talk");
        if logs.lines().count() == 3 {
            Ok(logs)
        } else {
            Err(logs)
        }
    });
    assert_eq!(logs, "one\ntwo\nthree\n");
    assert_eq!(k.run("logs talk --tail=1"), "three\n");

    let described = until("events", || {
        let text = k.run("describe pod talk");
        if text.contains("Started") {
            Ok(text)
        } else {
            Err(text)
        }
    });
    let places: Vec<usize> = ["Scheduled", "Pulled", "Created", "Started"]
        .iter()
        .map(|reason| {
            described
                .rfind(reason)
                .unwrap_or_else(|| panic!("{reason}: {described}"))
        })
        .collect();
    assert!(places.is_sorted(), "{described}");
    k.run("delete pod talk --grace-period=1");
    processes_are(&["sleep", "36003"], 0);
}

#[test]
fn a_command_that_does_not_exist_hurts_nobody_else() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    k.run("create deployment good --image=host -- sleep 36004");
    k.run_of(&[
        "run",
        "bad",
        "--image=host",
        "--command",
        "--",
        "/no/such/program",
    ]);
    until("a clear reason", || {
        let text = k.run("describe pod bad");
        let says = text.contains("StartError") || text.contains("CrashLoopBackOff");
        if says && text.contains("/no/such/program") && text.contains("Failed") {
            Ok(())
        } else {
            Err(text)
        }
    });
    k.running("app=good", 1);
}
