//! Counters under the names Kubernetes' dashboards use.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::api::Api;
use crate::body::{self, BoxBody, BoxError};
use crate::pipeline::Context;
use crate::request_info::{ResourceRequest, Verb};
use crate::storage::{Series, SeriesKind, SeriesValue};

mod sizes;

use sizes::Sizes;
pub(crate) use sizes::WatchEvents;

/// Upstream's bounds of `apiserver_request_duration_seconds`.
const SECONDS: [f64; 24] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0,
];

/// What a request was, for counting. Names come from paths only where a
/// resource is served, so the number of label sets is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    group: String,
    version: String,
    resource: String,
}

/// The server's counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<CodeLabels, Counter>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    long_running: Family<Labels, Gauge>,
    inflight: Gauge,
    watch_events: Family<WatchLabels, Counter>,
    watch_sizes: Family<WatchLabels, Sizes>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let seconds: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let long_running = Family::default();
        let inflight = Gauge::default();
        registry.register("apiserver_request", "Requests served", requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time until the answer is made, long-running requests apart",
            seconds.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Long-running requests in progress",
            long_running.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests in progress that are not long-running",
            inflight.clone(),
        );
        let watch_events = Family::default();
        let watch_sizes = Family::default();
        registry.register(
            "apiserver_watch_events",
            "Events sent to those who watch",
            watch_events.clone(),
        );
        registry.register(
            "apiserver_watch_events_sizes",
            "Their sizes in bytes",
            watch_sizes.clone(),
        );
        Self {
            registry,
            watch_events,
            watch_sizes,
            requests,
            seconds,
            long_running,
            inflight,
        }
    }
}

impl Metrics {
    /// Counts a request in.
    pub(crate) fn begin(&self, api: &Api, cx: &Context, long: bool) -> Running<'_> {
        let labels = labels(api, cx);
        let gauge = match long {
            true => self.long_running.get_or_create(&labels).clone(),
            false => self.inflight.clone(),
        };
        gauge.inc();
        Running {
            metrics: self,
            labels,
            long,
            gauge: Raised(gauge),
        }
    }

    /// Counts the events of a watch of a resource that is served.
    pub(crate) fn watch_events(&self, of: &ResourceRequest) -> WatchEvents {
        let labels = WatchLabels {
            group: of.group.clone(),
            version: of.version.clone(),
            resource: of.resource.clone(),
        };
        let total = self.watch_events.get_or_create(&labels).clone();
        let sizes = self.watch_sizes.get_or_create(&labels).clone();
        WatchEvents::new(total, sizes)
    }

    /// Prints all counters: as OpenMetrics for those who ask for it, else in
    /// Prometheus' older text format, which every scraper reads.
    pub(crate) fn print(&self, api: &Api, cx: &Context) -> Response<BoxBody> {
        let mut out = String::new();
        if text::encode(&mut out, &self.registry).is_err() {
            return body::failure(&meta::Status::internal("cannot encode metrics"));
        }
        // The caches count for themselves; theirs come before the end mark.
        out.truncate(out.trim_end().trim_end_matches("# EOF").len());
        print_caches(&mut out, api);
        out.push_str("# EOF\n");
        const OPEN: &str = "application/openmetrics-text";
        let accept = cx.headers.get(ACCEPT).and_then(|v| v.to_str().ok());
        if accept.is_some_and(|a| a.contains(OPEN)) {
            const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return body::respond(StatusCode::OK, TYPE, out);
        }
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
        body::respond(StatusCode::OK, TYPE, classic(&out))
    }
}

/// Rewrites OpenMetrics in the older text format: there a counter is described
/// under the name of its samples, `…_total`, and nothing marks the end.
fn classic(open: &str) -> String {
    let counters: BTreeSet<&str> = open
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        let described = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                Some(format!("# {what} {name}_total {rest}"))
            }
            _ => None,
        };
        out += described.as_deref().unwrap_or(line);
        out.push('\n');
    }
    out
}

fn print_caches(out: &mut String, api: &Api) {
    let stores = api.stores();
    let labels: Vec<String> = stores
        .iter()
        .map(|s| {
            let of = &s.config().resource;
            format!("group={:?},resource={:?}", of.group, of.resource)
        })
        .collect();
    let rows: Vec<_> = stores.iter().map(|s| s.metrics().series()).collect();
    let Some(first) = rows.first() else {
        return;
    };
    for (i, Series { name, kind, .. }) in first.iter().enumerate() {
        let (kind, family) = match kind {
            SeriesKind::Counter => ("counter", name.trim_end_matches("_total")),
            SeriesKind::Gauge => ("gauge", *name),
            SeriesKind::Histogram => ("histogram", *name),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# TYPE {family} {kind}");
        for (labels, series) in labels.iter().zip(&rows) {
            for (more, value) in &series[i].values {
                let comma = if more.is_empty() { "" } else { "," };
                print_value(out, name, &format!("{labels}{comma}{more}"), *value);
            }
        }
    }
}

fn print_value(out: &mut String, name: &str, labels: &str, value: SeriesValue<'_>) {
    let durations = match value {
        SeriesValue::Number(number) => {
            let _ = writeln!(out, "{name}{{{labels}}} {}", number.get());
            return;
        }
        SeriesValue::Durations(durations) => durations,
    };
    let (kept, count, sum) = durations.read();
    for (bound, n) in kept {
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {n}");
    }
    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum{{{labels}}} {sum:?}");
    let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
}

fn labels(api: &Api, cx: &Context) -> Labels {
    let none = Labels {
        verb: cx.info.verb.metric(),
        group: String::new(),
        version: String::new(),
        resource: String::new(),
        subresource: String::new(),
        scope: "",
    };
    let Some(r) = &cx.info.resource else {
        return none;
    };
    let served = api
        .resources
        .find(&r.group, &r.version, &r.resource)
        .filter(|s| r.subresource.is_empty() || s.kind.subresource(&r.subresource).is_some());
    if served.is_none() {
        return Labels {
            verb: Verb::Other("").metric(),
            ..none
        };
    }
    let scope = match (r.name_in_path, &r.namespace) {
        (true, _) => "resource",
        (false, Some(_)) => "namespace",
        (false, None) => "cluster",
    };
    Labels {
        group: r.group.clone(),
        version: r.version.clone(),
        resource: r.resource.clone(),
        subresource: r.subresource.clone(),
        scope,
        ..none
    }
}

/// A request being counted; lowers its gauge when dropped.
pub(crate) struct Running<'a> {
    metrics: &'a Metrics,
    labels: Labels,
    long: bool,
    gauge: Raised,
}

impl Running<'_> {
    /// Counts the request out: when its body has ended, where that is made as it is sent.
    pub(crate) fn end(self, response: Response<BoxBody>, started: Instant) -> Response<BoxBody> {
        let Self {
            metrics,
            labels,
            long,
            gauge,
        } = self;
        let timed = (!long).then(|| Timed {
            seconds: metrics.seconds.get_or_create(&labels).clone(),
            started,
        });
        let Labels {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
        } = labels;
        let code = response.status().as_u16();
        let labels = CodeLabels {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            code,
        };
        metrics.requests.get_or_create(&labels).inc();
        if !long && response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            Counted {
                body,
                _gauge: gauge,
                _timed: timed,
            }
            .boxed_unsync()
        })
    }
}

/// A gauge that was raised, and is lowered when this is dropped.
struct Raised(Gauge);

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A time that is counted when this is dropped.
struct Timed {
    seconds: Histogram,
    started: Instant,
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

/// A body that is made as it is sent.
struct Counted {
    body: BoxBody,
    _gauge: Raised,
    _timed: Option<Timed>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
