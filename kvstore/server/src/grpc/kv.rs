//! Service KV.

use futures::{StreamExt as _, stream::BoxStream};
use mvcc::{RangeEnd, RangeRequest, SortOrder, SortTarget, StateMachine, View};
use proto::etcdserverpb::{self as pb, kv_server::Kv};
use tonic::{Request, Response, Status};

use super::{convert, pairs::PairWriter};
use crate::{
    handle::Handle,
    range_stream::{Chunk, RangeStream},
    rpc_error::RpcError,
};

#[tonic::async_trait]
impl Kv for Handle {
    type RangeStreamStream = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let this = self.for_caller(&request);
        let request = convert::range(request.into_inner()).map_err(RpcError::from)?;
        check_streamable(&request)?;
        self.shared.metrics.applies.ranges.inc();
        let chunks = RangeStream::new(&this, request);
        let chunks = futures::stream::try_unfold((this, chunks), async |(this, mut chunks)| {
            let chunk = chunks.next().await?;
            Ok(chunk.map(|chunk| (chunk_reply(&this, chunk), (this, chunks))))
        });
        Ok(Response::new(chunks.boxed()))
    }

    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let this = self.for_caller(&request);
        let request = convert::range(request.into_inner()).map_err(RpcError::from)?;
        if request.range_end.is_empty() {
            let reply = Handle::range(&this, request).await?;
            let header = self.header(reply.revision);
            let make = move || convert::range_reply(reply, header);
            return self.shared.large_replies.reply(1, make).await;
        }
        let (pairs, end) = this.range_as(request, write_if_short, write_pairs).await?;
        let encoded = pairs.finish(self.header(end.revision), end.count, end.more);
        self.shared.large_replies.encoded(encoded).await
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let this = self.for_caller(&request);
        let reply = Handle::put(&this, convert::put(request.into_inner())).await?;
        let header = self.header(reply.revision);
        Ok(Response::new(convert::put_reply(reply, header)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let this = self.for_caller(&request);
        let request = convert::delete_range(request.into_inner());
        let reply = Handle::delete_range(&this, request).await?;
        let header = self.header(reply.revision);
        let pairs = reply.prev_kvs.len();
        let make = move || convert::delete_reply(reply, header);
        self.shared.large_replies.reply(pairs, make).await
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        let this = self.for_caller(&request);
        let max_ops = self.shared.config.max_txn_ops;
        let request = convert::txn(request.into_inner(), max_ops).map_err(RpcError::from)?;
        let reply = Handle::txn(&this, request).await?;
        let header = self.header(reply.revision);
        let pairs = convert::pairs_of(&reply);
        let make = move || convert::txn_reply(reply, header);
        self.shared.large_replies.reply(pairs, make).await
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::CompactionRequest { revision, physical } = request.into_inner();
        let reply = Handle::compact(&this, mvcc::CompactRequest { revision, physical }).await?;
        Ok(Response::new(pb::CompactionResponse {
            header: self.header(reply.revision),
        }))
    }
}

fn write_if_short(
    machine: &StateMachine,
    request: &RangeRequest,
) -> Result<Option<(PairWriter, RangeEnd)>, mvcc::Error> {
    let mut pairs = PairWriter::default();
    let end = machine.range_each_if_short(request, |pair| pairs.push(pair))?;
    Ok(end.map(|end| (pairs, end)))
}

fn write_pairs(view: &View, request: &RangeRequest) -> Result<(PairWriter, RangeEnd), mvcc::Error> {
    let mut pairs = PairWriter::default();
    let end = view.range_each(request, |pair| pairs.push(pair))?;
    Ok((pairs, end))
}

/// Refuses what cannot be answered in key order as it is found (etcd: v3rpc/key.go,
/// `checkRangeStreamRequest`).
fn check_streamable(request: &RangeRequest) -> Result<(), Status> {
    let key_order = match request.sort_order {
        SortOrder::None => true,
        SortOrder::Ascend => request.sort_target == SortTarget::Key,
        SortOrder::Descend => false,
    };
    if !key_order {
        let reason = "RangeStream does not support custom sort orders";
        return Err(Status::unimplemented(reason));
    }
    let bounds = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if bounds.iter().any(|bound| *bound != 0) {
        let reason = "RangeStream does not support revision filters";
        return Err(Status::unimplemented(reason));
    }
    Ok(())
}

/// Writes a chunk; header, count and `more` are in the last one only.
fn chunk_reply(handle: &Handle, chunk: Chunk) -> pb::RangeStreamResponse {
    let end = chunk.end;
    let reply = pb::RangeResponse {
        header: end.and_then(|end| handle.header(end.revision)),
        kvs: chunk.kvs.into_iter().map(convert::key_value).collect(),
        more: end.is_some_and(|end| end.more),
        count: end.map_or(0, |end| i64::try_from(end.count).unwrap_or(i64::MAX)),
    };
    pb::RangeStreamResponse {
        range_response: Some(reply),
    }
}
