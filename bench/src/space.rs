//! `bench space`: what a large store takes.
//!
//! It is filled with keys of one size, then backed up, hashed and opened again,
//! each with the time and the peak of memory. Then its keys are written again and
//! again, compacted after each round: disk space must follow what lives. The last
//! round ends with a defragmentation.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt as _;
use futures::future::try_join_all;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use proto::etcdserverpb::maintenance_client::MaintenanceClient;

use crate::drive::Subject as _;
use crate::report::{Report, Size};
use crate::target::{self, Target};

/// Transactions under way while keys are written.
const WIDTH: u64 = 8;

/// Puts and bytes of one transaction (etcd's limits are 128 and 1.5 MiB).
const TXN_OPS: u64 = 100;
const TXN_BYTES: u64 = 1 << 20;

/// How long one step may take before the run is called broken.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// How long a store is left alone before its memory is looked at, so that what it
/// does behind the log is done.
const REST: Duration = Duration::from_secs(8);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also measure another store: `etcd=PATH`.
    #[arg(long)]
    peer: Option<String>,
    /// The megabytes of values.
    #[arg(long, default_value_t = 2_048)]
    megabytes: u64,
    /// The bytes of a value.
    #[arg(long, default_value_t = 1_000)]
    value: u64,
    /// How often all keys are written again.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let mut report = Report::default();
    measure(Target::keelson(keelson)?, args, &mut report).await?;
    if let Some(peer) = &args.peer {
        measure(Target::peer(peer)?, args, &mut report).await?;
    }
    Ok(report)
}

struct Bench<'a> {
    target: Target,
    args: &'a Args,
    report: &'a mut Report,
}

async fn measure(target: Target, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let mut bench = Bench {
        target,
        args,
        report,
    };
    tokio::time::timeout(PATIENCE, bench.run())
        .await
        .context("it did not end")?
}

impl Bench<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        self.target.start().await?;
        let began = self.begin()?;
        self.write(0).await?;
        self.end("fill", began)?;
        tokio::time::sleep(REST).await;
        let began = self.begin()?;
        self.end("idle", began)?;
        let began = self.begin()?;
        self.snapshot().await?;
        self.end("snapshot", began)?;
        let began = self.begin()?;
        let request = pb::HashKvRequest { revision: 0 };
        self.maintenance().await?.hash_kv(request).await?;
        self.end("hashkv", began)?;
        self.target.stop().await?;
        let began = Instant::now();
        self.target.start().await?;
        self.end("open", began)?;
        for round in 1..=self.args.rounds {
            let began = self.begin()?;
            self.write(round).await?;
            self.end(&format!("written again, {round}"), began)?;
            let began = self.begin()?;
            target::compact(self.target.connect().await?).await?;
            self.end(&format!("compacted, {round}"), began)?;
            tokio::time::sleep(REST).await;
            let began = self.begin()?;
            self.end(&format!("a while later, {round}"), began)?;
        }
        let began = self.begin()?;
        let request = pb::DefragmentRequest {};
        self.maintenance().await?.defragment(request).await?;
        self.end("defragmented", began)?;
        self.target.stop().await
    }

    fn begin(&self) -> anyhow::Result<Instant> {
        self.target.forget_peak()?;
        Ok(Instant::now())
    }

    fn end(&mut self, case: &str, began: Instant) -> anyhow::Result<()> {
        self.report.sizes.push(Size {
            case: case.to_owned(),
            target: self.target.name.clone(),
            seconds: began.elapsed().as_secs_f64(),
            rss_mb: self.target.rss_mb()?,
            peak_rss_mb: self.target.peak_rss_mb()?,
            disk_mb: self.target.data_bytes() >> 20,
        });
        Ok(())
    }

    async fn maintenance(&self) -> anyhow::Result<MaintenanceClient<tonic::transport::Channel>> {
        Ok(MaintenanceClient::new(self.target.connect().await?))
    }

    async fn snapshot(&self) -> anyhow::Result<()> {
        let request = pb::SnapshotRequest {};
        let mut client = self.maintenance().await?;
        let mut parts = client.snapshot(request).await?.into_inner();
        while let Some(part) = parts.next().await {
            part?;
        }
        Ok(())
    }

    /// Writes every key once, in an order of its own each round, as many at a time
    /// as one transaction takes.
    async fn write(&self, round: u64) -> anyhow::Result<()> {
        let value = self.args.value.max(1);
        let keys = (self.args.megabytes << 20) / value;
        let ops = (TXN_BYTES / value).clamp(1, TXN_OPS);
        // Another stride each round: keys written together before are apart now.
        let stride = (7_919 + round * 104_729..)
            .find(|stride| common(*stride, keys) == 1)
            .context("a stride")?;
        let lanes = (0..WIDTH).map(|lane| async move {
            let mut kv = KvClient::new(self.target.connect().await?);
            for txn in (lane..keys.div_ceil(ops)).step_by(WIDTH as usize) {
                let some = (txn * ops..(txn * ops + ops).min(keys))
                    .map(|n| put((n * stride + round) % keys, round, value));
                let request = pb::TxnRequest {
                    success: some.collect(),
                    ..pb::TxnRequest::default()
                };
                // "too many requests" is an honest answer to this much at once.
                while let Err(status) = kv.txn(request.clone()).await {
                    anyhow::ensure!(status.code() == tonic::Code::ResourceExhausted, status);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            anyhow::Ok(())
        });
        try_join_all(lanes).await.map(drop)
    }
}

/// Returns the greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => common(b, a % b),
    }
}

fn put(key: u64, round: u64, value: u64) -> pb::RequestOp {
    // Not to be shortened by whoever compresses.
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let bytes = (0..value).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    let put = pb::PutRequest {
        key: format!("/space/{key:08}").into(),
        value: bytes.collect::<Vec<u8>>().into(),
        ..pb::PutRequest::default()
    };
    pb::RequestOp {
        request: Some(pb::request_op::Request::RequestPut(put)),
    }
}
