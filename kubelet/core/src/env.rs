//! A container's environment, from its spec and what the spec refers to.
//!
//! Order as upstream's `makeEnvironmentVariables`: `envFrom` in order, then
//! `env` in order, a later entry replacing an earlier one of the same name;
//! `$(VAR)` in a value sees what stands before it. Service links are absent.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};

use crate::expand::expand;
use crate::fields::{self, FieldError, NodeFacts};
use crate::pod;

/// The ConfigMaps and Secrets a pod refers to, as fetched; an object that was
/// asked for and does not exist is absent.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// By name, in the pod's namespace.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// By name, in the pod's namespace.
    pub secrets: BTreeMap<String, Secret>,
}

/// The names of the ConfigMaps and Secrets something refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMap names.
    pub config_maps: BTreeSet<String>,
    /// Secret names.
    pub secrets: BTreeSet<String>,
}

/// Why a container's environment cannot be made. The container waits with
/// `CreateContainerConfigError` and this message, which is kubectl's known text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// A ConfigMap does not exist.
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    /// A Secret does not exist.
    #[error("secret {0:?} not found")]
    NoSecret(String),
    /// A ConfigMap lacks the key.
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    NoConfigMapKey {
        /// The key asked for.
        key: String,
        /// The ConfigMap's namespace.
        namespace: String,
        /// The ConfigMap's name.
        name: String,
    },
    /// A Secret lacks the key.
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    NoSecretKey {
        /// The key asked for.
        key: String,
        /// The Secret's namespace.
        namespace: String,
        /// The Secret's name.
        name: String,
    },
    /// A value is not text, and an environment variable must be.
    #[error("key {key} in Secret {namespace}/{name} is not valid UTF-8")]
    NotText {
        /// The key asked for.
        key: String,
        /// The object's namespace.
        namespace: String,
        /// The object's name.
        name: String,
    },
    /// A field or resource reference has no value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A source this kubelet does not know.
    #[error("environment variable {0} has an unsupported valueFrom")]
    UnsupportedSource(String),
}

/// Collects the objects a container's environment refers to.
pub fn references(container: &Container) -> References {
    let mut found = References::default();
    for from in container.env_from.iter().flatten() {
        if let Some(source) = &from.config_map_ref {
            found.config_maps.insert(source.name.clone());
        }
        if let Some(source) = &from.secret_ref {
            found.secrets.insert(source.name.clone());
        }
    }
    for source in container
        .env
        .iter()
        .flatten()
        .filter_map(|e| e.value_from.as_ref())
    {
        if let Some(key) = &source.config_map_key_ref {
            found.config_maps.insert(key.name.clone());
        }
        if let Some(key) = &source.secret_key_ref {
            found.secrets.insert(key.name.clone());
        }
    }
    found
}

/// Resolves a container's environment, in order.
pub fn resolve(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    facts: &NodeFacts,
) -> Result<IndexMap<String, String>, EnvError> {
    let mut env = IndexMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let pairs = if let Some(source) = &from.config_map_ref {
            config_map_pairs(sources, &source.name, source.optional)?
        } else if let Some(source) = &from.secret_ref {
            secret_pairs(pod, sources, &source.name, source.optional)?
        } else {
            Vec::new()
        };
        for (key, value) in pairs {
            let name = format!("{prefix}{key}");
            if is_env_name(&name) {
                env.insert(name, value);
            }
        }
    }
    for var in container.env.iter().flatten() {
        let value = match &var.value_from {
            None => Some(expand(var.value.as_deref().unwrap_or_default(), |name| {
                env.get(name).map(String::as_str)
            })),
            Some(source) => from_source(pod, container, var, source, sources, facts)?,
        };
        // An optional reference to nothing leaves the variable unset.
        if let Some(value) = value {
            env.insert(var.name.clone(), value);
        }
    }
    Ok(env)
}

fn config_map_pairs(
    sources: &Sources,
    name: &str,
    optional: Option<bool>,
) -> Result<Vec<(String, String)>, EnvError> {
    match sources.config_maps.get(name) {
        Some(map) => Ok(map
            .data
            .iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()),
        None if optional == Some(true) => Ok(Vec::new()),
        None => Err(EnvError::NoConfigMap(name.to_owned())),
    }
}

fn secret_pairs(
    pod: &Pod,
    sources: &Sources,
    name: &str,
    optional: Option<bool>,
) -> Result<Vec<(String, String)>, EnvError> {
    match sources.secrets.get(name) {
        Some(secret) => secret
            .data
            .iter()
            .flatten()
            .map(|(key, value)| Ok((key.clone(), text(pod, name, key, &value.0)?)))
            .collect(),
        None if optional == Some(true) => Ok(Vec::new()),
        None => Err(EnvError::NoSecret(name.to_owned())),
    }
}

fn from_source(
    pod: &Pod,
    container: &Container,
    var: &EnvVar,
    source: &EnvVarSource,
    sources: &Sources,
    facts: &NodeFacts,
) -> Result<Option<String>, EnvError> {
    let namespace = || pod::namespace(pod).to_owned();
    if let Some(reference) = &source.field_ref {
        return Ok(Some(fields::field(pod, facts, &reference.field_path)?));
    }
    if let Some(reference) = &source.resource_field_ref {
        return Ok(Some(fields::resource(
            pod,
            facts,
            &container.name,
            reference,
        )?));
    }
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = sources.config_maps.get(&key.name) else {
            return missing(optional, || EnvError::NoConfigMap(key.name.clone()));
        };
        return match map.data.as_ref().and_then(|d| d.get(&key.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => missing(optional, || EnvError::NoConfigMapKey {
                key: key.key.clone(),
                namespace: namespace(),
                name: key.name.clone(),
            }),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = sources.secrets.get(&key.name) else {
            return missing(optional, || EnvError::NoSecret(key.name.clone()));
        };
        return match secret.data.as_ref().and_then(|d| d.get(&key.key)) {
            Some(value) => text(pod, &key.name, &key.key, &value.0).map(Some),
            None => missing(optional, || EnvError::NoSecretKey {
                key: key.key.clone(),
                namespace: namespace(),
                name: key.name.clone(),
            }),
        };
    }
    Err(EnvError::UnsupportedSource(var.name.clone()))
}

fn missing(optional: bool, error: impl FnOnce() -> EnvError) -> Result<Option<String>, EnvError> {
    if optional { Ok(None) } else { Err(error()) }
}

fn text(pod: &Pod, name: &str, key: &str, bytes: &[u8]) -> Result<String, EnvError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_not_utf8) => Err(EnvError::NotText {
            key: key.to_owned(),
            namespace: pod::namespace(pod).to_owned(),
            name: name.to_owned(),
        }),
    }
}

/// Reports whether a process can be given a variable of this name: not empty,
/// printable ASCII, no `=` (the relaxed rule of KEP-4369).
fn is_env_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// Expands the references in a command or argument list.
pub fn expand_all(words: &[String], env: &IndexMap<String, String>) -> Vec<String> {
    words
        .iter()
        .map(|w| expand(w, |name| env.get(name).map(String::as_str)))
        .collect()
}

#[cfg(test)]
mod test;
