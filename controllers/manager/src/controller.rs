//! What a controller is, and the one loop that drives every controller.
//!
//! A controller is a name, a few sources whose changes become keys, and a
//! function that brings one key's object in line. Handlers only enqueue keys; the
//! loop takes a key, reconciles it, and puts it back later if that failed: sooner
//! at first, then ever later. A key is never worked on twice at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Error, InformerEvent, ObjectKey, WorkQueue};
use futures::future::{BoxFuture, join_all};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::world::Cache;

/// Is when to look at a key again although nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    Done,
    /// After this long at the latest.
    After(SignedDuration),
}

impl From<Option<SignedDuration>> for Requeue {
    fn from(after: Option<SignedDuration>) -> Self {
        after.map_or(Self::Done, Self::After)
    }
}

/// Brings one key's object in line with what it should be.
#[async_trait]
pub trait Reconcile: Send + Sync {
    /// Reads everything anew and acts on the difference. May be called at any
    /// time, with nothing to do, and again after it failed anywhere.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error>;
}

/// Takes a key to be worked on.
pub type Enqueue = Arc<dyn Fn(ObjectKey) + Send + Sync>;

type Subscribe = Box<dyn FnOnce(Enqueue) + Send>;
type Background = Box<dyn FnOnce(Enqueue, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Describes a controller.
pub struct Controller {
    /// Is the name it is selected and logged by.
    pub name: &'static str,
    workers: usize,
    reconciler: Arc<dyn Reconcile>,
    sources: Vec<Subscribe>,
    background: Option<Background>,
}

impl Controller {
    /// Describes a controller without sources. At most `workers` keys are worked
    /// on at a time; the others wait in the queue.
    pub fn new(name: &'static str, workers: usize, reconciler: Arc<dyn Reconcile>) -> Self {
        Self {
            name,
            workers,
            reconciler,
            sources: Vec::new(),
            background: None,
        }
    }

    /// Adds a source: every change of the cache makes the keys that `keys` names.
    #[must_use]
    pub fn watch<T: 'static, K>(
        mut self,
        cache: &Cache<T>,
        keys: impl Fn(&InformerEvent<T>) -> K + Send + Sync + 'static,
    ) -> Self
    where
        K: IntoIterator<Item = ObjectKey>,
    {
        let cache = Arc::clone(cache);
        self.sources.push(Box::new(move |enqueue: Enqueue| {
            cache.subscribe(Box::new(move |change| {
                keys(change).into_iter().for_each(&*enqueue)
            }));
        }));
        self
    }

    /// Adds work that runs beside the loop and may enqueue keys.
    #[must_use]
    pub fn background<F, Fut>(mut self, work: F) -> Self
    where
        F: FnOnce(Enqueue, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.background = Some(Box::new(move |enqueue, token| {
            Box::pin(work(enqueue, token))
        }));
        self
    }

    /// Connects the sources to a queue. Comes before the informers start, so that
    /// the first list is not replayed under a lock.
    pub fn subscribe(self, enqueue: Enqueue) -> Subscribed {
        for source in self.sources {
            source(Arc::clone(&enqueue));
        }
        Subscribed {
            name: self.name,
            workers: self.workers,
            reconciler: self.reconciler,
            background: self.background,
            enqueue,
        }
    }
}

/// Is a controller whose sources feed a queue.
pub struct Subscribed {
    /// Is the name it is logged by.
    pub name: &'static str,
    workers: usize,
    reconciler: Arc<dyn Reconcile>,
    background: Option<Background>,
    enqueue: Enqueue,
}

impl Subscribed {
    /// Returns the function the loop would call.
    pub fn reconciler(&self) -> Arc<dyn Reconcile> {
        Arc::clone(&self.reconciler)
    }

    /// Works on keys until the token is cancelled and the keys being worked on
    /// are done. Comes after the caches have synced.
    pub async fn run(self, queue: WorkQueue<ObjectKey>, token: CancellationToken) {
        tracing::debug!(controller = self.name, workers = self.workers, "started");
        let background = self
            .background
            .map(|work| tokio::spawn(work(Arc::clone(&self.enqueue), token.child_token())));
        let workers: Vec<_> = (0..self.workers)
            .map(|_| tokio::spawn(work(self.name, Arc::clone(&self.reconciler), queue.clone())))
            .collect();
        token.cancelled().await;
        queue.shut_down();
        for ended in join_all(workers.into_iter().chain(background)).await {
            if let Err(error) = ended {
                tracing::error!(controller = self.name, %error, "a worker ended badly");
            }
        }
        tracing::debug!(controller = self.name, "stopped");
    }
}

async fn work(name: &'static str, reconciler: Arc<dyn Reconcile>, queue: WorkQueue<ObjectKey>) {
    while let Some(key) = queue.get().await {
        match reconciler.reconcile(&key).await {
            Ok(requeue) => {
                queue.forget(&key);
                if let Requeue::After(after) = requeue {
                    queue.add_after(key.clone(), Duration::try_from(after).unwrap_or_default());
                }
            }
            Err(error) => {
                report(name, &key, &error);
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
    }
}

/// A lost race is how optimistic writes work and says nothing to an operator.
fn report(name: &'static str, key: &ObjectKey, error: &Error) {
    if error.is_conflict() || error.is_not_found() || error.is_already_exists() {
        tracing::debug!(controller = name, %key, %error, "will try again");
    } else {
        tracing::warn!(controller = name, %key, %error, "sync failed, will try again");
    }
}
