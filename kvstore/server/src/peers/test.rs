//! Members that consist of links only: what arrives, what is given up, and who is
//! refused.

mod harness;
mod snapshots;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use proto::peer as pb;

use self::harness::{CLUSTER, Ca, Node, Spec, Wire, eventually};
use super::{
    Address, Note, Undelivered, message,
    queue::{QUEUE_BYTES_MAX, QUEUE_NOTES_MAX},
};
use crate::tls::Trust;

/// Starts members that know each other.
async fn cluster(ids: &[u64]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for id in ids {
        nodes.push(Node::start(Spec::of(*id)).await);
    }
    let members: Vec<_> = nodes.iter().map(Node::address).collect();
    for node in &nodes {
        node.knows(&members);
    }
    for node in &nodes {
        for other in nodes.iter().filter(|other| other.id != node.id) {
            node.linked(other.id).await;
        }
    }
    nodes
}

fn raft(from: u8, to: u8) -> Note {
    Note::Raft(Box::new(message::heartbeat(from, to)))
}

#[tokio::test]
async fn notes_arrive_in_order_and_many_at_a_time() {
    const COUNT: u64 = 5_000;
    let nodes = cluster(&[1, 2, 3]).await;
    for id in 0..COUNT {
        nodes[0].forward(2, id, 100).unwrap();
        nodes[2].forward(1, id, 100).unwrap();
    }
    for (to, from) in [(1, 1), (0, 3)] {
        let sink = &nodes[to].sink;
        sink.until("all notes", |heard| heard.notes.len() == COUNT as usize)
            .await;
        assert_eq!(sink.ids(), (0..COUNT).collect::<Vec<_>>());
        let heard = sink.heard.lock().unwrap();
        assert!(heard.notes.iter().all(|(sender, _)| *sender == from));
        assert!(heard.batches < 100, "{} batches", heard.batches);
    }
    assert!(nodes[1].sink.heard.lock().unwrap().unreachable.is_empty());
}

#[tokio::test]
async fn every_kind_of_note_arrives_as_it_was() {
    let nodes = cluster(&[1, 2]).await;
    let notes = vec![
        raft(1, 2),
        Note::Refused {
            ids: vec![1, 2],
            reason: member::Refusal::NotLeader,
        },
        Note::ReadAsk { attempt: 3 },
        Note::ReadAnswer {
            attempt: 3,
            index: Some(4),
        },
    ];
    for note in &notes {
        nodes[0].peers.send(2, note.clone()).unwrap();
    }
    let sink = &nodes[1].sink;
    sink.until("all kinds", |heard| heard.notes.len() == notes.len())
        .await;
    let heard = sink.heard.lock().unwrap();
    let heard: Vec<_> = heard.notes.iter().map(|(_, note)| note.clone()).collect();
    assert_eq!(heard, notes);
}

#[tokio::test]
async fn a_message_in_anothers_name_is_dropped() {
    let nodes = cluster(&[1, 2]).await;
    nodes[0].peers.send(2, raft(3, 2)).unwrap();
    nodes[0].peers.send(2, raft(1, 3)).unwrap();
    nodes[0].peers.send(2, raft(1, 2)).unwrap();
    let sink = &nodes[1].sink;
    sink.until("the honest one", |heard| !heard.notes.is_empty())
        .await;
    assert_eq!(sink.heard.lock().unwrap().notes, [(1, raft(1, 2))]);
}

#[tokio::test]
async fn a_dead_peer_costs_nothing() {
    let node = Node::start(Spec::of(1)).await;
    // A port that was free a moment ago.
    let dead = Node::start(Spec::of(2)).await;
    let address = dead.address();
    dead.stop().await;
    node.knows(&[node.address(), address]);
    assert_eq!(node.forward(3, 1, 1), Err(Undelivered::NoSuchPeer));
    for id in 0..10_000 {
        assert_eq!(node.forward(2, id, 1 << 10), Err(Undelivered::Down));
    }
    assert_eq!(node.peers.send(2, raft(1, 2)), Err(Undelivered::Down));
    let told = |heard: &harness::Heard| heard.unreachable.contains_key(&2);
    node.sink.until("raft hears of it", told).await;
    assert_eq!(node.peers.active_for(2), None);
}

#[tokio::test]
async fn a_peer_that_comes_back_is_linked_again_and_dials_at_once() {
    let mut nodes = cluster(&[1, 2]).await;
    let back = nodes.pop().unwrap();
    let (address, port) = (back.address(), back.addr.port());
    back.stop().await;
    let node = &nodes[0];
    node.cut_off(2).await;
    let lost = |heard: &harness::Heard| heard.unreachable.contains_key(&2);
    node.sink.until("what was on its way is lost", lost).await;

    let spec = Spec {
        port,
        ..Spec::of(2)
    };
    let back = Node::start(spec).await;
    back.knows(&[node.address(), address]);
    node.linked(2).await;
    back.linked(1).await;
    let twice = |heard: &harness::Heard| heard.linked.get(&2) == Some(&2);
    node.sink.until("the second link", twice).await;
    node.forward(2, 7, 1).unwrap();
    let came = |heard: &harness::Heard| !heard.notes.is_empty();
    back.sink.until("a note over it", came).await;
    assert_eq!(back.sink.ids(), [7]);
}

#[tokio::test]
async fn a_frozen_peer_holds_a_bounded_queue_and_is_given_up() {
    let (near, far) = (
        Node::start(Spec::of(1)).await,
        Node::start(Spec::of(2)).await,
    );
    let wire = Wire::to(far.addr).await;
    let urls = vec![wire.url.clone()];
    near.knows(&[near.address(), Address { id: 2, urls }]);
    near.linked(2).await;

    wire.freeze(true);
    const NOTE: usize = 256 << 10;
    let mut taken = 0;
    while near.forward(2, 1, NOTE).is_ok() {
        taken += 1;
        // The link sends what it can meanwhile.
        tokio::task::yield_now().await;
        assert!(taken < QUEUE_NOTES_MAX);
    }
    // What the queue holds, and what was on its way: a frame, HTTP/2's windows and
    // buffers, the sockets of both sides of the wire.
    let most = QUEUE_BYTES_MAX + (32 << 20);
    assert!(taken * NOTE <= most, "{taken} notes were taken");
    assert!(
        taken * NOTE >= QUEUE_BYTES_MAX / 2,
        "only {taken} were taken"
    );
    let lost = |heard: &harness::Heard| heard.unreachable.contains_key(&2);
    near.sink.until("raft hears of it", lost).await;
    near.cut_off(2).await;
    assert_eq!(near.forward(2, 1, 1), Err(Undelivered::Down));

    wire.freeze(false);
    near.linked(2).await;
    near.forward(2, 9, 1).unwrap();
    let came = |heard: &harness::Heard| {
        heard
            .notes
            .iter()
            .any(|(_, note)| matches!(note, Note::Forward { id: 9, .. }))
    };
    far.sink.until("a note after the thaw", came).await;
}

#[tokio::test]
async fn a_member_that_is_not_known_yet_is_answered() {
    let (old, new) = (
        Node::start(Spec::of(1)).await,
        Node::start(Spec::of(2)).await,
    );
    old.knows(&[old.address()]);
    new.knows(&[old.address(), new.address()]);
    old.linked(2).await;
    old.forward(2, 5, 1).unwrap();
    let came = |heard: &harness::Heard| !heard.notes.is_empty();
    new.sink.until("a note to the guest", came).await;
    // It stays while it is unknown, and goes when it is removed.
    old.knows(&[old.address()]);
    assert!(old.peers.active_for(2).is_some());
    old.peers.update(&[old.address()], &BTreeSet::from([2]));
    assert_eq!(old.forward(2, 6, 1), Err(Undelivered::NoSuchPeer));
}

#[tokio::test]
async fn a_member_that_was_removed_is_told_so() {
    let nodes = cluster(&[1, 2]).await;
    let [stays, gone] = &nodes[..] else { panic!() };
    stays.peers.update(&[stays.address()], &BTreeSet::from([2]));
    let told = |heard: &harness::Heard| heard.removed.contains(&1);
    gone.sink.until("it hears so on its link", told).await;
    gone.sink.heard.lock().unwrap().removed.clear();
    gone.sink.until("and when it dials again", told).await;
    let refused = stays.peers.lease_renew(2, 1).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn strangers_are_refused() {
    let node = Node::start(Spec::of(1)).await;
    let spec = Spec {
        cluster: CLUSTER + 1,
        ..Spec::of(2)
    };
    let other = Node::start(spec).await;
    other.knows(&[node.address(), other.address()]);
    // One that is wanted as somebody else.
    let lost = Node::start(Spec::of(3)).await;
    let urls = vec![node.url.clone()];
    lost.knows(&[lost.address(), Address { id: 9, urls }]);
    // One that is let in shows that the others have had their chance.
    let friend = Node::start(Spec::of(4)).await;
    friend.knows(&[friend.address(), node.address()]);
    friend.linked(1).await;
    friend.forward(1, 1, 1).unwrap();
    let came = |heard: &harness::Heard| !heard.notes.is_empty();
    node.sink.until("the friend's note", came).await;
    assert_eq!(other.peers.active_for(1), None);
    assert_eq!(lost.peers.active_for(9), None);
}

#[tokio::test]
async fn questions_are_answered() {
    let nodes = cluster(&[1, 2]).await;
    let peers = &nodes[0].peers;
    assert_eq!(peers.lease_renew(2, 21).await.unwrap(), 42);
    let gone = peers.lease_renew(2, 0).await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
    assert_eq!(gone.message(), "etcdserver: requested lease not found");
    let request = pb::LeaseTimeToLiveRequest { id: 3, keys: true };
    let ttl = peers.lease_time_to_live(2, request).await.unwrap();
    assert_eq!((ttl.ttl, ttl.granted_ttl, ttl.keys.len()), (3, 9, 1));
    let hash = peers.hash_kv(2, 11).await.unwrap();
    assert_eq!((hash.hash, hash.hash_revision), (7, 11));
    assert_eq!(peers.members(2).await.unwrap().cluster_id, CLUSTER);
    let changed = peers.change_membership(2, Bytes::from_static(b"add"));
    assert_eq!(&changed.await.unwrap()[..], b"add done");
    assert_eq!(peers.status(2).await.unwrap().term, 5);
    let nobody = peers.status(3).await.unwrap_err();
    assert_eq!(nobody.code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn an_answer_is_not_waited_for_once_the_link_is_down() {
    let mut nodes = cluster(&[1, 2]).await;
    let gone = nodes.pop().unwrap();
    let peers = nodes[0].peers.clone();
    let asked = tokio::spawn(async move { peers.hash_kv(2, -1).await });
    // The question is on its way before another one is answered.
    nodes[0].peers.status(2).await.unwrap();
    gone.stop().await;
    let answer = tokio::time::timeout(Duration::from_secs(10), asked).await;
    let error = answer.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
}

/// Makes the flags of a member of a cluster of these.
fn flags(name: &str, members: &[(&str, &Node)]) -> crate::Config {
    let mut config = crate::Config::new("unused");
    config.name = name.to_owned();
    for (name, node) in members {
        let urls = vec![node.url.clone()];
        config.initial_cluster.insert((*name).to_owned(), urls);
    }
    config.initial_advertise_peer_urls = config.initial_cluster[name].clone();
    config
}

#[tokio::test]
async fn a_member_that_joins_asks_the_others_who_it_is() {
    let (old, dead, new) = (
        Node::start(Spec::of(1)).await,
        Node::start(Spec::of(2)).await,
        Node::start(Spec::of(3)).await,
    );
    let config = flags("new", &[("old", &old), ("dead", &dead), ("new", &new)]);
    let member = |id, node: &Node, learner| pb::Member {
        id,
        peer_urls: vec![node.url.clone()],
        client_urls: vec!["http://c".to_owned()],
        learner,
        ..pb::Member::default()
    };
    let members = vec![
        member(30, &new, true),
        member(10, &old, false),
        member(20, &dead, false),
    ];
    *old.sink.members.lock().unwrap() = members;
    let dialler = new.dialler();
    dead.stop().await;
    let joined = crate::join::existing_cluster(&config, &dialler)
        .await
        .unwrap();
    assert_eq!((joined.ids.member, joined.ids.cluster), (30, CLUSTER));
    let found: Vec<_> = joined
        .members
        .iter()
        .map(|member| (member.id, member.name.as_str(), member.learner))
        .collect();
    assert_eq!(
        found,
        [(10, "old", false), (20, "dead", false), (30, "new", true)]
    );

    // Nobody is left to ask.
    old.stop().await;
    let error = crate::join::existing_cluster(&config, &dialler).await;
    let words = error.unwrap_err().to_string();
    assert!(
        words.contains("cannot fetch cluster info from peer urls"),
        "{words}"
    );
}

#[tokio::test]
async fn a_member_that_has_lost_its_data_does_not_found_the_cluster_again() {
    let (one, two) = (
        Node::start(Spec::of(1)).await,
        Node::start(Spec::of(2)).await,
    );
    let config = flags("one", &[("one", &one), ("two", &two)]);
    let beginning = crate::join::new_cluster(&config).unwrap();
    let check =
        || crate::join::check_not_bootstrapped(&config, &beginning, &two.peers.inner.dialler);
    let mut known = pb::Member {
        id: beginning.ids.member,
        ..pb::Member::default()
    };
    // It was named but never started.
    *two.sink.members.lock().unwrap() = vec![known.clone()];
    check().await.unwrap();
    known.client_urls = vec!["http://c".to_owned()];
    *two.sink.members.lock().unwrap() = vec![known];
    let words = check().await.unwrap_err().to_string();
    assert!(words.contains("has already been bootstrapped"), "{words}");
}

/// Starts a member with certificates.
async fn secure(id: u64, files: crate::TlsFiles, trust: Trust) -> Node {
    let tls = Some((files, trust));
    Node::start(Spec {
        tls,
        ..Spec::of(id)
    })
    .await
}

#[tokio::test]
async fn certificates_are_shown_and_checked_on_both_sides() {
    let (ca, other_ca) = (Ca::new(), Ca::new());
    let one = secure(1, ca.files("one", "127.0.0.1"), Trust::Authorities).await;
    let two = secure(2, ca.files("two", "127.0.0.1"), Trust::Authorities).await;
    // Its certificate is not for where it is served.
    let three = secure(3, ca.files("three", "elsewhere"), Trust::Authorities).await;
    let stranger = secure(4, other_ca.files("four", "127.0.0.1"), Trust::Authorities).await;
    let members = [&one, &two, &three, &stranger].map(Node::address);
    for node in [&one, &two, &three, &stranger] {
        node.knows(&members);
    }
    one.linked(2).await;
    two.linked(1).await;
    three.linked(1).await;
    one.forward(2, 1, 1 << 20).unwrap();
    let came = |heard: &harness::Heard| !heard.notes.is_empty();
    two.sink.until("a note", came).await;
    assert_eq!(one.peers.active_for(3), None, "another host's certificate");
    assert_eq!(one.peers.active_for(4), None, "another authority's");
    assert_eq!(stranger.peers.active_for(1), None);
}

#[tokio::test]
async fn certificates_that_change_are_used_at_the_next_dial() {
    let (ca, other_ca) = (Ca::new(), Ca::new());
    let one = secure(1, ca.files("one", "127.0.0.1"), Trust::Authorities).await;
    let files = ca.files("two", "127.0.0.1");
    let made = other_ca.files("two", "127.0.0.1");
    let good: Vec<_> = [&files.cert_file, &files.key_file]
        .map(|path| std::fs::read(path).unwrap())
        .into();
    // Another authority's certificate lies where the right one should.
    std::fs::copy(made.cert_file, &files.cert_file).unwrap();
    std::fs::copy(made.key_file, &files.key_file).unwrap();
    let two = secure(2, files.clone(), Trust::Authorities).await;
    two.knows(&[one.address(), two.address()]);
    tokio::time::timeout(Duration::from_millis(500), two.linked(1))
        .await
        .unwrap_err();
    std::fs::write(&files.cert_file, &good[0]).unwrap();
    std::fs::write(&files.key_file, &good[1]).unwrap();
    two.linked(1).await;
}

#[tokio::test]
async fn certificates_that_members_make_themselves_are_believed() {
    let mut nodes = Vec::new();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (id, dir) in [1, 2].into_iter().zip(&dirs) {
        let hosts = ["127.0.0.1".to_owned()];
        let files = crate::tls::ensure_files(crate::tls::Side::Peer, dir.path(), &hosts, 1);
        nodes.push(secure(id, files.unwrap(), Trust::Anybody).await);
    }
    let members: Vec<_> = nodes.iter().map(Node::address).collect();
    nodes[0].knows(&members);
    nodes[0].linked(2).await;
    eventually("a link for a while", || {
        nodes[0].peers.active_for(2) > Some(Duration::ZERO)
    })
    .await;
}
