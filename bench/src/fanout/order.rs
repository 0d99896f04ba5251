//! What the load's processes are told and what they say: a line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wire {
    /// etcd's Watch and Put.
    Etcd,
    /// HTTP/2, events in JSON.
    Json,
    /// HTTP/2, events in Kubernetes' protobuf.
    Protobuf,
    /// HTTP/1.1, events in JSON; a connection for each watcher.
    Http1,
}

impl Wire {
    pub(super) const ALL: [Self; 4] = [Self::Etcd, Self::Json, Self::Protobuf, Self::Http1];

    /// Returns what it is called in the names of cases.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "store",
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Http1 => "http/1.1",
        }
    }
}

/// Where a server is, and who may enter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Door {
    /// A store's client URL.
    Store(String),
    /// An API server's kubeconfig, and the URL if that is another than it says.
    Api {
        kubeconfig: PathBuf,
        url: Option<String>,
    },
}

/// What is written and watched.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Objects {
    pub(super) count: usize,
    /// Bytes of what changes nothing in each.
    pub(super) bytes: usize,
    /// Whether each lies on a node of its own, and whoever watches, watches one node.
    pub(super) on_nodes: bool,
    /// What the first write of each adds one to.
    pub(super) base: u32,
}

/// How fast a watcher reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Pace {
    /// As fast as it can.
    Full,
    /// Not at all, until the writes have ended.
    Stuck,
    /// So many bytes a second, until the writes have ended.
    Slow(u32),
}

/// Watchers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Watch {
    pub(super) door: Door,
    pub(super) wire: Wire,
    pub(super) objects: Objects,
    /// The number of the first watcher; on nodes, it watches the node of that number.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) streams_per_connection: usize,
    /// Everything after this revision is to be seen.
    pub(super) revision: u64,
    pub(super) pace: Pace,
}

/// Writers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) door: Door,
    pub(super) wire: Wire,
    pub(super) objects: Objects,
    /// How many write at once, each its own objects in turn.
    pub(super) lanes: usize,
    /// Writes a second; none is as many as watchers can follow.
    pub(super) rate: Option<f64>,
    /// How many watchers see a write.
    pub(super) fan: u64,
}

/// Connections that do nothing, and what is opened on them later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    pub(super) door: Door,
    pub(super) wire: Wire,
    pub(super) connections: usize,
    pub(super) streams_per_connection: usize,
    pub(super) revision: u64,
}

/// Nodes that are nothing but their reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Nodes {
    pub(super) door: Door,
    pub(super) first: usize,
    pub(super) count: usize,
    /// How often each renews its lease and reports its status, in milliseconds.
    pub(super) renew_ms: u64,
    pub(super) report_ms: u64,
}

/// Someone who reads one object so many times a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Gets {
    pub(super) door: Door,
    pub(super) path: String,
    pub(super) rate: f64,
}

/// Lists of everything at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Lists {
    pub(super) door: Door,
    pub(super) path: String,
    pub(super) count: usize,
    /// How many objects each must have.
    pub(super) objects: u64,
}

/// What a process of the load is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Watch(Watch),
    Write(Write),
    Idle(Idle),
    Nodes(Nodes),
    Gets(Gets),
    Lists(Lists),
}

/// When the window opens and closes, in microseconds of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edges {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Edges {
    pub(super) fn contain(self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// One write that was acknowledged.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) object: u32,
    pub(super) sequence: u32,
    pub(super) sent: u64,
    pub(super) acked: u64,
}

/// What a process is told after its order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Go, within these edges.
    Go(Edges),
    /// So many events have reached watchers so far.
    Arrived(u64),
    /// Open the watches.
    Open,
    /// What was written; see that all of it has come, and say what has.
    Finish(Vec<Written>),
}

/// How often each value was measured.
pub(super) type Counts = Vec<(u64, u64)>;

/// What watchers saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Saw {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) in_window: u64,
    /// Microseconds from the acknowledgement, and from the sending, to the arrival.
    pub(super) since_acked: Counts,
    pub(super) since_sent: Counts,
    /// Changes that never came, though the watch went on or ended well.
    pub(super) gaps: u64,
    pub(super) duplicates: u64,
    /// Events whose version is not above that of the one before.
    pub(super) backwards: u64,
    /// Events of objects that were not asked for, or that say what cannot be.
    pub(super) strange: u64,
    /// How the watches ended that the server ended.
    pub(super) ended: Vec<String>,
}

/// What those did who ask and wait for answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Did {
    pub(super) written: Vec<Written>,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) took: Counts,
    pub(super) errors: Vec<String>,
}

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// Everything is open.
    Ready,
    /// So many events have come so far.
    Arrived(u64),
    Saw(Saw),
    Did(Did),
    /// It cannot go on.
    Failed(String),
}
