//! The peer port as others find it: who may call there, and what hostile bytes do.

use proto::{
    etcdserverpb as pb,
    peer::{Frame, LinkReply, MembersRequest, StatusRequest, peer_client::PeerClient},
};
use tonic::{Code, Request, Response, Status, Streaming, transport::Channel};

use crate::store::{DEADLINE, Store, refused};

/// Starts a member with a peer port, and connects to that.
async fn member() -> (Store, Channel) {
    let store = Store::start_with(|config| {
        config.listen_peer_urls = vec!["http://127.0.0.1:0".to_owned()];
    })
    .await;
    let url = format!("http://{}", store.running().peer_addrs[0]);
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    (store, channel)
}

/// Says what a member speaks.
fn introduced<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("keelson-protocol", 1.into());
    metadata.insert("keelson-protocol-min", 1.into());
    request
}

/// Says who calls whom.
fn signed<T>(message: T, cluster: u64, from: u64, to: u64) -> Request<T> {
    let mut request = introduced(message);
    for (key, id) in [
        ("keelson-cluster", cluster),
        ("keelson-from", from),
        ("keelson-to", to),
    ] {
        let id = format!("{id:x}").parse().unwrap();
        request.metadata_mut().insert(key, id);
    }
    request
}

#[track_caller]
fn refused_with<T: std::fmt::Debug>(answer: Result<Response<T>, Status>, words: &str) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().starts_with(words), "{status}");
}

#[tokio::test]
async fn only_members_may_call() {
    let (store, channel) = member().await;
    let (own, cluster) = store.running().handle.ids();
    let mut peer = PeerClient::new(channel.clone());

    let silent = peer.members(MembersRequest {}).await;
    refused_with(silent, "incompatible version");
    // Whoever wants to join asks this, and nothing else.
    let reply = peer.members(introduced(MembersRequest {})).await.unwrap();
    let reply = reply.into_inner();
    assert_eq!((reply.cluster_id, reply.member_id), (cluster, own));
    assert_eq!(reply.members.len(), 1);
    refused_with(
        peer.status(introduced(StatusRequest {})).await,
        "cluster ID mismatch",
    );
    let other = signed(StatusRequest {}, cluster + 1, 7, own);
    refused_with(peer.status(other).await, "cluster ID mismatch");
    let wanted = signed(StatusRequest {}, cluster, 7, own + 1);
    refused_with(peer.status(wanted).await, "to field mismatch");
    let status = peer.status(signed(StatusRequest {}, cluster, 7, own)).await;
    assert_eq!(status.unwrap().into_inner().leader, own);

    // Neither port serves what belongs to the other.
    let mut kv = pb::kv_client::KvClient::new(channel);
    let range = kv.range(pb::RangeRequest::default()).await;
    assert_eq!(range.unwrap_err().code(), Code::Unimplemented);
    let mut client = PeerClient::new(store.channel().await);
    refused(
        client.members(introduced(MembersRequest {})).await,
        12,
        "unknown service keelson.peer.v1.Peer",
    );
}

/// Opens a link that sends these frames and stays open.
async fn link(store: &Store, channel: Channel, frames: Vec<Frame>) -> Streaming<LinkReply> {
    use futures::StreamExt as _;
    let (own, cluster) = store.running().handle.ids();
    let frames = futures::stream::iter(frames).chain(futures::stream::pending());
    let call = signed(frames, cluster, 7, own);
    let mut peer = PeerClient::new(channel);
    peer.link(call).await.unwrap().into_inner()
}

#[tokio::test]
async fn hostile_frames_end_their_link_and_nothing_else() {
    let (store, channel) = member().await;
    let (own, _) = store.running().handle.ids();
    let probe = |probe| Frame {
        probe,
        ..Frame::default()
    };
    let notes = |notes: &[u8]| Frame {
        notes: notes.to_vec().into(),
        probe: 0,
    };
    let mut votes = vec![1, 0, 0, 0, 0, 3, 0];
    votes.extend(own.to_le_bytes());
    for hostile in [
        // Cut off, in its head and in its body.
        notes(&[1]),
        notes(&[1, 0xff, 0xff, 0xff, 0xff]),
        // A message of no kind, a forward without an id, an answer to nothing.
        notes(&[1, 2, 0, 0, 0, 0, 0]),
        notes(&[2, 3, 0, 0, 0, 1, 2, 3]),
        notes(&[5, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        notes(&votes),
    ] {
        let mut replies = link(&store, channel.clone(), vec![probe(5), hostile]).await;
        let first = replies.message().await.unwrap().unwrap();
        assert_eq!(first.probe, 5);
        let ended = tokio::time::timeout(DEADLINE, replies.message()).await;
        assert_eq!(ended.unwrap().unwrap_err().code(), Code::DataLoss);
    }
    // What a newer member might say is passed over, and so are questions of nobody.
    let odd = notes(&[99, 1, 0, 0, 0, 7, 4, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let mut replies = link(&store, channel, vec![odd, probe(6)]).await;
    let reply = tokio::time::timeout(DEADLINE, replies.message()).await;
    assert_eq!(reply.unwrap().unwrap().unwrap().probe, 6);
    store.kv().await.put("a", "1").await;
}
