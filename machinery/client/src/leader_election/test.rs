//! Named after the behaviours of client-go's `leaderelection_test.go`.

use super::*;

const S: Duration = Duration::from_secs(1);

fn wall() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn election(identity: &str) -> Election {
    Election::new(&ElectionConfig::new("kube-system", "x", identity))
}

fn lease(holder: &str, transitions: i32, renewed: &str) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(transitions),
        renew_time: Some(MicroTime(renewed.parse().unwrap())),
        acquire_time: Some(MicroTime("2025-01-01T00:00:00Z".parse().unwrap())),
        ..LeaseSpec::default()
    };
    Lease {
        spec: Some(spec),
        ..Lease::default()
    }
}

#[test]
fn acquires_from_no_object() {
    let Decision::Create(spec) = election("a").decide(None, S, wall()) else {
        panic!()
    };
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(spec.lease_transitions, Some(0));
}

#[test]
fn does_not_acquire_from_a_live_leader() {
    let mut election = election("a");
    let held = lease("b", 3, "2020-01-01T00:00:00Z");
    // Renewed long ago by the holder's clock, but only now seen by us.
    assert_eq!(
        election.decide(Some(&held), S, wall()),
        Decision::HeldBy("b".into())
    );
    assert_eq!(
        election.decide(Some(&held), 15 * S, wall()),
        Decision::HeldBy("b".into())
    );
}

#[test]
fn expiry_is_judged_by_local_observation() {
    let mut election = election("a");
    let held = lease("b", 3, "2099-01-01T00:00:00Z");
    election.decide(Some(&held), S, wall());
    let Decision::Update(spec) = election.decide(Some(&held), 16 * S, wall()) else {
        panic!()
    };
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(spec.lease_transitions, Some(4));
    assert_eq!(spec.acquire_time, Some(MicroTime(wall())));
}

#[test]
fn a_renewal_is_a_new_observation() {
    let mut election = election("a");
    election.decide(Some(&lease("b", 3, "2025-01-01T00:00:00Z")), S, wall());
    let renewed = lease("b", 3, "2025-01-01T00:00:02Z");
    assert_eq!(
        election.decide(Some(&renewed), 16 * S, wall()),
        Decision::HeldBy("b".into())
    );
    assert_eq!(
        election.decide(Some(&renewed), 30 * S, wall()),
        Decision::HeldBy("b".into())
    );
    assert!(matches!(
        election.decide(Some(&renewed), 31 * S, wall()),
        Decision::Update(_)
    ));
}

#[test]
fn renews_its_own_lease_without_a_transition() {
    let held = lease("a", 3, "2025-01-01T00:00:00Z");
    let Decision::Update(spec) = election("a").decide(Some(&held), S, wall()) else {
        panic!()
    };
    assert_eq!(spec.lease_transitions, Some(3));
    assert_eq!(spec.acquire_time, held.spec.unwrap().acquire_time);
    assert_eq!(spec.renew_time, Some(MicroTime(wall())));
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let spec = Election::released(&lease("b", 3, "2025-01-01T00:00:00Z").spec.unwrap(), wall());
    assert_eq!(spec.lease_duration_seconds, Some(1));
    let released = Lease {
        spec: Some(spec),
        ..Lease::default()
    };
    let Decision::Update(spec) = election("a").decide(Some(&released), S, wall()) else {
        panic!()
    };
    assert_eq!(spec.lease_transitions, Some(4));
}

#[test]
fn config_validation() {
    let good = ElectionConfig::new("ns", "n", "me");
    assert!(good.validate().is_ok());
    let bad = [
        ElectionConfig {
            renew_deadline: 15 * S,
            ..good.clone()
        },
        ElectionConfig {
            retry_period: 9 * S,
            ..good.clone()
        },
        ElectionConfig {
            retry_period: Duration::ZERO,
            ..good.clone()
        },
        ElectionConfig {
            identity: String::new(),
            ..good.clone()
        },
    ];
    for config in bad {
        assert!(config.validate().is_err(), "{config:?}");
    }
}
