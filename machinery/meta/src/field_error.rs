//! What is wrong with one field, in the words of apimachinery's `field.Error`.

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

/// What kind of mistake a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// The field must be set.
    Required,
    /// The value is not allowed.
    Invalid,
    /// The value is not allowed, and too much to be quoted.
    InvalidUnquoted,
    /// The value is not one of a known set.
    NotSupported,
    /// The value stands twice where it may stand once.
    Duplicate,
    /// The field may not be set here or now.
    Forbidden,
    /// What the value names does not exist.
    NotFound,
    /// The value is too long.
    TooLong,
    /// There are too many items.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// Returns the cause's reason and the words that begin the message.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Invalid | Self::InvalidUnquoted => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::TooLong => ("FieldValueTooLong", "Too long"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
        }
    }

    /// Tells whether the message quotes the value.
    fn quotes_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::InvalidUnquoted
        )
    }
}

/// One validation error: which field, what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What kind of mistake it is.
    pub kind: FieldErrorKind,
    /// The field's path, `spec.containers[0].name`.
    pub field: String,
    /// The offending value.
    pub value: Value,
    /// What is wrong, to a person.
    pub detail: String,
}

impl FieldError {
    fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            field: field.into(),
            value,
            detail: detail.into(),
        }
    }

    /// The field must be set.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    /// The value is not allowed.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), detail)
    }

    /// The value is not allowed, and too much to be quoted.
    pub fn invalid_unquoted(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::InvalidUnquoted, field, Value::Null, detail)
    }

    /// The value is not one of the supported ones.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, value.into(), detail)
    }

    /// The value stands twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value.into(), "")
    }

    /// The field may not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    /// What the value names does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value.into(), "")
    }

    /// The value has more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(
            FieldErrorKind::TooLong,
            field,
            Value::Null,
            format!("may not be more than {max} bytes"),
        )
    }

    /// There are more than `max` items.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        Self::new(FieldErrorKind::TooMany, field, actual.into(), detail)
    }

    /// The value has another type than it must have.
    pub fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value.into(), detail)
    }

    /// Returns the message without the field.
    pub fn body(&self) -> String {
        let mut body = self.kind.words().1.to_owned();
        if self.kind.quotes_value() {
            body.push_str(": ");
            body.push_str(&go_value(&self.value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause {
            reason: self.kind.words().0.to_owned(),
            message: self.body(),
            field: self.field.clone(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Writes a value as the upstream error texts do: strings quoted, null as
/// `null`, anything else as JSON.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{s:?}"),
        other => other.to_string(),
    }
}
