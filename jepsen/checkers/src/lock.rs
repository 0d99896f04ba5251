//! Locks: with a fence, whoever lost the lock changes nothing any more. Without one a
//! lock is not safe (a paused client wakes up and writes), and that is said by name.

use std::collections::BTreeMap;

use crate::{
    history::{Blob, Held, History},
    log::Log,
    verdict::{Anomalies, Anomaly, Verdict, names},
};

/// Checks all work done under locks.
pub fn check(history: &History) -> Verdict {
    check_with(history, &Log::merge(history))
}

/// Checks all work done under locks with the log at hand.
pub fn check_with(history: &History, log: &Log<'_>) -> Verdict {
    let mut locks: BTreeMap<&Blob, Vec<&Held>> = BTreeMap::new();
    for held in &history.locks {
        locks.entry(&held.name).or_default().push(held);
    }
    let mut anomalies = Anomalies::default();
    for held in locks.values_mut() {
        held.sort_by_key(|held| held.fence);
        one_at_a_time(held, log, &mut anomalies);
        fenced(held, &mut anomalies);
        unguarded(held, &mut anomalies);
    }
    anomalies.verdict()
}

fn report(anomalies: &mut Anomalies, name: &'static str, text: String, held: [&Held; 2]) {
    anomalies.push(|| {
        let mut anomaly = Anomaly::new(name, text);
        let nodes = held.map(|held| {
            let label = format!(
                "p{} holds {} as {}",
                held.span.process, held.name, held.fence
            );
            anomaly.node(held.span, label)
        });
        anomaly.edge(nodes[0], nodes[1], "lost it to");
        anomaly
    });
}

/// As the store sees it, a lock is held by the oldest key of its name: nobody is told
/// that it is his while the key of somebody older is there.
fn one_at_a_time(held: &[&Held], log: &Log<'_>, anomalies: &mut Anomalies) {
    // When each key went, and what its holder did last, in revisions.
    let mut gone: BTreeMap<(&Blob, i64), i64> = BTreeMap::new();
    let keys: BTreeMap<_, _> = held.iter().map(|held| (&held.key, held)).collect();
    let mut there: BTreeMap<&Blob, i64> = BTreeMap::new();
    for (revision, entry) in log.iter() {
        for event in entry.events.iter().filter(|e| keys.contains_key(&e.kv.key)) {
            if event.delete {
                if let Some(fence) = there.remove(&event.kv.key) {
                    gone.insert((&event.kv.key, fence), revision);
                }
            } else {
                there.insert(&event.kv.key, event.kv.create);
            }
        }
    }
    for pair in held.windows(2) {
        let [older, younger] = pair else {
            continue;
        };
        if older.fence == younger.fence {
            let text = format!(
                "two were told that they hold {} as {}",
                older.name, older.fence
            );
            report(anomalies, names::SHARED_LOCK, text, [older, younger]);
            continue;
        }
        let left = gone.get(&(&older.key, older.fence));
        let still = there
            .get(&older.key)
            .is_some_and(|fence| *fence == older.fence);
        let first = younger.guarded.iter().min();
        let shared = match (left, first) {
            (Some(left), Some(first)) => first < left,
            (None, Some(_)) => still,
            _ => false,
        };
        if shared {
            let text = format!(
                "{} as {} was used while the older {} was there",
                younger.name, younger.fence, older.fence
            );
            report(anomalies, names::SHARED_LOCK, text, [older, younger]);
        }
    }
}

/// In the order of revisions, guarded writes have fences that never fall.
fn fenced(held: &[&Held], anomalies: &mut Anomalies) {
    let mut writes: Vec<_> = held
        .iter()
        .flat_map(|held| held.guarded.iter().map(|revision| (*revision, *held)))
        .collect();
    writes.sort_by_key(|(revision, held)| (*revision, held.fence));
    let mut newest: Option<&Held> = None;
    for (revision, held) in writes {
        if let Some(newest) = newest.filter(|newest| newest.fence > held.fence) {
            let text = format!(
                "revision {revision} was written under {} as {}, after {} had it",
                held.name, held.fence, newest.fence
            );
            report(anomalies, names::UNFENCED_WRITE, text, [held, newest]);
        } else {
            newest = Some(held);
        }
    }
}

/// What is written without a guard after somebody else was told that he holds the lock
/// may destroy his work.
fn unguarded(held: &[&Held], anomalies: &mut Anomalies) {
    for (at, older) in held.iter().enumerate() {
        let Some(last) = older.unguarded.iter().max() else {
            continue;
        };
        let younger = held[at + 1..]
            .iter()
            .find(|younger| younger.fence > older.fence && younger.span.call < *last);
        if let Some(younger) = younger {
            let text = format!(
                "p{} wrote without a guard under {}, which p{} held by then",
                older.span.process, older.name, younger.span.process
            );
            report(anomalies, names::UNSAFE_LOCK, text, [older, younger]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Span, events, kv, was_deleted, was_put};

    fn held(process: u32, when: (u64, u64), fence: i64, guarded: &[i64]) -> Held {
        Held {
            span: Span {
                process,
                call: when.0,
                ret: when.1,
            },
            name: "l".into(),
            key: format!("l/{process}").into(),
            lease: 1,
            fence,
            guarded: guarded.to_vec(),
            unguarded: Vec::new(),
        }
    }

    fn word(locks: Vec<Held>) -> &'static str {
        let mut history = History {
            locks,
            ..History::default()
        };
        let log = [
            events(2, [was_put(kv("l/0", "", 2, 2, 1))]),
            events(3, [was_put(kv("l/1", "", 3, 3, 1))]),
            events(4, [was_put(kv("x", "", 4, 4, 1))]),
            events(5, [was_deleted("l/0", 5)]),
            events(6, [was_put(kv("x", "", 4, 6, 2))]),
        ];
        history.log(0, log);
        check(&history).word()
    }

    #[test]
    fn a_fence_keeps_out_who_lost_the_lock() {
        let one = || held(0, (1, 9), 2, &[4]);
        let two = || held(1, (5, 9), 3, &[6]);
        assert_eq!(word(vec![one(), two()]), "valid", "though both believe");
        assert_eq!(
            word(vec![held(0, (1, 9), 2, &[7]), two()]),
            "unfenced-write"
        );
        assert_eq!(word(vec![one(), held(1, (5, 9), 3, &[4])]), "shared-lock");
        assert_eq!(word(vec![one(), held(1, (5, 9), 2, &[6])]), "shared-lock");
    }

    #[test]
    fn a_lock_alone_is_unsafe() {
        let mut one = held(0, (1, 9), 2, &[]);
        let two = held(1, (5, 9), 3, &[]);
        one.unguarded = vec![4];
        assert_eq!(word(vec![one.clone(), two.clone()]), "valid");
        one.unguarded = vec![6];
        assert_eq!(word(vec![one, two]), "unsafe-lock");
    }
}
