//! In which form the client wants its answer, and in which it sent its body.
//!
//! `Accept` may ask for a media type (JSON, YAML) and, with `as=`, for another
//! shape of the same object: a Table for people, or metadata alone. Bodies may
//! be protobuf, answers not yet: a client that also accepts JSON gets JSON, one
//! that does not gets 406.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use meta::{Reason, Status};

use crate::query::Query;

/// How the bytes of an answer, or of a body, are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

impl Media {
    /// Returns the `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// Which shape an object takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Itself.
    Object,
    /// A `meta.k8s.io` Table of this version.
    Table(&'static str),
    /// A `meta.k8s.io/v1` PartialObjectMetadata, or a list of them.
    Metadata,
    /// An `apidiscovery.k8s.io` APIGroupDiscoveryList of this version.
    Discovery(&'static str),
}

/// A decision about the answer's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// How the bytes are written.
    pub(crate) media: Media,
    /// Which shape the object takes.
    pub(crate) shape: Shape,
    /// Whether JSON is indented.
    pub(crate) pretty: bool,
}

impl Default for Accepted {
    fn default() -> Self {
        Self {
            media: Media::Json,
            shape: Shape::Object,
            pretty: false,
        }
    }
}

/// Which shapes an endpoint offers besides the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// None.
    Plain,
    /// Table and metadata, of one object or a list.
    Resource,
    /// The aggregated discovery document.
    Discovery,
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    /// Preference in thousandths.
    q: u32,
}

impl Clause<'_> {
    fn param(&self, name: &str) -> &str {
        self.params
            .iter()
            .find(|(n, _)| *n == name)
            .map_or("", |(_, v)| v)
    }
}

/// Decides the form of an answer; 406 when nothing offered is acceptable.
pub(crate) fn accept(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Accepted, Status> {
    let pretty = wants_pretty(headers, query);
    let header: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    let header = header.join(",");
    if header.trim().is_empty() {
        return Ok(Accepted {
            pretty,
            ..Accepted::default()
        });
    }
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(clause).collect();
    // Stable, so that among equals the client's order holds.
    clauses.sort_by_key(|c| std::cmp::Reverse(c.q));
    let found = clauses
        .iter()
        .filter(|c| c.q > 0)
        .find_map(|c| satisfy(c, offer));
    match found {
        Some((media, shape)) => Ok(Accepted {
            media,
            shape,
            pretty,
        }),
        None => Err(Status::failure(
            Reason::NotAcceptable,
            "only the following media types are accepted: application/json, application/yaml",
        )),
    }
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|m| m.contains('/'))?;
    let params: Vec<(&str, &str)> = parts
        .filter_map(|p| p.split_once('='))
        .map(|(n, v)| (n.trim(), v.trim().trim_matches('"')))
        .collect();
    let q = params
        .iter()
        .find(|(n, _)| *n == "q")
        .and_then(|(_, v)| v.parse::<f32>().ok())
        .map_or(1000, |q| (q.clamp(0.0, 1.0) * 1000.0) as u32);
    Some(Clause { media, params, q })
}

fn satisfy(c: &Clause<'_>, offer: Offer) -> Option<(Media, Shape)> {
    let media = match c.media {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        _ => return None,
    };
    let shape = match (c.param("as"), c.param("g"), c.param("v")) {
        ("", _, _) => Shape::Object,
        ("Table", "meta.k8s.io", "v1") if offer == Offer::Resource => Shape::Table("v1"),
        ("Table", "meta.k8s.io", "v1beta1") if offer == Offer::Resource => Shape::Table("v1beta1"),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1")
            if offer == Offer::Resource =>
        {
            Shape::Metadata
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if offer == Offer::Discovery => {
            // Peer-aggregated variants do not exist on a lone server, so every
            // profile is the same document.
            Shape::Discovery("v2")
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1")
            if offer == Offer::Discovery =>
        {
            Shape::Discovery("v2beta1")
        }
        _ => return None,
    };
    Some((media, shape))
}

/// Indents for people: `?pretty`, or a browser or curl that did not say no.
fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if query.get("pretty").is_some() {
        return query.flag("pretty");
    }
    let agent = headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    ["curl/", "Wget/", "Mozilla/5.0"]
        .iter()
        .any(|p| agent.starts_with(p))
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMedia {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// Decides how a body is to be read; 415 for what is not understood. Without a
/// `Content-Type` it is JSON.
pub(crate) fn body_media(headers: &HeaderMap) -> Result<BodyMedia, Status> {
    match media_type(headers) {
        "" | "application/json" => Ok(BodyMedia::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(BodyMedia::Yaml),
        crate::protobuf::MEDIA_TYPE => Ok(BodyMedia::Protobuf),
        _ => Err(unsupported(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Returns the `Content-Type` without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Builds the 415 answer.
pub(crate) fn unsupported(message: &str) -> Status {
    Status::failure(Reason::UnsupportedMediaType, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(header: &str, offer: Offer) -> Result<(Media, Shape), u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, header.parse().unwrap());
        accept(&headers, &Query::default(), offer)
            .map(|a| (a.media, a.shape))
            .map_err(|s| s.code)
    }

    #[test]
    fn accept_headers_of_known_clients() {
        use Media::{Json, Yaml};
        use Offer::{Discovery, Plain, Resource};
        let kubectl_get = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        for (header, offer, want) in [
            (kubectl_get, Resource, Ok((Json, Shape::Table("v1")))),
            (kubectl_get, Plain, Ok((Json, Shape::Object))),
            (discovery, Discovery, Ok((Json, Shape::Discovery("v2")))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Resource,
                Ok((Json, Shape::Object)),
            ),
            ("application/vnd.kubernetes.protobuf", Resource, Err(406)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Resource,
                Ok((Json, Shape::Metadata)),
            ),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v9",
                Resource,
                Err(406),
            ),
            ("application/yaml", Plain, Ok((Yaml, Shape::Object))),
            (
                "application/yaml;q=0.5, application/json",
                Plain,
                Ok((Json, Shape::Object)),
            ),
            ("text/html, */*;q=0.1", Plain, Ok((Json, Shape::Object))),
            ("application/json;q=0", Plain, Err(406)),
            (
                "application/json;stream=watch",
                Resource,
                Ok((Json, Shape::Object)),
            ),
            ("nonsense", Plain, Err(406)),
        ] {
            assert_eq!(decide(header, offer), want, "{header}");
        }
    }

    #[test]
    fn bodies() {
        let media = |t: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, t.parse().unwrap());
            body_media(&headers).map_err(|s| s.code)
        };
        assert_eq!(
            media("application/json; charset=utf-8"),
            Ok(BodyMedia::Json)
        );
        assert_eq!(media("application/yaml"), Ok(BodyMedia::Yaml));
        assert_eq!(media("text/plain"), Err(415));
        assert_eq!(body_media(&HeaderMap::new()).unwrap(), BodyMedia::Json);
    }
}
