//! Memory while others do not keep up: a disk that stands still, watchers that do
//! not read. Requests are refused, events are read again later; nothing piles up.

use std::fs;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::join_all;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::watch_client::WatchClient;
use tonic::transport::Endpoint;
use tonic::{Code, Streaming};

use crate::harness::alone;
use crate::members::Cluster;
use crate::target::{here, target};
use faults::SmallDisk;
use faults::client::{Client, runtime};

/// Megabytes a member may grow by: what may wait for the disk and on its way there
/// (limits of 128, 64 and 64 MiB), and what an allocator makes of it.
const GROWTH_MAX_MB: u64 = 512;

/// Returns the megabytes of memory a process has.
fn memory_mb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kb = line.split_whitespace().nth(1).unwrap();
    kb.parse::<u64>().unwrap() / 1024
}

/// Puts a large value with many clients at once, again and again; returns the codes
/// and messages of those that were refused.
fn flood(client: &Client, span: Duration) -> Vec<(Code, String)> {
    const CLIENTS: usize = 1_000;
    let value = "x".repeat(300 << 10);
    let end = Instant::now() + span;
    let writer = async |number: usize| {
        let mut refused = Vec::new();
        while Instant::now() < end {
            let key = format!("flood/{number}");
            let told = client.put(&key, &value, Duration::from_secs(2)).await;
            refused.extend(told.err().map(|s| (s.code(), s.message().to_owned())));
        }
        refused
    };
    let all = join_all((0..CLIENTS).map(writer));
    runtime().block_on(all).into_iter().flatten().collect()
}

#[test]
fn a_disk_that_stands_still_refuses_requests_first() {
    let target = target!();
    if !target.ours {
        eprintln!("cannot run: etcd counts its proposals only, not their bytes");
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
    let patience = Duration::from_secs(10);
    let put = |key: &str| runtime().block_on(client.put(key, "value", patience));
    put("before").unwrap();
    let pid = cluster.members[only].process().unwrap().pid();
    let before = memory_mb(pid);

    let frozen = disk.freeze().unwrap();
    let refused = flood(&client, Duration::from_secs(8));
    let grown = memory_mb(pid).saturating_sub(before);
    drop(frozen);
    let too_many = refused
        .iter()
        .filter(|(code, told)| {
            (*code, told.as_str()) == (Code::ResourceExhausted, "etcdserver: too many requests")
        })
        .count();
    eprintln!(
        "{too_many} of {} refused as too many, {grown} MB more",
        refused.len()
    );
    assert!(too_many > 0, "{:?}", refused.first());
    assert!(grown < GROWTH_MAX_MB, "{grown} MB more than {before}");
    put("after").unwrap();
}

/// Watches a prefix from now on over a connection of its own.
async fn watch(url: &str, prefix: &str) -> Streaming<pb::WatchResponse> {
    let channel = Endpoint::from_shared(url.to_owned()).unwrap();
    let channel = channel.connect().await.unwrap();
    let mut range_end = prefix.as_bytes().to_vec();
    *range_end.last_mut().unwrap() += 1;
    let create = pb::WatchCreateRequest {
        key: prefix.to_owned().into(),
        range_end: range_end.into(),
        ..pb::WatchCreateRequest::default()
    };
    let request = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let replies = WatchClient::new(channel).watch(requests).await;
    let mut replies = replies.unwrap().into_inner();
    assert!(replies.message().await.unwrap().unwrap().created);
    replies
}

#[test]
fn watchers_that_do_not_read_hold_nothing() {
    const WATCHERS: usize = 100;
    const EVENTS: usize = 1_500;
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 1, &[]);
    let client = cluster.members[0].client.clone();
    let url = cluster.members[0].client_url.clone();
    let mut watchers = runtime().block_on(join_all((0..WATCHERS).map(|_| watch(&url, "slow/"))));
    let pid = cluster.members[0].process().unwrap().pid();
    let before = memory_mb(pid);

    let value = "x".repeat(64 << 10);
    for number in 0..EVENTS {
        let key = format!("slow/{}", number % 100);
        let put = client.put(&key, &value, Duration::from_secs(10));
        runtime().block_on(put).unwrap();
    }
    let grown = memory_mb(pid).saturating_sub(before);
    eprintln!("{EVENTS} events of 64 KiB, {WATCHERS} watchers: {grown} MB more");
    assert!(grown < GROWTH_MAX_MB, "{grown} MB more than {before}");

    // And whoever reads at last gets every one, in order.
    let mut versions = vec![0; 100];
    let replies = &mut watchers[WATCHERS / 2];
    let mut seen = 0;
    while seen < EVENTS {
        let reply = runtime().block_on(replies.message()).unwrap().unwrap();
        assert!(!reply.canceled, "{}", reply.cancel_reason);
        for event in reply.events {
            let kv = event.kv.unwrap();
            let version = &mut versions[seen % 100];
            assert_eq!(kv.key, format!("slow/{}", seen % 100).into_bytes());
            *version += 1;
            assert_eq!(kv.version, *version);
            seen += 1;
        }
    }
}
