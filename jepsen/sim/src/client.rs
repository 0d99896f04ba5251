//! Clients: each asks one thing at a time, of any member, and never asks twice.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};

use kvserver::{RpcError, sim};

use crate::{
    history::Stream,
    judge,
    ops::{self, Answer, Ask, End, Flag, Generator, Op, Work},
    plan::{Kind, MS, Plan, SECOND, Time},
    rng::Rng,
    sim::{Event, Sim, waker},
    trace,
    truth::describe,
    watching::{Live, Then, Watcher},
};

/// How long a client waits for an answer, at most.
const PATIENCE: Time = 4 * SECOND;

/// Most replies of a watch looked at in one go; the rest come with the next look.
const REPLIES_MAX: usize = 100;

/// A request that a member works on.
struct Running {
    host: usize,
    work: Work,
    flag: Arc<Flag>,
}

/// A lease as its client knows it.
#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl: Time,
    /// When the last request was made that was answered with the whole time.
    renewed: Time,
    /// Whether a client asked for its end.
    given_up: bool,
}

/// All clients.
pub(crate) struct Clients {
    pub(crate) rng: Rng,
    pub(crate) generator: Generator,
    pub(crate) ops: Vec<Op>,
    /// The request that each client waits for.
    waits: Vec<Option<usize>>,
    running: BTreeMap<usize, Running>,
    /// Answers on their way.
    answers: BTreeMap<usize, Result<Answer, RpcError>>,
    pub(crate) watchers: Vec<Watcher>,
    /// Every stream they were served by, and what came by it.
    pub(crate) streams: Vec<Stream>,
    /// The newest revision anybody has seen.
    pub(crate) known: i64,
    leases: BTreeMap<i64, Lease>,
    /// How many requests were answered well.
    pub(crate) answered: u64,
}

impl Clients {
    /// Makes those of a plan.
    pub(crate) fn new(plan: &Plan) -> Self {
        let compacts = plan.rate(Kind::Compact) > 0;
        Self {
            rng: Rng::new(plan.seed, 6),
            generator: Generator::new(plan.seed, plan.keys, compacts),
            ops: Vec::new(),
            waits: vec![None; plan.clients],
            running: BTreeMap::new(),
            answers: BTreeMap::new(),
            watchers: Vec::new(),
            streams: Vec::new(),
            known: 1,
            leases: BTreeMap::new(),
            answered: 0,
        }
    }
}

impl Sim {
    /// Lets the clients begin.
    pub(crate) fn begin_clients(&mut self) {
        for client in 0..self.plan.clients {
            let after = self.rng.between(0, 300 * MS);
            self.after(after, Event::Think(client));
        }
        for number in 0..self.plan.watchers {
            let (mut key, mut end) = self.clients.generator.range_of_keys();
            if number == 0 {
                // One hears everything, from the beginning.
                (key, end) = (b"\0"[..].into(), b"\0"[..].into());
            }
            let rng = &mut self.clients.rng;
            let filter = if number == 0 { 9 } else { rng.below(8) };
            let watcher = Watcher {
                key,
                end,
                puts: filter != 1,
                deletes: filter != 2,
                prev_kv: rng.coin(),
                next: (number == 0 || rng.coin()).then_some(1),
                host: 0,
                stream: None,
                heard: 0,
                recorded: 0,
            };
            self.clients.watchers.push(watcher);
            let after = self.rng.between(0, 500 * MS);
            self.after(after, Event::Watch(number));
        }
    }

    /// A client thinks of something to ask.
    pub(crate) fn think(&mut self, client: usize) {
        if self.quiet {
            return;
        }
        let known = self.clients.known;
        let ask = self.clients.generator.draw(known);
        let host = self.clients.rng.below(self.hosts.len() as u64) as usize;
        // Only the leader renews; members pass such a request on to it.
        let host = match &ask {
            Ask::Renew(_) => self.leader_known_to(host),
            _ => host,
        };
        let op = self.invoke(client, ask, host);
        self.clients.waits[client] = Some(op);
        let patience = self.clients.rng.between(PATIENCE / 4, PATIENCE);
        self.after(patience, Event::GiveUp(op));
    }

    /// Asks something of a machine.
    pub(crate) fn invoke(&mut self, client: usize, ask: Ask, host: usize) -> usize {
        let op = self.clients.ops.len();
        if let Ask::Revoke(revoke) = &ask
            && let Some(lease) = self.clients.leases.get_mut(&revoke.id)
        {
            lease.given_up = true;
        }
        self.trace.line(self.now, || {
            format!("c{client} asks m{} #{op} {ask:?}", self.hosts[host].id)
        });
        self.clients.ops.push(Op {
            client,
            ask,
            host,
            invoked: self.now,
            floor: self.clients.known,
            ended: None,
        });
        let after = self.network.latency();
        self.after(after, Event::Arrive(op));
        op
    }

    fn leader_known_to(&self, host: usize) -> usize {
        let leader = match &self.hosts[host].node {
            Some(node) => node.standing().leader,
            None => 0,
        };
        let found = self.hosts.iter().position(|host| host.id == leader);
        found.unwrap_or(host)
    }

    /// A request arrives.
    pub(crate) fn arrive(&mut self, op: usize) {
        let host = self.clients.ops[op].host;
        let machine = &self.hosts[host];
        if machine.paused > self.now {
            self.at(machine.paused, Event::Arrive(op));
            return;
        }
        let Some(node) = &machine.node else {
            let refused = RpcError {
                code: 9,
                message: "connection refused".to_owned(),
            };
            self.reply(op, Err(refused));
            return;
        };
        machine.set_clock(self.now);
        let flag = Arc::new(Flag::default());
        let work = Box::pin(ops::ask(node.handle(), self.clients.ops[op].ask.clone()));
        waker(&flag).wake();
        self.clients
            .running
            .insert(op, Running { host, work, flag });
        self.settle(host);
    }

    fn reply(&mut self, op: usize, result: Result<Answer, RpcError>) {
        // Answers are lost as messages are.
        let lost = !self.healed && self.rng.chance(self.plan.rate(Kind::Loss) / 10);
        if lost {
            self.strike(Kind::Loss);
            return;
        }
        self.clients.answers.insert(op, result);
        let after = self.network.latency();
        self.after(after, Event::Answer(op));
    }

    /// Goes on with the requests that a member works on.
    pub(crate) fn poll_work(&mut self, host: usize) {
        let running = &self.clients.running;
        let here = running.iter().filter(|(_, running)| running.host == host);
        let woken = here.filter(|(_, running)| running.flag.take());
        let woken: Vec<usize> = woken.map(|(op, _)| *op).collect();
        for op in woken {
            let Some(mut running) = self.clients.running.remove(&op) else {
                continue;
            };
            self.hosts[host].set_clock(self.now);
            let waker = waker(&running.flag);
            let polled = catch_unwind(AssertUnwindSafe(|| {
                sim::poll_once(&mut running.work, &waker)
            }));
            match polled {
                Ok(Poll::Ready(result)) => self.reply(op, result),
                Ok(Poll::Pending) => {
                    self.clients.running.insert(op, running);
                }
                Err(payload) => {
                    self.broke(host, payload);
                    return;
                }
            }
        }
    }

    /// An answer arrives.
    pub(crate) fn answer(&mut self, op: usize) {
        let Some(result) = self.clients.answers.remove(&op) else {
            return;
        };
        let asked = &self.clients.ops[op];
        if asked.ended.is_some() {
            return;
        }
        let end = match result {
            Ok(answer) => End::Ok(answer),
            Err(error) => ops::sort(&asked.ask, error),
        };
        self.end_op(op, end);
    }

    fn end_op(&mut self, op: usize, end: End) {
        self.trace.line(self.now, || format!("#{op} {end:?}"));
        let asked = &self.clients.ops[op];
        let judged = {
            let truth = self.truth.get();
            match &end {
                End::Ok(answer) => judge::judge(&truth, asked, answer),
                End::Fail(error) => judge::judge_error(&truth, asked, error),
                End::Info => Ok(()),
            }
        };
        if let Err(why) = judged {
            let what = format!(
                "#{op} of client {} to m{} {:?}: {why}",
                asked.client, self.hosts[asked.host].id, asked.ask
            );
            self.truth.get().blame("witness", what);
        }
        if let End::Ok(answer) = &end {
            self.clients.answered += 1;
            let revision = judge::revision_of(answer);
            self.trace.mix(revision as u64);
            self.clients.known = self.clients.known.max(revision);
            self.note_lease(op, answer);
            if matches!(answer, Answer::Compact(_)) {
                self.strike(Kind::Compact);
            }
        }
        self.trace.mix(trace::hash(&(op as u64).to_le_bytes()));
        self.clients.ops[op].ended = Some((self.now, end));
        let client = self.clients.ops[op].client;
        if self.clients.waits.get(client) == Some(&Some(op)) {
            self.clients.waits[client] = None;
            let think = self.plan.think;
            let after = self.clients.rng.between(100, think);
            self.after(after, Event::Think(client));
        }
        self.admin_heard(op);
    }

    fn note_lease(&mut self, op: usize, answer: &Answer) {
        let invoked = self.clients.ops[op].invoked;
        let clients = &mut self.clients;
        match (&clients.ops[op].ask, answer) {
            (_, Answer::Grant(grant)) => {
                let lease = Lease {
                    ttl: grant.ttl as Time * SECOND,
                    renewed: invoked,
                    given_up: false,
                };
                clients.leases.insert(grant.id, lease);
                clients.generator.live_leases.push(grant.id);
            }
            (Ask::Renew(id), Answer::Renewed(ttl)) => {
                if *ttl > 0
                    && let Some(lease) = clients.leases.get_mut(id)
                {
                    lease.renewed = lease.renewed.max(invoked);
                }
                if *ttl == 0 {
                    clients.generator.live_leases.retain(|live| live != id);
                }
            }
            _ => {}
        }
    }

    /// Checks that no lease was over before its time: nobody's clock runs faster than
    /// by as much as is known.
    pub(crate) fn check_leases(&mut self) {
        let fastest = self.hosts.iter().map(|host| host.speed).max();
        let fastest = fastest.unwrap_or(1_000).max(1_000);
        let mut truth = self.truth.get();
        let mut early = Vec::new();
        for (id, lease) in &self.clients.leases {
            let Some(revoked) = truth.revoked(*id).filter(|_| !lease.given_up) else {
                continue;
            };
            let due = lease.renewed + lease.ttl * 1_000 / fastest;
            // What was asked for after its end was answered before it was known.
            if revoked < due && revoked >= lease.renewed {
                early.push(format!(
                    "lease {id} was revoked at {:.3} s, it was promised until {:.3} s",
                    revoked as f64 / SECOND as f64,
                    due as f64 / SECOND as f64
                ));
            }
        }
        for what in early {
            truth.blame("lease", what);
        }
    }

    /// A client has waited long enough.
    pub(crate) fn give_up(&mut self, op: usize) {
        if self.clients.ops[op].ended.is_some() {
            return;
        }
        // Half of the clients hang up, and the member stops working on it.
        if self.clients.rng.coin() {
            self.clients.running.remove(&op);
        }
        let end = End::Info;
        self.end_op(op, end);
    }

    /// Everybody connected to a machine hears that the connection is over.
    pub(crate) fn disconnect(&mut self, host: usize) {
        let running = &self.clients.running;
        let here = running.iter().filter(|(_, running)| running.host == host);
        let broken: Vec<usize> = here.map(|(op, _)| *op).collect();
        for op in broken {
            self.clients.running.remove(&op);
            let reset = RpcError {
                code: 14,
                message: "connection reset".to_owned(),
            };
            self.reply(op, Err(reset));
        }
        for number in 0..self.clients.watchers.len() {
            let watcher = &mut self.clients.watchers[number];
            if watcher.host == host && watcher.stream.take().is_some() {
                let after = self.rng.between(MS, 300 * MS);
                self.after(after, Event::Watch(number));
            }
        }
    }

    /// A client that watches looks for a member to watch by.
    pub(crate) fn watch(&mut self, number: usize) {
        if self.clients.watchers[number].stream.is_some() {
            return;
        }
        let host = self.clients.rng.below(self.hosts.len() as u64) as usize;
        let machine = &self.hosts[host];
        let there = machine.node.as_ref().filter(|node| {
            // One that was sent nothing yet does not serve.
            let member = node.with_machine(|m| m.membership().get(machine.id).is_some());
            machine.paused <= self.now && member == Some(true)
        });
        let Some(node) = there else {
            self.after(100 * MS, Event::Watch(number));
            return;
        };
        machine.set_clock(self.now);
        let watcher = &mut self.clients.watchers[number];
        let create = watcher.create(watcher.next.unwrap_or(0));
        let stream = node.handle().watch(create.clone());
        let flag = Arc::new(Flag::default());
        waker(&flag).wake();
        watcher.stream = Some(Live { stream, flag });
        watcher.host = host;
        self.clients.streams.push(Stream {
            watcher: number,
            member: machine.id,
            opened: self.now,
            create,
            told: Vec::new(),
        });
        watcher.recorded = self.clients.streams.len() - 1;
        let (id, next) = (machine.id, watcher.next);
        self.trace.line(self.now, || {
            format!("w{number} watches by m{id} from {next:?}")
        });
        self.settle(host);
    }

    /// Clients that watch read what a member has for them.
    pub(crate) fn poll_watchers(&mut self, host: usize) {
        for number in 0..self.clients.watchers.len() {
            let watcher = &self.clients.watchers[number];
            let live = watcher.stream.as_ref().filter(|_| watcher.host == host);
            if live.is_some_and(|live| live.flag.take()) {
                self.hosts[host].set_clock(self.now);
                self.read_watch(number, host);
            }
        }
    }

    fn read_watch(&mut self, number: usize, host: usize) {
        for _ in 0..REPLIES_MAX {
            let watcher = &mut self.clients.watchers[number];
            let polled = catch_unwind(AssertUnwindSafe(|| watcher.poll()));
            let reply = match polled {
                Ok(None) => return,
                Ok(Some(reply)) => reply,
                Err(payload) => {
                    self.broke(host, payload);
                    return;
                }
            };
            let Some(reply) = reply else {
                watcher.stream = None;
                let after = self.rng.between(MS, 100 * MS);
                self.after(after, Event::Watch(number));
                return;
            };
            let id = self.hosts[host].id;
            self.trace.line(self.now, || {
                let events = describe(&reply.events);
                let (revision, created) = (reply.revision, reply.created);
                let ended = reply.canceled;
                format!("w{number} hears of m{id}: {events} at {revision} created {created} ended {ended}")
            });
            self.trace
                .mix(reply.revision as u64 ^ (number as u64) << 48);
            let taken = watcher.take(&self.truth.get(), &reply);
            self.clients.known = self.clients.known.max(reply.revision);
            if let Some(stream) = self.clients.streams.get_mut(watcher.recorded) {
                stream.told.push((self.now, reply));
            }
            match taken {
                Ok(Then::On) => {}
                Ok(Then::Over) => {
                    watcher.stream = None;
                    self.after(MS, Event::Watch(number));
                    return;
                }
                Err(why) => {
                    let what = format!("watcher {number} of m{id}: {why}");
                    self.truth.get().blame("watch", what);
                    return;
                }
            }
        }
        // There may be more: it looks again with the next thing that happens here.
        if let Some(live) = &self.clients.watchers[number].stream {
            waker(&live.flag).wake_by_ref();
        }
    }
}
