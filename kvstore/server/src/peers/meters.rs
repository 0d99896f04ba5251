//! The numbers of the network between members, under etcd's names
//! (server/etcdserver/api/rafthttp/metrics.go).

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

type Ends = [(&'static str, String); 2];
type Peer = [(&'static str, String); 1];

/// How long something took, by peer.
type Seconds = Family<Peer, Histogram, fn() -> Histogram>;

/// The families, for all peers.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    active: Family<Ends, Gauge>,
    disconnected: Family<Ends, Counter>,
    sent_bytes: Family<Peer, Counter>,
    received_bytes: Family<Peer, Counter>,
    sent_failures: Family<Peer, Counter>,
    received_failures: Family<Peer, Counter>,
    round_trip: Seconds,
    snapshots_sending: Family<Peer, Gauge>,
    snapshots_sent: Family<Peer, Gauge>,
    snapshots_not_sent: Family<Peer, Gauge>,
    snapshot_sending: Seconds,
    snapshots_receiving: Family<Peer, Gauge>,
    snapshots_received: Family<Peer, Gauge>,
    snapshots_not_received: Family<Peer, Gauge>,
    snapshot_receiving: Seconds,
}

/// The numbers of one peer.
#[derive(Clone, Debug)]
pub(super) struct PeerMeters {
    pub(super) active: Gauge,
    pub(super) disconnected: Counter,
    pub(super) sent_bytes: Counter,
    pub(super) received_bytes: Counter,
    pub(super) sent_failures: Counter,
    pub(super) received_failures: Counter,
    pub(super) round_trip: Histogram,
    pub(super) sending: Stream,
    pub(super) receiving: Stream,
}

/// The numbers of snapshots in one direction.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Under way.
    pub(super) open: Gauge,
    /// Arrived and installed.
    pub(super) done: Gauge,
    /// Given up.
    pub(super) failed: Gauge,
    /// How long those took that were installed.
    pub(super) seconds: Histogram,
}

impl Default for Meters {
    fn default() -> Self {
        // etcd: 0.1 ms to 3.3 s.
        let round_trip: fn() -> Histogram =
            || Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        // etcd: 0.1 s to 51.2 s.
        let snapshot: fn() -> Histogram = || Histogram::new(exponential_buckets(0.1, 2.0, 10));
        Self {
            active: Family::default(),
            disconnected: Family::default(),
            sent_bytes: Family::default(),
            received_bytes: Family::default(),
            sent_failures: Family::default(),
            received_failures: Family::default(),
            round_trip: Family::new_with_constructor(round_trip),
            snapshots_sending: Family::default(),
            snapshots_sent: Family::default(),
            snapshots_not_sent: Family::default(),
            snapshot_sending: Family::new_with_constructor(snapshot),
            snapshots_receiving: Family::default(),
            snapshots_received: Family::default(),
            snapshots_not_received: Family::default(),
            snapshot_receiving: Family::new_with_constructor(snapshot),
        }
    }
}

impl Meters {
    /// Makes the families and has them written with the others. Those counters that
    /// have no `_total` at etcd are gauges to the registry.
    #[rustfmt::skip]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let one = all.clone();
        registry.register("etcd_network_active_peers", "Links to peers that are up", one.active);
        registry.register("etcd_network_disconnected_peers", "Links to peers that went down", one.disconnected);
        registry.register("etcd_network_peer_sent_bytes", "Bytes of notes sent to peers", one.sent_bytes);
        registry.register("etcd_network_peer_received_bytes", "Bytes of notes received from peers", one.received_bytes);
        registry.register("etcd_network_peer_sent_failures", "Notes to peers that were dropped", one.sent_failures);
        registry.register("etcd_network_peer_received_failures", "Links from peers that ended in an error", one.received_failures);
        registry.register("etcd_network_peer_round_trip_time_seconds", "Time to a peer and back", one.round_trip);
        registry.register("etcd_network_snapshot_send_inflights_total", "Snapshots on their way to peers", one.snapshots_sending);
        registry.register("etcd_network_snapshot_send_success", "Snapshots that peers have installed", one.snapshots_sent);
        registry.register("etcd_network_snapshot_send_failures", "Snapshots that peers have not installed", one.snapshots_not_sent);
        registry.register("etcd_network_snapshot_send_total_duration_seconds", "Time until a peer had installed a snapshot", one.snapshot_sending);
        registry.register("etcd_network_snapshot_receive_inflights_total", "Snapshots on their way from peers", one.snapshots_receiving);
        registry.register("etcd_network_snapshot_receive_success", "Snapshots installed", one.snapshots_received);
        registry.register("etcd_network_snapshot_receive_failures", "Snapshots from peers that were not installed", one.snapshots_not_received);
        registry.register("etcd_network_snapshot_receive_total_duration_seconds", "Time until a snapshot was installed", one.snapshot_receiving);
        all
    }

    /// Returns the numbers of one peer.
    pub(super) fn of(&self, local: u64, peer: u64) -> PeerMeters {
        let name = format!("{peer:x}");
        let ends = [("Local", format!("{local:x}")), ("Remote", name.clone())];
        let (to, from) = ([("To", name.clone())], [("From", name)]);
        PeerMeters {
            active: self.active.get_or_create_owned(&ends),
            disconnected: self.disconnected.get_or_create_owned(&ends),
            sent_bytes: self.sent_bytes.get_or_create_owned(&to),
            received_bytes: self.received_bytes.get_or_create_owned(&from),
            sent_failures: self.sent_failures.get_or_create_owned(&to),
            received_failures: self.received_failures.get_or_create_owned(&from),
            round_trip: self.round_trip.get_or_create_owned(&to),
            sending: Stream {
                open: self.snapshots_sending.get_or_create_owned(&to),
                done: self.snapshots_sent.get_or_create_owned(&to),
                failed: self.snapshots_not_sent.get_or_create_owned(&to),
                seconds: self.snapshot_sending.get_or_create_owned(&to),
            },
            receiving: Stream {
                open: self.snapshots_receiving.get_or_create_owned(&from),
                done: self.snapshots_received.get_or_create_owned(&from),
                failed: self.snapshots_not_received.get_or_create_owned(&from),
                seconds: self.snapshot_receiving.get_or_create_owned(&from),
            },
        }
    }
}

impl Stream {
    /// Counts a snapshot from now on until the result is dropped.
    pub(super) fn begin(&self) -> UnderWay {
        self.open.inc();
        UnderWay {
            stream: self.clone(),
            began: std::time::Instant::now(),
            done: false,
        }
    }
}

/// A snapshot that is counted; failed unless [`UnderWay::done`] is called.
#[derive(Debug)]
pub(super) struct UnderWay {
    stream: Stream,
    began: std::time::Instant,
    done: bool,
}

impl UnderWay {
    /// Notes that it was installed.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.stream.open.dec();
        match self.done {
            true => {
                self.stream.done.inc();
                let seconds = self.began.elapsed().as_secs_f64();
                self.stream.seconds.observe(seconds);
            }
            false => drop(self.stream.failed.inc()),
        }
    }
}
