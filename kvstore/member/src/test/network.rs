//! A network that loses, repeats, delays and cuts, all from one seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;

use super::{checks::Checks, machine::Machine, node::Node};
use crate::{ConfState, Input, Proposal, Role, decode_message, rng::Rng};

/// Milliseconds between two ticks of a member.
const TICK: u64 = 10;

/// What members send each other.
#[derive(Clone, Debug)]
pub(super) enum Note {
    Raft(Bytes),
    Forward(Proposal),
    ReadAsk(u64),
    ReadAnswer(u64, Option<u64>),
    Snapshot(Bytes, Box<Machine>),
    /// How the sending of a snapshot to this peer ended, for the member of this boot.
    SnapshotSent(u64, bool, u64),
}

/// How bad it is, in chances of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) loss: usize,
    pub(super) repeat: usize,
    pub(super) delay: usize,
    /// Chance that a member syncs its disk in a millisecond.
    pub(super) sync: usize,
}

pub(super) const CALM: Weather = Weather {
    loss: 0,
    repeat: 0,
    delay: 0,
    sync: 700,
};

pub(super) struct Network {
    pub(super) rng: Rng,
    pub(super) nodes: BTreeMap<u64, Node>,
    /// By time and order of sending: from, to, what.
    flying: BTreeMap<(u64, u64), (u64, u64, Note)>,
    sent: u64,
    pub(super) now: u64,
    pub(super) weather: Weather,
    /// Ways that are cut: from, to.
    pub(super) cut: BTreeSet<(u64, u64)>,
    pub(super) checks: Checks,
    next_proposal: u64,
}

impl Network {
    pub(super) fn new(seed: u64, voters: &[u64]) -> Self {
        let conf = ConfState::of_voters(voters.iter().copied());
        let nodes = voters.iter().map(|id| (*id, Node::new(*id, conf.clone())));
        Self {
            rng: Rng::new(seed),
            nodes: nodes.collect(),
            flying: BTreeMap::new(),
            sent: 0,
            now: 0,
            weather: CALM,
            cut: BTreeSet::new(),
            checks: Checks::default(),
            next_proposal: 1,
        }
    }

    pub(super) fn chance(&mut self, of_thousand: usize) -> bool {
        self.rng.draw(0, 1_000) < of_thousand
    }

    /// Chooses one of some.
    pub(super) fn one_of(&mut self, ids: &[u64]) -> Option<u64> {
        (!ids.is_empty()).then(|| ids[self.rng.draw(0, ids.len())])
    }

    pub(super) fn up(&self) -> Vec<u64> {
        let up = self.nodes.values().filter(|node| node.member.is_some());
        up.map(|node| node.id).collect()
    }

    pub(super) fn down(&self) -> Vec<u64> {
        let down = self
            .nodes
            .values()
            .filter(|node| node.member.is_none() && !node.removed);
        down.map(|node| node.id).collect()
    }

    /// Returns the leader of the highest term, if one leads.
    pub(super) fn leader(&self) -> Option<u64> {
        let members = self
            .nodes
            .values()
            .filter_map(|node| Some((node.id, node.member.as_ref()?)));
        members
            .filter(|(_, member)| member.standing().role == Role::Leader)
            .max_by_key(|(_, member)| member.standing().term)
            .map(|(id, _)| id)
    }

    /// Lets a millisecond pass.
    pub(super) fn pass(&mut self) {
        self.now += 1;
        while let Some(first) = self.flying.first_entry()
            && first.key().0 <= self.now
        {
            let (from, to, note) = first.remove();
            self.deliver(from, to, note);
        }
        for id in self.up() {
            if (self.now + id * 3).is_multiple_of(TICK) {
                self.give(id, Input::Tick);
            }
            if self.chance(self.weather.sync) {
                let unsynced = self.nodes[&id].unsynced();
                let count = self.rng.draw(0, unsynced + 2);
                if let Some(report) = self.nodes.get_mut(&id).and_then(|node| node.sync(count)) {
                    self.give(id, report);
                }
            }
            if self.chance(20)
                && let Some(covered) = self.nodes.get_mut(&id).and_then(Node::write_back)
            {
                self.give(id, covered);
            }
            if self.chance(5) {
                self.offer_again(id);
            }
        }
    }

    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.pass();
        }
    }

    /// Runs until something holds; a test fails if it takes too long.
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = self.now + 5_000;
        while !holds(self) {
            assert!(self.now < deadline, "in vain: {what}\n{}", self.describe());
            self.pass();
        }
    }

    /// Says where everybody stands, for whoever has to find out why.
    fn describe(&self) -> String {
        let mut text = format!("seen {:?}\n", self.checks.seen);
        for node in self.nodes.values() {
            let member = node.member.as_ref().map(|member| {
                let log = &member.raw.raft.raft_log;
                let log = (log.applied, log.committed, log.persisted, log.last_index());
                (member.standing(), member.peers(), log, &node.machine.conf)
            });
            let waits = node.waiting.len();
            text += &format!("{}: waiting {waits}, {member:?}\n", node.id);
        }
        text
    }

    pub(super) fn give(&mut self, id: u64, input: Input) {
        self.give_with(id, input, None);
    }

    fn give_with(&mut self, id: u64, input: Input, snapshot: Option<Machine>) {
        let now = Duration::from_millis(self.now);
        let (mut input, mut snapshot) = (input, snapshot);
        loop {
            let Some(node) = self.nodes.get_mut(&id) else {
                return;
            };
            let out = node.step(input, snapshot.take(), now, &mut self.checks);
            let crashes = node.crash_after == Some(0);
            let wants = node.member.as_ref().is_some_and(crate::Member::wants_turn);
            for (to, note) in out {
                self.send(id, to, note);
            }
            if crashes {
                self.crash(id);
                return;
            }
            let node = self.nodes.get_mut(&id).unwrap();
            if node.removed {
                node.member = None;
                node.waiting.clear();
                self.checks.forget_reads(id);
                return;
            }
            if !wants {
                return;
            }
            input = Input::Turn;
        }
    }

    pub(super) fn crash(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.crash(&mut self.rng, &mut self.checks);
        }
    }

    pub(super) fn send(&mut self, from: u64, to: u64, note: Note) {
        let local = matches!(note, Note::SnapshotSent(..)) || from == to;
        let lost = !local && (self.cut.contains(&(from, to)) || self.chance(self.weather.loss));
        if lost {
            if let Note::Snapshot(..) = note {
                let boot = self.nodes[&from].boot;
                self.send(from, from, Note::SnapshotSent(to, false, boot));
            } else if self.chance(300) {
                self.give(from, Input::Unreachable(to));
            }
            return;
        }
        if self.chance(self.weather.repeat) && !local {
            self.fly(from, to, note.clone());
        }
        self.fly(from, to, note);
    }

    fn fly(&mut self, from: u64, to: u64, note: Note) {
        let slow = self.chance(self.weather.delay);
        let takes = self.rng.draw(1, if slow { 200 } else { 4 });
        self.sent += 1;
        let due = (self.now + takes as u64, self.sent);
        self.flying.insert(due, (from, to, note));
    }

    fn deliver(&mut self, from: u64, to: u64, note: Note) {
        let up = self
            .nodes
            .get(&to)
            .is_some_and(|node| node.member.is_some());
        match note {
            Note::Raft(bytes) if up => {
                let message = decode_message(bytes).unwrap();
                self.give(to, Input::Peer(Box::new(message)));
            }
            Note::Forward(proposal) if up => {
                self.give(to, Input::Propose(vec![proposal]));
            }
            Note::ReadAsk(attempt) => self.give(
                to,
                Input::ReadFor {
                    peer: from,
                    attempt,
                },
            ),
            Note::ReadAnswer(attempt, index) => self.give(to, Input::ReadAnswer { attempt, index }),
            Note::Snapshot(bytes, machine) => {
                if up {
                    let message = Box::new(decode_message(bytes).unwrap());
                    self.give_with(to, Input::Peer(message), Some(*machine));
                }
                if let Some(sender) = self.nodes.get(&from) {
                    let boot = sender.boot;
                    self.send(from, from, Note::SnapshotSent(to, up, boot));
                }
            }
            Note::SnapshotSent(peer, ok, boot) => {
                if self.nodes.get(&to).is_some_and(|node| node.boot == boot) {
                    self.give(to, Input::SnapshotSent { peer, ok });
                }
            }
            Note::Raft(_) | Note::Forward(_) => {}
        }
    }

    /// A client of this member proposes something.
    pub(super) fn propose(&mut self, at: u64) -> u64 {
        let id = self.next_id();
        let data = Bytes::copy_from_slice(&id.to_le_bytes());
        if let Some(node) = self.nodes.get_mut(&at)
            && node.member.is_some()
        {
            node.waiting.insert(id, data.clone());
            if let Some((to, note)) = node.offer(id, &data) {
                self.send(at, to, note);
            }
        }
        id
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.next_proposal += 1;
        self.next_proposal
    }

    /// Sends what has no answer yet again: a note to the leader may be lost.
    fn offer_again(&mut self, id: u64) {
        let node = &self.nodes[&id];
        let again: Vec<_> = node
            .waiting
            .iter()
            .filter_map(|(id, data)| node.offer(*id, data))
            .collect();
        for (to, note) in again {
            self.send(id, to, note);
        }
    }

    pub(super) fn read(&mut self, at: u64) {
        if let Some(node) = self.nodes.get_mut(&at)
            && node.member.is_some()
        {
            let read = node.read(&mut self.checks);
            self.give(at, read);
        }
    }

    /// Heals everything and sees that the cluster comes together and lost nothing.
    pub(super) fn come_together(&mut self) {
        self.weather = CALM;
        self.cut.clear();
        for id in self.down() {
            let node = self.nodes.get_mut(&id).unwrap();
            node.start();
        }
        for node in self.nodes.values_mut() {
            node.crash_after = None;
        }
        // A member may have been removed without hearing of it: its peers tell it.
        self.until("a leader", |net| net.leader().is_some());
        self.run(400);
        let gone = self.everybody_removed();
        for id in gone {
            let node = self.nodes.get_mut(&id).unwrap();
            node.member = None;
            node.removed = true;
            node.waiting.clear();
            self.checks.forget_reads(id);
        }
        self.until("a leader", |net| net.leader().is_some());
        for id in self.up() {
            self.propose(id);
            self.read(id);
        }
        self.until("everything is answered", |net| {
            let waits = net.nodes.values().any(|node| !node.waiting.is_empty());
            !waits && net.checks.reads_open() == 0
        });
        self.until("all are alike", |net| {
            let mut machines = net
                .nodes
                .values()
                .filter(|node| node.member.is_some())
                .map(|node| &node.machine);
            let first = machines.next().unwrap();
            machines.all(|machine| machine == first) && !first.conf.is_joint()
        });
        for node in self.nodes.values().filter(|node| node.member.is_some()) {
            self.checks.nothing_lost(node.id, &node.machine.values);
            assert!(node.machine.conf.contains(node.id));
        }
    }

    /// Returns the members that are running but, as whoever leads knows, removed or
    /// never added.
    fn everybody_removed(&self) -> Vec<u64> {
        let Some(leader) = self.leader() else {
            return Vec::new();
        };
        let conf = &self.nodes[&leader].machine.conf;
        let up = self.up().into_iter();
        up.filter(|id| !conf.contains(*id)).collect()
    }
}
