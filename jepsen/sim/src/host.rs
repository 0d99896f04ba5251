//! A machine with one member on it: its disk outlives the member's process.

use std::{path::PathBuf, time::Duration};

use disk::SimDisk;
use kvserver::{
    Config, WriteBehind,
    sim::{Clock, Decision, Node, Numbers},
};
use mvcc::MemberInfo;

use crate::plan::{Plan, Time};

/// Names a start of a member: nothing that was to happen to an earlier one may
/// happen to a later one.
pub(crate) type Incarnation = u32;

/// The year 2033 in microseconds: wall clocks begin there.
const WALL_START: Time = 2_000_000_000_000_000;

/// Why a process may be over or refuse to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// A sync failed.
    SyncError,
    /// There is no room.
    FullDisk,
    /// What was synced is damaged.
    BitFlip,
}

/// What is to be done for a member and was already arranged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arranged {
    pub(crate) turn: bool,
    pub(crate) log: bool,
    pub(crate) rows: bool,
    pub(crate) spare: bool,
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Host {
    /// The member's id.
    pub(crate) id: u64,
    pub(crate) disk: SimDisk,
    /// The member, while its process runs.
    pub(crate) node: Option<Node>,
    pub(crate) incarnation: Incarnation,
    pub(crate) clock: Clock,
    /// The numbers are kept over starts; making them takes long.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) booted: Time,
    /// Speed of the clock, in thousandths.
    pub(crate) speed: u64,
    /// How far the wall clock is off.
    pub(crate) wall_offset: Time,
    /// Until when it stands still.
    pub(crate) paused: Time,
    pub(crate) arranged: Arranged,
    /// The members of the cluster it founds; none if it joins or is back.
    pub(crate) first: Vec<MemberInfo>,
    /// Whom it was told of when it joined.
    pub(crate) others: Vec<u64>,
    /// How long operations of the disk take, at most.
    pub(crate) disk_latency: Time,
    /// How long anything takes on it, at most.
    pub(crate) turn_latency: Time,
    /// What it may end for.
    pub(crate) excuse: Option<Excuse>,
    /// Whether it is out of the cluster for good.
    pub(crate) gone: bool,
    /// Whether its disk is damaged, as far as the simulator knows.
    pub(crate) damaged: bool,
    /// Snapshots taken in, and from whom: host, its incarnation.
    pub(crate) decisions: Vec<(usize, Incarnation, Decision)>,
}

impl Host {
    /// Makes a machine without anything on it.
    pub(crate) fn new(id: u64, first: Vec<MemberInfo>, others: Vec<u64>) -> Self {
        Self {
            id,
            disk: SimDisk::new(),
            node: None,
            incarnation: 0,
            clock: Clock::new(0),
            numbers: None,
            booted: 0,
            speed: 1_000,
            wall_offset: 0,
            paused: 0,
            arranged: Arranged::default(),
            first,
            others,
            disk_latency: 2_000,
            turn_latency: 200,
            excuse: None,
            gone: false,
            damaged: false,
            decisions: Vec::new(),
        }
    }

    /// Says whether the process runs.
    pub(crate) fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// Sets the member's clocks.
    pub(crate) fn set_clock(&self, now: Time) {
        let passed = (now - self.booted) * self.speed / 1_000;
        self.clock.set(Duration::from_micros(passed));
        self.clock
            .set_wall(Duration::from_micros(WALL_START + now + self.wall_offset));
    }

    /// Returns after how much of everybody's time so much of its own has passed.
    pub(crate) fn own(&self, time: Time) -> Time {
        time * 1_000 / self.speed
    }
}

/// Returns where every member keeps its data.
pub(crate) fn data_dir() -> PathBuf {
    PathBuf::from("/data")
}

/// Writes a plan down as flags would say it.
pub(crate) fn config(plan: &Plan, id: u64) -> Config {
    let tuning = &plan.tuning;
    let mut config = Config::new(data_dir());
    config.name = format!("m{id}");
    config.pre_vote = tuning.pre_vote;
    config.catch_up_entries = tuning.catch_up;
    config.heartbeat_interval = Duration::from_micros(tuning.heartbeat);
    config.election_timeout = Duration::from_micros(plan.election_timeout());
    config.wal_segment_bytes = tuning.segment_bytes;
    config.watch_progress_interval = Duration::from_micros(tuning.progress_interval);
    config.warning_apply_duration = Duration::ZERO;
    config.warning_unary_request_duration = Duration::ZERO;
    config.max_learners = 2;
    config.compaction.batch = Some(tuning.compact_batch);
    config.compaction.pause = Duration::from_micros(tuning.compact_pause);
    config.write_behind = WriteBehind {
        bytes: tuning.write_behind_bytes,
        interval: Duration::from_micros(tuning.write_behind_interval),
        block_bytes: tuning.block_bytes,
        window_bytes: tuning.window_bytes,
    };
    config
}
