//! What is done to what members say to each other.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Nemesis, who};
use crate::bed::{Bed, Victims};
use crate::error::{Error, Result};
use crate::lan::{Lan, Packets};

/// All ordered pairs of members.
fn pairs(bed: &Bed) -> Vec<(usize, usize)> {
    let members = bed.cluster.current();
    let pairs = members
        .iter()
        .flat_map(|&from| members.iter().map(move |&to| (from, to)));
    pairs.filter(|(from, to)| from != to).collect()
}

fn lan(bed: &Bed) -> Result<&Lan> {
    let none = || Error::Missing("a network of its own", "members share one".to_owned());
    bed.cluster.lan().ok_or_else(none)
}

/// Cuts members off from each other, both ways.
#[derive(Debug)]
pub(super) struct Partition;

impl Nemesis for Partition {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let mut members = bed.cluster.current();
        members.shuffle(rng);
        let count = members.len();
        let (said, cut): (String, Vec<(usize, usize)>) = match rng.random_range(0..3) {
            0 => {
                let alone = bed.pick(Victims::Leader, rng)?;
                let is_alone = |at: &usize| alone.contains(at);
                let cut = pairs(bed).into_iter();
                let cut = cut.filter(|(a, b)| is_alone(a) != is_alone(b)).collect();
                (format!("{} alone", who(&alone)), cut)
            }
            1 => {
                let some = &members[..count.div_ceil(2).min(count - 1)];
                let is_some = |at: &usize| some.contains(at);
                let cut = pairs(bed).into_iter();
                let cut = cut.filter(|(a, b)| is_some(a) != is_some(b)).collect();
                (
                    format!("{} apart from {}", who(some), who(&members[some.len()..])),
                    cut,
                )
            }
            _ => {
                // Everybody sees a majority, and no two the same one: those who are
                // far from each other in a ring do not meet. Of three, one pair.
                let place = |at| members.iter().position(|m| *m == at).unwrap_or(0);
                let apart = |a, b| {
                    let steps = place(a).abs_diff(place(b));
                    steps.min(count - steps)
                };
                let cut = pairs(bed).into_iter();
                let cut = match count {
                    0..=3 => cut.filter(|(a, b)| place(*a) + place(*b) == 1).collect(),
                    _ => cut.filter(|(a, b)| apart(*a, *b) > count / 4).collect(),
                };
                (format!("ring {}", who(&members)), cut)
            }
        };
        cut.iter().try_for_each(|&(from, to)| bed.cut(from, to))?;
        Ok(said)
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Cuts one direction only.
#[derive(Debug)]
pub(super) struct OneWay;

impl Nemesis for OneWay {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victims = if rng.random_bool(0.7) {
            Victims::Leader
        } else {
            Victims::One
        };
        let victim = bed.pick(victims, rng)?[0];
        let deaf = rng.random_bool(0.5);
        for (from, to) in pairs(bed) {
            if (deaf && to == victim) || (!deaf && from == victim) {
                bed.cut(from, to)?;
            }
        }
        let said = if deaf { "hears" } else { "is heard by" };
        Ok(format!("m{victim} {said} nobody"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Loses packets by chance.
#[derive(Debug)]
pub(super) struct Loss;

impl Nemesis for Loss {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let part = [0.02, 0.05, 0.2, 0.5][rng.random_range(0..4)];
        for (from, to) in pairs(bed) {
            lan(bed)?.hurt(from, to, Packets::Lost(part))?;
        }
        Ok(format!("{part} of all packets"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Lets few bits a second through.
#[derive(Debug)]
pub(super) struct SlowLink;

impl Nemesis for SlowLink {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let victim = bed.pick(Victims::Leader, rng)?[0];
        let bits = [128_000, 512_000, 2_000_000][rng.random_range(0..3)];
        lan(bed)?.slow(victim, Some(bits))?;
        Ok(format!("m{victim} sends {bits} bits a second"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Delays what is said.
#[derive(Debug)]
pub(super) struct Delay;

impl Nemesis for Delay {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let delay = Duration::from_millis(rng.random_range(5..200));
        let jitter = Duration::from_millis(rng.random_range(0..100));
        let some = rng.random_bool(0.5);
        let mut said = Vec::new();
        for (from, to) in pairs(bed) {
            if !some || rng.random_bool(0.4) {
                bed.relay()?.delay(from, to, delay, jitter);
                said.push(format!("m{from}>m{to}"));
            }
        }
        Ok(format!(
            "{delay:?} and up to {jitter:?}: {}",
            said.join(" ")
        ))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Holds what is said, to let it go much later.
#[derive(Debug)]
pub(super) struct Hold;

impl Nemesis for Hold {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let mut said = Vec::new();
        for (from, to) in pairs(bed) {
            if rng.random_bool(0.4) {
                bed.relay()?.hold(from, to);
                said.push(format!("m{from}>m{to}"));
            }
        }
        Ok(format!("held {}", said.join(" ")))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}

/// Tears connections down.
#[derive(Debug)]
pub(super) struct Reset;

impl Nemesis for Reset {
    fn start(&mut self, bed: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let times = rng.random_range(1..5);
        for _ in 0..times {
            for (from, to) in pairs(bed).into_iter().filter(|(a, b)| a < b) {
                bed.relay()?.reset(from, to);
            }
            std::thread::sleep(Duration::from_millis(rng.random_range(10..500)));
        }
        Ok(format!("all connections {times} times"))
    }

    fn heal(&mut self, _: &mut Bed) -> Result<()> {
        Ok(())
    }
}
