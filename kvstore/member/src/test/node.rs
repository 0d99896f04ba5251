//! One member with its disk and its caller, as far as a test needs them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{checks::Checks, machine::Machine, network::Note};
use crate::{
    APPLY_ENTRIES_MAX, ConfState, Config, Input, Member, Output, Persist, Proposal, ReadId,
    Recovered, Role, encode_message, rng::Rng, snapshot_message,
};

/// What survives a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) log: Recovered,
    pub(super) rows: Machine,
}

impl Disk {
    fn write(&mut self, persist: &Persist, rows: Option<&Machine>, torn: bool) {
        if let Some(meta) = &persist.snapshot {
            self.rows = rows.unwrap().clone();
            if torn {
                return;
            }
            self.log = Recovered {
                base_index: meta.index,
                base_term: meta.term,
                hard_state: self.log.hard_state,
                entries: Vec::new(),
            };
        }
        if let Some(state) = persist.hard_state {
            self.log.hard_state = state;
        }
        if let Some(first) = persist.entries.first() {
            self.log.entries.retain(|entry| entry.index < first.index);
            assert_eq!(self.log.last_index() + 1, first.index, "a gap in the log");
        }
        self.log.entries.extend(persist.entries.iter().cloned());
    }

    /// Finishes what a crash in the middle of an install left.
    fn recover(&mut self) -> Recovered {
        let meta = self.rows.meta();
        if meta.index > 0 && !self.log.goes_on_from(meta.index, meta.term) {
            self.log = Recovered {
                base_index: meta.index,
                base_term: meta.term,
                hard_state: self.log.hard_state,
                entries: Vec::new(),
            };
        }
        self.log.clone()
    }
}

pub(super) struct Node {
    pub(super) id: u64,
    pub(super) member: Option<Member>,
    pub(super) machine: Machine,
    pub(super) disk: Disk,
    /// Written but not synced, with the rows of a snapshot.
    writes: VecDeque<(Persist, Option<Machine>)>,
    /// Proposals of this member's clients without an answer.
    pub(super) waiting: BTreeMap<u64, Bytes>,
    pub(super) boot: u64,
    next_read: u64,
    /// After how many more outputs it crashes.
    pub(super) crash_after: Option<usize>,
    pub(super) removed: bool,
}

impl Node {
    pub(super) fn new(id: u64, conf: ConfState) -> Self {
        let disk = Disk {
            rows: Machine::new(conf),
            ..Disk::default()
        };
        let mut node = Self {
            id,
            member: None,
            machine: Machine::default(),
            disk,
            writes: VecDeque::new(),
            waiting: BTreeMap::new(),
            boot: 0,
            next_read: 0,
            crash_after: None,
            removed: false,
        };
        node.start();
        node
    }

    pub(super) fn start(&mut self) {
        self.boot += 1;
        let recovered = self.disk.recover();
        self.machine = self.disk.rows.clone();
        let config = Config {
            id: self.id,
            conf_state: self.machine.conf.clone(),
            boot_id: (self.id << 32) + (self.boot << 20),
            applied: self.machine.applied,
            election_ticks: 10,
            heartbeat_ticks: 2,
            pre_vote: true,
            seed: self.id * 1_000 + self.boot,
            read_retry: Duration::from_millis(50),
            read_timeout: Duration::from_millis(700),
            catch_up_entries: 5,
        };
        self.member = Some(Member::new(config, recovered).unwrap());
    }

    /// Loses what is not on disk, but for some of the writes under way.
    pub(super) fn crash(&mut self, rng: &mut Rng, checks: &mut Checks) {
        let kept = rng.draw(0, self.writes.len() + 1);
        for (at, (persist, rows)) in self.writes.drain(..).enumerate() {
            if at < kept {
                self.disk.write(&persist, rows.as_ref(), false);
            } else if persist.snapshot.is_some() && rng.draw(0, 2) == 0 {
                checks.saw("torn install");
                self.disk.write(&persist, rows.as_ref(), true);
                break;
            } else {
                break;
            }
        }
        self.member = None;
        self.crash_after = None;
        self.waiting.clear();
        checks.forget_reads(self.id);
        checks.saw("crash");
    }

    /// Syncs some of what was written; returns what the member is to be told.
    pub(super) fn sync(&mut self, count: usize) -> Option<Input> {
        let mut report = None;
        for _ in 0..count.min(self.writes.len()) {
            let (persist, rows) = self.writes.pop_front().unwrap();
            self.disk.write(&persist, rows.as_ref(), false);
            if persist.report {
                report = Some(persist.number);
            }
        }
        report.map(Input::Persisted)
    }

    pub(super) fn unsynced(&self) -> usize {
        self.writes.len()
    }

    /// Brings the state machine's rows to disk, behind the log.
    pub(super) fn write_back(&mut self) -> Option<Input> {
        // The rows of a snapshot under way are another directory's.
        if self.writes.iter().any(|(_, rows)| rows.is_some()) {
            return None;
        }
        self.disk.rows = self.machine.clone();
        let covered = self.machine.applied;
        if let Some(entry) = self.disk.log.entries.iter().find(|e| e.index == covered) {
            (self.disk.log.base_index, self.disk.log.base_term) = (entry.index, entry.term);
            self.disk.log.entries.retain(|entry| entry.index > covered);
        }
        Some(Input::Covered(covered))
    }

    pub(super) fn read(&mut self, checks: &mut Checks) -> Input {
        self.next_read += 1;
        let id = ReadId(self.next_read + (self.boot << 20));
        checks.read_arrives(self.id, id);
        Input::Read(id)
    }

    /// Sends a proposal where it can be appended: into the own log or to the leader.
    pub(super) fn offer(&self, id: u64, data: &Bytes) -> Option<(u64, Note)> {
        let standing = self.member.as_ref()?.standing();
        let data = data.clone();
        (standing.leader != 0).then(|| (standing.leader, Note::Forward(Proposal { id, data })))
    }

    /// Takes one step and carries its outputs out; returns what leaves for others.
    pub(super) fn step(
        &mut self,
        input: Input,
        snapshot: Option<Machine>,
        now: Duration,
        checks: &mut Checks,
    ) -> Vec<(u64, Note)> {
        let mut out = Vec::new();
        let Some(member) = &mut self.member else {
            return out;
        };
        let outputs = member.step(input, now);
        let mut snapshot = snapshot;
        let mut installed = None;
        let mut applied = 0;
        for output in outputs {
            if let Some(left) = &mut self.crash_after {
                if *left == 0 {
                    return out;
                }
                *left -= 1;
            }
            match output {
                Output::Apply(entries) => {
                    applied += entries.len();
                    self.apply(&entries, checks);
                }
                Output::Install(meta) => {
                    let machine = snapshot.take().expect("a snapshot came with the message");
                    assert_eq!(machine.meta(), meta);
                    self.machine = machine.clone();
                    installed = Some(machine);
                    checks.saw("install");
                }
                Output::Persist(persist) => {
                    let rows = persist.snapshot.as_ref().and_then(|_| installed.take());
                    assert_eq!(persist.snapshot.is_some(), rows.is_some());
                    self.writes.push_back((persist, rows));
                }
                other => self.say(other, checks, &mut out),
            }
        }
        assert!(installed.is_none(), "an install is followed by its write");
        assert!(applied <= APPLY_ENTRIES_MAX);
        self.check_progress();
        out
    }

    fn apply(&mut self, entries: &[crate::LogEntry], checks: &mut Checks) {
        let member = self.member.as_mut().unwrap();
        for entry in entries {
            checks.applied(self.id, entry);
            if entry.kind != crate::EntryKind::Normal {
                checks.saw("change applied");
            }
            let Some(id) = self.machine.apply(entry, member) else {
                continue;
            };
            if self.waiting.remove(&id).is_some()
                && let Some(index) = self.machine.values.get(&id)
            {
                checks.acknowledged(id, *index);
            }
        }
    }

    fn say(&mut self, output: Output, checks: &mut Checks, out: &mut Vec<(u64, Note)>) {
        match output {
            Output::Send(messages) => {
                for message in messages {
                    let mut bytes = Vec::new();
                    encode_message(&message, &mut bytes);
                    out.push((message.to, Note::Raft(bytes.into())));
                }
            }
            Output::SendSnapshot { peer, message } => {
                checks.saw("snapshot");
                let message = snapshot_message(*message, self.machine.meta());
                let mut bytes = Vec::new();
                encode_message(&message, &mut bytes);
                let machine = Box::new(self.machine.clone());
                out.push((peer, Note::Snapshot(bytes.into(), machine)));
            }
            Output::AskLeader { leader, attempt } => out.push((leader, Note::ReadAsk(attempt))),
            Output::AnswerRead {
                peer,
                attempt,
                index,
            } => out.push((peer, Note::ReadAnswer(attempt, index))),
            Output::ReadReady(ids) => {
                for id in ids {
                    checks.read_answered(self.id, id, self.machine.applied);
                }
            }
            Output::ReadRefused { ids, .. } => {
                for id in ids {
                    checks.read_refused(self.id, id);
                }
            }
            Output::Refused { .. } => checks.saw("refused"),
            Output::Standing(standing) => {
                checks.stands(self.id, standing);
                if standing.role == Role::Leader {
                    checks.saw("leader");
                }
                let again = self.waiting.iter();
                out.extend(again.filter_map(|(id, data)| self.offer(*id, data)));
            }
            Output::Removed => {
                assert!(self.machine.removed.contains(&self.id));
                self.removed = true;
                checks.saw("removed");
            }
            Output::LogLost { commit, last } => {
                panic!("member {} acknowledged {commit} but has {last}", self.id)
            }
            Output::Apply(_) | Output::Install(_) | Output::Persist(_) => unreachable!(),
        }
    }

    /// A leader never goes back behind what a peer has acknowledged.
    fn check_progress(&self) {
        let Some(member) = &self.member else { return };
        if member.standing().role == Role::Leader {
            for (id, progress) in member.raw.raft.prs().iter() {
                assert!(progress.next_idx > progress.matched, "{id}: {progress:?}");
            }
        }
    }
}
