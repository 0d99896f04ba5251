//! `token`: a signed token of a service account (`kubectl create token`).

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::value::{self, at, int_at, str_at};
use meta::{FieldError, GroupResource, GroupVersion, GroupVersionKind, Object, Status};
use serde_json::{Value, json};

use super::review::{read, write};
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::pipeline::Context;
use crate::service_tokens::{Binding, Reference};
use crate::storage::ReadVersion;

/// For how long a token is good that does not say, in seconds.
const SECONDS: i64 = 3600;
/// The shortest and the longest life, in seconds.
const SECONDS_RANGE: (i64, i64) = (600, 1 << 32);
/// The life that kubelets ask for. Such a token is good for longer, and from
/// then on its use is noted: clients of old read theirs only once.
const WARN_AFTER: i64 = 3607;
/// How long such a token is good, in seconds.
const EXTENDED: i64 = 365 * 24 * 3600;

/// Issues a token.
pub(super) async fn create(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let mut request = read(cx, body, "authentication.k8s.io", "TokenRequest").await?;
    let account = target
        .store()
        .get(target.ns(), &target.name, ReadVersion::Unset)
        .await?;
    complete(api, &mut request, &account)?;
    let binding = bind(api, &request, &account).await?;
    let now = jiff::Timestamp::now().as_second();
    let audiences: Vec<String> = registry::checks::texts(&request, "spec.audiences")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let asked = int_at(&request, "spec.expirationSeconds").unwrap_or(SECONDS);
    let for_us = audiences == api.service_tokens.audiences();
    let extends = for_us && asked == WARN_AFTER && binding.pod.is_some();
    let (binding, lasts) = match extends {
        true => (
            Binding {
                warnafter: Some(now + asked),
                ..binding
            },
            EXTENDED,
        ),
        false => (binding, asked),
    };
    let token = api
        .service_tokens
        .sign(binding, &audiences, now, now + lasts)
        .map_err(|e| Status::internal(format!("failed to generate token: {e}")))?;
    let expires = jiff::Timestamp::from_second(now + asked).map_err(Status::internal)?;
    request["status"] = json!({
        "token": token, "expirationTimestamp": meta::time::format(expires),
    });
    write(cx, StatusCode::CREATED, &request)
}

/// Fills in what the request leaves open, and checks it.
fn complete(api: &Api, request: &mut Value, account: &Object) -> Result<(), Status> {
    let (name, namespace) = (value::name(request), value::namespace(request));
    if !name.is_empty() && name != account.meta.name {
        return Err(Status::bad_request(format!(
            "requested service account name {name:?} does not match {:?}",
            account.meta.name
        )));
    }
    if !namespace.is_empty() && namespace != account.meta.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    value::set_metadata(request, "name", account.meta.name.as_str());
    value::set_metadata(request, "namespace", account.meta.namespace.as_str());
    let created = meta::time::format(jiff::Timestamp::now());
    value::set_metadata(request, "creationTimestamp", created);
    let spec = value::object_mut(request, "spec");
    if spec
        .get("audiences")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        let ours = api.service_tokens.audiences();
        spec.insert("audiences".to_owned(), json!(ours));
    }
    let seconds = spec
        .entry("expirationSeconds")
        .or_insert(Value::from(SECONDS));
    let seconds = seconds.as_i64().unwrap_or(0);
    let (least, most) = SECONDS_RANGE;
    let words = match seconds {
        n if n < least => "may not specify a duration less than 10 minutes",
        n if n > most => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let error = FieldError::invalid("spec.expirationSeconds", seconds, words);
    let gvk = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    Err(Status::invalid(&gvk, "", &[error]))
}

/// Finds what the token shall be bound to.
async fn bind(api: &Api, request: &Value, account: &Object) -> Result<Binding, Status> {
    let namespace = account.meta.namespace.as_str();
    let mut binding = Binding {
        namespace: namespace.to_owned(),
        serviceaccount: Reference::to(account),
        ..Binding::default()
    };
    let Some(wanted) = at(request, "spec.boundObjectRef") else {
        return Ok(binding);
    };
    let (name, kind) = (str_at(wanted, "name"), str_at(wanted, "kind"));
    let version = str_at(wanted, "apiVersion");
    let found = match (version, kind) {
        ("v1", "Pod") => {
            let pod = get(api, "pods", Some(namespace), name).await?;
            let view = pod.to_value().map_err(Status::internal)?;
            if str_at(&view, "spec.serviceAccountName") != account.meta.name {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    account.meta.name
                )));
            }
            let node = str_at(&view, "spec.nodeName");
            if !node.is_empty() {
                // A node that is gone, or not there yet, is known by name alone.
                let known = get(api, "nodes", None, node).await.ok();
                binding.node = Some(Reference {
                    name: node.to_owned(),
                    uid: known.map(|n| n.meta.uid.clone()).unwrap_or_default(),
                });
            }
            binding.pod = Some(Reference::to(&pod));
            pod
        }
        ("v1", "Secret") => {
            let secret = get(api, "secrets", Some(namespace), name).await?;
            binding.secret = Some(Reference::to(&secret));
            secret
        }
        ("v1", "Node") => {
            let node = get(api, "nodes", None, name).await?;
            binding.node = Some(Reference::to(&node));
            node
        }
        _ => {
            let gv = GroupVersion::parse(version).unwrap_or_else(|| GroupVersion::new("", ""));
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {}/{}, Kind={kind}",
                gv.group, gv.version
            )));
        }
    };
    let uid = str_at(wanted, "uid");
    if !uid.is_empty() && uid != found.meta.uid {
        return Err(Status::conflict(
            &GroupResource::new("", kind),
            name,
            &format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    Ok(binding)
}

async fn get(
    api: &Api,
    plural: &'static str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Arc<Object>, Status> {
    let store = &api.core(plural)?.store;
    store.get(namespace, name, ReadVersion::Unset).await
}
