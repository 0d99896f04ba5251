//! Named after the behaviours of client-go's `util/workqueue` tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn deduping() {
    let mut queue = BasicQueue::default();
    assert!(queue.add("a"));
    assert!(!queue.add("a"), "a waiting key is not added twice");
    assert!(queue.add("b"));
    assert_eq!(
        (queue.get(), queue.get(), queue.get()),
        (Some("a"), Some("b"), None)
    );
}

#[test]
fn add_while_processing_runs_once_more() {
    let mut queue = BasicQueue::default();
    queue.add("a");
    queue.get();
    assert!(!queue.add("a"), "no second worker may take it");
    assert!(!queue.add("a"), "collapse while processing");
    assert_eq!(queue.get(), None);
    assert!(queue.done(&"a"), "queued again");
    assert_eq!(queue.get(), Some("a"));
    assert!(!queue.done(&"a"), "and only once");
}

#[test]
fn reinsert_after_done() {
    let mut queue = BasicQueue::default();
    queue.add("a");
    queue.get();
    queue.done(&"a");
    assert!(queue.add("a"));
    assert_eq!(queue.get(), Some("a"));
}

#[test]
fn shut_down_ignores_adds_and_drains() {
    let mut queue = BasicQueue::default();
    queue.add("a");
    queue.shut_down();
    assert!(!queue.add("b"));
    assert_eq!((queue.get(), queue.get()), (Some("a"), None));
}

#[test]
fn done_without_get_changes_nothing() {
    let mut queue = BasicQueue::default();
    queue.add("a");
    assert!(!queue.done(&"a"));
    assert_eq!(queue.len(), 1);
}

#[test]
fn delaying_moves_only_earlier() {
    let mut queue = DelayingQueue::default();
    assert!(queue.add("a", 50 * MS));
    assert!(!queue.add("a", 80 * MS), "later is ignored");
    assert_eq!(queue.next_due(), Some(50 * MS));
    assert!(queue.add("a", 20 * MS), "earlier counts");
    assert_eq!(queue.pop_due(19 * MS), Vec::<&str>::new());
    assert_eq!(queue.pop_due(20 * MS), ["a"]);
    assert!(queue.is_empty(), "the later entry is gone too");
}

#[test]
fn add_two_fire_early() {
    let mut queue = DelayingQueue::default();
    queue.add("late", 60 * MS);
    queue.add("early", 10 * MS);
    assert_eq!(queue.pop_due(30 * MS), ["early"]);
    assert_eq!(queue.pop_due(60 * MS), ["late"]);
}

#[test]
fn item_exponential_failure_rate_limiter() {
    let mut limiter = RateLimiter::new(LimiterConfig {
        max_delay: 40 * MS,
        ..LimiterConfig::default()
    });
    let mut waits = Vec::new();
    for _ in 0..5 {
        waits.push(limiter.when(&"a", Duration::ZERO));
    }
    assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS, 40 * MS, 40 * MS]);
    assert_eq!(limiter.num_requeues(&"a"), 5);
    assert_eq!(limiter.when(&"b", Duration::ZERO), 5 * MS);
    limiter.forget(&"a");
    assert_eq!(limiter.when(&"a", Duration::ZERO), 5 * MS);
}

#[test]
fn item_exponential_failure_rate_limiter_overflow() {
    let mut limiter = RateLimiter::new(LimiterConfig {
        qps: 1e9,
        ..LimiterConfig::default()
    });
    for _ in 0..1000 {
        limiter.when(&"a", Duration::ZERO);
    }
    assert_eq!(
        limiter.when(&"a", Duration::ZERO),
        Duration::from_secs(1000)
    );
}

#[test]
fn bucket_limits_all_keys_together() {
    let mut limiter = RateLimiter::new(LimiterConfig::default());
    for key in 0..100 {
        assert_eq!(limiter.when(&key, Duration::ZERO), 5 * MS, "burst");
    }
    assert_eq!(limiter.when(&100, Duration::ZERO), 100 * MS);
    assert_eq!(limiter.when(&101, Duration::ZERO), 200 * MS);
    // Ten tokens a second come back; two are owed.
    assert_eq!(limiter.when(&102, Duration::from_secs(1)), 5 * MS);
}

#[tokio::test]
async fn delayed_keys_arrive_in_order_of_time() {
    let queue = WorkQueue::default();
    queue.add_after("late", 100 * MS);
    queue.add_after("early", 10 * MS);
    queue.add("now");
    for expected in ["now", "early", "late"] {
        let key = queue.get().await.unwrap();
        assert_eq!(key, expected);
        queue.done(&key);
    }
    assert_eq!(queue.unfinished(), 0);
}

#[tokio::test]
async fn rate_limited_key_waits_longer_each_time() {
    let queue = WorkQueue::default();
    let start = Instant::now();
    for _ in 0..4 {
        queue.add_rate_limited("a");
        let key = queue.get().await.unwrap();
        queue.done(&key);
    }
    let waited = start.elapsed();
    assert!(waited >= 75 * MS, "5+10+20+40 ms, was {waited:?}");
    assert_eq!(queue.num_requeues(&"a"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_per_key_and_every_add_is_seen() {
    let queue: WorkQueue<u32> = WorkQueue::default();
    let latest: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let busy: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());

    let mut workers = Vec::new();
    for _ in 0..4 {
        let (queue, latest, seen, busy) = (
            queue.clone(),
            Arc::clone(&latest),
            Arc::clone(&seen),
            Arc::clone(&busy),
        );
        workers.push(tokio::spawn(async move {
            while let Some(key) = queue.get().await {
                let slot = key as usize;
                assert_eq!(busy[slot].fetch_add(1, Ordering::SeqCst), 0, "two workers");
                let value = latest[slot].load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                seen.lock().unwrap().insert(key, value);
                busy[slot].fetch_sub(1, Ordering::SeqCst);
                queue.done(&key);
            }
        }));
    }
    for round in 1..=500 {
        for key in 0..8 {
            latest[key as usize].store(round, Ordering::SeqCst);
            queue.add(key);
        }
        tokio::task::yield_now().await;
    }
    queue.shut_down();
    for worker in workers {
        worker.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert!(
        (0..8).all(|key| seen[&key] == 500),
        "the last add of each key was worked on: {seen:?}"
    );
}

#[tokio::test]
async fn shut_down_wakes_idle_workers() {
    let queue: WorkQueue<u8> = WorkQueue::default();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), None);
    }
    queue.add(1);
    assert!(queue.is_empty(), "a queue shut down takes nothing");
}

/// Is what a queue must do, in the words of its contract: how many runs each key is
/// still owed, and which keys a worker holds.
#[derive(Default)]
struct Spec {
    owed: BTreeMap<u8, bool>,
    held: Vec<u8>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_add_is_followed_by_a_run_and_no_key_runs_twice_at_a_time(
        ops in prop::collection::vec((0..3u8, 0..5u8), 0..200),
    ) {
        let (mut queue, mut spec) = (BasicQueue::default(), Spec::default());
        for (op, key) in ops {
            match op {
                0 => {
                    queue.add(key);
                    spec.owed.insert(key, true);
                }
                1 => {
                    let free = spec.owed.iter().filter(|(k, _)| !spec.held.contains(k)).count();
                    prop_assert_eq!(queue.len(), free);
                    match queue.get() {
                        Some(key) => {
                            prop_assert!(!spec.held.contains(&key), "two workers");
                            prop_assert!(spec.owed.remove(&key).is_some(), "nobody asked");
                            spec.held.push(key);
                        }
                        None => prop_assert_eq!(free, 0),
                    }
                }
                _ => {
                    queue.done(&key);
                    spec.held.retain(|k| *k != key);
                }
            }
        }
    }
}
