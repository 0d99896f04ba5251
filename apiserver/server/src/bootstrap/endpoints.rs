//! The addresses behind the service `kubernetes`: those of all API servers over the
//! store that are alive.
//!
//! Each says that it is by a key that ends with it (as kube-apiserver does, in the
//! same place, so that both may serve beside each other), and each writes the same
//! addresses into the same Endpoints and EndpointSlice.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use meta::value;
use registry::{Kind, kinds, validate};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{EVERY, MANAGER, Place, call, path, write};
use crate::api::Api;
use crate::storage::StoreError;
use crate::storage::store::{Cas, PageRequest};

/// Where the keys lie.
const PREFIX: &str = "/registry/masterleases/";
/// For how many seconds a server counts as alive without a word, as upstream.
const ALIVE_SECONDS: u64 = 15;
/// How long saying goodbye may take.
const LEAVE_WAIT: Duration = Duration::from_millis(500);
const NAME: &str = "kubernetes";

/// This server's part in it.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The address others are told to use, if it is one that they can use.
    address: Option<IpAddr>,
    port: u16,
    ipv4: bool,
    /// When it last said that it is alive, and how often it did.
    said: Option<Instant>,
    times: u64,
}

impl Addresses {
    pub(super) fn new(api: &Api, place: Place) -> Self {
        let ipv4 = api.service_ips.range().first().is_ipv4();
        let usable = |ip: &IpAddr| {
            ip.is_ipv4() == ipv4 && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
        };
        let address = place.address.filter(usable);
        if address.is_none() {
            tracing::info!(
                given = ?place.address,
                "no address of this server is one for other machines; the service kubernetes has none from it"
            );
        }
        Self {
            address,
            port: place.port,
            ipv4,
            said: None,
            times: 0,
        }
    }

    /// Says that this server is alive if that is due, and puts who is alive into the
    /// objects.
    pub(super) async fn reconcile(&mut self, api: &Arc<Api>) -> Result<(), String> {
        let Some(address) = self.address else {
            return Ok(());
        };
        if self.said.is_none_or(|at| at.elapsed() >= EVERY / 2) {
            self.say(api, address).await.map_err(|e| e.to_string())?;
        }
        self.write(api).await
    }

    /// Takes this server's address away, for those who are left.
    pub(super) async fn leave(&self, api: &Arc<Api>) {
        let (Some(address), Some(_)) = (self.address, self.said) else {
            return;
        };
        let goodbye = async {
            let key = format!("{PREFIX}{address}");
            if let Some(kv) = api.store.get(&key).await.map_err(|e| e.to_string())?.kv {
                let gone = api.store.delete(&key, kv.mod_revision).await;
                gone.map_err(|e| e.to_string())?;
            }
            self.write(api).await
        };
        match tokio::time::timeout(LEAVE_WAIT, goodbye).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(error, "the address of this server stays for a while"),
            Err(_late) => tracing::info!("the address of this server stays for a while"),
        }
    }

    async fn say(&mut self, api: &Api, address: IpAddr) -> Result<(), StoreError> {
        let key = format!("{PREFIX}{address}");
        self.times += 1;
        let lease = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"generation": self.times, "creationTimestamp": null},
            "subsets": [{"addresses": [{"ip": address.to_string()}]}],
        });
        let bytes = lease.to_string().into_bytes();
        let mut expected = api
            .store
            .get(&key)
            .await?
            .kv
            .map_or(0, |kv| kv.mod_revision);
        // Twice: nobody else has this address but another server at the same place.
        for _ in 0..2 {
            let put = api
                .store
                .put(&key, bytes.clone().into(), expected, Some(ALIVE_SECONDS));
            match put.await? {
                Cas::Done(_) => break,
                Cas::Conflict(kv) => expected = kv.map_or(0, |kv| kv.mod_revision),
            }
        }
        self.said = Some(Instant::now());
        Ok(())
    }

    /// Writes who is alive into the Endpoints and the EndpointSlice. Nobody is a
    /// mistake, and nothing is written then.
    async fn write(&self, api: &Arc<Api>) -> Result<(), String> {
        let page = PageRequest {
            prefix: PREFIX.to_owned(),
            keys_only: true,
            ..PageRequest::default()
        };
        let keys = api.store.list(page).await.map_err(|e| e.to_string())?.kvs;
        let alive: BTreeSet<IpAddr> = keys
            .iter()
            .filter_map(|kv| kv.key.strip_prefix(PREFIX)?.parse().ok())
            .filter(|ip: &IpAddr| ip.is_ipv4() == self.ipv4)
            .collect();
        if alive.is_empty() {
            return Ok(());
        }
        let texts: Vec<String> = alive.iter().map(ToString::to_string).collect();
        let pair = [
            (kinds::find("", "v1", "endpoints"), self.endpoints(&texts)),
            (
                kinds::find("discovery.k8s.io", "v1", "endpointslices"),
                self.slice(&texts),
            ),
        ];
        for (kind, wanted) in pair {
            let Some(kind) = kind else { continue };
            put(api, kind, wanted).await?;
        }
        Ok(())
    }

    fn ports(&self) -> Value {
        json!([{"name": "https", "port": self.port, "protocol": "TCP"}])
    }

    fn endpoints(&self, addresses: &[String]) -> Value {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": NAME, "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": addresses, "ports": self.ports()}],
        })
    }

    fn slice(&self, addresses: &[String]) -> Value {
        let endpoint = |ip| json!({"addresses": [ip], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": NAME, "namespace": "default",
                "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": if self.ipv4 { "IPv4" } else { "IPv6" },
            "endpoints": endpoints, "ports": self.ports(),
        })
    }
}

/// Makes an object what is wanted, if it is not; the ports of an object that is
/// there are whoever's that made it.
async fn put(api: &Arc<Api>, kind: &'static Kind, wanted: Value) -> Result<(), String> {
    let uri = format!("{}/{NAME}", path(kind, &wanted));
    let (code, text) = call(api, Method::GET, &uri, MANAGER, None).await?;
    let current: Value = match code {
        StatusCode::OK => serde_json::from_str(&text).map_err(|e| e.to_string())?,
        StatusCode::NOT_FOUND => {
            let due = registry::standing::Due::Create(wanted);
            return write(api, kind, MANAGER, Some(due)).await;
        }
        code => return Err(format!("GET {uri}: {code} {text}")),
    };
    let new = like(current.clone(), &wanted);
    if new == current {
        return Ok(());
    }
    let due = registry::standing::Due::Replace(new);
    write(api, kind, MANAGER, Some(due)).await
}

/// Returns an object with the labels and the addresses that are wanted, and with the
/// ports if it has none.
fn like(mut current: Value, wanted: &Value) -> Value {
    let ports = |object: &Value| match object.get("subsets") {
        Some(_) => validate::items(object, "subsets")
            .first()
            .map(|subset| validate::items(subset, "ports").to_vec()),
        None => Some(validate::items(object, "ports").to_vec()),
    };
    let kept = ports(&current).filter(|ports| !ports.is_empty());
    for field in ["subsets", "endpoints", "ports"] {
        registry::kind::copy_field(&mut current, wanted, field);
    }
    if let Some(kept) = kept {
        match current.get_mut("subsets").and_then(|s| s.get_mut(0)) {
            Some(subset) => subset["ports"] = kept.into(),
            None => current["ports"] = kept.into(),
        }
    }
    let labels = value::at(wanted, "metadata.labels").cloned();
    value::set_metadata(&mut current, "labels", labels.unwrap_or_default());
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        Addresses {
            address: None,
            port: 6443,
            ipv4: true,
            said: None,
            times: 0,
        }
    }

    #[test]
    fn addresses_and_labels_are_put_back_and_ports_stay() {
        let ours = addresses();
        let (one, two) = (["10.0.0.1".to_owned()], ["10.0.0.1", "10.0.0.2"]);
        let two = two.map(str::to_owned);
        for make in [Addresses::endpoints, Addresses::slice] {
            let (old, wanted) = (make(&ours, &one), make(&ours, &two));
            assert_eq!(like(wanted.clone(), &wanted), wanted);
            assert_eq!(like(old.clone(), &wanted), wanted);
            let mut odd = old;
            odd["metadata"]["labels"] = json!({"mine": "yes"});
            odd["metadata"]["uid"] = json!("u");
            let put_back = like(odd.clone(), &wanted);
            assert_eq!(put_back["metadata"]["labels"], wanted["metadata"]["labels"]);
            assert_eq!(put_back["metadata"]["uid"], "u");
        }
        let wanted = ours.endpoints(&two);
        let mut other = wanted.clone();
        other["subsets"][0]["ports"][0]["port"] = json!(8443);
        assert_eq!(like(other.clone(), &wanted), other);
        other["subsets"] = json!([]);
        assert_eq!(like(other, &wanted), wanted);
    }
}
