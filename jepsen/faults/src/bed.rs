//! A cluster with everything that can hurt it in place, and who is hurt by what.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::clock::Clock;
use crate::cluster::{Cluster, Target, id};
use crate::error::{Error, Result};
use crate::faultfs::{FaultFs, Names};
use crate::lan::{Lan, Packets};
use crate::relay::Relay;
use crate::wait::within;

/// How long a member may take to be there again once nothing hurts it.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(60);

/// What a cluster is to have in place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ground {
    /// A namespace for each member, instead of ports of the loopback address.
    pub lan: bool,
    /// A relay between the members.
    pub relay: bool,
    /// A disk for each member whose power can be cut.
    pub disks: bool,
    /// A clock for each member that can be wrong.
    pub clocks: bool,
}

/// A member that ended though nothing explains it.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Which.
    pub member: usize,
    /// How it ended.
    pub status: String,
    /// The last it logged.
    pub last_words: String,
}

/// A cluster and what hurts it.
#[derive(Debug)]
pub struct Bed {
    // Declared first: the members' processes end before their disks go.
    /// The members.
    pub cluster: Cluster,
    disks: BTreeMap<usize, FaultFs>,
    relay: Option<Relay>,
    clocks: BTreeMap<usize, Clock>,
    ground: Ground,
    /// Members that a fault stopped, or lets end.
    excused: BTreeSet<usize>,
    /// Members whose disk failed or whose bytes rotted, ever.
    hurt: BTreeSet<usize>,
    /// Members that are to stay as they are when others are started again.
    pub(crate) given_up: BTreeSet<usize>,
    /// Everybody who ended and had no reason to.
    pub crashes: Vec<Crash>,
}

/// How many members, chosen how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// Any one.
    One,
    /// Whoever leads.
    Leader,
    /// More than half.
    Majority,
    /// Everybody.
    All,
}

impl Bed {
    /// Starts so many members.
    pub fn start(target: Target, nodes: usize, ground: Ground, flags: &[&str]) -> Result<Self> {
        let lan = match ground.lan {
            true => Some(Lan::build()?),
            false => None,
        };
        let mut bed = Self {
            cluster: Cluster::planned(target, lan, flags)?,
            disks: BTreeMap::new(),
            relay: ground.relay.then(Relay::default),
            clocks: BTreeMap::new(),
            ground,
            excused: BTreeSet::new(),
            hurt: BTreeSet::new(),
            given_up: BTreeSet::new(),
            crashes: Vec::new(),
        };
        for _ in 0..nodes {
            bed.plan()?;
        }
        for at in 0..nodes {
            bed.spawn(at)?;
        }
        bed.cluster.await_healthy()?;
        Ok(bed)
    }

    /// Tells which of these this machine has no means for, and why.
    pub fn missing(ground: Ground) -> Vec<Error> {
        let folder = tempfile::tempdir().map_err(Error::io("a folder"));
        let clock = folder.and_then(|f| Clock::prepare(f.path(), "probe"));
        let probes = [
            (ground.lan, Lan::build().and_then(|lan| lan.admit(0))),
            (ground.disks, FaultFs::mount(Names::FoldersOnly).map(drop)),
            (ground.clocks, clock.map(drop)),
        ];
        let failed = probes.into_iter().filter(|(asked, _)| *asked);
        failed.filter_map(|(_, probe)| probe.err()).collect()
    }

    /// Prepares one more member with everything the others have.
    pub(crate) fn plan(&mut self) -> Result<usize> {
        let at = self.cluster.plan()?;
        if let Some(relay) = &self.relay {
            let member = &mut self.cluster.members[at];
            let address = member.peer_listen.trim_start_matches("http://").parse();
            let address: SocketAddr = address
                .map_err(|_not_one| Error::Unfit(format!("no address: {}", member.peer_listen)))?;
            let host = match self.cluster.lan() {
                Some(lan) => IpAddr::V4(lan.host()),
                None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            };
            let relayed = relay.stand_before(at, host, address)?;
            self.cluster.members[at].peer_url = format!("http://{relayed}");
            if let Some(lan) = self.cluster.lan() {
                lan.relayed(at, relayed.port());
            }
        }
        if self.ground.disks {
            let disk = FaultFs::mount(Names::WithAnySync)?;
            self.cluster.members[at].data = disk.data();
            self.disks.insert(at, disk);
        }
        if self.ground.clocks {
            let name = self.cluster.members[at].name.clone();
            let clock = Clock::prepare(self.cluster.folder(), &name)?;
            self.cluster.members[at].env = clock.env();
            self.clocks.insert(at, clock);
        }
        Ok(at)
    }

    fn spawn(&mut self, at: usize) -> Result<()> {
        self.cluster.restart(at)?;
        self.note(at)
    }

    fn note(&mut self, at: usize) -> Result<()> {
        let pid = self.cluster.members[at].process()?.pid();
        if let Some(relay) = &self.relay {
            relay.note(pid, at);
        }
        Ok(())
    }

    /// Starts a member that was stopped on its data.
    pub(crate) fn start_again(&mut self, at: usize) -> Result<()> {
        self.spawn(at)
    }

    /// Waits until a member answers linearizable reads.
    pub(crate) fn await_one(&self, at: usize) -> Result<()> {
        within(RECOVERY_PATIENCE, format!("m{at} to answer"), || {
            self.cluster.answers(at)
        })
    }

    /// Starts a member that was added to those there are.
    pub(crate) fn join(&mut self, at: usize) -> Result<()> {
        let mut others = self.cluster.current();
        others.retain(|other| *other != at);
        self.cluster.join(at, &others)?;
        self.note(at)
    }

    /// Returns the relay, if there is one.
    pub fn relay(&self) -> Result<&Relay> {
        let none = || Error::Missing("a relay", "none was asked for".to_owned());
        self.relay.as_ref().ok_or_else(none)
    }

    /// Returns a member's disk, if it is one that can be hurt.
    pub fn disk(&mut self, at: usize) -> Result<&mut FaultFs> {
        let none = || Error::Missing("a disk that can fail", "none was asked for".to_owned());
        self.disks.get_mut(&at).ok_or_else(none)
    }

    /// Returns a member's clock, if it is one that can be wrong.
    pub(crate) fn clock(&self, at: usize) -> Result<&Clock> {
        let none = || Error::Missing("a clock", "none was asked for".to_owned());
        self.clocks.get(&at).ok_or_else(none)
    }

    /// Returns who leads as far as anybody says right now.
    pub fn leader_now(&self) -> Option<usize> {
        let statuses = self.cluster.statuses();
        let newest = statuses.values().max_by_key(|s| s.raft_term)?.leader;
        statuses
            .iter()
            .find(|(_, s)| id(s) == newest)
            .map(|(at, _)| *at)
    }

    /// Draws how many are hurt.
    pub(crate) fn draw(&self, rng: &mut StdRng) -> Victims {
        match rng.random_range(0..10) {
            0..=2 => Victims::One,
            3..=6 => Victims::Leader,
            7..=8 => Victims::Majority,
            _ => Victims::All,
        }
    }

    /// Picks members that run.
    pub(crate) fn pick(&self, victims: Victims, rng: &mut StdRng) -> Result<Vec<usize>> {
        let mut running = self.cluster.running();
        running.retain(|at| !self.given_up.contains(at));
        running.shuffle(rng);
        let count = match victims {
            Victims::One | Victims::Leader => 1,
            Victims::Majority => running.len() / 2 + 1,
            Victims::All => running.len(),
        };
        if victims == Victims::Leader
            && let Some(leader) = self.leader_now()
            && running.contains(&leader)
        {
            return Ok(vec![leader]);
        }
        running.truncate(count);
        if running.is_empty() {
            return Err(Error::Unfit("nobody runs".to_owned()));
        }
        running.sort_unstable();
        Ok(running)
    }

    /// Picks one member; the others must be enough to go on without it for good.
    pub(crate) fn pick_spare(&self, rng: &mut StdRng) -> Result<usize> {
        let (current, running) = (self.cluster.current(), self.cluster.running());
        if running.len() < current.len() || current.len() < 3 {
            return Err(Error::Unfit("nobody can be spared".to_owned()));
        }
        Ok(running[rng.random_range(0..running.len())])
    }

    /// Lets nothing of what one member says reach another: packets where each has a
    /// network, else bytes.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Result<()> {
        match self.cluster.lan() {
            Some(lan) => lan.hurt(from, to, Packets::Dropped),
            None => {
                self.relay()?.hold(from, to);
                Ok(())
            }
        }
    }

    /// Ends everything that is wrong with the network.
    pub(crate) fn calm_network(&self) -> Result<()> {
        if let Some(relay) = &self.relay {
            relay.calm();
        }
        self.cluster.lan().map_or(Ok(()), Lan::calm)
    }

    /// Lets a member end, for a reason of its own.
    pub(crate) fn excuse(&mut self, at: usize) {
        self.excused.insert(at);
        self.hurt.insert(at);
    }

    /// Tells whether a member's disk failed, its bytes rotted, or it was removed.
    pub fn was_hurt(&self, at: usize) -> bool {
        self.hurt.contains(&at)
    }

    /// Notes members that ended without a reason.
    pub fn look_for_crashes(&mut self) {
        for at in self.cluster.running() {
            let member = &mut self.cluster.members[at];
            let log = member.process().map(|p| p.log()).unwrap_or_default();
            let Some(status) = member.ended() else {
                continue;
            };
            if !self.excused.contains(&at) {
                let lines: Vec<&str> = log.lines().collect();
                self.crashes.push(Crash {
                    member: at,
                    status: status.to_string(),
                    last_words: lines[lines.len().saturating_sub(5)..].join("\n"),
                });
            }
        }
    }

    /// Ends whatever is wrong, starts who does not run, and waits until all answer.
    pub fn revive(&mut self) -> Result<()> {
        self.calm_network()?;
        for (at, disk) in &self.disks {
            if !self.given_up.contains(at) {
                disk.heal();
            }
        }
        for clock in self.clocks.values() {
            clock.set(0, 1.0)?;
        }
        self.look_for_crashes();
        for at in self.cluster.current() {
            if self.given_up.contains(&at) {
                continue;
            }
            match self.cluster.members[at].is_up() {
                true => self.cluster.members[at].thaw()?,
                false => self.spawn(at)?,
            }
        }
        self.await_current()?;
        self.excused.clear();
        Ok(())
    }

    /// Waits until everybody who is to be there answers linearizable reads. Who ends
    /// meanwhile is started once more: a fault may still have had it.
    fn await_current(&mut self) -> Result<()> {
        let mut again = BTreeSet::new();
        for at in self.cluster.current() {
            if self.given_up.contains(&at) {
                continue;
            }
            let deadline = std::time::Instant::now() + RECOVERY_PATIENCE;
            loop {
                let last = match self.cluster.answers(at) {
                    Ok(()) => break,
                    Err(why) => why,
                };
                self.look_for_crashes();
                if !self.cluster.members[at].is_up() && again.insert(at) {
                    self.spawn(at)?;
                }
                if std::time::Instant::now() > deadline {
                    let what = format!("m{at} to answer again");
                    return Err(Error::Patience { what, last });
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Returns what all disks went through, summed up.
    pub fn disk_counts(&self) -> Vec<(usize, crate::faultfs::Counts)> {
        self.disks.iter().map(|(at, d)| (*at, d.counts())).collect()
    }
}
