//! The client machinery: how controllers, scheduler and kubelet reach the API.
//!
//! ```text
//! Transport (TLS, or a service of this process)
//!   └ Client: verbs, watches, logs, discovery
//!       ├ reflector ─ DeltaFIFO ─ indexer ─ handlers   = SharedInformer
//!       ├ EventRecorder, LeaderElector
//!       └ …        WorkQueue, Expectations             = what a controller loops on
//! ```
//!
//! Every part is a pure core (a value with methods that take the time) with a thin
//! asynchronous shell around it; behaviour follows client-go, whose test names the
//! unit tests here carry. Vocabulary: a *reflector* mirrors one collection by list
//! and watch; a *delta* is one change it delivers; an *informer* is the mirror with
//! indexes and handlers; handlers only enqueue keys; a *work queue* hands each key
//! to one worker at a time.
//!
//! Deliberately absent: client-side rate limiting (the server has flow control),
//! protobuf bodies, exec and port-forward streams.

pub mod client;
pub mod config;
pub mod delta_fifo;
pub mod error;
pub mod events;
pub mod expectations;
pub mod indexer;
pub mod informer;
pub mod leader_election;
mod query;
pub mod reflector;
pub mod resource;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
pub mod transport;
pub mod watch;
pub mod workqueue;

pub use client::discovery::{ApiResource, Discovery};
pub use client::params::{DeleteParams, ListParams, LogParams, Patch, Propagation, WatchParams};
pub use client::{Client, ObjectList, Resource};
pub use config::{ClientConfig, Kubeconfig};
pub use error::{BoxError, Error, Result};
pub use events::{EventRecorder, EventType};
pub use expectations::{ExpectationSet, Expectations};
pub use indexer::{BY_NODE_NAME, BY_OWNER_UID, Store, node_name, owner_uids};
pub use informer::factory::InformerFactory;
pub use informer::{HandlerId, InformerEvent, InformerOptions, SharedInformer};
pub use leader_election::{ElectionConfig, ElectionError};
pub use resource::{
    KubeObject, ObjectKey, PartialObject, ResourceRef, StaticResource, controller_reference,
    object_reference,
};
pub use transport::Transport;
pub use watch::{WatchEvent, WatchStream};
pub use workqueue::WorkQueue;

/// Is the User-Agent of a client that was given no other name.
pub const USER_AGENT: &str = concat!("keelson/", env!("CARGO_PKG_VERSION"));
