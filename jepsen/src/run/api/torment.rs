//! What is done to the control plane: its processes killed, frozen and restarted, what
//! they say to the store and to each other held, late, or torn away.

use std::time::Duration;

use faults::{Bed, Error, Result};
use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::plane::Plane;
use crate::run::nemesis::Upper;

/// What can be done, by name.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("api-kill", "SIGKILL to one API server or all"),
    ("api-pause", "SIGSTOP to one API server or all"),
    ("api-restart", "SIGTERM to one API server after the other"),
    (
        "api-cut",
        "an API server held apart from a member of the store, or all",
    ),
    (
        "api-lag",
        "an API server that hears late of what is in the store",
    ),
    (
        "api-reset",
        "the connections of an API server to the store torn down",
    ),
    (
        "loop-kill",
        "SIGKILL to controllers or scheduler, which go on at any API server",
    ),
    ("loop-pause", "SIGSTOP to controllers or scheduler"),
    (
        "loop-view",
        "what controllers are told held, late, or torn away",
    ),
];

impl Upper for Plane {
    fn start(&mut self, kind: &str, _: &mut Bed, rng: &mut StdRng) -> Result<String> {
        let api = rng.random_range(0..self.apis.len());
        match kind {
            "api-kill" => Ok(each_api(self, rng, "killed", |plane, at| {
                plane.apis[at].kill();
                Ok(())
            })?),
            "api-pause" => each_api(self, rng, "froze", |plane, at| {
                plane.apis[at].signal(Signal::STOP)
            }),
            "api-restart" => {
                for at in 0..self.apis.len() {
                    self.apis[at].terminate()?;
                    self.await_ready(at)?;
                }
                Ok("restarted all".to_owned())
            }
            "api-cut" => Ok(cut(self, api, rng)),
            "api-lag" => {
                let late = Duration::from_millis(rng.random_range(100..2000));
                for (api, member) in self.ways_below(api) {
                    self.relay.delay(member, api, late, late / 4);
                }
                Ok(format!("a{api} hears {late:?} late"))
            }
            "api-reset" => {
                for (api, member) in self.ways_below(api) {
                    self.relay.reset(api, member);
                }
                Ok(format!("a{api}"))
            }
            "loop-kill" => {
                let at = rng.random_range(0..self.loops.len());
                self.look_for_crashes();
                self.loops[at].kill();
                self.point(at, api)?;
                Ok(format!("killed {}, next at a{api}", self.loops[at].name))
            }
            "loop-pause" => {
                let at = rng.random_range(0..self.loops.len());
                self.loops[at].signal(Signal::STOP)?;
                Ok(format!("froze {}", self.loops[at].name))
            }
            "loop-view" => Ok(view(self, rng)),
            other => Err(Error::Unfit(format!("no nemesis is called {other}"))),
        }
    }

    fn revive(&mut self, _: &mut Bed) -> Result<()> {
        Plane::revive(self)
    }
}

/// Does something to one API server, or to all.
fn each_api(
    plane: &mut Plane,
    rng: &mut StdRng,
    done: &str,
    act: fn(&mut Plane, usize) -> Result<()>,
) -> Result<String> {
    plane.look_for_crashes();
    let one = rng.random_range(0..plane.apis.len());
    let all = rng.random_bool(0.3);
    let mut said = done.to_owned();
    for at in 0..plane.apis.len() {
        if all || at == one {
            act(plane, at)?;
            said += &format!(" a{at}");
        }
    }
    Ok(said)
}

/// Holds what an API server and the store say to each other, one way or both.
fn cut(plane: &Plane, api: usize, rng: &mut StdRng) -> String {
    let ways = plane.ways_below(api);
    let one = rng.random_range(0..ways.len());
    let all = rng.random_bool(0.4);
    let (asks, hears) = [(true, true), (true, false), (false, true)][rng.random_range(0..3)];
    let mut said = format!("a{api} from");
    for (at, (from, member)) in ways.into_iter().enumerate() {
        if !all && at != one {
            continue;
        }
        if asks {
            plane.relay.hold(from, member);
        }
        if hears {
            plane.relay.hold(member, from);
        }
        said += &format!(" m{member}");
    }
    said
}

/// Does something to what a loop is told.
fn view(plane: &Plane, rng: &mut StdRng) -> String {
    let at = rng.random_range(0..plane.loops.len());
    let name = &plane.loops[at].name;
    let what = rng.random_range(0..3);
    let late = Duration::from_millis(rng.random_range(100..3000));
    for (from, api) in plane.ways_above(at) {
        match what {
            0 => plane.relay.hold(api, from),
            1 => plane.relay.delay(api, from, late, late / 2),
            _ => plane.relay.reset(from, api),
        }
    }
    match what {
        0 => format!("{name} is told nothing"),
        1 => format!("{name} is told {late:?} late"),
        _ => format!("{name} is cut off, and lists anew"),
    }
}
