//! `bench pause`: who waits while the store tidies up.
//!
//! Clients put at a fixed rate, each put timed from the moment it was due, so
//! that a stall counts for every put it delayed. Meanwhile one long job runs:
//! compaction of the whole history, defragmentation, a hash over everything, a
//! snapshot, lists of all keys. One case is one job; `quiet` is none.
//!
//! With `--peer etcd=PATH` the same happens to a real etcd.

mod jobs;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use hdrhistogram::Histogram;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use tonic::transport::Channel;

use self::jobs::Job;
use crate::drive::Subject as _;
use crate::pace::Alarm;
use crate::report::{Ratio, Report, Run, say_error};
use crate::target::Target;

/// Puts of one transaction while the store is filled (etcd's limit is 128).
const FILL_OPS: usize = 100;

/// Transactions under way while the store is filled.
const FILL_WIDTH: usize = 16;

/// How long one job may take before the run is called broken.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also measure another store: `etcd=PATH`.
    #[arg(long)]
    peer: Option<String>,
    /// How many clients put.
    #[arg(long, default_value_t = 10)]
    clients: u64,
    /// How many puts a second they make together.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// How many keys there are.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// How many changes there are to forget.
    #[arg(long, default_value_t = 1_000_000)]
    revisions: u64,
    /// The bytes of a value.
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// The seconds a case takes at least.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let mut report = Report::default();
    measure(Target::keelson(keelson)?, args, &mut report).await?;
    if let Some(peer) = &args.peer {
        let ours = report.runs.len();
        measure(Target::peer(peer)?, args, &mut report).await?;
        let (ours, theirs) = report.runs.split_at(ours);
        report.ratios = ratios(ours, theirs);
    }
    Ok(report)
}

async fn measure(mut target: Target, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    target.start().await?;
    fill(&target, args).await?;
    for job in Job::ALL {
        let cpu = target.cpu_us()?;
        let latencies = case(&target, args, job).await?;
        let Some(latencies) = latencies else {
            say_error(&format!("{}: does not know {}", target.name, job.name()));
            continue;
        };
        let mut run = Run::of(job.name().to_owned(), &latencies);
        run.target.clone_from(&target.name);
        run.server_cpu_us_per_op = (target.cpu_us()? - cpu) as f64 / latencies.len().max(1) as f64;
        run.server_rss_mb = target.rss_mb()?;
        report.runs.push(run);
        if job == Job::Defragment {
            let megabytes = target.data_bytes() >> 20;
            say_error(&format!("{}: {megabytes} MB of files", target.name));
        }
    }
    target.stop().await
}

fn key(n: u64) -> bytes::Bytes {
    format!("/pause/{n:08}").into()
}

fn put(n: u64, value: &bytes::Bytes) -> pb::PutRequest {
    pb::PutRequest {
        key: key(n),
        value: value.clone(),
        ..pb::PutRequest::default()
    }
}

/// Writes every key, and then all of them again until there are enough changes.
async fn fill(target: &Target, args: &Args) -> anyhow::Result<()> {
    let value = bytes::Bytes::from(vec![b'v'; args.value]);
    let txns = args.revisions.max(args.keys) / FILL_OPS as u64;
    let channel = target.connect().await?;
    let lanes = (0..FILL_WIDTH as u64).map(|lane| {
        let mut client = KvClient::new(channel.clone());
        let value = value.clone();
        let keys = args.keys;
        async move {
            let mut txn = lane;
            while txn < txns {
                let first = txn * FILL_OPS as u64;
                let ops = (first..first + FILL_OPS as u64).map(|n| pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestPut(put(n % keys, &value))),
                });
                let request = pb::TxnRequest {
                    success: ops.collect(),
                    ..pb::TxnRequest::default()
                };
                // "too many requests" is an honest answer to this much at once.
                if client.txn(request).await.is_ok() {
                    txn += FILL_WIDTH as u64;
                } else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
    tokio::time::timeout(PATIENCE, join_all(lanes))
        .await
        .context("the store did not take its first keys")?;
    Ok(())
}

/// Compacts a store while puts arrive; returns how long they waited.
pub(crate) async fn compacting(target: &Target) -> anyhow::Result<Histogram<u64>> {
    let args = Args {
        peer: None,
        clients: 10,
        rate: 1_000,
        keys: 100_000,
        revisions: 0,
        value: 100,
        // A second at least, so that a quick one has a percentile too.
        seconds: 1,
    };
    let latencies = case(target, &args, Job::Compact).await?;
    latencies.context("a store that cannot compact")
}

/// Puts while a job runs; `None` if the target does not know the job.
async fn case(target: &Target, args: &Args, job: Job) -> anyhow::Result<Option<Histogram<u64>>> {
    let (end, ended) = tokio::sync::watch::channel(false);
    let value = bytes::Bytes::from(vec![b'w'; args.value]);
    let period = Duration::from_secs(args.clients) / u32::try_from(args.rate.max(1))?;
    let mut clients = Vec::new();
    for nth in 0..args.clients {
        let client = KvClient::new(target.connect().await?);
        let begin = Instant::now() + period * u32::try_from(nth)? / u32::try_from(args.clients)?;
        let (ended, value, keys) = (ended.clone(), value.clone(), args.keys);
        clients.push(tokio::spawn(async move {
            put_steadily(client, begin, period, ended, move |n| {
                put((n * 7_919 + nth * 104_729) % keys, &value)
            })
            .await
        }));
    }
    let least = tokio::time::sleep(Duration::from_secs(args.seconds));
    let known = tokio::time::timeout(PATIENCE, job.run(target.url(), args.seconds))
        .await
        .with_context(|| format!("{} did not end", job.name()))??;
    least.await;
    end.send(true)?;
    let mut all = Histogram::<u64>::new(3)?;
    for client in clients {
        all.add(client.await??)?;
    }
    Ok(known.then_some(all))
}

/// Puts whenever one is due, however long the last one took, until told to end.
async fn put_steadily(
    mut client: KvClient<Channel>,
    begin: Instant,
    period: Duration,
    ended: tokio::sync::watch::Receiver<bool>,
    request: impl Fn(u64) -> pb::PutRequest,
) -> anyhow::Result<Histogram<u64>> {
    let mut latencies = Histogram::new(3)?;
    let alarm = Alarm::new()?;
    let mut due = begin;
    let mut n = 0;
    while !*ended.borrow() {
        alarm.sleep_until(due).await?;
        client.put(request(n)).await.context("a put failed")?;
        latencies.record(u64::try_from(due.elapsed().as_micros())?)?;
        due += period;
        n += 1;
    }
    Ok(latencies)
}

fn ratios(ours: &[Run], theirs: &[Run]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for ours in ours {
        let Some(theirs) = theirs.iter().find(|run| run.case == ours.case) else {
            continue;
        };
        let figures = [
            ("p99_us", ours.p99_us, theirs.p99_us),
            ("max_us", ours.max_us, theirs.max_us),
        ];
        ratios.extend(figures.map(|(metric, ours_us, theirs_us)| Ratio {
            case: ours.case.clone(),
            metric: metric.to_owned(),
            ours_over_peer: ours_us as f64 / theirs_us.max(1) as f64,
            margin: None,
            held: None,
        }));
    }
    ratios
}
