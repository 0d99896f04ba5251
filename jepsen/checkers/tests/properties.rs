//! Whatever the model does is accepted by every checker; whatever is changed in it
//! afterwards is refused.

use checkers::{
    generate::{self, Random, Shape},
    history::{Body, History, Op, Outcome, Request, Told},
    judge::{Settings, judge},
    wgl::{self, Budget},
    witness,
};
use proptest::prelude::*;

fn shape(clients: u32, ops: usize, keys: u64, registers: bool) -> Shape {
    Shape {
        clients,
        ops,
        keys,
        registers,
        ..Shape::default()
    }
}

/// Changes one thing in an answer, if there is something to change that the store is
/// bound by.
fn mutate(body: &mut Body, random: &mut Random) -> bool {
    match body {
        Body::Range { kvs, count, .. } => {
            let many = kvs.len() as u64;
            match kvs.get_mut(random.below(many) as usize) {
                None => *count += 1,
                Some(kv) => match random.below(5) {
                    0 => kv.value = "never written".into(),
                    1 => kv.version += 1,
                    2 => kv.modified -= 1,
                    3 => kv.create += 1,
                    _ => {
                        kvs.pop();
                    }
                },
            }
            true
        }
        Body::Delete { deleted, .. } => {
            // One more may be right: a lapsed lease took the key at that revision, and
            // a delete would do as well.
            *deleted += 1_000;
            true
        }
        Body::Put { prev } => match prev {
            Some(prev) => {
                prev.version += 1;
                true
            }
            None => false,
        },
        Body::Txn { succeeded, results } => {
            if random.below(2) == 0 {
                *succeeded = !*succeeded;
                return true;
            }
            results.iter_mut().any(|body| mutate(body, random))
        }
        Body::Done | Body::Lease { .. } | Body::Lock { .. } => false,
    }
}

fn acknowledged(history: &History) -> Vec<usize> {
    let ok = |op: &Op| op.reply().is_some();
    (0..history.ops.len())
        .filter(|at| ok(&history.ops[*at]))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_the_model_does_is_accepted(
        seed: u64,
        clients in 1u32..8,
        ops in 1usize..150,
        keys in 1u64..6,
        registers: bool,
    ) {
        let history = generate::history(seed, &shape(clients, ops, keys, registers));
        let judgement = judge(&history, &Settings::default());
        let word = judgement.verdict.word();
        prop_assert_eq!(word, "valid", "{:#?}", judgement.verdict);
    }

    #[test]
    fn a_changed_answer_is_refused(seed: u64, clients in 1u32..6) {
        let mut history = generate::history(seed, &shape(clients, 80, 3, false));
        let mut random = Random::new(seed ^ 0xc0de);
        let oks = acknowledged(&history);
        let tries = (0..20).map(|_| oks[random.below(oks.len() as u64) as usize]);
        let tries: Vec<_> = tries.collect();
        let mut what = None;
        for at in tries {
            let op = &mut history.ops[at];
            let before = op.to_string();
            if let Outcome::Ok(reply) = &mut op.outcome
                && mutate(&mut reply.body, &mut random)
            {
                what = Some(format!("{before} became {op}"));
                break;
            }
        }
        if let Some(what) = what {
            let verdict = witness::check(&history);
            prop_assert!(verdict.is_invalid(), "{what}");
        }
    }

    #[test]
    fn a_changed_log_is_refused(seed: u64, which in 0u8..3) {
        let mut history = generate::history(seed, &shape(4, 60, 3, false));
        let mut random = Random::new(seed ^ 0x106);
        let place = random.next_place(&history);
        let Some(place) = place else {
            return Ok(());
        };
        for watch in history.watches.iter_mut().filter(|watch| watch.whole) {
            match which {
                0 => drop(watch.told.remove(place)),
                1 => {
                    let at = watch.told[place].0;
                    if let Told::Events { events, .. } = &mut watch.told[place].1 {
                        events[0].kv.value = "never written".into();
                        events[0].delete = false;
                    }
                    watch.told[place].0 = at;
                }
                _ => {
                    if let Told::Events { events, .. } = &mut watch.told[place].1 {
                        let mut other = events[0].clone();
                        other.kv.key = "another".into();
                        events.push(other);
                    }
                }
            }
        }
        prop_assert!(witness::check(&history).is_invalid());
    }

    #[test]
    fn the_search_refuses_only_what_the_witness_refuses(seed: u64, ops in 20usize..80) {
        let mut history = generate::history(seed, &shape(4, ops, 2, true));
        let mut random = Random::new(seed ^ 0x5ea);
        let reads: Vec<_> = acknowledged(&history)
            .into_iter()
            .filter(|at| matches!(history.ops[*at].request, Request::Range(_)))
            .collect();
        // Two reads change answers: values stay such as were written.
        if reads.len() > 1 {
            let one = reads[random.below(reads.len() as u64) as usize];
            let other = reads[random.below(reads.len() as u64) as usize];
            let outcome = history.ops[one].outcome.clone();
            history.ops[one].outcome = history.ops[other].outcome.clone();
            history.ops[other].outcome = outcome;
        }
        let by_search = wgl::check(&history, Budget::default()).verdict;
        let by_witness = witness::check(&history);
        if by_search.is_invalid() {
            prop_assert!(by_witness.is_invalid());
        }
    }

    #[test]
    fn a_value_nobody_wrote_is_refused_by_both(seed: u64) {
        let mut history = generate::history(seed, &shape(4, 60, 2, true));
        let read = acknowledged(&history).into_iter().find(|at| {
            let body = history.ops[*at].reply().map(|reply| &reply.body);
            matches!(body, Some(Body::Range { kvs, .. }) if !kvs.is_empty())
        });
        let Some(read) = read else {
            return Ok(());
        };
        if let Outcome::Ok(reply) = &mut history.ops[read].outcome
            && let Body::Range { kvs, .. } = &mut reply.body
        {
            kvs[0].value = "never written".into();
        }
        prop_assert!(witness::check(&history).is_invalid());
        prop_assert!(wgl::check(&history, Budget::default()).verdict.is_invalid());
    }
}

/// Chooses a revision in the logs.
trait Place {
    fn next_place(&mut self, history: &History) -> Option<usize>;
}

impl Place for Random {
    fn next_place(&mut self, history: &History) -> Option<usize> {
        let log = history.watches.iter().find(|watch| watch.whole)?;
        let places: Vec<_> = (0..log.told.len())
            .filter(|at| matches!(log.told[*at].1, Told::Events { .. }))
            .collect();
        places
            .get(self.below(places.len() as u64) as usize)
            .copied()
    }
}
