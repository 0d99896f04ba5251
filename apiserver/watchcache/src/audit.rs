//! Is the cache what the store is? Compared key by key from time to time, and
//! said by a digest that people can compare across servers.

use std::time::Duration;

use crate::snapshot::Snapshot;

/// How often a cache is compared with the store at least; up to half as long
/// again, so that not all caches read the store at once (kube-apiserver
/// `cacher/delegator.go`).
pub const AUDIT_EVERY: Duration = Duration::from_secs(300);

/// Returns when the next audit is due, `chance` being at random from 0 to 1.
pub fn next_audit(now: Duration, chance: f64) -> Duration {
    now + AUDIT_EVERY.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 2.0)
}

/// FNV-1a over keys and their revisions, in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, key: &str, revision: u64) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut write = |bytes: &[u8]| {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
        };
        write(key.as_bytes());
        write(b"/");
        write(&revision.to_be_bytes());
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

/// The first key about which cache and store disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// The revision of its state in the cache; `None` if it is not there.
    pub cached: Option<u64>,
    /// The revision of its state in the store; `None` if it is not there.
    pub stored: Option<u64>,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The revision at which both were read.
    pub revision: u64,
    /// The digest of the cache.
    pub cached: u64,
    /// The digest of the store.
    pub stored: u64,
    /// Where they begin to differ; `None` when they are the same.
    pub difference: Option<Difference>,
}

/// A comparison under way, fed with the store's keys page by page.
#[derive(Debug)]
pub struct Audit {
    snapshot: Snapshot,
    /// The first key of the cache that was not compared yet.
    at: String,
    cached: Digest,
    stored: Digest,
    difference: Option<Difference>,
}

impl Audit {
    /// Begins a comparison. The store must be read at the snapshot's revision.
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            at: String::new(),
            cached: Digest::default(),
            stored: Digest::default(),
            difference: None,
        }
    }

    /// Returns the revision at which the store must be read.
    pub fn revision(&self) -> u64 {
        self.snapshot.revision
    }

    /// Tells whether the cache has the key.
    pub fn has(&self, key: &str) -> bool {
        self.snapshot.get(key).is_some()
    }

    /// Takes the store's next key and the revision of its state.
    pub fn stored(&mut self, key: &str, revision: u64) {
        self.stored.add(key, revision);
        self.pass_until(Some(key));
        let cached = self.snapshot.get(key).map(|o| o.resource_version.0);
        if let Some(cached) = cached {
            self.cached.add(key, cached);
        }
        if cached != Some(revision) {
            self.differ(key.to_owned(), cached, Some(revision));
        }
        self.at = format!("{key}\0");
    }

    /// Ends the comparison: the store has no more keys.
    pub fn finish(mut self) -> Verdict {
        self.pass_until(None);
        Verdict {
            revision: self.snapshot.revision,
            cached: self.cached.0,
            stored: self.stored.0,
            difference: self.difference,
        }
    }

    /// Counts what only the cache has, up to a key.
    fn pass_until(&mut self, end: Option<&str>) {
        let mut first = None;
        let at = std::mem::take(&mut self.at);
        for (key, object) in self.snapshot.from_key(&at) {
            if end.is_some_and(|end| **key >= *end) {
                break;
            }
            let revision = object.resource_version.0;
            self.cached.add(key, revision);
            first.get_or_insert_with(|| (key.to_string(), revision));
        }
        if let Some((key, revision)) = first {
            self.differ(key, Some(revision), None);
        }
    }

    fn differ(&mut self, key: String, cached: Option<u64>, stored: Option<u64>) {
        self.difference.get_or_insert(Difference {
            key,
            cached,
            stored,
        });
    }
}
