//! What is done to disks.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::{Nemesis, who};
use crate::bed::{Bed, Victims};
use crate::client::runtime;
use crate::error::Result;
use crate::faultfs::Unsynced;
use crate::wait::until;

/// Leaves no room; whoever runs out may end and say so.
#[derive(Debug)]
pub(super) struct Full;

impl Nemesis for Full {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victim = bed.pick(one(rng), rng)?[0];
        bed.excuse(victim);
        bed.disk(victim)?.fill();
        Ok(format!("m{victim} has no room"))
    }

    fn heal(&mut self, bed: &mut Bed) -> Result<()> {
        // A member that saw it coming closed the whole store for writes.
        let at = bed.cluster.running()[0];
        let client = &bed.cluster.members[at].client;
        until("the store to be open again", || {
            let disarmed = runtime().block_on(client.disarm());
            disarmed.map_err(|e| e.to_string())
        })
    }
}

/// Lets syncs fail; whoever is told so must end, for what it wrote may be gone.
#[derive(Debug)]
pub(super) struct SyncError;

impl Nemesis for SyncError {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victim = bed.pick(one(rng), rng)?[0];
        let times = [1, 1, 3, u64::MAX][rng.random_range(0..4)];
        bed.excuse(victim);
        bed.disk(victim)?.fail_syncs(times);
        let often = if times == u64::MAX {
            "all".to_owned()
        } else {
            times.to_string()
        };
        Ok(format!("m{victim}: {often} syncs fail"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Makes syncs slow.
#[derive(Debug)]
pub(super) struct Slow;

impl Nemesis for Slow {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = bed.pick(bed.draw(rng), rng)?;
        let by = Duration::from_millis([50, 300, 2000][rng.random_range(0..3)]);
        for &at in &victims {
            bed.disk(at)?.slow(by);
        }
        Ok(format!("syncs of {} take {by:?} more", who(&victims)))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Cuts power: the process is gone, and with it all that was not synced.
#[derive(Debug)]
pub(super) struct PowerCut;

impl Nemesis for PowerCut {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = bed.pick(bed.draw(rng), rng)?;
        let unsynced = match rng.random_bool(0.5) {
            true => Unsynced::Lost,
            false => Unsynced::Torn,
        };
        bed.look_for_crashes();
        for &at in &victims {
            bed.cluster.members[at].kill();
        }
        for &at in &victims {
            // A disk that takes its time is not asked to before it goes dark.
            bed.disk(at)?.slow(Duration::ZERO);
            bed.disk(at)?.cut_power(unsynced, rng)?;
        }
        Ok(format!(
            "{} dark, unsynced bytes {unsynced:?}",
            who(&victims)
        ))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

fn one(rng: &mut StdRng) -> Victims {
    match rng.random_bool(0.5) {
        true => Victims::Leader,
        false => Victims::One,
    }
}
