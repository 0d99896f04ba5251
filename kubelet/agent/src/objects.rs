//! The ConfigMaps and Secrets pods refer to, fetched when needed.
//!
//! Fetched objects are kept for a short time, so that fifty pods of one
//! ReplicaSet starting at once ask once. What does not exist is not kept: it is
//! what somebody is about to create.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::{Client, StaticResource};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubelet_core::env::{References, Sources};

/// How long a fetched object may be used without asking again.
const KEPT: Duration = Duration::from_secs(5);
/// How many objects are kept per kind; at the limit all are forgotten, which
/// costs a few requests.
const KEPT_MAX: usize = 512;

type Cache<T> = Mutex<BTreeMap<(String, String), (Instant, T)>>;

/// Fetches and keeps objects.
pub(crate) struct Objects {
    client: Client,
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
}

impl Objects {
    pub(crate) fn new(client: Client) -> Self {
        Objects {
            client,
            config_maps: Mutex::default(),
            secrets: Mutex::default(),
        }
    }

    /// Fetches everything referred to; what does not exist is left out.
    pub(crate) async fn fetch(
        &self,
        namespace: &str,
        references: &References,
    ) -> Result<Sources, client::Error> {
        let mut sources = Sources::default();
        for name in &references.config_maps {
            if let Some(map) = self.one(&self.config_maps, namespace, name).await? {
                sources.config_maps.insert(name.clone(), map);
            }
        }
        for name in &references.secrets {
            if let Some(secret) = self.one(&self.secrets, namespace, name).await? {
                sources.secrets.insert(name.clone(), secret);
            }
        }
        Ok(sources)
    }

    async fn one<T: StaticResource>(
        &self,
        cache: &Cache<T>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<T>, client::Error> {
        let key = (namespace.to_owned(), name.to_owned());
        {
            let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, object)) = cache.get(&key)
                && at.elapsed() < KEPT
            {
                return Ok(Some(object.clone()));
            }
        }
        match self.client.get::<T>(Some(namespace), name).await {
            Ok(object) => {
                let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
                if cache.len() >= KEPT_MAX {
                    cache.clear();
                }
                cache.insert(key, (Instant::now(), object.clone()));
                Ok(Some(object))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
