//! Decides what becomes of an event: a new object, a count, or nothing.
//!
//! Three rules of client-go's `EventCorrelator`, in order: an object may cause a
//! burst of 25 events and then one each five minutes; ten different messages of the
//! same reason within ten minutes become one "combined" event; an identical event
//! counts up the one written before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::EventType;

/// Bounds each table; beyond it the entry unused for longest is forgotten, which
/// only means that the next such event is written anew.
pub const CACHE_ENTRIES_MAX: usize = 4096;
/// Is how many events one object may cause at once.
const SPAM_BURST: f64 = 25.0;
/// Is how many events a second one object may cause in the long run.
const SPAM_QPS: f64 = 1.0 / 300.0;
/// Is how many different messages are kept apart.
const SIMILAR_MAX: usize = 10;
/// Is the time without a similar event after which counting starts over.
const SIMILAR_INTERVAL: Duration = Duration::from_secs(600);
const COMBINED_PREFIX: &str = "(combined from similar events): ";

/// Is what makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey {
    /// Identifies the object.
    pub about: String,
    /// Is the type.
    pub type_: EventType,
    /// Is the reason.
    pub reason: String,
    /// Is the message.
    pub message: String,
}

/// Is an event with what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correlated {
    /// Identifies the object it is written as: the event's own, or its group's.
    pub identity: EventKey,
    /// Is what becomes of it.
    pub decision: Decision,
}

/// Is what becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write a new object with this message.
    Create {
        /// Is the message, which may say that it stands for several.
        message: String,
    },
    /// Count up the object of this name.
    Count {
        /// Is the object's name.
        name: String,
        /// Is the new count.
        count: u32,
        /// Is the message of the newest.
        message: String,
    },
    /// Write nothing: the object causes too many events.
    Drop,
}

/// Remembers recent events.
#[derive(Debug, Default)]
pub struct Correlator {
    buckets: BTreeMap<String, Bucket>,
    similar: BTreeMap<EventKey, Similar>,
    written: BTreeMap<EventKey, Written>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

#[derive(Debug, Default)]
struct Similar {
    messages: BTreeSet<String>,
    at: Duration,
}

#[derive(Debug)]
struct Written {
    name: Option<String>,
    count: u32,
    at: Duration,
}

impl Correlator {
    /// Decides, and remembers the event.
    pub fn correlate(&mut self, key: &EventKey, now: Duration) -> Correlated {
        if self.is_spam(&key.about, now) {
            return Correlated {
                identity: key.clone(),
                decision: Decision::Drop,
            };
        }
        let combined = self.combine(key, now);
        let (identity, message) = match combined {
            true => (group(key), format!("{COMBINED_PREFIX}{}", key.message)),
            false => (key.clone(), key.message.clone()),
        };
        make_room(&mut self.written, |w| w.at);
        let fresh = Written {
            name: None,
            count: 0,
            at: now,
        };
        let written = self.written.entry(identity.clone()).or_insert(fresh);
        written.count = written.count.saturating_add(1);
        written.at = now;
        let decision = match &written.name {
            Some(name) => Decision::Count {
                name: name.clone(),
                count: written.count,
                message,
            },
            None => Decision::Create { message },
        };
        Correlated { identity, decision }
    }

    /// Notes the name under which an event was written.
    pub fn written(&mut self, identity: &EventKey, name: &str) {
        if let Some(written) = self.written.get_mut(identity) {
            written.name = Some(name.to_owned());
        }
    }

    fn is_spam(&mut self, about: &str, now: Duration) -> bool {
        make_room(&mut self.buckets, |b| b.at);
        let bucket = self.buckets.entry(about.to_owned()).or_insert(Bucket {
            tokens: SPAM_BURST,
            at: now,
        });
        let elapsed = now.saturating_sub(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * SPAM_QPS).min(SPAM_BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return true;
        }
        bucket.tokens -= 1.0;
        false
    }

    /// Tells whether the event stands for a group of similar ones.
    fn combine(&mut self, key: &EventKey, now: Duration) -> bool {
        make_room(&mut self.similar, |s| s.at);
        let similar = self.similar.entry(group(key)).or_default();
        if now.saturating_sub(similar.at) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.at = now;
        if similar.messages.contains(&key.message) {
            return false;
        }
        if similar.messages.len() + 1 >= SIMILAR_MAX {
            return true;
        }
        similar.messages.insert(key.message.clone());
        false
    }
}

fn group(key: &EventKey) -> EventKey {
    EventKey {
        message: String::new(),
        ..key.clone()
    }
}

/// Forgets the oldest entry of a full table.
fn make_room<K: Ord + Clone, V>(table: &mut BTreeMap<K, V>, at: impl Fn(&V) -> Duration) {
    if table.len() < CACHE_ENTRIES_MAX {
        return;
    }
    let oldest = table
        .iter()
        .min_by_key(|(_, v)| at(v))
        .map(|(k, _)| k.clone());
    if let Some(key) = oldest {
        table.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(message: &str) -> EventKey {
        EventKey {
            about: "pod".into(),
            type_: EventType::Normal,
            reason: "Pulled".into(),
            message: message.into(),
        }
    }

    const T0: Duration = Duration::ZERO;

    fn create(message: &str) -> Decision {
        Decision::Create {
            message: message.into(),
        }
    }

    /// Correlates and, if it is to be created, notes it as written under `name`.
    fn record(c: &mut Correlator, message: &str, name: &str, now: Duration) -> Decision {
        let correlated = c.correlate(&key(message), now);
        if matches!(correlated.decision, Decision::Create { .. }) {
            c.written(&correlated.identity, name);
        }
        correlated.decision
    }

    #[test]
    fn identical_events_are_counted() {
        let mut c = Correlator::default();
        assert_eq!(record(&mut c, "m", "pod.1", T0), create("m"));
        for count in 2..4 {
            assert_eq!(
                record(&mut c, "m", "unused", T0),
                Decision::Count {
                    name: "pod.1".into(),
                    count,
                    message: "m".into()
                }
            );
        }
        assert_eq!(record(&mut c, "other", "pod.2", T0), create("other"));
    }

    #[test]
    fn similar_events_are_combined() {
        let mut c = Correlator::default();
        for i in 0..9 {
            let message = format!("m{i}");
            assert_eq!(record(&mut c, &message, &message, T0), create(&message));
        }
        let combined = "(combined from similar events): m9";
        assert_eq!(record(&mut c, "m9", "all", T0), create(combined));
        assert_eq!(
            record(&mut c, "m10", "unused", T0),
            Decision::Count {
                name: "all".into(),
                count: 2,
                message: "(combined from similar events): m10".into()
            }
        );
        // One that is known by itself is still counted by itself.
        assert_eq!(
            record(&mut c, "m3", "unused", T0),
            Decision::Count {
                name: "m3".into(),
                count: 2,
                message: "m3".into()
            }
        );
        // After a quiet time they are told apart again.
        let later = SIMILAR_INTERVAL + Duration::from_secs(1);
        assert_eq!(record(&mut c, "m11", "m11", later), create("m11"));
    }

    #[test]
    fn an_object_cannot_flood() {
        let mut c = Correlator::default();
        let mut dropped = 0;
        for _ in 0..30 {
            dropped += usize::from(record(&mut c, "m", "n", T0) == Decision::Drop);
        }
        assert_eq!(dropped, 5);
        assert_ne!(
            record(&mut c, "m", "n", Duration::from_secs(301)),
            Decision::Drop
        );
        let other = EventKey {
            about: "other".into(),
            ..key("m")
        };
        assert_eq!(c.correlate(&other, T0).decision, create("m"));
    }
}
