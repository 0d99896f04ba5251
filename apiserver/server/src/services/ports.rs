//! The node ports of services.

use std::collections::BTreeSet;

use meta::{FieldError, Status, value};
use registry::portalloc::{self, PortError};
use registry::{Kind, validate};
use serde_json::Value;

use super::{PICK_ATTEMPTS_MAX, claims, owner};
use crate::storage::Store;

/// A port and the store's revision of its claim; zero for none (a dry run).
pub(super) type Claimed = (u16, u64);

/// Returns the ports a service has that can have been given out.
pub(super) fn of(service: &Value) -> BTreeSet<u16> {
    let numbers = portalloc::of(service).into_iter();
    numbers.filter_map(|n| u16::try_from(n).ok()).collect()
}

/// Tells whether a service needs ports besides its own: to be picked, or named
/// for the first time.
pub(super) fn needs(service: &Value, own: &BTreeSet<u16>) -> bool {
    let new = portalloc::of(service)
        .into_iter()
        .any(|n| u16::try_from(n).ok().is_none_or(|n| !own.contains(&n)));
    new || !portalloc::fill(&mut service.clone(), || None)
}

/// Claims the ports that a service names or needs and has not got, and puts
/// them in. When it fails, nothing stays claimed.
pub(super) async fn claim(
    store: &dyn Store,
    kind: &Kind,
    service: &mut Value,
    own: &BTreeSet<u16>,
    used: &BTreeSet<u16>,
    dry_run: bool,
) -> Result<Vec<Claimed>, Status> {
    let mut claimed = Vec::new();
    let claiming = Claiming {
        store,
        used,
        dry_run,
        owner: owner(service),
    };
    let result = match claiming.named(kind, service, own, &mut claimed).await {
        Ok(()) => claiming.missing(service, &mut claimed).await,
        refused => refused,
    };
    match result {
        Ok(()) => Ok(claimed),
        Err(status) => {
            undo(store, &claimed).await;
            Err(status)
        }
    }
}

/// Gives back ports that were just claimed.
pub(super) async fn undo(store: &dyn Store, claimed: &[Claimed]) {
    for (port, revision) in claimed.iter().filter(|(_, revision)| *revision > 0) {
        claims::undo(store, *port, *revision).await;
    }
}

/// Puts claimed ports into a service that needs some; false if it needs others.
pub(super) fn fill(service: &mut Value, own: &BTreeSet<u16>, claimed: &[Claimed]) -> bool {
    let named = of(service);
    let has = |port: &u16| own.contains(port) || claimed.iter().any(|(c, _)| c == port);
    let mut free = claimed
        .iter()
        .map(|(port, _)| *port)
        .filter(|port| !named.contains(port));
    named.iter().all(has) && portalloc::fill(service, || free.next())
}

struct Claiming<'a> {
    store: &'a dyn Store,
    used: &'a BTreeSet<u16>,
    dry_run: bool,
    owner: String,
}

impl Claiming<'_> {
    async fn take(&self, port: u16) -> Result<Option<u64>, Status> {
        match self.dry_run {
            true => Ok(Some(0)),
            false => claims::take(self.store, port, &self.owner).await,
        }
    }

    /// Claims the ports that the service names.
    async fn named(
        &self,
        kind: &Kind,
        service: &Value,
        own: &BTreeSet<u16>,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), Status> {
        if !portalloc::is_exposed(service) {
            return Ok(());
        }
        for (i, entry) in validate::items(service, "spec.ports").iter().enumerate() {
            let number = value::int_at(entry, "nodePort").unwrap_or(0);
            let known = u16::try_from(number).ok().is_some_and(|n| {
                n == 0 || own.contains(&n) || claimed.iter().any(|(port, _)| *port == n)
            });
            if known {
                continue;
            }
            let refused = |e: PortError| {
                let field = format!("spec.ports[{i}].nodePort");
                let error = FieldError::invalid(&field, number, e.to_string());
                Status::invalid(&kind.gvk(), value::name(service), &[error])
            };
            let port = portalloc::claim(number, self.used).map_err(refused)?;
            let revision = self.take(port).await?;
            let revision = revision.ok_or_else(|| refused(PortError::Allocated))?;
            claimed.push((port, revision));
        }
        Ok(())
    }

    /// Claims ports for the entries that have none, and puts them in.
    async fn missing(&self, service: &mut Value, claimed: &mut Vec<Claimed>) -> Result<(), Status> {
        let mut picked = Vec::new();
        let mut taken = self.used.clone();
        taken.extend(of(service));
        // Each round claims one more, so it ends at the number of entries.
        loop {
            let mut filled = service.clone();
            let mut next = picked.iter().copied();
            if portalloc::fill(&mut filled, || next.next()) {
                *service = filled;
                return Ok(());
            }
            let (port, revision) = self.pick(&mut taken).await?;
            picked.push(port);
            claimed.push((port, revision));
        }
    }

    async fn pick(&self, taken: &mut BTreeSet<u16>) -> Result<Claimed, Status> {
        let full = |e: PortError| Status::internal(format!("failed to allocate a nodePort: {e}"));
        for _ in 0..PICK_ATTEMPTS_MAX {
            let port = portalloc::pick(rand::random(), taken).map_err(full)?;
            taken.insert(port);
            if let Some(revision) = self.take(port).await? {
                return Ok((port, revision));
            }
        }
        Err(full(PortError::Full))
    }
}
