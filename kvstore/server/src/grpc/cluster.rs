//! Service Cluster: who the members are, and changing that.

use std::time::UNIX_EPOCH;

use mvcc::{Error, MemberCommand, MemberInfo};
use proto::etcdserverpb::{self as pb, cluster_server::Cluster};
use tonic::{Request, Response, Status};

use crate::{RpcError, handle::Handle, identity::joining_member_id};

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
        let this = self.for_caller(&request);
        let pb::MemberAddRequest {
            peer_ur_ls: mut peer_urls,
            is_learner: learner,
        } = request.into_inner();
        check_urls(&peer_urls)?;
        this.check_root()?;
        peer_urls.sort();
        let seconds = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let id = joining_member_id(&peer_urls, seconds);
        let member = MemberInfo {
            id,
            peer_urls,
            learner,
            ..MemberInfo::default()
        };
        let added = wire(&member);
        self.change_members(MemberCommand::Add(member)).await?;
        Ok(Response::new(pb::MemberAddResponse {
            header: self.header(0),
            member: Some(added),
            members: self.members(),
        }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        self.for_caller(&request).check_root()?;
        let id = request.into_inner().id;
        let removed = self.change_members(MemberCommand::Remove(id)).await;
        if let Err(error) = removed {
            let quorum = Error::NotEnoughStartedMembers.to_string();
            return Err(match error.message == quorum {
                // On the wire etcd's code for it is Unknown: the error it returns here
                // has lost its own (v3rpc/util.go, all versions so far).
                true => Status::unknown(quorum),
                false => error.into(),
            });
        }
        Ok(Response::new(pb::MemberRemoveResponse {
            header: self.header(0),
            members: self.members(),
        }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::MemberUpdateRequest {
            id,
            peer_ur_ls: mut peer_urls,
        } = request.into_inner();
        check_urls(&peer_urls)?;
        this.check_root()?;
        peer_urls.sort();
        self.change_members(MemberCommand::Update { id, peer_urls })
            .await?;
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
        let id = request.into_inner().id;
        self.change_members(MemberCommand::Promote(id)).await?;
        Ok(Response::new(pb::MemberPromoteResponse {
            header: self.header(0),
            members: self.members(),
        }))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        self.for_caller(&request).check_user()?;
        if request.into_inner().linearizable {
            self.catch_up().await?;
        }
        Ok(Response::new(pb::MemberListResponse {
            header: self.header(0),
            members: self.members(),
        }))
    }
}

fn check_urls(urls: &[String]) -> Result<(), Status> {
    match !urls.is_empty() && urls.iter().all(|url| is_peer_url(url)) {
        true => Ok(()),
        false => Err(refusal(Error::MemberBadUrls)),
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
