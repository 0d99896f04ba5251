//! Puts, reads and the transactions of an API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use tonic::transport::Channel;

use crate::drive::{Client, Measured, Plan, closed_loop, connections};
use crate::target::Target;

/// Keys there are from the start.
pub(crate) const KEYS: u64 = 10_000;

/// Bytes of their values.
const VALUE_BYTES: usize = 300;

/// Puts of one transaction (etcd's limit is 128).
const FILL_OPS: u64 = 100;

/// Where the keys are.
pub(super) const PREFIX: &str = "/registry/pods/default/";

/// What a case starts from.
pub(crate) type Case<'a> = BoxFuture<'a, anyhow::Result<Measured>>;

fn key(nth: u64) -> Bytes {
    format!("{PREFIX}{nth:08}").into()
}

fn value(len: usize) -> Bytes {
    vec![b'v'; len].into()
}

fn put(key: Bytes, value: &Bytes) -> pb::PutRequest {
    pb::PutRequest {
        key,
        value: value.clone(),
        ..pb::PutRequest::default()
    }
}

/// Spreads numbers over the keys, the same way in each run.
fn scattered(nth: u64) -> u64 {
    nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Writes keys, many in a transaction.
pub(crate) async fn fill(target: &Target, keys: u64) -> anyhow::Result<()> {
    const WIDTH: u64 = 8;
    let channel = target.connect().await?;
    let value = value(VALUE_BYTES);
    let lanes = (0..WIDTH).map(|lane| {
        let (mut client, value) = (KvClient::new(channel.clone()), value.clone());
        async move {
            for txn in (lane..keys / FILL_OPS).step_by(WIDTH as usize) {
                let ops = (txn * FILL_OPS..(txn + 1) * FILL_OPS).map(|nth| pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestPut(put(key(nth), &value))),
                });
                let request = pb::TxnRequest {
                    success: ops.collect(),
                    ..pb::TxnRequest::default()
                };
                client.txn(request).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(lanes).await?;
    Ok(())
}

/// Makes clients that share connections.
async fn clients(
    target: &Target,
    (count, connected): (usize, usize),
    mut make: impl FnMut(u64, KvClient<Channel>) -> Client,
) -> anyhow::Result<Vec<Client>> {
    let channels = connections(target, connected).await?;
    let numbered = (0_u64..).zip(channels.iter().cycle()).take(count);
    Ok(numbered
        .map(|(nth, channel)| {
            let client = KvClient::new(channel.clone()).max_decoding_message_size(64 << 20);
            make(nth, client)
        })
        .collect())
}

/// Overwrites keys at random.
pub(super) fn puts(target: &Target, plan: Plan, shape: (usize, usize)) -> Case<'_> {
    Box::pin(async move {
        let turn = Arc::new(AtomicU64::new(0));
        let value = value(VALUE_BYTES);
        let clients = clients(target, shape, |_, client| {
            let (turn, value) = (Arc::clone(&turn), value.clone());
            Box::new(move || {
                let nth = scattered(turn.fetch_add(1, Ordering::Relaxed)) % KEYS;
                let (mut client, request) = (client.clone(), put(key(nth), &value));
                Box::pin(async move {
                    client.put(request).await?;
                    Ok(1)
                })
            })
        });
        closed_loop(target, plan, clients.await?).await
    })
}

/// What is read, by ranges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Linearizable,
    Serializable,
    /// All keys.
    List,
    /// The first 500 of all keys.
    Page,
    Count,
}

/// Reads.
pub(super) fn reads(target: &Target, plan: Plan, shape: (usize, usize), what: Read) -> Case<'_> {
    Box::pin(async move {
        let turn = Arc::new(AtomicU64::new(0));
        let clients = clients(target, shape, |_, client| {
            let turn = Arc::clone(&turn);
            Box::new(move || {
                let nth = scattered(turn.fetch_add(1, Ordering::Relaxed)) % KEYS;
                let (mut client, request) = (client.clone(), range(what, nth));
                Box::pin(async move {
                    let reply = client.range(request).await?.into_inner();
                    let (got, want) = match what {
                        Read::Linearizable | Read::Serializable => (reply.kvs.len(), 1),
                        Read::List => (reply.kvs.len(), KEYS as usize),
                        Read::Page => (reply.kvs.len(), 500),
                        Read::Count => (usize::try_from(reply.count)?, KEYS as usize),
                    };
                    ensure!(got == want, "{got} keys instead of {want}");
                    Ok(1)
                })
            })
        });
        closed_loop(target, plan, clients.await?).await
    })
}

/// Reads all keys by RangeStream, which etcd knows since 3.7.
pub(super) fn streams(target: &Target, plan: Plan, shape: (usize, usize)) -> Case<'_> {
    Box::pin(async move {
        let clients = clients(target, shape, |_, client| {
            Box::new(move || {
                let mut client = client.clone();
                Box::pin(async move {
                    let chunks = client.range_stream(range(Read::List, 0)).await?;
                    let (mut chunks, mut got) = (chunks.into_inner(), 0);
                    while let Some(chunk) = chunks.message().await? {
                        got += chunk.range_response.map_or(0, |part| part.kvs.len());
                    }
                    ensure!(got == KEYS as usize, "{got} keys instead of {KEYS}");
                    Ok(1)
                })
            })
        });
        closed_loop(target, plan, clients.await?).await
    })
}

fn range(what: Read, nth: u64) -> pb::RangeRequest {
    let all = || pb::RangeRequest {
        key: PREFIX.into(),
        range_end: PREFIX.replace("default/", "default0").into(),
        ..pb::RangeRequest::default()
    };
    match what {
        Read::Linearizable | Read::Serializable => pb::RangeRequest {
            key: key(nth),
            serializable: what == Read::Serializable,
            ..pb::RangeRequest::default()
        },
        Read::List => all(),
        Read::Page => pb::RangeRequest {
            limit: 500,
            ..all()
        },
        Read::Count => pb::RangeRequest {
            count_only: true,
            ..all()
        },
    }
}

/// Compares a key's last revision, as an API server does, and does something; reads
/// the key where that is not what it is.
pub(super) fn guarded(key: &Bytes, revision: i64, then: pb::request_op::Request) -> pb::TxnRequest {
    let read = pb::RangeRequest {
        key: key.clone(),
        ..pb::RangeRequest::default()
    };
    let op = |request| {
        vec![pb::RequestOp {
            request: Some(request),
        }]
    };
    pb::TxnRequest {
        compare: vec![pb::Compare {
            result: pb::compare::CompareResult::Equal.into(),
            target: pb::compare::CompareTarget::Mod.into(),
            key: key.clone(),
            target_union: Some(pb::compare::TargetUnion::ModRevision(revision)),
            ..pb::Compare::default()
        }],
        success: op(then),
        failure: op(pb::request_op::Request::RequestRange(read)),
    }
}

/// Carries out a transaction that must succeed; returns its revision.
pub(super) async fn succeed(
    client: &mut KvClient<Channel>,
    request: pb::TxnRequest,
) -> anyhow::Result<i64> {
    let reply = client.txn(request).await?.into_inner();
    ensure!(reply.succeeded, "somebody else wrote the key");
    Ok(reply.header.context("an answer without a header")?.revision)
}

/// Updates, each client its own key.
pub(super) fn updates(target: &Target, plan: Plan, shape: (usize, usize)) -> Case<'_> {
    Box::pin(async move {
        let value = value(VALUE_BYTES);
        let clients = clients(target, shape, |nth, client| {
            let (key, value) = (key(nth), value.clone());
            // Zero is: not known yet.
            let revision = Arc::new(AtomicU64::new(0));
            Box::new(move || {
                let (mut client, revision) = (client.clone(), Arc::clone(&revision));
                let put = put(key.clone(), &value);
                Box::pin(async move {
                    let known = i64::try_from(revision.load(Ordering::Relaxed))?;
                    let new = if known == 0 {
                        let reply = client.put(put).await?.into_inner();
                        reply.header.context("an answer without a header")?.revision
                    } else {
                        let key = put.key.clone();
                        let put = pb::request_op::Request::RequestPut(put);
                        succeed(&mut client, guarded(&key, known, put)).await?
                    };
                    revision.store(u64::try_from(new)?, Ordering::Relaxed);
                    Ok(1)
                })
            })
        });
        closed_loop(target, plan, clients.await?).await
    })
}

/// Creates a key and deletes it, each client its own; either counts.
pub(super) fn creates_and_deletes(target: &Target, plan: Plan, shape: (usize, usize)) -> Case<'_> {
    Box::pin(async move {
        let value = value(VALUE_BYTES);
        let clients = clients(target, shape, |nth, client| {
            let (key, value) = (
                Bytes::from(format!("/registry/jobs/{nth:08}")),
                value.clone(),
            );
            Box::new(move || {
                let (mut client, key, value) = (client.clone(), key.clone(), value.clone());
                Box::pin(async move {
                    let create = pb::request_op::Request::RequestPut(put(key.clone(), &value));
                    let made = succeed(&mut client, guarded(&key, 0, create)).await?;
                    let delete =
                        pb::request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest {
                            key: key.clone(),
                            ..pb::DeleteRangeRequest::default()
                        });
                    succeed(&mut client, guarded(&key, made, delete)).await?;
                    Ok(2)
                })
            })
        });
        closed_loop(target, plan, clients.await?).await
    })
}
