//! Service KV.

use proto::etcdserverpb::{self as pb, kv_server::Kv};
use tonic::{Request, Response, Status};

use super::convert;
use crate::{handle::Handle, rpc_error::RpcError};

#[tonic::async_trait]
impl Kv for Handle {
    type RangeStreamStream = tokio_stream::Empty<Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("unknown method"))
    }

    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let this = self.for_caller(&request);
        let request = convert::range(request.into_inner()).map_err(RpcError::from)?;
        let reply = Handle::range(&this, request).await?;
        let header = self.header(reply.revision);
        Ok(Response::new(convert::range_reply(reply, header)))
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
        Ok(Response::new(convert::delete_reply(reply, header)))
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
        Ok(Response::new(convert::txn_reply(reply, header)))
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
