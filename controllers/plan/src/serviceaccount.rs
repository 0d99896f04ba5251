//! What every namespace needs before pods can be created in it: the `default`
//! ServiceAccount, and the ConfigMap with the certificate of the cluster's CA.
//!
//! Upstream: `serviceaccounts_controller.go` and
//! `certificates/rootcacertpublisher/publisher.go`, v1.32.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::{Write, object};

/// Is the account a pod uses unless it names another.
pub const DEFAULT_ACCOUNT: &str = "default";
/// Is the ConfigMap in-cluster clients read the CA from.
pub const ROOT_CA: &str = "kube-root-ca.crt";
/// Is the key of the certificate in [`ROOT_CA`].
pub const ROOT_CA_KEY: &str = "ca.crt";

const ROOT_CA_NOTE: &str = "Contains a CA bundle that can be used to verify the kube-apiserver \
     when using internal endpoints such as the internal service IP or kubernetes.default.svc. \
     No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Creates the default account of an active namespace that lacks it.
pub fn default_account(namespace: &Namespace, existing: Option<&ServiceAccount>) -> Option<Write> {
    if !is_active(namespace) || existing.is_some() {
        return None;
    }
    let account = ServiceAccount {
        metadata: metadata(namespace, DEFAULT_ACCOUNT),
        ..ServiceAccount::default()
    };
    Some(Write::create(&account.metadata, &account))
}

/// Creates or repairs the CA ConfigMap of an active namespace.
pub fn root_ca(namespace: &Namespace, existing: Option<&ConfigMap>, ca: &str) -> Option<Write> {
    if !is_active(namespace) {
        return None;
    }
    let data = BTreeMap::from([(ROOT_CA_KEY.to_owned(), ca.to_owned())]);
    match existing {
        Some(found) if found.data.as_ref() == Some(&data) => None,
        Some(found) => {
            let mut patch = json!({"data": {ROOT_CA_KEY: ca}});
            for stray in found.data.iter().flatten().map(|(key, _)| key) {
                if stray != ROOT_CA_KEY {
                    patch["data"][stray] = serde_json::Value::Null;
                }
            }
            Some(Write::patch::<ConfigMap>(&found.metadata, None, patch))
        }
        None => {
            let mut metadata = metadata(namespace, ROOT_CA);
            let note = (
                "kubernetes.io/description".to_owned(),
                ROOT_CA_NOTE.to_owned(),
            );
            metadata.annotations = Some(BTreeMap::from([note]));
            let map = ConfigMap {
                metadata,
                data: Some(data),
                ..ConfigMap::default()
            };
            Some(Write::create(&map.metadata, &map))
        }
    }
}

fn metadata(namespace: &Namespace, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(object::text(&namespace.metadata.name).to_owned()),
        ..ObjectMeta::default()
    }
}

/// Nothing can be created in a namespace that is going away.
fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(deleting: bool) -> Namespace {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("team".into());
        namespace.metadata.deletion_timestamp =
            deleting.then(|| jiff::Timestamp::UNIX_EPOCH.into());
        namespace
    }

    #[test]
    fn an_active_namespace_gets_what_it_lacks() {
        let Some(Write::Create {
            body,
            namespace: ns,
            ..
        }) = default_account(&namespace(false), None)
        else {
            panic!("a creation")
        };
        assert_eq!(
            (body["metadata"]["name"].as_str(), ns.as_deref()),
            (Some("default"), Some("team"))
        );
        assert_eq!(default_account(&namespace(true), None), None);
        assert_eq!(
            default_account(&namespace(false), Some(&ServiceAccount::default())),
            None
        );
    }

    #[test]
    fn the_ca_is_published_and_repaired() {
        let Some(Write::Create { body, .. }) = root_ca(&namespace(false), None, "PEM") else {
            panic!("a creation")
        };
        let mut map: ConfigMap = serde_json::from_value(body).unwrap();
        assert_eq!(root_ca(&namespace(false), Some(&map), "PEM"), None);
        map.data
            .get_or_insert_default()
            .insert("stray".into(), "x".into());
        let Some(Write::Patch { patch, .. }) = root_ca(&namespace(false), Some(&map), "NEW") else {
            panic!("a patch")
        };
        assert_eq!(patch, json!({"data": {"ca.crt": "NEW", "stray": null}}));
        assert_eq!(root_ca(&namespace(true), None, "PEM"), None);
    }
}
