//! Who must come before whom, and the cycles in that.
//!
//! Real time would need an edge for each pair of transactions that do not overlap.
//! Instead there is a chain of moments: a transaction leads to the moment it ended
//! at, and the last moment before a call leads to who called. A path over the chain is
//! exactly "was over before the call of".

use std::collections::VecDeque;

/// Says why one comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ww,
    Wr,
    Rw,
    Process,
    Realtime,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ww => "ww",
            Self::Wr => "wr",
            Self::Rw => "rw",
            Self::Process => "process",
            Self::Realtime => "realtime",
        }
    }
}

/// Is a set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Self = Self(0);
    pub(super) const WW: Self = Self(1);
    pub(super) const WR: Self = Self(2);
    pub(super) const RW: Self = Self(4);
    pub(super) const PROCESS: Self = Self(8);
    pub(super) const REALTIME: Self = Self(16);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, kind: Kind) -> bool {
        let one = match kind {
            Kind::Ww => Self::WW,
            Kind::Wr => Self::WR,
            Kind::Rw => Self::RW,
            Kind::Process => Self::PROCESS,
            Kind::Realtime => Self::REALTIME,
        };
        self.0 & one.0 != 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Out {
    to: usize,
    kind: Kind,
    key: u64,
}

/// Is one step of a cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
    pub(super) key: u64,
}

/// Leads from its first transaction back to it.
pub(super) type Cycle = Vec<Step>;

/// From how many nodes of a knot, and over how many edges, a cycle is looked for. In
/// a knot of thousands a short cycle is found from almost anywhere.
const STARTS_MAX: usize = 300;

/// Is who comes before whom.
#[derive(Debug, Default)]
pub(super) struct Graph {
    out: Vec<Vec<Out>>,
    /// The transaction of each node; moments stand after these and have none.
    txns: Vec<usize>,
}

impl Graph {
    pub(super) fn new(txns: Vec<usize>) -> Self {
        Self {
            out: vec![Vec::new(); txns.len()],
            txns,
        }
    }

    pub(super) fn txn(&self, node: usize) -> usize {
        self.txns[node]
    }

    pub(super) fn edge(&mut self, from: usize, to: usize, kind: Kind, key: u64) {
        if from != to {
            self.out[from].push(Out { to, kind, key });
        }
    }

    /// Adds the chain of moments. `spans` has call and return of each node.
    pub(super) fn real_time(&mut self, spans: &[(u64, Option<u64>)]) {
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * spans.len());
        for (node, (call, ret)) in spans.iter().enumerate() {
            moments.push((*call, false, node));
            moments.extend(ret.map(|ret| (ret, true, node)));
        }
        // At one moment calls come first: what touches overlaps.
        moments.sort_unstable();
        let mut last = None;
        for (_, is_return, node) in moments {
            if is_return {
                self.out.push(Vec::new());
                let moment = self.out.len() - 1;
                self.edge(node, moment, Kind::Realtime, 0);
                if let Some(last) = last {
                    self.edge(last, moment, Kind::Realtime, 0);
                }
                last = Some(moment);
            } else if let Some(last) = last {
                self.edge(last, node, Kind::Realtime, 0);
            }
        }
    }

    /// Lists the knots: sets of nodes that each lead to each other (Tarjan 1972).
    pub(super) fn knots(&self) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let size = self.out.len();
        let (mut index, mut low) = (vec![UNSEEN; size], vec![0; size]);
        let mut on_stack = vec![false; size];
        let (mut stack, mut knots, mut count) = (Vec::new(), Vec::new(), 0);
        for root in 0..size {
            if index[root] != UNSEEN {
                continue;
            }
            let mut walk = vec![(root, 0)];
            while let Some((node, next)) = walk.pop() {
                if next == 0 {
                    index[node] = count;
                    low[node] = count;
                    count += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(out) = self.out[node].get(next) {
                    walk.push((node, next + 1));
                    if index[out.to] == UNSEEN {
                        walk.push((out.to, 0));
                    } else if on_stack[out.to] {
                        low[node] = low[node].min(index[out.to]);
                    }
                    continue;
                }
                if let Some((parent, _)) = walk.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
                if low[node] == index[node] {
                    let from = stack.iter().rposition(|other| *other == node);
                    let knot = stack.split_off(from.unwrap_or_default());
                    knot.iter().for_each(|node| on_stack[*node] = false);
                    if knot.len() > 1 {
                        knots.push(knot);
                    }
                }
            }
        }
        knots
    }

    /// Finds a shortest cycle in a knot.
    pub(super) fn cycle(&self, knot: &[usize], kinds: Kinds) -> Option<Cycle> {
        let inside = self.inside(knot);
        let txns = knot.iter().filter(|node| **node < self.txns.len());
        txns.take(STARTS_MAX)
            .filter_map(|node| self.path(*node, *node, kinds, &inside))
            .min_by_key(Vec::len)
    }

    /// Finds a shortest cycle with exactly one edge of a kind.
    pub(super) fn cycle_through(&self, knot: &[usize], one: Kind, rest: Kinds) -> Option<Cycle> {
        let inside = self.inside(knot);
        let txns = knot.iter().filter(|node| **node < self.txns.len());
        let firsts = txns.flat_map(|node| {
            let out = self.out[*node].iter().filter(|out| out.kind == one);
            out.map(|out| Step {
                from: *node,
                to: out.to,
                kind: one,
                key: out.key,
            })
        });
        firsts
            .filter(|first| inside[first.to])
            .take(STARTS_MAX)
            .filter_map(|first| {
                let mut cycle = vec![first];
                cycle.extend(self.path(first.to, first.from, rest, &inside)?);
                Some(cycle)
            })
            .min_by_key(Vec::len)
    }

    fn inside(&self, knot: &[usize]) -> Vec<bool> {
        let mut inside = vec![false; self.out.len()];
        knot.iter().for_each(|node| inside[*node] = true);
        inside
    }

    /// Finds a shortest path of one edge or more; moments do not count as nodes.
    fn path(&self, from: usize, to: usize, kinds: Kinds, inside: &[bool]) -> Option<Cycle> {
        let mut came: Vec<Option<Step>> = vec![None; self.out.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            let out = self.out[node].iter();
            for out in out.filter(|out| kinds.has(out.kind) && inside[out.to]) {
                if came[out.to].is_some() {
                    continue;
                }
                came[out.to] = Some(Step {
                    from: node,
                    to: out.to,
                    kind: out.kind,
                    key: out.key,
                });
                if out.to == to {
                    return Some(self.back(from, to, &came));
                }
                queue.push_back(out.to);
            }
        }
        None
    }

    /// Walks back from the end, and leaves the moments out.
    fn back(&self, from: usize, to: usize, came: &[Option<Step>]) -> Cycle {
        let mut path: Cycle = Vec::new();
        let mut at = to;
        while let Some(step) = came[at] {
            at = step.from;
            match path.last_mut() {
                Some(later) if later.from >= self.txns.len() => later.from = step.from,
                _ => path.push(step),
            }
            if at == from {
                break;
            }
        }
        path.reverse();
        path
    }
}
