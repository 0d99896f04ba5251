//! Flags of plain HTTP: the JSON gateway, metrics, profiling.

use super::flag::{Flag, Kind, Values};
use crate::config::{Config, StartError};

const NO_TRACING: &str = "requests are not traced to a collector";

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "listen-metrics-urls",
        Kind::List,
        "",
        "List of URLs to listen on for the /metrics and /health endpoints. For https, the client TLS files are used.",
    ),
    Flag::new(
        "metrics",
        Kind::Choice(&["basic", "extensive"]),
        "basic",
        "Level of detail of metrics; 'extensive' adds histograms of calls.",
    ),
    Flag::new(
        "enable-pprof",
        Kind::Bool,
        "false",
        "Serve runtime profiles at /debug/pprof/.",
    )
    .nothing("there is no Go runtime to profile"),
    Flag::new(
        "enable-grpc-gateway",
        Kind::Bool,
        "true",
        "Serve the JSON gateway at /v3/.",
    ),
    Flag::new(
        "cors",
        Kind::List,
        "*",
        "Comma-separated origins allowed by CORS (empty or * means all).",
    ),
    Flag::new(
        "host-whitelist",
        Kind::List,
        "*",
        "Comma-separated hostnames accepted from HTTP clients without TLS (empty or * means all).",
    ),
    Flag::new(
        "enable-distributed-tracing",
        Kind::Bool,
        "false",
        "Enable distributed tracing.",
    )
    .old("experimental-enable-distributed-tracing")
    .nothing(NO_TRACING),
    Flag::new(
        "distributed-tracing-address",
        Kind::Text,
        "localhost:4317",
        "Address of the collector.",
    )
    .old("experimental-distributed-tracing-address")
    .nothing(NO_TRACING),
    Flag::new(
        "distributed-tracing-service-name",
        Kind::Text,
        "etcd",
        "Name of the service.",
    )
    .old("experimental-distributed-tracing-service-name")
    .nothing(NO_TRACING),
    Flag::new(
        "distributed-tracing-instance-id",
        Kind::Text,
        "",
        "Name of the instance.",
    )
    .old("experimental-distributed-tracing-instance-id")
    .nothing(NO_TRACING),
    Flag::new(
        "distributed-tracing-sampling-rate",
        Kind::Count,
        "0",
        "Samples per million spans.",
    )
    .old("experimental-distributed-tracing-sampling-rate")
    .nothing(NO_TRACING),
];

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    _notes: &mut Vec<String>,
) -> Result<(), StartError> {
    config.listen_metrics_urls = values.list("listen-metrics-urls");
    config.extensive_metrics = values.text("metrics") == "extensive";
    config.enable_grpc_gateway = values.boolean("enable-grpc-gateway");
    config.cors = values.list("cors");
    config.host_whitelist = values.list("host-whitelist");
    Ok(())
}
