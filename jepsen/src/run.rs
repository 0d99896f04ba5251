//! Real faults on real processes: a cluster is started, clients work on it, a nemesis
//! hurts it, and what the clients were told is judged.
//!
//! Clients are tasks on one thread ([`world`], [`client`]); what each does is a
//! workload ([`workload`]). The nemesis has a thread of its own ([`nemesis`]). What is
//! written down is a history of the crate `checkers`, and judged by it ([`judge`]).

pub(crate) mod api;
mod authority;
mod client;
mod judge;
mod nemesis;
mod watching;
mod wire;
mod workload;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use checkers::history::{About, History, Record, Request};
use faults::{Bed, Ground, Target};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::Instant;

use self::client::Client;
use self::nemesis::{Aftermath, Event, Tormentor};
use self::workload::Workload;
use self::world::World;
use crate::say;

/// How long clients go on once all is healed: what they read then is read in peace.
const PEACE: Duration = Duration::from_secs(3);
/// How long clients may take to end, and watches to see the last change.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// How often the run looks whether something happened.
const POLL: Duration = Duration::from_millis(100);
/// How often the nemesis that compacts asks.
const COMPACT_EVERY: Duration = Duration::from_millis(200);

/// What to run, against whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workloads, or all that can run together; see --list.
    #[arg(long, default_value = "all")]
    workload: String,
    /// Nemeses, all of them, or none; see --list.
    #[arg(long, default_value = "all")]
    nemesis: String,
    /// How often the nemesis begins something, such as 20s; by chance if not given.
    #[arg(long, value_parser = span)]
    every: Option<Duration>,
    /// How long clients work, such as 90s, 30m, 2h.
    #[arg(long, default_value = "60s", value_parser = span)]
    time: Duration,
    /// What the nemesis and the clients draw from; a new one if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many members there are.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Ends sooner, after so many requests.
    #[arg(long, default_value_t = 0)]
    ops: usize,
    /// How many requests a second all clients make together; 0 is as many as they can.
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// The program to test: keelson=PATH or etcd=PATH; the member built into this one
    /// if not given.
    #[arg(long, value_parser = target)]
    target: Option<Target>,
    /// More flags for each member.
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Ports of the loopback address instead of network namespaces.
    #[arg(long)]
    loopback: bool,
    /// Where the history and the logs of the members are kept.
    #[arg(long, default_value = "target/jepsen/run")]
    out: PathBuf,
    /// Says which workloads and nemeses there are, and ends.
    #[arg(long)]
    list: bool,
}

fn target(text: &str) -> Result<Target, String> {
    match text.split_once('=') {
        Some(("etcd", path)) if !path.is_empty() => Ok(Target::etcd(path)),
        Some(("keelson", path)) if !path.is_empty() => Ok(Target::keelson(path)),
        _ => Err("give it as etcd=PATH or keelson=PATH".to_owned()),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time such as 90s, 30m or 2h");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - 1]
        .parse()
        .map_err(|_no_number| wrong())?;
    Ok(Duration::from_secs(count * seconds))
}

/// Runs what was asked for, and tells by the exit code what came of it: 0 if every
/// checker passed, 1 if one did not, 2 if one could not tell.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let workloads = workload::named(&args.workload)?;
    let names: Vec<&str> = workloads.iter().map(|w| w.nemeses).collect();
    let names = format!("{},{}", args.nemesis.replace("none", ""), names.join(","));
    let choices = nemesis::named(&names)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let seed = args.seed.unwrap_or_else(rand::random);
    say::line(&format!("seed {seed}"));
    // Outside of the clients' thread: what is done to the cluster blocks.
    let (bed, skipped) = start(&below(args)?, &choices)?;
    let ready = Ready {
        seed,
        workloads,
        choices,
        bed,
        skipped,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = LocalSet::new().block_on(&runtime, all(args, ready))?;
    judge::judge(outcome, &args.out)
}

/// What a run begins with.
struct Ready {
    seed: u64,
    workloads: Vec<Workload>,
    choices: Vec<nemesis::Choice>,
    bed: Bed,
    skipped: Vec<(String, String)>,
}

fn list() {
    say::line("workloads:");
    for workload in workload::ALL {
        say::line(&format!("  {:<18} {}", workload.name, workload.about));
    }
    say::line("nemeses:");
    for kind in faults::nemesis::KINDS {
        say::line(&format!("  {:<18} {}", kind.name, kind.about));
    }
    let about = "compactions all the time, close to what is read and watched";
    say::line(&format!("  {:<18} {about}", nemesis::COMPACT));
}

/// What a run left behind.
struct Outcome {
    history: History,
    aftermath: Aftermath,
    /// What did not come to an end as it should, such as a watch that never saw the
    /// last change.
    unfinished: Vec<String>,
    /// What stood on the cluster and fell over.
    crashes: Vec<String>,
    took: Duration,
    seed: u64,
}

async fn all(args: &Args, ready: Ready) -> anyhow::Result<Outcome> {
    let Ready {
        seed,
        workloads,
        choices,
        bed,
        skipped,
    } = ready;
    let file = args.out.join("history.jsonl");
    let world = World::new(about(args, seed, &bed), &file, args.rate, args.ops);
    let world = Rc::new(world.with_context(|| format!("cannot write {}", file.display()))?);
    world.follow(&nemesis::members(&bed));
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = unbounded_channel();
    let tormentor = Tormentor {
        bed,
        upper: (),
        choices,
        every: args.every,
        seed,
        started: world.started(),
        tell,
        stop: stop.clone(),
    };
    let torment = std::thread::spawn(move || tormentor.run());

    let watchers = spawn_local(watch_members(world.clone()));
    let compactor = spawn_local(compact(world.clone(), seed));
    let clients = clients(&world, &workloads, seed);
    work(&world, args.time, events, &stop).await?;
    tokio::time::sleep(PEACE).await;
    world.stop();
    let mut unfinished = Vec::new();
    for (name, client) in clients {
        match tokio::time::timeout(END_PATIENCE, client).await {
            Ok(ended) => ended?,
            Err(_elapsed) => unfinished.push(format!("a client of {name} did not end")),
        }
    }
    compactor.abort();
    let mut aftermath = torment
        .join()
        .map_err(|_panic| anyhow::anyhow!("the nemesis' thread panicked"))?;
    aftermath.skipped.splice(0..0, skipped);
    if aftermath.lost.is_none() {
        aftermath = settle(&world, aftermath, &mut unfinished).await?;
    }
    watchers.abort();
    let took = world.started().elapsed();
    Ok(Outcome {
        history: world.finish()?,
        aftermath,
        unfinished,
        crashes: Vec::new(),
        took,
        seed,
    })
}

/// Which cluster to start.
struct Below<'a> {
    target: Target,
    nodes: usize,
    loopback: bool,
    flags: &'a [String],
}

fn below(args: &Args) -> anyhow::Result<Below<'_>> {
    let target = match &args.target {
        Some(target) => target.clone(),
        None => Target::built_in(std::env::current_exe()?, "member"),
    };
    Ok(Below {
        target,
        nodes: args.nodes,
        loopback: args.loopback,
        flags: &args.flags,
    })
}

/// Starts the cluster with whatever of what the nemeses need this machine has.
fn start(
    below: &Below<'_>,
    choices: &[nemesis::Choice],
) -> anyhow::Result<(Bed, Vec<(String, String)>)> {
    let mut skipped = Vec::new();
    let mut ground = Ground {
        lan: !below.loopback,
        ..Ground::default()
    };
    if !below.loopback {
        for why in Bed::missing(ground) {
            skipped.push(("network namespaces".to_owned(), why.to_string()));
            ground.lan = false;
        }
    }
    let lan = ground.lan;
    for choice in choices {
        if let nemesis::Choice::Bed(kind) = choice {
            kind.prepare(&mut ground);
        }
    }
    ground.lan = lan;
    for (what, has) in [("disks", &mut ground.disks), ("clocks", &mut ground.clocks)] {
        let only = Ground {
            disks: *has && what == "disks",
            clocks: *has && what == "clocks",
            ..Ground::default()
        };
        if let Some(why) = Bed::missing(only).into_iter().next() {
            skipped.push((what.to_owned(), why.to_string()));
            *has = false;
        }
    }
    let mut flags: Vec<&str> = vec![
        // Small, so that snapshots are made and sent.
        "--snapshot-count=500",
        "--experimental-watch-progress-notify-interval=500ms",
        "--heartbeat-interval=50",
        "--election-timeout=500",
        "--bcrypt-cost=4",
    ];
    flags.extend(below.flags.iter().map(String::as_str));
    let bed = Bed::start(below.target.clone(), below.nodes, ground, &flags)?;
    Ok((bed, skipped))
}

fn about(args: &Args, seed: u64, bed: &Bed) -> About {
    let target = bed.cluster.target.program().display();
    let mut command = format!(
        "jepsen run --workload {} --nemesis {} --time {}s --nodes {} --rate {} --seed {seed}",
        args.workload,
        args.nemesis,
        args.time.as_secs(),
        args.nodes,
        args.rate,
    );
    if let Some(every) = args.every {
        command += &format!(" --every {}s", every.as_secs());
    }
    if let Some(given) = &args.target {
        let kind = if given.ours { "keelson" } else { "etcd" };
        command.push_str(&format!(" --target {kind}={target}"));
    }
    if args.loopback {
        command.push_str(" --loopback");
    }
    About {
        title: format!("{} under {}", args.workload, args.nemesis),
        target: target.to_string(),
        command,
        seed: Some(seed),
        members: u8::try_from(args.nodes).ok(),
        ..About::default()
    }
}

/// Starts the clients of all workloads.
fn clients(
    world: &Rc<World>,
    workloads: &[Workload],
    seed: u64,
) -> Vec<(&'static str, JoinHandle<()>)> {
    let mut clients = Vec::new();
    for workload in workloads {
        for number in 0..workload.clients {
            let own = seed ^ ((clients.len() as u64 + 1) << 32);
            let client = Client::new(world, number, own);
            clients.push((workload.name, spawn_local((workload.run)(client))));
        }
    }
    clients
}

/// Watches everything on each member there ever is.
async fn watch_members(world: Rc<World>) {
    let mut watched = Vec::new();
    loop {
        for at in world.members() {
            if !watched.contains(&at) {
                watched.push(at);
                spawn_local(watching::watch_all(world.clone(), at));
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Asks for compactions while the nemesis says so.
async fn compact(world: Rc<World>, seed: u64) {
    use rand::Rng as _;
    let mut client = Client::new(&world, 0, seed);
    loop {
        tokio::time::sleep(COMPACT_EVERY).await;
        if !world.compacting.get() {
            continue;
        }
        // Close to what is read, watched and written, and past it now and then; but
        // never what a watch of everything still needs.
        let last = world.seen_by_all();
        let revision = match client.rng.random_range(0..8) {
            0 => world.newest() + client.rng.random_range(1000..2000),
            _ => last - client.rng.random_range(0..50),
        };
        client.member = usize::MAX;
        client.move_on();
        client
            .ask(Request::Compact {
                revision: revision.max(1),
            })
            .await;
    }
}

/// Lets clients work until it is time, and then everything heal.
async fn work(
    world: &World,
    time: Duration,
    mut events: UnboundedReceiver<Event>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let bar = bar(time);
    // Whoever is in a hurry still gets everything healed, and a verdict.
    let interrupted = spawn_local(async {
        let _or_never = tokio::signal::ctrl_c().await;
    });
    let until = Instant::now() + time;
    let mut at = String::new();
    loop {
        let over = Instant::now() >= until || world.enough() || interrupted.is_finished();
        if over {
            stop.store(true, Ordering::Relaxed);
            at = "healing".to_owned();
        }
        match tokio::time::timeout(POLL, events.recv()).await {
            Ok(Some(Event::Fault(fault))) => world.record(Record::Fault(fault)),
            Ok(Some(Event::Members(members))) => world.follow(&members),
            Ok(Some(Event::Compacting(on))) => world.compacting.set(on),
            Ok(Some(Event::At(what))) => at = what,
            Ok(Some(Event::Healed)) | Ok(None) => break,
            Err(_elapsed) => {}
        }
        let elapsed = world.started().elapsed();
        bar.set_position(elapsed.as_secs());
        let rate = world.ops() as f64 / elapsed.as_secs_f64();
        bar.set_message(format!(
            "{} requests, {rate:.0} a second; {at}",
            world.ops()
        ));
    }
    bar.finish_and_clear();
    Ok(())
}

/// Waits until every watch of everything has seen the last change, and asks each
/// member what it has.
async fn settle<U: Send + 'static>(
    world: &World,
    aftermath: Aftermath<U>,
    unfinished: &mut Vec<String>,
) -> anyhow::Result<Aftermath<U>> {
    // The members are asked on another thread: these calls block.
    let asked = tokio::task::spawn_blocking(move || {
        let finals = nemesis::finals(&aftermath.bed);
        (aftermath, finals)
    });
    let (mut aftermath, finals) = asked.await?;
    let finals = match finals {
        Ok(finals) => finals,
        Err(why) => {
            aftermath.lost = Some(why.to_string());
            return Ok(aftermath);
        }
    };
    let revision = finals.iter().map(|f| f.revision).max().unwrap_or(0);
    for last in finals {
        world.record(Record::Final(last));
    }
    let until = Instant::now() + END_PATIENCE;
    while !world.behind(revision).is_empty() && Instant::now() < until {
        tokio::time::sleep(POLL).await;
    }
    for at in world.behind(revision) {
        unfinished.push(format!(
            "the watch of everything on m{at} never came to revision {revision}"
        ));
    }
    Ok(aftermath)
}

fn bar(time: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {elapsed} of {len} s, {msg}");
    let bar = ProgressBar::new(time.as_secs());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_plain) => bar,
    }
}
