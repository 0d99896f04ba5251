//! Leader election over a `Lease`: of several replicas of a component one acts.
//!
//! [`Election`] is the decision, a pure function of the lease as read and of the time
//! at which *this* process saw it change: the holder's clock is never compared with
//! ours, only the rates of the clocks matter (client-go
//! `tools/leaderelection/leaderelection.go`). [`run`] is the shell.

mod shell;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

pub use self::shell::{ElectionError, run};
use crate::error::Error;

/// Spreads the candidates' attempts: a wait is up to this much longer.
pub const JITTER_FACTOR: f64 = 1.2;

/// Says which lease to contend for, as whom, and how fast.
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    /// Is the lease's namespace.
    pub namespace: String,
    /// Is the lease's name.
    pub name: String,
    /// Identifies this process among the candidates.
    pub identity: String,
    /// Is how long a silent leader is believed.
    pub lease_duration: Duration,
    /// Is how long a leader tries to renew before it steps down.
    pub renew_deadline: Duration,
    /// Is the time between attempts.
    pub retry_period: Duration,
    /// Gives the lease up when asked to stop, so that the next one need not wait.
    pub release_on_cancel: bool,
}

impl ElectionConfig {
    /// Builds a configuration with Kubernetes' times: 15 s, 10 s, 2 s.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
        }
    }

    /// Checks that a leader notices its loss before another one takes over.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::Config(format!("leader election: {why}")));
        if self.lease_duration <= self.renew_deadline {
            return refuse("the lease duration must be greater than the renew deadline");
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            return refuse("the renew deadline must be greater than 1.2 times the retry period");
        }
        if self.retry_period.is_zero() || self.lease_duration < Duration::from_secs(1) {
            return refuse("the retry period and the lease duration must not be zero");
        }
        if self.identity.is_empty() || self.name.is_empty() {
            return refuse("identity and name must not be empty");
        }
        Ok(())
    }
}

/// Is what to write, or that there is nothing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Create the lease.
    Create(Box<LeaseSpec>),
    /// Replace the lease, if it is still at the version that was read.
    Update(Box<LeaseSpec>),
    /// Another process leads.
    HeldBy(String),
}

/// Remembers when the lease was last seen to change.
#[derive(Debug)]
pub struct Election {
    identity: String,
    lease_duration: Duration,
    observed: Option<(LeaseSpec, Duration)>,
}

impl Election {
    /// Builds an election that has seen nothing.
    pub fn new(config: &ElectionConfig) -> Self {
        Self {
            identity: config.identity.clone(),
            lease_duration: config.lease_duration,
            observed: None,
        }
    }

    /// Notes the lease as read or written at `now`.
    pub fn observe(&mut self, spec: &LeaseSpec, now: Duration) {
        if self
            .observed
            .as_ref()
            .is_none_or(|(known, _)| known != spec)
        {
            self.observed = Some((spec.clone(), now));
        }
    }

    /// Decides what to write, given the lease just read (none if it does not exist).
    /// `wall` is only recorded, never compared.
    pub fn decide(&mut self, lease: Option<&Lease>, now: Duration, wall: Timestamp) -> Decision {
        let mut next = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.lease_duration.as_secs()).ok(),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let Some(lease) = lease else {
            return Decision::Create(Box::new(next));
        };
        let current = lease.spec.clone().unwrap_or_default();
        self.observe(&current, now);

        let holder = current.holder_identity.as_deref().unwrap_or_default();
        if holder == self.identity {
            next.acquire_time = current.acquire_time;
            next.lease_transitions = current.lease_transitions;
            return Decision::Update(Box::new(next));
        }
        if !holder.is_empty() && !self.expired(now) {
            return Decision::HeldBy(holder.to_owned());
        }
        next.lease_transitions = Some(current.lease_transitions.unwrap_or(0).saturating_add(1));
        Decision::Update(Box::new(next))
    }

    /// Tells whether the lease has not changed for as long as its holder promised.
    fn expired(&self, now: Duration) -> bool {
        let Some((spec, seen)) = &self.observed else {
            return true;
        };
        let promised = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(self.lease_duration, Duration::from_secs);
        now.saturating_sub(*seen) >= promised
    }

    /// Returns what a leader writes to give the lease up: held by nobody, expiring
    /// after a second.
    pub fn released(current: &LeaseSpec, wall: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: current.lease_transitions,
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod test;
