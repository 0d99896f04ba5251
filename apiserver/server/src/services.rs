//! Cluster addresses of services: each given once, kept until its service goes.
//!
//! An address is claimed by creating its `IPAddress` object in the store
//! (`/registry/ipaddresses/<ip>`, as Kubernetes does since 1.33), which exactly
//! one writer can do; so two API servers over one store cannot give one address
//! to two services. Claims in one server are one after the other, from looking
//! for a free address to storing the service.
//!
//! A server that stops between claim and service leaves a claim without a
//! service. It is found when somebody wants that very address, and at start
//! ([`repair`]), and given back if the service it names does not have it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use meta::{FieldError, Object, Status, value};
use registry::Kind;
use registry::ipalloc::{IpError, IpRange};
use registry::kind::Endpoint;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::api::{Api, Target};
use crate::storage::store::{Cas, PageRequest};
use crate::storage::{ListRequest, ReadVersion, Store, StoreError};

/// The cause of a conflict that another attempt resolves.
pub(crate) const RETRY: &str = "KeelsonAddressRetry";
/// Where claims lie.
const CLAIMS: &str = "/registry/ipaddresses/";
/// How many addresses are tried that others claim at the same time.
const PICK_ATTEMPTS_MAX: usize = 16;
/// A claim without its service is given back at start when it is older than
/// this; a younger one may belong to a creation in progress elsewhere.
const ABANDONED_AFTER_SECONDS: i64 = 60;

/// The allocator.
#[derive(Debug)]
pub(crate) struct ServiceIps {
    range: IpRange,
    turn: std::sync::Arc<Mutex<()>>,
}

impl ServiceIps {
    /// Creates the allocator of a range.
    pub(crate) fn new(range: IpRange) -> Self {
        Self {
            range,
            turn: std::sync::Arc::new(Mutex::new(())),
        }
    }

    /// Returns the range.
    pub(crate) fn range(&self) -> &IpRange {
        &self.range
    }
}

/// An address claimed for a write in progress; others wait while it exists.
#[must_use = "a claim has to be settled"]
pub(crate) struct Claim {
    address: Option<IpAddr>,
    /// The store's revision of the claim; zero for none.
    revision: u64,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Claim {
    /// Returns the claim of a write that needs no address.
    pub(crate) fn none() -> Self {
        Self {
            address: None,
            revision: 0,
            _turn: None,
        }
    }

    /// Puts the address into a service that has none yet and needs one.
    pub(crate) fn fill(&self, api: &Api, kind: &Kind, service: &mut Value) -> Result<(), Status> {
        if !is_service(kind) {
            return Ok(());
        }
        complete_families(&api.service_ips.range, service);
        if !wants(service) {
            return Ok(());
        }
        match self.address {
            Some(address) => {
                set_address(service, &address.to_string());
                Ok(())
            }
            // It came to need one after the claim was prepared.
            None => Err(
                Status::modified(&kind.group_resource(), value::name(service))
                    .with_cause(RETRY, "", ""),
            ),
        }
    }

    /// Keeps the address if the write went through, else gives it back.
    pub(crate) async fn settle(self, api: &Api, written: bool) {
        if let (Some(address), false) = (self.address, written)
            && self.revision > 0
        {
            let key = format!("{CLAIMS}{address}");
            if let Err(error) = api.store.delete(&key, self.revision).await {
                tracing::warn!(%address, %error, "cannot give a cluster IP back; the next start will");
            }
        }
    }
}

fn is_service(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}

/// Tells whether a service needs an address that it does not have.
fn wants(service: &Value) -> bool {
    value::str_at(service, "spec.clusterIP").is_empty()
        && value::str_at(service, "spec.type") != "ExternalName"
}

/// Fills in the address families, which depend on the cluster's range
/// (upstream: `pkg/registry/core/service/storage/alloc.go`). A headless service
/// without a selector takes whatever its endpoints have.
fn complete_families(range: &IpRange, service: &mut Value) {
    if value::str_at(service, "spec.type") == "ExternalName" {
        return;
    }
    let headless = value::str_at(service, "spec.clusterIP") == "None";
    let selects = value::at(service, "spec.selector")
        .is_some_and(|s| s.as_object().is_some_and(|m| !m.is_empty()));
    let family = range.family();
    let (policy, families) = match headless && !selects {
        true if family == "IPv4" => ("RequireDualStack", json!(["IPv4", "IPv6"])),
        true => ("RequireDualStack", json!(["IPv6", "IPv4"])),
        false => ("SingleStack", json!([family])),
    };
    if value::str_at(service, "spec.ipFamilyPolicy").is_empty() {
        service["spec"]["ipFamilyPolicy"] = policy.into();
    }
    let given = value::at(service, "spec.ipFamilies").and_then(Value::as_array);
    if given.is_none_or(Vec::is_empty) {
        service["spec"]["ipFamilies"] = families;
    }
}

fn set_address(service: &mut Value, address: &str) {
    service["spec"]["clusterIP"] = address.into();
    service["spec"]["clusterIPs"] = json!([address]);
}

/// Returns the address a service has, if it has one.
fn address_of(service: &Value) -> Option<IpAddr> {
    value::str_at(service, "spec.clusterIP").parse().ok()
}

/// Gives a service that is created its address, or checks the one it asks for.
/// A dry run looks, but claims nothing.
pub(crate) async fn claim(
    api: &Api,
    kind: &Kind,
    service: &mut Value,
    asked: Option<IpAddr>,
    dry_run: bool,
) -> Result<Claim, Status> {
    if !is_service(kind) {
        return Ok(Claim::none());
    }
    complete_families(&api.service_ips.range, service);
    let asked = asked.or_else(|| address_of(service));
    if asked.is_none() && !wants(service) {
        return Ok(Claim::none());
    }
    let turn = api.service_ips.turn.clone().lock_owned().await;
    let refused = |ip: &str, why: String| {
        let error = FieldError::invalid("spec.clusterIPs", json!([ip]), why);
        Status::invalid(&kind.gvk(), value::name(service), &[error])
    };
    let range = &api.service_ips.range;
    let used = in_use(api).await?;
    let owner = owner(service);
    let (address, revision) = match asked {
        Some(ip) => {
            let text = ip.to_string();
            let taken = |e: IpError| refused(&text, format!("failed to allocate IP {text}: {e}"));
            range.claim(ip, &used).map_err(taken)?;
            let revision = match dry_run {
                true => Some(0),
                false => take(&*api.store, ip, &owner).await?,
            };
            (ip, revision.ok_or_else(|| taken(IpError::Allocated))?)
        }
        None => pick(api, used, &owner, dry_run).await?,
    };
    set_address(service, &address.to_string());
    Ok(Claim {
        address: Some(address),
        revision,
        _turn: Some(turn),
    })
}

async fn pick(
    api: &Api,
    mut used: BTreeSet<IpAddr>,
    owner: &str,
    dry_run: bool,
) -> Result<(IpAddr, u64), Status> {
    let full = |e: IpError| Status::internal(format!("failed to allocate a serviceIP: {e}"));
    for _ in 0..PICK_ATTEMPTS_MAX {
        let ip = api
            .service_ips
            .range
            .pick(rand::random(), &used)
            .map_err(full)?;
        if dry_run {
            return Ok((ip, 0));
        }
        if let Some(revision) = take(&*api.store, ip, owner).await? {
            return Ok((ip, revision));
        }
        used.insert(ip);
    }
    Err(full(IpError::Full))
}

/// Returns the addresses of all services there are.
async fn in_use(api: &Api) -> Result<BTreeSet<IpAddr>, Status> {
    let services = &api.core("services")?.store;
    let list = services.list(ListRequest::default()).await?;
    let mut used: BTreeSet<IpAddr> = list
        .items
        .iter()
        .filter_map(|o| o.to_value().ok())
        .filter_map(|v| address_of(&v))
        .collect();
    if api.is_bootstrapped() {
        used.insert(api.service_ips.range.first());
    }
    Ok(used)
}

fn owner(service: &Value) -> String {
    format!("{}/{}", value::namespace(service), value::name(service))
}

/// Creates the claim of an address and returns its revision; `None` if somebody
/// has it. The caller knows that no service has the address, so an old claim is
/// an abandoned one and is taken over; a young one may be a creation in
/// progress elsewhere.
async fn take(store: &dyn Store, ip: IpAddr, owner: &str) -> Result<Option<u64>, Status> {
    let key = format!("{CLAIMS}{ip}");
    let body = claim_body(ip, owner);
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

/// Returns the `networking.k8s.io/v1` IPAddress that marks an address as taken.
fn claim_body(ip: IpAddr, owner: &str) -> Vec<u8> {
    let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": ip.to_string(),
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": meta::time::format(jiff::Timestamp::now()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "resource": "services", "namespace": namespace, "name": name,
        }},
    })
    .to_string()
    .into_bytes()
}

/// Gives an address back, unless the claim is meanwhile another service's.
async fn give_back(store: &dyn Store, ip: IpAddr, owner: &str) {
    let key = format!("{CLAIMS}{ip}");
    let result = async {
        if let Some(kv) = store.get(&key).await?.kv {
            let claim: Value = serde_json::from_slice(&kv.value).unwrap_or_default();
            let parent = value::at(&claim, "spec.parentRef")
                .cloned()
                .unwrap_or_default();
            let of = format!(
                "{}/{}",
                value::str_at(&parent, "namespace"),
                value::str_at(&parent, "name")
            );
            if of == owner {
                store.delete(&key, kv.mod_revision).await?;
            }
        }
        Ok::<_, StoreError>(())
    };
    if let Err(error) = result.await {
        tracing::warn!(%ip, %error, "cannot give a cluster IP back; the next start will");
    }
}

/// Tells whether a change may make a service need an address (its type may
/// have been ExternalName).
pub(crate) fn may_need_address(kind: &Kind, endpoint: Endpoint) -> bool {
    is_service(kind) && endpoint == Endpoint::Main
}

/// Claims an address for a change, if its result will need one.
pub(crate) async fn prepare(
    api: &Api,
    target: &Target,
    change: &(dyn Fn(&Value) -> Result<Value, Status> + Send + Sync),
) -> Result<Claim, Status> {
    let kind = target.kind();
    let current = target
        .store()
        .get(target.ns(), &target.name, ReadVersion::Unset)
        .await?;
    let old = crate::respond::view(kind, &current)?;
    // Whatever is wrong with the change is said when it is made.
    let Ok(mut new) = change(&old) else {
        return Ok(Claim::none());
    };
    if address_of(&old).is_some() || !value::str_at(&old, "spec.clusterIP").is_empty() {
        return Ok(Claim::none());
    }
    claim(api, kind, &mut new, None, false).await
}

/// Returns the address that a change takes from a service (it became an
/// ExternalName).
pub(crate) fn freed(kind: &Kind, old: &Value, new: &Value) -> Option<IpAddr> {
    let had = address_of(old).filter(|_| is_service(kind))?;
    (address_of(new) != Some(had)).then_some(had)
}

/// Gives back the address that a stored change took from a service.
pub(crate) async fn give_back_freed(api: &Api, address: Option<IpAddr>, service: &Object) {
    if let Some(address) = address {
        let owner = format!("{}/{}", service.meta.namespace, service.meta.name);
        give_back(&*api.store, address, &owner).await;
    }
}

/// Gives back the address of a service that is gone.
pub(crate) async fn release(api: &Api, kind: &Kind, service: &Object) {
    if !is_service(kind) {
        return;
    }
    let address = service.to_value().ok().as_ref().and_then(address_of);
    give_back_freed(api, address, service).await;
}

/// Makes claims and services agree after a start: a service without a claim
/// gets one, an old claim without a service is given back.
pub(crate) async fn repair(api: &Api) -> Result<(), Status> {
    let _turn = api.service_ips.turn.lock().await;
    let services = api
        .core("services")?
        .store
        .list(ListRequest::default())
        .await?;
    let mut held = BTreeSet::new();
    let page = PageRequest {
        prefix: CLAIMS.to_owned(),
        ..PageRequest::default()
    };
    let claims = api
        .store
        .list(page)
        .await
        .map_err(StoreError::into_status)?
        .kvs;
    for object in &services.items {
        let Ok(service) = object.to_value() else {
            continue;
        };
        let Some(ip) = address_of(&service) else {
            continue;
        };
        held.insert(ip);
        let key = format!("{CLAIMS}{ip}");
        if !claims.iter().any(|kv| kv.key == key) {
            take(&*api.store, ip, &owner(&service)).await?;
        }
    }
    for kv in claims {
        let ip: Option<IpAddr> = kv.key.trim_start_matches(CLAIMS).parse().ok();
        if ip.is_some_and(|ip| !held.contains(&ip)) && is_old(&kv.value) {
            api.store
                .delete(&kv.key, kv.mod_revision)
                .await
                .map_err(StoreError::into_status)?;
        }
    }
    Ok(())
}
