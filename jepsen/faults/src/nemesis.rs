//! The nemeses: everything that is done to a cluster on purpose.
//!
//! Each is a value that draws by a random source what exactly it does, does it, and
//! undoes it. A new one is one entry in [`KINDS`], beside its code.

mod disk;
mod membership;
mod network;
mod process;

use rand::rngs::StdRng;

use crate::bed::{Bed, Ground, Victims};
use crate::error::{Error, Result};

/// Hurts a cluster, and ends it again.
pub trait Nemesis: Send {
    /// Begins, and says what was done to whom.
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String>;

    /// Ends it. [`Bed::revive`] was called before; what is left is what only this one
    /// knows of.
    fn heal(&mut self, bed: &mut Bed) -> Result<()>;
}

/// One kind of nemesis.
#[derive(Clone, Copy)]
pub struct Kind {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// What must be in place.
    needs: fn(&mut Ground),
    /// Whether at most one of these may be at work at a time: each takes a member out
    /// of the quorum for longer than its own time.
    pub lasting: bool,
    make: fn() -> Box<dyn Nemesis>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Kind {
    /// Makes one.
    pub fn make(&self) -> Box<dyn Nemesis> {
        (self.make)()
    }

    /// Adds what it needs to what is put in place.
    pub fn prepare(&self, ground: &mut Ground) {
        (self.needs)(ground);
    }
}

const fn kind(
    name: &'static str,
    about: &'static str,
    needs: fn(&mut Ground),
    make: fn() -> Box<dyn Nemesis>,
) -> Kind {
    Kind {
        name,
        about,
        needs,
        lasting: false,
        make,
    }
}

fn nothing(_: &mut Ground) {}

fn network(ground: &mut Ground) {
    // Without namespaces the relay does it.
    ground.relay |= !ground.lan;
}

fn relay(ground: &mut Ground) {
    ground.relay = true;
}

fn packets(ground: &mut Ground) {
    ground.lan = true;
}

fn disks(ground: &mut Ground) {
    ground.disks = true;
}

fn clocks(ground: &mut Ground) {
    ground.clocks = true;
}

const fn lasting(kind: Kind) -> Kind {
    Kind {
        lasting: true,
        ..kind
    }
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    kind(
        "kill",
        "SIGKILL to one, the leader, a majority or all",
        nothing,
        || Box::new(process::Kill(None)),
    ),
    kind("kill-leader", "SIGKILL to the leader", nothing, || {
        Box::new(process::Kill(Some(Victims::Leader)))
    }),
    kind(
        "pause",
        "SIGSTOP to one, the leader, a majority or all",
        nothing,
        || Box::new(process::Pause),
    ),
    kind("restart", "SIGTERM to one after the other", nothing, || {
        Box::new(process::Rolling)
    }),
    kind(
        "clock",
        "wall clocks that are off, or run too fast",
        clocks,
        || Box::new(process::Skew),
    ),
    kind(
        "partition",
        "the leader alone, halves, or a ring of majorities",
        network,
        || Box::new(network::Partition),
    ),
    kind(
        "one-way",
        "nothing to or nothing from a member",
        network,
        || Box::new(network::OneWay),
    ),
    kind("loss", "packets lost by chance", packets, || {
        Box::new(network::Loss)
    }),
    kind(
        "slow-link",
        "few bits a second from a member",
        packets,
        || Box::new(network::SlowLink),
    ),
    kind("delay", "everything said later, with jitter", relay, || {
        Box::new(network::Delay)
    }),
    kind("hold", "what is said held, and let go late", relay, || {
        Box::new(network::Hold)
    }),
    kind(
        "reset",
        "connections torn down with what is in them",
        relay,
        || Box::new(network::Reset),
    ),
    kind(
        "disk-full",
        "no room on the disk of one member",
        disks,
        || Box::new(disk::Full),
    ),
    kind("sync-error", "EIO on fsync of one member", disks, || {
        Box::new(disk::SyncError)
    }),
    kind("slow-disk", "fsync that takes long", disks, || {
        Box::new(disk::Slow)
    }),
    kind(
        "power-cut",
        "SIGKILL, and what was not synced is lost or torn",
        disks,
        || Box::new(disk::PowerCut),
    ),
    kind("transfer", "the leader hands over", nothing, || {
        Box::new(membership::Transfer)
    }),
    kind("defragment", "members give room back", nothing, || {
        Box::new(membership::Defragment)
    }),
    lasting(kind(
        "replace",
        "a member removed, and another added in its place",
        nothing,
        || Box::new(membership::Replace::default()),
    )),
    lasting(kind(
        "corrupt-log",
        "bits flipped in the log of a stopped member",
        nothing,
        || Box::new(membership::Corrupt::log()),
    )),
    lasting(kind(
        "corrupt-snapshot",
        "bits flipped in the snapshots of a stopped member",
        nothing,
        || Box::new(membership::Corrupt::snapshots()),
    )),
];

/// Finds kinds by their names; `all` is all of them, `none` none.
pub fn named(names: &str) -> Result<Vec<Kind>> {
    match names {
        "all" => Ok(KINDS.to_vec()),
        "none" => Ok(Vec::new()),
        names => names
            .split(',')
            .map(|name| {
                let found = KINDS.iter().find(|k| k.name == name).copied();
                found.ok_or_else(|| Error::Unfit(format!("no nemesis is called {name}")))
            })
            .collect(),
    }
}

/// Names members in a description.
fn who(members: &[usize]) -> String {
    let names: Vec<String> = members.iter().map(|at| format!("m{at}")).collect();
    names.join(" ")
}
