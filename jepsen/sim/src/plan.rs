//! What a seed means: the configuration, which kinds of faults there are and how
//! often, how many clients, how long. Swarm testing (Groce et al., ISSTA 2012): each
//! kind is on for half of the seeds, so that kinds that hide each other's findings
//! are apart often enough.

use crate::rng::Rng;

/// A time of the simulation, in microseconds since its start.
pub type Time = u64;

/// Microseconds of a millisecond.
pub const MS: Time = 1_000;
/// Microseconds of a second.
pub const SECOND: Time = 1_000_000;

/// Declares the kinds of faults, each with its name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the name by which reports call it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Messages are lost.
    Loss = "loss";
    /// Messages take long, each as long as it likes.
    Delay = "delay";
    /// Messages overtake each other.
    Reorder = "reorder";
    /// Messages come twice.
    Duplicate = "duplicate";
    /// Messages are kept back and let go much later.
    Hold = "hold";
    /// Some members do not hear some others, in both directions.
    Partition = "partition";
    /// Some members are not heard by others that they hear.
    OneWay = "one-way partition";
    /// Every member hears a majority, no two the same one.
    Ring = "majorities ring";
    /// A member stands still for a while.
    Pause = "pause";
    /// A member's process ends; its disk keeps all that was written.
    Kill = "kill";
    /// A member loses power at a moment of its own; what was not synced is lost,
    /// kept, or torn.
    PowerCut = "power cut";
    /// A member loses power before one of the next operations of its disk.
    CutInside = "power cut inside a disk operation";
    /// All members lose power at once.
    Blackout = "power cut of all";
    /// A sync fails.
    SyncError = "sync error";
    /// A disk is full for a while.
    FullDisk = "full disk";
    /// A disk is slow for a while.
    SlowDisk = "slow disk";
    /// A bit of what was synced flips while a member is down.
    BitFlip = "bit flip";
    /// Clocks run at different speeds.
    Drift = "clock drift";
    /// The wall clock jumps between two starts.
    WallJump = "wall clock jump";
    /// Leadership is handed over.
    Transfer = "leader transfer";
    /// Members are added, promoted, removed, replaced.
    Membership = "membership change";
    /// History is compacted, at any revision.
    Compact = "compaction";
    /// A snapshot is cut off on its way.
    CutSnapshot = "snapshot cut off";
    /// A member takes long for everything it does.
    SlowMember = "slow member";
}

/// How a member is configured.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Between two heartbeats.
    pub heartbeat: Time,
    /// Heartbeats until an election.
    pub election_ticks: u64,
    /// Whether members ask before they stand for election.
    pub pre_vote: bool,
    /// Applied entries kept for members that lag.
    pub catch_up: u64,
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes that start a write-back.
    pub write_behind_bytes: usize,
    /// How long a change waits for its write-back.
    pub write_behind_interval: Time,
    /// Size of a block of revisions.
    pub block_bytes: usize,
    /// Recent revisions kept in memory.
    pub window_bytes: usize,
    /// Revisions looked at in one step of compaction.
    pub compact_batch: usize,
    /// Pause between two of them.
    pub compact_pause: Time,
    /// How often quiet watchers hear of progress.
    pub progress_interval: Time,
    /// Events that may wait for a watcher.
    pub watch_events: usize,
}

/// Everything that a seed decides before the run begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Members at first.
    pub nodes: u64,
    /// How long faults happen.
    pub length: Time,
    /// Clients that ask and wait.
    pub clients: usize,
    /// Clients that watch.
    pub watchers: usize,
    /// Keys there are.
    pub keys: u64,
    /// How long a client waits between two requests, at most.
    pub think: Time,
    /// The kinds that are on, and how often each, in ppm of the most there is.
    pub kinds: Vec<(Kind, u32)>,
    /// How members are configured.
    pub tuning: Tuning,
}

impl Plan {
    /// Draws what a seed means; `nodes` if given are not drawn.
    pub fn of(seed: u64, nodes: Option<u64>) -> Self {
        let rng = &mut Rng::new(seed, 1);
        let tuning = tuning(rng);
        let drawn = rng.one(&[1, 3, 3, 3, 3, 3, 5]);
        let kinds = Kind::ALL.iter().map(|kind| {
            let (on, rate) = (rng.coin(), rng.between(50_000, 1_000_000) as u32);
            (*kind, on, rate)
        });
        let kinds: Vec<_> = kinds.collect();
        let kinds = kinds.into_iter().filter(|(_, on, _)| *on);
        Self {
            seed,
            nodes: nodes.unwrap_or(drawn),
            length: rng.between(8, 24) * SECOND,
            clients: rng.between(2, 8) as usize,
            watchers: rng.between(1, 4) as usize,
            keys: rng.between(2, 12),
            think: rng.one(&[5, 20, 50, 200]) * MS,
            kinds: kinds.map(|(kind, _, rate)| (kind, rate)).collect(),
            tuning,
        }
    }

    /// Returns how often a kind of fault happens, in ppm of the most there is; zero
    /// if it is off.
    pub fn rate(&self, kind: Kind) -> u32 {
        let found = self.kinds.iter().find(|(on, _)| *on == kind);
        found.map_or(0, |(_, rate)| *rate)
    }

    /// Returns the time without a leader after which there is an election, at least.
    pub fn election_timeout(&self) -> Time {
        self.tuning.heartbeat * self.tuning.election_ticks
    }
}

fn tuning(rng: &mut Rng) -> Tuning {
    Tuning {
        heartbeat: rng.one(&[20, 50, 100]) * MS,
        election_ticks: rng.one(&[5, 10]),
        pre_vote: rng.chance(800_000),
        catch_up: rng.one(&[0, 1, 5, 20, 100, 5_000]),
        segment_bytes: rng.one(&[4, 8, 16, 64]) << 10,
        write_behind_bytes: rng.one(&[1, 512, 4 << 10, 64 << 10]),
        write_behind_interval: rng.one(&[20, 100, 500]) * MS,
        block_bytes: rng.one(&[128, 1 << 10, 32 << 10]),
        window_bytes: rng.one(&[0, 1 << 10, 32 << 20]),
        compact_batch: rng.one(&[1, 10, 200]),
        compact_pause: rng.one(&[0, 0, 30]) * MS,
        progress_interval: rng.one(&[100, 500, 2_000]) * MS,
        watch_events: rng.one(&[1, 4, 1_024]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_one_plan_and_every_kind_is_on_half_of_the_time() {
        let told = |seed| format!("{:?}", Plan::of(seed, None));
        assert_eq!(told(7), told(7));
        assert_ne!(told(7), told(8));
        for kind in Kind::ALL {
            let on = (0..400).filter(|seed| Plan::of(*seed, None).rate(*kind) > 0);
            let on = on.count();
            assert!(
                (140..260).contains(&on),
                "{} is on {on} of 400",
                kind.name()
            );
        }
    }
}
