//! Counts gRPC calls as go-grpc-prometheus does: every method of every service is
//! there from the start, at zero, so that a rate is right from the first call on.

use std::{collections::HashMap, sync::Arc};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use prost_reflect::DescriptorPool;
use tonic::Code;

/// The codes, at the index of their number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Prometheus' own buckets, which go-grpc-prometheus uses.
const SECONDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What tells one method from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    grpc_method: String,
    grpc_service: String,
    grpc_type: &'static str,
}

/// What tells one kind of end from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handled {
    grpc_code: &'static str,
    grpc_method: String,
    grpc_service: String,
    grpc_type: &'static str,
}

/// The counters of one method.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) started: Counter,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    handled: Vec<Counter>,
    /// Only with `--metrics=extensive`.
    pub(crate) seconds: Option<Histogram>,
}

impl Method {
    /// Returns the counter of calls that ended with a code.
    pub(crate) fn handled(&self, code: Code) -> &Counter {
        // Codes are few and the list is complete; what is not on it is unknown.
        let at = usize::try_from(code as i32).unwrap_or(2);
        self.handled.get(at).unwrap_or(&self.handled[2])
    }
}

/// The counters of all methods, by path.
#[derive(Debug)]
pub(crate) struct Calls {
    methods: HashMap<String, Arc<Method>>,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) extensive: bool,
}

impl Calls {
    /// Returns the counters of the method behind a path, which is written without the
    /// slash before it.
    pub(crate) fn method(&self, path: &str) -> Option<&Arc<Method>> {
        self.methods.get(path)
    }

    /// Makes a counter of everything the services offer.
    pub(super) fn register(registry: &mut Registry, extensive: bool) -> Self {
        let families = Families::default();
        let mut methods = HashMap::new();
        for service in pool().services() {
            for method in service.methods() {
                let grpc_type = match (method.is_client_streaming(), method.is_server_streaming()) {
                    (false, false) => "unary",
                    (true, false) => "client_stream",
                    (false, true) => "server_stream",
                    (true, true) => "bidi_stream",
                };
                let called = Called {
                    grpc_method: method.name().to_owned(),
                    grpc_service: service.full_name().to_owned(),
                    grpc_type,
                };
                let path = format!("{}/{}", service.full_name(), method.name());
                methods.insert(path, Arc::new(families.method(&called, extensive)));
            }
        }
        let calls = Self {
            methods,
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            extensive,
        };
        families.register(registry, extensive);
        registry.register(
            "etcd_network_client_grpc_received_bytes",
            "Bytes of messages received from clients",
            calls.received_bytes.clone(),
        );
        registry.register(
            "etcd_network_client_grpc_sent_bytes",
            "Bytes of messages sent to clients",
            calls.sent_bytes.clone(),
        );
        calls
    }
}

/// Returns the description of all services. It was compiled with this program.
pub(crate) fn pool() -> DescriptorPool {
    DescriptorPool::decode(proto::DESCRIPTOR_SET)
        .expect("the descriptors were written by the compiler of these very services")
}

struct Families {
    started: Family<Called, Counter>,
    received: Family<Called, Counter>,
    sent: Family<Called, Counter>,
    handled: Family<Handled, Counter>,
    seconds: Family<Called, Histogram, fn() -> Histogram>,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            started: Family::default(),
            received: Family::default(),
            sent: Family::default(),
            handled: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Families {
    fn method(&self, called: &Called, extensive: bool) -> Method {
        let handled = CODES.map(|grpc_code| {
            self.handled.get_or_create_owned(&Handled {
                grpc_code,
                grpc_method: called.grpc_method.clone(),
                grpc_service: called.grpc_service.clone(),
                grpc_type: called.grpc_type,
            })
        });
        Method {
            started: self.started.get_or_create_owned(called),
            received: self.received.get_or_create_owned(called),
            sent: self.sent.get_or_create_owned(called),
            handled: handled.into(),
            seconds: extensive.then(|| self.seconds.get_or_create_owned(called)),
        }
    }

    fn register(self, registry: &mut Registry, extensive: bool) {
        registry.register("grpc_server_started", "Calls begun", self.started);
        registry.register(
            "grpc_server_msg_received",
            "Messages of calls received",
            self.received,
        );
        registry.register("grpc_server_msg_sent", "Messages of calls sent", self.sent);
        registry.register(
            "grpc_server_handled",
            "Calls ended, well or not",
            self.handled,
        );
        if extensive {
            registry.register(
                "grpc_server_handling_seconds",
                "How long calls took",
                self.seconds,
            );
        }
    }
}
