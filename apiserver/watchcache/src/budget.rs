//! How long clients may be late, in sum over time.
//!
//! Nobody waits for a client that is late: what it has not taken is kept for
//! it, and costs memory, which has a limit of its own. Its time is limited all
//! the same, as one that is slower than its changes never catches up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::index::WatcherId;
use crate::line::Line;

/// The most that is left for clients to be late, all together. In
/// kube-apiserver (`time_budget.go`) it is 100 ms, for which everybody waits.
pub const BUDGET_MAX: Duration = Duration::from_secs(2);
/// The budget refills by this share of the time in which nobody is late: 50 ms
/// a second.
const BUDGET_REFILL: u32 = 20;
/// How long everyone may be late at least, whatever others have used.
pub const LATE_MIN: Duration = Duration::from_millis(100);

/// A time budget that all who are late use up together: it passes once, however
/// many they are.
#[derive(Debug)]
struct Budget {
    left: Duration,
    at: Duration,
}

impl Budget {
    /// Creates a full budget.
    fn new(now: Duration) -> Self {
        Self {
            left: BUDGET_MAX,
            at: now,
        }
    }

    /// Lets time pass until now, in which somebody was late or nobody.
    fn pass(&mut self, now: Duration, late: bool) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.left = match late {
            true => self.left.saturating_sub(passed),
            false => (self.left + passed / BUDGET_REFILL).min(BUDGET_MAX),
        };
    }
}

#[derive(Debug)]
struct Laggard {
    since: Duration,
    line: Arc<Line>,
}

/// The clients that are late, and the time they have left.
#[derive(Debug)]
pub struct Laggards {
    budget: Budget,
    late: BTreeMap<WatcherId, Laggard>,
    due: Option<Duration>,
}

impl Laggards {
    /// Nobody is late yet.
    pub fn new(now: Duration) -> Self {
        Self {
            budget: Budget::new(now),
            late: BTreeMap::new(),
            due: None,
        }
    }

    /// Learns who has become late just now.
    pub fn add(&mut self, who: impl IntoIterator<Item = (WatcherId, Arc<Line>)>, now: Duration) {
        let who: Vec<_> = who.into_iter().collect();
        // Who is late again has kept up meanwhile.
        for (id, _) in &who {
            self.late.remove(id);
        }
        self.settle(now);
        let anew = |(id, line)| (id, Laggard { since: now, line });
        self.late.extend(who.into_iter().map(anew));
        self.plan();
    }

    /// Returns who is to be cut off, and forgets them: who has been late for too
    /// long when all the time is used up.
    pub fn judge(&mut self, now: Duration) -> Vec<WatcherId> {
        self.settle(now);
        let mut over = Vec::new();
        if self.budget.left.is_zero() {
            self.late.retain(|id, laggard| {
                let stays = now < laggard.since + LATE_MIN;
                if !stays {
                    over.push(*id);
                }
                stays
            });
        }
        self.plan();
        over
    }

    /// Returns when somebody is to be judged next, if all stay late.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Lets time pass, and forgets who has caught up.
    fn settle(&mut self, now: Duration) {
        self.late.retain(|_, laggard| laggard.line.is_late());
        self.budget.pass(now, !self.late.is_empty());
    }

    fn plan(&mut self) {
        let first = self.late.values().map(|laggard| laggard.since).min();
        let used_up = self.budget.at + self.budget.left;
        self.due = first.map(|since| used_up.max(since + LATE_MIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventType};
    use crate::watchers::Initial;
    use crate::window::Missed;
    use std::task::{Context, Waker};

    const NOBODY: [WatcherId; 0] = [];

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A line with two changes, one more than it may have.
    fn late() -> Arc<Line> {
        let initial = Initial::Changes(Missed::nothing());
        let line = Arc::new(Line::new(initial, 0, false, 1, Arc::default()));
        assert_eq!([1, 2].map(|n| push(&line, n)), [false, true]);
        line
    }

    fn push(line: &Line, revision: u64) -> bool {
        let object = crate::model::object(0, 0, 0, revision);
        let event = Event::new(revision, Some(object), None);
        line.push(EventType::Added, Arc::new(event))
    }

    fn read(line: &Line) {
        let read = line.poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(read.is_ready());
    }

    #[test]
    fn refills_slowly_and_never_beyond_its_bound() {
        let start = Duration::from_secs(7);
        let mut budget = Budget::new(start);
        budget.pass(start + ms(500), true);
        assert_eq!(budget.left, ms(1500));
        budget.pass(start + ms(3000), true);
        assert_eq!(budget.left, ms(0));
        budget.pass(start + ms(4000), false);
        assert_eq!(budget.left, ms(50));
        budget.pass(start, false);
        assert_eq!((budget.left, budget.at), (ms(50), start + ms(4000)));
        budget.pass(start + ms(3_600_000), false);
        assert_eq!(budget.left, BUDGET_MAX);
    }

    #[test]
    fn who_stays_late_is_cut_off_when_the_time_is_used_up() {
        let mut laggards = Laggards::new(ms(0));
        assert_eq!(
            (laggards.judge(ms(900)), laggards.due()),
            (NOBODY.to_vec(), None)
        );
        laggards.add([(1, late())], ms(1000));
        assert_eq!(laggards.due(), Some(ms(3000)));
        laggards.add([(2, late())], ms(1500));
        assert_eq!(laggards.due(), Some(ms(3000)));
        // The last has a time of its own.
        laggards.add([(3, late())], ms(2999));
        assert_eq!(laggards.judge(ms(2999)), NOBODY);
        assert_eq!(laggards.judge(ms(3000)), [1, 2]);
        assert_eq!(laggards.due(), Some(ms(3099)));
        assert_eq!(laggards.judge(ms(3098)), NOBODY);
        assert_eq!(laggards.judge(ms(3099)), [3]);
        assert_eq!(laggards.due(), None);
        // There is little left for who is late next.
        laggards.add([(4, late())], ms(13_099));
        assert_eq!(laggards.due(), Some(ms(13_599)));
    }

    #[test]
    fn who_catches_up_stays() {
        let mut laggards = Laggards::new(ms(0));
        let (a, b) = (late(), late());
        laggards.add([(1, a.clone()), (2, b.clone())], ms(1000));
        read(&a);
        // The time passes for the other.
        assert_eq!(laggards.judge(ms(2900)), NOBODY);
        read(&b);
        assert_eq!(
            (laggards.judge(ms(2950)), laggards.due()),
            (NOBODY.to_vec(), None)
        );
        // Late again at the end of it: from now on.
        assert!(push(&a, 3));
        laggards.add([(1, a.clone())], ms(2960));
        assert_eq!(laggards.due(), Some(ms(3063)));
        read(&a);
        assert!(push(&a, 4));
        laggards.add([(1, a.clone())], ms(3062));
        assert_eq!(laggards.judge(ms(3063)), NOBODY);
        a.cut();
        assert_eq!(
            (laggards.judge(ms(9000)), laggards.due()),
            (NOBODY.to_vec(), None)
        );
    }
}
