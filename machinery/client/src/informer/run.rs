//! The asynchronous shell of an informer: performs what the reflector decides.

use std::sync::Arc;

use futures::StreamExt;
use tokio::time::Instant;

use super::Shared;
use crate::client::params::{ListParams, WatchParams};
use crate::error::Error;
use crate::reflector::{Action, Failure, Input, Reflector};
use crate::resource::KubeObject;
use crate::watch::{WatchEvent, WatchStream};

impl<T: KubeObject> Shared<T> {
    /// Runs the reflector; never returns.
    pub(super) async fn reflect(&self) {
        let origin = Instant::now();
        let mut reflector: Reflector<Arc<T>> = Reflector::new();
        let mut watch = None;
        let mut input = Input::Start;
        loop {
            let step = reflector.step(input, origin.elapsed(), rand::random());
            self.take_over(step.deliver, reflector.resource_version());
            input = match step.action {
                Action::Continue => next_input(&mut watch).await,
                Action::List {
                    resource_version,
                    limit,
                    page,
                } => {
                    watch = None;
                    self.list(resource_version, limit, page).await
                }
                Action::Watch {
                    resource_version,
                    timeout_seconds,
                } => match self.open(resource_version, timeout_seconds).await {
                    Ok(stream) => {
                        watch = Some(stream);
                        next_input(&mut watch).await
                    }
                    Err(error) => Input::WatchFailed(self.explain("watch", &error)),
                },
                Action::Wait(wait) => {
                    watch = None;
                    tokio::time::sleep(wait).await;
                    Input::TimerFired
                }
            };
        }
    }

    /// Hands out resyncs when they are due; never returns, and sleeps for good while
    /// no handler wants one.
    pub(super) async fn resync_loop(&self) {
        loop {
            let changed = self.resync_changed.notified();
            match self.next_resync() {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(due) => self.resync(Instant::now()),
                },
            }
        }
    }

    async fn list(
        &self,
        resource_version: String,
        limit: Option<u32>,
        page: Option<String>,
    ) -> Input<Arc<T>> {
        let params = ListParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            limit,
            continue_: page,
            resource_version: Some(resource_version).filter(|rv| !rv.is_empty()),
            resource_version_match: None,
        };
        match self
            .api
            .list(self.options.namespace.as_deref(), &params)
            .await
        {
            Ok(list) => Input::Listed {
                resource_version: list.resource_version().to_owned(),
                next_page: list.next_page().map(str::to_owned),
                items: list.items.into_iter().map(slim).collect(),
            },
            Err(error) => Input::ListFailed(self.explain("list", &error)),
        }
    }

    async fn open(
        &self,
        resource_version: String,
        timeout_seconds: u32,
    ) -> Result<WatchStream<T>, Error> {
        let params = WatchParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            resource_version: Some(resource_version).filter(|rv| !rv.is_empty()),
            allow_bookmarks: true,
            timeout_seconds: Some(timeout_seconds),
        };
        self.api
            .watch(self.options.namespace.as_deref(), &params)
            .await
    }

    fn explain(&self, what: &str, error: &Error) -> Failure {
        let resource = self.api.resource_ref();
        let failure = Failure::from(error);
        match failure {
            Failure::Other | Failure::Internal => {
                tracing::warn!(%resource, %error, "{what} failed");
            }
            _ => tracing::debug!(%resource, %error, "{what} failed"),
        }
        failure
    }
}

/// Reads the watch up to the next event that means something.
async fn next_input<T: KubeObject>(watch: &mut Option<WatchStream<T>>) -> Input<Arc<T>> {
    let Some(stream) = watch else {
        return Input::WatchClosed;
    };
    loop {
        match stream.next().await {
            Some(Ok(event)) => return input_of(event),
            // The object cannot be read; the others can.
            Some(Err(error @ Error::Decode(_))) => tracing::warn!(%error, "watch event dropped"),
            // Broken off in the middle: what was read is good, so go on from there.
            Some(Err(error)) => {
                tracing::debug!(%error, "watch broke off");
                return Input::WatchClosed;
            }
            None => return Input::WatchClosed,
        }
    }
}

fn input_of<T: KubeObject>(event: WatchEvent<T>) -> Input<Arc<T>> {
    let (event, resource_version) = match event {
        WatchEvent::Added(object) => with_version(object, WatchEvent::Added),
        WatchEvent::Modified(object) => with_version(object, WatchEvent::Modified),
        WatchEvent::Deleted(object) => with_version(object, WatchEvent::Deleted),
        WatchEvent::Bookmark {
            resource_version,
            initial_events_end,
        } => {
            let version = resource_version.clone();
            (
                WatchEvent::Bookmark {
                    resource_version,
                    initial_events_end,
                },
                version,
            )
        }
        WatchEvent::Error(status) => {
            tracing::debug!(message = status.message, "watch ended by the server");
            return Input::WatchFailed(Failure::from(&Error::Api(status)));
        }
    };
    Input::Event {
        event,
        resource_version,
    }
}

fn with_version<T: KubeObject>(
    object: T,
    kind: fn(Arc<T>) -> WatchEvent<Arc<T>>,
) -> (WatchEvent<Arc<T>>, String) {
    let version = object.resource_version().to_owned();
    (kind(slim(object)), version)
}

/// Drops what no controller reads and what often is most of an object. A missing
/// `managedFields` in an update means "keep", so writing such an object is safe.
fn slim<T: KubeObject>(mut object: T) -> Arc<T> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}
