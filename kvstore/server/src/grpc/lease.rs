//! Service Lease.

use futures::{StreamExt as _, stream::BoxStream};
use proto::etcdserverpb::{self as pb, lease_server::Lease};
use tonic::{Request, Response, Status, Streaming};

use crate::handle::Handle;

#[tonic::async_trait]
impl Lease for Handle {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
        let reply = Handle::lease_grant(&this, mvcc::LeaseGrantRequest { id, ttl }).await?;
        Ok(Response::new(pb::LeaseGrantResponse {
            header: self.header(reply.revision),
            id: reply.id,
            ttl: reply.ttl,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let this = self.for_caller(&request);
        let id = request.into_inner().id;
        let reply = Handle::lease_revoke(&this, mvcc::LeaseRevokeRequest { id }).await?;
        Ok(Response::new(pb::LeaseRevokeResponse {
            header: self.header(reply.revision),
        }))
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let handle = self.for_caller(&request);
        // Answered one after the other, so a client that does not read its answers
        // is not read from either.
        let replies = request.into_inner().then(move |request| {
            let handle = handle.clone();
            async move {
                let id = request?.id;
                // etcd makes the header before it renews.
                let header = handle.header(handle.revision());
                let ttl = handle.lease_keepalive(id).await?;
                Ok(pb::LeaseKeepAliveResponse { header, id, ttl })
            }
        });
        let stop = self.shared.stop.clone();
        Ok(Response::new(
            replies.take_until(stop.cancelled_owned()).boxed(),
        ))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let found = Handle::lease_time_to_live(&this, id, keys).await?;
        Ok(Response::new(pb::LeaseTimeToLiveResponse {
            header: self.header(self.revision()),
            id,
            ttl: found.ttl,
            granted_ttl: found.granted_ttl,
            keys: found.keys,
        }))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let leases = self.for_caller(&request).leases()?;
        Ok(Response::new(pb::LeaseLeasesResponse {
            header: self.header(self.revision()),
            leases: leases
                .into_iter()
                .map(|id| pb::LeaseStatus { id })
                .collect(),
        }))
    }
}
