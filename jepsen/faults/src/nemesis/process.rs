//! What is done to processes: killed, frozen, asked to go, told the wrong time.

use rand::Rng;
use rand::rngs::StdRng;

use super::{Nemesis, who};
use crate::bed::{Bed, Victims};
use crate::error::Result;

/// Clocks are wrong by as many seconds at most.
const SKEW_SECONDS_MAX: i64 = 3600;

/// Kills without warning, whoever is drawn or these.
#[derive(Debug)]
pub(super) struct Kill(pub(super) Option<Victims>);

impl Nemesis for Kill {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = self.0.unwrap_or_else(|| bed.draw(rng));
        let victims = bed.pick(victims, rng)?;
        for &at in &victims {
            bed.look_for_crashes();
            bed.cluster.members[at].kill();
        }
        Ok(format!("killed {}", who(&victims)))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Freezes.
#[derive(Debug)]
pub(super) struct Pause;

impl Nemesis for Pause {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = bed.pick(bed.draw(rng), rng)?;
        for &at in &victims {
            bed.cluster.members[at].freeze()?;
        }
        Ok(format!("froze {}", who(&victims)))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Restarts everybody, one after the other, each with a chance to say goodbye.
#[derive(Debug)]
pub(super) struct Rolling;

impl Nemesis for Rolling {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let running = bed.cluster.running();
        let first = rng.random_range(0..running.len().max(1));
        let mut done = Vec::new();
        for &at in running[first..].iter().chain(&running[..first]) {
            // One that is frozen by another nemesis hears it when it goes on.
            bed.cluster.members[at].thaw()?;
            bed.cluster.members[at].terminate()?;
            bed.start_again(at)?;
            done.push(at);
            // Without a wait it would not be rolling; without an answer others are
            // hurt by something else, and waiting longer would be in vain.
            let _hurt = bed.await_one(at);
        }
        Ok(format!("restarted {}", who(&done)))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Sets clocks wrong.
#[derive(Debug)]
pub(super) struct Skew;

impl Nemesis for Skew {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = bed.pick(bed.draw(rng), rng)?;
        let mut said = Vec::new();
        for &at in &victims {
            let seconds = rng.random_range(-SKEW_SECONDS_MAX..=SKEW_SECONDS_MAX);
            let rate = [0.5, 1.0, 2.0][rng.random_range(0..3)];
            bed.clock(at)?.set(seconds, rate)?;
            said.push(format!("m{at} by {seconds:+} s at rate {rate}"));
        }
        Ok(format!("clocks: {}", said.join(", ")))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}
