//! Who may do what: a short static table until RBAC is served.
//!
//! `system:masters` may do everything. Kubelets, the scheduler and the
//! controller manager may do what their bootstrap roles upstream allow
//! (plugin/pkg/auth/authorizer/rbac/bootstrappolicy), as far as it is served
//! here. Everybody who proved an identity may discover the API and ask about
//! himself. All others get the text that kubectl users know.

use meta::Status;
use serde_json::{Value, json};

use crate::authn::{AUTHENTICATED, MASTERS, UserInfo};
use crate::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::service_tokens::GROUP as SERVICE_ACCOUNTS;

/// Paths open to everybody, identity or not (upstream: ClusterRole
/// `system:public-info-viewer`).
const PUBLIC_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// Paths open to everybody with an identity (`system:discovery`).
const DISCOVERY_PATHS: [&str; 4] = ["/api", "/apis", "/openapi", "/version"];

/// Paths open to service accounts (`system:service-account-issuer-discovery`).
const ISSUER_PATHS: [&str; 2] = ["/.well-known/openid-configuration", "/openid/v1/jwks"];

/// Whom a rule is for.
#[derive(Clone, Copy, Debug)]
enum Subject {
    /// A user by name.
    User(&'static str),
    /// The members of a group.
    Group(&'static str),
}

/// Which objects a rule allows.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// All of them.
    All,
    /// Only the object named like the node that asks.
    OwnNode,
}

/// One permission.
struct Rule {
    subject: Subject,
    verbs: &'static [&'static str],
    /// `group/resource[/subresource]`, the group empty for core; `*` is all.
    resources: &'static [&'static str],
    scope: Scope,
}

impl Rule {
    fn is_for(&self, user: &UserInfo) -> bool {
        match self.subject {
            Subject::User(name) => user.name == name,
            Subject::Group(group) => user.in_group(group),
        }
    }
}

/// Begins the names of kubelets' users.
const NODE_USER: &str = "system:node:";
const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["*"];
const EVENTS: &[&str] = &["/events", "events.k8s.io/events"];
const NODES: Subject = Subject::Group("system:nodes");
const SCHEDULER: Subject = Subject::User("system:kube-scheduler");
const MANAGER: Subject = Subject::User("system:kube-controller-manager");

const fn rule(
    subject: Subject,
    verbs: &'static [&'static str],
    resources: &'static [&'static str],
    scope: Scope,
) -> Rule {
    Rule {
        subject,
        verbs,
        resources,
        scope,
    }
}

/// Every permission there is, besides `system:masters`.
const RULES: &[Rule] = &[
    rule(
        Subject::Group(AUTHENTICATED),
        &["create"],
        &[
            "authorization.k8s.io/selfsubjectaccessreviews",
            "authorization.k8s.io/selfsubjectrulesreviews",
            "authentication.k8s.io/selfsubjectreviews",
        ],
        Scope::All,
    ),
    rule(MANAGER, ALL, ALL, Scope::All),
    rule(SCHEDULER, READ, ALL, Scope::All),
    rule(
        SCHEDULER,
        &["create"],
        &["/bindings", "/pods/binding"],
        Scope::All,
    ),
    rule(SCHEDULER, &["delete"], &["/pods"], Scope::All),
    rule(
        SCHEDULER,
        &["update", "patch"],
        &["/pods/status"],
        Scope::All,
    ),
    rule(
        SCHEDULER,
        &["create", "update", "patch"],
        EVENTS,
        Scope::All,
    ),
    rule(SCHEDULER, ALL, &["coordination.k8s.io/leases"], Scope::All),
    rule(
        NODES,
        READ,
        &[
            "/pods",
            "/nodes",
            "/services",
            "/namespaces",
            "/configmaps",
            "/secrets",
        ],
        Scope::All,
    ),
    rule(NODES, READ, &["/serviceaccounts"], Scope::All),
    rule(NODES, &["create"], &["/nodes"], Scope::All),
    rule(
        NODES,
        &["update", "patch", "delete"],
        &["/nodes", "/nodes/status"],
        Scope::OwnNode,
    ),
    rule(NODES, &["create", "delete"], &["/pods"], Scope::All),
    rule(NODES, &["update", "patch"], &["/pods/status"], Scope::All),
    rule(NODES, &["create"], &["/pods/eviction"], Scope::All),
    rule(NODES, &["create", "update", "patch"], EVENTS, Scope::All),
    rule(
        NODES,
        &["create"],
        &["coordination.k8s.io/leases"],
        Scope::All,
    ),
    rule(
        NODES,
        &["get", "update", "patch", "delete"],
        &["coordination.k8s.io/leases"],
        Scope::OwnNode,
    ),
];

/// Tells whether a path is open to those without an identity.
pub(crate) fn is_public(info: &RequestInfo) -> bool {
    info.resource.is_none()
        && matches!(info.verb, Verb::Other("get" | "head"))
        && PUBLIC_PATHS.iter().any(|p| under(&info.path, p))
}

/// Allows or refuses a request.
pub(crate) fn authorize(user: &UserInfo, info: &RequestInfo) -> Result<(), Status> {
    if user.in_group(MASTERS) || is_public(info) {
        return Ok(());
    }
    match &info.resource {
        Some(r) if may(user, info.verb.as_str(), r) => Ok(()),
        Some(r) => Err(forbidden(user, info.verb.as_str(), r)),
        None => authorize_path(user, info),
    }
}

fn authorize_path(user: &UserInfo, info: &RequestInfo) -> Result<(), Status> {
    let discovers = user.in_group(AUTHENTICATED)
        && matches!(info.verb, Verb::Other("get" | "head"))
        && (info.path == "/" || DISCOVERY_PATHS.iter().any(|p| under(&info.path, p)));
    let reads = matches!(info.verb, Verb::Other("get" | "head"));
    let checks_tokens = user.in_group(SERVICE_ACCOUNTS) && reads;
    if discovers || (checks_tokens && ISSUER_PATHS.contains(&info.path.as_str())) {
        return Ok(());
    }
    let (name, verb, path) = (&user.name, info.verb, &info.path);
    let text = format!("forbidden: User {name:?} cannot {verb} path {path:?}");
    let mut status = Status::failure(meta::Reason::Forbidden, text);
    status.details_mut();
    Err(status)
}

/// Tells whether a user may use a verb on a resource.
pub(crate) fn may(user: &UserInfo, verb: &str, r: &ResourceRequest) -> bool {
    if user.in_group(MASTERS) {
        return true;
    }
    let full = format!("{}/{}", r.group, r.full_resource());
    RULES.iter().any(|rule| {
        rule.is_for(user)
            && rule.verbs.iter().any(|v| *v == "*" || *v == verb)
            && rule.resources.iter().any(|x| *x == "*" || *x == full)
            && match rule.scope {
                Scope::All => true,
                Scope::OwnNode => {
                    let node = user.name.strip_prefix(NODE_USER);
                    node.is_some() && node == r.name.as_deref()
                }
            }
    })
}

/// Lists what a user may do, as `ResourceRule`s and `NonResourceRule`s.
pub(crate) fn rules_of(user: &UserInfo) -> (Vec<Value>, Vec<Value>) {
    let mut resources = Vec::new();
    let mut paths = vec![json!({"verbs": ["get", "head"], "nonResourceURLs": PUBLIC_PATHS})];
    if user.in_group(MASTERS) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        return (resources, paths);
    }
    if user.in_group(AUTHENTICATED) {
        let all = DISCOVERY_PATHS
            .iter()
            .flat_map(|p| [(*p).to_owned(), format!("{p}/*")]);
        let urls: Vec<String> = all.collect();
        paths.push(json!({"verbs": ["get", "head"], "nonResourceURLs": urls}));
    }
    if user.in_group(SERVICE_ACCOUNTS) {
        paths.push(json!({"verbs": ["get"], "nonResourceURLs": ISSUER_PATHS}));
    }
    for rule in RULES.iter().filter(|rule| rule.is_for(user)) {
        for full in rule.resources {
            let (group, resource) = full.split_once('/').unwrap_or(("*", full));
            let mut one = json!({
                "verbs": rule.verbs, "apiGroups": [group], "resources": [resource],
            });
            if let Scope::OwnNode = rule.scope {
                one["resourceNames"] = json!(
                    user.name
                        .strip_prefix(NODE_USER)
                        .into_iter()
                        .collect::<Vec<_>>()
                );
            }
            resources.push(one);
        }
    }
    (resources, paths)
}

/// Builds the refusal, word for word as upstream's `ForbiddenStatus`.
pub(crate) fn forbidden(user: &UserInfo, verb: &str, r: &ResourceRequest) -> Status {
    let (name, resource, group) = (&user.name, r.full_resource(), &r.group);
    let place = match &r.namespace {
        Some(ns) => format!("in the namespace {ns:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let why =
        format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
    Status::forbidden(
        &r.group_resource(),
        r.name.as_deref().unwrap_or_default(),
        &why,
    )
}

fn under(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::query::Query;

    fn ask(user: &UserInfo, method: &str, path: &str) -> Result<(), String> {
        let method: Method = method.parse().unwrap();
        let info = RequestInfo::parse(&method, path, &Query::default());
        authorize(user, &info).map_err(|s| s.message)
    }

    #[test]
    fn strangers_are_told_what_they_cannot_do() {
        let u = UserInfo::new("u", ["dev"]);
        assert_eq!(
            ask(&u, "GET", "/api/v1/namespaces/ns/pods").unwrap_err(),
            "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" in the namespace \"ns\""
        );
        assert_eq!(
            ask(&u, "GET", "/apis/apps/v1/namespaces/ns/deployments/d/scale").unwrap_err(),
            "deployments.apps \"d\" is forbidden: User \"u\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"ns\""
        );
        assert_eq!(
            ask(&u, "DELETE", "/api/v1/nodes").unwrap_err(),
            "nodes is forbidden: User \"u\" cannot deletecollection resource \"nodes\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            ask(&u, "GET", "/metrics").unwrap_err(),
            "forbidden: User \"u\" cannot get path \"/metrics\""
        );
        for open in [
            "/version",
            "/apis",
            "/api/v1",
            "/openapi/v3/apis/apps/v1",
            "/livez/ping",
        ] {
            assert_eq!(ask(&u, "GET", open), Ok(()), "{open}");
        }
    }

    #[test]
    fn components_may_do_their_work() {
        let node = UserInfo::new("system:node:n1", ["system:nodes"]);
        for (method, path, allowed) in [
            ("GET", "/api/v1/pods", true),
            ("PATCH", "/api/v1/nodes/n1/status", true),
            ("PATCH", "/api/v1/nodes/n2/status", false),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
                true,
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2",
                false,
            ),
            ("PATCH", "/api/v1/namespaces/a/pods/p/status", true),
            ("PUT", "/api/v1/namespaces/a/pods/p", false),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", false),
        ] {
            assert_eq!(ask(&node, method, path).is_ok(), allowed, "{method} {path}");
        }
        let scheduler = UserInfo::new("system:kube-scheduler", [""; 0]);
        assert!(ask(&scheduler, "POST", "/api/v1/namespaces/a/pods/p/binding").is_ok());
        assert!(ask(&scheduler, "POST", "/api/v1/namespaces/a/pods").is_err());
        assert!(ask(&UserInfo::component("x"), "DELETE", "/api/v1/nodes").is_ok());
    }

    #[test]
    fn health_is_public() {
        let info = |p| RequestInfo::parse(&Method::GET, p, &Query::default());
        assert!(is_public(&info("/healthz")) && is_public(&info("/readyz/etcd")));
        assert!(!is_public(&info("/healthzz")) && !is_public(&info("/api/v1/pods")));
    }
}
