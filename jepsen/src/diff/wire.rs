//! Every method and message of etcd v3 by its description.
//!
//! Requests and answers are handled as described messages, so that a field nobody
//! thought of is sent, shrunk, printed and compared like all others.

use std::sync::OnceLock;

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor, Value,
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(proto::DESCRIPTOR_SET).expect("compiled from our own .proto text")
    })
}

/// Finds a method by service and name, such as `KV/Range`.
pub(crate) fn method(short: &str) -> Option<MethodDescriptor> {
    let (service, method) = short.split_once('/')?;
    let service = pool().services().find(|each| each.name() == service)?;
    service.methods().find(|each| each.name() == method)
}

/// Finds a message of etcd's main package.
pub(crate) fn message(name: &str) -> Option<MessageDescriptor> {
    pool().get_message_by_name(&format!("etcdserverpb.{name}"))
}

/// Describes a typed message. The two must be of one kind.
pub(crate) fn describe(kind: MessageDescriptor, message: &impl Message) -> DynamicMessage {
    DynamicMessage::decode(kind, message.encode_to_vec().as_slice())
        .expect("both come from the same .proto text")
}

/// Reads a described message as the typed one; the opposite of [`describe`].
pub(crate) fn typed<M: Message + Default>(message: &DynamicMessage) -> M {
    message
        .transcode_to()
        .expect("both come from the same .proto text")
}

/// Calls `change` on every 64-bit integer of a message, however deep.
pub(crate) fn each_integer(
    message: &mut DynamicMessage,
    change: &mut impl FnMut(&FieldDescriptor, i64) -> i64,
) {
    fn visit(
        field: &FieldDescriptor,
        value: &mut Value,
        change: &mut impl FnMut(&FieldDescriptor, i64) -> i64,
    ) {
        match value {
            Value::I64(number) => *number = change(field, *number),
            Value::U64(number) => *number = change(field, number.cast_signed()).cast_unsigned(),
            Value::Message(inner) => each_integer(inner, change),
            Value::List(list) => list
                .iter_mut()
                .for_each(|value| visit(field, value, change)),
            _ => {}
        }
    }
    for (field, value) in message.fields_mut() {
        visit(&field, value, change);
    }
}

/// Passes messages through as the bytes they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::etcdserverpb as pb;

    #[test]
    fn methods_are_found_by_service_and_name() {
        assert_eq!(method("KV/Range").unwrap().input().name(), "RangeRequest");
        assert_eq!(
            method("Lock/Lock").unwrap().full_name(),
            "v3lockpb.Lock.Lock"
        );
        assert!(method("KV/Rage").is_none());
        assert!(method("Range").is_none());
    }

    #[test]
    fn integers_are_found_at_any_depth() {
        let put = pb::PutRequest {
            lease: 7,
            ..pb::PutRequest::default()
        };
        let op = pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(put)),
        };
        let txn = pb::TxnRequest {
            success: vec![op],
            ..pb::TxnRequest::default()
        };
        let mut txn = describe(message("TxnRequest").unwrap(), &txn);
        let mut seen = Vec::new();
        each_integer(&mut txn, &mut |field, number| {
            seen.push((field.name().to_owned(), number));
            number + 1
        });
        assert_eq!(seen, [("lease".to_owned(), 7)]);
        assert!(txn.to_string().contains("lease:8"), "{txn}");
    }
}
