//! raft 0.7 lets a rejection that comes late take a peer's next index back below what
//! the peer has acknowledged (raft-rs #555, mended after 0.7 by #557). A member does
//! not let such a rejection in.

use std::time::Duration;

use raft::{
    Progress, ProgressState,
    eraftpb::{Message, MessageType},
};

use super::{NOW, config, hazards::run, proposal};
use crate::{Input, Member, Recovered, Role};

#[test]
fn raft_goes_back_below_what_was_acknowledged() {
    // If this fails, raft was mended: `Member::mend_rejection` may go.
    let mut progress = Progress::new(11, 16);
    progress.maybe_update(10);
    progress.become_probe();
    assert_eq!((progress.matched, progress.next_idx), (10, 11));
    assert!(progress.maybe_decr_to(10, 3, 0), "stale, and believed");
    assert_eq!((progress.matched, progress.next_idx), (10, 4));
}

/// Makes member 1 of three lead, with a log that the others have acknowledged.
fn leader() -> (Member, u64) {
    let mut member = Member::new(config(1, &[1, 2, 3]), Recovered::default()).unwrap();
    let proposals = (1..9).map(proposal).collect();
    run(&mut member, vec![Input::Campaign]);
    run(&mut member, vec![Input::Propose(proposals)]);
    assert_eq!(member.standing().role, Role::Leader);
    let matched = member.last_index();
    assert_eq!(member.peers()[0].matched, matched);
    (member, matched)
}

fn rejection(member: &Member, index: u64, hint: u64) -> Input {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppendResponse);
    (message.from, message.to, message.term) = (2, 1, member.standing().term);
    message.reject = true;
    (message.index, message.reject_hint, message.log_term) = (index, hint, 1);
    Input::Peer(Box::new(message))
}

fn next(member: &Member) -> (u64, ProgressState) {
    let progress = member.raw.raft.prs().get(2).unwrap();
    assert!(progress.next_idx > progress.matched, "{progress:?}");
    (progress.next_idx, progress.state)
}

#[test]
fn a_member_does_not_believe_a_stale_rejection() {
    let (mut member, matched) = leader();
    member.step(Input::Unreachable(2), NOW);
    assert_eq!(next(&member), (matched + 1, ProgressState::Probe));
    let stale = rejection(&member, matched, 1);
    let outputs = member.step(stale, NOW);
    assert!(
        outputs.is_empty(),
        "it would send again what is there: {outputs:?}"
    );
    assert_eq!(next(&member), (matched + 1, ProgressState::Probe));
}

#[test]
fn a_rejection_of_more_goes_back_to_what_was_acknowledged_at_most() {
    let (mut member, matched) = leader();
    // As after a snapshot beyond what the peer acknowledged.
    let progress = member.raw.raft.mut_prs().get_mut(2).unwrap();
    progress.become_snapshot(matched + 4);
    progress.become_probe();
    assert_eq!(next(&member).0, matched + 5);
    let late = rejection(&member, matched + 4, 1);
    member.step(late, NOW + Duration::from_millis(1));
    assert_eq!(next(&member).0, matched + 1);
}
