//! Makes random programs. Pure: the same seed gives the same program.
//!
//! Keys, values, leases and users are few, so that steps meet each other's traces.
//! Nothing is known here of what the members will answer: revisions are relative to
//! the newest and the compacted one, and nonsense is as welcome as sense.

mod auth;
mod kv;
mod lease;
mod misc;
mod service;
mod txn;
mod watch;

use bytes::Bytes;
use clap::ValueEnum;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{
    program::{Step, Verb},
    symbol::{COMPACT, HEAD},
};

/// A part of the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Area {
    /// Ranges, puts and deletes.
    Kv,
    /// Transactions.
    Txn,
    /// Leases.
    Lease,
    /// Watch streams.
    Watch,
    /// Compaction.
    Compact,
    /// Alarms, hashes, status, members.
    Maintenance,
    /// Users, roles, and what they may do.
    Auth,
    /// Locks and elections on the server.
    Service,
}

/// The areas a run covers when none are named.
pub(crate) const AREAS: &[Area] = &[
    Area::Kv,
    Area::Txn,
    Area::Lease,
    Area::Watch,
    Area::Compact,
    Area::Maintenance,
    Area::Auth,
    Area::Service,
];

/// How often a step is of an area: mostly, and in a program devoted to it.
fn weight(area: Area, mood: Area) -> u32 {
    let usual = match area {
        Area::Kv => 40,
        Area::Txn => 18,
        Area::Lease => 12,
        Area::Watch => 10,
        Area::Compact => 2,
        Area::Maintenance => 5,
        Area::Auth => 3,
        Area::Service => 3,
    };
    let devoted = match mood {
        Area::Compact => 8,
        Area::Auth => 40,
        _ => 50,
    };
    if area == mood { usual + devoted } else { usual }
}

/// The state of a program in the making.
pub(crate) struct Generator {
    rng: StdRng,
    areas: Vec<Area>,
    mood: Area,
    steps: Vec<Step>,
    /// Whether this program ever turns authentication on, and whether it did.
    auth: auth::State,
    /// Whether leases without an id are asked for. Their ids are random and part of
    /// what is hashed, so that no hash can be compared once there is one.
    leases_unnamed: bool,
    /// How many of them were asked for.
    leases_asked: i64,
}

/// Makes the program of a seed: `ops` steps and a look at everything left.
pub(crate) fn program(seed: u64, ops: usize, areas: &[Area]) -> Vec<Step> {
    let mut areas = areas.to_vec();
    areas.sort_unstable();
    areas.dedup();
    let mut rng = StdRng::seed_from_u64(seed);
    let mood = areas[rng.random_range(0..areas.len())];
    // Authentication changes the meaning of everything, so few programs know it.
    if mood != Area::Auth {
        areas.retain(|area| *area != Area::Auth);
    }
    let leases_unnamed = rng.random_range(0..3) == 0;
    let mut generator = Generator {
        leases_unnamed,
        rng,
        areas,
        mood,
        steps: Vec::new(),
        auth: auth::State::default(),
        leases_asked: 0,
    };
    while generator.steps.len() < ops {
        generator.step();
    }
    generator.finish();
    generator.steps
}

impl Generator {
    fn step(&mut self) {
        let total: u32 = self.areas.iter().map(|area| weight(*area, self.mood)).sum();
        let mut left = self.rng.random_range(0..total);
        let areas = self.areas.clone();
        for area in areas {
            let weight = weight(area, self.mood);
            if left < weight {
                return self.step_of(area);
            }
            left -= weight;
        }
    }

    fn step_of(&mut self, area: Area) {
        match area {
            Area::Kv => self.kv(),
            Area::Txn => self.txn(),
            Area::Lease => self.lease(),
            Area::Watch => self.watch(),
            Area::Compact => self.compact(),
            Area::Maintenance => self.misc(),
            Area::Auth => self.auth(),
            Area::Service => self.service(),
        }
    }

    /// Adds a step, taken by whoever is at the keyboard.
    fn push(&mut self, step: Step) {
        let mut user = self.auth_user();
        // Since 3.6 one who is nobody may not grant a lease, and only the
        // administrator compacts and sets alarms; before, anyone could, and all that
        // follows would differ.
        let reserved = match step.name().as_str() {
            "Lease/LeaseGrant" | "Brief" => !auth::has_account(user),
            "KV/Compact" | "Maintenance/Alarm" => true,
            _ => false,
        };
        if reserved {
            user = self.auth_root();
        }
        self.steps.push(step.by(user));
    }

    /// Looks at everything that is left.
    fn finish(&mut self) {
        self.steps.push(Step::plain(Verb::Settle));
        let look = self.look();
        self.steps.extend(look);
    }

    /// Says yes so many times in a hundred.
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn below(&mut self, end: i64) -> i64 {
        self.rng.random_range(0..end)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())].clone()
    }

    /// A key: mostly one of few.
    fn key(&mut self) -> Bytes {
        const KEYS: &[&[u8]] = &[b"a", b"b", b"c", b"aa", b"ab"];
        const RARE: &[&[u8]] = &[
            b"b\0",
            b"d",
            b"e/1",
            b"e/2",
            b"e/1/x",
            b"\xff",
            b"\xff\xff",
            b"\0",
            b"ab\xff",
        ];
        Bytes::from_static(match self.below(100) {
            0..70 => self.pick(KEYS),
            70..98 => self.pick(RARE),
            98 => b"",
            _ => b"never put",
        })
    }

    /// A key and the end of a range, of any shape.
    fn range(&mut self) -> (Bytes, Bytes) {
        let key = self.key();
        let end = match self.below(100) {
            0..40 => Bytes::new(),
            40..60 => prefix_end(&key),
            60..70 => Bytes::from_static(b"\0"),
            70..85 => self.key(),
            85..87 => key.clone(),
            _ => return (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        };
        (key, end)
    }

    fn value(&mut self) -> Bytes {
        const VALUES: &[&[u8]] = &[b"", b"1", b"2", b"3", b"x", b"xy", b"\0\xff"];
        match self.below(200) {
            0..190 => Bytes::from_static(self.pick(VALUES)),
            190..198 => Bytes::from(vec![b'v'; 100]),
            _ => Bytes::from(vec![b'V'; 6_000]),
        }
    }

    /// A revision to look at: now, near, far, compacted, future, nonsense.
    fn revision(&mut self) -> i64 {
        match self.below(100) {
            0..50 => 0,
            50..75 => HEAD - self.below(6),
            75..85 => HEAD - self.below(60),
            85..88 => HEAD + 1 + self.below(2),
            88..94 => COMPACT + self.below(4) - 1,
            94..96 => 1 + self.below(3),
            96..98 => -1 - self.below(3),
            98 => i64::MAX,
            _ => i64::MIN,
        }
    }

    /// A bound for a filter, or a revision to compare with.
    fn near(&mut self) -> i64 {
        match self.below(10) {
            0..2 => 0,
            2..9 => HEAD - self.below(12),
            _ => self.revision(),
        }
    }
}

/// The end of the range of all keys with this prefix (etcd: clientv3, op.go).
fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::program::{parse, text};

    const ALL: &[Area] = &[
        Area::Kv,
        Area::Txn,
        Area::Lease,
        Area::Watch,
        Area::Compact,
        Area::Maintenance,
        Area::Auth,
        Area::Service,
    ];

    #[test]
    fn the_same_seed_gives_the_same_program() {
        for seed in 0..20 {
            let steps = program(seed, 100, ALL);
            assert_eq!(steps, program(seed, 100, ALL));
            assert_ne!(steps, program(seed + 1, 100, ALL));
        }
    }

    #[test]
    fn programs_survive_being_written_down() {
        for seed in 0..20 {
            let steps = program(seed, 200, ALL);
            assert_eq!(parse(&text(&steps)).unwrap(), steps);
        }
    }

    #[test]
    fn every_area_and_its_corners_occur() {
        let all: String = (0..60).map(|seed| text(&program(seed, 300, ALL))).collect();
        for word in [
            "KV/Range ",
            "KV/RangeStream",
            "KV/Put",
            "KV/DeleteRange",
            "KV/Txn",
            "KV/Compact",
            "sort_order:7",
            "count_only",
            "keys_only",
            "min_create_revision",
            "serializable",
            "revision:<head+1>",
            "revision:<compact",
            "range_end:\"\\000\"",
            "ignore_lease",
            "request_txn",
            "target:LEASE",
            "result:NOT_EQUAL",
            "request_range",
            "Lease/LeaseGrant",
            "Lease/LeaseKeepAlive",
            "<lease",
            "keys:true",
            "Brief",
            "Expire",
            "Watch/1",
            "cancel_request",
            "progress_request",
            "fragment",
            "NODELETE",
            "Close/",
            "Maintenance/Alarm",
            "Maintenance/HashKV",
            "Cluster/MemberList",
            "Auth/AuthEnable",
            "Auth/Authenticate",
            "@root ",
            "Auth/RoleGrantPermission",
            "Lock/Lock",
            "Lock/Unlock",
            "Election/Campaign",
            "Election/Resign",
        ] {
            assert!(all.contains(word), "no {word}");
        }
    }

    #[test]
    fn prefixes_end_where_etcd_says() {
        assert_eq!(prefix_end(b"a"), "b");
        assert_eq!(prefix_end(b"a\xff"), "b");
        assert_eq!(prefix_end(b"\xff"), "\0");
    }
}
