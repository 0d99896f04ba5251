//! The grid of cases: how many watch, what each sees, how large it is, how often it is
//! written, and over which protocol.

use super::order::{Objects, Wire};

/// How many watch.
const WATCHERS: [usize; 4] = [1, 100, 1_000, 10_000];

/// Bytes of what is written.
const BYTES: [usize; 3] = [300, 4_000, 100_000];

/// The most bytes that one write may send out, or that all objects may have: what a
/// machine of a few cores can move within a window.
const BYTES_MAX: usize = 200_000_000;

/// What is aimed at where the rate is fixed: so many writes, events and bytes a second.
const FIXED: (f64, f64, f64) = (100.0, 100_000.0, 100e6);

/// Writes a second where each is seen by one watcher.
const FIXED_ON_NODES: f64 = 500.0;

/// How many objects are written in turn where all see all.
const FEW_OBJECTS: usize = 8;
const MANY_OBJECTS: usize = 64;

/// The most lanes that write at once.
const LANES_MAX: usize = 64;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) wire: Wire,
    pub(super) watchers: usize,
    /// Whether each watcher sees the objects of one node, rather than all.
    pub(super) on_nodes: bool,
    pub(super) bytes: usize,
    pub(super) saturating: bool,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let sees = match self.on_nodes {
            true => "see one each",
            false => "see all",
        };
        let size = match self.bytes {
            0..1000 => format!("{} B", self.bytes),
            bytes => format!("{} kB", bytes / 1000),
        };
        let rate = match self.rate() {
            Some(rate) => format!("{rate:.0}/s"),
            None => "saturating".to_owned(),
        };
        let (wire, watchers) = (self.wire.name(), self.watchers);
        format!("{wire}, {watchers} {sees}, {size}, {rate}")
    }

    /// Returns how often is written; none is as often as can be.
    pub(super) fn rate(&self) -> Option<f64> {
        let fan = self.fan().max(1) as f64;
        let (writes, events, bytes) = FIXED;
        let rate = match self.on_nodes {
            true => FIXED_ON_NODES,
            false => writes.min(events / fan),
        };
        let rate = rate.min(bytes / (fan * self.bytes as f64)).max(1.0);
        (!self.saturating).then_some(rate)
    }

    /// Returns how many watchers see a write.
    pub(super) fn fan(&self) -> u64 {
        match self.on_nodes {
            true => self.watchers.min(1) as u64,
            false => self.watchers as u64,
        }
    }

    pub(super) fn objects(&self, base: u32) -> Objects {
        let count = match (self.on_nodes, self.watchers) {
            // Nobody watches: what the writes alone cost.
            (true, 0) => 10,
            (true, watchers) => watchers,
            (false, 0..100) => MANY_OBJECTS,
            (false, _) => FEW_OBJECTS,
        };
        Objects {
            count,
            bytes: self.bytes,
            on_nodes: self.on_nodes,
            base,
        }
    }

    /// Returns how many write at once: the most that the objects can be shared by.
    pub(super) fn lanes(&self) -> usize {
        let count = self.objects(0).count;
        let lanes = (1..=LANES_MAX)
            .rev()
            .find(|lanes| count.is_multiple_of(*lanes));
        lanes.unwrap_or(1)
    }

    /// Tells whether the case is one of those that are run without being asked for.
    fn is_main(&self) -> bool {
        let shape = (self.watchers, self.on_nodes, self.bytes);
        match self.wire {
            Wire::Http1 => shape == (1_000, false, 300),
            _ if self.on_nodes => self.bytes == 300 && self.watchers != 1,
            _ => {
                self.bytes == 300
                    || shape == (1_000, false, 4_000)
                    || (shape == (100, false, 100_000) && self.saturating)
            }
        }
    }

    fn is_possible(&self) -> bool {
        let out = self.bytes * usize::try_from(self.fan()).unwrap_or(usize::MAX);
        out <= BYTES_MAX && self.bytes * self.objects(0).count <= BYTES_MAX
    }
}

/// Lists the main cases, or all that there are.
pub(super) fn cases(all: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for wire in Wire::ALL {
        for on_nodes in [false, true] {
            // To compare: nobody, and but a few of those who see one each.
            let few: &[usize] = if on_nodes { &[0, 10] } else { &[] };
            for &watchers in few.iter().chain(&WATCHERS) {
                for bytes in BYTES {
                    for saturating in [false, true] {
                        cases.push(Case {
                            wire,
                            watchers,
                            on_nodes,
                            bytes,
                            saturating,
                        });
                    }
                }
            }
        }
    }
    cases.retain(|case| case.is_possible() && (all || case.is_main()));
    cases
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<String> = cases(true).iter().map(Case::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.contains(&"json, 1000 see all, 300 B, saturating".to_owned()));
        assert!(names.contains(&"json, 10000 see one each, 300 B, 500/s".to_owned()));
    }

    #[test]
    fn each_object_belongs_to_one_lane() {
        for case in cases(true) {
            let count = case.objects(0).count;
            assert_eq!(count % case.lanes(), 0, "{}", case.name());
            assert!(case.lanes() <= count);
        }
    }

    #[test]
    fn the_main_cases_are_among_all() {
        let all = cases(true);
        assert!(cases(false).iter().all(|case| all.contains(case)));
        assert!(cases(false).len() * 2 < all.len());
    }
}
