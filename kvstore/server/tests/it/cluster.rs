//! Three members in one process: what one takes, all have; what one loses, another
//! gives back.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::StreamExt as _;
use kvserver::{Config, Handle, Running, Server};
use mvcc::watch::WatchCreate;
use tempfile::TempDir;

use crate::store::DEADLINE;

/// Members of one cluster; one that is down is `None`.
struct Cluster {
    running: BTreeMap<String, Option<Running>>,
    configs: BTreeMap<String, Config>,
    _dir: TempDir,
}

/// A port that nobody listens on. Members must know each other's before they start.
fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

impl Cluster {
    async fn start(change: impl Fn(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c"].map(str::to_owned);
        let urls: BTreeMap<_, _> = names
            .iter()
            .map(|name| (name.clone(), vec![free_url()]))
            .collect();
        let mut configs = BTreeMap::new();
        for name in &names {
            let mut config = Config::new(dir.path().join(name));
            config.name.clone_from(name);
            config.initial_cluster.clone_from(&urls);
            config.initial_advertise_peer_urls.clone_from(&urls[name]);
            config.listen_peer_urls.clone_from(&urls[name]);
            config.wal_segment_bytes = 256 << 10;
            config.heartbeat_interval = Duration::from_millis(50);
            config.election_timeout = Duration::from_millis(500);
            change(&mut config);
            configs.insert(name.clone(), config);
        }
        let starting = configs.values().map(|config| Server::start(config.clone()));
        let started = futures::future::join_all(starting).await;
        let running = names
            .into_iter()
            .zip(started)
            .map(|(name, started)| (name, Some(started.unwrap())))
            .collect();
        Self {
            running,
            configs,
            _dir: dir,
        }
    }

    fn handle(&self, name: &str) -> &Handle {
        &self.running[name].as_ref().unwrap().handle
    }

    fn up(&self) -> impl Iterator<Item = (&String, &Handle)> {
        let members = self.running.iter();
        members.filter_map(|(name, running)| Some((name, &running.as_ref()?.handle)))
    }

    /// Returns the name of whoever leads.
    async fn leader(&self) -> String {
        until("somebody leads", || {
            let found = self.up().find(|(_, handle)| {
                let status = handle.status().unwrap();
                status.leader == handle.ids().0
            });
            found.map(|(name, _)| name.clone())
        })
        .await
    }

    async fn follower(&self) -> String {
        let leader = self.leader().await;
        let mut names = self.up().map(|(name, _)| name.clone());
        names.find(|name| *name != leader).unwrap()
    }

    /// Takes a member's power away.
    fn kill(&mut self, name: &str) {
        drop(self.running.get_mut(name).unwrap().take());
    }

    async fn restart(&mut self, name: &str) {
        let started = Server::start(self.configs[name].clone()).await.unwrap();
        self.running.insert(name.to_owned(), Some(started));
    }

    /// Waits until all that are up have applied the same, and hash alike.
    async fn agree(&self) {
        let handles: Vec<_> = self.up().map(|(_, handle)| handle.clone()).collect();
        until("all have applied the same", || {
            let applied = handles.iter().map(|handle| handle.status().unwrap());
            let applied: BTreeSet<_> = applied
                .map(|status| (status.raft_applied_index, status.revision))
                .collect();
            (applied.len() == 1).then_some(())
        })
        .await;
        let mut hashes = BTreeSet::new();
        for handle in &handles {
            hashes.insert(handle.hash_kv(0).await.unwrap().hash);
        }
        assert_eq!(hashes.len(), 1, "members hash differently");
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "it never happened that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn put(handle: &Handle, key: &str, value: &str) -> i64 {
    let request = mvcc::PutRequest {
        key: bytes(key),
        value: bytes(value),
        ..mvcc::PutRequest::default()
    };
    handle.put(request).await.unwrap().revision
}

async fn get(handle: &Handle, key: &str) -> Option<Bytes> {
    let request = mvcc::RangeRequest {
        key: bytes(key),
        ..mvcc::RangeRequest::default()
    };
    let reply = handle.range(request).await.unwrap();
    reply.kvs.first().map(|kv| kv.value.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_takes_all_have() {
    let cluster = Cluster::start(|_| {}).await;
    let names = ["a", "b", "c"];
    for (at, name) in names.iter().enumerate() {
        let value = format!("by {name}");
        let revision = put(cluster.handle(name), "key", &value).await;
        assert_eq!(revision, 2 + i64::try_from(at).unwrap());
        for reader in names {
            // Linearizable, so without any waiting here.
            assert_eq!(
                get(cluster.handle(reader), "key").await,
                Some(bytes(&value))
            );
        }
    }
    cluster.agree().await;
    let clusters: BTreeSet<u64> = cluster.up().map(|(_, handle)| handle.ids().1).collect();
    assert_eq!(clusters.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_kept_by_whoever_is_asked() {
    let cluster = Cluster::start(|_| {}).await;
    let follower = cluster.follower().await;
    let handle = cluster.handle(&follower);
    let granted = handle
        .lease_grant(mvcc::LeaseGrantRequest { id: 7, ttl: 60 })
        .await
        .unwrap();
    assert_eq!(granted.ttl, 60);
    assert_eq!(handle.lease_keepalive(7).await.unwrap(), 60);
    assert_eq!(handle.lease_keepalive(8).await.unwrap(), 0, "there is none");
    let left = handle.lease_time_to_live(7, true).await.unwrap();
    assert!((58..=60).contains(&left.ttl), "{left:?}");
    assert_eq!(handle.lease_time_to_live(8, false).await.unwrap().ttl, -1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_costs_no_write() {
    let mut cluster = Cluster::start(|_| {}).await;
    for round in 0..3 {
        let leader = cluster.leader().await;
        let follower = cluster.follower().await;
        let handle = cluster.handle(&follower).clone();
        let key = format!("round {round}");
        put(&handle, &key, "before").await;
        let writer = tokio::spawn({
            let (handle, key) = (handle.clone(), key.clone());
            async move {
                let mut last = 0;
                for at in 0..200 {
                    let revision = put(&handle, &key, &format!("{at}")).await;
                    assert!(revision > last, "revisions ascend");
                    last = revision;
                }
            }
        });
        until("some are written", || {
            let status = handle.status().unwrap();
            (status.revision > 20).then_some(())
        })
        .await;
        cluster.kill(&leader);
        writer.await.unwrap();
        assert_eq!(get(&handle, &key).await, Some(bytes("199")));
        cluster.restart(&leader).await;
        cluster.agree().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over_before_the_end() {
    let mut cluster = Cluster::start(|config| {
        // An election would take so long that nobody could miss it.
        config.election_timeout = Duration::from_secs(5);
        config.heartbeat_interval = Duration::from_millis(100);
    })
    .await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    put(cluster.handle(&follower), "key", "value").await;
    let leaving = cluster.running.get_mut(&leader).unwrap().take().unwrap();
    let begun = Instant::now();
    let handle = cluster.handle(&follower).clone();
    let ((), ()) = tokio::join!(leaving.shutdown(), async {
        for at in 0..50 {
            put(&handle, "key", &format!("{at}")).await;
        }
    });
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    assert_ne!(cluster.leader().await, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_missed_too_much_is_sent_a_snapshot() {
    let mut cluster = Cluster::start(|config| {
        config.catch_up_entries = 10;
        config.write_behind.interval = Duration::from_millis(10);
    })
    .await;
    let follower = cluster.follower().await;
    let leader = cluster.leader().await;
    put(cluster.handle(&leader), "first", "value").await;
    cluster.agree().await;
    cluster.kill(&follower);
    let handle = cluster.handle(&leader).clone();
    for at in 0..300 {
        put(&handle, &format!("key {at}"), "value").await;
    }
    let compact = mvcc::CompactRequest {
        revision: 150,
        physical: true,
    };
    handle.compact(compact).await.unwrap();
    handle
        .lease_grant(mvcc::LeaseGrantRequest { id: 9, ttl: 100 })
        .await
        .unwrap();
    cluster.restart(&follower).await;
    cluster.agree().await;
    let behind = cluster.handle(&follower).clone();
    assert_eq!(get(&behind, "key 299").await, Some(bytes("value")));
    assert_eq!(behind.leases().unwrap(), [9]);
    let rows = std::fs::read_to_string(cluster.configs[&follower].data_dir.join("ROWS")).unwrap();
    assert!(rows.contains(" db-1 "), "it came by snapshot: {rows}");
    // And it goes on from there, whatever happens to it.
    put(&behind, "after", "1").await;
    cluster.kill(&follower);
    cluster.restart(&follower).await;
    put(cluster.handle(&follower), "after", "2").await;
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_go_on_over_a_change_of_leader() {
    let mut cluster = Cluster::start(|_| {}).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let handle = cluster.handle(&follower).clone();
    let mut watch = handle.watch(WatchCreate {
        key: bytes("key"),
        start_revision: 1,
        ..WatchCreate::default()
    });
    let writer = tokio::spawn({
        let handle = handle.clone();
        async move {
            for at in 0..100 {
                put(&handle, "key", &format!("{at}")).await;
            }
        }
    });
    let mut seen = 0;
    let mut killed = false;
    while seen < 100 {
        let reply = tokio::time::timeout(DEADLINE, watch.next()).await;
        let reply = reply.expect("events come").unwrap();
        for event in &reply.events {
            assert_eq!(
                event.kv.value,
                bytes(&seen.to_string()),
                "in order, each once"
            );
            seen += 1;
        }
        if seen > 30 && !killed {
            killed = true;
            cluster.kill(&leader);
        }
    }
    writer.await.unwrap();
}
