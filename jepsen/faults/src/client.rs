//! A client of one member: its own connection, an answer or an error within a
//! time, and no retries, so that whoever asks sees what the member says.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use proto::etcdserverpb as pb;
use proto::etcdserverpb::cluster_client::ClusterClient;
use proto::etcdserverpb::kv_client::KvClient;
use proto::etcdserverpb::maintenance_client::MaintenanceClient;
use proto::etcdserverpb::watch_client::WatchClient;
use proto::mvccpb;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a question about a member may take.
const QUESTION_PATIENCE: Duration = Duration::from_secs(2);
/// How long a request of an operator may take.
const OPERATION_PATIENCE: Duration = Duration::from_secs(10);
/// How long the whole history may take to be sent.
const HISTORY_PATIENCE: Duration = Duration::from_secs(60);
/// The largest answer taken.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Where all clients run.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("the system gives a few threads and a poll"))
}

/// One change in the history of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its revision.
    pub revision: i64,
    /// What was changed.
    pub key: String,
    /// What it was changed to; empty if it was deleted.
    pub value: String,
    /// How often it was written since it was made; zero if it was deleted.
    pub version: i64,
}

/// What an operator asks about the membership.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Who is a member.
    List,
    /// That a member be added; the first of the answer is the new one.
    Add {
        /// Where the others will reach it.
        peer_url: String,
        /// Whether it has no vote yet.
        learner: bool,
    },
    /// That a learner be given a vote.
    Promote(u64),
    /// That a member be removed.
    Remove(u64),
}

/// A connection to one member.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects when first used, and again when the connection was lost.
    pub fn new(url: &str) -> Self {
        let _inside = runtime().enter();
        let channel = Endpoint::from_shared(url.to_owned())
            .expect("the URL of a member is one")
            .connect_timeout(CONNECT_PATIENCE)
            .tcp_nodelay(true)
            .connect_lazy();
        Self { channel }
    }

    /// Puts, and returns the revision.
    pub async fn put(&self, key: &str, value: &str, patience: Duration) -> Result<i64, Status> {
        let request = pb::PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..pb::PutRequest::default()
        };
        let mut client = KvClient::new(self.channel.clone());
        let reply = within(patience, client.put(request)).await?;
        Ok(reply.header.unwrap_or_default().revision)
    }

    /// Reads one key: its value and the revision of its last change.
    pub async fn get(
        &self,
        key: &str,
        serializable: bool,
        patience: Duration,
    ) -> Result<Option<(String, i64)>, Status> {
        let request = pb::RangeRequest {
            key: key.to_owned().into(),
            serializable,
            ..pb::RangeRequest::default()
        };
        let mut client = KvClient::new(self.channel.clone());
        let reply = within(patience, client.range(request)).await?;
        let found = reply.kvs.into_iter().next();
        Ok(found.map(|kv| (text(&kv.value), kv.mod_revision)))
    }

    /// Asks the member who it is and whom it follows.
    pub async fn status(&self) -> Result<pb::StatusResponse, Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        within(QUESTION_PATIENCE, client.status(pb::StatusRequest {})).await
    }

    /// Returns the alarms that are on.
    pub async fn alarms(&self) -> Result<Vec<pb::AlarmMember>, Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let get = pb::AlarmRequest::default();
        Ok(within(QUESTION_PATIENCE, client.alarm(get)).await?.alarms)
    }

    /// Lets the store go on after it ran out of room.
    pub async fn disarm(&self) -> Result<(), Status> {
        for alarm in self.alarms().await? {
            let disarm = pb::AlarmRequest {
                action: pb::alarm_request::AlarmAction::Deactivate.into(),
                member_id: alarm.member_id,
                alarm: alarm.alarm,
            };
            let mut client = MaintenanceClient::new(self.channel.clone());
            within(QUESTION_PATIENCE, client.alarm(disarm)).await?;
        }
        Ok(())
    }

    /// Returns the member's hash of everything up to a revision.
    pub async fn hash_kv(&self, revision: i64) -> Result<pb::HashKvResponse, Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let request = pb::HashKvRequest { revision };
        within(HISTORY_PATIENCE, client.hash_kv(request)).await
    }

    /// Sends an operator's request to the cluster of members.
    pub async fn members(&self, ask: Ask) -> Result<Vec<pb::Member>, Status> {
        let mut client = ClusterClient::new(self.channel.clone());
        match ask {
            Ask::List => {
                let request = pb::MemberListRequest::default();
                let reply = within(OPERATION_PATIENCE, client.member_list(request)).await?;
                Ok(reply.members)
            }
            Ask::Add { peer_url, learner } => {
                let request = pb::MemberAddRequest {
                    peer_ur_ls: vec![peer_url],
                    is_learner: learner,
                };
                let reply = within(OPERATION_PATIENCE, client.member_add(request)).await?;
                Ok(reply.member.into_iter().chain(reply.members).collect())
            }
            Ask::Promote(id) => {
                let request = pb::MemberPromoteRequest { id };
                let reply = within(OPERATION_PATIENCE, client.member_promote(request)).await?;
                Ok(reply.members)
            }
            Ask::Remove(id) => {
                let request = pb::MemberRemoveRequest { id };
                let reply = within(OPERATION_PATIENCE, client.member_remove(request)).await?;
                Ok(reply.members)
            }
        }
    }

    /// Hands leadership to another member.
    pub async fn move_leader(&self, to: u64) -> Result<(), Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let request = pb::MoveLeaderRequest { target_id: to };
        within(OPERATION_PATIENCE, client.move_leader(request)).await?;
        Ok(())
    }

    /// Gives back the room that deleted rows took.
    pub async fn defragment(&self) -> Result<(), Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let request = pb::DefragmentRequest {};
        within(HISTORY_PATIENCE, client.defragment(request)).await?;
        Ok(())
    }

    /// Forgets what was before a revision.
    pub async fn compact(&self, revision: i64, physical: bool) -> Result<(), Status> {
        let mut client = KvClient::new(self.channel.clone());
        let request = pb::CompactionRequest { revision, physical };
        within(OPERATION_PATIENCE, client.compact(request)).await?;
        Ok(())
    }

    /// Returns every change up to a revision, the last of which must be a put.
    pub async fn history(&self, until: i64) -> Result<Vec<Change>, Status> {
        let all = pb::WatchCreateRequest {
            key: b"\0"[..].into(),
            range_end: b"\0"[..].into(),
            start_revision: 1,
            ..pb::WatchCreateRequest::default()
        };
        let request = pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(all)),
        };
        // The stream of requests stays open, for its end would end the watch.
        let requests = tokio_stream::StreamExt::chain(
            tokio_stream::once(request),
            tokio_stream::pending::<pb::WatchRequest>(),
        );
        let mut client =
            WatchClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut replies = client.watch(requests).await?.into_inner();
        let read = async {
            let mut changes: Vec<Change> = Vec::new();
            while changes.last().is_none_or(|c| c.revision < until) {
                let Some(reply) = replies.message().await? else {
                    return Err(Status::aborted("the history ended early"));
                };
                if reply.canceled {
                    return Err(Status::aborted(reply.cancel_reason));
                }
                changes.extend(reply.events.into_iter().map(change));
            }
            Ok(changes)
        };
        match tokio::time::timeout(HISTORY_PATIENCE, read).await {
            Ok(changes) => changes,
            Err(_elapsed) => Err(Status::deadline_exceeded("the history did not come")),
        }
    }
}

fn change(event: mvccpb::Event) -> Change {
    let kv = event.kv.unwrap_or_default();
    Change {
        revision: kv.mod_revision,
        key: text(&kv.key),
        value: text(&kv.value),
        version: kv.version,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits so long for an answer. Whoever is not answered knows nothing.
async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_elapsed) => Err(Status::deadline_exceeded("no answer in time")),
    }
}
