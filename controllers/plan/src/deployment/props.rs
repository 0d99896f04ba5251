//! The two bounds of a rolling update under every interleaving of syncs, pods that
//! become and cease to be available, new templates and rescales.

use proptest::prelude::*;

use super::test::{World, replicas_of};
use super::{Strategy as Bounds, available_replicas, revision, strategy};

#[derive(Clone, Debug)]
enum Step {
    Sync,
    Sets,
    Available(&'static str, i32),
    Image(&'static str),
    Scale(i32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let image = || prop::sample::select(vec!["v1", "v2", "v3"]);
    prop::collection::vec(
        prop_oneof![
            6 => Just(Step::Sync),
            4 => Just(Step::Sets),
            4 => (image(), -2..6).prop_map(|(image, count)| Step::Available(image, count)),
            1 => image().prop_map(Step::Image),
            1 => (0..12).prop_map(Step::Scale),
        ],
        1..120,
    )
}

fn bounds() -> impl Strategy<Value = (String, String)> {
    let bound = || {
        prop_oneof![
            (0..4).prop_map(|n: i32| n.to_string()),
            (0..=100).prop_map(|n: i32| format!("{n}%"))
        ]
    };
    (bound(), bound())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// A sync never takes pods below the minimum by its own doing, never goes
    /// beyond the maximum, and a fair world always completes the rollout.
    #[test]
    fn bounds_hold_under_any_readiness((surge, unavailable) in bounds(), replicas in 0..12, steps in steps()) {
        let mut world = World::rolling(replicas, &surge, &unavailable);
        world.settle();
        for step in steps {
            match step {
                Step::Sets => world.run_sets(),
                Step::Available(image, count) => world.make_available(image, count),
                Step::Image(image) => world.set_image(image),
                Step::Scale(replicas) => world.scale(replicas),
                Step::Sync => {
                    let (total_before, _) = world.totals();
                    // What stays available if every set gives up unavailable pods
                    // first, which its controller does.
                    let serving = |world: &World| -> i32 {
                        world.sets.values().map(|set| available_replicas(set).min(replicas_of(set))).sum()
                    };
                    let serving_before = serving(&world);
                    let desired = world.deployment.spec.as_ref().unwrap().replicas.unwrap();
                    // A rescale keeps proportions, not availability, as upstream.
                    let rescale = world.sets.values().any(|set| {
                        let sized_for = revision::number(&set.metadata, revision::DESIRED_REPLICAS);
                        replicas_of(set) > 0 && sized_for != Some(desired)
                    });
                    world.sync();
                    let Bounds::Rolling { max_surge, max_unavailable } = strategy(&world.deployment, desired)
                    else { panic!("rolling") };
                    let (total, _) = world.totals();
                    prop_assert!(total <= (desired + max_surge).max(total_before), "{} pods of {}", total, desired);
                    let serving_after = serving(&world);
                    prop_assert!(
                        rescale || serving_after >= serving_before.min(desired - max_unavailable),
                        "{} available, were {}, {} desired", serving_after, serving_before, desired
                    );
                }
            }
        }
        world.settle();
        let desired = world.deployment.spec.as_ref().unwrap().replicas.unwrap();
        let template = world.deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let image = template.containers[0].image.clone().unwrap();
        prop_assert_eq!(world.size(&image), desired);
        prop_assert_eq!(world.totals(), (desired, desired));
    }
}
