//! Service Cluster: who the members are.
//!
//! There is one, and it cannot be changed yet. Whatever etcd would answer a lone
//! member without changing anything is answered so; the rest is Unimplemented,
//! saying what is missing.

use mvcc::Error;
use proto::etcdserverpb::{self as pb, cluster_server::Cluster};
use tonic::{Request, Response, Status};

use crate::{RpcError, handle::Handle};

const NO_CHANGES: &str = "etcdserver: member changes are not supported by this version";

impl Handle {
    /// Lists the members as this one has applied them, by id.
    pub(crate) fn members(&self) -> Vec<pb::Member> {
        let listed = self.shared.with(|core| {
            let members = core.machine.membership().members();
            members.map(wire).collect::<Vec<_>>()
        });
        // It is stopping; whoever asks will not be answered.
        listed.unwrap_or_default()
    }

    fn must_be_member(&self, id: u64) -> Result<(), Status> {
        match id == self.shared.ids.member {
            true => Ok(()),
            false => Err(refusal(Error::MemberNotFound)),
        }
    }
}

fn wire(member: &mvcc::MemberInfo) -> pb::Member {
    pb::Member {
        id: member.id,
        name: member.name.clone(),
        peer_ur_ls: member.peer_urls.clone(),
        client_ur_ls: member.client_urls.clone(),
        is_learner: member.learner,
    }
}

fn refusal(error: Error) -> Status {
    RpcError::from(error).into()
}

// etcd leaves the revision of membership replies at zero.
#[tonic::async_trait]
impl Cluster for Handle {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let urls = request.into_inner().peer_ur_ls;
        if urls.is_empty() || !urls.iter().all(|url| is_peer_url(url)) {
            return Err(refusal(Error::MemberBadUrls));
        }
        let ours = &self.shared.config.initial_advertise_peer_urls;
        if urls.iter().any(|url| ours.contains(url)) {
            return Err(refusal(Error::PeerUrlExists));
        }
        Err(Status::unimplemented(NO_CHANGES))
    }

    /// Refuses: the last voter cannot go, for nobody would be left to agree on it
    /// (etcd: RaftCluster.IsReadyToRemoveVotingMember).
    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        self.for_caller(&request).check_root()?;
        self.must_be_member(request.into_inner().id)?;
        // On the wire etcd's code for it is Unknown: the error it returns here has
        // lost its own (v3rpc/util.go, all versions so far).
        let reason = Error::NotEnoughStartedMembers.to_string();
        Err(Status::unknown(reason))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let request = request.into_inner();
        self.must_be_member(request.id)?;
        // The id is made of the peer URLs, so they stay what they were at first.
        if request.peer_ur_ls != self.shared.config.initial_advertise_peer_urls {
            return Err(Status::unimplemented(NO_CHANGES));
        }
        Ok(Response::new(pb::MemberUpdateResponse {
            header: self.header(0),
            members: self.members(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        self.for_caller(&request).check_root()?;
        self.must_be_member(request.into_inner().id)?;
        Err(refusal(Error::MemberNotLearner))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        self.for_caller(&request).check_user()?;
        if request.into_inner().linearizable {
            self.confirm_leadership().await?;
        }
        Ok(Response::new(pb::MemberListResponse {
            header: self.header(0),
            members: self.members(),
        }))
    }
}

/// Says whether etcd would take it for a peer URL (client/pkg/types, NewURLs): a
/// scheme it knows, `host:port` either of which may be empty, no path.
fn is_peer_url(url: &str) -> bool {
    let rest = ["http://", "https://", "unix://", "unixs://"]
        .iter()
        .find_map(|scheme| url.trim().strip_prefix(scheme));
    let Some(rest) = rest else { return false };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let port = match host_port.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:").map(|(_, port)| port),
        None => host_port
            .split_once(':')
            .filter(|(host, _)| !host.contains([' ', '[', ']', '%', '<', '>', '"']))
            .map(|(_, port)| port),
    };
    !path.starts_with('/') && port.is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_urls_are_what_etcd_takes_for_them() {
        for good in [
            "http://a:1",
            " https://[::1]:2380 ",
            "http://:2380",
            "http://a:",
            "unix://a:1",
            "http://a:1?x",
        ] {
            assert!(is_peer_url(good), "{good}");
        }
        for bad in [
            "",
            "a:1",
            "ftp://a:1",
            "http://a",
            "http://a:1/",
            "http://::1:2380",
            "http://a:x",
        ] {
            assert!(!is_peer_url(bad), "{bad}");
        }
    }
}
