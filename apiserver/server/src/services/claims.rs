//! Claims: keys in the store that exactly one writer can create.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Status, value};
use serde_json::{Value, json};

use crate::storage::store::{Cas, PageRequest};
use crate::storage::{Store, StoreError};

/// A claim without its service is given back at start when it is older than
/// this; a younger one may belong to a creation in progress elsewhere.
const ABANDONED_AFTER_SECONDS: i64 = 60;

/// What is claimed: an address or a port.
pub(super) trait Claimable: Copy + std::fmt::Display + std::str::FromStr {
    /// Where the claims lie.
    const PREFIX: &'static str;

    /// Returns the object that marks it as taken, but for its owner and time.
    fn object(self) -> Value;

    /// Returns its key.
    fn key(self) -> String {
        format!("{}{self}", Self::PREFIX)
    }
}

/// As Kubernetes does since 1.33: a `networking.k8s.io/v1` IPAddress.
impl Claimable for std::net::IpAddr {
    const PREFIX: &'static str = "/registry/ipaddresses/";

    fn object(self) -> Value {
        let family = if self.is_ipv4() { "IPv4" } else { "IPv6" };
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {
                "name": self.to_string(),
                "uid": uuid::Uuid::new_v4().to_string(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": family,
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
        })
    }
}

/// Kubernetes keeps one bitmap of all node ports; a key for each is our own.
impl Claimable for u16 {
    const PREFIX: &'static str = "/registry/keelson/nodeports/";

    fn object(self) -> Value {
        json!({
            "apiVersion": "keelson/v1",
            "kind": "NodePortClaim",
            "metadata": {"name": self.to_string()},
        })
    }
}

/// Creates a claim and returns its revision; `None` if somebody has it. The
/// caller knows that no service has what is claimed, so an old claim is an
/// abandoned one and is taken over; a young one may be a creation in progress
/// elsewhere.
pub(super) async fn take(
    store: &dyn Store,
    what: impl Claimable,
    owner: &str,
) -> Result<Option<u64>, Status> {
    let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
    let mut object = what.object();
    object["metadata"]["creationTimestamp"] = meta::time::format(jiff::Timestamp::now()).into();
    object["spec"] = json!({"parentRef": {
        "resource": "services", "namespace": namespace, "name": name,
    }});
    let (key, body) = (what.key(), object.to_string().into_bytes());
    let put = |expected| store.put(&key, body.clone().into(), expected, None);
    match put(0).await.map_err(StoreError::into_status)? {
        Cas::Done(revision) => Ok(Some(revision)),
        Cas::Conflict(Some(kv)) if is_old(&kv.value) => {
            match put(kv.mod_revision)
                .await
                .map_err(StoreError::into_status)?
            {
                Cas::Done(revision) => Ok(Some(revision)),
                Cas::Conflict(_) => Ok(None),
            }
        }
        Cas::Conflict(_) => Ok(None),
    }
}

/// Tells whether a claim is too old to belong to a creation in progress.
fn is_old(claim: &[u8]) -> bool {
    let claim: Value = serde_json::from_slice(claim).unwrap_or_default();
    let made = meta::time::parse(value::str_at(&claim, "metadata.creationTimestamp"));
    let now = jiff::Timestamp::now().as_second();
    made.is_none_or(|t| now - t.as_second() > ABANDONED_AFTER_SECONDS)
}

/// Gives back a claim that was just made.
pub(super) async fn undo(store: &dyn Store, what: impl Claimable, revision: u64) {
    if let Err(error) = store.delete(&what.key(), revision).await {
        tracing::warn!(%what, %error, "cannot give a service's claim back; the next start will");
    }
}

/// Gives back what a service had, unless it is meanwhile another service's.
pub(super) async fn give_back(store: &dyn Store, what: impl Claimable, owner: &str) {
    let key = what.key();
    let result = async {
        if let Some(kv) = store.get(&key).await?.kv {
            let claim: Value = serde_json::from_slice(&kv.value).unwrap_or_default();
            let of = format!(
                "{}/{}",
                value::str_at(&claim, "spec.parentRef.namespace"),
                value::str_at(&claim, "spec.parentRef.name")
            );
            if of == owner {
                store.delete(&key, kv.mod_revision).await?;
            }
        }
        Ok::<_, StoreError>(())
    };
    if let Err(error) = result.await {
        tracing::warn!(%what, %error, "cannot give a service's claim back; the next start will");
    }
}

/// Makes the claims of one sort and what services hold agree: what is held
/// without a claim gets one, an old claim of what nobody holds is given back.
pub(super) async fn repair<C: Claimable + Ord>(
    store: &dyn Store,
    held: &BTreeMap<C, String>,
) -> Result<(), Status> {
    let page = PageRequest {
        prefix: C::PREFIX.to_owned(),
        ..PageRequest::default()
    };
    let claims = store.list(page).await.map_err(StoreError::into_status)?.kvs;
    let keys: BTreeSet<&str> = claims.iter().map(|kv| kv.key.as_str()).collect();
    for (what, owner) in held {
        if !keys.contains(what.key().as_str()) {
            take(store, *what, owner).await?;
        }
    }
    for kv in &claims {
        let what: Option<C> = kv.key.trim_start_matches(C::PREFIX).parse().ok();
        let abandoned = what.is_some_and(|w| !held.contains_key(&w));
        if abandoned && is_old(&kv.value) {
            store
                .delete(&kv.key, kv.mod_revision)
                .await
                .map_err(StoreError::into_status)?;
        }
    }
    Ok(())
}
