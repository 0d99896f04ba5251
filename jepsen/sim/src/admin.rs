//! Whoever runs the cluster: adds, promotes, removes and replaces members.

use std::time::Duration;

use kvserver::sim::member_info;
use mvcc::MemberCommand;

use crate::{
    host::Host,
    ops::{Ask, End},
    plan::{Kind, MS, SECOND},
    sim::{Event, Sim},
};

/// Most machines in a run, counting those that are gone.
const HOSTS_MAX: usize = 9;

/// Most members at a time.
const MEMBERS_MAX: usize = 5;

/// The client number of the administrators; no client has it.
const ADMIN: usize = usize::MAX;

/// What the administrators do.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    /// The change they wait for.
    waits: Option<usize>,
}

impl Sim {
    /// The administrators do the next step, if there is something to do.
    pub(crate) fn administer(&mut self) {
        let after = self.faults.between(300 * MS, 3 * SECOND);
        self.after(after, Event::Administer);
        if self.admin.waits.is_some() {
            return;
        }
        let Some(leader) = self.leader() else { return };
        self.tell_links(leader);
        let Some(command) = self.next_change(leader) else {
            return;
        };
        let op = self.invoke(ADMIN, Ask::Members(command), leader);
        self.after(8 * SECOND, Event::GiveUp(op));
        self.admin.waits = Some(op);
    }

    /// Returns the machine of whoever leads in the highest term.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |host: &usize| {
            let standing = self.hosts[*host].node.as_ref()?.standing();
            standing.leads.then_some(standing.term)
        };
        let hosts = (0..self.hosts.len()).filter(|host| leads(host).is_some());
        hosts.max_by_key(leads)
    }

    /// Tells a member's links how long they have been up.
    pub(crate) fn tell_links(&self, host: usize) {
        let machine = &self.hosts[host];
        let Some(node) = &machine.node else { return };
        for peer in node.links().peers() {
            let other = self.hosts.iter().find(|other| other.id == peer);
            let up = other.filter(|other| other.is_up() && other.paused <= self.now);
            let since = up
                .filter(|_| !self.network.is_cut(machine.id, peer))
                .map(|other| {
                    let open = self.network.open_since(machine.id, peer);
                    let since = open.max(other.booted).max(machine.booted);
                    // Links that last are as good as old ones here: runs are short.
                    Duration::from_micros((self.now - since) * 10)
                });
            node.links().set_up(peer, since);
        }
    }

    fn next_change(&mut self, leader: usize) -> Option<MemberCommand> {
        let members = self.hosts[leader].node.as_ref()?.with_machine(|machine| {
            let members = machine.membership().members();
            members.cloned().collect::<Vec<_>>()
        })?;
        let of = |id: u64| self.hosts.iter().find(|host| host.id == id);
        // Who is gone for good makes room.
        if let Some(gone) = members
            .iter()
            .find(|m| of(m.id).is_none_or(|host| host.gone))
        {
            return Some(MemberCommand::Remove(gone.id));
        }
        // A disk that decays may do so in a learner as it likes, but not in a majority.
        let fit = |id| of(id).is_some_and(|host| !host.damaged);
        let mut learners = members.iter().filter(|member| member.learner);
        if let Some(learner) = learners.find(|learner| fit(learner.id)) {
            return Some(MemberCommand::Promote(learner.id));
        }
        let full = members.len() >= MEMBERS_MAX || self.hosts.len() >= HOSTS_MAX;
        let changes = self.plan.rate(Kind::Membership) > 0;
        let few = (members.len() as u64) < self.plan.nodes;
        if !full && (few || changes && self.faults.coin()) {
            let id = self.hosts.len() as u64 + 1;
            return Some(MemberCommand::Add(member_info(id, self.faults.coin())));
        }
        if changes && members.len() > 3 && !self.healed {
            let gone = self.faults.below(members.len() as u64) as usize;
            return Some(MemberCommand::Remove(members[gone].id));
        }
        None
    }

    /// A change ended, if it was one.
    pub(crate) fn admin_heard(&mut self, op: usize) {
        if self.admin.waits != Some(op) {
            return;
        }
        self.admin.waits = None;
        let ended = self.clients.ops[op].ended.as_ref().map(|(_, end)| end);
        let made = matches!(ended, Some(End::Ok(_)));
        let Ask::Members(command) = &self.clients.ops[op].ask else {
            return;
        };
        match command.clone() {
            // If nobody knows, it is looked at again; a machine does no harm.
            MemberCommand::Add(member) if made => self.join(member.id),
            MemberCommand::Add(member) => {
                if matches!(ended, Some(End::Info)) {
                    self.join(member.id);
                }
            }
            _ => {}
        }
        if made {
            self.strike(Kind::Membership);
        }
    }

    /// A machine is set up for a member that was added.
    fn join(&mut self, id: u64) {
        if self.hosts.iter().any(|host| host.id == id) {
            return;
        }
        let others = self.hosts.iter().filter(|host| !host.gone);
        let others = others.map(|host| host.id).collect();
        self.hosts.push(Host::new(id, Vec::new(), others));
        let host = self.hosts.len() - 1;
        self.settle_machine(host);
        self.after(50 * MS, Event::Boot(host));
    }
}
