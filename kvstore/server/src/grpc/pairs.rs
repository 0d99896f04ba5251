//! The pairs of a range, written on the wire's form as they are read.
//!
//! A list of ten thousand pairs is a list of ten thousand small copies. Made as
//! messages first, each pair is handed through three structures, measured and
//! written; here its bytes go from where they lie in the store into the pieces that
//! are sent. The small fields are encoded by prost and go in front, into room that is
//! left there; fields of one message may come in any order.

use std::collections::VecDeque;

use bytes::{BufMut as _, Bytes};
use mvcc::Pair;
use prost::{
    Message as _,
    encoding::{self, WireType, encode_key, encode_varint, encoded_len_varint},
};
use proto::etcdserverpb::{RangeResponse, ResponseHeader};

use super::large::{Encoded, PIECE_BYTES};
use crate::edge::call::PREFIX_BYTES;

/// Field number of the pairs in a `RangeResponse`.
const PAIRS_FIELD: u32 = 2;

/// What the prefix of the message and its small fields take at most: a header of four
/// numbers, a flag, a count.
const HEAD_BYTES_MAX: usize = PREFIX_BYTES + 2 + 4 * 11 + 2 + 11;

/// What a short answer begins with; it grows up to a piece.
const FIRST_BYTES: usize = 512;

/// Writes pairs.
#[derive(Debug)]
pub(super) struct PairWriter {
    full: Vec<Vec<u8>>,
    open: Vec<u8>,
    /// Bytes written.
    bytes: usize,
}

impl Default for PairWriter {
    fn default() -> Self {
        let mut open = Vec::with_capacity(FIRST_BYTES);
        open.resize(HEAD_BYTES_MAX, 0);
        Self {
            full: Vec::new(),
            open,
            bytes: 0,
        }
    }
}

impl PairWriter {
    /// Writes the next pair.
    pub(super) fn push(&mut self, pair: Pair<'_>) {
        let body = pair_bytes(&pair);
        let bytes = 1 + encoded_len_varint(body as u64) + body;
        self.bytes += bytes;
        if self.open.len() + bytes > PIECE_BYTES {
            let next = Vec::with_capacity(bytes.max(PIECE_BYTES));
            self.full.push(std::mem::replace(&mut self.open, next));
        }
        let out = &mut self.open;
        encode_key(PAIRS_FIELD, WireType::LengthDelimited, out);
        encode_varint(body as u64, out);
        put_string(1, pair.key, out);
        put_number(2, pair.create_revision, out);
        put_number(3, pair.mod_revision, out);
        put_number(4, pair.version, out);
        put_string(5, pair.value, out);
        put_number(6, pair.lease, out);
    }

    /// Ends the message.
    pub(super) fn finish(
        mut self,
        header: Option<ResponseHeader>,
        count: i64,
        more: bool,
    ) -> Encoded {
        let rest = RangeResponse {
            header,
            kvs: Vec::new(),
            more,
            count,
        };
        let bytes = rest.encoded_len() + self.bytes;
        let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
        head.put_u8(0);
        // One that is longer than gRPC can say is refused.
        head.put_u32(bytes as u32);
        rest.encode_raw(&mut head);

        self.full.push(self.open);
        let mut pieces: VecDeque<Bytes> = VecDeque::with_capacity(self.full.len());
        let room = HEAD_BYTES_MAX - head.len();
        for mut piece in self.full {
            let first = pieces.is_empty();
            if first {
                piece[room..HEAD_BYTES_MAX].copy_from_slice(&head);
            }
            let piece = Bytes::from(piece);
            pieces.push_back(piece.slice(if first { room } else { 0 }..));
        }
        Encoded { pieces, bytes }
    }
}

fn pair_bytes(pair: &Pair<'_>) -> usize {
    let string = |bytes: &[u8]| match bytes.len() {
        0 => 0,
        len => 1 + encoded_len_varint(len as u64) + len,
    };
    let number = |n: i64| match n {
        0 => 0,
        n => 1 + encoded_len_varint(n as u64),
    };
    string(pair.key)
        + string(pair.value)
        + number(pair.create_revision)
        + number(pair.mod_revision)
        + number(pair.version)
        + number(pair.lease)
}

fn put_string(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

fn put_number(field: u32, n: i64, out: &mut Vec<u8>) {
    if n != 0 {
        encoding::int64::encode(field, &n, out);
    }
}

#[cfg(test)]
mod tests {
    use mvcc::KeyValue;
    use proptest::prelude::*;

    use super::*;
    use crate::grpc::convert;

    fn decode(encoded: &Encoded) -> RangeResponse {
        let all: Vec<u8> = encoded.pieces.iter().flatten().copied().collect();
        let (prefix, message) = all.split_at(PREFIX_BYTES);
        assert_eq!(prefix[0], 0);
        assert_eq!(prefix[1..], (encoded.bytes as u32).to_be_bytes());
        assert_eq!(message.len(), encoded.bytes);
        RangeResponse::decode(message).unwrap()
    }

    fn write(kvs: &[KeyValue], header: Option<ResponseHeader>, count: i64, more: bool) -> Encoded {
        let mut writer = PairWriter::default();
        kvs.iter().for_each(|kv| writer.push(kv.pair()));
        writer.finish(header, count, more)
    }

    fn kv() -> impl Strategy<Value = KeyValue> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        let large = prop::collection::vec(any::<u8>(), 1).prop_map(|b| b.repeat(70_000).into());
        let value = prop_oneof![9 => bytes(), 1 => large];
        let numbers = any::<(i64, i64, i64, i64)>();
        (bytes(), value, numbers).prop_map(|(key, value, n)| KeyValue {
            key,
            value,
            create_revision: n.0,
            mod_revision: n.1,
            version: n.2,
            lease: n.3,
        })
    }

    proptest! {
        #[test]
        fn it_is_what_prost_reads(
            kvs in prop::collection::vec(kv(), 0..40),
            numbers in any::<Option<(u64, u64, i64, u64)>>(),
            count in any::<i64>(),
            more in any::<bool>(),
        ) {
            let header = numbers.map(|n| ResponseHeader {
                cluster_id: n.0,
                member_id: n.1,
                revision: n.2,
                raft_term: n.3,
            });
            let encoded = write(&kvs, header, count, more);
            let expected = RangeResponse {
                header,
                kvs: kvs.into_iter().map(convert::key_value).collect(),
                more,
                count,
            };
            prop_assert_eq!(encoded.bytes, expected.encoded_len());
            prop_assert_eq!(decode(&encoded), expected);
        }
    }

    #[test]
    fn the_largest_head_has_room_and_pieces_are_not_larger_than_they_should_be() {
        let header = ResponseHeader {
            cluster_id: u64::MAX,
            member_id: u64::MAX,
            revision: -1,
            raft_term: u64::MAX,
        };
        let kv = KeyValue {
            value: vec![7; 1_000].into(),
            ..KeyValue::default()
        };
        let encoded = write(&vec![kv; 200], Some(header), -1, true);
        let message = decode(&encoded);
        assert_eq!((message.header, message.count), (Some(header), -1));
        assert!(
            encoded
                .pieces
                .iter()
                .all(|piece| piece.len() <= PIECE_BYTES)
        );
        assert_eq!(encoded.pieces.len(), 4);
    }
}
