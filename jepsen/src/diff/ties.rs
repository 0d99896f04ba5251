//! The order of keys that sort alike.
//!
//! etcd sorts with Go's `sort.Sort` (txn/range.go), which keeps no order among
//! equals, and its library's algorithm changed over the years; a limit then decides
//! which of them are shown. So what sorts alike is compared as a set, and of a last
//! group that a limit may have cut only how it sorts. This is done only where the
//! plain comparison found a difference.

use prost_reflect::DynamicMessage;
use proto::{
    etcdserverpb::{self as pb, range_request::SortTarget, request_op, response_op},
    mvccpb::KeyValue,
};

use super::{
    answer::{Answer, Part},
    program::Step,
    wire,
};

/// Returns the answer with keys that sort alike in the order of keys, if anything
/// the step asks for is sorted otherwise.
pub(crate) fn untied(step: &Step, answer: &Answer) -> Option<Answer> {
    let name = step.name();
    if !matches!(name.as_str(), "KV/Range" | "KV/Txn")
        || !step.request.to_string().contains("sort_target")
    {
        return None;
    }
    let untie = |message: &DynamicMessage| {
        if name == "KV/Range" {
            let mut range = wire::typed(message);
            untie_range(&wire::typed(&step.request), &mut range);
            wire::describe(prost_reflect::ReflectMessage::descriptor(message), &range)
        } else {
            let mut txn = wire::typed(message);
            untie_txn(&wire::typed(&step.request), &mut txn);
            wire::describe(prost_reflect::ReflectMessage::descriptor(message), &txn)
        }
    };
    let part = |part: &Part| Part {
        label: part.label.clone(),
        said: part.said.as_ref().map(untie).map_err(Clone::clone),
    };
    Some(answer.iter().map(part).collect())
}

fn untie_txn(request: &pb::TxnRequest, response: &mut pb::TxnResponse) {
    let branch = match response.succeeded {
        true => &request.success,
        false => &request.failure,
    };
    for (op, reply) in branch.iter().zip(&mut response.responses) {
        use {request_op::Request as Q, response_op::Response as R};
        match (&op.request, &mut reply.response) {
            (Some(Q::RequestRange(q)), Some(R::ResponseRange(r))) => untie_range(q, r),
            (Some(Q::RequestTxn(q)), Some(R::ResponseTxn(r))) => untie_txn(q, r),
            _ => {}
        }
    }
}

fn untie_range(request: &pb::RangeRequest, response: &mut pb::RangeResponse) {
    let target = request.sort_target();
    if target == SortTarget::Key {
        return;
    }
    let mut start = 0;
    while start < response.kvs.len() {
        let rest = &mut response.kvs[start..];
        let first = sorted_by(&rest[0], target);
        let length = rest
            .iter()
            .take_while(|kv| sorted_by(kv, target) == first)
            .count();
        let group = &mut rest[..length];
        group.sort_by(|a, b| a.key.cmp(&b.key));
        start += length;
        if response.more && start == response.kvs.len() {
            for kv in &mut response.kvs[start - length..] {
                *kv = sorted_by(kv, target);
            }
        }
    }
}

/// Only what a key sorts by.
fn sorted_by(kv: &KeyValue, target: SortTarget) -> KeyValue {
    let mut only = KeyValue::default();
    match target {
        SortTarget::Key => only.key.clone_from(&kv.key),
        SortTarget::Version => only.version = kv.version,
        SortTarget::Create => only.create_revision = kv.create_revision,
        SortTarget::Mod => only.mod_revision = kv.mod_revision,
        SortTarget::Value => only.value.clone_from(&kv.value),
    }
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(more: bool, kvs: &[(&'static str, i64)]) -> pb::RangeResponse {
        let kv = |(key, mod_revision): &(&'static str, i64)| KeyValue {
            key: (*key).into(),
            mod_revision: *mod_revision,
            ..KeyValue::default()
        };
        pb::RangeResponse {
            kvs: kvs.iter().map(kv).collect(),
            more,
            ..pb::RangeResponse::default()
        }
    }

    fn same(target: SortTarget, mut a: pb::RangeResponse, mut b: pb::RangeResponse) -> bool {
        let request = pb::RangeRequest {
            sort_target: target.into(),
            ..pb::RangeRequest::default()
        };
        untie_range(&request, &mut a);
        untie_range(&request, &mut b);
        a == b
    }

    #[test]
    fn only_what_sorts_alike_may_change_places() {
        let a = || response(false, &[("a", 1), ("b", 2), ("c", 2)]);
        let b = || response(false, &[("a", 1), ("c", 2), ("b", 2)]);
        assert!(same(SortTarget::Mod, a(), b()));
        assert!(!same(SortTarget::Key, a(), b()));
        let c = response(false, &[("b", 2), ("a", 1), ("c", 2)]);
        assert!(!same(SortTarget::Mod, a(), c));
    }

    #[test]
    fn a_limit_may_show_others_that_sort_alike() {
        let a = |more| response(more, &[("a", 1), ("b", 2)]);
        let b = |more| response(more, &[("a", 1), ("c", 2)]);
        assert!(same(SortTarget::Mod, a(true), b(true)));
        assert!(!same(SortTarget::Mod, a(false), b(false)));
        let c = response(true, &[("a", 1), ("c", 3)]);
        assert!(!same(SortTarget::Mod, a(true), c));
    }
}
