//! What anybody could know when: how new an answer must be, and how new it can be.

use crate::{
    history::{Ask, History, Time},
    log::Log,
};

use super::past::Past;

/// Is what was known when.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// From then on (excluded) somebody knew that this revision exists; both grow.
    known: Vec<(Time, i64)>,
    /// Writes that became revisions: when each was asked for, and the least revision of
    /// all that were asked for then or later.
    asked: Vec<(Time, i64)>,
    /// The greatest revision that anybody asked the store to forget.
    compacted: i64,
}

impl Knowledge {
    pub(super) fn of(history: &History, log: &Log<'_>, past: &Past) -> Self {
        let mut known = Vec::new();
        for call in &history.calls {
            let Some(answer) = call.answer() else {
                continue;
            };
            let objects = answer.objects.iter().map(|o| o.rv);
            let newest = objects.chain([answer.rv]).max().unwrap_or(0);
            known.push((call.ret, newest));
        }
        for watch in &history.api_watches {
            let told = watch.told.iter();
            known.extend(told.filter_map(|(at, told)| Some((*at, told.version()?))));
        }
        known.sort_unstable();
        let mut newest = 0;
        for (_, revision) in &mut known {
            newest = newest.max(*revision);
            *revision = newest;
        }
        Self {
            known,
            asked: asked(history, past),
            compacted: crate::watch::compacted(history, log),
        }
    }

    /// Returns the newest revision of which somebody had been told before this moment.
    pub(super) fn before(&self, at: Time) -> i64 {
        let place = self.known.partition_point(|(when, _)| *when < at);
        place.checked_sub(1).map_or(0, |place| self.known[place].1)
    }

    /// Returns the last revision that could exist at a moment: writes that were asked
    /// for later are later.
    pub(super) fn until(&self, at: Time) -> i64 {
        let place = self.asked.partition_point(|(when, _)| *when <= at);
        let next = self.asked.get(place).map_or(i64::MAX, |(_, least)| *least);
        next - 1
    }

    /// Says whether the store may have forgotten a revision.
    pub(super) fn forgotten(&self, revision: i64) -> bool {
        revision < self.compacted
    }
}

fn asked(history: &History, past: &Past) -> Vec<(Time, i64)> {
    let mut asked = Vec::new();
    let tokens: std::collections::BTreeMap<_, _> = past
        .resources()
        .flat_map(|resource| past.tokens(resource))
        .collect();
    for call in &history.calls {
        if let Ask::Write { token, .. } = &call.ask
            && let Some([change]) = tokens.get(&**token).map(|c| &c[..])
        {
            asked.push((call.call, change.revision));
        }
    }
    asked.sort_unstable();
    let mut least = i64::MAX;
    for (_, revision) in asked.iter_mut().rev() {
        least = least.min(*revision);
        *revision = least;
    }
    asked
}
