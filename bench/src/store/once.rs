//! What is measured once a round on a store of its own: coming up empty, coming up
//! with much, a backup, a compaction, and a follower that was away.

use std::time::Instant;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::maintenance_client::MaintenanceClient;

use super::kv::fill;
use crate::drive::{Measured, Subject as _};
use crate::{pause, target::Target};

/// Keys of the store that is opened again.
const MANY_KEYS: u64 = 1_000_000;

/// Keys written while the follower is away: more than the log is kept for.
const MISSED_KEYS: u64 = 100_000;

/// Keys that are overwritten, and how often, before a compaction: 900,000 revisions.
const COMPACTED_KEYS: u64 = 100_000;
const OVERWRITES: usize = 9;

/// What a round of a case of this kind is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Once {
    /// From nothing to the first answer.
    Start,
    /// From a million keys to the first answer.
    Open,
    /// A backup of a million keys.
    Snapshot,
    /// A compaction of 900,000 revisions while others put.
    Compact,
    /// A follower that missed much, until it has everything.
    CatchUp,
}

impl Once {
    pub(super) const fn members(self) -> usize {
        match self {
            Self::CatchUp => 3,
            Self::Start | Self::Open | Self::Snapshot | Self::Compact => 1,
        }
    }

    /// Brings the store into the state each round begins with.
    pub(super) async fn prepare(self, target: &mut Target) -> anyhow::Result<()> {
        match self {
            Self::Start => Ok(()),
            Self::Open | Self::Snapshot => {
                target.start().await?;
                fill(target, MANY_KEYS).await?;
                if self == Self::Open {
                    target.stop().await?;
                }
                Ok(())
            }
            Self::Compact | Self::CatchUp => target.start().await,
        }
    }

    /// Takes one round.
    pub(super) async fn round(self, target: &mut Target) -> anyhow::Result<Measured> {
        let began = Instant::now();
        match self {
            Self::Start | Self::Open => {
                target.start().await?;
                let measured = taken(target, began, 0)?;
                target.stop().await?;
                if self == Self::Start {
                    target.clear()?;
                }
                Ok(measured)
            }
            Self::Snapshot => {
                let cpu = target.cpu_us()?;
                target.forget_peak()?;
                let bytes = snapshot(target).await?;
                ensure!(bytes > MANY_KEYS * 300, "a backup of {bytes} bytes");
                taken(target, began, cpu)
            }
            Self::Compact => {
                for _ in 0..OVERWRITES {
                    fill(target, COMPACTED_KEYS).await?;
                }
                let (began, cpu) = (Instant::now(), target.cpu_us()?);
                target.forget_peak()?;
                let latencies = pause::compacting(target).await?;
                Ok(Measured {
                    ops: latencies.len(),
                    latencies,
                    ..taken(target, began, cpu)?
                })
            }
            Self::CatchUp => {
                let away = target.follower();
                target.stop_member(away).await?;
                fill(target, MISSED_KEYS).await?;
                let (began, cpu) = (Instant::now(), target.cpu_us()?);
                target.forget_peak()?;
                target.spawn(away)?;
                target.await_answer(away).await?;
                taken(target, began, cpu)
            }
        }
    }
}

async fn snapshot(target: &Target) -> anyhow::Result<u64> {
    let mut client = MaintenanceClient::new(target.connect().await?);
    let mut chunks = client.snapshot(pb::SnapshotRequest {}).await?.into_inner();
    let mut bytes = 0;
    while let Some(chunk) = chunks.message().await? {
        bytes += chunk.blob.len() as u64;
    }
    Ok(bytes)
}

/// Sums up a round that was one operation.
fn taken(target: &Target, began: Instant, cpu: u64) -> anyhow::Result<Measured> {
    let took = began.elapsed();
    let mut latencies = Histogram::new(3)?;
    latencies.record(u64::try_from(took.as_micros())?)?;
    let used = target.cpu_us()?;
    Ok(Measured {
        ops: 1,
        seconds: took.as_secs_f64(),
        latencies,
        cpu_us: used.checked_sub(cpu).context("time went backwards")?,
        syncs: 0,
        disk_bytes: 0,
        rss_mb: target.peak_rss_mb()?,
    })
}
