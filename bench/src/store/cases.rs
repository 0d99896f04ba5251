//! The list of cases: a new one is a line here.

use super::kv::{self, Case, Read};
use super::once::Once;
use super::watch::{self, Shape};
use super::{lease, mix};
use crate::drive::Plan;
use crate::report::Metric::{self, CpuPerOp, OpsPerSecond, P50, P99, Rss};
use crate::target::Target;

/// What a metric of ours may be, as a part of the peer's.
#[derive(Clone, Copy)]
pub(super) enum Margin {
    AtMost(Metric, f64),
    AtLeast(Metric, f64),
}

use Margin::{AtLeast, AtMost};

/// How a case is run.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Clients on a store that serves all cases in turn.
    Load(Load),
    /// A store of its own.
    Once(Once),
}

pub(crate) struct Listed {
    pub(crate) name: &'static str,
    pub(crate) members: usize,
    pub(super) kind: Kind,
    pub(super) margins: &'static [Margin],
}

/// A load: clients on a store for a while.
pub(crate) type Load = fn(&Target, Plan) -> Case<'_>;

impl Listed {
    /// Returns what runs it, if it is a load.
    pub(crate) fn load(&self) -> Option<Load> {
        match self.kind {
            Kind::Load(load) => Some(load),
            Kind::Once(_) => None,
        }
    }
}

const fn load(name: &'static str, run: Load, margins: &'static [Margin]) -> Listed {
    Listed {
        name,
        members: 1,
        kind: Kind::Load(run),
        margins,
    }
}

const fn cluster(name: &'static str, run: Load, margins: &'static [Margin]) -> Listed {
    Listed {
        members: 3,
        ..load(name, run, margins)
    }
}

const fn once(name: &'static str, once: Once, margins: &'static [Margin]) -> Listed {
    Listed {
        name,
        members: once.members(),
        kind: Kind::Once(once),
        margins,
    }
}

const fn fan_out(
    streams: usize,
    watchers_per_stream: usize,
    connections: usize,
    rate: Option<u32>,
) -> Shape {
    Shape {
        streams,
        watchers_per_stream,
        connections,
        rate,
    }
}

/// All cases, in the order in which they run.
pub(crate) const CASES: &[Listed] = &[
    load(
        "put, 1 client",
        |t, p| kv::puts(t, p, (1, 1)),
        &[AtMost(P50, 0.9), AtMost(CpuPerOp, 0.5)],
    ),
    load(
        "put, 100 clients, 10 conns",
        |t, p| kv::puts(t, p, (100, 10)),
        &[],
    ),
    load(
        "put, 1000 clients, 100 conns",
        |t, p| kv::puts(t, p, (1_000, 100)),
        &[
            AtMost(CpuPerOp, 0.55),
            AtLeast(OpsPerSecond, 1.4),
            AtMost(Rss, 0.5),
        ],
    ),
    load(
        "update txn, 1000 clients, 100 conns",
        |t, p| kv::updates(t, p, (1_000, 100)),
        &[AtMost(CpuPerOp, 0.5)],
    ),
    load(
        "create and delete txn, 100 clients, 10 conns",
        |t, p| kv::creates_and_deletes(t, p, (100, 10)),
        &[],
    ),
    load(
        "linearizable get, 100 clients, 10 conns",
        |t, p| kv::reads(t, p, (100, 10), Read::Linearizable),
        &[AtMost(CpuPerOp, 0.45), AtLeast(OpsPerSecond, 1.8)],
    ),
    load(
        "serializable get, 100 clients, 10 conns",
        |t, p| kv::reads(t, p, (100, 10), Read::Serializable),
        &[],
    ),
    load(
        "list of 10,000 keys",
        |t, p| kv::reads(t, p, (1, 1), Read::List),
        &[AtMost(CpuPerOp, 0.25)],
    ),
    load(
        "stream of 10,000 keys",
        |t, p| kv::streams(t, p, (1, 1)),
        &[],
    ),
    load(
        "page of 500 of 10,000, 8 clients",
        |t, p| kv::reads(t, p, (8, 4), Read::Page),
        &[AtMost(CpuPerOp, 0.15)],
    ),
    load(
        "count of 10,000, 8 clients",
        |t, p| kv::reads(t, p, (8, 4), Read::Count),
        &[AtMost(CpuPerOp, 0.05)],
    ),
    load(
        "lease grant, 100 clients, 10 conns",
        |t, p| lease::grants(t, p, (100, 10)),
        &[AtMost(CpuPerOp, 0.25)],
    ),
    load(
        "keepalive, 100 streams, 10 conns",
        |t, p| lease::keep_alives(t, p, (100, 10)),
        &[AtMost(CpuPerOp, 0.9)],
    ),
    load(
        "watch, 1 stream, saturating",
        |t, p| watch::fan_out(t, p, fan_out(1, 1, 1, None)),
        &[],
    ),
    load(
        "watch, 100 streams, 100 conns, saturating",
        |t, p| watch::fan_out(t, p, fan_out(100, 1, 100, None)),
        &[AtMost(CpuPerOp, 0.3), AtLeast(OpsPerSecond, 2.0)],
    ),
    load(
        "watch, 1000 streams, 100 conns, saturating",
        |t, p| watch::fan_out(t, p, fan_out(1_000, 1, 100, None)),
        &[AtMost(CpuPerOp, 0.3), AtLeast(OpsPerSecond, 2.0)],
    ),
    load(
        "watch, 1000 streams, 100 conns, 100 puts/s",
        |t, p| watch::fan_out(t, p, fan_out(1_000, 1, 100, Some(100))),
        &[AtMost(CpuPerOp, 0.45), AtMost(P99, 0.8)],
    ),
    load(
        "watch, 1000 watchers on 10 streams, saturating",
        |t, p| watch::fan_out(t, p, fan_out(10, 100, 10, None)),
        &[AtMost(CpuPerOp, 0.7)],
    ),
    load(
        "kubernetes mix, 100 clients, 10 conns",
        |t, p| mix::kubernetes(t, p, (100, 10)),
        &[],
    ),
    once(
        "start, empty",
        Once::Start,
        &[AtMost(P50, 0.3), AtMost(Rss, 0.4)],
    ),
    once(
        "start, 1,000,000 keys",
        Once::Open,
        &[AtMost(P50, 0.5), AtMost(Rss, 0.7)],
    ),
    once("backup of 1,000,000 keys", Once::Snapshot, &[]),
    once(
        "put, 1000/s while 900,000 revisions are compacted",
        Once::Compact,
        &[AtMost(P99, 0.5)],
    ),
    cluster(
        "three members, put, 100 clients, 10 conns",
        |t, p| kv::puts(t, p, (100, 10)),
        &[AtMost(CpuPerOp, 0.55), AtMost(P99, 0.8), AtMost(Rss, 0.5)],
    ),
    cluster(
        "three members, linearizable get, 100 clients, 10 conns",
        |t, p| kv::reads(t, p, (100, 10), Read::Linearizable),
        &[AtMost(CpuPerOp, 0.5)],
    ),
    once(
        "three members, a follower catches up 100,000 keys",
        Once::CatchUp,
        &[],
    ),
];
