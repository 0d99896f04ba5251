//! Leader election between processes, here tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::leader_election::run;
use client::{Client, ElectionConfig, ElectionError};
use meta::Reason;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::eventually;
use client::testing::{Fake, status};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

fn config(identity: &str) -> ElectionConfig {
    ElectionConfig {
        lease_duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(300),
        retry_period: Duration::from_millis(20),
        ..ElectionConfig::new("kube-system", "test", identity)
    }
}

/// Starts a candidate that counts itself in `leading` while it leads.
fn candidate(
    client: &Client,
    identity: &str,
    leading: &Arc<AtomicUsize>,
) -> (CancellationToken, JoinHandle<Result<(), ElectionError>>) {
    let token = CancellationToken::new();
    let leading = Arc::clone(leading);
    let run = run(
        client.clone(),
        config(identity),
        token.clone(),
        move |stop| async move {
            leading.fetch_add(1, Ordering::SeqCst);
            stop.cancelled().await;
            leading.fetch_sub(1, Ordering::SeqCst);
        },
    );
    (token, tokio::spawn(run))
}

fn holder(fake: &Fake) -> String {
    let leases = fake.objects(LEASES);
    leases
        .first()
        .map(|l| l["spec"]["holderIdentity"].as_str().unwrap().into())
        .unwrap_or_default()
}

#[tokio::test]
async fn release_on_cancellation_lets_the_next_one_lead() {
    let fake = Fake::default();
    let leading = Arc::new(AtomicUsize::new(0));
    let (stop_a, a) = candidate(&fake.client(), "a", &leading);
    eventually("a leads", || leading.load(Ordering::SeqCst) == 1).await;
    let (stop_b, b) = candidate(&fake.client(), "b", &leading);
    eventually("b has looked", || !fake.requests("GET").is_empty()).await;
    assert_eq!(
        (leading.load(Ordering::SeqCst), holder(&fake).as_str()),
        (1, "a")
    );

    stop_a.cancel();
    a.await.unwrap().unwrap();
    eventually("b leads", || holder(&fake) == "b").await;
    eventually("b works", || leading.load(Ordering::SeqCst) == 1).await;
    let lease = fake.objects(LEASES).remove(0);
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    stop_b.cancel();
    b.await.unwrap().unwrap();
    assert_eq!(holder(&fake), "", "released");
}

#[tokio::test]
async fn a_leader_that_cannot_renew_steps_down() {
    let fake = Fake::default();
    let leading = Arc::new(AtomicUsize::new(0));
    let (_stop, a) = candidate(&fake.client(), "a", &leading);
    eventually("a leads", || leading.load(Ordering::SeqCst) == 1).await;
    for _ in 0..200 {
        fake.fault("PUT", status(Reason::InternalError));
    }
    let error = a.await.unwrap().unwrap_err();
    assert!(matches!(error, ElectionError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn a_conflict_while_renewing_is_read_again() {
    let fake = Fake::default();
    let leading = Arc::new(AtomicUsize::new(0));
    let (stop, a) = candidate(&fake.client(), "a", &leading);
    eventually("a leads", || leading.load(Ordering::SeqCst) == 1).await;
    let reads = fake.requests("GET").len();
    fake.fault("PUT", status(Reason::Conflict));
    eventually("a reads", || fake.requests("GET").len() > reads).await;
    assert_eq!(leading.load(Ordering::SeqCst), 1);
    stop.cancel();
    a.await.unwrap().unwrap();
}
