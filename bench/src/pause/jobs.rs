//! The long jobs, each on a thread of its own, so that taking in a large answer
//! delays nobody who puts.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use proto::etcdserverpb::maintenance_client::MaintenanceClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::target;

/// What runs while clients put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    Quiet,
    Range,
    HashKv,
    Snapshot,
    Compact,
    Defragment,
}

impl Job {
    pub(super) const ALL: [Self; 6] = [
        Self::Quiet,
        Self::Range,
        Self::HashKv,
        Self::Snapshot,
        Self::Compact,
        Self::Defragment,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Range => "range",
            Self::HashKv => "hashkv",
            Self::Snapshot => "snapshot",
            Self::Compact => "compact",
            Self::Defragment => "defragment",
        }
    }

    /// Does the job; returns whether the store knows it. Those that can be
    /// repeated are, for so many seconds.
    pub(super) async fn run(self, url: String, seconds: u64) -> anyhow::Result<bool> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let until = Instant::now() + Duration::from_secs(seconds);
        std::thread::Builder::new()
            .name("job".to_owned())
            .spawn(move || {
                let done = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(anyhow::Error::from)
                    .and_then(|runtime| runtime.block_on(self.run_here(url, until)));
                // Whoever asked may have lost patience.
                drop(tell.send(done));
            })?;
        told.await.context("the job's thread ended")?
    }

    async fn run_here(self, url: String, until: Instant) -> anyhow::Result<bool> {
        let channel = Channel::from_shared(url)?.connect().await?;
        loop {
            match self.once(channel.clone()).await {
                Err(status) if status.code() == Code::Unimplemented => return Ok(false),
                done => done.with_context(|| self.name())?,
            }
            let repeats = matches!(self, Self::Range | Self::HashKv | Self::Snapshot);
            if !repeats || Instant::now() >= until {
                return Ok(true);
            }
        }
    }

    async fn once(self, channel: Channel) -> Result<(), Status> {
        let mut kv = KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
        let maintenance = MaintenanceClient::new(channel.clone());
        let mut maintenance = maintenance.max_decoding_message_size(usize::MAX);
        match self {
            Self::Quiet => {}
            Self::Range => {
                kv.range(pb::RangeRequest {
                    key: "\0".into(),
                    range_end: "\0".into(),
                    ..pb::RangeRequest::default()
                })
                .await?;
            }
            Self::HashKv => {
                maintenance
                    .hash_kv(pb::HashKvRequest { revision: 0 })
                    .await?;
            }
            Self::Snapshot => {
                let mut parts = maintenance
                    .snapshot(pb::SnapshotRequest {})
                    .await?
                    .into_inner();
                while let Some(part) = parts.next().await {
                    part?;
                }
            }
            Self::Compact => target::compact(channel).await?,
            Self::Defragment => {
                maintenance.defragment(pb::DefragmentRequest {}).await?;
            }
        }
        Ok(())
    }
}
