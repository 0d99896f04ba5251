//! Watch streams: watches of every kind, from the past and the future.

use proto::etcdserverpb::{self as pb, watch_request::RequestUnion};

use super::{Area, Generator};
use crate::diff::{
    program::{Step, Verb},
    symbol::{COMPACT, HEAD},
};

/// Streams a program keeps open at most.
const STREAMS: u8 = 3;

impl Generator {
    pub(super) fn watch(&mut self) {
        let stream = 1 + self.pick(&[0, 0, 1, 2]) % STREAMS;
        match self.below(100) {
            0..55 => {
                let create = RequestUnion::CreateRequest(self.watch_create());
                self.push(Step::watch(stream, create));
            }
            55..70 => {
                let watch_id = self.watch_id();
                let cancel = pb::WatchCancelRequest { watch_id };
                self.push(Step::watch(stream, RequestUnion::CancelRequest(cancel)));
            }
            70..80 => {
                let progress = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
                self.push(Step::watch(stream, progress));
            }
            80..97 => self.push(Step::plain(Verb::Settle)),
            _ => self.push(Step::plain(Verb::Close(stream))),
        }
    }

    fn watch_id(&mut self) -> i64 {
        self.pick(&[0, 0, 1, 1, 2, 3, 5, 7, -1, i64::MAX])
    }

    /// The id a watch is asked for under, 0 for any.
    fn new_watch_id(&mut self) -> i64 {
        let id = match self.chance(75) {
            true => 0,
            // -1 is how etcd says "none".
            false => self.watch_id().max(0),
        };
        match self.mood {
            // Before 3.5.6 a refused watch took the events of the one that had the
            // id it asked for (v3rpc/watch.go, sendLoop), so here each has its own.
            Area::Auth => 100 + i64::try_from(self.steps.len()).unwrap_or(0),
            _ => id,
        }
    }

    fn watch_create(&mut self) -> pb::WatchCreateRequest {
        let (key, range_end) = self.range();
        let start_revision = match self.below(100) {
            0..45 => 0,
            45..75 => HEAD - self.below(20),
            75..82 => HEAD + 1 + self.below(3),
            82..85 => HEAD + 10 + self.below(20),
            85..94 => COMPACT + self.below(3) - 1,
            // Below zero is refused since 3.6 only, and all ids after it differ.
            _ => 1,
        };
        let filters = match self.below(10) {
            0 => vec![0],
            1 => vec![1],
            2 => vec![0, 1],
            _ => Vec::new(),
        };
        pb::WatchCreateRequest {
            key,
            range_end,
            start_revision,
            progress_notify: self.chance(10),
            filters,
            prev_kv: self.chance(50),
            watch_id: self.new_watch_id(),
            fragment: self.chance(15),
        }
    }
}
