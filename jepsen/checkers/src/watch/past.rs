//! The log, asked by key: what happened, and what was there before.

use std::collections::BTreeMap;

use crate::{
    history::{Blob, Event, Kv, WatchRequest},
    log::Log,
    model::within,
};

/// Is one event of the log with what was there before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Happened<'a> {
    pub(crate) event: &'a Event,
    pub(crate) before: Option<&'a Kv>,
}

impl Happened<'_> {
    pub(super) fn is(&self, (revision, key): &(i64, &Blob)) -> bool {
        self.event.kv.modified == *revision && self.event.kv.key == **key
    }

    /// Says whether it comes before an event of that revision and key.
    pub(super) fn before(&self, at: &(i64, &Blob)) -> bool {
        self.event.kv.modified < at.0 || (self.event.kv.modified == at.0 && !self.is(at))
    }
}

/// Is all that happened.
#[derive(Debug, Default)]
pub(crate) struct Past<'a> {
    /// In the order of the log.
    all: Vec<Happened<'a>>,
    /// Places in `all`, in order.
    by_key: BTreeMap<&'a [u8], Vec<usize>>,
}

impl<'a> Past<'a> {
    pub(crate) fn of(log: &'a Log<'_>) -> Self {
        let mut past = Self::default();
        for (_, entry) in log.iter() {
            for event in entry.events.iter() {
                let versions = past.by_key.entry(&event.kv.key).or_default();
                let before = versions.last().map(|at| past.all[*at].event);
                let before = before.filter(|event| !event.delete).map(|event| &event.kv);
                versions.push(past.all.len());
                past.all.push(Happened { event, before });
            }
        }
        past
    }

    /// Finds what a revision did to a key.
    pub(super) fn find(&self, revision: i64, key: &Blob) -> Option<Happened<'a>> {
        let versions = self.by_key.get(&key[..])?;
        let at = versions.partition_point(|at| self.all[*at].event.kv.modified < revision);
        let found = self.all[*versions.get(at)?];
        (found.event.kv.modified == revision).then_some(found)
    }

    /// Walks over what a watch asks for, in order.
    pub(super) fn matching<'b>(
        &'b self,
        request: &'b WatchRequest,
        start: i64,
    ) -> Box<dyn Iterator<Item = Happened<'a>> + 'b> {
        let kind = |event: &Event| match event.delete {
            true => !request.no_delete,
            false => !request.no_put,
        };
        let places = |at: &usize| self.all[*at].event.kv.modified < start;
        if request.end.is_empty() {
            let versions = self.by_key.get(&request.key[..]).map_or(&[][..], |v| v);
            let first = versions.partition_point(places);
            let found = versions[first..].iter().map(|at| self.all[*at]);
            return Box::new(found.filter(move |found| kind(found.event)));
        }
        let first = self.all.partition_point(|h| h.event.kv.modified < start);
        let found = self.all[first..].iter().copied();
        Box::new(found.filter(move |found| {
            kind(found.event) && within(&found.event.kv.key, &request.key, &request.end)
        }))
    }
}
