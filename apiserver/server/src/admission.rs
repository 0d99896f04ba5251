//! Admission: what a write must satisfy, and what is added to it, beyond its
//! own kind's rules.
//!
//! The steps of a creation run in the order of [`STEPS`], after decoding and
//! defaulting and before validation. Those of an update depend on what it makes of
//! the object, and run where that is made ([`Guard`],
//! `registry::admission::admit_update`). A step that only adjusts the object is pure
//! and lives in crate `registry`; a step that asks other objects lives here.

use meta::{Cause, Reason, Status, value};
use registry::admission::Priority;
use registry::kind::Endpoint;
use registry::limits;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::authn::MASTERS;
use crate::storage::{ListRequest, ReadVersion, Selector};

/// The steps, in their order (upstream: `plugins.go`, AllOrderedPlugins).
const STEPS: &[Step] = &[
    Step::NamespaceLifecycle,
    Step::LimitRanger,
    Step::Priority,
    Step::KindDefaults,
    Step::RuntimeClass,
    Step::CertificateSubjectRestriction,
    Step::DefaultIngressClass,
];

/// One step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing is created in a namespace that is missing or going away.
    NamespaceLifecycle,
    /// Pods get what limit ranges have for them; they and claims keep to them.
    LimitRanger,
    /// Pods get the priority of their class; one class at most is for those
    /// that name none.
    Priority,
    /// What upstream's ServiceAccount and DefaultTolerationSeconds plugins add
    /// (`registry::admission`).
    KindDefaults,
    /// Pods get the overhead and the place of their runtime class.
    RuntimeClass,
    /// Nobody becomes one of `system:masters` by asking for a certificate.
    CertificateSubjectRestriction,
    /// An ingress that names no class gets the one for such.
    DefaultIngressClass,
}

/// Runs every step on an object that is created.
pub(crate) async fn admit(api: &Api, target: &Target, object: &mut Value) -> Result<(), Status> {
    for step in STEPS {
        match step {
            Step::NamespaceLifecycle => namespace_lifecycle(api, target, object).await?,
            Step::LimitRanger if is_about(target, "", "pods") || is_about(target, "", CLAIMS) => {
                let ranges = limit_ranges(api, target).await?;
                limits::admit(target.kind(), object, &ranges)?;
            }
            Step::KindDefaults => registry::admission::admit_create(target.kind(), object)?,
            Step::Priority if is_about(target, "", "pods") => {
                let class = priority_class(api, object).await?;
                registry::admission::prioritise(target.kind(), object, class)?;
            }
            Step::Priority if is_about(target, SCHEDULING, PRIORITY_CLASSES) => {
                let guard = Guard::of(api, target).await?;
                guard.check(target, Endpoint::Main, object)?;
            }
            Step::RuntimeClass if is_about(target, "", "pods") => {
                let name = value::str_at(object, "spec.runtimeClassName").to_owned();
                let class = find(api, "node.k8s.io", "runtimeclasses", &name).await?;
                registry::admission::run_as_classed(target.kind(), object, class.as_ref())?;
            }
            Step::LimitRanger | Step::Priority | Step::RuntimeClass => {}
            Step::CertificateSubjectRestriction => certificate_subject(target, object)?,
            Step::DefaultIngressClass => default_ingress_class(api, target, object).await?,
        }
    }
    Ok(())
}

/// Namespaces without which nothing works; they may not be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses the deletion of what must stay.
pub(crate) fn may_delete(target: &Target, name: &str) -> Result<(), Status> {
    let kind = target.kind();
    if kind.group.is_empty() && kind.plural == "namespaces" && UNDELETABLE.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(&kind.group_resource(), name, why));
    }
    let of_the_system = || {
        let mut classes = registry::kinds::priorityclass::system_classes();
        classes.any(|class| value::name(&class) == name)
    };
    if is_about(target, SCHEDULING, PRIORITY_CLASSES) && of_the_system() {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(&kind.group_resource(), name, why));
    }
    Ok(())
}

fn is_about(target: &Target, group: &str, plural: &str) -> bool {
    let kind = target.kind();
    (kind.group, kind.plural) == (group, plural)
}

/// Returns all objects of a kind of cluster scope, as the cache has them.
async fn all_of(api: &Api, group: &str, plural: &str) -> Result<Vec<Value>, Status> {
    all_in(api, group, plural, Selector::default()).await
}

/// Returns the objects of a kind that are selected, as the cache has them.
async fn all_in(
    api: &Api,
    group: &str,
    plural: &str,
    selector: Selector,
) -> Result<Vec<Value>, Status> {
    let Some(resource) = api.resources.builtin(group, "v1", plural) else {
        return Ok(Vec::new());
    };
    let request = ListRequest {
        selector,
        version: ReadVersion::Any,
        ..ListRequest::default()
    };
    let found = resource.store.list(request).await?;
    let values = found.items.iter().map(|o| o.to_value());
    values.collect::<Result<_, _>>().map_err(Status::internal)
}

/// Returns an object of cluster scope; none if there is none, or no name.
async fn find(api: &Api, group: &str, plural: &str, name: &str) -> Result<Option<Value>, Status> {
    let resource = api.resources.builtin(group, "v1", plural);
    let Some(resource) = resource.filter(|_| !name.is_empty()) else {
        return Ok(None);
    };
    let missing =
        |found: &Result<_, Status>| matches!(found, Err(s) if s.reason == Reason::NotFound);
    let mut found = resource.store.get(None, name, ReadVersion::Any).await;
    if missing(&found) {
        // The cache may not have seen yet that it was created.
        found = resource.store.get(None, name, ReadVersion::Unset).await;
    }
    if missing(&found) {
        return Ok(None);
    }
    found?.to_value().map(Some).map_err(Status::internal)
}

const CLAIMS: &str = "persistentvolumeclaims";

/// Returns the limit ranges of a target's namespace.
async fn limit_ranges(api: &Api, target: &Target) -> Result<Vec<Value>, Status> {
    all_in(api, "", "limitranges", Selector::all(target.ns())).await
}

const SCHEDULING: &str = "scheduling.k8s.io";
const PRIORITY_CLASSES: &str = "priorityclasses";

/// Finds the class a pod names, or the one for pods that name none.
async fn priority_class(api: &Api, pod: &Value) -> Result<Option<Priority>, Status> {
    let name = value::str_at(pod, "spec.priorityClassName");
    if name.is_empty() {
        return Ok(global_default(api).await?.as_ref().map(Priority::of));
    }
    let class = find(api, SCHEDULING, PRIORITY_CLASSES, name).await?;
    Ok(class.as_ref().map(Priority::of))
}

/// Returns the class for pods that name none. Should there be several, made at
/// the same moment, the lowest.
async fn global_default(api: &Api) -> Result<Option<Value>, Status> {
    let mut classes = all_of(api, SCHEDULING, PRIORITY_CLASSES).await?;
    classes.retain(|c| registry::checks::bool_at(c, "globalDefault"));
    Ok(classes
        .into_iter()
        .min_by_key(|c| value::int_at(c, "value").unwrap_or(0)))
}

/// What must be known of other objects before one is changed: a change is made
/// where nothing can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// The class for pods that name none.
    default_class: Option<String>,
    /// The limit ranges of a claim's namespace.
    ranges: Vec<Value>,
}

impl Guard {
    /// Finds out what a write to this target must not contradict.
    pub(crate) async fn of(api: &Api, target: &Target) -> Result<Self, Status> {
        if is_about(target, "", CLAIMS) {
            let ranges = limit_ranges(api, target).await?;
            return Ok(Self {
                ranges,
                ..Self::default()
            });
        }
        if !is_about(target, SCHEDULING, PRIORITY_CLASSES) {
            return Ok(Self::default());
        }
        let default = global_default(api).await?;
        Ok(Self {
            default_class: default.map(|c| value::name(&c).to_owned()),
            ..Self::default()
        })
    }

    /// Refuses a state that cannot be beside the others.
    pub(crate) fn check(
        &self,
        target: &Target,
        endpoint: Endpoint,
        object: &Value,
    ) -> Result<(), Status> {
        if endpoint == Endpoint::Main {
            limits::check(target.kind(), object, &self.ranges)?;
        }
        let (name, wants) = (
            value::name(object),
            registry::checks::bool_at(object, "globalDefault"),
        );
        match &self.default_class {
            Some(is) if wants && is != name => {
                let why = format!(
                    "PriorityClass {is} is already marked as default. Only one default can exist"
                );
                let resource = target.kind().group_resource();
                Err(Status::forbidden(&resource, name, &why))
            }
            _ => Ok(()),
        }
    }
}

fn certificate_subject(target: &Target, object: &Value) -> Result<(), Status> {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
    if !is_about(target, "certificates.k8s.io", "certificatesigningrequests")
        || value::str_at(object, "spec.signerName") != SIGNER
    {
        return Ok(());
    }
    let request = value::str_at(object, "spec.request");
    if !crate::pki::requested_groups(request)
        .iter()
        .any(|group| group == MASTERS)
    {
        return Ok(());
    }
    let why = format!("use of {SIGNER} signer with {MASTERS} group is not allowed");
    Err(Status::forbidden(
        &target.kind().group_resource(),
        value::name(object),
        &why,
    ))
}

async fn default_ingress_class(
    api: &Api,
    target: &Target,
    object: &mut Value,
) -> Result<(), Status> {
    const GROUP: &str = "networking.k8s.io";
    const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
    const OLD: &str = "kubernetes.io/ingress.class";
    let annotation = |o: &Value, name: &str| {
        let map = value::at(o, "metadata.annotations");
        map.and_then(|a| a.get(name))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if !is_about(target, GROUP, "ingresses")
        || value::at(object, "spec.ingressClassName").is_some()
        || annotation(object, OLD).is_some()
    {
        return Ok(());
    }
    let mut classes = all_of(api, GROUP, "ingressclasses").await?;
    classes.retain(|c| annotation(c, DEFAULT).as_deref() == Some("true"));
    // The newest of several; of those as new, the first by name.
    classes.sort_by(|a, b| {
        let made = |c: &Value| value::str_at(c, "metadata.creationTimestamp").to_owned();
        made(b)
            .cmp(&made(a))
            .then_with(|| value::name(a).cmp(value::name(b)))
    });
    if let Some(class) = classes.first() {
        let name = Value::from(value::name(class));
        value::object_mut(object, "spec").insert("ingressClassName".to_owned(), name);
    }
    Ok(())
}

async fn namespace_lifecycle(api: &Api, target: &Target, object: &Value) -> Result<(), Status> {
    let Some(namespace) = target.ns() else {
        return Ok(());
    };
    // From the store itself: the cache may not have seen yet that the namespace
    // was created, or that its deletion began.
    let found = api
        .core("namespaces")?
        .store
        .get(None, namespace, ReadVersion::Unset)
        .await?;
    if found.meta.deletion_timestamp.is_none() {
        return Ok(());
    }
    let name = match value::name(object) {
        "" => value::str_at(object, "metadata.generateName"),
        name => name,
    };
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut status = Status::forbidden(&target.kind().group_resource(), name, &why);
    debug_assert_eq!(status.reason, Reason::Forbidden);
    status.details_mut().causes.push(Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(status)
}
