//! One level up: API servers over a cluster of the store, controllers that talk to
//! them, and clients of both; everything is hurt, and what was told is judged by the
//! store's own log.

mod lie;
mod object;
mod plane;
mod read;
mod scale;
mod talk;
mod torment;
mod watch;
mod write;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use checkers::history::{About, Answer, Ask, Call, Came, Read, Record, Scope, TOKEN};
use clap::ValueEnum as _;
use faults::{Bed, Target};
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::Instant;

use self::lie::{Liar, Lie};
use self::object::{CONFIG_MAPS, DEPLOYMENTS, PODS, REPLICA_SETS, THINGS};
use self::plane::Plane;
use self::talk::{Shared, Talker};
use super::nemesis::{Aftermath, Choice, Tormentor};
use super::world::World;
use super::{
    Below, END_PATIENCE, Outcome, PEACE, judge, nemesis, settle, span, start, watch_members, work,
};
use crate::say;

/// Where clients work.
const NAMESPACES: [&str; 3] = ["j0", "j1", "j2"];
/// The label by which they select, and its values.
const LABEL: &str = "g";
const LABELS: [&str; 3] = ["r", "s", "t"];
/// How many counters there are.
const COUNTERS: usize = 2;
/// How many clients of each kind there are.
const WRITERS: usize = 6;
const COUNTING: usize = 3;
const READERS: usize = 4;
const WATCHERS: usize = 10;
/// How long controllers may take to carry out the last wish, once all is healed. A
/// lease of one that was killed has to end first.
const CONVERGE_PATIENCE: Duration = Duration::from_secs(90);
/// How often it is looked whether they did.
const CONVERGE_POLL: Duration = Duration::from_millis(500);
/// How often the client that compacts asks, while it does.
const COMPACT_EVERY: Duration = Duration::from_millis(500);
/// How many revisions it leaves at most.
const COMPACT_LEAVES: i64 = 200;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long clients work, such as 90s, 30m, 2h.
    #[arg(long, default_value = "60s", value_parser = span)]
    time: Duration,
    /// What the nemesis and the clients draw from; a new one if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many API servers there are.
    #[arg(long, default_value_t = 2)]
    apis: usize,
    /// How many members the store has.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Nemeses, all that fit, or none; see --list.
    #[arg(long, default_value = "all")]
    nemesis: String,
    /// How often the nemesis begins something, such as 20s; by chance if not given.
    #[arg(long, value_parser = span)]
    every: Option<Duration>,
    /// How many requests a second all clients make together; 0 is as many as they can.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// The keelson to test; the one built into this program if not given.
    #[arg(long)]
    keelson: Option<PathBuf>,
    /// Ports of the loopback address instead of network namespaces.
    #[arg(long)]
    loopback: bool,
    /// Where the history, the report and the logs are kept.
    #[arg(long, default_value = "target/jepsen/api")]
    out: PathBuf,
    /// Falsifies one answer on its way to the record: the run must fail.
    #[arg(long, value_enum)]
    lie: Option<Lie>,
    /// Says which nemeses there are, and ends.
    #[arg(long)]
    list: bool,
}

/// Nemeses of the store that say nothing new of what stands on it, or change what it
/// is reached by.
const NOT_HERE: [&str; 3] = ["replace", "corrupt-log", "corrupt-snapshot"];

/// Runs, and tells by the exit code what came of it, as `run` does.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::ensure!(args.apis > 0, "there has to be an API server");
    let choices = choices(&args.nemesis)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let seed = args.seed.unwrap_or_else(rand::random);
    say::line(&format!("seed {seed}"));
    let own = std::env::current_exe()?;
    let program = args.keelson.clone().unwrap_or_else(|| own.clone());
    let target = match &args.keelson {
        Some(path) => Target::keelson(path),
        None => Target::built_in(own, "member"),
    };
    let below = Below {
        target,
        nodes: args.nodes,
        loopback: args.loopback,
        flags: &[],
    };
    let (bed, skipped) = start(&below, &choices)?;
    let plane = Plane::start(program, args.apis, &bed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ready = Ready {
        seed,
        choices,
        bed,
        plane,
        skipped,
    };
    let outcome = LocalSet::new().block_on(&runtime, all(args, ready))?;
    judge::judge(outcome, &args.out)
}

/// What a run begins with.
struct Ready {
    seed: u64,
    choices: Vec<Choice>,
    bed: Bed,
    plane: Plane,
    skipped: Vec<(String, String)>,
}

fn list() {
    say::line("nemeses of API servers and of who talks to them:");
    for (name, about) in torment::KINDS {
        say::line(&format!("  {name:<18} {about}"));
    }
    say::line("nemeses of the store:");
    let kinds = faults::nemesis::KINDS.iter();
    for kind in kinds.filter(|kind| !NOT_HERE.contains(&kind.name)) {
        say::line(&format!("  {:<18} {}", kind.name, kind.about));
    }
}

/// Finds nemeses by their names, those of the store among them.
fn choices(names: &str) -> anyhow::Result<Vec<Choice>> {
    let own = |name: &str| torment::KINDS.iter().find(|(n, _)| *n == name);
    let mut chosen = Vec::new();
    for name in names
        .split(',')
        .filter(|name| !matches!(*name, "" | "none"))
    {
        if name == "all" {
            let own = torment::KINDS.iter().map(|(name, _)| Choice::Upper(name));
            let below = nemesis::named("all")?.into_iter();
            chosen.extend(own.chain(below.filter(|c| !NOT_HERE.contains(&c.name()))));
        } else if let Some((name, _)) = own(name) {
            chosen.push(Choice::Upper(name));
        } else {
            chosen.extend(nemesis::named(name)?);
        }
    }
    Ok(chosen)
}

async fn all(args: &Args, ready: Ready) -> anyhow::Result<Outcome> {
    let Ready {
        seed,
        choices,
        bed,
        plane,
        skipped,
    } = ready;
    let shared = shared(args, seed, &bed, &plane)?;
    let world = shared.world.clone();
    let watching = spawn_local(watch_members(world.clone()));
    setup(&shared, seed).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = unbounded_channel();
    let tormentor = Tormentor {
        bed,
        upper: plane,
        choices,
        every: args.every,
        seed,
        started: world.started(),
        tell,
        stop: stop.clone(),
    };
    let torment = std::thread::spawn(move || tormentor.run());
    let compactor = spawn_local(compact(shared.clone(), seed));
    let workers = workers(&shared, seed)?;
    let watchers = watchers(&shared, seed)?;
    work(&world, args.time, events, &stop).await?;
    tokio::time::sleep(PEACE).await;
    world.stop();
    compactor.abort();
    let mut unfinished = Vec::new();
    ended(workers, &mut unfinished).await?;
    let aftermath = torment
        .join()
        .map_err(|_panic| anyhow::anyhow!("the nemesis' thread panicked"))?;
    let mut aftermath = close(&shared, aftermath, watchers, seed, &mut unfinished).await?;
    aftermath.skipped.splice(0..0, skipped);
    watching.abort();
    unfinished.extend(shared.odd.borrow_mut().drain(..));
    if shared.liar.failed() {
        unfinished.push("nothing came that could be falsified".to_owned());
    }
    let took = world.started().elapsed();
    let mut plane = aftermath.upper;
    plane.keep_logs(&args.out)?;
    Ok(Outcome {
        history: world.finish()?,
        aftermath: Aftermath {
            bed: aftermath.bed,
            upper: (),
            skipped: aftermath.skipped,
            lost: aftermath.lost,
        },
        crashes: plane.crashes,
        unfinished,
        took,
        seed,
    })
}

fn shared(args: &Args, seed: u64, bed: &Bed, plane: &Plane) -> anyhow::Result<Rc<Shared>> {
    let file = args.out.join("history.jsonl");
    let world = World::new(about(args, seed), &file, args.rate, 0);
    let mut world = world.with_context(|| format!("cannot write {}", file.display()))?;
    world.digest = object::digest;
    world.follow(&nemesis::members(bed));
    let configs: faults::Result<_> = (0..args.apis).map(|at| plane.config(at)).collect();
    Ok(Rc::new(Shared {
        world: Rc::new(world),
        configs: configs?,
        finish: Cell::new(None),
        odd: RefCell::default(),
        liar: Liar::new(args.lie),
    }))
}

fn about(args: &Args, seed: u64) -> About {
    let mut command = format!(
        "jepsen api --nemesis {} --time {}s --apis {} --nodes {} --rate {} --seed {seed}",
        args.nemesis,
        args.time.as_secs(),
        args.apis,
        args.nodes,
        args.rate,
    );
    if let Some(every) = args.every {
        command += &format!(" --every {}s", every.as_secs());
    }
    let mut target = "built in".to_owned();
    if let Some(path) = &args.keelson {
        target = path.display().to_string();
        command += &format!(" --keelson {target}");
    }
    if args.loopback {
        command += " --loopback";
    }
    let lie = args.lie.and_then(|lie| lie.to_possible_value());
    command.extend(lie.map(|lie| format!(" --lie {}", lie.get_name())));
    About {
        title: format!("{} API servers under {}", args.apis, args.nemesis),
        target,
        command,
        seed: Some(seed),
        members: u8::try_from(args.nodes).ok(),
        ..About::default()
    }
}

/// Returns what a body says of who wrote it.
fn token_in(body: &Value) -> &str {
    let in_data = body["data"][TOKEN].as_str();
    let in_notes = body["metadata"]["annotations"][TOKEN].as_str();
    let operations = body.as_array().into_iter().flatten();
    let mut set = operations.filter(|operation| operation["path"] == "/data/by");
    let in_operations = set.next().and_then(|operation| operation["value"].as_str());
    in_data.or(in_notes).or(in_operations).unwrap_or_default()
}

/// Defines the resource of a client's own, and waits until every API server has it.
async fn define(shared: &Rc<Shared>, client: &mut Talker) -> anyhow::Result<()> {
    let http = talk::Http {
        method: http::Method::POST,
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        kind: "application/json",
        body: Some(object::definition()),
    };
    let (code, told) = client.send(&http).await.map_err(anyhow::Error::msg)?;
    anyhow::ensure!(code == 201, "no definition: {code} {told}");
    for replica in 0..shared.configs.len() {
        client.replica = replica;
        let until = Instant::now() + END_PATIENCE;
        let http = talk::Http::get(object::path(THINGS, None));
        while !matches!(client.send(&http).await, Ok((200, _))) {
            anyhow::ensure!(Instant::now() < until, "a{replica} does not serve {THINGS}");
            tokio::time::sleep(CONVERGE_POLL).await;
        }
    }
    Ok(())
}

/// Makes what clients take for granted.
async fn setup(shared: &Rc<Shared>, seed: u64) -> anyhow::Result<()> {
    let mut client = Talker::new(shared, seed)?;
    for name in NAMESPACES {
        let http = talk::Http {
            method: http::Method::POST,
            path: "/api/v1/namespaces".to_owned(),
            kind: "application/json",
            body: Some(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            })),
        };
        let (code, told) = client.send(&http).await.map_err(anyhow::Error::msg)?;
        anyhow::ensure!(code == 201, "no namespace {name}: {code} {told}");
    }
    define(shared, &mut client).await?;
    for number in 0..COUNTERS {
        let key = write::counter(number);
        let data = json!({"by": &*client.token(), "n": "0"});
        let body = write::config_map(&key, None, data);
        let came = client.create(CONFIG_MAPS, &key, body).await;
        anyhow::ensure!(matches!(came, Came::Ok(_)), "no {key}: {came:?}");
    }
    Ok(())
}

type Clients = Vec<(&'static str, JoinHandle<()>)>;

fn workers(shared: &Rc<Shared>, seed: u64) -> anyhow::Result<Clients> {
    let mut clients = Clients::new();
    let next = || {
        let number = shared.world.count("client") + 1;
        Talker::new(shared, seed ^ (number << 32))
    };
    for _ in 0..WRITERS {
        clients.push(("a writer", spawn_local(write::run(next()?))));
    }
    for _ in 0..COUNTING {
        clients.push(("a counter", spawn_local(write::count(next()?))));
    }
    for _ in 0..READERS {
        clients.push(("a reader", spawn_local(read::run(next()?))));
    }
    clients.push(("who scales", spawn_local(scale::run(next()?))));
    Ok(clients)
}

fn watchers(shared: &Rc<Shared>, seed: u64) -> anyhow::Result<Clients> {
    let mut clients = Clients::new();
    for number in 0..WATCHERS {
        let own = seed ^ ((number as u64 + 1) << 48);
        let client = Talker::new(shared, own)?;
        clients.push(("a watcher", spawn_local(watch::run(client))));
    }
    Ok(clients)
}

async fn ended(clients: Clients, unfinished: &mut Vec<String>) -> anyhow::Result<()> {
    for (name, client) in clients {
        match tokio::time::timeout(2 * END_PATIENCE, client).await {
            Ok(ended) => ended?,
            Err(_elapsed) => unfinished.push(format!("{name} did not end")),
        }
    }
    Ok(())
}

/// Asks for compactions while the nemesis says so, of what everybody who keeps the log
/// has seen.
async fn compact(shared: Rc<Shared>, seed: u64) {
    let world = &shared.world;
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        tokio::time::sleep(COMPACT_EVERY).await;
        let members = world.members();
        if !world.compacting.get() || members.is_empty() {
            continue;
        }
        let member = members[rng.random_range(0..members.len())];
        let revision = world.seen_by_all() - rng.random_range(0..COMPACT_LEAVES);
        let Some(channel) = world.channel(member).filter(|_| revision > 0) else {
            continue;
        };
        let call = world.now();
        let request = pb::CompactionRequest {
            revision,
            physical: false,
        };
        let asked = async { KvClient::new(channel).compact(request).await };
        let came = match tokio::time::timeout(END_PATIENCE, asked).await {
            Ok(Ok(_)) => Came::Ok(Answer::default()),
            Ok(Err(status)) => Came::Unknown(status.message().into()),
            Err(elapsed) => Came::Unknown(elapsed.to_string().into()),
        };
        record(world, call, Ask::Compact(revision), came);
    }
}

fn record(world: &World, call: u64, ask: Ask, came: Came) {
    world.record(Record::Call(Call {
        process: world.process(),
        replica: 0,
        call,
        ret: world.now(),
        ask,
        came,
    }));
}

/// Brings everything to an end once all is healed: what was wished for is there, all
/// watches were told everything, all API servers list what the store has.
async fn close(
    shared: &Rc<Shared>,
    mut aftermath: Aftermath<Plane>,
    watchers: Clients,
    seed: u64,
    unfinished: &mut Vec<String>,
) -> anyhow::Result<Aftermath<Plane>> {
    if aftermath.lost.is_some() {
        return Ok(aftermath);
    }
    let mut client = Talker::new(shared, !seed)?;
    let until = Instant::now() + CONVERGE_PATIENCE;
    while let Err(why) = scale::unmet(&mut client).await {
        if Instant::now() > until {
            unfinished.push(format!("controllers did not get there: {why}"));
            break;
        }
        tokio::time::sleep(CONVERGE_POLL).await;
    }
    aftermath = blocking(aftermath, Plane::stop_loops).await?;
    finish(shared, &mut client, unfinished).await;
    ended(watchers, unfinished).await?;
    compare(shared, &mut client, unfinished).await;
    aftermath = blocking(aftermath, Plane::stop).await?;
    settle(&shared.world, aftermath, unfinished).await
}

/// Does something that blocks on another thread.
async fn blocking(
    mut aftermath: Aftermath<Plane>,
    act: fn(&mut Plane) -> faults::Result<()>,
) -> anyhow::Result<Aftermath<Plane>> {
    let done = tokio::task::spawn_blocking(move || {
        let done = act(&mut aftermath.upper);
        (aftermath, done)
    });
    let (aftermath, done) = done.await?;
    done?;
    Ok(aftermath)
}

/// Says up to where all watches have to be told everything, and then writes something
/// into each scope, so that there is something to be told.
async fn finish(shared: &Rc<Shared>, client: &mut Talker, unfinished: &mut Vec<String>) {
    let scope = of(CONFIG_MAPS);
    let until = Instant::now() + END_PATIENCE;
    let last = loop {
        match client.list(&scope, Read::Fresh).await {
            Came::Ok(answer) => break answer.rv,
            other if Instant::now() > until => {
                return unfinished.push(format!("no list at the end: {other:?}"));
            }
            _ => {}
        }
    };
    shared.finish.set(Some(last));
    for namespace in NAMESPACES {
        for label in LABELS {
            let key = format!("{namespace}/last-{label}");
            let data = json!({"by": &*client.token()});
            let body = write::config_map(&key, Some(label), data);
            let came = client.create(CONFIG_MAPS, &key, body).await;
            if !matches!(came, Came::Ok(_)) {
                unfinished.push(format!("{key} was not made at the end: {came:?}"));
            }
        }
    }
}

fn of(resource: &str) -> Scope {
    Scope {
        resource: resource.into(),
        ..Scope::default()
    }
}

/// Lists everything through every API server, and from the store itself.
async fn compare(shared: &Rc<Shared>, client: &mut Talker, unfinished: &mut Vec<String>) {
    for resource in [CONFIG_MAPS, THINGS, DEPLOYMENTS, REPLICA_SETS, PODS] {
        for replica in 0..shared.configs.len() {
            client.replica = replica;
            let came = client.list(&of(resource), Read::Fresh).await;
            if !matches!(came, Came::Ok(_)) {
                unfinished.push(format!("a{replica} does not list {resource}: {came:?}"));
            }
        }
        let world = &shared.world;
        let call = world.now();
        match dump(world, resource).await {
            Ok(answer) => record(world, call, Ask::Dump(resource.into()), Came::Ok(answer)),
            Err(why) => unfinished.push(format!("the store does not list {resource}: {why}")),
        }
    }
}

/// Reads all of a resource from the store.
async fn dump(world: &World, resource: &str) -> anyhow::Result<Answer> {
    let member = world.members().first().copied();
    let channel = member.and_then(|at| world.channel(at));
    let channel = channel.context("there are no members")?;
    let prefix = format!("{}{resource}/", checkers::history::ROOT);
    let end = checkers::history::Blob::from(&*prefix).prefix_end();
    let request = pb::RangeRequest {
        key: prefix.clone().into(),
        range_end: end.0,
        ..pb::RangeRequest::default()
    };
    let mut store = KvClient::new(channel);
    let told = store.range(request);
    let told = tokio::time::timeout(END_PATIENCE, told)
        .await??
        .into_inner();
    let mut answer = Answer {
        rv: told.header.map_or(0, |header| header.revision),
        ..Answer::default()
    };
    for kv in told.kvs {
        let key = String::from_utf8_lossy(&kv.key);
        answer.objects.push(checkers::history::Seen {
            key: key.strip_prefix(&prefix).unwrap_or(&key).into(),
            rv: kv.mod_revision,
            content: serde_json::from_slice(&object::digest(&kv.key, kv.value))?,
        });
    }
    Ok(answer)
}
