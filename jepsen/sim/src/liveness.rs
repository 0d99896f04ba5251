//! The whole run: faults, healing, and what must come about after it.

use bytes::Bytes;
use mvcc::PutRequest;

use crate::{
    host::Host,
    ops::{Ask, End},
    plan::{MS, SECOND, Time},
    sim::Sim,
};

/// How long clients go on after everything has healed.
const AFTERMATH: Time = 2 * SECOND;

/// How long it may then take until all is well: elections, snapshots, members that
/// are rebuilt, requests that ran into the end of a leadership.
const BOUND: Time = 40 * SECOND;

/// How often it is looked whether all is well.
const LOOK: Time = 200 * MS;

/// The client number of whoever looks.
const INSPECTOR: usize = usize::MAX - 1;

impl Sim {
    /// Lives through the plan, and judges what clients were told.
    pub(crate) fn live(&mut self) {
        self.live_through();
        if self.truth.get().violations().is_empty() {
            self.judge_history();
        }
        for host in 0..self.hosts.len() {
            self.stop(host);
        }
    }

    /// Lives through the plan.
    pub(crate) fn live_through(&mut self) {
        self.run_until(self.plan.length);
        self.heal();
        self.run_until(self.now + AFTERMATH);
        self.quiet = true;
        let end = self.now + BOUND;
        let mut probes = Vec::new();
        while self.truth.get().violations().is_empty() {
            self.run_until(self.now + LOOK);
            self.call_everybody();
            let Err(why) = self.is_well(&mut probes) else {
                break;
            };
            if self.now >= end {
                let long = (BOUND + AFTERMATH) / SECOND;
                let what = format!("{long} s after healing {why}; {}", self.standings());
                self.truth.get().blame("liveness", what);
            }
        }
        self.check_leases();
    }

    /// Tells where every member stands.
    fn standings(&self) -> String {
        let one = |host: &Host| {
            let id = host.id;
            match &host.node {
                Some(node) => format!("m{id} {:?}", node.standing()),
                None => format!("m{id} is down"),
            }
        };
        let all: Vec<_> = self.hosts.iter().map(one).collect();
        all.join(", ")
    }

    /// Members whose links came up call each other now and then, as those do that
    /// were removed and hear nothing.
    fn call_everybody(&mut self) {
        for host in 0..self.hosts.len() {
            for peer in 0..self.hosts.len() {
                if host != peer && self.hosts[host].is_up() {
                    let peer = self.hosts[peer].id;
                    self.calls_in_vain(host, peer);
                }
            }
        }
    }

    /// Lists the machines of members.
    pub(crate) fn members(&self) -> Vec<usize> {
        let Some(leader) = self.leader() else {
            return Vec::new();
        };
        let ids = self.hosts[leader].node.as_ref().and_then(|node| {
            node.with_machine(|machine| {
                let members = machine.membership().members();
                members
                    .map(|member| (member.id, member.learner))
                    .collect::<Vec<_>>()
            })
        });
        let ids = ids.unwrap_or_default();
        let hosts = 0..self.hosts.len();
        let is = |host: &usize| ids.contains(&(self.hosts[*host].id, false));
        hosts.filter(is).collect()
    }

    /// Says whether all is well, or what is not. `probes` are writes asked of each
    /// member, made when there is a leader.
    fn is_well(&mut self, probes: &mut Vec<(usize, usize)>) -> Result<(), String> {
        if self.leader().is_none() {
            return Err("nobody leads".to_owned());
        }
        let members = self.members();
        for host in &members {
            let id = self.hosts[*host].id;
            if !self.hosts[*host].is_up() {
                return Err(format!("member {id} does not run"));
            }
            let probe = probes.iter().rfind(|(probed, _)| probed == host);
            let ended = probe.map(|(_, op)| self.clients.ops[*op].ended.as_ref());
            match ended {
                Some(Some((_, End::Ok(_)))) => {}
                Some(None) => return Err(format!("member {id} does not answer a write")),
                // Anything else is asked again: it may have met an election.
                Some(Some(_)) | None => {
                    let op = self.probe(*host);
                    probes.push((*host, op));
                    return Err(format!("member {id} takes no write"));
                }
            }
        }
        self.are_equal(&members)?;
        let truth = self.truth.get();
        for (number, watcher) in self.clients.watchers.iter().enumerate() {
            if !watcher.is_done(&truth) {
                let (next, revision) = (watcher.next, truth.revision());
                return Err(format!(
                    "watcher {number} waits for revision {next:?}, the newest is {revision}"
                ));
            }
        }
        Ok(())
    }

    fn probe(&mut self, host: usize) -> usize {
        let value = format!("probe{}", self.clients.ops.len());
        let put = PutRequest {
            key: Bytes::from_static(b"probe"),
            value: value.into(),
            ..PutRequest::default()
        };
        let op = self.invoke(INSPECTOR, Ask::Put(put), host);
        self.after(5 * SECOND, crate::sim::Event::GiveUp(op));
        op
    }

    /// Says whether the members hold the same.
    fn are_equal(&self, members: &[usize]) -> Result<(), String> {
        let mut seen = Vec::new();
        for host in members {
            let Some(node) = &self.hosts[*host].node else {
                continue;
            };
            let standing = node.standing();
            let hash = node.with_machine(|machine| {
                let keys = machine.hash_kv(0).ok();
                (keys, machine.hash_beside_keys())
            });
            seen.push((standing.applied, standing.revision, hash));
        }
        let last = self.truth.get().last_index();
        let behind = seen.iter().any(|(applied, ..)| *applied < last);
        match behind || seen.windows(2).any(|pair| pair[0] != pair[1]) {
            true => Err(format!("members differ: {seen:?}, the log ends at {last}")),
            false => Ok(()),
        }
    }
}
