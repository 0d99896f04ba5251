//! How an API call fails: `metav1.Status`, with the reason, code, message and
//! causes that clients match on.
//!
//! The constructors are the ones of apimachinery's `errors` package; their
//! texts are part of the contract (kubectl prints them, client libraries
//! switch on `reason`).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::field_error::FieldError;
use crate::gvk::{GroupResource, GroupVersionKind};

/// The machine-readable reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Reason {
    /// No reason was given.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// The request was malformed (400).
    BadRequest,
    /// The caller did not prove who it is (401).
    Unauthorized,
    /// The caller may not do this, or nobody may (403).
    Forbidden,
    /// The object or resource does not exist (404).
    NotFound,
    /// The verb is not supported on this resource (405).
    MethodNotAllowed,
    /// No acceptable representation exists (406).
    NotAcceptable,
    /// An object of that name exists (409).
    AlreadyExists,
    /// The object changed since it was read, or a precondition failed (409).
    Conflict,
    /// What was asked for is gone for good (410).
    Gone,
    /// The resource version or continue token is too old (410).
    Expired,
    /// The body is too large (413).
    RequestEntityTooLarge,
    /// The body's media type is not supported (415).
    UnsupportedMediaType,
    /// The object is not valid (422).
    Invalid,
    /// The server is overloaded or not ready; retry later (429).
    TooManyRequests,
    /// Something unexpected happened inside the server (500).
    InternalError,
    /// The server could not answer in time; the call may be retried (500).
    ServerTimeout,
    /// The server cannot serve now (503).
    ServiceUnavailable,
    /// The call took too long (504).
    Timeout,
}

impl Reason {
    /// Returns the HTTP code that goes with the reason.
    pub fn code(self) -> u16 {
        match self {
            Self::Unknown | Self::InternalError | Self::ServerTimeout => 500,
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}

/// One cause among a status's details.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The machine-readable cause, such as `FieldValueInvalid`.
    pub reason: String,
    /// What it says to a person.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field it concerns.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What a status is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The object's group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind, or in most server errors the plural resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Why, in detail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// After how many seconds a retry makes sense; zero says nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The list metadata a status carries; a token when a list may be restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusMeta {
    /// Where an expired list can be continued inconsistently.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// The result of a call that returns no object: `metav1.Status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "kind_status")]
    pub kind: Cow<'static, str>,
    /// Always `v1`.
    #[serde(default = "api_version_v1")]
    pub api_version: Cow<'static, str>,
    /// List metadata.
    #[serde(default)]
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: Cow<'static, str>,
    /// What happened, to a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What happened, to a machine. An unknown reason reads as
    /// [`Reason::Unknown`].
    #[serde(
        default,
        skip_serializing_if = "is_unknown",
        deserialize_with = "lenient_reason"
    )]
    pub reason: Reason,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP code.
    #[serde(default, skip_serializing_if = "is_zero_code")]
    pub code: u16,
}

fn kind_status() -> Cow<'static, str> {
    Cow::Borrowed("Status")
}
fn api_version_v1() -> Cow<'static, str> {
    Cow::Borrowed("v1")
}
fn is_unknown(r: &Reason) -> bool {
    *r == Reason::Unknown
}
fn is_zero_code(n: &u16) -> bool {
    *n == 0
}
fn lenient_reason<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Reason, D::Error> {
    let value = Value::deserialize(d)?;
    Ok(Reason::deserialize(value).unwrap_or_default())
}

impl std::error::Error for Status {}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Status {
    /// Creates a failure with the reason's own code.
    pub fn failure(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind: kind_status(),
            api_version: api_version_v1(),
            metadata: StatusMeta::default(),
            status: Cow::Borrowed("Failure"),
            message: message.into(),
            reason,
            details: None,
            code: reason.code(),
        }
    }

    /// Creates the success that a completed deletion answers.
    pub fn deleted(resource: &GroupResource, name: &str, uid: &str) -> Self {
        Self {
            status: Cow::Borrowed("Success"),
            reason: Reason::Unknown,
            code: 0,
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: resource.group.clone(),
                kind: resource.resource.clone(),
                uid: uid.to_owned(),
                ..Details::default()
            })),
            ..Self::failure(Reason::Unknown, "")
        }
    }

    /// Replaces the HTTP code.
    pub fn with_code(mut self, code: u16) -> Self {
        self.code = code;
        self
    }

    /// Returns the details, creating them when there are none.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_with(Box::default)
    }

    /// Adds a cause.
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details_mut().causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// Says after how many seconds a retry makes sense.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Names the object the status is about, by its resource.
    pub fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let d = self.details_mut();
        d.name = name.to_owned();
        d.group = resource.group.clone();
        d.kind = resource.resource.clone();
        self
    }

    /// Tells whether a cause of this reason is among the details.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details
            .iter()
            .any(|d| d.causes.iter().any(|c| c.reason == reason))
    }

    /// The object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(Reason::NotFound, format!("{resource} \"{name}\" not found"))
            .about(resource, name)
    }

    /// Nothing is served at this path.
    pub fn no_such_path() -> Self {
        let mut s = Self::failure(
            Reason::NotFound,
            "the server could not find the requested resource",
        );
        s.details_mut();
        s
    }

    /// An object of that name exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(
            Reason::AlreadyExists,
            format!("{resource} \"{name}\" already exists"),
        )
        .about(resource, name)
    }

    /// The object changed, or a precondition failed.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        Self::failure(
            Reason::Conflict,
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(resource, name)
    }

    /// The object was modified since the caller read it.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(Reason::BadRequest, message)
    }

    /// The caller did not say who it is, or could not prove it.
    pub fn unauthorized() -> Self {
        Self::failure(Reason::Unauthorized, "Unauthorized")
    }

    /// The operation on this object is refused.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            resource.to_string()
        } else {
            format!("{resource} \"{name}\"")
        };
        Self::failure(Reason::Forbidden, format!("{subject} is forbidden: {why}"))
            .about(resource, name)
    }

    /// Nothing is served at this path under this method.
    pub fn method_not_allowed() -> Self {
        let mut s = Self::failure(
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        );
        s.details_mut();
        s
    }

    /// The verb is not supported on the resource.
    pub fn method_not_supported(resource: &GroupResource, verb: &str) -> Self {
        Self::failure(
            Reason::MethodNotAllowed,
            format!("{verb} is not supported on resources of kind \"{resource}\""),
        )
        .about(resource, "")
    }

    /// The object is not valid; every error becomes a cause.
    pub fn invalid(gvk: &GroupVersionKind, name: &str, errors: &[FieldError]) -> Self {
        let kind = if gvk.group.is_empty() {
            gvk.kind.clone()
        } else {
            format!("{}.{}", gvk.kind, gvk.group)
        };
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for e in errors {
            let text = e.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut s = Self::failure(
            Reason::Invalid,
            format!("{kind} \"{name}\" is invalid: {list}"),
        );
        let d = s.details_mut();
        d.name = name.to_owned();
        d.group = gvk.group.clone();
        d.kind = gvk.kind.clone();
        d.causes = errors.iter().map(FieldError::cause).collect();
        s
    }

    /// The resource version, or the continue token, is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(Reason::Expired, message)
    }

    /// The asked resource version has not been reached yet.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        Self::failure(
            Reason::Timeout,
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
        .with_retry_after(1)
    }

    /// Something unexpected happened.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::failure(
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
        .with_cause("", message.to_string(), "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::new("apps", "v1", "Deployment")
    }

    #[test]
    fn invalid_lists_every_error() {
        let s = Status::invalid(
            &gvk(),
            "web",
            &[
                FieldError::required("spec.selector", ""),
                FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            ],
        );
        assert_eq!(
            s.message,
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec.replicas: Invalid value: -1: must be greater than or equal to 0]"
        );
        assert_eq!((s.code, s.reason), (422, Reason::Invalid));
        assert!(s.has_cause("FieldValueRequired"));
    }

    #[test]
    fn round_trips_and_tolerates_unknown_reasons() {
        let s = Status::not_found(&GroupResource::new("", "pods"), "a");
        let text = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), s);
        assert_eq!(s.message, "pods \"a\" not found");
        let odd: Status = serde_json::from_str(r#"{"reason":"Novel","code":418}"#).unwrap();
        assert_eq!((odd.reason, odd.code), (Reason::Unknown, 418));
    }

    #[test]
    fn texts_users_know() {
        let r = GroupResource::new("apps", "deployments");
        assert!(Status::modified(&r, "web").message.starts_with(
            "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified"
        ));
        assert_eq!(
            FieldError::not_supported("spec.type", "X", &["A", "B"]).to_string(),
            "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\""
        );
    }
}
