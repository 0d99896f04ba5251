//! Asks the server which resources it serves.
//!
//! Prefers aggregated discovery (two requests, KEP-3352); a server that answers the
//! older form is walked group by group. A group that cannot be read is reported
//! beside the rest, so one broken group does not stop garbage collection.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, APIVersions};
use meta::{GroupVersion, GroupVersionResource};
use serde::Deserialize;
use serde_json::Value;

use super::{Call, Client};
use crate::error::{Error, Result};
use crate::resource::ResourceRef;

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Is one resource the server serves, in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// Says where it lives.
    pub resource: ResourceRef,
    /// Is the kind of its objects.
    pub kind: String,
    /// Are the verbs it takes.
    pub verbs: Vec<String>,
    /// Tells whether this version is the first its group lists.
    pub preferred: bool,
}

impl ApiResource {
    /// Tells whether the resource takes all of these verbs.
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs
            .iter()
            .all(|verb| self.verbs.iter().any(|v| v == verb))
    }
}

/// Is the result of discovery. Subresources are left out.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Are the resources found.
    pub resources: Vec<ApiResource>,
    /// Names group versions that could not be read, with the reason.
    pub failed: Vec<(GroupVersion, String)>,
}

impl Discovery {
    /// Returns each resource once, in the version its group prefers.
    pub fn preferred(&self) -> impl Iterator<Item = &ApiResource> {
        self.resources.iter().filter(|r| r.preferred)
    }
}

impl Client {
    /// Lists the resources the server serves.
    pub async fn discover(&self) -> Result<Discovery> {
        let mut found = Discovery::default();
        for root in ["/api", "/apis"] {
            let call = Call::new(Method::GET, root).accept(ACCEPT_AGGREGATED);
            let answer: Value = self.send_json(call).await?;
            match answer.get("kind").and_then(Value::as_str) {
                Some("APIGroupDiscoveryList") => aggregated(answer, &mut found)?,
                Some("APIVersions") => {
                    let list: APIVersions = decode(answer)?;
                    let versions = list
                        .versions
                        .iter()
                        .map(|v| GroupVersion::new("", v))
                        .collect();
                    self.walk(versions, &mut found).await;
                }
                _ => {
                    let list: APIGroupList = decode(answer)?;
                    for group in list.groups {
                        let versions = group
                            .versions
                            .iter()
                            .map(|v| GroupVersion::new(&group.name, &v.version))
                            .collect();
                        self.walk(versions, &mut found).await;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads the resources of a group's versions, the preferred one first.
    async fn walk(&self, versions: Vec<GroupVersion>, found: &mut Discovery) {
        for gv in versions {
            let call = Call::new(Method::GET, gv.api_path());
            match self.send_json::<APIResourceList>(call).await {
                Ok(list) => {
                    for r in list.resources.into_iter().filter(|r| !r.name.contains('/')) {
                        let resource = ResourceRef {
                            gvr: gv.with_resource(r.name),
                            namespaced: r.namespaced,
                        };
                        add(found, resource, r.kind, r.verbs);
                    }
                }
                Err(error) => found.failed.push((gv, error.to_string())),
            }
        }
    }
}

fn add(found: &mut Discovery, resource: ResourceRef, kind: String, verbs: Vec<String>) {
    let preferred = !found
        .resources
        .iter()
        .any(|r| r.resource.gvr.group_resource() == resource.gvr.group_resource());
    found.resources.push(ApiResource {
        resource,
        kind,
        verbs,
        preferred,
    });
}

#[derive(Deserialize)]
struct AggregatedList {
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: AggregatedMeta,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct AggregatedMeta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: AggregatedKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct AggregatedKind {
    #[serde(default)]
    kind: String,
}

fn aggregated(answer: Value, found: &mut Discovery) -> Result<()> {
    let list: AggregatedList = decode(answer)?;
    for group in list.items {
        for version in group.versions {
            let gv = GroupVersion::new(&group.metadata.name, &version.version);
            if version.freshness == "Stale" {
                found
                    .failed
                    .push((gv.clone(), "the server's copy is stale".into()));
            }
            for r in version.resources {
                let resource = ResourceRef {
                    gvr: GroupVersionResource::new(&gv.group, &gv.version, r.resource),
                    namespaced: r.scope == "Namespaced",
                };
                add(found, resource, r.response_kind.kind, r.verbs);
            }
        }
    }
    Ok(())
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(Error::Decode)
}
