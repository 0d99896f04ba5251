//! SIGKILL under load, and everything is still there.

use std::collections::BTreeMap;

use crate::harness::{Cluster, alone, need, processes, until};

fn uids(k: &crate::harness::Kubectl) -> BTreeMap<String, String> {
    let line = "get deployments,replicasets,configmaps,pods -A -o jsonpath={range.items[*]}{.kind}/{.metadata.name}={.metadata.uid}{\"\\n\"}{end}";
    let args: Vec<String> = line.splitn(6, ' ').map(str::to_owned).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    k.run_of(&args)
        .lines()
        .filter_map(|l| l.split_once('='))
        .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
        .collect()
}

#[test]
fn a_killed_cluster_comes_back_as_it_was() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let mut cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=host --replicas=5 -- sleep 36020");
    k.run("rollout status deployment web --timeout=60s");
    let before_pods = k.running("app=web", 5);
    let before_pids = processes(&["sleep", "36020"]);
    assert_eq!(before_pids.len(), 5);

    // Writers whose every acknowledged write is remembered, up to the kill.
    let pid = cluster.program.pid();
    let acknowledged = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|w| {
                let k = cluster.client();
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for n in 0.. {
                        let name = format!("load-{w}-{n}");
                        let out =
                            k.output(&format!("create configmap {name} --from-literal=n={n}"));
                        if !out.status.success() {
                            return done;
                        }
                        done.push(name);
                    }
                    done
                })
            })
            .collect();
        let k = cluster.client();
        until("some load", || {
            let out = k.output("get configmap load-0-3 load-1-3 load-2-3 load-3-3 -o name");
            if out.status.success() {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        });
        crate::harness::signal(pid, "KILL");
        writers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect::<Vec<_>>()
    });
    cluster.program.kill();
    assert!(acknowledged.len() >= 16);

    cluster.restart();
    let k = cluster.client();
    let after = uids(&k);
    for name in &acknowledged {
        assert!(
            after.contains_key(&format!("ConfigMap/{name}")),
            "lost {name}"
        );
    }
    assert_eq!(k.running("app=web", 5), before_pods);
    assert_eq!(
        processes(&["sleep", "36020"]),
        before_pids,
        "processes were kept, none added"
    );
}

#[test]
fn uids_and_versions_survive_and_nothing_strays() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let mut cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=host --replicas=2 -- sleep 36021");
    k.run("rollout status deployment web --timeout=60s");
    k.running("app=web", 2);
    let before = uids(&k);
    let version = |k: &crate::harness::Kubectl| -> u64 {
        let list = k.run("get --raw /api/v1/namespaces?limit=1");
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    let version_before = version(&k);
    cluster.program.kill();

    // While it is dead one process dies; the kubelet must notice on return.
    let pids = processes(&["sleep", "36021"]);
    crate::harness::signal(pids[0], "KILL");
    cluster.restart();
    let k = cluster.client();
    assert!(version(&k) >= version_before);
    let after = uids(&k);
    for (name, uid) in &before {
        assert_eq!(after.get(name), Some(uid), "{name}");
    }
    until("the dead one's restart", || {
        let pids = processes(&["sleep", "36021"]);
        let counts =
            k.run("get pods -o jsonpath={.items[*].status.containerStatuses[0].restartCount}");
        let mut counts: Vec<&str> = counts.split_whitespace().collect();
        counts.sort_unstable();
        if pids.len() == 2 && counts == ["0", "1"] {
            Ok(())
        } else {
            Err(format!("{pids:?} {counts:?}"))
        }
    });
    cluster.program.terminate();
    assert_eq!(
        processes(&["sleep", "36021"]),
        Vec::<u32>::new(),
        "a graceful end ends the pods"
    );
    cluster.restart();
    cluster.client().running("app=web", 2);
}

#[test]
fn a_second_signal_does_not_wait_for_the_stubborn() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let mut cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let stubborn = "trap '' TERM; while :; do sleep 36022; done";
    k.run_of(&[
        "run",
        "stubborn",
        "--image=host",
        "--command",
        "--",
        "sh",
        "-c",
        stubborn,
    ]);
    until("the stubborn one", || {
        let phase = k.run("get pod stubborn -o jsonpath={.status.phase}");
        if phase == "Running" {
            Ok(())
        } else {
            Err(phase)
        }
    });
    let pid = cluster.program.pid();
    let asked = std::time::Instant::now();
    crate::harness::signal(pid, "INT");
    cluster.program.line("stopping the pods");
    crate::harness::signal(pid, "INT");
    assert!(cluster.program.wait().success());
    // The pod's own grace is 30 s.
    assert!(asked.elapsed() < std::time::Duration::from_secs(25));
    assert_eq!(processes(&["sleep", "36022"]), Vec::<u32>::new());
    cluster.restart();
}
