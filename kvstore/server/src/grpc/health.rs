//! Service Health of gRPC itself: load balancers ask it.
//!
//! etcd registers one name, the empty one, for the server as a whole
//! (v3rpc/grpc.go); the answers for others are grpc-go's.

use futures::{StreamExt as _, stream::BoxStream};
use proto::health::{self as pb, health_check_response::ServingStatus, health_server::Health};
use tonic::{Request, Response, Status};

use crate::handle::Handle;

/// The name under which the server as a whole is known.
const WHOLE_SERVER: &str = "";

#[tonic::async_trait]
impl Health for Handle {
    async fn check(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<pb::HealthCheckResponse>, Status> {
        match request.into_inner().service.as_str() {
            WHOLE_SERVER if self.shared.stop.is_cancelled() => {
                Ok(Response::new(says(ServingStatus::NotServing)))
            }
            WHOLE_SERVER => Ok(Response::new(says(ServingStatus::Serving))),
            _ => Err(Status::not_found("unknown service")),
        }
    }

    type WatchStream = BoxStream<'static, Result<pb::HealthCheckResponse, Status>>;

    /// A name nobody registered may be registered later, so the stream stays open.
    async fn watch(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = request.into_inner().service == WHOLE_SERVER;
        let now = match known {
            true => says(ServingStatus::Serving),
            false => says(ServingStatus::ServiceUnknown),
        };
        let stop = self.shared.stop.clone();
        let last = futures::stream::once(async move {
            stop.cancelled().await;
            known.then(|| Ok(says(ServingStatus::NotServing)))
        });
        let last = last.filter_map(std::future::ready);
        let first = futures::stream::once(std::future::ready(Ok(now)));
        Ok(Response::new(first.chain(last).boxed()))
    }
}

fn says(status: ServingStatus) -> pb::HealthCheckResponse {
    pb::HealthCheckResponse {
        status: status.into(),
    }
}
