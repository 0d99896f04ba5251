//! Holding a kind, whether it is built in or came with a definition.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Kind;

/// A kind that is held. Cloning a built-in one costs nothing, a custom one a
/// count; a custom kind goes when nobody holds it any more.
#[derive(Clone)]
pub enum KindRef {
    /// One that is there as long as the program.
    Builtin(&'static Kind),
    /// One that came with a definition.
    Custom(Arc<Kind>),
}

impl Deref for KindRef {
    type Target = Kind;

    fn deref(&self) -> &Kind {
        match self {
            Self::Builtin(kind) => kind,
            Self::Custom(kind) => kind,
        }
    }
}

impl From<&'static Kind> for KindRef {
    fn from(kind: &'static Kind) -> Self {
        Self::Builtin(kind)
    }
}

impl From<Arc<Kind>> for KindRef {
    fn from(kind: Arc<Kind>) -> Self {
        Self::Custom(kind)
    }
}

impl fmt::Debug for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Kind::fmt(self, f)
    }
}
