//! A leader that was frozen and replaced does not know it yet when it wakes:
//! it must not answer a linearizable read out of its memory.

use std::time::Duration;

use futures::future::join_all;

use crate::harness::{alone, until};
use crate::members::Cluster;
use crate::target::{rounds, target};
use faults::client::{Client, runtime};

/// How long one read may wait for its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many reads wait in its sockets when it wakes.
const READS: usize = 32;
/// How many connections they come over.
const CONNECTIONS: usize = 8;

/// What a read was answered.
#[derive(Debug, Default)]
struct Answers {
    newest: usize,
    refused: usize,
    stale: Vec<String>,
}

/// Reads over all connections at once.
async fn read_all(clients: &[Client], newest: &str, serializable: bool) -> Answers {
    let asked = (0..READS).map(|i| clients[i % clients.len()].get("k", serializable, PATIENCE));
    let mut answers = Answers::default();
    for answer in join_all(asked).await {
        match answer {
            Err(_) => answers.refused += 1,
            Ok(Some((value, _))) if value == newest => answers.newest += 1,
            Ok(other) => answers.stale.push(format!("{other:?}, not {newest:?}")),
        }
    }
    answers
}

/// Counts the connections to a member with bytes it has not taken yet
/// (`/proc/net/tcp`: local address, remote address, state, queues).
fn waiting_connections(url: &str) -> usize {
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(1).is_some_and(|local| local.ends_with(&port)))
        .filter(|words| {
            words
                .get(4)
                .is_some_and(|queues| !queues.ends_with(":00000000"))
        })
        .count()
}

#[test]
fn answers_nothing_stale() {
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let (mut newest, mut refused, mut local) = (0, 0, 0);
    let rounds = rounds(3, 20);
    for round in 0..rounds {
        let leader = cluster.leader();
        let clients: Vec<Client> = (0..CONNECTIONS)
            .map(|_| Client::new(&cluster.members[leader].client_url))
            .collect();
        let old = format!("{round} old");
        let write = clients[0].put("k", &old, PATIENCE);
        runtime().block_on(write).unwrap();
        // All connections are made, so that what follows is read at once.
        let warm = runtime().block_on(read_all(&clients, &old, false));
        assert_eq!(warm.newest, READS, "{warm:?}");

        cluster.members[leader].freeze().unwrap();
        let other = &cluster.members[(leader + 1) % 3].client;
        let new = format!("{round} new");
        until("a write without the frozen leader", || {
            let write = other.put("k", &new, PATIENCE);
            runtime().block_on(write).map_err(|e| e.to_string())
        });
        // These wait in the sockets of the frozen one; others are asked right
        // after it woke, and the local ones show that it did not know.
        let waiting = runtime().spawn({
            let (clients, new) = (clients.clone(), new.clone());
            async move { read_all(&clients, &new, false).await }
        });
        let waiting_local = runtime().spawn({
            let (clients, new) = (clients.clone(), new.clone());
            async move { read_all(&clients, &new, true).await }
        });
        until(
            "the reads to wait in its sockets",
            || match waiting_connections(&cluster.members[leader].client_url) {
                CONNECTIONS.. => Ok(()),
                fewer => Err(fewer.to_string()),
            },
        );
        cluster.members[leader].thaw().unwrap();
        let after = runtime().block_on(read_all(&clients, &new, false));
        for answers in [after, runtime().block_on(waiting).unwrap()] {
            assert!(
                answers.stale.is_empty(),
                "stale at m{leader}: {:?}",
                answers.stale
            );
            newest += answers.newest;
            refused += answers.refused;
        }
        local += runtime().block_on(waiting_local).unwrap().stale.len();
        cluster.await_healthy();
    }
    eprintln!(
        "an ex-leader woke {rounds} times: {newest} linearizable reads answered with the newest \
         value, {refused} refused, none stale; of its local reads {local} were"
    );
}
