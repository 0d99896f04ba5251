//! What the fuzz targets drive: bodies, patches, configurations, paths and queries
//! through the code that serves them, without a server; and [`Door`], the whole
//! server without a socket. Not part of what the crate offers.

mod door;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use meta::{FieldSelector, LabelSelector, Object, Status};
use registry::Kind;
use registry::fieldmerge::Writer;
use serde_json::Value;

pub use self::door::{Answer, Door, Hangs};
use crate::input;
use crate::negotiation::{self, Accepted, Offer};
use crate::protobuf::{EncodeError, Type};
use crate::query::{FieldValidation, Query, WriteOptions};
use crate::request_info::RequestInfo;
use crate::respond;
use crate::storage::{Draft, ReadVersion, VersionMatch};
use crate::verbs::{self, Apply, Asked};

/// How the bytes of a body or an answer are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Media {
    fn own(self) -> negotiation::Media {
        match self {
            Self::Json => negotiation::Media::Json,
            Self::Yaml => negotiation::Media::Yaml,
            Self::Protobuf => negotiation::Media::Protobuf,
        }
    }

    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        self.own().content_type()
    }
}

/// Takes an object from a body, as a create or an update does; with what the
/// client is told of fields that are unknown or stand twice.
pub fn take(kind: &Kind, media: Media, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let taken = input::take(bytes, media.own(), kind, FieldValidation::Warn)?;
    Ok((taken.object, taken.complaints.warnings().collect()))
}

/// Takes an object from JSON over one of its kind that was stored, as an update does;
/// `None` where such a one is not kept.
pub fn take_over(
    kind: &Kind,
    stored: Value,
    bytes: &[u8],
) -> Option<Result<(Value, Vec<String>), Status>> {
    let draft = Draft::of(stored)?;
    let taken = input::take_over(bytes, kind, FieldValidation::Warn, draft);
    Some(taken.map(|taken| (taken.object, taken.complaints.warnings().collect())))
}

/// Writes a value as an answer does.
pub fn write(media: Media, value: &Value) -> Result<Bytes, Status> {
    let accepted = Accepted {
        media: media.own(),
        ..Accepted::default()
    };
    respond::encode(accepted, value)
}

/// Writes an object as it is stored in protobuf, which makes no tree of it.
pub fn write_stored(kind: &Kind, object: &Object) -> Result<Bytes, Status> {
    Type::find(&kind.api_version(), kind.kind)
        .and_then(|ty| ty.object(object))
        .map_err(EncodeError::into_status)
}

/// The languages of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge.
    Strategic,
}

/// A patch that was read.
#[derive(Debug)]
pub struct Patch(verbs::Patch);

impl Patch {
    /// Reads a patch.
    pub fn read(language: Language, bytes: &[u8]) -> Result<Self, Status> {
        let language = match language {
            Language::Json => verbs::Language::Json,
            Language::Merge => verbs::Language::Merge,
            Language::Strategic => verbs::Language::Strategic,
        };
        verbs::parse_patch(language, bytes).map(|(patch, _)| Self(patch))
    }

    /// Applies it and no more.
    pub fn apply(&self, kind: &Kind, object: &Value) -> Result<Value, Status> {
        self.0.apply(kind, object)
    }

    /// Makes of an object what then is owned, admitted and checked.
    pub fn change(&self, kind: &Kind, object: &Value) -> Result<Value, Status> {
        let changed = self.0.change(kind, object, &[], FieldValidation::Warn)?;
        Ok(changed.0)
    }
}

/// Applies the bytes of a configuration to an object or to nothing.
pub fn apply(
    kind: &Kind,
    live: Option<&Value>,
    bytes: &[u8],
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    let config = verbs::config(bytes)?;
    let options = WriteOptions {
        force,
        ..WriteOptions::default()
    };
    let apply = Apply {
        config: &config,
        writer,
        options: &options,
    };
    apply.to(kind, live)
}

/// What a request asks for, as its path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub verb: &'static str,
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace.
    pub namespace: Option<String>,
    /// The resource.
    pub resource: String,
    /// The name that stands in the path.
    pub name: Option<String>,
    /// The subresource, or empty.
    pub subresource: String,
    /// What follows the subresource.
    pub rest: Vec<String>,
}

/// Reads what a request asks for; `None` where its path names no resource.
pub fn request(method: &Method, path: &str, query: &str) -> Result<Option<Request>, Status> {
    let info = RequestInfo::parse(method, path, &Query::parse(query)?);
    let verb = info.verb.as_str();
    Ok(info.resource.map(|r| Request {
        verb,
        group: r.group,
        version: r.version,
        namespace: r.namespace,
        resource: r.resource,
        name: r.name.filter(|_| r.name_in_path),
        subresource: r.subresource,
        rest: r.rest,
    }))
}

/// What a query says, read in each way that something reads it.
#[derive(Debug)]
pub struct Told {
    /// The label selector.
    pub labels: Result<LabelSelector, Status>,
    /// The field selector.
    pub fields: Result<FieldSelector, Status>,
    /// Why the query would be refused by what else reads it.
    pub refusals: Vec<Status>,
}

/// Reads a query.
pub fn query(text: &str) -> Result<Told, Status> {
    let query = Query::parse(text)?;
    let version = query.get("resourceVersion").unwrap_or_default();
    let matched = query.get("resourceVersionMatch").unwrap_or_default();
    let token = query.get("continue").unwrap_or_default();
    let attempts = [
        Asked::read(&query, false).map(drop),
        Asked::read(&query, true).map(drop),
        WriteOptions::read(&query, "CreateOptions").map(drop),
        WriteOptions::read_patch(&query).map(drop),
        WriteOptions::read_apply(&query).map(drop),
        ReadVersion::parse(version).map(drop),
        VersionMatch::parse(matched).map(drop),
        crate::storage::check_token(token),
        crate::deadline::of(&query, crate::request_info::Verb::List).map(drop),
    ];
    Ok(Told {
        labels: query.label_selector(),
        fields: query.field_selector(),
        refusals: attempts.into_iter().filter_map(Result::err).collect(),
    })
}

/// Returns the value of a parameter.
pub fn parameter(query: &str, name: &str) -> Result<Option<String>, Status> {
    Ok(Query::parse(query)?.get(name).map(str::to_owned))
}

/// Decides about headers: the form of an answer, and of a body.
pub fn negotiate(accept: &HeaderValue, content_type: &HeaderValue) -> [Option<Status>; 3] {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, accept.clone());
    headers.insert(CONTENT_TYPE, content_type.clone());
    let query = Query::default();
    [
        negotiation::accept(&headers, &query, Offer::Resource).err(),
        negotiation::accept(&headers, &query, Offer::Discovery).err(),
        negotiation::body_media(&headers).err(),
    ]
}
