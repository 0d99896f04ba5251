//! In which form the client wants its answer, and in which it sent its body.
//!
//! `Accept` may ask for a media type (JSON, YAML, protobuf) and, with `as=`, for
//! another shape of the same object: a Table for people, or metadata alone. The
//! rules are those of apiserver's `negotiation` package: clauses by preference,
//! the first that something offered satisfies; a parameter that the endpoint
//! does not allow rules its clause out.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use meta::{Reason, Status};

use crate::protobuf;
use crate::query::Query;

/// How the bytes of an answer, or of a body, are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Media {
    /// All of them, the preferred one first.
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// Returns the media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// Returns the `Content-Type` of a watch; `None` when there is no way to
    /// tell one event from the next.
    pub(crate) fn stream_type(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
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
    /// A `meta.k8s.io` PartialObjectMetadata of this version.
    Metadata(&'static str),
    /// A list of those.
    MetadataList(&'static str),
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
    /// The same, of a type that has no protobuf form of its own.
    Custom,
    /// The aggregated discovery document, which is preferred.
    Discovery,
}

impl Offer {
    /// Decides which shape a clause's parameters ask for; `None` rules the
    /// clause out.
    fn shape(self, media: Media, convert: Option<[&str; 3]>) -> Option<Shape> {
        let Some([kind, group, version]) = convert else {
            let written = self != Self::Custom || media != Media::Protobuf;
            return (self != Self::Discovery && written).then_some(Shape::Object);
        };
        let version = ["v1", "v1beta1", "v2", "v2beta1"]
            .into_iter()
            .find(|v| *v == version)?;
        let of_meta = group == "meta.k8s.io" && version.starts_with("v1");
        match (self, kind) {
            (Self::Resource | Self::Custom, "Table") if of_meta && media != Media::Protobuf => {
                Some(Shape::Table(version))
            }
            (Self::Resource | Self::Custom, "PartialObjectMetadata") if of_meta => {
                Some(Shape::Metadata(version))
            }
            (Self::Resource | Self::Custom, "PartialObjectMetadataList") if of_meta => {
                Some(Shape::MetadataList(version))
            }
            // Peer-aggregated variants do not exist on a lone server, so every
            // profile is the same document.
            (Self::Discovery, "APIGroupDiscoveryList")
                if group == "apidiscovery.k8s.io" && version.starts_with("v2") =>
            {
                Some(Shape::Discovery(version))
            }
            _ => None,
        }
    }
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    params: Vec<(&'a str, &'a str)>,
    q: f32,
}

impl<'a> Clause<'a> {
    /// Reads a clause; what is no media type counts for nothing.
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            "*" => ("*", "*"),
            media => media.split_once('/')?,
        };
        if subtype.is_empty() || subtype.contains('/') {
            return None;
        }
        let mut clause = Self {
            kind: kind.trim(),
            subtype: subtype.trim(),
            params: Vec::new(),
            q: 1.0,
        };
        for (name, value) in parts.filter_map(|p| p.split_once('=')) {
            match (name.trim(), value.trim()) {
                ("q", q) => clause.q = q.parse().unwrap_or(0.0),
                (_, value) if value.contains('=') => {}
                pair => clause.params.push(pair),
            }
        }
        Some(clause)
    }

    fn names(&self, media: Media) -> bool {
        let (kind, subtype) = media.content_type().split_once('/').unwrap_or_default();
        match (self.kind, self.subtype) {
            ("*", "*") => true,
            (k, "*") => k == kind,
            (k, s) => k == kind && s == subtype,
        }
    }

    /// Returns the last value of a parameter.
    fn param(&self, name: &str) -> Option<&'a str> {
        let mut found = self.params.iter().rev().filter(|(n, _)| *n == name);
        found.next().map(|(_, v)| *v)
    }

    fn satisfy(&self, media: Media, offer: Offer) -> Option<Shape> {
        let convert = ["as", "g", "v"].map(|p| self.param(p));
        let stream = self.param("stream").unwrap_or_default();
        if !stream.is_empty() && (stream != "watch" || media.stream_type().is_none()) {
            return None;
        }
        let versions = matches!(offer, Offer::Resource | Offer::Custom);
        match self.param("sv").unwrap_or_default() {
            "" => {}
            "v1" if versions => {}
            _ => return None,
        }
        let asked = convert.iter().any(Option::is_some);
        offer.shape(
            media,
            asked.then_some(convert.map(Option::unwrap_or_default)),
        )
    }
}

/// Decides the form of an answer; 406 when nothing offered is acceptable.
pub(crate) fn accept(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Accepted, Status> {
    let found = match find(headers, offer) {
        None if offer == Offer::Discovery => find(headers, Offer::Plain),
        found => found,
    };
    let (media, shape, pretty) = found.ok_or_else(|| not_acceptable(&MEDIA_TYPES))?;
    Ok(Accepted {
        media,
        shape,
        pretty: pretty || wants_pretty(headers, query),
    })
}

/// Decides the form of a watch.
pub(crate) fn accept_stream(accepted: Accepted) -> Result<&'static str, Status> {
    accepted
        .media
        .stream_type()
        .ok_or_else(|| not_acceptable(&STREAM_TYPES))
}

fn find(headers: &HeaderMap, offer: Offer) -> Option<(Media, Shape, bool)> {
    // Go reads the first of several headers alone.
    let header = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    let header = header.unwrap_or_default();
    if header.is_empty() {
        let plain = offer != Offer::Discovery;
        return plain.then_some((Media::Json, Shape::Object, false));
    }
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::read).collect();
    // Stable, so that among equals the client's order holds.
    clauses.sort_by(|a, b| {
        let wild = |c: &Clause<'_>| (c.kind == "*", c.subtype == "*");
        b.q.total_cmp(&a.q).then(wild(a).cmp(&wild(b)))
    });
    clauses.iter().find_map(|clause| {
        let mut named = Media::ALL.into_iter().filter(|m| clause.names(*m));
        let (media, shape) = named.find_map(|m| Some((m, clause.satisfy(m, offer)?)))?;
        Some((media, shape, clause.param("pretty") == Some("1")))
    })
}

/// The media types of answers, as refusals list them.
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];
/// The media types of watches.
const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

fn not_acceptable(types: &[&str]) -> Status {
    Status::failure(
        Reason::NotAcceptable,
        format!(
            "only the following media types are accepted: {}",
            types.join(", ")
        ),
    )
}

/// Indents for people: `?pretty`, or a browser or curl that did not say no.
fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(asked) = query.non_empty("pretty") {
        return matches!(asked, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|p| agent.starts_with(p))
}

/// How a body is written: in the same forms as answers.
pub(crate) type BodyMedia = Media;

/// Decides how a body is to be read; 415 for what is not understood. Without a
/// `Content-Type` it is JSON.
pub(crate) fn body_media(headers: &HeaderMap) -> Result<BodyMedia, Status> {
    let media_type = media_type(headers).to_ascii_lowercase();
    if media_type.is_empty() {
        return Ok(Media::Json);
    }
    Media::ALL
        .into_iter()
        .find(|m| m.content_type() == media_type)
        .ok_or_else(|| unsupported(&format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            MEDIA_TYPES.join(", ")
        )))
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

    fn decide(header: &str, offer: Offer) -> Decided {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, header.parse().unwrap());
        accept(&headers, &Query::default(), offer)
            .map(|a| (a.media, a.shape))
            .map_err(|s| s.code)
    }

    const KUBECTL_GET: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    const RUNTIME: &str = "application/vnd.kubernetes.protobuf,application/json";
    const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

    use Media::{Json, Protobuf, Yaml};
    use Offer::{Custom, Discovery, Plain, Resource};

    type Decided = Result<(Media, Shape), u16>;
    /// Headers, what the endpoint offers, and what comes of it.
    const HEADERS: &[(&str, Offer, Decided)] = &[
        (KUBECTL_GET, Resource, Ok((Json, Shape::Table("v1")))),
        (KUBECTL_GET, Plain, Ok((Json, Shape::Object))),
        (DISCOVERY, Discovery, Ok((Json, Shape::Discovery("v2")))),
        (
            "application/json,application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=0.1",
            Discovery,
            Ok((Protobuf, Shape::Discovery("v2"))),
        ),
        (RUNTIME, Discovery, Ok((Protobuf, Shape::Object))),
        (RUNTIME, Resource, Ok((Protobuf, Shape::Object))),
        (RUNTIME, Custom, Ok((Json, Shape::Object))),
        (
            "application/vnd.kubernetes.protobuf",
            Resource,
            Ok((Protobuf, Shape::Object)),
        ),
        ("application/vnd.kubernetes.protobuf", Custom, Err(406)),
        (
            METADATA,
            Resource,
            Ok((Protobuf, Shape::MetadataList("v1"))),
        ),
        (METADATA, Custom, Ok((Protobuf, Shape::MetadataList("v1")))),
        (
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/yaml;as=Table;g=meta.k8s.io;v=v1beta1",
            Resource,
            Ok((Yaml, Shape::Table("v1beta1"))),
        ),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v9",
            Resource,
            Err(406),
        ),
        ("application/json;v=v1", Resource, Err(406)),
        (
            "application/json;sv=v1",
            Resource,
            Ok((Json, Shape::Object)),
        ),
        ("application/json;sv=v1", Plain, Err(406)),
        ("application/yaml", Plain, Ok((Yaml, Shape::Object))),
        ("application/yaml;stream=watch", Plain, Err(406)),
        (
            "application/yaml;q=0.5, application/json",
            Plain,
            Ok((Json, Shape::Object)),
        ),
        (
            "application/*, application/yaml",
            Plain,
            Ok((Yaml, Shape::Object)),
        ),
        ("text/html, */*;q=0.1", Plain, Ok((Json, Shape::Object))),
        ("*", Plain, Ok((Json, Shape::Object))),
        // Upstream ranks it last and takes it all the same.
        ("application/json;q=0", Plain, Ok((Json, Shape::Object))),
        (
            "application/json;stream=watch",
            Resource,
            Ok((Json, Shape::Object)),
        ),
        ("nonsense", Plain, Err(406)),
        ("text/html", Plain, Err(406)),
    ];

    #[test]
    fn accept_headers_of_known_clients() {
        for (header, offer, want) in HEADERS {
            assert_eq!(decide(header, *offer), *want, "{header} {offer:?}");
        }
    }

    #[test]
    fn refusals_list_what_there_is() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, "text/html".parse().unwrap());
        let status = accept(&headers, &Query::default(), Offer::Resource).unwrap_err();
        assert_eq!(
            status.message,
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        );
        let yaml = Accepted {
            media: Media::Yaml,
            ..Accepted::default()
        };
        assert_eq!(
            accept_stream(yaml).unwrap_err().message,
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
    }

    #[test]
    fn people_get_indented_json() {
        let pretty = |query: &str, agent: &str, accepts: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            headers.insert(ACCEPT, accepts.parse().unwrap());
            let query = Query::parse(query).unwrap();
            accept(&headers, &query, Offer::Plain).unwrap().pretty
        };
        for (query, agent, accepts, want) in [
            ("", "kubectl/v1.33", "*/*", false),
            ("", "curl/8.0", "*/*", true),
            ("pretty=", "curl/8.0", "*/*", true),
            ("pretty=false", "curl/8.0", "*/*", false),
            ("pretty=yes", "curl/8.0", "*/*", false),
            ("pretty=true", "x", "*/*", true),
            ("", "x", "application/json;pretty=1", true),
        ] {
            assert_eq!(
                pretty(query, agent, accepts),
                want,
                "{query} {agent} {accepts}"
            );
        }
    }

    #[test]
    fn bodies() {
        let media = |t: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, t.parse().unwrap());
            body_media(&headers).map_err(|s| s.code)
        };
        assert_eq!(media("application/json; charset=utf-8"), Ok(Media::Json));
        assert_eq!(media("application/yaml"), Ok(Media::Yaml));
        assert_eq!(
            media("application/vnd.kubernetes.protobuf"),
            Ok(Media::Protobuf)
        );
        assert_eq!(media("text/plain"), Err(415));
        assert_eq!(body_media(&HeaderMap::new()).unwrap(), Media::Json);
    }
}
