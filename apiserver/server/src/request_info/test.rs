//! A table of URLs and what they mean.

use http::Method;

use super::*;

/// Writes a request's meaning on one line: verb, group/version, namespace,
/// resource/subresource, name.
fn meaning(method: &str, url: &str) -> String {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let method: Method = method.parse().unwrap();
    let info = RequestInfo::parse(&method, path, &Query::parse(query).unwrap());
    let Some(r) = &info.resource else {
        return format!("{} {}", info.verb, info.path);
    };
    let mut line = format!("{} {}/{}", info.verb, r.group, r.version);
    if let Some(ns) = &r.namespace {
        line += &format!(" ns={ns}");
    }
    line += &format!(" {}", r.full_resource());
    if let Some(name) = &r.name {
        line += &format!(" {name}{}", if r.name_in_path { "" } else { "?" });
    }
    if !r.rest.is_empty() {
        line += &format!(" +{}", r.rest.join("/"));
    }
    line
}

/// Method, URL and meaning, a line each.
const URLS: &str = "\
# Paths that name no resource.
GET / => get /
GET /api => get /api
GET /apis => get /apis
GET /api/v1 => get /api/v1
GET /healthz => get /healthz
POST /openapi/v2 => post /openapi/v2
OPTIONS /version => options /version
GET /apis/apps => get /apis/apps
# Core, cluster scope.
GET /api/v1/nodes => list /v1 nodes
GET /api/v1/nodes/n1 => get /v1 nodes n1
HEAD /api/v1/nodes/n1 => get /v1 nodes n1
PUT /api/v1/nodes/n1/status => update /v1 nodes/status n1
PATCH /api/v1/nodes/n1/status => patch /v1 nodes/status n1
DELETE /api/v1/nodes => deletecollection /v1 nodes
DELETE /api/v1/nodes/n1 => delete /v1 nodes n1
GET /api/v1/nodes/n1/proxy/a/b => get /v1 nodes/proxy n1 +a/b
# Namespaces themselves.
GET /api/v1/namespaces => list /v1 namespaces
POST /api/v1/namespaces => create /v1 namespaces
GET /api/v1/namespaces/a => get /v1 ns=a namespaces a
DELETE /api/v1/namespaces/a => delete /v1 ns=a namespaces a
PUT /api/v1/namespaces/a/finalize => update /v1 ns=a namespaces/finalize a
GET /api/v1/namespaces/a/status => get /v1 ns=a namespaces/status a
# In a namespace.
GET /api/v1/pods => list /v1 pods
GET /api/v1/namespaces/a/pods => list /v1 ns=a pods
GET /api/v1/namespaces/a/pods/ => list /v1 ns=a pods
POST /api/v1/namespaces/a/pods => create /v1 ns=a pods
GET /api/v1/namespaces/a/pods/p => get /v1 ns=a pods p
PUT /api/v1/namespaces/a/pods/p => update /v1 ns=a pods p
PATCH /api/v1/namespaces/a/pods/p => patch /v1 ns=a pods p
DELETE /api/v1/namespaces/a/pods/p => delete /v1 ns=a pods p
DELETE /api/v1/namespaces/a/pods => deletecollection /v1 ns=a pods
GET /api/v1/namespaces/a/pods/p/log?follow=true => get /v1 ns=a pods/log p
POST /api/v1/namespaces/a/pods/p/binding => create /v1 ns=a pods/binding p
POST /api/v1/namespaces/a/pods/p/eviction => create /v1 ns=a pods/eviction p
POST /api/v1/namespaces/a/bindings => create /v1 ns=a bindings
# A namespace that is called like a subresource word.
GET /api/v1/namespaces/status/pods => list /v1 ns=status pods
# Named groups.
GET /apis/apps/v1 => get /apis/apps/v1
GET /apis/apps/v1/deployments => list apps/v1 deployments
GET /apis/apps/v1/namespaces/a/deployments/d/scale => get apps/v1 ns=a deployments/scale d
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews => create authorization.k8s.io/v1 selfsubjectaccessreviews
GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n => get coordination.k8s.io/v1 ns=kube-node-lease leases n
# Watches, now and then.
GET /api/v1/pods?watch=true => watch /v1 pods
GET /api/v1/pods?watch=1 => watch /v1 pods
GET /api/v1/pods?watch => watch /v1 pods
GET /api/v1/pods?watch=false => list /v1 pods
GET /api/v1/pods?watch=0 => list /v1 pods
GET /api/v1/namespaces/a/pods/p?watch=true => get /v1 ns=a pods p
GET /api/v1/watch/pods => watch /v1 pods
GET /api/v1/watch/namespaces/a/pods => watch /v1 ns=a pods
GET /api/v1/watch/namespaces/a/pods/p => watch /v1 ns=a pods p
GET /apis/apps/v1/watch/deployments => watch apps/v1 deployments
# A selector that pins the name.
GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp => list /v1 ns=a pods p?
GET /api/v1/pods?watch=1&fieldSelector=metadata.name=p => watch /v1 pods p?
DELETE /api/v1/pods?fieldSelector=metadata.name=p => deletecollection /v1 pods
# Escapes and nonsense.
GET /api/v1/namespaces/a%20b/pods => list /v1 ns=a b pods
GET /api/v1/nodes/a%2Fb => get /v1 nodes/b a
GET /api/v1/namespaces/a%2Fpods => list /v1 ns=a pods
GET /api/v1/nodes/a%zz => get /api/v1/nodes/a%zz
GET //api//v1//pods => list /v1 pods
BREW /api/v1/pods => unknown /v1 pods
";

#[test]
fn urls_and_their_meaning() {
    for line in URLS.lines().filter(|l| !l.starts_with('#')) {
        let (request, want) = line.split_once(" => ").unwrap();
        let (method, url) = request.split_once(' ').unwrap();
        assert_eq!(meaning(method, url), want, "{request}");
    }
}

#[test]
fn what_may_last() {
    let lasts = |url: &str| {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(query).unwrap();
        RequestInfo::parse(&Method::GET, path, &query).is_long_running(&query)
    };
    assert!(lasts("/api/v1/pods?watch=1"));
    assert!(lasts("/api/v1/namespaces/a/pods/p/log?follow=true"));
    assert!(!lasts("/api/v1/namespaces/a/pods/p/log"));
    assert!(!lasts("/api/v1/pods"));
    assert!(!lasts("/version"));
}
