//! Why an apply is refused, in the words that clients read.

use std::collections::BTreeMap;

use meta::Status;
use meta::status::Reason;

use super::element::{self, FieldsError, Path, PathElement};
use super::entries::{EntryError, ManagerId};

/// The cause that a conflict's status carries, once for each field.
pub const CAUSE_CONFLICT: &str = "FieldManagerConflict";

/// The most problems that are reported of a value.
pub const MAX_PROBLEMS: usize = 64;

/// Something wrong with a value at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path, as it is printed.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// What is wrong with a value: everything, or the first [`MAX_PROBLEMS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn one(message: String) -> Self {
        Self(vec![Problem {
            path: String::new(),
            message,
        }])
    }

    /// Lists them.
    pub fn list(&self) -> &[Problem] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, other: Self) {
        let room = MAX_PROBLEMS.saturating_sub(self.0.len());
        self.0.extend(other.0.into_iter().take(room));
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.extend(other);
        self
    }

    /// Says that the value lies below an element.
    pub(super) fn below(mut self, element: &PathElement) -> Self {
        let prefix = element.to_string();
        for problem in &mut self.0 {
            problem.path.insert_str(0, &prefix);
        }
        self
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    fn text(&self) -> String {
        let line = |problem: &Problem| match problem.path.as_str() {
            "" => problem.message.clone(),
            path => format!("{path}: {}", problem.message),
        };
        match self.0.as_slice() {
            [one] => line(one),
            many => {
                let lines: Vec<_> = many.iter().map(|p| format!("  {}", line(p))).collect();
                format!("errors:\n{}", lines.join("\n"))
            }
        }
    }
}

/// A field that another manager owns and that an apply would change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The owner.
    pub manager: ManagerId,
    /// The field.
    pub path: Path,
}

/// Why sets of managers cannot be brought up to date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Other managers own what would change. Never empty.
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<Conflict>),
    /// A value does not fit its type, or another value.
    #[error("failed to {doing}: {problems}")]
    Value {
        /// What was being done.
        doing: &'static str,
        /// Why it cannot be.
        problems: Problems,
    },
    /// A version that exists could not be converted to.
    #[error("failed to convert to version {version}: {why}")]
    Convert {
        /// The version.
        version: String,
        /// What the conversion says.
        why: String,
    },
}

/// Why an applied configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is of another kind or version than the endpoint (400).
    #[error("invalid object type: {0}")]
    WrongType(String),
    /// The configuration states who owns it (400).
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    /// The configuration does not fit the schema.
    #[error("failed to create typed patch object ({object}): {problems}")]
    Config {
        /// Which object it is for.
        object: String,
        /// Why it does not fit.
        problems: Problems,
    },
    /// The live object does not fit the schema.
    #[error("failed to create typed live object ({object}): {problems}")]
    Live {
        /// Which object it is.
        object: String,
        /// Why it does not fit.
        problems: Problems,
    },
    /// An updated object does not fit the schema.
    #[error("failed to convert new object ({object}) to smd typed: {problems}")]
    New {
        /// Which object it is.
        object: String,
        /// Why it does not fit.
        problems: Problems,
    },
    /// The live object's entries cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Entries(#[from] EntryError),
    /// Conflicts (409), or a merge that failed.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl ApplyError {
    /// Returns the answer to the client.
    pub fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Self::WrongType(_) | Self::ManagedFieldsGiven => Status::bad_request(message),
            Self::Merge(MergeError::Conflict(conflicts)) => conflicts.iter().fold(
                Status::failure(Reason::Conflict, message),
                |status, conflict| {
                    let why = format!("conflict with {}", shown(&conflict.manager));
                    status.with_cause(CAUSE_CONFLICT, why, &element::display(&conflict.path))
                },
            ),
            // Upstream gives these no reason and answers 500.
            Self::Config { .. }
            | Self::Live { .. }
            | Self::New { .. }
            | Self::Entries(_)
            | Self::Merge(_) => Status::failure(Reason::Unknown, message),
        }
    }
}

/// Names a manager as conflicts do.
fn shown(id: &ManagerId) -> String {
    let mut text = super::gotext::quoted(&id.manager);
    if !id.subresource.is_empty() {
        text.push_str(" with subresource ");
        text.push_str(&super::gotext::quoted(&id.subresource));
    }
    if !id.api_version.is_empty() {
        // Only those that update are told apart by their version.
        text.push_str(" using ");
        text.push_str(&id.api_version);
    }
    text
}

/// Words conflicts: one in a line, several by their managers.
fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            shown(&one.manager),
            element::display(&one.path)
        );
    }
    let mut by_manager: BTreeMap<&ManagerId, Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        let path = format!("- {}", element::display(&conflict.path));
        by_manager.entry(&conflict.manager).or_default().push(path);
    }
    let lines: Vec<String> = by_manager
        .into_iter()
        .flat_map(|(manager, paths)| {
            let head = format!("conflicts with {}:", shown(manager));
            std::iter::once(head).chain(paths)
        })
        .collect();
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

impl From<FieldsError> for EntryError {
    fn from(error: FieldsError) -> Self {
        Self::Fields(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entries::Operation;
    use super::*;

    #[test]
    fn conflicts_are_told_by_manager_in_order() {
        let conflict = |manager: &str, operation, through: &str, field: &str| Conflict {
            manager: ManagerId::new(manager, operation, "v1", through),
            path: vec![PathElement::field("spec"), PathElement::field(field)],
        };
        let (a, b, c) = (
            conflict("foo", Operation::Update, "scale", "replicas"),
            conflict("bar", Operation::Apply, "", "paused"),
            conflict("foo", Operation::Update, "scale", "paused"),
        );
        assert_eq!(
            MergeError::Conflict(vec![a.clone()]).to_string(),
            "Apply failed with 1 conflict: \
             conflict with \"foo\" with subresource \"scale\" using v1: .spec.replicas"
        );
        assert_eq!(
            MergeError::Conflict(vec![a, b, c]).to_string(),
            "Apply failed with 3 conflicts: conflicts with \"bar\":\n- .spec.paused\n\
             conflicts with \"foo\" with subresource \"scale\" using v1:\n\
             - .spec.replicas\n- .spec.paused"
        );
    }

    #[test]
    fn problems_have_a_limit_and_their_paths() {
        let mut all = Problems::default();
        for at in 0..2 * MAX_PROBLEMS {
            let one = Problems::one("is wrong".to_owned());
            all.extend(one.below(&PathElement::Index(at as i64)));
        }
        assert_eq!(all.list().len(), MAX_PROBLEMS);
        let two = Problems::one("no".to_owned())
            .and(Problems::one("nor this".to_owned()).below(&PathElement::field("b")))
            .below(&PathElement::field("a"));
        assert_eq!(two.to_string(), "errors:\n  .a: no\n  .a.b: nor this");
    }
}
