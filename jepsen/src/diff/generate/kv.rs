//! Ranges of every option, puts of every flag, deletes, compactions.

use bytes::Bytes;
use proto::etcdserverpb as pb;

use super::Generator;
use crate::diff::{
    process::REQUEST_BYTES_MAX,
    program::Step,
    symbol::{COMPACT, HEAD},
};

impl Generator {
    pub(super) fn kv(&mut self) {
        match self.below(100) {
            0..36 => {
                let range = self.range_request();
                self.push(Step::call("KV/Range", &range));
            }
            36..40 => self.range_stream(),
            40..84 => {
                let put = self.put_request();
                self.push(Step::call("KV/Put", &put));
            }
            84..99 => {
                let delete = self.delete_request();
                self.push(Step::call("KV/DeleteRange", &delete));
            }
            _ => self.too_large(),
        }
    }

    pub(super) fn range_request(&mut self) -> pb::RangeRequest {
        let (key, range_end) = self.range();
        let mut range = pb::RangeRequest {
            key,
            range_end,
            revision: self.revision(),
            serializable: self.chance(20),
            ..pb::RangeRequest::default()
        };
        if self.chance(30) {
            range.limit = self.pick(&[1, 1, 2, 3, 5, -1, i64::MAX]);
        }
        if self.chance(40) {
            range.sort_order = self.pick(&[0, 1, 1, 2, 2, 2]);
            // An unknown one ends etcd before 3.6, so it is not tried here.
            range.sort_target = self.pick(&[0, 1, 2, 3, 4, 4, 4]);
            if self.below(1_000) == 0 {
                range.sort_order = 7;
            }
        }
        range.keys_only = self.chance(10);
        range.count_only = self.chance(8);
        if self.chance(20) {
            let bound = self.near();
            match self.below(4) {
                0 => range.min_mod_revision = bound,
                1 => range.max_mod_revision = bound,
                2 => range.min_create_revision = bound,
                _ => range.max_create_revision = bound,
            }
            if self.chance(30) {
                range.max_mod_revision = self.near();
            }
        }
        range
    }

    /// A range in pieces; it takes neither filters nor an order of one's own.
    fn range_stream(&mut self) {
        let (key, range_end) = self.range();
        let range = pb::RangeRequest {
            key,
            range_end,
            revision: self.revision(),
            limit: self.pick(&[0, 0, 1, 2, 3]),
            count_only: self.chance(5),
            serializable: self.chance(20),
            ..pb::RangeRequest::default()
        };
        self.push(Step::call("KV/RangeStream", &range));
    }

    pub(super) fn put_request(&mut self) -> pb::PutRequest {
        let mut put = pb::PutRequest {
            key: self.key(),
            value: self.value(),
            lease: 0,
            prev_kv: self.chance(30),
            ignore_value: self.chance(8),
            ignore_lease: self.chance(8),
        };
        if self.chance(30) {
            put.lease = self.lease_id();
        }
        // Mostly as it is meant: what is ignored is not given.
        if put.ignore_value && self.chance(80) {
            put.value = Bytes::new();
        }
        if put.ignore_lease && self.chance(80) {
            put.lease = 0;
        }
        put
    }

    pub(super) fn delete_request(&mut self) -> pb::DeleteRangeRequest {
        let (mut key, mut range_end) = self.range();
        // A store that is emptied all the time is of little interest.
        if self.chance(70) {
            (key, range_end) = (self.key(), Bytes::new());
        }
        pb::DeleteRangeRequest {
            key,
            range_end,
            prev_kv: self.chance(40),
        }
    }

    /// A put at the edge of what is accepted, or far beyond what is even read.
    fn too_large(&mut self) {
        let bytes = match self.below(5) {
            0 => REQUEST_BYTES_MAX - 100,
            1 => REQUEST_BYTES_MAX + 100,
            2 => 2 * REQUEST_BYTES_MAX,
            3 => REQUEST_BYTES_MAX + (400 << 10),
            _ => REQUEST_BYTES_MAX + (520 << 10),
        };
        let put = pb::PutRequest {
            key: self.key(),
            value: vec![b'L'; bytes].into(),
            ..pb::PutRequest::default()
        };
        self.push(Step::call("KV/Put", &put));
    }

    pub(super) fn compact(&mut self) {
        let revision = match self.below(20) {
            0..12 => HEAD - self.below(15),
            12..14 => HEAD,
            14..15 => HEAD + 1 + self.below(3),
            15..17 => COMPACT - self.below(2),
            17 => COMPACT + 1,
            18 => -1,
            _ => 0,
        };
        let compact = pb::CompactionRequest {
            revision,
            physical: self.chance(40),
        };
        self.push(Step::call("KV/Compact", &compact));
    }
}
