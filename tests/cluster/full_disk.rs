//! The disk of one member fills up: the others go on, and it comes back when
//! there is room again. Where nobody could go on, writes are refused before.

use std::time::Duration;

use crate::harness::{alone, until};
use crate::load::{Load, Shape};
use crate::members::Cluster;
use crate::target::{here, target};
use faults::SmallDisk;
use faults::client::runtime;

/// Values big enough to fill what was set aside.
const WRITERS: Shape = Shape {
    writers: 20,
    rest: Duration::from_millis(50),
    padding: 32 << 10,
};

#[test]
fn stops_one_member_only() {
    let target = target!();
    let _alone = alone();
    let Some(disk) = here(SmallDisk::mount()) else {
        return;
    };
    let mut cluster = Cluster::planned(target);
    let small = (0..3).map(|_| cluster.plan()).last().unwrap();
    cluster.members[small].data = disk.path().join("data");
    cluster.start_all();
    let load = Load::start(&cluster, WRITERS);
    let filled = disk.fill().unwrap();
    eprintln!("filled with {} MiB of nothing", filled >> 20);
    let ended = until("the member to run out of room", || {
        match cluster.members[small].ended() {
            Some(status) => Ok(status),
            None => Err(format!("{} writes later", load.acknowledged())),
        }
    });
    let log = cluster.members[small].log();
    let said = log
        .lines()
        .rev()
        .find(|l| l.to_lowercase().contains("no space left"));
    assert!(said.is_some(), "it did not say why it ended ({ended})");
    eprintln!(
        "the full member ended ({ended}): {}",
        said.unwrap_or_default()
    );
    if cluster.target.ours {
        assert!(!log.contains("panicked"), "not a clean end");
    }
    load.write_more(WRITERS.writers * 10);
    let alarms = runtime()
        .block_on(cluster.members[0].client.alarms())
        .unwrap();
    assert!(alarms.is_empty(), "the cluster is not full: {alarms:?}");

    // As long as there is no room it does not come back.
    disk.free().unwrap();
    cluster.restart(small);
    cluster.await_healthy();
    load.write_more(WRITERS.writers * 10);
    eprintln!("{}", load.finish().check(&cluster));
}

#[test]
fn closes_the_store_before_nobody_could_go_on() {
    let target = target!();
    if !target.ours {
        eprintln!("cannot run: etcd does not watch its disk");
        return;
    }
    let _alone = alone();
    let Some(disk) = here(SmallDisk::mount()) else {
        return;
    };
    let mut cluster = Cluster::planned(target);
    let only = cluster.plan();
    cluster.members[only].data = disk.path().join("data");
    cluster.start_all();
    let client = cluster.members[only].client.clone();
    let patience = Duration::from_secs(2);
    let put = |key: &str| runtime().block_on(client.put(key, "value", patience));
    put("before").unwrap();

    disk.fill_but(16 << 20).unwrap();
    let refused = until("writes to be refused", || match put("meanwhile") {
        Ok(revision) => Err(format!("it was put at {revision}")),
        Err(refused) => Ok(refused),
    });
    assert_eq!(
        (refused.code(), refused.message()),
        (
            tonic::Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded"
        )
    );
    let read = runtime().block_on(client.get("before", false, patience));
    assert!(read.unwrap().is_some(), "reads go on");
    let deleted = cluster.etcdctl(&[only], "del before").unwrap();
    assert_eq!(deleted.trim(), "1", "what gives room back goes on");
    // While there is no room, the alarm is soon back.
    cluster.etcdctl(&[only], "alarm disarm").unwrap();
    until("the alarm to be raised again", || {
        match cluster.etcdctl(&[only], "alarm list") {
            Ok(list) if list.contains("NOSPACE") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });

    disk.free().unwrap();
    until("the store to be open again", || {
        cluster.etcdctl(&[only], "alarm disarm")?;
        put("after").map_err(|refused| refused.to_string())
    });
    assert!(cluster.members[only].ended().is_none());
}
