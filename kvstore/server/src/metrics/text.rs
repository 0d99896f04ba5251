//! The page of `/metrics`, in the format that etcd's clients scrape: Prometheus text
//! 0.0.4, families in order of their names.
//!
//! The registry writes OpenMetrics, where a counter's family has no `_total`. etcd's
//! families do, and a few of its counters have no `_total` at all.

use std::{collections::BTreeMap, fmt::Write as _};

use http::HeaderValue;
use prometheus_client::encoding::text::encode;

use super::{Metrics, process::Process};
use crate::handle::Handle;

/// The content type of the page.
pub(crate) const KIND: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Counters whose name is not the registry's for a counter, or whose value is read
/// from elsewhere. They are gauges there.
const COUNTERS: [&str; 8] = [
    "etcd_debugging_mvcc_db_compaction_keys_total",
    "etcd_network_snapshot_receive_failures",
    "etcd_network_snapshot_receive_success",
    "etcd_network_snapshot_send_failures",
    "etcd_network_snapshot_send_success",
    "etcd_server_health_failures",
    "etcd_server_health_success",
    "process_cpu_seconds_total",
];

/// Writes all numbers of a member.
pub(crate) fn page(handle: &Handle) -> String {
    let metrics = &handle.shared.metrics;
    ask_process(metrics);
    ask_member(metrics, handle);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _infallible = encode(&mut text, &metrics.registry);
    classic(&text)
}

fn ask_process(metrics: &Metrics) {
    let process = Process::read();
    metrics.resident_bytes.set(process.resident_bytes);
    metrics.virtual_bytes.set(process.virtual_bytes);
    metrics.cpu_seconds.set(process.cpu_seconds);
    metrics.start_time.set(process.started);
    metrics.open_fds.set(process.fds_open);
    metrics.max_fds.set(process.fds_max);
    metrics.os_fd_used.set(process.fds_open);
    metrics.os_fd_limit.set(process.fds_max);
}

fn ask_member(metrics: &Metrics, handle: &Handle) {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let on_disk = handle.rows_on_disk();
    // On a member that is stopping the last numbers stay.
    let _stopped = handle.shared.with(|core| {
        let (size, in_use) = crate::handle::sizes(&core.machine, on_disk);
        metrics.db_size.set(signed(size));
        metrics.db_size_in_use.set(signed(in_use));
        metrics.keys.set(signed(core.machine.key_count()));
        metrics.current_revision.set(core.machine.revision());
        metrics
            .compact_revision
            .set(core.machine.compact_revision());
        metrics
            .auth_revision
            .set(signed(core.machine.auth().revision()));
        metrics
            .compacted_keys
            .set(signed(core.machine.compacted_keys()));
        metrics
            .proposals_committed
            .set(signed(core.member.commit_index()));
        metrics
            .proposals_applied
            .set(signed(core.machine.applied_index()));
        metrics.watchers.set(count(core.hub.watcher_count()));
        metrics.slow_watchers.set(count(core.hub.unsynced_count()));
        metrics.watch_streams.set(count(core.hub.stream_count()));
        metrics.pending_events.set(count(core.hub.pending_count()));
    });
}

/// Turns OpenMetrics into the older format.
fn classic(text: &str) -> String {
    let mut families: BTreeMap<String, (String, &str, Vec<&str>)> = BTreeMap::new();
    let mut help = "";
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            family = match kind {
                "counter" => format!("{name}_total"),
                _ => name.to_owned(),
            };
            let kind = if COUNTERS.contains(&name) {
                "counter"
            } else {
                kind
            };
            families.insert(family.clone(), (help.to_owned(), kind, Vec::new()));
        } else if !line.starts_with('#')
            && let Some((_, _, samples)) = families.get_mut(&family)
        {
            samples.push(line);
        }
    }
    let mut page = String::with_capacity(text.len());
    for (name, (help, kind, mut samples)) in families {
        // Writing to a String cannot fail.
        let _infallible = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        if kind != "histogram" {
            // The registry's order is that of a hash.
            samples.sort_unstable();
        }
        for sample in samples {
            match kind {
                "histogram" => page.push_str(&whole_bounds(sample)),
                _ => page.push_str(sample),
            }
            page.push('\n');
        }
    }
    page
}

/// Writes a bound that is a whole number as Go does: dashboards name `le="1"`.
fn whole_bounds(sample: &str) -> String {
    sample.replace(".0\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_has_etcds_names_and_bounds() {
        let open = "# HELP b_things Things.\n# TYPE b_things counter\n\
                    b_things_total{k=\"2\"} 2\nb_things_total{k=\"1\"} 1\n\
                    # HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
                    a_seconds_bucket{le=\"1.0\"} 0\na_seconds_bucket{le=\"+Inf\"} 0\n\
                    # HELP etcd_server_health_success Well.\n\
                    # TYPE etcd_server_health_success gauge\netcd_server_health_success 3\n# EOF\n";
        let expected = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
                        a_seconds_bucket{le=\"1\"} 0\na_seconds_bucket{le=\"+Inf\"} 0\n\
                        # HELP b_things_total Things.\n# TYPE b_things_total counter\n\
                        b_things_total{k=\"1\"} 1\nb_things_total{k=\"2\"} 2\n\
                        # HELP etcd_server_health_success Well.\n\
                        # TYPE etcd_server_health_success counter\netcd_server_health_success 3\n";
        assert_eq!(classic(open), expected);
    }
}
