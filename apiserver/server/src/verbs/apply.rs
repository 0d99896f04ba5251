//! `apply`: the patch that says what its sender wants to own (server-side
//! apply), merged by `registry::fieldmerge`. Creates what is not there.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::{GroupVersionKind, Reason, Status, value};
use registry::fieldmerge::{self, Writer};
use registry::json::{self, DecodeError, Decoded};
use registry::kind::Endpoint;
use registry::{Kind, schema};
use serde_json::Value;

use super::update::{Change, check_name, missing, store_change};
use super::{create, uid_of_nothing};
use crate::api::{Api, Target};
use crate::authz;
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::{BODY_BYTES_MAX, Context};
use crate::query::{FieldValidation, WriteOptions};
use crate::respond;

/// How often an apply turns from changing to creating and back, while others
/// delete and create what it is for.
const TURNS_MAX: usize = 8;

pub(super) async fn apply(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    endpoint: Endpoint,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let options = WriteOptions::read_apply(&cx.query)?;
    let config = read_config(body).await?;
    let manager = Manager::of(cx, &options);
    let apply = Apply {
        config: &config,
        writer: manager.writer(target, endpoint)?,
        options: &options,
    };
    let kind = target.kind();
    let change = |old: &Value| apply.to(kind, Some(old));
    for _ in 0..TURNS_MAX {
        let change = Change {
            endpoint,
            dry_run: options.dry_run,
            by: None,
            new: &change,
            body: None,
        };
        let status = match store_change(api, cx, target, change).await {
            Err(status) if missing(&status) && endpoint == Endpoint::Main => status,
            Err(status) => return Err(status),
            Ok(done) => {
                warn(cx, &config, options.field_validation);
                return done.respond(cx, accepted, kind);
            }
        };
        may_create(cx)?;
        match apply.create(api, cx, target, status).await {
            Err(status) if status.reason == Reason::AlreadyExists => {}
            Err(status) => return Err(status),
            Ok(made) => {
                warn(cx, &config, options.field_validation);
                return match made {
                    create::Made::Stored(object) => {
                        respond::object(cx, accepted, StatusCode::CREATED, kind, &object)
                    }
                    create::Made::DryRun(view) => {
                        respond::value(cx, accepted, StatusCode::CREATED, kind, view)
                    }
                };
            }
        }
    }
    Err(Status::modified(&kind.group_resource(), &target.name))
}

/// Who may patch may not for that create.
fn may_create(cx: &Context) -> Result<(), Status> {
    let mut info = cx.info.clone();
    info.verb = crate::request_info::Verb::Create;
    authz::authorize(&cx.user, &info)
}

/// Tells the client of keys that stand twice, unless it asked not to be told.
fn warn(cx: &mut Context, config: &Decoded, validation: FieldValidation) {
    if validation == FieldValidation::Warn {
        cx.warnings.extend(config.duplicates.iter().cloned());
    }
}

/// A configuration that is to be applied.
pub(crate) struct Apply<'a> {
    pub(crate) config: &'a Decoded,
    pub(crate) writer: Writer<'a>,
    pub(crate) options: &'a WriteOptions,
}

impl Apply<'_> {
    /// Applies to an object, or to nothing.
    pub(crate) fn to(&self, kind: &Kind, old: Option<&Value>) -> Result<Value, Status> {
        let mut new = merged(old, self.config, &self.writer, self.options)?;
        if let Some(new) = &mut new {
            match kind.def() {
                Some(def) => {
                    let misfit = schema::conform(def, new);
                    misfit.map_err(|e| not_an_object(new, &kind.gvk(), &e))?;
                }
                None => {
                    kind.conform(new)?;
                }
            }
            kind.strategy().default(new);
        }
        Ok(new.or_else(|| old.cloned()).unwrap_or_default())
    }

    /// Creates the object, which was `missing`.
    async fn create(
        &self,
        api: &Arc<Api>,
        cx: &mut Context,
        target: &Target,
        missing: Status,
    ) -> Result<create::Made, Status> {
        let mut object = self.to(target.kind(), None)?;
        uid_of_nothing(target, &object)?;
        check_name(target, &object)?;
        // It names a state of an object that is gone.
        value::set_metadata(&mut object, "resourceVersion", Value::Null);
        if !target.kind().allows("create") {
            return Err(missing);
        }
        let dry_run = self.options.dry_run;
        create::admit_and_store(api, cx, target, object, dry_run, None).await
    }
}

/// Merges a configuration into an object; `None` when that changes nothing.
pub(crate) fn merged(
    old: Option<&Value>,
    config: &Decoded,
    writer: &Writer<'_>,
    options: &WriteOptions,
) -> Result<Option<Value>, Status> {
    let applied = fieldmerge::apply(old, &config.value, writer, options.force)
        .map_err(|error| error.status())?;
    if options.field_validation == FieldValidation::Strict
        && let Some(complaint) = complaint(config)
    {
        let text = format!("error strict decoding YAML: {complaint}");
        return Err(Status::bad_request(text));
    }
    Ok(Some(applied.object).filter(|_| applied.changed))
}

/// The 500 of a merged object that its type cannot hold, as upstream's.
pub(crate) fn not_an_object(
    object: &Value,
    gvk: &GroupVersionKind,
    error: &schema::TypeError,
) -> Status {
    let (namespace, name) = (value::namespace(object), value::name(object));
    let text = format!(
        "failed to convert new typed object ({namespace}/{name}; {gvk}) to object: {error}"
    );
    Status::failure(Reason::Unknown, text)
}

/// Reads a configuration: YAML, of which JSON is a part.
pub(crate) async fn read_config(body: BoxBody) -> Result<Decoded, Status> {
    config(&input::read_bytes(body).await?)
}

/// Reads the bytes of a configuration. The duplicates are lines of the reader of YAML.
pub(crate) fn config(bytes: &[u8]) -> Result<Decoded, Status> {
    let mut decoded = parse(bytes).map_err(|error| match error {
        DecodeError::TooLarge(_) => {
            Status::failure(Reason::RequestEntityTooLarge, error.to_string())
        }
        DecodeError::Json(_) | DecodeError::Yaml(_) => {
            Status::bad_request(format!("error decoding YAML: {error}"))
        }
    })?;
    decoded.duplicates = input::lines(bytes, &decoded.duplicates);
    let found = match &decoded.value {
        Value::Object(_) | Value::Null => return Ok(decoded),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(Status::bad_request(format!(
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: \
         json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )))
}

fn parse(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    match first {
        None => Ok(Decoded {
            value: Value::Null,
            duplicates: Vec::new(),
        }),
        // Nearly always JSON, which is read faster; else a flow mapping.
        Some(b'{') => json::decode(bytes, BODY_BYTES_MAX)
            .or_else(|_| json::decode_yaml(bytes, BODY_BYTES_MAX)),
        Some(_) => json::decode_yaml(bytes, BODY_BYTES_MAX),
    }
}

/// Words the keys that stand twice as the reader of YAML does upstream.
fn complaint(config: &Decoded) -> Option<String> {
    let errors = input::unmarshal_errors(&config.duplicates)?;
    Some(format!("error converting YAML to JSON: {errors}"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    async fn read(text: &'static str) -> Result<Decoded, Status> {
        read_config(crate::body::full(Bytes::from_static(text.as_bytes()))).await
    }

    #[tokio::test]
    async fn configurations_are_yaml_or_json() {
        for text in [
            "a: 1\nb: [x]\n",
            "{\"a\": 1, \"b\": [\"x\"]}",
            " {a: 1, b: [x]}",
        ] {
            let config = read(text).await.unwrap();
            assert_eq!(
                config.value,
                serde_json::json!({"a": 1, "b": ["x"]}),
                "{text}"
            );
            assert_eq!(complaint(&config), None);
        }
        assert_eq!(read(" \n").await.unwrap().value, Value::Null);
        for (text, words) in [
            ("[1]", "cannot unmarshal array into Go value"),
            ("a: [", "error decoding YAML: error converting YAML to JSON"),
            (
                "{\"a\": ",
                "error decoding YAML: error converting YAML to JSON",
            ),
        ] {
            let status = read(text).await.unwrap_err();
            assert_eq!((status.code, status.reason), (400, Reason::BadRequest));
            assert!(status.message.contains(words), "{}", status.message);
        }
    }

    #[tokio::test]
    async fn keys_that_stand_twice_are_told() {
        for (text, line) in [
            ("a: {b: 1, b: 2}", 1),
            ("{\n\t\"a\": {\n\t\t\"b\": 1,\n\t\t\"b\": 2\n\t}\n}", 4),
        ] {
            let config = read(text).await.unwrap();
            assert_eq!(
                complaint(&config).unwrap(),
                format!(
                    "error converting YAML to JSON: yaml: unmarshal errors:\n  line {line}: key \"b\" already set in map"
                )
            );
        }
    }
}
