//! The scheduler: one queue of what happens when, one thing at a time.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use disk::PowerCut;
use kvserver::sim::{Ended, Node, Shipment};

use crate::{
    client::Clients,
    host::{Excuse, Host, Incarnation},
    network::Network,
    panics,
    plan::{Kind, Plan, Time},
    rng::Rng,
    trace::Trace,
    truth::Shared,
};

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    Tick(usize, Incarnation),
    Turn(usize, Incarnation),
    Log(usize, Incarnation),
    Rows(usize, Incarnation),
    Spare(usize, Incarnation),
    /// A frame arrives.
    Deliver {
        from: u64,
        to: usize,
        frame: Bytes,
    },
    /// A snapshot arrives, or as much of it as did.
    Ship {
        from: (usize, Incarnation),
        to: usize,
        shipment: Rc<Shipment>,
        frames: usize,
    },
    /// The sender of a snapshot hears how it ended.
    Shipped {
        to: (usize, Incarnation),
        peer: u64,
        ok: bool,
    },
    /// A link is up.
    Linked {
        host: usize,
        incarnation: Incarnation,
        peer: u64,
    },
    Think(usize),
    Arrive(usize),
    Answer(usize),
    GiveUp(usize),
    Watch(usize),
    Boot(usize),
    Strike(Kind),
    /// What a partition cut is open again.
    Open(Vec<(u64, u64)>),
    /// A machine is well again.
    Mend(usize, Incarnation),
    /// The administrators do the next step.
    Administer,
}

/// A run.
pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    sequence: u64,
    queue: BTreeMap<(Time, u64), Event>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    pub(crate) truth: Shared,
    pub(crate) trace: Trace,
    /// Chance for what the members and their machines do.
    pub(crate) rng: Rng,
    /// Chance for faults.
    pub(crate) faults: Rng,
    pub(crate) clients: Clients,
    /// Faults so far, by kind.
    pub(crate) struck: BTreeMap<Kind, u64>,
    /// Whether faults are over.
    pub(crate) healed: bool,
    /// Whether clients ask nothing more.
    pub(crate) quiet: bool,
    pub(crate) admin: crate::admin::Admin,
    /// Things that happened so far.
    pub(crate) steps: u64,
    /// What the checkers of histories looked at, by their names.
    pub(crate) judged: BTreeMap<&'static str, u64>,
}

impl Sim {
    /// Arranges for something to happen.
    pub(crate) fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.queue
            .insert((time.max(self.now), self.sequence), event);
    }

    /// Arranges for something to happen after a while.
    pub(crate) fn after(&mut self, time: Time, event: Event) {
        self.at(self.now + time, event);
    }

    /// Notes a fault.
    pub(crate) fn strike(&mut self, kind: Kind) {
        *self.struck.entry(kind).or_default() += 1;
    }

    /// Begins a run: its members are about to start.
    pub(crate) fn new(plan: Plan, lines: bool, whole: bool) -> Self {
        let first: Vec<_> = (1..=plan.nodes)
            .map(|id| kvserver::sim::member_info(id, false))
            .collect();
        let hosts = (1..=plan.nodes).map(|id| Host::new(id, first.clone(), Vec::new()));
        let mut sim = Self {
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            hosts: hosts.collect(),
            network: Network::new(&plan),
            truth: Shared::default(),
            trace: Trace::new(lines, whole),
            rng: Rng::new(plan.seed, 4),
            faults: Rng::new(plan.seed, 5),
            clients: Clients::new(&plan),
            struck: BTreeMap::new(),
            healed: false,
            quiet: false,
            admin: crate::admin::Admin::default(),
            steps: 0,
            judged: BTreeMap::new(),
            plan,
        };
        for host in 0..sim.hosts.len() {
            sim.settle_machine(host);
            sim.at(0, Event::Boot(host));
        }
        sim.begin_clients();
        sim.begin_faults();
        sim
    }

    /// Runs until a time, or until something did not hold.
    pub(crate) fn run_until(&mut self, end: Time) {
        while self.truth.get().violations().is_empty() {
            let Some(next) = self.queue.first_entry() else {
                break;
            };
            if next.key().0 >= end {
                break;
            }
            let ((time, sequence), event) = next.remove_entry();
            self.now = time;
            self.steps += 1;
            self.trace.mix(time ^ sequence.rotate_left(32));
            self.truth.get().set_now(time);
            self.happen(event);
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(host, is) => self.tick(host, is),
            Event::Turn(host, is) => self.work(
                host,
                is,
                |sim, host| {
                    sim.hosts[host].arranged.turn = false;
                    sim.drive(host, Node::turn);
                },
                Event::Turn,
            ),
            Event::Log(host, is) => self.work(
                host,
                is,
                |sim, host| {
                    sim.hosts[host].arranged.log = false;
                    sim.drive(host, Node::work_log);
                },
                Event::Log,
            ),
            Event::Rows(host, is) => self.work(
                host,
                is,
                |sim, host| {
                    sim.hosts[host].arranged.rows = false;
                    sim.drive(host, Node::work_rows);
                },
                Event::Rows,
            ),
            Event::Spare(host, is) => self.work(
                host,
                is,
                |sim, host| {
                    sim.hosts[host].arranged.spare = false;
                    sim.drive(host, Node::work_spare);
                },
                Event::Spare,
            ),
            Event::Deliver { from, to, frame } => self.deliver(from, to, frame),
            Event::Ship {
                from,
                to,
                shipment,
                frames,
            } => self.ship(from, to, shipment, frames),
            Event::Shipped {
                to: (host, is),
                peer,
                ok,
            } => {
                if self.hosts[host].incarnation == is {
                    self.drive(host, |node| node.shipped(peer, ok));
                }
            }
            Event::Linked {
                host,
                incarnation,
                peer,
            } => {
                let is = self.hosts[host].incarnation == incarnation;
                if is && !self.calls_in_vain(host, peer) {
                    self.drive(host, |node| node.linked(peer));
                }
            }
            other => self.happen_outside(other),
        }
    }

    /// What happens to clients, administrators and machines.
    fn happen_outside(&mut self, event: Event) {
        match event {
            Event::Think(client) => self.think(client),
            Event::Arrive(op) => self.arrive(op),
            Event::Answer(op) => self.answer(op),
            Event::GiveUp(op) => self.give_up(op),
            Event::Watch(watcher) => self.watch(watcher),
            Event::Boot(host) => self.boot(host),
            Event::Strike(kind) => self.fault(kind),
            Event::Open(pairs) => self.open_links(&pairs),
            Event::Mend(host, is) => self.mend(host, is),
            Event::Administer => self.administer(),
            // All else happens to members.
            _ => {}
        }
    }

    /// Does something on a machine, now or when it moves again.
    fn work(
        &mut self,
        host: usize,
        is: Incarnation,
        work: impl FnOnce(&mut Self, usize),
        again: fn(usize, Incarnation) -> Event,
    ) {
        if self.hosts[host].incarnation != is {
            return;
        }
        match self.hosts[host].paused > self.now {
            true => self.at(self.hosts[host].paused, again(host, is)),
            false => work(self, host),
        }
    }

    fn tick(&mut self, host: usize, is: Incarnation) {
        self.work(
            host,
            is,
            |sim, host| {
                let period = sim.hosts[host].own(sim.plan.tuning.heartbeat);
                // Ticks come a little late, never early.
                let late = sim.rng.below(1_000);
                sim.after(period + late, Event::Tick(host, is));
                sim.drive(host, Node::tick);
            },
            Event::Tick,
        );
    }

    /// Runs something on a member, and sees to what comes of it.
    pub(crate) fn drive<T>(&mut self, host: usize, run: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let result = self.guard(host, run)?;
        self.settle(host);
        Some(result)
    }

    /// Runs something on a member; if that ends its process, it has ended.
    pub(crate) fn guard<T>(&mut self, host: usize, run: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let machine = &mut self.hosts[host];
        machine.set_clock(self.now);
        let node = machine.node.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| run(node))) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.broke(host, payload);
                None
            }
        }
    }

    /// Sees to the end of a process that ended itself, or lost power.
    pub(crate) fn broke(&mut self, host: usize, payload: Box<dyn Any + Send>) {
        let id = self.hosts[host].id;
        if payload.is::<PowerCut>() {
            self.strike(Kind::CutInside);
            self.power_cut(host, "inside an operation of its disk");
            return;
        }
        if let Some(Ended { what, why }) = payload.downcast_ref::<Ended>() {
            self.trace
                .line(self.now, || format!("m{id} ends itself: {what}: {why}"));
            match self.hosts[host].excuse {
                Some(excuse) => {
                    if excuse == Excuse::BitFlip {
                        self.hosts[host].gone = true;
                    }
                    self.stop(host);
                    self.boot_later(host);
                }
                None => {
                    let what = format!("member {id} ends itself for nothing: {what}: {why}");
                    self.truth.get().blame("crash", what);
                    self.stop(host);
                }
            }
            return;
        }
        let said = panics::said(&*payload);
        let what = format!("member {id} panicked: {said}");
        self.truth.get().blame("crash", what);
        self.stop(host);
    }

    /// Ends a process; its disk is as the process left it.
    pub(crate) fn stop(&mut self, host: usize) {
        let machine = &mut self.hosts[host];
        machine.incarnation += 1;
        machine.arranged = Default::default();
        machine.paused = 0;
        let decisions = std::mem::take(&mut machine.decisions);
        let (id, node) = (machine.id, machine.node.take());
        if let Some(node) = node {
            // What it drops must not end the simulation; it may be half-way through.
            let _ended = catch_unwind(AssertUnwindSafe(|| node.end()));
        }
        for (from, is, _) in decisions {
            let to = (from, is);
            let after = self.network.latency();
            self.after(
                after,
                Event::Shipped {
                    to,
                    peer: id,
                    ok: false,
                },
            );
        }
        self.disconnect(host);
    }

    /// Arranges for everything that a member wants done.
    pub(crate) fn settle(&mut self, host: usize) {
        if !self.hosts[host].is_up() {
            return;
        }
        self.poll_work(host);
        let machine = &mut self.hosts[host];
        let is = machine.incarnation;
        let (disk, turn) = (machine.disk_latency, machine.turn_latency);
        let Some(node) = machine.node.as_mut() else {
            return;
        };
        let (outgoing, shipments) = (node.outgoing(), node.shipments());
        let arranged = machine.arranged;
        let turns = node.woken() && !arranged.turn;
        let logs = node.log_waits() && !arranged.log;
        let rows = node.rows_wait() && !arranged.rows;
        let spares = node.spare_waits() && !arranged.spare;
        let standing = node.standing();
        let removed = node.removed();
        machine.arranged.turn |= turns;
        machine.arranged.log |= logs;
        machine.arranged.rows |= rows;
        machine.arranged.spare |= spares;
        if turns {
            let after = self.rng.between(5, turn);
            self.after(after, Event::Turn(host, is));
        }
        if logs {
            let after = self.rng.between(100, disk);
            self.after(after, Event::Log(host, is));
        }
        if rows {
            let after = self.rng.between(100, disk * 4);
            self.after(after, Event::Rows(host, is));
        }
        if spares {
            let after = self.rng.between(100, disk * 4);
            self.after(after, Event::Spare(host, is));
        }
        let id = self.hosts[host].id;
        if standing.leads {
            self.truth.get().leads(id, standing.term);
        }
        for (to, frame) in outgoing {
            self.send(host, to, frame);
        }
        for shipment in shipments {
            self.send_snapshot(host, shipment);
        }
        self.hear_decisions(host);
        self.poll_watchers(host);
        if removed {
            self.trace
                .line(self.now, || format!("m{id} was removed, it stops"));
            self.hosts[host].gone = true;
            self.stop(host);
        }
    }

    pub(crate) fn host_of(&self, member: u64) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == member)
    }

    fn send(&mut self, host: usize, to: u64, frame: Bytes) {
        let from = self.hosts[host].id;
        self.trace.mix(from << 32 | to);
        self.trace.mix_bytes(&frame);
        let Some(target) = self.host_of(to) else {
            return;
        };
        let fate = self.network.send(from, to, self.now);
        for kind in &fate.met {
            self.strike(*kind);
        }
        let lost = fate.arrivals.is_empty() || !self.hosts[target].is_up();
        // A link notices some time that what it sent was lost.
        if lost
            && self.rng.chance(200_000)
            && let Some(node) = &self.hosts[host].node
        {
            node.unreachable(to);
        }
        for at in fate.arrivals {
            let frame = frame.clone();
            self.at(
                at,
                Event::Deliver {
                    from,
                    to: target,
                    frame,
                },
            );
        }
    }

    fn deliver(&mut self, from: u64, to: usize, frame: Bytes) {
        if self.hosts[to].paused > self.now {
            let at = self.hosts[to].paused;
            self.at(at, Event::Deliver { from, to, frame });
            return;
        }
        let Some(node) = &self.hosts[to].node else {
            return;
        };
        if node.links().knows_removed(from) {
            if let Some(sender) = self.host_of(from) {
                self.hears_of_removal(sender);
            }
            return;
        }
        let read = self.drive(to, |node| node.deliver(from, frame));
        if read == Some(false) {
            let what = format!("member {from} sent a frame that cannot be read");
            self.truth.get().blame("frames", what);
        }
    }

    /// A member that calls a peer hears if it was removed (etcd: ErrMemberRemoved).
    pub(crate) fn calls_in_vain(&mut self, host: usize, peer: u64) -> bool {
        let id = self.hosts[host].id;
        let called = self.host_of(peer).and_then(|peer| {
            let cut = self.network.is_cut(id, self.hosts[peer].id);
            self.hosts[peer].node.as_ref().filter(|_| !cut)
        });
        let removed = called.is_some_and(|node| node.links().knows_removed(id));
        if removed {
            self.hears_of_removal(host);
        }
        removed
    }

    fn hears_of_removal(&mut self, host: usize) {
        if self.hosts[host].is_up() {
            let id = self.hosts[host].id;
            self.trace
                .line(self.now, || format!("m{id} hears that it was removed"));
            self.hosts[host].gone = true;
            self.stop(host);
        }
    }
}

/// Wakes what waits for a future that is polled by hand.
pub(crate) fn waker(flag: &Arc<crate::ops::Flag>) -> std::task::Waker {
    std::task::Waker::from(Arc::clone(flag))
}
