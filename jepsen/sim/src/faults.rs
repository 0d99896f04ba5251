//! What goes wrong: when, where, and how it gets well again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use disk::Keep;
use kvserver::sim::{Clock, Node, Numbers, Setup};
use mvcc::{MemberCommand, watch::WatchLimits};

use crate::{
    host::{self, Excuse, Host, Incarnation},
    ops::{Ask, End},
    plan::{Kind, MS, SECOND, Time},
    sim::{Event, Sim},
};

/// The shortest time between two faults of a kind, and the longest at the highest
/// rate.
const INTERVAL_MIN: Time = 200 * MS;
const INTERVAL_MAX: Time = 3 * SECOND;

/// How long a process takes to start.
const BOOT: Time = 20 * MS;

/// Operations of a disk among which one is drawn for the power to go before it.
const CUT_WITHIN: u64 = 40;

/// Kinds that come by themselves, with each message or with what clients ask.
const NOT_STRUCK: &[Kind] = &[
    Kind::Loss,
    Kind::Delay,
    Kind::Reorder,
    Kind::Duplicate,
    Kind::Hold,
    Kind::Drift,
    Kind::WallJump,
    Kind::Compact,
    Kind::CutSnapshot,
    Kind::Membership,
];

impl Sim {
    /// Arranges for the first fault of each kind that is on.
    pub(crate) fn begin_faults(&mut self) {
        let kinds = self.plan.kinds.clone();
        for (kind, _) in kinds {
            if !NOT_STRUCK.contains(&kind) {
                let after = self.interval(kind);
                self.after(after, Event::Strike(kind));
            }
        }
        if self.plan.rate(Kind::Membership) > 0 || self.plan.rate(Kind::BitFlip) > 0 {
            self.after(SECOND, Event::Administer);
        }
    }

    fn interval(&mut self, kind: Kind) -> Time {
        let rate = Time::from(self.plan.rate(kind)).max(1);
        let most = (INTERVAL_MAX * 1_000_000 / rate).min(12 * SECOND);
        self.faults.between(INTERVAL_MIN, most)
    }

    /// Draws what a machine is like.
    pub(crate) fn settle_machine(&mut self, host: usize) {
        if self.plan.rate(Kind::Drift) > 0 {
            self.hosts[host].speed = self.faults.between(900, 1_100);
            self.strike(Kind::Drift);
        }
        self.hosts[host].disk_latency = self.faults.one(&[500, 2_000, 10_000]);
    }

    /// A fault of a kind happens.
    pub(crate) fn fault(&mut self, kind: Kind) {
        if self.healed {
            return;
        }
        let after = self.interval(kind);
        self.after(after, Event::Strike(kind));
        let up: Vec<usize> = (0..self.hosts.len())
            .filter(|host| self.hosts[*host].is_up())
            .collect();
        let Some(host) = self.faults.pick(&up).copied() else {
            return;
        };
        match kind {
            Kind::Partition | Kind::OneWay | Kind::Ring => self.partition(kind),
            Kind::Pause => {
                let long = self.faults.between(10 * MS, 4 * SECOND);
                self.hosts[host].paused = self.now + long;
                self.struck(kind, host);
            }
            Kind::Kill => {
                self.struck(kind, host);
                self.stop(host);
                self.boot_later(host);
            }
            Kind::PowerCut => {
                self.strike(kind);
                self.power_cut(host, "between two operations");
            }
            Kind::CutInside => {
                let after = self.faults.below(CUT_WITHIN);
                self.hosts[host].disk.cut_power(after);
            }
            Kind::Blackout => {
                self.strike(kind);
                for host in up {
                    self.power_cut(host, "with all others");
                }
            }
            Kind::SyncError => {
                self.struck(kind, host);
                let after = self.faults.below(10);
                self.hosts[host].disk.fail_sync(after);
                self.hosts[host].excuse = Some(Excuse::SyncError);
            }
            Kind::FullDisk => {
                self.struck(kind, host);
                self.hosts[host].disk.set_full(true);
                self.hosts[host].excuse = Some(Excuse::FullDisk);
                self.mend_later(host, 3 * SECOND);
            }
            Kind::SlowDisk => {
                self.struck(kind, host);
                self.hosts[host].disk_latency = self.faults.between(20 * MS, 800 * MS);
                self.mend_later(host, 3 * SECOND);
            }
            Kind::SlowMember => {
                self.struck(kind, host);
                self.hosts[host].turn_latency = self.faults.between(2 * MS, 60 * MS);
                self.mend_later(host, 3 * SECOND);
            }
            Kind::BitFlip => self.flip_bit(host),
            Kind::Transfer => {
                let to = self.faults.below(self.hosts.len() as u64) as usize;
                let to = self.hosts[to].id;
                if self.drive(host, |node| node.move_leader(to)) == Some(true) {
                    self.struck(kind, host);
                }
            }
            _ => {}
        }
    }

    fn struck(&mut self, kind: Kind, host: usize) {
        let id = self.hosts[host].id;
        self.trace
            .line(self.now, || format!("m{id} {}", kind.name()));
        self.strike(kind);
    }

    /// Cuts links, and arranges for their repair.
    fn partition(&mut self, kind: Kind) {
        let ids: Vec<u64> = self.hosts.iter().map(|host| host.id).collect();
        if ids.len() < 2 {
            return;
        }
        let side: Vec<bool> = ids.iter().map(|_| self.faults.coin()).collect();
        let mut pairs = Vec::new();
        for (a, from) in ids.iter().enumerate() {
            for (b, to) in ids.iter().enumerate() {
                let apart = (a + 1) % ids.len() != b && (b + 1) % ids.len() != a;
                let cut = match kind {
                    Kind::Partition => side[a] != side[b],
                    Kind::OneWay => side[a] && !side[b],
                    // With three the ring leaves out one pair: all still see a majority.
                    _ if ids.len() == 3 => a.abs_diff(b) == 2,
                    _ => a != b && apart,
                };
                if cut && a != b {
                    pairs.push((*from, *to));
                }
            }
        }
        if pairs.is_empty() {
            return;
        }
        for (from, to) in &pairs {
            self.network.cut(*from, *to);
        }
        self.trace
            .line(self.now, || format!("{}: {pairs:?}", kind.name()));
        self.strike(kind);
        let long = self.faults.between(100 * MS, 6 * SECOND);
        self.after(long, Event::Open(pairs));
    }

    /// Links are open again, and those at both ends hear of it.
    pub(crate) fn open_links(&mut self, pairs: &[(u64, u64)]) {
        for (from, to) in pairs {
            if !self.network.open(*from, *to, self.now) {
                continue;
            }
            self.trace
                .line(self.now, || format!("m{to} hears m{from} again"));
            if let Some(host) = self.hosts.iter().position(|host| host.id == *from) {
                let incarnation = self.hosts[host].incarnation;
                let after = self.network.latency();
                let peer = *to;
                self.after(
                    after,
                    Event::Linked {
                        host,
                        incarnation,
                        peer,
                    },
                );
            }
        }
    }

    /// A machine loses power: of what was not synced everything, nothing, or any part
    /// reached the disk.
    pub(crate) fn power_cut(&mut self, host: usize, how: &str) {
        self.stop(host);
        let odds = self
            .faults
            .one(&[0, 0, 1_000_000, 500_000, 900_000, 100_000]);
        let faults = &mut self.faults;
        let machine = &mut self.hosts[host];
        machine.disk = machine.disk.crash(|of| match of {
            Keep::Sector | Keep::Name | Keep::Batch => faults.chance(odds),
        });
        let id = machine.id;
        self.trace.line(self.now, || {
            format!("m{id} loses power {how}; {odds} ppm of what was not synced stays")
        });
        self.boot_later(host);
    }

    /// Flips a bit of the log, or of the note about the rows, of a member that is
    /// down meanwhile. A majority stays whole.
    fn flip_bit(&mut self, host: usize) {
        if self.hosts[host].damaged || !self.can_spare(host) {
            return;
        }
        self.struck(Kind::BitFlip, host);
        self.power_cut(host, "and its disk decays");
        let machine = &mut self.hosts[host];
        let files = machine.disk.files();
        let durable = files.into_iter().filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".wal") || name == "ROWS"
        });
        let durable: Vec<_> = durable.collect();
        let Some(file) = self.faults.pick(&durable) else {
            return;
        };
        let faults = &mut self.faults;
        machine.disk.damage(file, |bytes| {
            // Where something is; the rest of a segment is zeros.
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            let bit = faults.below(used as u64 * 8);
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        });
        machine.damaged = true;
        machine.excuse = Some(Excuse::BitFlip);
    }

    /// Says whether a majority of the voters is well without a machine.
    fn can_spare(&self, host: usize) -> bool {
        let nodes = self.hosts.iter().filter_map(|host| host.node.as_ref());
        let Some(newest) = nodes.max_by_key(|node| node.standing().applied) else {
            return false;
        };
        // Who are voters is known only to whoever knows all that was applied.
        if newest.standing().applied < self.truth.get().last_index() {
            return false;
        }
        let conf = newest.with_machine(|machine| machine.membership().conf_state().clone());
        let conf = conf.unwrap_or_default();
        // Between two memberships a majority of each is needed, and the older may be small.
        if !conf.voters_outgoing.is_empty() {
            return false;
        }
        let voters = conf.voters;
        let is_bad = |id: &&u64| {
            let found = self.host_of(**id).map(|host| &self.hosts[host]);
            found.is_none_or(|host| host.gone || host.damaged)
        };
        let bad = voters.iter().filter(is_bad).count();
        let bad = bad + usize::from(voters.contains(&self.hosts[host].id));
        // Changes of unknown outcome may yet take voters away.
        let open = self.clients.ops.iter().filter(|op| {
            matches!(op.ask, Ask::Members(_)) && matches!(op.ended, None | Some((_, End::Info)))
        });
        // Who was removed votes no more, and who has not heard of that still counts on it:
        // with raft-rs, as with etcd's raft, a membership counts once it is applied.
        let mut ops = self.clients.ops.iter();
        let removal = ops.any(|op| matches!(op.ask, Ask::Members(MemberCommand::Remove(_))));
        let removed = usize::from(removal);
        (bad + removed) * 2 < (voters.len() + removed).saturating_sub(open.count())
    }

    fn mend_later(&mut self, host: usize, most: Time) {
        let after = self.faults.between(100 * MS, most);
        let is = self.hosts[host].incarnation;
        self.after(after, Event::Mend(host, is));
    }

    /// A machine is well again.
    pub(crate) fn mend(&mut self, host: usize, _is: Incarnation) {
        let machine = &mut self.hosts[host];
        machine.disk.mend();
        machine.disk_latency = 2_000;
        machine.turn_latency = 200;
        if machine.excuse != Some(Excuse::BitFlip) {
            machine.excuse = None;
        }
    }

    /// Arranges for a process to be started again.
    pub(crate) fn boot_later(&mut self, host: usize) {
        let long = match self.faults.coin() {
            true => self.faults.between(BOOT, 200 * MS),
            false => self.faults.between(BOOT, 4 * SECOND),
        };
        self.after(long, Event::Boot(host));
    }

    /// A process starts.
    pub(crate) fn boot(&mut self, host: usize) {
        if self.hosts[host].is_up() || self.hosts[host].gone {
            return;
        }
        let setup = self.setup(host);
        let is = self.hosts[host].incarnation;
        let id = self.hosts[host].id;
        let limits = WatchLimits {
            events: self.plan.tuning.watch_events,
            ..WatchLimits::default()
        };
        match catch_unwind(AssertUnwindSafe(|| Node::open(setup, limits))) {
            Ok(Ok(node)) => {
                self.trace.line(self.now, || {
                    let standing = node.standing();
                    let (applied, last) = (standing.applied, standing.last);
                    format!("m{id} starts after entry {applied}, its log ends at {last}")
                });
                self.hosts[host].node = Some(node);
                let first = self.rng.between(0, self.plan.tuning.heartbeat);
                self.after(first, Event::Tick(host, is));
                self.link_up(host);
                self.settle(host);
            }
            Ok(Err(error)) => {
                self.trace
                    .line(self.now, || format!("m{id} does not start: {error}"));
                self.refused(host, &error.to_string());
            }
            Err(payload) => self.broke(host, payload),
        }
    }

    fn refused(&mut self, host: usize, why: &str) {
        match self.hosts[host].excuse {
            Some(Excuse::BitFlip) => self.hosts[host].gone = true,
            Some(_) => self.boot_later(host),
            None => {
                let id = self.hosts[host].id;
                let what = format!("member {id} does not start again: {why}");
                self.truth.get().blame("start", what);
            }
        }
    }

    fn setup(&mut self, host: usize) -> Setup {
        let jumps = self.plan.rate(Kind::WallJump) > 0 && !self.healed;
        let chance = self.rng.next();
        if jumps {
            self.strike(Kind::WallJump);
        }
        let plan = &self.plan;
        let machine = &mut self.hosts[host];
        machine.booted = self.now;
        machine.clock = Clock::new(chance);
        if jumps {
            machine.wall_offset = self.faults.between(0, 7_200) * SECOND;
        }
        machine.set_clock(self.now);
        let config = host::config(plan, machine.id);
        let id = machine.id;
        let numbers = machine
            .numbers
            .get_or_insert_with(|| Numbers::new(&config, id));
        let Host {
            disk,
            first,
            others,
            clock,
            ..
        } = machine;
        Setup {
            config: host::config(plan, id),
            member: id,
            cluster: 77,
            disk: disk.clone(),
            first: first.clone(),
            others: others.clone(),
            clock: clock.clone(),
            numbers: numbers.clone(),
            tap: self.truth.tap(id),
        }
    }

    /// A member that has started and those that hear it are linked.
    fn link_up(&mut self, host: usize) {
        let id = self.hosts[host].id;
        for peer in 0..self.hosts.len() {
            let other = self.hosts[peer].id;
            if peer == host || !self.hosts[peer].is_up() {
                continue;
            }
            if !self.network.is_cut(id, other) {
                let incarnation = self.hosts[host].incarnation;
                let after = self.network.latency();
                self.after(
                    after,
                    Event::Linked {
                        host,
                        incarnation,
                        peer: other,
                    },
                );
            }
            if !self.network.is_cut(other, id) {
                let incarnation = self.hosts[peer].incarnation;
                let after = self.network.latency();
                self.after(
                    after,
                    Event::Linked {
                        host: peer,
                        incarnation,
                        peer: id,
                    },
                );
            }
        }
    }

    /// Faults are over: everything is mended and everybody starts again.
    pub(crate) fn heal(&mut self) {
        self.trace.line(self.now, || "everything heals".to_owned());
        self.healed = true;
        self.network.heal(self.now);
        for host in 0..self.hosts.len() {
            let is = self.hosts[host].incarnation;
            self.mend(host, is);
            self.hosts[host].paused = 0;
            if self.hosts[host].is_up() {
                self.link_up(host);
                self.settle(host);
            } else {
                self.after(BOOT, Event::Boot(host));
            }
        }
    }
}
