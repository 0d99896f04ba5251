//! Leases: granted, and kept alive.

use std::sync::Arc;

use anyhow::Context;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::lease_client::LeaseClient;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::kv::Case;
use crate::drive::{Client, Plan, closed_loop, connections};
use crate::target::Target;

/// Seconds a lease lives: longer than any run.
const TTL: i64 = 3_600;

/// Grants leases.
pub(super) fn grants(target: &Target, plan: Plan, (count, connected): (usize, usize)) -> Case<'_> {
    Box::pin(async move {
        let channels = connections(target, connected).await?;
        let clients = channels.iter().cycle().take(count).map(|channel| {
            let client = LeaseClient::new(channel.clone());
            Box::new(move || {
                let mut client = client.clone();
                Box::pin(async move {
                    let request = pb::LeaseGrantRequest { ttl: TTL, id: 0 };
                    client.lease_grant(request).await?;
                    Ok(1_u64)
                }) as crate::drive::Asked
            }) as Client
        });
        closed_loop(target, plan, clients.collect()).await
    })
}

/// Keeps leases alive, each client its own over a stream of its own.
pub(super) fn keep_alives(
    target: &Target,
    plan: Plan,
    (count, connected): (usize, usize),
) -> Case<'_> {
    Box::pin(async move {
        let channels = connections(target, connected).await?;
        let mut clients: Vec<Client> = Vec::with_capacity(count);
        for channel in channels.iter().cycle().take(count) {
            let mut client = LeaseClient::new(channel.clone());
            let request = pb::LeaseGrantRequest { ttl: TTL, id: 0 };
            let id = client.lease_grant(request).await?.into_inner().id;
            let (ask, asked) = mpsc::channel(1);
            let keep = pb::LeaseKeepAliveRequest { id };
            // The first asks for the stream to be opened.
            ask.send(keep).await?;
            let replies = client.lease_keep_alive(ReceiverStream::new(asked)).await?;
            let mut replies = replies.into_inner();
            replies.message().await?.context("the stream ended")?;
            let replies = Arc::new(Mutex::new(replies));
            clients.push(Box::new(move || {
                let (ask, replies) = (ask.clone(), Arc::clone(&replies));
                Box::pin(async move {
                    ask.send(keep).await?;
                    let reply = replies.lock().await.message().await?;
                    reply.context("the stream ended")?;
                    Ok(1)
                })
            }));
        }
        closed_loop(target, plan, clients).await
    })
}
