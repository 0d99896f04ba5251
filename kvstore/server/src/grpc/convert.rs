//! Between the wire's messages and the state machine's own types.

use bytes::Bytes;
use mvcc::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Error, KeyValue, PutRequest,
    RangeRequest, RequestOp, ResponseOp, SortOrder, SortTarget, TxnRequest,
    check::{check_delete_range, check_put},
};
use proto::{
    etcdserverpb::{self as pb, compare::TargetUnion, request_op::Request, response_op::Response},
    mvccpb,
};

/// Reads a range request; the order of refusals is etcd's.
pub(crate) fn range(request: pb::RangeRequest) -> Result<RangeRequest, Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let sort_order = SortOrder::from_i32(request.sort_order).ok_or(Error::InvalidSortOption)?;
    let sort_target = SortTarget::from_i32(request.sort_target).ok_or(Error::InvalidSortOption)?;
    Ok(RangeRequest {
        key: request.key,
        range_end: request.range_end,
        limit: request.limit,
        revision: request.revision,
        sort_order,
        sort_target,
        serializable: request.serializable,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    })
}

pub(crate) fn put(request: pb::PutRequest) -> PutRequest {
    PutRequest {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

pub(crate) fn delete_range(request: pb::DeleteRangeRequest) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: request.key,
        range_end: request.range_end,
        prev_kv: request.prev_kv,
    }
}

/// Reads a transaction; its depth was limited when the bytes were decoded.
pub(crate) fn txn(request: pb::TxnRequest, max_ops: usize) -> Result<TxnRequest, Error> {
    // Counted first, so that a refusal costs no work in proportion to the request.
    let most = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    if most > max_ops {
        return Err(Error::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    let left = max_ops - most;
    let ops = |ops: Vec<pb::RequestOp>| {
        ops.into_iter()
            .map(|each| op(each, left))
            .collect::<Result<_, _>>()
    };
    Ok(TxnRequest {
        compare: request.compare.into_iter().map(compare).collect(),
        success: ops(request.success)?,
        failure: ops(request.failure)?,
    })
}

/// Reads one operation. It is checked here already, since an unknown sort order is
/// found here and the first refusal must be the one of the first operation.
fn op(request: pb::RequestOp, max_ops: usize) -> Result<RequestOp, Error> {
    Ok(match request.request {
        None => return Err(Error::KeyNotFound),
        Some(Request::RequestRange(request)) => RequestOp::Range(range(request)?),
        Some(Request::RequestPut(request)) => {
            let request = put(request);
            check_put(&request)?;
            RequestOp::Put(request)
        }
        Some(Request::RequestDeleteRange(request)) => {
            let request = delete_range(request);
            check_delete_range(&request)?;
            RequestOp::DeleteRange(request)
        }
        Some(Request::RequestTxn(request)) => RequestOp::Txn(txn(request, max_ops)?),
    })
}

/// Reads a comparison. A target whose value is missing compares with zero or with
/// nothing, as the getters of etcd's generated code do.
fn compare(request: pb::Compare) -> Compare {
    let given = request.target_union;
    let target = match pb::compare::CompareTarget::try_from(request.target) {
        Ok(pb::compare::CompareTarget::Version) => CompareTarget::Version(match given {
            Some(TargetUnion::Version(number)) => number,
            _ => 0,
        }),
        Ok(pb::compare::CompareTarget::Create) => CompareTarget::CreateRevision(match given {
            Some(TargetUnion::CreateRevision(number)) => number,
            _ => 0,
        }),
        Ok(pb::compare::CompareTarget::Mod) => CompareTarget::ModRevision(match given {
            Some(TargetUnion::ModRevision(number)) => number,
            _ => 0,
        }),
        Ok(pb::compare::CompareTarget::Value) => CompareTarget::Value(match given {
            Some(TargetUnion::Value(value)) => value,
            _ => Bytes::new(),
        }),
        Ok(pb::compare::CompareTarget::Lease) => CompareTarget::Lease(match given {
            Some(TargetUnion::Lease(number)) => number,
            _ => 0,
        }),
        Err(_unknown) => return unknown_target(request.key, request.range_end, request.result),
    };
    let Some(result) = CompareResult::from_i32(request.result) else {
        return unknown_result(request.key, request.range_end, &target);
    };
    Compare {
        key: request.key,
        range_end: request.range_end,
        result,
        target,
    }
}

/// A version no key has, nor a missing one, whose version is zero.
const NO_VERSION: i64 = -1;

/// A target etcd does not know compares as equal (txn.go, compareKV).
fn unknown_target(key: Bytes, range_end: Bytes, result: i32) -> Compare {
    let holds = matches!(
        CompareResult::from_i32(result),
        Some(CompareResult::Equal) | None
    );
    let result = match holds {
        true => CompareResult::NotEqual,
        false => CompareResult::Equal,
    };
    Compare {
        key,
        range_end,
        result,
        target: CompareTarget::Version(NO_VERSION),
    }
}

/// A result etcd does not know holds, but for the value of no key (txn.go,
/// applyCompare).
fn unknown_result(key: Bytes, range_end: Bytes, target: &CompareTarget) -> Compare {
    let (result, target) = match target {
        CompareTarget::Value(_) => (CompareResult::Greater, CompareTarget::Version(0)),
        CompareTarget::Version(_)
        | CompareTarget::CreateRevision(_)
        | CompareTarget::ModRevision(_)
        | CompareTarget::Lease(_) => (CompareResult::NotEqual, CompareTarget::Version(NO_VERSION)),
    };
    Compare {
        key,
        range_end,
        result,
        target,
    }
}

pub(crate) fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

pub(crate) fn range_reply(
    reply: mvcc::RangeReply,
    header: Option<pb::ResponseHeader>,
) -> pb::RangeResponse {
    pb::RangeResponse {
        header,
        kvs: reply.kvs.into_iter().map(key_value).collect(),
        more: reply.more,
        count: reply.count,
    }
}

pub(crate) fn put_reply(
    reply: mvcc::PutReply,
    header: Option<pb::ResponseHeader>,
) -> pb::PutResponse {
    pb::PutResponse {
        header,
        prev_kv: reply.prev_kv.map(key_value),
    }
}

pub(crate) fn delete_reply(
    reply: mvcc::DeleteReply,
    header: Option<pb::ResponseHeader>,
) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header,
        deleted: reply.deleted,
        prev_kvs: reply.prev_kvs.into_iter().map(key_value).collect(),
    }
}

pub(crate) fn txn_reply(
    reply: mvcc::TxnReply,
    header: Option<pb::ResponseHeader>,
) -> pb::TxnResponse {
    let responses = reply.responses.into_iter().map(response_op).collect();
    pb::TxnResponse {
        header,
        succeeded: reply.succeeded,
        responses,
    }
}

/// Counts the pairs in the answer to a transaction.
pub(crate) fn pairs_of(reply: &mvcc::TxnReply) -> usize {
    let pairs = reply.responses.iter().map(|response| match response {
        ResponseOp::Range(reply) => reply.kvs.len(),
        ResponseOp::Put(_) => 1,
        ResponseOp::DeleteRange(reply) => reply.prev_kvs.len(),
        ResponseOp::Txn(reply) => pairs_of(reply),
    });
    pairs.sum()
}

/// Writes one answer inside a transaction; its header carries only a revision.
fn response_op(response: ResponseOp) -> pb::ResponseOp {
    let header = |revision| {
        Some(pb::ResponseHeader {
            revision,
            ..pb::ResponseHeader::default()
        })
    };
    let response = match response {
        ResponseOp::Range(reply) => {
            let header = header(reply.revision);
            Response::ResponseRange(range_reply(reply, header))
        }
        ResponseOp::Put(reply) => {
            let header = header(reply.revision);
            Response::ResponsePut(put_reply(reply, header))
        }
        ResponseOp::DeleteRange(reply) => {
            let header = header(reply.revision);
            Response::ResponseDeleteRange(delete_reply(reply, header))
        }
        ResponseOp::Txn(reply) => {
            let header = header(reply.revision);
            Response::ResponseTxn(txn_reply(reply, header))
        }
    };
    pb::ResponseOp {
        response: Some(response),
    }
}
