//! What a Kubernetes API server asks of its store: seven in ten are renewals of
//! Leases, two are updates of status, the rest are lists; and it watches it all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use bytes::Bytes;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use tonic::transport::Channel;

use super::kv::{Case, PREFIX, guarded, succeed};
use super::watch::Watch;
use crate::drive::{Client, Plan, closed_loop, connections};
use crate::target::Target;

/// Bytes of a Lease object, and of a Pod.
const LEASE_BYTES: usize = 400;
const POD_BYTES: usize = 3_000;

/// Watches of everything: a store sees one for each resource of each API server.
const WATCHES: usize = 10;

pub(super) fn kubernetes(
    target: &Target,
    plan: Plan,
    (count, connected): (usize, usize),
) -> Case<'_> {
    Box::pin(async move {
        let channels = connections(target, connected).await?;
        let watching: Vec<_> = (channels.iter().cycle().take(WATCHES))
            .map(|channel| tokio::spawn(watch_all(channel.clone())))
            .collect();
        let numbered = (0_u64..).zip(channels.iter().cycle()).take(count);
        let clients = numbered.map(|(nth, channel)| client(nth, channel));
        let measured = closed_loop(target, plan, clients.collect()).await;
        watching.iter().for_each(tokio::task::JoinHandle::abort);
        measured
    })
}

async fn watch_all(channel: Channel) -> anyhow::Result<()> {
    let create = pb::WatchCreateRequest {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        prev_kv: true,
        ..pb::WatchCreateRequest::default()
    };
    let mut watch = Watch::open(channel, create, 1).await?;
    while watch.replies.message().await?.is_some() {}
    Ok(())
}

/// An object of one client: its key, its size, and its last revision.
struct Object {
    key: Bytes,
    value: Bytes,
    revision: AtomicU64,
}

impl Object {
    fn new(key: String, len: usize) -> Arc<Self> {
        Arc::new(Self {
            key: key.into(),
            value: vec![b'o'; len].into(),
            revision: AtomicU64::new(0),
        })
    }

    async fn update(&self, client: &mut KvClient<Channel>) -> anyhow::Result<()> {
        let put = pb::PutRequest {
            key: self.key.clone(),
            value: self.value.clone(),
            ..pb::PutRequest::default()
        };
        let known = i64::try_from(self.revision.load(Ordering::Relaxed))?;
        let new = if known == 0 {
            let reply = client.put(put).await?.into_inner();
            reply.header.context("an answer without a header")?.revision
        } else {
            let put = pb::request_op::Request::RequestPut(put);
            succeed(client, guarded(&self.key, known, put)).await?
        };
        self.revision.store(u64::try_from(new)?, Ordering::Relaxed);
        Ok(())
    }
}

fn client(nth: u64, channel: &Channel) -> Client {
    let kv = KvClient::new(channel.clone()).max_decoding_message_size(64 << 20);
    let lease = Object::new(format!("/registry/leases/{nth:08}"), LEASE_BYTES);
    let pod = Object::new(format!("/registry/pods/mix/{nth:08}"), POD_BYTES);
    let mut turn = nth;
    Box::new(move || {
        turn += 1;
        let (mut kv, lease, pod) = (kv.clone(), Arc::clone(&lease), Arc::clone(&pod));
        let what = turn % 10;
        Box::pin(async move {
            match what {
                0..7 => lease.update(&mut kv).await?,
                7..9 => pod.update(&mut kv).await?,
                _ => {
                    let page = pb::RangeRequest {
                        key: PREFIX.into(),
                        range_end: PREFIX.replace("default/", "default0").into(),
                        limit: 500,
                        ..pb::RangeRequest::default()
                    };
                    kv.range(page).await?;
                }
            }
            Ok(1)
        })
    })
}
