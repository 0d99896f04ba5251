//! The asynchronous shell of leader election.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Decision, Election, ElectionConfig, JITTER_FACTOR};
use crate::client::Client;
use crate::error::{Error, Result};

/// Is how often a release is tried when it loses a race.
const RELEASE_ATTEMPTS: usize = 3;

/// Says why [`run`] ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] Error),
    /// The lease could not be renewed in time, or another process took it. The
    /// component must end: its work may now be done by another.
    #[error("leader election lost: lease {namespace}/{name}")]
    Lost {
        /// Is the lease's namespace.
        namespace: String,
        /// Is the lease's name.
        name: String,
    },
}

/// Waits for leadership, then runs `on_started` until the token is cancelled, the
/// work ends by itself, or leadership is lost.
///
/// The work gets a token of its own, which is cancelled when it must stop; it is
/// waited for before the lease is released, so two leaders never overlap.
pub async fn run<F, Fut>(
    client: Client,
    config: ElectionConfig,
    token: CancellationToken,
    on_started: F,
) -> Result<(), ElectionError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    config.validate()?;
    let mut candidate = Candidate::new(client, Arc::new(config));
    if !candidate.acquire(&token).await {
        return Ok(());
    }
    let config = Arc::clone(&candidate.config);
    tracing::info!(
        lease = config.name,
        identity = config.identity,
        "became leader"
    );

    let working = token.child_token();
    let mut work = tokio::spawn(on_started(working.clone()));
    let lost = tokio::select! {
        () = token.cancelled() => false,
        _ = &mut work => false,
        () = candidate.renew_until_lost() => true,
    };
    working.cancel();
    if lost {
        // Another process may act already: do not wait for a tidy end.
        work.abort();
        tracing::error!(lease = config.name, "leader election lost");
        return Err(ElectionError::Lost {
            namespace: config.namespace.clone(),
            name: config.name.clone(),
        });
    }
    if !work.is_finished() {
        // Keeps the lease alive while the work winds down.
        tokio::select! {
            _ = &mut work => {}
            () = candidate.renew_until_lost() => {}
        }
    }
    if config.release_on_cancel {
        candidate.release().await;
    }
    Ok(())
}

struct Candidate {
    client: Client,
    config: Arc<ElectionConfig>,
    election: Election,
    origin: Instant,
    /// Is the lease as this process last wrote it.
    held: Option<Lease>,
}

impl Candidate {
    fn new(client: Client, config: Arc<ElectionConfig>) -> Self {
        let election = Election::new(&config);
        Self {
            client,
            config,
            election,
            origin: Instant::now(),
            held: None,
        }
    }

    /// Tries until it leads; false if asked to stop before.
    async fn acquire(&mut self, token: &CancellationToken) -> bool {
        loop {
            let attempt = tokio::select! {
                () = token.cancelled() => return false,
                attempt = timeout(self.config.renew_deadline, self.try_once()) => attempt,
            };
            match attempt {
                Ok(Ok(None)) => return true,
                Ok(Ok(Some(holder))) => tracing::debug!(holder, "another process leads"),
                Ok(Err(error)) => tracing::debug!(%error, "cannot acquire the lease"),
                Err(_elapsed) => tracing::debug!("the attempt to acquire the lease took too long"),
            }
            let jitter = 1.0 + JITTER_FACTOR * rand::random::<f64>();
            tokio::select! {
                () = token.cancelled() => return false,
                () = sleep(self.config.retry_period.mul_f64(jitter)) => {}
            }
        }
    }

    /// Renews until it did not succeed for the renew deadline.
    async fn renew_until_lost(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.config.retry_period).await;
            let left = (renewed + self.config.renew_deadline).duration_since(Instant::now());
            match timeout(left, self.try_once()).await {
                Ok(Ok(None)) => renewed = Instant::now(),
                Ok(Ok(Some(holder))) => {
                    tracing::warn!(holder, "another process took the lease");
                    return;
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot renew the lease"),
                Err(_elapsed) => {}
            }
            if renewed.elapsed() >= self.config.renew_deadline {
                return;
            }
        }
    }

    /// Acquires or renews; answers with the holder if it is another process.
    async fn try_once(&mut self) -> Result<Option<String>> {
        // A leader knows what it wrote and need not read it first.
        if let Some(held) = self.held.take() {
            match self.write(Some(held)).await {
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                answer => return answer,
            }
        }
        let (ns, name) = (self.config.namespace.as_str(), self.config.name.as_str());
        let lease = match self.client.get::<Lease>(Some(ns), name).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        self.write(lease).await
    }

    async fn write(&mut self, lease: Option<Lease>) -> Result<Option<String>> {
        let decision = self
            .election
            .decide(lease.as_ref(), self.now(), Timestamp::now());
        let ns = Some(self.config.namespace.as_str());
        let written = match decision {
            Decision::HeldBy(holder) => return Ok(Some(holder)),
            Decision::Create(spec) => {
                let mut lease = Lease {
                    spec: Some(*spec),
                    ..Lease::default()
                };
                lease.metadata.name = Some(self.config.name.clone());
                lease.metadata.namespace = Some(self.config.namespace.clone());
                self.client.create(ns, &lease).await?
            }
            Decision::Update(spec) => {
                let mut lease = lease.unwrap_or_default();
                lease.spec = Some(*spec);
                self.client.update(ns, &lease).await?
            }
        };
        let spec = written.spec.clone().unwrap_or_default();
        self.election.observe(&spec, self.now());
        self.held = Some(written);
        Ok(None)
    }

    /// Gives the lease up, unless another process holds it already.
    async fn release(&mut self) {
        let (ns, name) = (self.config.namespace.as_str(), self.config.name.as_str());
        for _ in 0..RELEASE_ATTEMPTS {
            let Ok(mut lease) = self.client.get::<Lease>(Some(ns), name).await else {
                return;
            };
            let spec: LeaseSpec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(self.config.identity.as_str()) {
                return;
            }
            lease.spec = Some(Election::released(&spec, Timestamp::now()));
            match self.client.update(Some(ns), &lease).await {
                Err(error) if error.is_conflict() => {}
                Err(error) => return tracing::debug!(%error, "cannot release the lease"),
                Ok(_) => return,
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}
