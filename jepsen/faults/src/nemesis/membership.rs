//! What is done to who is a member and who leads, and what an operator does to a
//! member that cannot be trusted any more.

use rand::Rng;
use rand::rngs::StdRng;

use super::{Nemesis, who};
use crate::bed::Bed;
use crate::client::{Ask, runtime};
use crate::cluster::id;
use crate::corrupt::{Rot, rot};
use crate::error::{Error, Result};
use crate::wait::until;

/// Bits that rot at most.
const BITS_MAX: u32 = 16;

impl Bed {
    /// Asks a member that is not the one concerned until one of them did it.
    fn ask(&self, but: usize, ask: &Ask) -> Result<Vec<proto::etcdserverpb::Member>> {
        until(format!("{ask:?}"), || {
            let mut last = "nobody to ask".to_owned();
            for at in self.cluster.running().into_iter().filter(|at| *at != but) {
                match runtime().block_on(self.cluster.members[at].client.members(ask.clone())) {
                    Ok(members) => return Ok(members),
                    Err(status) => last = status.to_string(),
                }
            }
            Err(last)
        })
    }

    /// Finds a member's id by where the others reach it; `None` if it is none.
    fn listed(&self, at: usize) -> Result<Option<u64>> {
        let members = self.ask(at, &Ask::List)?;
        let url = &self.cluster.members[at].peer_url;
        let found = members.iter().find(|m| m.peer_ur_ls.contains(url));
        Ok(found.map(|m| m.id))
    }

    /// Puts a new member in the place of one that is gone for good.
    fn replace(&mut self, at: usize) -> Result<usize> {
        if let Some(id) = self.listed(at)? {
            let removed = until("the member to be removed", || {
                // An answer may be lost though it was done: so it is looked for.
                let asked = self.ask(at, &Ask::Remove(id));
                match self.listed(at).map_err(|e| e.to_string())? {
                    None => Ok(()),
                    Some(_) => Err(format!("{asked:?}")),
                }
            });
            removed?;
        }
        self.cluster.members[at].removed = true;
        self.cluster.members[at].kill();
        self.given_up.remove(&at);
        let new = self.plan()?;
        self.given_up.insert(new);
        let peer_url = self.cluster.members[new].peer_url.clone();
        until("the member to be added", || {
            let add = Ask::Add {
                peer_url: peer_url.clone(),
                learner: false,
            };
            let asked = self.ask(new, &add);
            match self.listed(new).map_err(|e| e.to_string())? {
                Some(_) => Ok(()),
                None => Err(format!("{asked:?}")),
            }
        })?;
        self.join(new)?;
        self.given_up.remove(&new);
        self.await_one(new)?;
        Ok(new)
    }
}

/// Removes a member that runs, and puts another in its place.
#[derive(Debug, Default)]
pub(super) struct Replace {
    victim: Option<usize>,
}

impl Nemesis for Replace {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victim = bed.pick_spare(rng)?;
        bed.excuse(victim);
        self.victim = Some(victim);
        if rng.random_bool(0.5) {
            bed.look_for_crashes();
            bed.cluster.members[victim].kill();
            bed.given_up.insert(victim);
            return Ok(format!("m{victim} is dead for good"));
        }
        Ok(format!("m{victim} is to go"))
    }

    fn heal(&mut self, bed: &mut Bed) -> Result<()> {
        match self.victim.take() {
            Some(victim) => bed.replace(victim).map(drop),
            None => Ok(()),
        }
    }
}

/// Lets bits rot in a member that is stopped, starts it, and replaces it in the end:
/// it may refuse to start, and must not serve what is wrong.
#[derive(Debug)]
pub(super) struct Corrupt {
    what: Rot,
    victim: Option<usize>,
}

impl Corrupt {
    pub(super) fn log() -> Self {
        Self {
            what: Rot::Log,
            victim: None,
        }
    }

    pub(super) fn snapshots() -> Self {
        Self {
            what: Rot::Snapshots,
            victim: None,
        }
    }
}

impl Nemesis for Corrupt {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victim = bed.pick_spare(rng)?;
        bed.look_for_crashes();
        bed.cluster.members[victim].kill();
        let bits = rng.random_range(1..=BITS_MAX);
        let done = rot(&bed.cluster.members[victim].data, self.what, bits, rng)?;
        let Some(done) = done else {
            // Nothing to spoil yet.
            bed.start_again(victim)?;
            return Err(Error::Unfit(format!("m{victim} has no such file yet")));
        };
        self.victim = Some(victim);
        bed.excuse(victim);
        bed.given_up.insert(victim);
        bed.start_again(victim)?;
        Ok(format!("m{victim}: {done}"))
    }

    fn heal(&mut self, bed: &mut Bed) -> Result<()> {
        match self.victim.take() {
            Some(victim) => {
                bed.cluster.members[victim].kill();
                bed.replace(victim).map(drop)
            }
            None => Ok(()),
        }
    }
}

/// Asks the leader to hand over.
#[derive(Debug)]
pub(super) struct Transfer;

impl Nemesis for Transfer {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let statuses = bed.cluster.statuses();
        let nobody = || Error::Unfit("nobody leads".to_owned());
        let leader = bed.leader_now().ok_or_else(nobody)?;
        let mut others: Vec<_> = statuses.iter().filter(|(at, _)| **at != leader).collect();
        if others.is_empty() {
            return Err(nobody());
        }
        let (to, status) = others.swap_remove(rng.random_range(0..others.len()));
        let client = &bed.cluster.members[leader].client;
        let told = runtime().block_on(client.move_leader(id(status)));
        let told = told.map_or_else(|e| e.message().to_owned(), |()| "done".to_owned());
        Ok(format!("m{leader} to m{to}: {told}"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Asks members to give room back.
#[derive(Debug)]
pub(super) struct Defragment;

impl Nemesis for Defragment {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = bed.pick(bed.draw(rng), rng)?;
        let mut told = Vec::new();
        for &at in &victims {
            let client = &bed.cluster.members[at].client;
            if let Err(status) = runtime().block_on(client.defragment()) {
                told.push(format!("m{at}: {}", status.message()));
            }
        }
        Ok(format!("{} {}", who(&victims), told.join(", ")))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}
