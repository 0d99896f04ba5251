//! Scripts about members: each membership entry goes through the codec and
//! `apply_change`, with a raft that simply believes what the members say.

use goldenscript::ArgumentConsumer;
use mvcc::*;

use super::{Member, Outcome, print, refused};

pub(super) fn run(m: &mut Member, name: &str, args: &mut ArgumentConsumer<'_>) -> Outcome {
    match name {
        "bootstrap" => {
            let cluster = next(args)?.parse()?;
            let mut members = Vec::new();
            while let Some(spec) = args.next_pos() {
                let (id, url) = spec.split_once('@').ok_or("id@url")?;
                members.push(info(id.parse()?, url, false));
            }
            let batch = m.machine.bootstrap(Membership::new(cluster, members));
            m.backend.write(&batch);
            Ok(format!("index={}", m.machine.applied_index()))
        }
        "members" => Ok(list(&m.machine)),
        _ => change(m, args),
    }
}

fn change(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let (verb, id) = (next(args)?, next(args)?.parse()?);
    let command = match verb.as_str() {
        "add" => MemberCommand::Add(info(id, &next(args)?, false)),
        "learn" => MemberCommand::Add(info(id, &next(args)?, true)),
        "promote" => MemberCommand::Promote(id),
        "remove" => MemberCommand::Remove(id),
        "update" => MemberCommand::Update {
            id,
            peer_urls: urls(&next(args)?),
        },
        "publish" => MemberCommand::Publish {
            id,
            name: next(args)?,
            client_urls: urls(&next(args)?),
        },
        "alone" => {
            m.machine.stand_alone(id);
            return Ok(list(&m.machine));
        }
        "smuggle" => return m.apply(Command::Member(MemberCommand::Remove(id))),
        verb => return Err(format!("unknown verb {verb}").into()),
    };
    if !command.changes_raft() {
        return m.apply(Command::Member(command));
    }
    let proposal = Proposal {
        id: m.next_id,
        since: None,
        identity: None,
        command: Command::Member(command),
    };
    m.next_id += 1;
    let decoded = Proposal::decode(proposal.encode())?;
    assert_eq!(decoded, proposal);
    let before = m.machine.membership().conf_state().clone();
    let index = m.machine.applied_index() + 1;
    let applied = m
        .machine
        .apply_change(index, 1, decoded, |command| Some(believe(before, command)));
    refused(applied.result).map(|reply| print::reply(&reply))
}

/// Does what raft would, for one simple change at a time.
fn believe(mut c: ConfState, command: &MemberCommand) -> ConfState {
    let id = command.id();
    c.learners.retain(|other| *other != id);
    c.voters.retain(|other| *other != id);
    match command {
        MemberCommand::Add(m) if m.learner => c.learners.push(id),
        MemberCommand::Remove(_) => {}
        _ => c.voters.push(id),
    }
    c
}

fn list(machine: &StateMachine) -> String {
    let members = machine.membership();
    let c = members.conf_state();
    format!(
        "cluster={} voters={:?} learners={:?} removed={:?} index={}\n{}",
        members.cluster_id(),
        c.voters,
        c.learners,
        members.removed().collect::<Vec<_>>(),
        machine.applied_index(),
        print::members(members.members())
    )
}

fn info(id: u64, url: &str, learner: bool) -> MemberInfo {
    MemberInfo {
        id,
        peer_urls: urls(url),
        learner,
        ..MemberInfo::default()
    }
}

fn urls(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn next(args: &mut ArgumentConsumer<'_>) -> Result<String, Box<dyn std::error::Error>> {
    Ok(args.next_pos().ok_or("an argument is missing")?.to_owned())
}
