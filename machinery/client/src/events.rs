//! Records what happened to an object, for `kubectl describe` and `get events`.
//!
//! Recording never blocks and never fails: events go into a bounded queue and one
//! task writes them. [`correlator`] decides, purely, whether an event is written as a
//! new object, counted up on the one written before, or dropped as spam.

pub mod correlator;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use self::correlator::{Correlated, Correlator, Decision, EventKey};
use crate::client::Client;
use crate::client::params::Patch;
use crate::error::{Error, Result};
use crate::resource::{StaticResource, object_reference};

/// Bounds the queue; beyond it the oldest event is dropped and counted.
pub const QUEUE_EVENTS_MAX: usize = 1000;
/// Is how often writing one event is tried (client-go: 12).
const WRITE_ATTEMPTS: u32 = 12;
/// Is the wait before trying again; an apiserver that restarts is back by then.
const WRITE_RETRY: Duration = Duration::from_secs(10);
/// Bounds the message, as the API server does; a longer one is cut.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Says whether an event tells of normal progress or of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Tells of normal progress.
    Normal,
    /// Tells of trouble.
    Warning,
}

impl EventType {
    /// Returns the text in the event's `type` field.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// Takes events of one component. A clone feeds the same queue.
pub struct EventRecorder {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<VecDeque<Recorded>>,
    /// Counts the recorders that can still feed the queue.
    recorders: AtomicUsize,
    wake: Notify,
    dropped: AtomicU64,
    unwritten: AtomicU64,
}

struct Recorded {
    about: ObjectReference,
    type_: EventType,
    reason: String,
    message: String,
    at: Timestamp,
}

impl EventRecorder {
    /// Builds a recorder and starts the task that writes; it ends when the last clone
    /// of the recorder is dropped and the queue is empty.
    ///
    /// `component` names the source (`kubelet`, `default-scheduler`), `host` the node
    /// it runs on, if that matters.
    pub fn new(client: Client, component: &str, host: Option<&str>) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(VecDeque::new()),
            recorders: AtomicUsize::new(1),
            wake: Notify::new(),
            dropped: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        });
        let writer = Writer {
            client,
            component: component.to_owned(),
            host: host.map(str::to_owned),
            correlator: Correlator::default(),
            origin: Instant::now(),
        };
        tokio::spawn(writer.run(Arc::clone(&shared)));
        Self { shared }
    }

    /// Records an event about the object a reference names.
    pub fn event(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let recorded = Recorded {
            about: about.clone(),
            type_,
            reason: reason.into(),
            message: cut(message.into()),
            at: Timestamp::now(),
        };
        let mut queue = self.shared.lock();
        if queue.len() >= QUEUE_EVENTS_MAX {
            queue.pop_front();
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        queue.push_back(recorded);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Records an event about an object.
    pub fn record<T: StaticResource>(
        &self,
        object: &T,
        type_: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.event(&object_reference(object), type_, reason, message);
    }

    /// Returns how many events were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many events are queued or being written.
    pub fn unwritten(&self) -> u64 {
        self.shared.unwritten.load(Ordering::Relaxed)
    }
}

impl Clone for EventRecorder {
    fn clone(&self) -> Self {
        self.shared.recorders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for EventRecorder {
    fn drop(&mut self) {
        if self.shared.recorders.fetch_sub(1, Ordering::Release) == 1 {
            self.shared.wake.notify_one();
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("queued", &self.shared.lock().len())
            .finish()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Recorded>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts at a character, not inside one.
fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX)
            .rev()
            .find(|&i| message.is_char_boundary(i));
        message.truncate(end.unwrap_or(0));
    }
    message
}

struct Writer {
    client: Client,
    component: String,
    host: Option<String>,
    correlator: Correlator,
    origin: Instant,
}

impl Writer {
    async fn run(mut self, shared: Arc<Shared>) {
        loop {
            let next = shared.lock().pop_front();
            match next {
                Some(recorded) => {
                    self.write(recorded).await;
                    shared.unwritten.fetch_sub(1, Ordering::Relaxed);
                }
                None if shared.recorders.load(Ordering::Acquire) == 0 => return,
                None => shared.wake.notified().await,
            }
        }
    }

    async fn write(&mut self, recorded: Recorded) {
        let key = EventKey {
            about: key_of(&recorded.about),
            type_: recorded.type_,
            reason: recorded.reason.clone(),
            message: recorded.message.clone(),
        };
        let correlated = self.correlator.correlate(&key, self.origin.elapsed());
        for _ in 0..WRITE_ATTEMPTS {
            match self.attempt(&recorded, &correlated).await {
                Ok(()) => return,
                // The server understood and refused (a namespace that goes away, an
                // object that is not valid): trying again changes nothing.
                Err(error @ Error::Api(_))
                    if !error.is_too_many_requests() && error.code() < Some(500) =>
                {
                    return tracing::debug!(%error, reason = recorded.reason, "event refused");
                }
                Err(error) => tracing::debug!(%error, "cannot write an event"),
            }
            sleep(WRITE_RETRY).await;
        }
        tracing::warn!(reason = recorded.reason, "event given up");
    }

    async fn attempt(&mut self, recorded: &Recorded, correlated: &Correlated) -> Result<()> {
        let ns = recorded.about.namespace.as_deref().unwrap_or("default");
        let key = &correlated.identity;
        match &correlated.decision {
            Decision::Drop => Ok(()),
            Decision::Count {
                name,
                count,
                message,
            } => {
                let patch = Patch::Merge(json!({
                    "count": count,
                    "message": message,
                    "lastTimestamp": Time(recorded.at),
                }));
                match self.client.patch::<Event>(Some(ns), name, &patch).await {
                    Ok(_) => Ok(()),
                    // It has expired meanwhile: write it anew, with its count.
                    Err(error) if error.is_not_found() => {
                        self.create(recorded, ns, key, *count, message).await
                    }
                    Err(error) => Err(error),
                }
            }
            Decision::Create { message } => self.create(recorded, ns, key, 1, message).await,
        }
    }

    async fn create(
        &mut self,
        recorded: &Recorded,
        ns: &str,
        key: &EventKey,
        count: u32,
        message: &str,
    ) -> Result<()> {
        let event = self.event(recorded, ns, count, message);
        let name = event.metadata.name.clone().unwrap_or_default();
        match self.client.create(Some(ns), &event).await {
            // It exists because an earlier attempt arrived although its answer did not.
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        self.correlator.written(key, &name);
        Ok(())
    }

    fn event(&self, recorded: &Recorded, ns: &str, count: u32, message: &str) -> Event {
        let at = Time(recorded.at);
        let object = recorded.about.name.as_deref().unwrap_or_default();
        let mut event = Event {
            involved_object: recorded.about.clone(),
            type_: Some(recorded.type_.as_str().to_owned()),
            reason: Some(recorded.reason.clone()),
            message: Some(message.to_owned()),
            count: i32::try_from(count).ok(),
            first_timestamp: Some(at.clone()),
            last_timestamp: Some(at),
            event_time: None::<MicroTime>,
            reporting_component: Some(self.component.clone()),
            reporting_instance: self.host.clone(),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: self.host.clone(),
            }),
            ..Event::default()
        };
        // As client-go names events: the object, then the time in nanoseconds.
        let nanos = recorded.at.as_nanosecond();
        event.metadata.name = Some(format!("{object}.{nanos:x}"));
        event.metadata.namespace = Some(ns.to_owned());
        event
    }
}

fn key_of(about: &ObjectReference) -> String {
    let parts = [
        &about.api_version,
        &about.kind,
        &about.namespace,
        &about.name,
        &about.uid,
        &about.field_path,
    ];
    parts
        .map(|part| part.as_deref().unwrap_or_default())
        .join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_between_characters() {
        let long = cut("ü".repeat(2000));
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.ends_with('ü'));
        assert_eq!(cut("short".into()), "short");
    }
}
