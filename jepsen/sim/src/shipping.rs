//! Snapshots between members: cut off, late, or whole.

use std::rc::Rc;

use kvserver::sim::Shipment;

use crate::{
    host::Incarnation,
    plan::Kind,
    sim::{Event, Sim},
};

impl Sim {
    pub(crate) fn send_snapshot(&mut self, host: usize, shipment: Shipment) {
        let (from, is) = (self.hosts[host].id, self.hosts[host].incarnation);
        let to = shipment.to;
        let sender = (host, is);
        let arrives = self
            .host_of(to)
            .filter(|target| !self.network.is_cut(from, to) && self.hosts[*target].is_up());
        self.trace.line(self.now, || {
            format!(
                "m{from} sends m{to} a snapshot of {} frames",
                shipment.frames.len()
            )
        });
        let after = self.rng.between(1_000, 200_000);
        let Some(target) = arrives else {
            self.after(
                after,
                Event::Shipped {
                    to: sender,
                    peer: to,
                    ok: false,
                },
            );
            return;
        };
        let mut frames = shipment.frames.len();
        let rate = self.plan.rate(Kind::CutSnapshot) / 3;
        if !self.healed && self.faults.chance(rate) {
            self.strike(Kind::CutSnapshot);
            frames = self.faults.below(frames as u64) as usize;
        }
        let shipment = Rc::new(shipment);
        self.after(
            after,
            Event::Ship {
                from: sender,
                to: target,
                shipment,
                frames,
            },
        );
    }

    pub(crate) fn ship(
        &mut self,
        from: (usize, Incarnation),
        to: usize,
        shipment: Rc<Shipment>,
        frames: usize,
    ) {
        if self.hosts[to].paused > self.now && self.hosts[to].is_up() {
            let at = self.hosts[to].paused;
            self.at(
                at,
                Event::Ship {
                    from,
                    to,
                    shipment,
                    frames,
                },
            );
            return;
        }
        let taken = self.guard(to, |node| node.take_in(&shipment, frames));
        let peer = shipment.to;
        match taken {
            Some(Ok(decision)) => {
                self.hosts[to].decisions.push((from.0, from.1, decision));
            }
            other => {
                let why = match other {
                    Some(Err(why)) => why,
                    _ => "the member is not there".to_owned(),
                };
                self.trace.line(self.now, || {
                    format!("m{peer} does not take a snapshot in: {why}")
                });
                let after = self.network.latency();
                self.after(
                    after,
                    Event::Shipped {
                        to: from,
                        peer,
                        ok: false,
                    },
                );
            }
        }
        self.settle(to);
    }

    pub(crate) fn hear_decisions(&mut self, host: usize) {
        let id = self.hosts[host].id;
        let mut decided = Vec::new();
        self.hosts[host]
            .decisions
            .retain_mut(|(from, is, decision)| {
                let over = decision.decided();
                decided.extend(over.map(|ok| (*from, *is, ok)));
                over.is_none()
            });
        for (from, is, ok) in decided {
            let after = self.network.latency();
            self.after(
                after,
                Event::Shipped {
                    to: (from, is),
                    peer: id,
                    ok,
                },
            );
        }
    }
}
