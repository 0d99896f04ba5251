//! One lease for many short-lived keys. Every event has a time to live; a lease
//! of its own for each would make the store keep as many leases as events.
//!
//! As kube-apiserver's lease manager: a lease lives a little longer than asked,
//! and for so long it is shared.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::store::StoreError;

/// The most keys put on one lease; then another is granted, so that no single
/// expiry deletes without bound.
const KEYS_PER_LEASE_MAX: u32 = 1000;
/// The longest a lease is shared, and so the longest a key outlives its time.
const SHARED_FOR_MAX: u64 = 60;

#[derive(Debug)]
struct Shared {
    id: i64,
    ttl: u64,
    until: Instant,
    keys: u32,
}

/// The lease new keys are put on.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Option<Shared>>);

impl Leases {
    /// Returns a lease that lives at least `ttl` seconds, granting one if the
    /// last cannot be shared.
    pub(super) async fn lease<F, Fut>(&self, ttl: u64, grant: F) -> Result<i64, StoreError>
    where
        F: FnOnce(i64) -> Fut,
        Fut: Future<Output = Result<i64, StoreError>>,
    {
        let mut slot = self.0.lock().await;
        let now = Instant::now();
        if let Some(s) = &mut *slot
            && s.ttl == ttl
            && now < s.until
            && s.keys < KEYS_PER_LEASE_MAX
        {
            s.keys += 1;
            return Ok(s.id);
        }
        let slack = (ttl / 20).clamp(1, SHARED_FOR_MAX);
        let seconds = i64::try_from(ttl + slack).unwrap_or(i64::MAX);
        let id = grant(seconds).await?;
        *slot = Some(Shared {
            id,
            ttl,
            until: now + Duration::from_secs(slack),
            keys: 1,
        });
        Ok(id)
    }

    /// Forgets the shared lease: the store does not know it any more.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shares_until_full_or_old_or_other() {
        let leases = Leases::default();
        let granted = std::sync::atomic::AtomicI64::new(0);
        let grant = |seconds: i64| {
            assert!(seconds > 100 || seconds > 10);
            let id = granted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            async move { Ok(id) }
        };
        for _ in 0..KEYS_PER_LEASE_MAX {
            assert_eq!(leases.lease(3600, grant).await, Ok(1));
        }
        assert_eq!(leases.lease(3600, grant).await, Ok(2));
        assert_eq!(leases.lease(10, grant).await, Ok(3));
        leases.forget().await;
        assert_eq!(leases.lease(10, grant).await, Ok(4));
    }
}
