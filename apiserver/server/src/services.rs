//! Cluster addresses and node ports of services: each given once, kept until
//! its service goes.
//!
//! One is claimed by creating a key of its name in the store ([`claims`]), which
//! exactly one writer can do; so two API servers over one store cannot give one
//! address to two services. Claims in one server are one after the other, from
//! looking for a free one to storing the service.
//!
//! A server that stops between claim and service leaves a claim without a
//! service. It is found when somebody wants that very address, and at start
//! ([`keep`]), and given back if no service has it. The claim of an address is an
//! IPAddress that anybody may delete; it is made again while its service lives.

mod claims;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use meta::{FieldError, Object, Reason, Status, value};
use registry::Kind;
use registry::ipalloc::{IpError, IpRange};
use registry::kind::Endpoint;
use registry::rest;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::api::{Api, Target};
use crate::storage::{
    EventType, ListRequest, ReadVersion, Store, VersionMatch, WatchItem, WatchRequest,
};

/// The cause of a conflict that another attempt resolves.
pub(crate) const RETRY: &str = "KeelsonAddressRetry";
/// How many addresses, or ports, are tried that others claim at the same time.
const PICK_ATTEMPTS_MAX: usize = 16;

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

/// What is claimed for a write in progress; others wait while it exists.
#[must_use = "a claim has to be settled"]
pub(crate) struct Claim {
    address: Option<IpAddr>,
    /// The store's revision of the address's claim; zero for none.
    revision: u64,
    ports: Vec<ports::Claimed>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Claim {
    /// Returns the claim of a write that needs nothing.
    pub(crate) fn none() -> Self {
        Self {
            address: None,
            revision: 0,
            ports: Vec::new(),
            _turn: None,
        }
    }

    /// Puts the address and the ports into a service that lacks them. `old` is
    /// the state the service replaces.
    pub(crate) fn fill(
        &self,
        api: &Api,
        kind: &Kind,
        service: &mut Value,
        old: &Value,
    ) -> Result<(), Status> {
        if !is_service(kind) {
            return Ok(());
        }
        complete_families(&api.service_ips.range, service);
        let mut enough = ports::fill(service, &ports::of(old), &self.ports);
        if wants(service) {
            match self.address {
                Some(address) => set_address(service, &address.to_string()),
                None => enough = false,
            }
        }
        match enough {
            true => Ok(()),
            // It came to need more after the claim was prepared.
            false => Err(
                Status::modified(&kind.group_resource(), value::name(service))
                    .with_cause(RETRY, "", ""),
            ),
        }
    }

    /// Keeps what the stored service has, and gives the rest back: all of it if
    /// nothing was stored.
    pub(crate) async fn settle(self, api: &Api, stored: Option<&Object>) {
        if let (Some(address), None) = (self.address, stored)
            && self.revision > 0
        {
            claims::undo(&*api.store, address, self.revision).await;
        }
        if self.ports.is_empty() {
            return;
        }
        let service = stored.and_then(|o| o.to_value().ok());
        let kept = service.as_ref().map(ports::of).unwrap_or_default();
        let mut left = self.ports;
        left.retain(|(port, _)| !kept.contains(port));
        ports::undo(&*api.store, &left).await;
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

/// Gives a service its address and node ports, or checks those it asks for:
/// one that is created, or one that replaces `old` and needs more than that
/// has. A dry run looks, but claims nothing.
pub(crate) async fn claim(
    api: &Api,
    kind: &Kind,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Claim, Status> {
    if !is_service(kind) {
        return Ok(Claim::none());
    }
    complete_families(&api.service_ips.range, service);
    // An address once given stays, and so does having none (`None`).
    let settled = old.is_some_and(|o| !value::str_at(o, "spec.clusterIP").is_empty());
    let needs_address = !settled && (address_of(service).is_some() || wants(service));
    let own = old.map(ports::of).unwrap_or_default();
    let needs_ports = ports::needs(service, &own);
    if !needs_address && !needs_ports {
        return Ok(Claim::none());
    }
    let turn = api.service_ips.turn.clone().lock_owned().await;
    let used = in_use(api, &owner(service)).await?;
    let mut claim = Claim {
        _turn: Some(turn),
        ..Claim::none()
    };
    if needs_address {
        let (address, revision) =
            claim_address(api, kind, service, used.addresses, dry_run).await?;
        set_address(service, &address.to_string());
        (claim.address, claim.revision) = (Some(address), revision);
    }
    match ports::claim(&*api.store, kind, service, &own, &used.ports, dry_run).await {
        Ok(ports) => claim.ports = ports,
        Err(status) => {
            claim.settle(api, None).await;
            return Err(status);
        }
    }
    Ok(claim)
}

async fn claim_address(
    api: &Api,
    kind: &Kind,
    service: &Value,
    used: BTreeSet<IpAddr>,
    dry_run: bool,
) -> Result<(IpAddr, u64), Status> {
    let owner = owner(service);
    let Some(ip) = address_of(service) else {
        return pick(api, used, &owner, dry_run).await;
    };
    let text = ip.to_string();
    let refused = |e: IpError| {
        let why = format!("failed to allocate IP {text}: {e}");
        let error = FieldError::invalid("spec.clusterIPs", json!([text]), why);
        Status::invalid(&kind.gvk(), value::name(service), &[error])
    };
    api.service_ips.range.claim(ip, &used).map_err(refused)?;
    let revision = match dry_run {
        true => Some(0),
        false => claims::take(&*api.store, ip, &owner).await?,
    };
    Ok((ip, revision.ok_or_else(|| refused(IpError::Allocated))?))
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
        if let Some(revision) = claims::take(&*api.store, ip, owner).await? {
            return Ok((ip, revision));
        }
        used.insert(ip);
    }
    Err(full(IpError::Full))
}

/// What all services have.
#[derive(Default)]
struct InUse {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
}

/// The service through which a cluster finds its own API, whose the first address
/// is.
const OWN_SERVICE: &str = "default/kubernetes";

async fn in_use(api: &Api, wanted_by: &str) -> Result<InUse, Status> {
    let services = &api.core("services")?.store;
    let list = services.list(ListRequest::default()).await?;
    let mut used = InUse::default();
    for service in list.items.iter().filter_map(|o| o.to_value().ok()) {
        used.addresses.extend(address_of(&service));
        used.ports.extend(ports::of(&service));
    }
    if api.is_bootstrapped() && wanted_by != OWN_SERVICE {
        used.addresses.insert(api.service_ips.range.first());
    }
    Ok(used)
}

fn owner(service: &Value) -> String {
    format!("{}/{}", value::namespace(service), value::name(service))
}

/// Tells whether a change may make a service need an address (its type may
/// have been ExternalName) or node ports.
pub(crate) fn may_need_address(kind: &Kind, endpoint: Endpoint) -> bool {
    is_service(kind) && endpoint == Endpoint::Main
}

/// Claims an address and ports for a change, if its result will need some.
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
    if rest::before_update(kind, Endpoint::Main, &mut new, &old).is_err() {
        return Ok(Claim::none());
    }
    claim(api, kind, &mut new, Some(&old), false).await
}

/// What a service had and has no longer.
#[derive(Default)]
pub(crate) struct Freed {
    address: Option<IpAddr>,
    ports: Vec<u16>,
}

/// Returns what a change takes from a service: its address (it became an
/// ExternalName), its ports, or all of it.
pub(crate) fn freed(kind: &Kind, old: &Value, new: &Value) -> Freed {
    if !is_service(kind) {
        return Freed::default();
    }
    let kept = ports::of(new);
    Freed {
        address: address_of(old).filter(|had| address_of(new) != Some(*had)),
        ports: ports::of(old).difference(&kept).copied().collect(),
    }
}

/// Gives back what a stored change took from a service.
pub(crate) async fn give_back_freed(api: &Api, freed: Freed, service: &Object) {
    let owner = format!("{}/{}", service.meta.namespace, service.meta.name);
    if let Some(address) = freed.address {
        claims::give_back(&*api.store, address, &owner).await;
    }
    for port in freed.ports {
        claims::give_back(&*api.store, port, &owner).await;
    }
}

/// Gives back what a service had that is gone.
pub(crate) async fn release(api: &Api, kind: &Kind, service: &Object) {
    if let (true, Ok(last)) = (is_service(kind), service.to_value()) {
        give_back_freed(api, freed(kind, &last, &Value::Null), service).await;
    }
}

/// How long to wait before claims are looked after again when it did not go well.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes claims and services agree, and keeps the claims that somebody deletes, who
/// sees them as IPAddresses, until the server stops.
pub(crate) async fn keep(api: &Api) {
    let Some(addresses) = api
        .resources
        .builtin("networking.k8s.io", "v1", "ipaddresses")
    else {
        return;
    };
    loop {
        let request = WatchRequest {
            version: ReadVersion::Any,
            version_match: Some(VersionMatch::NotOlderThan),
            send_initial_events: Some(false),
            ..WatchRequest::default()
        };
        // From before they are looked at, so that nothing is missed.
        let watch = addresses.store.watch(request).await;
        let kept = async {
            repair(api).await?;
            let mut watch = watch?;
            while let Some(item) = watch.next().await {
                if let WatchItem::Event {
                    event_type: EventType::Deleted,
                    object,
                    ..
                } = item
                {
                    restore(api, &object.to_value().map_err(Status::internal)?).await?;
                }
            }
            Ok::<(), Status>(())
        };
        tokio::select! {
            () = api.shutdown.cancelled() => return,
            kept = kept => if let Err(error) = kept {
                tracing::warn!(%error, "cannot look after the claims of cluster IPs, trying again");
            },
        }
        tokio::select! {
            () = api.shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY_AFTER) => {}
        }
    }
}

/// Claims an address again whose claim was deleted, if its service still has it.
async fn restore(api: &Api, claim: &Value) -> Result<(), Status> {
    let Ok(address) = value::name(claim).parse::<IpAddr>() else {
        return Ok(());
    };
    let of = |field: &str| value::str_at(claim, &format!("spec.parentRef.{field}")).to_owned();
    let (namespace, name) = (of("namespace"), of("name"));
    // Nobody gives the address away, or the service up, between looking and claiming.
    let _turn = api.service_ips.turn.lock().await;
    let services = &api.core("services")?.store;
    let found = services.get(Some(&namespace), &name, ReadVersion::Unset);
    let service = match found.await {
        Err(status) if status.reason == Reason::NotFound => return Ok(()),
        found => found?.to_value().map_err(Status::internal)?,
    };
    if address_of(&service) == Some(address) {
        claims::take(&*api.store, address, &owner(&service)).await?;
    }
    Ok(())
}

/// Makes claims and services agree: a service without a claim gets one, an old claim
/// without a service is given back.
async fn repair(api: &Api) -> Result<(), Status> {
    let _turn = api.service_ips.turn.lock().await;
    let services = &api.core("services")?.store;
    let list = services.list(ListRequest::default()).await?;
    let (mut addresses, mut ports) = (BTreeMap::new(), BTreeMap::new());
    for service in list.items.iter().filter_map(|o| o.to_value().ok()) {
        let owner = owner(&service);
        addresses.extend(address_of(&service).map(|ip| (ip, owner.clone())));
        ports.extend(ports::of(&service).into_iter().map(|p| (p, owner.clone())));
    }
    let store: &dyn Store = &*api.store;
    claims::repair(store, &addresses).await?;
    claims::repair(store, &ports).await
}
