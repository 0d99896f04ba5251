//! What a member said to one step, in a form that can be compared and printed.

use std::fmt;

use prost_reflect::DynamicMessage;
use tonic::Status;

use super::symbol;

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self {
            code: status.code().into(),
            message: status.message().to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = tonic::Code::from_i32(self.code);
        write!(f, "{name:?} ({}) {:?}", self.code, self.message)
    }
}

/// One message or error. A step may be answered by several, each with a label that
/// says which it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) label: String,
    pub(crate) said: Result<DynamicMessage, Refusal>,
}

/// Everything a member said to one step.
pub(crate) type Answer = Vec<Part>;

impl Part {
    pub(crate) fn new(label: impl Into<String>, said: Result<DynamicMessage, Refusal>) -> Self {
        Self {
            label: label.into(),
            said,
        }
    }

    /// Says that something which must come did not.
    pub(crate) fn missing(label: impl Into<String>, what: &str) -> Self {
        let message = what.to_owned();
        Self::new(label, Err(Refusal { code: -1, message }))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.label.is_empty() {
            write!(f, "{}: ", self.label)?;
        }
        match &self.said {
            Ok(message) => f.write_str(&symbol::to_names(&brief(message).to_string())),
            Err(refusal) => refusal.fmt(f),
        }
    }
}

/// Leaves out of a header what is the same in all of them.
fn brief(message: &DynamicMessage) -> DynamicMessage {
    let mut message = message.clone();
    let header = message.get_field_by_name_mut("header");
    if let Some(header) = header.and_then(|header| header.as_message_mut()) {
        for name in ["cluster_id", "member_id", "raft_term"] {
            header.clear_field_by_name(name);
        }
    }
    message
}

/// Returns the newest revision an answer's headers tell of.
pub(crate) fn revision(answer: &Answer) -> Option<i64> {
    let header = |part: &Part| -> Option<i64> {
        let message = part.said.as_ref().ok()?;
        let header = message.get_field_by_name("header")?.into_owned();
        header.as_message()?.get_field_by_name("revision")?.as_i64()
    };
    answer.iter().filter_map(header).max()
}
