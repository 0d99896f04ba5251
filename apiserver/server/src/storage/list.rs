//! Listing: which state answers (the decision table of KEP-2340), and pages.

use std::sync::Arc;

use meta::{FieldError, Object, Status};
use watchcache::{Selector, Snapshot};

use super::continuation::Continuation;
use super::items::{Items, Listing, Pages, STORE_PAGE, Walk};
use super::request::{ListRequest, ListResult, ReadVersion, VersionMatch, invalid_options};
use super::resource::ResourceStore;
use super::store::{PageRequest, StoreError};

/// Which state a list reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// As fresh as the store.
    Fresh,
    /// Whatever is at hand.
    Any,
    /// Not older than this.
    AtLeast(u64),
    /// Exactly this.
    Exact(u64),
}

#[derive(Debug)]
struct Plan {
    from: From,
    limit: usize,
    /// The limit the client asked for, even where the cache ignores it.
    asked_limit: usize,
    /// Relative to the list's prefix; empty for the beginning.
    start: String,
    continued: bool,
}

fn plan(request: &ListRequest) -> Result<Plan, Status> {
    let refuse = |detail: &str| {
        Err(invalid_options(FieldError::forbidden(
            "resourceVersionMatch",
            detail,
        )))
    };
    let token = request.continue_token.as_deref().unwrap_or_default();
    if !token.is_empty() {
        if request.version_match.is_some() {
            return refuse("resourceVersionMatch is forbidden when continue is provided");
        }
        if matches!(request.version, ReadVersion::At(_)) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Continuation::decode(token)?;
        return Ok(Plan {
            from: token.revision().map_or(From::Fresh, From::Exact),
            limit: request.limit,
            asked_limit: request.limit,
            start: token.start().to_owned(),
            continued: true,
        });
    }
    let from = match (request.version, request.version_match) {
        (ReadVersion::Unset, None) => From::Fresh,
        (ReadVersion::Unset, Some(_)) => {
            return refuse("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        (ReadVersion::Any, Some(VersionMatch::Exact)) => {
            return refuse("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        (ReadVersion::Any, _) => From::Any,
        (ReadVersion::At(n), Some(VersionMatch::Exact)) => From::Exact(n),
        (ReadVersion::At(n), Some(VersionMatch::NotOlderThan)) => From::AtLeast(n),
        // A page at a version is exact, as it always was.
        (ReadVersion::At(n), None) if request.limit > 0 => From::Exact(n),
        (ReadVersion::At(n), None) => From::AtLeast(n),
    };
    Ok(Plan {
        from,
        // "Whatever is at hand" ignores the limit, as the cache always did.
        limit: if from == From::Any { 0 } else { request.limit },
        asked_limit: request.limit,
        start: String::new(),
        continued: false,
    })
}

impl ResourceStore {
    /// Lists objects, all at once.
    pub async fn list(self: &Arc<Self>, request: ListRequest) -> Result<ListResult, Status> {
        self.open_list(request).await?.collect().await
    }

    /// Lists objects that are taken as they are wanted.
    pub async fn open_list(self: &Arc<Self>, request: ListRequest) -> Result<Listing, Status> {
        let mut plan = plan(&request)?;
        let selector = request.selector;
        if !self.is_ready() {
            // The store gives pages cheaply, and only those.
            let cheap = selector.labels.is_empty() && selector.fields.is_empty();
            if plan.asked_limit == 0 || !cheap || selector.name.is_some() {
                return Err(self.not_ready());
            }
            plan.limit = plan.asked_limit;
            return self.list_from_store(selector, &plan).await;
        }
        match plan.from {
            From::Fresh => {
                if let Some(snapshot) = self.fresh().await? {
                    return Ok(self.page(snapshot, selector, &plan).await);
                }
            }
            // A page of a version that the cache has not heard of is the store's.
            From::Exact(_) if plan.continued => {}
            From::Any => {}
            From::AtLeast(n) | From::Exact(n) => self.reach(n).await?,
        }
        match self.snapshot(plan.from)? {
            Some(snapshot) => Ok(self.page(snapshot, selector, &plan).await),
            // Too old for the cache; the store may still have it.
            None => self.list_from_store(selector, &plan).await,
        }
    }

    /// Returns the state to answer from, if the cache has it.
    fn snapshot(&self, from: From) -> Result<Option<Snapshot>, Status> {
        let hub = self.lock();
        // It may have ceased to serve while it was waited for.
        if !hub.cacher.is_ready() {
            drop(hub);
            return Err(self.not_ready());
        }
        Ok(match from {
            From::Exact(n) if n > hub.cacher.revision() => None,
            From::Exact(n) => hub.cacher.snapshot_at(n).ok(),
            _ => Some(hub.cacher.snapshot()),
        })
    }

    async fn list_from_store(
        self: &Arc<Self>,
        selector: Selector,
        plan: &Plan,
    ) -> Result<Listing, Status> {
        let revision = match plan.from {
            From::Exact(n) => n,
            _ => 0,
        };
        let listed = match self.page_from_store(revision, selector, plan).await {
            Err(StoreError::Compacted(_)) => return Err(expired(plan)),
            Err(StoreError::Future) => {
                let newest = self.store.current_revision().await;
                let newest = newest.map_err(StoreError::into_status)?;
                return Err(Status::too_large_resource_version(revision, newest));
            }
            listed => listed.map_err(StoreError::into_status)?,
        };
        match plan.from {
            From::AtLeast(n) if listed.resource_version < n => Err(
                Status::too_large_resource_version(n, listed.resource_version),
            ),
            _ => Ok(listed),
        }
    }

    /// Returns the prefix, below [`Self::root`], of a selector's scope.
    fn scope(&self, selector: &Selector) -> String {
        match selector.namespace.as_deref() {
            Some(ns) if self.config.namespaced => format!("{ns}/"),
            _ => String::new(),
        }
    }

    async fn page(&self, snapshot: Snapshot, selector: Selector, plan: &Plan) -> Listing {
        let scope = self.scope(&selector);
        let start = format!("{scope}{}", plan.start);
        let revision = snapshot.revision;
        // One key, if the selector names it.
        if let Some(name) = selector.pinned_name()
            && (selector.pinned_namespace().is_some() || !self.config.namespaced)
        {
            let key = self.key(selector.pinned_namespace(), name);
            let found = snapshot.get(&key).filter(|_| key >= start);
            let found = found.filter(|o| selector.matches(o)).cloned();
            return Listing::whole(Items::ready(found.into_iter().collect()), revision);
        }
        let counts = selector.is_whole_scope();
        // Of everything it is known how much there is.
        let all = start.is_empty().then(|| snapshot.len());
        let within = scope.len();
        let mut walk = Walk::new(snapshot, selector, scope, start);
        if plan.limit == 0 {
            return Listing::whole(Items::walk(walk), revision);
        }
        // One more tells whether there is a next page.
        let mut page = Vec::new();
        while page.len() <= plan.limit && !walk.ended {
            page.extend(walk.step(plan.limit + 1 - page.len()));
            if page.len() <= plan.limit && !walk.ended {
                tokio::task::yield_now().await;
            }
        }
        let next = page.len() > plan.limit;
        page.truncate(plan.limit);
        let last = page.last().filter(|_| next);
        let token = last.map(|(key, _)| Continuation::after(&key[within..], Some(revision)));
        let mut listing = Listing {
            continue_token: token.as_ref().map(Continuation::encode),
            ..Listing::whole(
                Items::ready(page.into_iter().map(|(_, o)| o).collect()),
                revision,
            )
        };
        if next && counts {
            // The one that did not fit any more, and those behind it.
            listing.remaining = Some(match all {
                Some(all) => (all - plan.limit) as u64,
                None => 1 + walk.count().await,
            });
        }
        listing
    }

    /// Reads a page at a revision that the cache does not remember, or at the
    /// newest (zero); without a limit, the first of all.
    async fn page_from_store(
        self: &Arc<Self>,
        revision: u64,
        selector: Selector,
        plan: &Plan,
    ) -> Result<Listing, StoreError> {
        let scope = format!("{}{}", self.root, self.scope(&selector));
        let mut request = PageRequest {
            start: format!("{scope}{}", plan.start),
            prefix: scope.clone(),
            limit: STORE_PAGE,
            revision,
            keys_only: false,
        };
        if plan.limit == 0 {
            let pages = Pages::open(self.clone(), selector, request).await?;
            let revision = pages.revision();
            return Ok(Listing::whole(Items::pages(pages), revision));
        }
        let mut items = Vec::new();
        loop {
            let page = self.store.list(request.clone()).await?;
            // All of it at the revision of its beginning.
            request.revision = page.revision;
            for (i, kv) in page.kvs.iter().enumerate() {
                let Some(object) = self.decode_listed(&kv.key, &kv.value, kv.mod_revision) else {
                    continue;
                };
                if !selector.matches(&object) {
                    continue;
                }
                if items.len() == plan.limit {
                    let next = kv.key[scope.len()..].to_owned();
                    let token = Continuation::from(next, Some(page.revision)).encode();
                    let left = page.count.saturating_sub(i as u64);
                    return Ok(Listing {
                        continue_token: Some(token),
                        remaining: selector.is_whole_scope().then_some(left),
                        ..Listing::whole(Items::ready(items), page.revision)
                    });
                }
                items.push(object);
            }
            match page.kvs.last() {
                Some(last) if page.more => request.start = format!("{}\0", last.key),
                _ => return Ok(Listing::whole(Items::ready(items), page.revision)),
            }
        }
    }

    /// Decodes one of many. What cannot be decoded is reported and left out: a
    /// single broken object must not take its whole kind away.
    pub(super) fn decode_listed(
        &self,
        key: &str,
        body: &bytes::Bytes,
        revision: u64,
    ) -> Option<Arc<Object>> {
        match self.decode_parts(body.clone(), revision) {
            Ok(object) => Some(object),
            Err(error) => {
                self.metrics.undecodable.add(1);
                tracing::error!(key, revision, %error, "a stored object is not served");
                None
            }
        }
    }
}

/// Returns the 410 of a list whose revision is gone. A continued one gets a
/// token with which the rest can still be had, at another revision.
fn expired(plan: &Plan) -> Status {
    if !plan.continued {
        return StoreError::Compacted(None).into_status();
    }
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results. Continuing with the provided token \
         results in an inconsistent list - objects that were created, modified, or deleted between \
         the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata.continue_token = Continuation::from(plan.start.clone(), None).encode();
    status
}
