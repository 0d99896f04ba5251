//! The network between members: who hears whom, and what becomes of each message.

use std::collections::BTreeMap;

use crate::{
    plan::{Kind, MS, Plan, SECOND, Time},
    rng::Rng,
};

/// The fastest a message is.
const LATENCY_MIN: Time = 100;
/// The slowest, where nothing is wrong.
const LATENCY_MAX: Time = 1_500;
/// Chances where a fault is at its most, in ppm.
const LOSS_MAX: u32 = 250_000;
const DELAY_MAX: u32 = 200_000;
const REORDER_MAX: u32 = 300_000;
const DUPLICATE_MAX: u32 = 200_000;
const HOLD_MAX: u32 = 20_000;

/// When copies of a message arrive, and which faults it met.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// One time for each copy that arrives.
    pub(crate) arrivals: Vec<Time>,
    /// The faults.
    pub(crate) met: Vec<Kind>,
}

/// Who hears whom.
#[derive(Debug)]
pub(crate) struct Network {
    rng: Rng,
    /// How often each kind happens to a message, in ppm.
    loss: u32,
    delay: u32,
    reorder: u32,
    duplicate: u32,
    hold: u32,
    /// Cuts in force, by sender and receiver.
    cuts: BTreeMap<(u64, u64), u32>,
    /// When the last message of those in order arrives.
    last: BTreeMap<(u64, u64), Time>,
    /// Since when each pair hears each other.
    up_since: BTreeMap<(u64, u64), Time>,
}

impl Network {
    /// Makes the network of a plan.
    pub(crate) fn new(plan: &Plan) -> Self {
        let rate = |kind, most: u32| {
            let of = u64::from(plan.rate(kind)) * u64::from(most) / 1_000_000;
            u32::try_from(of).unwrap_or(0)
        };
        Self {
            rng: Rng::new(plan.seed, 2),
            loss: rate(Kind::Loss, LOSS_MAX),
            delay: rate(Kind::Delay, DELAY_MAX),
            reorder: rate(Kind::Reorder, REORDER_MAX),
            duplicate: rate(Kind::Duplicate, DUPLICATE_MAX),
            hold: rate(Kind::Hold, HOLD_MAX),
            cuts: BTreeMap::new(),
            last: BTreeMap::new(),
            up_since: BTreeMap::new(),
        }
    }

    /// Returns how long something takes one way, where nothing is wrong.
    pub(crate) fn latency(&mut self) -> Time {
        self.rng.between(LATENCY_MIN, LATENCY_MAX)
    }

    /// Decides what becomes of a message.
    pub(crate) fn send(&mut self, from: u64, to: u64, now: Time) -> Fate {
        let mut fate = Fate::default();
        if self.is_cut(from, to) {
            return fate;
        }
        if self.rng.chance(self.loss) {
            fate.met.push(Kind::Loss);
            return fate;
        }
        let mut at = now + self.latency();
        if self.rng.chance(self.delay) {
            fate.met.push(Kind::Delay);
            at += self.rng.between(2 * MS, 300 * MS);
        }
        if self.rng.chance(self.hold) {
            fate.met.push(Kind::Hold);
            fate.arrivals
                .push(at + self.rng.between(300 * MS, 8 * SECOND));
            // The original may arrive too: it is then a very late second copy.
            if self.rng.coin() {
                return fate;
            }
        }
        if self.rng.chance(self.reorder) {
            fate.met.push(Kind::Reorder);
            at += self.rng.between(0, 20 * MS);
        } else {
            let last = self.last.entry((from, to)).or_default();
            at = at.max(*last + 1);
            *last = at;
        }
        fate.arrivals.push(at);
        if self.rng.chance(self.duplicate) {
            fate.met.push(Kind::Duplicate);
            fate.arrivals.push(at + self.rng.between(1, 50 * MS));
        }
        fate
    }

    /// Says whether nothing goes from one to the other.
    pub(crate) fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|cuts| *cuts > 0)
    }

    /// Cuts one direction.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        *self.cuts.entry((from, to)).or_default() += 1;
    }

    /// Takes a cut back; says whether the direction is open again.
    pub(crate) fn open(&mut self, from: u64, to: u64, now: Time) -> bool {
        let cuts = self.cuts.entry((from, to)).or_default();
        *cuts = cuts.saturating_sub(1);
        let open = *cuts == 0;
        if open {
            self.up_since.insert((from, to), now);
        }
        open
    }

    /// Returns since when a direction has been open.
    pub(crate) fn open_since(&self, from: u64, to: u64) -> Time {
        self.up_since.get(&(from, to)).copied().unwrap_or(0)
    }

    /// Takes all faults back.
    pub(crate) fn heal(&mut self, now: Time) {
        let cut: Vec<_> = self.cuts.keys().copied().collect();
        for pair in cut {
            self.up_since.insert(pair, now);
        }
        self.cuts.clear();
        (self.loss, self.delay, self.reorder, self.duplicate) = (0, 0, 0, 0);
        self.hold = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(kind: Option<Kind>) -> Network {
        let mut plan = Plan::of(1, Some(3));
        plan.kinds = kind.map(|kind| (kind, 1_000_000)).into_iter().collect();
        Network::new(&plan)
    }

    #[test]
    fn without_faults_messages_arrive_once_and_in_order() {
        let mut network = network(None);
        let mut last = 0;
        for now in 0..10_000 {
            let fate = network.send(1, 2, now * 10);
            assert_eq!((fate.arrivals.len(), fate.met.len()), (1, 0));
            assert!(fate.arrivals[0] > last);
            last = fate.arrivals[0];
        }
    }

    #[test]
    fn every_fault_bites() {
        let fates = |kind| {
            let mut network = network(Some(kind));
            let fates: Vec<_> = (0..5_000).map(|now| network.send(1, 2, now * 10)).collect();
            assert!(fates.iter().any(|fate| fate.met == [kind]), "{kind:?}");
            fates
        };
        let lost = fates(Kind::Loss);
        assert!(lost.iter().any(|fate| fate.arrivals.is_empty()));
        let doubled = fates(Kind::Duplicate);
        assert!(doubled.iter().any(|fate| fate.arrivals.len() == 2));
        let held = fates(Kind::Hold);
        assert!(held.iter().any(|fate| fate.arrivals.len() == 2));
        let late = |fates: Vec<Fate>| {
            let of = |(now, fate): (usize, &Fate)| fate.arrivals[0] - now as Time * 10;
            fates.iter().enumerate().map(of).max().unwrap()
        };
        assert!(late(fates(Kind::Delay)) > 200 * MS);
        let shuffled: Vec<_> = fates(Kind::Reorder).iter().map(|f| f.arrivals[0]).collect();
        assert!(!shuffled.is_sorted());
    }

    #[test]
    fn cuts_are_counted() {
        let mut network = network(None);
        network.cut(1, 2);
        network.cut(1, 2);
        assert!(network.send(1, 2, 0).arrivals.is_empty());
        assert!(!network.send(2, 1, 0).arrivals.is_empty(), "one way only");
        assert!(!network.open(1, 2, 5));
        assert!(network.open(1, 2, 6));
        assert_eq!(network.open_since(1, 2), 6);
        assert_eq!(network.send(1, 2, 7).arrivals.len(), 1);
    }
}
