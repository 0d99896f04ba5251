//! The items of a list, taken as they are wanted: what is listed is held as a state of
//! the cache and a place in it, or as a place in the store, and never as all objects.

use std::collections::VecDeque;
use std::sync::Arc;

use meta::{Object, Status};
use tokio::task::yield_now;
use watchcache::{Selector, Snapshot};

use super::request::ListResult;
use super::resource::ResourceStore;
use super::store::{Kv, PageRequest, StoreError};

/// How many objects are made ready at once.
const BATCH: usize = 64;
/// How many objects are looked at before others may run: most may not be selected.
const VISITED_MAX: usize = 1024;
/// How many keys are read at once from the store.
pub(super) const STORE_PAGE: usize = 500;

/// A list's answer, whose items are still to be taken.
#[derive(Debug)]
pub struct Listing {
    /// The items.
    pub items: Items,
    /// The revision all items are read at.
    pub resource_version: u64,
    /// The token for the next page, when there is one.
    pub continue_token: Option<String>,
    /// How many items follow; known only when nothing was filtered.
    pub remaining: Option<u64>,
}

impl Listing {
    /// Creates a list without a next page.
    pub(super) fn whole(items: Items, resource_version: u64) -> Self {
        Self {
            items,
            resource_version,
            continue_token: None,
            remaining: None,
        }
    }

    /// Takes all items.
    pub async fn collect(mut self) -> Result<ListResult, Status> {
        let mut items = Vec::new();
        while self.items.refill().await? {
            items.extend(self.items.batch.drain(..));
        }
        Ok(ListResult {
            items,
            resource_version: self.resource_version,
            continue_token: self.continue_token,
            remaining: self.remaining,
        })
    }
}

impl From<ListResult> for Listing {
    fn from(list: ListResult) -> Self {
        Self {
            items: Items::ready(list.items),
            resource_version: list.resource_version,
            continue_token: list.continue_token,
            remaining: list.remaining,
        }
    }
}

/// Items in key order. A clone gives the same ones again.
#[derive(Clone, Debug)]
pub struct Items {
    /// What can be taken at once.
    batch: VecDeque<Arc<Object>>,
    rest: Rest,
}

#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    Snapshot(Box<Walk>),
    Store(Box<Pages>),
}

impl Items {
    /// Creates the items that are there already.
    pub(super) fn ready(items: Vec<Arc<Object>>) -> Self {
        Self {
            batch: items.into(),
            rest: Rest::Nothing,
        }
    }

    /// Creates the items that a walk meets.
    pub(super) fn walk(walk: Walk) -> Self {
        Self {
            batch: VecDeque::new(),
            rest: Rest::Snapshot(Box::new(walk)),
        }
    }

    /// Creates the items of the store's pages.
    pub(super) fn pages(pages: Pages) -> Self {
        Self {
            batch: VecDeque::new(),
            rest: Rest::Store(Box::new(pages)),
        }
    }

    /// Takes the next item, if one is ready.
    pub fn take(&mut self) -> Option<Arc<Object>> {
        self.batch.pop_front()
    }

    /// Returns the bytes of the items that are ready, as they are stored, up to a limit;
    /// no more of them are looked at than make it up.
    pub fn ready_bytes(&self, limit: usize) -> usize {
        let mut bytes = 0;
        for object in &self.batch {
            bytes += object.body().len();
            if bytes >= limit {
                return limit;
            }
        }
        bytes
    }

    /// Makes items ready where none are. False once there are no more; true may have
    /// found none yet.
    pub async fn refill(&mut self) -> Result<bool, Status> {
        if !self.batch.is_empty() {
            return Ok(true);
        }
        let more = match &mut self.rest {
            Rest::Nothing => false,
            Rest::Snapshot(walk) if walk.ended => false,
            Rest::Snapshot(walk) => {
                let found = walk.step(BATCH).into_iter();
                self.batch.extend(found.map(|(_, object)| object));
                !walk.ended
            }
            Rest::Store(pages) => pages.step(&mut self.batch).await?,
        };
        if self.batch.is_empty() && more {
            yield_now().await;
        }
        Ok(more || !self.batch.is_empty())
    }
}

/// A place in a state of the cache.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    snapshot: Snapshot,
    selector: Selector,
    /// What all keys begin with.
    scope: String,
    /// The key to go on with, or what would lie just before it.
    next: String,
    /// Whether nothing follows.
    pub(super) ended: bool,
}

impl Walk {
    /// Begins with the first key of a scope that is not before `start`.
    pub(super) fn new(
        snapshot: Snapshot,
        selector: Selector,
        scope: String,
        start: String,
    ) -> Self {
        Self {
            snapshot,
            selector,
            scope,
            next: start,
            ended: false,
        }
    }

    /// Returns the next selected objects, at most so many: fewer, or none, when many
    /// were looked at.
    pub(super) fn step(&mut self, most: usize) -> Vec<(Arc<str>, Arc<Object>)> {
        let mut found = Vec::new();
        let selector = &self.selector;
        let last = visit(&self.snapshot, &self.scope, &self.next, |key, object| {
            if selector.matches(object) {
                found.push((key.clone(), object.clone()));
            }
            found.len() < most
        });
        self.go_on(last);
        found
    }

    /// Counts what follows, selected or not.
    pub(super) async fn count(mut self) -> u64 {
        let mut count = 0;
        while !self.ended {
            let last = visit(&self.snapshot, &self.scope, &self.next, |_, _| {
                count += 1;
                true
            });
            self.go_on(last);
            yield_now().await;
        }
        count
    }

    fn go_on(&mut self, last: Option<Arc<str>>) {
        match last {
            // The first key that can lie behind it.
            Some(key) => {
                self.next.clear();
                self.next.push_str(&key);
                self.next.push('\0');
            }
            None => self.ended = true,
        }
    }
}

/// Visits some objects of a scope, and fewer when it is told to stop. Returns the last
/// key if others may follow.
fn visit(
    snapshot: &Snapshot,
    scope: &str,
    start: &str,
    mut goes_on: impl FnMut(&Arc<str>, &Arc<Object>) -> bool,
) -> Option<Arc<str>> {
    let mut visited = 0;
    for (key, object) in snapshot.range(scope, start) {
        visited += 1;
        if !goes_on(key, object) || visited == VISITED_MAX {
            return Some(key.clone());
        }
    }
    None
}

/// A place in the store, which is read page by page at one revision.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    resource: Arc<ResourceStore>,
    selector: Selector,
    request: PageRequest,
    /// Read and not decoded yet.
    read: VecDeque<Kv>,
    /// Whether the store has more.
    more: bool,
}

impl Pages {
    /// Reads the first page. At revision zero that decides which one all have.
    pub(super) async fn open(
        resource: Arc<ResourceStore>,
        selector: Selector,
        request: PageRequest,
    ) -> Result<Self, StoreError> {
        let mut pages = Self {
            resource,
            selector,
            request,
            read: VecDeque::new(),
            more: true,
        };
        pages.fetch().await?;
        Ok(pages)
    }

    /// Returns the revision of all pages.
    pub(super) fn revision(&self) -> u64 {
        self.request.revision
    }

    async fn fetch(&mut self) -> Result<(), StoreError> {
        let page = self.resource.store.list(self.request.clone()).await?;
        self.request.revision = page.revision;
        self.more = page.more && !page.kvs.is_empty();
        if let Some(last) = page.kvs.last() {
            self.request.start = format!("{}\0", last.key);
        }
        self.read = page.kvs.into();
        Ok(())
    }

    /// Decodes some more, and tells whether there are others.
    async fn step(&mut self, batch: &mut VecDeque<Arc<Object>>) -> Result<bool, Status> {
        if self.read.is_empty() && self.more {
            self.fetch().await.map_err(StoreError::into_status)?;
        }
        for kv in self.read.drain(..self.read.len().min(BATCH)) {
            let decoded = self
                .resource
                .decode_listed(&kv.key, &kv.value, kv.mod_revision);
            batch.extend(decoded.filter(|o| self.selector.matches(o)));
        }
        Ok(self.more || !self.read.is_empty())
    }
}
