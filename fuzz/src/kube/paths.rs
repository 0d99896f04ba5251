//! What a request asks for: method, path, query and the headers of negotiation.
//!
//! Promised (`apiserver`): an error or a meaning; a meaning written as a path again is
//! the same meaning; a parameter is read as it was written, however it is escaped.

use apiserver::fuzzing::{self, Request};
use http::{HeaderValue, Method};
use meta::{FieldSelector, LabelSelector};

use super::super::draw::Draw;
use super::grow;

const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::TRACE,
];

/// Segments of paths.
const SEGMENTS: [&str; 24] = [
    "api",
    "apis",
    "v1",
    "apps",
    "namespaces",
    "default",
    "pods",
    "a",
    "status",
    "finalize",
    "watch",
    "scale",
    "log",
    "proxy",
    "nodes",
    "example.com",
    "..",
    ".",
    "%2e%2e",
    "%2F",
    "a%20b",
    "%zz",
    "é",
    "",
];

/// Parameters that something reads.
const PARAMETERS: [&str; 22] = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
    "timeoutSeconds",
    "timeout",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "pretty",
    "includeObject",
    "propagationPolicy",
    "gracePeriodSeconds",
    "follow",
    "a b",
    "",
];

/// Values of parameters.
const VALUES: [&str; 24] = [
    "",
    "true",
    "0",
    "-1",
    "1",
    "9223372036854775808",
    "abc",
    "All",
    "Strict",
    "Exact",
    "NotOlderThan",
    "10s",
    "1h1h",
    "metadata.name=a",
    "a in (b,c),!d",
    "a=(",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NCwic3RhcnQiOiJhIn0",
    "garbage",
    "a&b=c",
    "100%",
    "+ +",
    "é\u{0}",
    "\u{1f600}",
    "Background",
];

/// Clauses of `Accept` and `Content-Type`.
const CLAUSES: [&str; 16] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/*",
    "*/*",
    ";as=Table",
    ";g=meta.k8s.io",
    ";v=v1",
    ";as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
    ";stream=watch",
    ";q=0.5",
    ";q=nan",
    ",",
    " ",
    ";",
    "=\"\\\"",
];

/// Reads what a request says before its body.
pub fn paths(input: &[u8]) {
    let mut draw = Draw::new(input);
    let method = &METHODS[draw.below(METHODS.len())];
    let path = path(&mut draw);
    let (pairs, text) = query(&mut draw);
    if let Ok(Some(request)) = fuzzing::request(method, &path, &text) {
        same_again(method, &path, &request);
    }
    told(&pairs, &text);
    let header = |draw: &mut Draw<'_>| {
        let text: String = (0..draw.below(10))
            .map(|_| CLAUSES[draw.below(CLAUSES.len())])
            .collect();
        HeaderValue::from_bytes(text.as_bytes()).expect("text is a header's")
    };
    let (accept, content_type) = (header(&mut draw), header(&mut draw));
    for refusal in fuzzing::negotiate(&accept, &content_type)
        .into_iter()
        .flatten()
    {
        assert!(matches!(refusal.code, 406 | 415), "{}", refusal.message);
    }
}

fn path(draw: &mut Draw<'_>) -> String {
    match draw.byte() % 4 {
        0 => String::from_utf8_lossy(draw.bytes(60)).into_owned(),
        how => {
            let mut path = match how {
                1 => "/api/v1".to_owned(),
                2 => "/apis/apps/v1".to_owned(),
                _ => String::new(),
            };
            for _ in 0..draw.below(10) {
                path.push('/');
                path.push_str(SEGMENTS[draw.below(SEGMENTS.len())]);
            }
            path
        }
    }
}

/// Writes text so that it may stand in a URL; more than need be, as it is drawn.
fn escaped(draw: &mut Draw<'_>, text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match plain && !draw.byte().is_multiple_of(8) {
            true => out.push(char::from(byte)),
            false => out.push_str(&match draw.byte() % 2 {
                0 => format!("%{byte:02x}"),
                _ => format!("%{byte:02X}"),
            }),
        }
    }
    out
}

type Pairs = Vec<(String, String)>;

/// Draws parameters, and how they stand in the URL; now and then anything, of which
/// nothing is known.
fn query(draw: &mut Draw<'_>) -> (Pairs, String) {
    if draw.byte().is_multiple_of(4) {
        let text = String::from_utf8_lossy(draw.bytes(100)).into_owned();
        return (Vec::new(), text);
    }
    let pairs: Pairs = (0..draw.below(6))
        .map(|_| {
            let name = PARAMETERS[draw.below(PARAMETERS.len())].to_owned();
            let value = match draw.byte() % 4 {
                0 => grow::text(draw),
                _ => VALUES[draw.below(VALUES.len())].to_owned(),
            };
            (name, value)
        })
        .collect();
    let written: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", escaped(draw, name), escaped(draw, value)))
        .collect();
    (pairs, written.join("&"))
}

/// Checks that parameters are read as they were written, and what reads them.
fn told(pairs: &Pairs, text: &str) {
    for (name, _) in pairs {
        let first = pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value);
        let read = fuzzing::parameter(text, name).expect("it was written well");
        assert_eq!(read.as_ref(), first, "{name} of {text}");
    }
    let Ok(told) = fuzzing::query(text) else {
        assert!(pairs.is_empty(), "it was written well: {text}");
        return;
    };
    for refusal in &told.refusals {
        assert!(matches!(refusal.code, 400 | 422), "{}", refusal.message);
    }
    if let Ok(labels) = told.labels {
        assert_eq!(LabelSelector::parse(&labels.to_string()), Ok(labels));
    }
    if let Ok(fields) = told.fields {
        assert_eq!(FieldSelector::parse(&fields.to_string()), Ok(fields));
    }
}

/// Writes what a request asks for as a path again.
fn same_again(method: &Method, path: &str, request: &Request) {
    let mut again = match request.group.as_str() {
        "" => vec!["api", &request.version],
        group => vec!["apis", group, &request.version],
    };
    if request.verb == "watch" {
        again.push("watch");
    }
    let (resource, name) = (request.resource.as_str(), request.name.as_deref());
    let subresource = request.subresource.as_str();
    if let Some(namespace) = request.namespace.as_deref() {
        let itself = resource == "namespaces"
            && name == Some(namespace)
            && matches!(subresource, "" | "status" | "finalize");
        if !itself {
            again.extend(["namespaces", namespace]);
        }
    }
    again.push(resource);
    again.extend(name);
    again.extend(Some(subresource).filter(|s| !s.is_empty()));
    again.extend(request.rest.iter().map(String::as_str));
    let mut plain = Draw::new(&[1; 4096]);
    let written: String = again
        .iter()
        .map(|segment| format!("/{}", escaped(&mut plain, segment)))
        .collect();
    let read = fuzzing::request(method, &written, "").expect("no query is a good one");
    assert_eq!(
        without_verb(read),
        without_verb(Some(request.clone())),
        "{path} {written}"
    );
}

/// The verb depends on the query, which is not written again.
fn without_verb(request: Option<Request>) -> Option<Request> {
    request.map(|request| Request {
        verb: "",
        ..request
    })
}
