//! A pod's volumes as a plan: which directories, which files, which modes.
//!
//! The agent makes the directories and writes the files; here is only what
//! they hold. Known sources: emptyDir, configMap, secret, downwardAPI,
//! projected (of those three), hostPath. Others are refused by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Volume,
};

use crate::env::{References, Sources};
use crate::expand::expand;
use crate::fields::{self, FieldError, NodeFacts};
use crate::pod;

/// Mode of a file whose volume names none (the API's default).
pub const FILE_MODE_DEFAULT: u32 = 0o644;

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// What it holds.
    pub content: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedSource {
    /// An empty directory that lives as long as the pod.
    Empty,
    /// Files by path relative to the volume, replaced all at once.
    Files(BTreeMap<String, PlannedFile>),
    /// A path of the host.
    Host {
        /// The path.
        path: String,
        /// What must be there, or be made: the API's `type`.
        kind: String,
    },
}

/// One volume to set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVolume {
    /// The volume's name.
    pub name: String,
    /// What it is made of.
    pub source: PlannedSource,
}

/// One mount of a volume into a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMount {
    /// The volume's name.
    pub volume: String,
    /// Where the container expects it.
    pub mount_path: String,
    /// Which part of the volume, empty for all.
    pub sub_path: String,
}

/// Why a volume cannot be set up. The event is `FailedMount`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {cause}")]
pub struct VolumeError {
    /// The volume's name.
    pub volume: String,
    /// What is wrong.
    pub cause: VolumeCause,
}

/// What is wrong with a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeCause {
    /// A ConfigMap does not exist.
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    /// A Secret does not exist.
    #[error("secret {0:?} not found")]
    NoSecret(String),
    /// An item names a key the object lacks.
    #[error("references non-existent {kind} key: {key}")]
    NoKey {
        /// `config` or `secret`.
        kind: &'static str,
        /// The key asked for.
        key: String,
    },
    /// A path leaves the volume.
    #[error("path {0:?} must be relative and must not contain '..'")]
    BadPath(String),
    /// A field reference has no value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A source this kubelet does not know.
    #[error("this kind of volume is not supported by this kubelet")]
    Unsupported,
}

/// Collects the objects a pod's volumes refer to.
pub fn references(pod: &Pod) -> References {
    let mut found = References::default();
    for volume in volumes(pod) {
        if let Some(source) = &volume.config_map {
            found.config_maps.insert(source.name.clone());
        }
        if let Some(name) = volume.secret.as_ref().and_then(|s| s.secret_name.as_ref()) {
            found.secrets.insert(name.clone());
        }
        let projected = volume
            .projected
            .iter()
            .flat_map(|p| p.sources.iter().flatten());
        for source in projected {
            if let Some(map) = &source.config_map {
                found.config_maps.insert(map.name.clone());
            }
            if let Some(secret) = &source.secret {
                found.secrets.insert(secret.name.clone());
            }
        }
    }
    found
}

/// Reports whether the pod has volumes whose files follow changing objects.
pub fn are_refreshed(pod: &Pod) -> bool {
    volumes(pod).iter().any(|v| {
        v.config_map.is_some()
            || v.secret.is_some()
            || v.downward_api.is_some()
            || v.projected.is_some()
    })
}

fn volumes(pod: &Pod) -> &[Volume] {
    pod::spec(pod)
        .and_then(|s| s.volumes.as_deref())
        .unwrap_or_default()
}

/// Plans every volume of a pod.
pub fn plan(
    pod: &Pod,
    sources: &Sources,
    facts: &NodeFacts,
) -> Result<Vec<PlannedVolume>, VolumeError> {
    volumes(pod)
        .iter()
        .map(|volume| match plan_one(pod, volume, sources, facts) {
            Ok(source) => Ok(PlannedVolume {
                name: volume.name.clone(),
                source,
            }),
            Err(cause) => Err(VolumeError {
                volume: volume.name.clone(),
                cause,
            }),
        })
        .collect()
}

fn plan_one(
    pod: &Pod,
    volume: &Volume,
    sources: &Sources,
    facts: &NodeFacts,
) -> Result<PlannedSource, VolumeCause> {
    if let Some(source) = &volume.config_map {
        let mut files = Files::new(source.default_mode);
        files.config_map(
            sources,
            &source.name,
            source.items.as_deref(),
            source.optional,
        )?;
        Ok(files.done())
    } else if let Some(source) = &volume.secret {
        let mut files = Files::new(source.default_mode);
        let name = source.secret_name.as_deref().unwrap_or_default();
        files.secret(sources, name, source.items.as_deref(), source.optional)?;
        Ok(files.done())
    } else if let Some(source) = &volume.downward_api {
        let mut files = Files::new(source.default_mode);
        files.downward(pod, facts, source.items.as_deref())?;
        Ok(files.done())
    } else if let Some(source) = &volume.projected {
        let mut files = Files::new(source.default_mode);
        projected(&mut files, pod, source, sources, facts)?;
        Ok(files.done())
    } else if let Some(source) = &volume.host_path {
        let kind = source.type_.clone().unwrap_or_default();
        let path = source.path.clone();
        Ok(PlannedSource::Host { path, kind })
    } else if volume.empty_dir.is_some() {
        Ok(PlannedSource::Empty)
    } else {
        Err(VolumeCause::Unsupported)
    }
}

fn projected(
    files: &mut Files,
    pod: &Pod,
    source: &ProjectedVolumeSource,
    sources: &Sources,
    facts: &NodeFacts,
) -> Result<(), VolumeCause> {
    for part in source.sources.iter().flatten() {
        if let Some(map) = &part.config_map {
            files.config_map(sources, &map.name, map.items.as_deref(), map.optional)?;
        } else if let Some(secret) = &part.secret {
            files.secret(
                sources,
                &secret.name,
                secret.items.as_deref(),
                secret.optional,
            )?;
        } else if let Some(downward) = &part.downward_api {
            files.downward(pod, facts, downward.items.as_deref())?;
        } else {
            return Err(VolumeCause::Unsupported);
        }
    }
    Ok(())
}

/// The files of one volume, while they are collected.
struct Files {
    mode: u32,
    files: BTreeMap<String, PlannedFile>,
}

impl Files {
    fn new(mode: Option<i32>) -> Self {
        Files {
            mode: permission(mode).unwrap_or(FILE_MODE_DEFAULT),
            files: BTreeMap::new(),
        }
    }

    fn done(self) -> PlannedSource {
        PlannedSource::Files(self.files)
    }

    fn config_map(
        &mut self,
        sources: &Sources,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<(), VolumeCause> {
        let optional = optional == Some(true);
        let Some(map) = sources.config_maps.get(name) else {
            return if optional {
                Ok(())
            } else {
                Err(VolumeCause::NoConfigMap(name.into()))
            };
        };
        let mut payload: BTreeMap<&str, &[u8]> = BTreeMap::new();
        payload.extend(
            map.data
                .iter()
                .flatten()
                .map(|(k, v)| (k.as_str(), v.as_bytes())),
        );
        payload.extend(
            map.binary_data
                .iter()
                .flatten()
                .map(|(k, v)| (k.as_str(), &v.0[..])),
        );
        self.project(&payload, "config", items, optional)
    }

    fn secret(
        &mut self,
        sources: &Sources,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<(), VolumeCause> {
        let optional = optional == Some(true);
        let Some(secret) = sources.secrets.get(name) else {
            return if optional {
                Ok(())
            } else {
                Err(VolumeCause::NoSecret(name.into()))
            };
        };
        let payload = secret
            .data
            .iter()
            .flatten()
            .map(|(k, v)| (k.as_str(), &v.0[..]))
            .collect();
        self.project(&payload, "secret", items, optional)
    }

    /// Adds all keys, or those the items name under the paths they name.
    fn project(
        &mut self,
        payload: &BTreeMap<&str, &[u8]>,
        kind: &'static str,
        items: Option<&[KeyToPath]>,
        optional: bool,
    ) -> Result<(), VolumeCause> {
        let items = items.unwrap_or_default();
        if items.is_empty() {
            for (key, content) in payload {
                self.add(key, content.to_vec(), None)?;
            }
        }
        for item in items {
            match payload.get(item.key.as_str()) {
                Some(content) => self.add(&item.path, content.to_vec(), item.mode)?,
                None if optional => {}
                None => {
                    return Err(VolumeCause::NoKey {
                        kind,
                        key: item.key.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    fn downward(
        &mut self,
        pod: &Pod,
        facts: &NodeFacts,
        items: Option<&[DownwardAPIVolumeFile]>,
    ) -> Result<(), VolumeCause> {
        for item in items.unwrap_or_default() {
            let content = if let Some(field) = &item.field_ref {
                fields::field(pod, facts, &field.field_path)?
            } else if let Some(resource) = &item.resource_field_ref {
                fields::resource(pod, facts, "", resource)?
            } else {
                return Err(VolumeCause::Unsupported);
            };
            self.add(&item.path, content.into_bytes(), item.mode)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, content: Vec<u8>, mode: Option<i32>) -> Result<(), VolumeCause> {
        let bad = path.is_empty()
            || path.starts_with('/')
            || path.split('/').any(|part| matches!(part, "" | "." | ".."))
            || path.starts_with("..");
        if bad {
            return Err(VolumeCause::BadPath(path.to_owned()));
        }
        let mode = permission(mode).unwrap_or(self.mode);
        self.files
            .insert(path.to_owned(), PlannedFile { content, mode });
        Ok(())
    }
}

fn permission(mode: Option<i32>) -> Option<u32> {
    mode.and_then(|m| u32::try_from(m).ok()).map(|m| m & 0o777)
}

/// Lists a container's mounts; `subPathExpr` is expanded with its environment.
pub fn mounts<'e>(
    container: &Container,
    lookup: impl Fn(&str) -> Option<&'e str> + Copy,
) -> Vec<PlannedMount> {
    container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| PlannedMount {
            volume: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            sub_path: match (&mount.sub_path_expr, &mount.sub_path) {
                (Some(expression), _) => expand(expression, lookup),
                (None, path) => path.clone().unwrap_or_default(),
            },
        })
        .collect()
}

#[cfg(test)]
mod test;
