//! Watch replies on the wire, with each event encoded once.
//!
//! A `WatchResponse` is a few small fields and a list of events. The bytes of an
//! event are the same for every watcher, so they are made by the first one that
//! needs them, kept beside the event, and copied by all others. The rest of the
//! message is encoded by prost; fields of one message may come in any order.

use std::{ops::Range, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use mvcc::{Event, EventKind, watch::WatchReply};
use prost::{Message as _, encoding};
use proto::{
    etcdserverpb::{ResponseHeader, WatchRequest, WatchResponse},
    mvccpb,
};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::convert::key_value;

/// Field number of the events in a `WatchResponse`.
const EVENTS_FIELD: u32 = 11;

/// One message of a watch stream: its small fields, and its share of a reply's events.
#[derive(Debug)]
pub(crate) struct WatchMessage {
    rest: WatchResponse,
    prev_kv: bool,
    events: Arc<Vec<Arc<Event>>>,
    share: Range<usize>,
}

impl WatchMessage {
    /// Makes the messages of a reply: one, unless the client allowed fragments and
    /// it is larger than `limit` bytes.
    pub(crate) fn of_reply(reply: WatchReply, header: ResponseHeader, limit: usize) -> Vec<Self> {
        let rest = WatchResponse {
            header: Some(header),
            watch_id: reply.watch_id,
            created: reply.created,
            canceled: reply.canceled,
            compact_revision: reply.compact_revision,
            cancel_reason: reply.cancel_reason,
            fragment: false,
            events: Vec::new(),
        };
        let events = Arc::new(reply.events);
        let shares = if reply.fragment {
            shares(&events, reply.prev_kv, rest.encoded_len(), limit)
        } else {
            std::iter::once(0..events.len()).collect()
        };
        let last = shares.len() - 1;
        let message = |(at, share): (usize, Range<usize>)| Self {
            rest: WatchResponse {
                fragment: at < last,
                ..rest.clone()
            },
            prev_kv: reply.prev_kv,
            events: Arc::clone(&events),
            share,
        };
        shares.into_iter().enumerate().map(message).collect()
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, out: &mut impl BufMut) {
        self.rest.encode_raw(out);
        for event in self.events() {
            encoding::encode_key(EVENTS_FIELD, encoding::WireType::LengthDelimited, out);
            encoding::encode_varint(event.len() as u64, out);
            out.put_slice(event);
        }
    }

    fn events(&self) -> impl Iterator<Item = &Bytes> {
        self.events[self.share.clone()]
            .iter()
            .map(|event| wire(event, self.prev_kv))
    }
}

/// Bytes that `fragment: true` takes.
const FRAGMENT_FLAG_BYTES: usize = 2;

/// Splits events as etcd does (v3rpc/watch.go, `sendFragments`): a message of less
/// than `limit` bytes is not split; a share takes the next event if the message
/// stays below the limit with it, and always takes one.
fn shares(events: &[Arc<Event>], prev_kv: bool, rest: usize, limit: usize) -> Vec<Range<usize>> {
    let len = |event: &Arc<Event>| {
        let bytes = wire(event, prev_kv).len();
        encoding::key_len(EVENTS_FIELD) + encoding::encoded_len_varint(bytes as u64) + bytes
    };
    let whole = rest + events.iter().map(len).sum::<usize>();
    if whole < limit || events.len() < 2 {
        return std::iter::once(0..events.len()).collect();
    }
    let empty = rest + FRAGMENT_FLAG_BYTES;
    let mut shares = Vec::new();
    let (mut first, mut bytes) = (0, empty);
    for (at, event) in events.iter().enumerate() {
        let len = len(event);
        if at > first && bytes + len >= limit {
            shares.push(first..at);
            (first, bytes) = (at, empty);
        }
        bytes += len;
    }
    shares.push(first..events.len());
    shares
}

/// Returns the encoded event, encoding it if nobody has.
fn wire(event: &Event, prev_kv: bool) -> &Bytes {
    let place = if prev_kv {
        &event.wire_prev
    } else {
        &event.wire
    };
    place.get_or_init(|| {
        let kind = match event.kind {
            EventKind::Put => mvccpb::event::EventType::Put,
            EventKind::Delete => mvccpb::event::EventType::Delete,
        };
        let prev_kv = if prev_kv {
            event.prev_kv().cloned().map(key_value)
        } else {
            None
        };
        let message = mvccpb::Event {
            r#type: kind.into(),
            kv: Some(key_value(event.kv.clone())),
            prev_kv,
        };
        let mut out = BytesMut::with_capacity(message.encoded_len());
        message.encode_raw(&mut out);
        out.freeze()
    })
}

/// Returns buffers that begin with nothing and are of the size of a message then: a
/// stream lives long, and is mostly silent. (tonic divides by the size, so it is not zero.)
fn buffers() -> BufferSettings {
    BufferSettings::new(1, proto::codec::YIELD_BYTES)
}

/// Encodes [`WatchMessage`], decodes `WatchRequest`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchCodec;

impl Codec for WatchCodec {
    type Encode = WatchMessage;
    type Decode = WatchRequest;
    type Encoder = WatchEncoder;
    type Decoder = ProstDecoder<WatchRequest>;

    fn encoder(&mut self) -> WatchEncoder {
        WatchEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<WatchRequest> {
        ProstCodec::<WatchResponse, WatchRequest>::raw_decoder(buffers())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WatchEncoder;

impl Encoder for WatchEncoder {
    type Item = WatchMessage;
    type Error = Status;

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }

    fn encode(&mut self, message: WatchMessage, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let events: usize = message.events().map(|event| event.len() + 8).sum();
        out.reserve(message.rest.encoded_len() + events);
        message.write(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts values one after the other; the first has revision 2.
    fn events(values: &[&str]) -> Vec<Arc<Event>> {
        let backend = Box::new(mvcc::MemoryBackend::new());
        let mut machine = mvcc::StateMachine::open(backend, mvcc::Config::default()).unwrap();
        let mut events = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let put = mvcc::PutRequest {
                key: Bytes::from(format!("k{at}")),
                value: Bytes::copy_from_slice(value.as_bytes()),
                ..mvcc::PutRequest::default()
            };
            let id = at as u64 + 1;
            let proposal = mvcc::Proposal {
                id,
                since: None,
                identity: None,
                command: mvcc::Command::Put(put),
            };
            events.extend(machine.apply(id, 1, proposal).unwrap().events);
        }
        events
    }

    fn bytes(message: WatchMessage) -> WatchResponse {
        // What the encoder writes, without tonic's frame around it.
        let mut out = BytesMut::new();
        message.write(&mut out);
        WatchResponse::decode(out.freeze()).unwrap()
    }

    #[test]
    fn a_reply_decodes_to_what_prost_would_have_written() {
        let reply = WatchReply {
            watch_id: 3,
            revision: 3,
            events: events(&["a", ""]),
            ..WatchReply::default()
        };
        let header = ResponseHeader {
            revision: 3,
            ..ResponseHeader::default()
        };
        let mut messages = WatchMessage::of_reply(reply, header, 10);
        assert_eq!(messages.len(), 1, "fragments were not asked for");
        let decoded = bytes(messages.remove(0));
        assert_eq!(decoded.watch_id, 3);
        assert_eq!(decoded.events.len(), 2);
        assert_eq!(decoded.events[0].kv.as_ref().unwrap().value, "a");
        assert_eq!(decoded.events[1].kv.as_ref().unwrap().mod_revision, 3);
    }

    #[test]
    fn the_limit_is_reached_only_by_single_events() {
        let events = events(&["a", "b", "c", &"d".repeat(300), "e"]);
        let of = |events: Vec<Arc<Event>>, limit| {
            let reply = WatchReply {
                fragment: true,
                events,
                ..WatchReply::default()
            };
            let messages = WatchMessage::of_reply(reply, ResponseHeader::default(), limit);
            let messages: Vec<_> = messages.into_iter().map(bytes).collect();
            let count = |message: &WatchResponse| message.events.len();
            let counts: Vec<_> = messages.iter().map(count).collect();
            for message in messages.iter().filter(|message| message.events.len() > 1) {
                assert!(message.encoded_len() < limit);
            }
            counts
        };
        let three = &events[..3];
        let whole = of(three.to_vec(), usize::MAX);
        assert_eq!(whole, [3]);
        let exact = WatchResponse {
            header: Some(ResponseHeader::default()),
            events: bytes_of(three),
            ..WatchResponse::default()
        }
        .encoded_len();
        assert_eq!(of(three.to_vec(), exact + 1), [3]);
        assert_eq!(of(three.to_vec(), exact), [2, 1], "the flag counts too");
        assert_eq!(of(events.clone(), 100), [3, 1, 1]);
        assert_eq!(of(events[..1].to_vec(), 1), [1]);
    }

    fn bytes_of(events: &[Arc<Event>]) -> Vec<mvccpb::Event> {
        let decode = |event: &Arc<Event>| mvccpb::Event::decode(wire(event, false).clone());
        events.iter().map(decode).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn fragments_carry_every_event_once_and_only_the_last_says_so() {
        let value = "x".repeat(50);
        let events = events(&[value.as_str(); 10]);
        let reply = WatchReply {
            fragment: true,
            events,
            ..WatchReply::default()
        };
        let messages: Vec<_> = WatchMessage::of_reply(reply, ResponseHeader::default(), 200)
            .into_iter()
            .map(bytes)
            .collect();
        assert!(messages.len() > 2);
        let (last, others) = messages.split_last().unwrap();
        assert!(!last.fragment && others.iter().all(|message| message.fragment));
        let revisions: Vec<_> = messages
            .iter()
            .flat_map(|message| &message.events)
            .map(|event| event.kv.as_ref().unwrap().mod_revision)
            .collect();
        assert_eq!(revisions, (2..=11).collect::<Vec<_>>());
    }
}
