//! Members come, are promoted, go and are replaced, with etcdctl and under load.

use std::net::TcpStream;

use crate::harness::{alone, need, until};
use crate::http::{http_get, metric};
use crate::load::{Load, Shape};
use crate::members::{Cluster, id};
use crate::target::target;

const WRITERS: Shape = Shape {
    writers: 40,
    rest: std::time::Duration::from_millis(100),
    padding: 0,
};

/// What etcd says of a learner that is behind, and to who asks twice.
const NOT_IN_SYNC: &str = "can only promote a learner member which is in sync with leader";
const NOT_A_LEARNER: &str = "can only promote a learner member";
const NOT_FOUND: &str = "member not found";
const TOO_FEW_STARTED: &str = "re-configuration failed due to not enough started members";
const UNHEALTHY: &str = "etcdserver: unhealthy cluster";

/// A member that etcdctl added: its id, and what it must be started with.
struct Added {
    at: usize,
    id: u64,
    initial_cluster: String,
}

/// Adds a member with etcdctl, as an operator would; does not start it.
fn add(cluster: &mut Cluster, asked: &[usize], learner: &str) -> Added {
    let at = cluster.plan();
    let (name, peer) = {
        let member = &cluster.members[at];
        (member.name.clone(), member.peer_url.clone())
    };
    let line = format!("member add {name} --peer-urls={peer} {learner}");
    // Refused while the members have not known each other for long.
    let said = until("the member to be added", || cluster.etcdctl(asked, &line));
    // Member 1f added to cluster 2a
    let id = said.split_whitespace().nth(1).unwrap();
    let start = said.find("ETCD_INITIAL_CLUSTER=\"").unwrap();
    let initial_cluster = said[start..].split('"').nth(1).unwrap().to_owned();
    Added {
        at,
        id: u64::from_str_radix(id, 16).unwrap(),
        initial_cluster,
    }
}

/// Starts a member that was added.
fn join(cluster: &mut Cluster, added: &Added) {
    let flags = [
        "--initial-cluster-state=existing",
        "--initial-cluster",
        &added.initial_cluster,
    ];
    cluster.spawn(added.at, &flags);
}

fn promote(cluster: &Cluster, asked: &[usize], id: u64) -> Result<String, String> {
    cluster.etcdctl(asked, &format!("member promote {id:x}"))
}

/// Adds a learner, starts it, and promotes it once it has caught up.
fn grow(cluster: &mut Cluster, asked: &[usize]) -> usize {
    let added = add(cluster, asked, "--learner");
    join(cluster, &added);
    until("the learner to be promoted", || {
        promote(cluster, asked, added.id)
    });
    until("the promoted member to be healthy", || {
        cluster.etcdctl(&[added.at], "endpoint health")
    });
    added.at
}

/// Removes a member, whose process ends by itself if it runs.
fn remove(cluster: &mut Cluster, asked: &[usize], at: usize, id: u64) {
    until("the member to be removed", || {
        match cluster.etcdctl(asked, &format!("member remove {id:x}")) {
            // The first try did it and its answer was lost.
            Err(said) if said.contains(NOT_FOUND) => Ok(String::new()),
            told => told,
        }
    });
    if cluster.members[at].is_up() {
        cluster.members[at].wait().unwrap();
    }
}

/// Waits until all members that run list the same members.
fn assert_members(cluster: &Cluster, count: usize) {
    for at in (0..cluster.members.len()).filter(|&i| cluster.members[i].is_up()) {
        until("the member list", || {
            let list = cluster.etcdctl(&[at], "member list")?;
            let started = list.lines().filter(|l| l.contains(", started, ")).count();
            let voters = list.lines().filter(|l| l.ends_with(", false")).count();
            if (list.lines().count(), started, voters) == (count, count, count) {
                Ok(())
            } else {
                Err(format!("member {at}: {list}"))
            }
        });
    }
}

fn id_of(cluster: &Cluster, at: usize) -> u64 {
    until("the member's id", || {
        let statuses = cluster.statuses();
        statuses.get(&at).map(id).ok_or_else(|| "silent".to_owned())
    })
}

#[test]
fn grows_replaces_and_shrinks() {
    let (target, _etcdctl) = (target!(), need!("etcdctl"));
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let load = Load::start(&cluster, WRITERS);

    // A learner that was never started cannot be in sync, whoever is asked.
    let first = add(&mut cluster, &[0, 1, 2], "--learner");
    for asked in 0..3 {
        let refused = promote(&cluster, &[asked], first.id).unwrap_err();
        assert!(refused.contains(NOT_IN_SYNC), "{refused}");
    }
    let list = cluster.etcdctl(&[0], "member list").unwrap();
    let unstarted = format!(
        "{:x}, unstarted, , {}, , true",
        first.id, cluster.members[3].peer_url
    );
    assert!(list.contains(&unstarted), "{list}");
    join(&mut cluster, &first);
    until("the learner to be promoted", || {
        promote(&cluster, &[0, 1, 2], first.id)
    });
    let refused = promote(&cluster, &[0], first.id).unwrap_err();
    assert!(refused.contains(NOT_A_LEARNER), "{refused}");
    let refused = promote(&cluster, &[0], 0xdead).unwrap_err();
    assert!(refused.contains(NOT_FOUND), "{refused}");
    cluster.await_healthy();
    load.write_more(WRITERS.writers);

    // Five.
    let fifth = grow(&mut cluster, &[0, 1, 2, 3]);
    assert_members(&cluster, 5);
    load.follow(&cluster);
    load.write_more(WRITERS.writers);
    eprintln!("grown to five; the leader is m{}", cluster.leader());

    // One dies for good and is replaced.
    let dead = (0..3).find(|&at| at != cluster.leader()).unwrap();
    let dead_id = id_of(&cluster, dead);
    cluster.members[dead].kill();
    let living: Vec<usize> = (0..5).filter(|&at| at != dead).collect();
    remove(&mut cluster, &living, dead, dead_id);
    let sixth = grow(&mut cluster, &living);
    assert_members(&cluster, 5);
    load.follow(&cluster);
    load.write_more(WRITERS.writers);
    eprintln!("m{dead} replaced by m{sixth}");

    // Back to three: one of them the leader.
    for _ in 0..2 {
        let leader = cluster.leader();
        let others: Vec<usize> = (0..cluster.members.len())
            .filter(|&at| at != leader && cluster.members[at].is_up())
            .collect();
        let leader_id = id_of(&cluster, leader);
        remove(&mut cluster, &others, leader, leader_id);
        load.write_more(WRITERS.writers);
        eprintln!(
            "removed the leader m{leader}; now m{} leads",
            cluster.leader()
        );
    }
    assert_members(&cluster, 3);
    assert!(cluster.members[fifth].is_up() || cluster.members[sixth].is_up());
    eprintln!("{}", load.finish().check(&cluster));
}

/// What could leave no quorum is refused, in etcd's words.
#[test]
fn refuses_what_would_leave_no_quorum() {
    let (target, _etcdctl) = (target!(), need!("etcdctl"));
    let _alone = alone();
    let mut cluster = Cluster::start(target, 1, &[]);
    let second = add(&mut cluster, &[0], "");
    let third = cluster.plan();
    let peer = &cluster.members[third].peer_url;
    let add_third = format!("member add third --peer-urls={peer}");
    let refused = cluster.etcdctl(&[0], &add_third).unwrap_err();
    assert!(refused.contains(TOO_FEW_STARTED), "{refused}");
    join(&mut cluster, &second);
    until("two voters", || {
        cluster.etcdctl(&[second.at], "endpoint health")
    });
    assert_members(&cluster, 2);
    // One of two is gone: nobody can be added, nor the last one removed.
    cluster.members[second.at].kill();
    let remove_first = format!("member remove {:x}", id_of(&cluster, 0));
    for refused in [add_third, remove_first] {
        until("a refusal", || match cluster.etcdctl(&[0], &refused) {
            Err(said) if said.contains(UNHEALTHY) => Ok(()),
            other => Err(format!("{refused}: {other:?}")),
        });
    }
    // It comes back and knows nothing of all that.
    cluster.restart(second.at);
    cluster.await_healthy();
    assert_members(&cluster, 2);
}

/// Whoever hears that a member is removed may switch it off at once.
#[test]
fn one_of_two_leaves_whoever_leads() {
    let (target, _etcdctl) = (target!(), need!("etcdctl"));
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    for lead in [false, true] {
        let leader = cluster.leader();
        let up: Vec<usize> = (0..3).filter(|&at| cluster.members[at].is_up()).collect();
        let leaves = up
            .iter()
            .copied()
            .find(|&at| (at == leader) == lead)
            .unwrap();
        let asked: Vec<usize> = up.into_iter().filter(|&at| at != leaves).collect();
        let leaves_id = id_of(&cluster, leaves);
        until("the member to be removed", || {
            cluster.etcdctl(&asked, &format!("member remove {leaves_id:x}"))
        });
        cluster.members[leaves].kill();
        until("the rest to go on", || {
            cluster.etcdctl(&asked, "put still here")
        });
    }
    let left = cluster.leader();
    assert_members(&cluster, 1);

    // A learner is well, and no place for clients.
    let added = add(&mut cluster, &[left], "--learner");
    join(&mut cluster, &added);
    let url = cluster.members[added.at].client_url.clone();
    until("the learner to be well", || {
        TcpStream::connect(url.trim_start_matches("http://")).map_err(|e| e.to_string())?;
        let health = http_get(&url, "/health");
        match health.contains(r#""health":"true""#) {
            true => Ok(()),
            false => Err(health),
        }
    });
    if cluster.target.ours {
        let ready = http_get(&url, "/readyz/non_learner");
        assert!(ready.contains(" 503 "), "{ready}");
        assert!(
            metric(
                &cluster.members[added.at].client_url,
                "etcd_server_is_learner "
            ) > 0.0
        );
    }
}
