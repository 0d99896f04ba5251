//! What clients of a Kubernetes API asked and saw.
//!
//! An object is kept as far as a checker compares it. The store's log keeps the same
//! in its values: its keys are `/registry/<resource>/<key>`, and a resource version is
//! a revision, so that one log judges the store and what stands on it.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Span, Time};

/// Begins the store's keys of all objects.
pub const ROOT: &str = "/registry/";

/// Splits a key of the store into the resource and the object's own key; `None` for what
/// is no object's. A resource of a client's own has its group, which has a dot, before it.
pub fn split_key(key: &str) -> Option<(&str, &str)> {
    let below = key.strip_prefix(ROOT)?;
    let (first, rest) = below.split_once('/')?;
    if !first.contains('.') {
        return Some((first, rest));
    }
    let (plural, rest) = rest.split_once('/')?;
    Some((&below[..first.len() + 1 + plural.len()], rest))
}
/// Names, in [`Content::data`], the request that wrote this: used once in a history.
pub const TOKEN: &str = "by";
/// Holds, in [`Content::data`], the number of a counter.
pub const COUNT: &str = "n";

/// Is an object without its name and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Content {
    /// Differs for each life of a name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Arc<str>,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// What it says, as far as anybody compares it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<Arc<str>, Arc<str>>,
}

impl Content {
    /// Returns one of the things it says.
    pub fn says(&self, what: &str) -> Option<&str> {
        self.data.get(what).map(|text| &**text)
    }

    /// Returns a number it says.
    pub fn number(&self, what: &str) -> Option<i64> {
        self.says(what)?.parse().ok()
    }
}

/// Is an object as somebody saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Namespace and name.
    pub key: Arc<str>,
    /// Its resource version.
    pub rv: i64,
    /// The rest.
    #[serde(flatten)]
    pub content: Content,
}

/// Says which objects of a resource are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The resource, such as `configmaps`.
    pub resource: Arc<str>,
    /// Only those in here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// Only those with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

impl Scope {
    /// Says whether a key can be meant.
    pub fn holds(&self, key: &str) -> bool {
        let within = |namespace: &Arc<str>| {
            let rest = key.strip_prefix(&**namespace);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.namespace.as_ref().is_none_or(within)
    }

    /// Says whether an object under such a key is meant.
    pub fn selects(&self, content: &Content) -> bool {
        let mut wanted = self.labels.iter();
        wanted.all(|(name, value)| content.labels.get(name) == Some(value))
    }
}

/// Says how old an answer may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    /// Nothing acknowledged before may be missing (no resource version given).
    #[default]
    Fresh,
    /// Whatever is at hand (`resourceVersion=0`).
    Any,
    /// Not older than this.
    AtLeast(i64),
    /// Exactly this.
    Exact(i64),
}

/// Is one request and what came of it; a list in pages is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Who asked.
    pub process: u32,
    /// Which API server, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replica: u8,
    /// When it was asked.
    pub call: Time,
    /// When the answer was there, or the client gave up.
    pub ret: Time,
    /// What was asked.
    #[serde(rename = "do")]
    pub ask: Ask,
    /// What came of it.
    #[serde(rename = "got")]
    pub came: Came,
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Call {
    /// Says when it was done.
    pub fn span(&self) -> Span {
        Span {
            process: self.process,
            call: self.call,
            ret: self.ret,
        }
    }

    /// Returns the answer, if there was one and it was good.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.came {
            Came::Ok(answer) => Some(answer),
            _ => None,
        }
    }
}

/// Is what is asked of an API server, or around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// One object.
    Get {
        /// Of this resource.
        resource: Arc<str>,
        /// Under this key.
        key: Arc<str>,
        /// How old it may be.
        #[serde(default)]
        read: Read,
    },
    /// Many objects.
    List {
        /// These.
        scope: Scope,
        /// How old the state may be.
        #[serde(default)]
        read: Read,
    },
    /// Writes an object.
    Write {
        /// How.
        how: How,
        /// Of this resource.
        resource: Arc<str>,
        /// Under this key.
        key: Arc<str>,
        /// What it says of who wrote it.
        token: Arc<str>,
        /// The version it must have, if that is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<i64>,
    },
    /// Deletes an object.
    Delete {
        /// Of this resource.
        resource: Arc<str>,
        /// Under this key.
        key: Arc<str>,
        /// The id it must have, if that is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<Arc<str>>,
        /// The version it must have, if that is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<i64>,
    },
    /// Makes the store forget what was before a revision.
    Compact(i64),
    /// All of a resource, as the store itself has it.
    Dump(Arc<str>),
}

/// Says how an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It must not be there.
    Create,
    /// It is replaced; it must be there.
    Replace,
    /// It is replaced by one whose number is greater by one.
    Increment,
    /// Some of it is changed; it must be there.
    Patch,
    /// Some of it is changed or made (server-side apply).
    Apply,
}

/// Says what came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// It was done, and this is the answer.
    Ok(Answer),
    /// It was refused for what was there, and certainly not done.
    Refused(Refused),
    /// Nobody knows whether it was done, or it says nothing of what is there.
    Unknown(Arc<str>),
}

/// Says for what a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No such object.
    NotFound,
    /// There is one already.
    Exists,
    /// It is not, or no longer, as it was said to be.
    Conflict,
    /// What was asked for is forgotten.
    Expired,
}

/// Is a good answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Its resource version: of the object, or of the whole list.
    #[serde(default)]
    pub rv: i64,
    /// What it shows, in the order in which it came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<Seen>,
    /// The versions of the other pages, if it came in several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<i64>,
}

/// Is one watch on one API server, from its beginning to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiWatch {
    /// How it began.
    pub open: ApiOpen,
    /// What came, and when.
    pub told: Vec<(Time, ApiTold)>,
}

/// Says that a watch on an API server begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiOpen {
    /// Its number, used once among these.
    pub id: u64,
    /// Who watches.
    pub process: u32,
    /// Which API server, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replica: u8,
    /// When.
    pub at: Time,
    /// What is watched.
    pub scope: Scope,
    /// From where.
    pub from: Since,
}

/// Says from where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// After this version.
    After(i64),
    /// With all there is, its end marked (`sendInitialEvents`).
    State(Read),
}

/// Says that a watch on an API server was told something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiSaid {
    /// Which watch.
    pub id: u64,
    /// When.
    pub at: Time,
    /// What.
    pub said: ApiTold,
}

/// Is what a watch on an API server is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiTold {
    /// An object came into view.
    Added(Seen),
    /// It changed.
    Modified(Seen),
    /// It left the view; its last content, and the version at which it left.
    Deleted(Seen),
    /// Everything up to here was told.
    Bookmark(i64),
    /// So was everything that was there at the beginning.
    InitialEnd(i64),
    /// What it asks for is forgotten.
    Expired,
    /// It ended, as streams do.
    Lost,
    /// Its client waited long enough: everything up to here had to come.
    Due(i64),
}

impl ApiTold {
    /// Returns the object of an event.
    pub fn object(&self) -> Option<&Seen> {
        match self {
            Self::Added(seen) | Self::Modified(seen) | Self::Deleted(seen) => Some(seen),
            _ => None,
        }
    }

    /// Returns the version up to which its client knows what was.
    pub fn version(&self) -> Option<i64> {
        match self {
            Self::Bookmark(rv) | Self::InitialEnd(rv) => Some(*rv),
            Self::Expired | Self::Lost | Self::Due(_) => None,
            event => event.object().map(|seen| seen.rv),
        }
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.rv)?;
        for (name, value) in self.content.labels.iter().chain(&self.content.data) {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

impl Display for Scope {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        for (name, value) in &self.labels {
            write!(f, " with {name}={value}")?;
        }
        Ok(())
    }
}

impl Display for Read {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => Ok(()),
            Self::Any => f.write_str(" at any version"),
            Self::AtLeast(rv) => write!(f, " not older than {rv}"),
            Self::Exact(rv) => write!(f, " at {rv}"),
        }
    }
}

impl Display for Ask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let guard = |f: &mut Formatter<'_>, version: &Option<i64>| match version {
            Some(rv) => write!(f, " if at {rv}"),
            None => Ok(()),
        };
        match self {
            Self::Get {
                resource,
                key,
                read,
            } => write!(f, "get {resource} {key}{read}"),
            Self::List { scope, read } => write!(f, "list {scope}{read}"),
            Self::Write {
                how,
                resource,
                key,
                token,
                version,
            } => {
                let how = format!("{how:?}").to_lowercase();
                write!(f, "{how} {resource} {key} by={token}")?;
                guard(f, version)
            }
            Self::Delete {
                resource,
                key,
                uid,
                version,
            } => {
                write!(f, "delete {resource} {key}")?;
                if let Some(uid) = uid {
                    write!(f, " if {uid}")?;
                }
                guard(f, version)
            }
            Self::Compact(revision) => write!(f, "compact {revision}"),
            Self::Dump(resource) => write!(f, "all {resource} in the store"),
        }
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "p{} a{} {}", self.process, self.replica, self.ask)?;
        match &self.came {
            Came::Ok(answer) => match &answer.objects[..] {
                [one] => write!(f, " → {one}"),
                many => write!(f, " → {} objects at {}", many.len(), answer.rv),
            },
            Came::Refused(why) => write!(f, " ✗ {why:?}"),
            Came::Unknown(why) => write!(f, " ? {why}"),
        }
    }
}

impl Display for ApiTold {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(seen) => write!(f, "added {seen}"),
            Self::Modified(seen) => write!(f, "modified {seen}"),
            Self::Deleted(seen) => write!(f, "deleted {seen}"),
            Self::Bookmark(rv) => write!(f, "bookmark {rv}"),
            Self::InitialEnd(rv) => write!(f, "all there was, at {rv}"),
            Self::Expired => f.write_str("expired"),
            Self::Lost => f.write_str("lost"),
            Self::Due(rv) => write!(f, "all up to {rv} is due"),
        }
    }
}
