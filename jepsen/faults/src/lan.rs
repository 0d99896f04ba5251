//! Network namespaces: each member has its own, with one link to the other
//! members and one to its clients, so that it can be cut off from either, or from
//! one other member in one direction.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result, run};

/// What is cut off from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The other members; clients still reach it.
    Peers,
    /// Everybody.
    Everything,
}

impl Cut {
    fn links(self) -> &'static [char] {
        match self {
            Self::Peers => &['p'],
            Self::Everything => &['p', 'c'],
        }
    }
}

/// What happens to packets on their way from one member to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packets {
    /// None arrives, and nobody is told.
    Dropped,
    /// So large a part of them is lost, each by chance.
    Lost(f64),
}

/// The programs that filter packets, the one that works everywhere first: newer
/// kernels lack the older tables, this machine's lacks the newer.
const FILTERS: [&str; 2] = ["iptables-legacy", "iptables"];
/// Where clients reach a member.
const CLIENT_PORT: u16 = 2379;
/// Where members reach a member.
pub(crate) const PEER_PORT: u16 = 2380;
/// How many networks of this kind a machine has addresses for.
const NETWORKS_MAX: u32 = 250;

/// Two bridges, and namespaces linked to both. Gone when dropped.
#[derive(Debug)]
pub struct Lan {
    /// Begins the names of everything, so that two runs do not meet.
    tag: String,
    /// The third number of all addresses, for the same reason.
    net: u32,
    filter: Option<&'static str>,
    /// The members that have a namespace, and the port of the relay before each.
    members: Mutex<BTreeMap<usize, Option<u16>>>,
}

impl Lan {
    /// Builds one without members.
    pub fn build() -> Result<Self> {
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let nth = BUILT.fetch_add(1, Ordering::Relaxed);
        let taken = run("ip", &["-o", "-4", "addr"]).map_err(missing)?;
        let net = (0..NETWORKS_MAX)
            .map(|i| (pid.wrapping_mul(7) + nth + i) % NETWORKS_MAX)
            .find(|net| !taken.contains(&format!(" 10.77.{net}.")))
            .ok_or_else(|| missing(Error::Unfit("all networks are taken".to_owned())))?;
        let lan = Self {
            tag: format!("k{pid}{}", char::from(b'a' + (nth % 26) as u8)),
            net,
            filter: FILTERS.into_iter().find(|f| run(f, &["-V"]).is_ok()),
            members: Mutex::default(),
        };
        for kind in ['p', 'c'] {
            let bridge = format!("{}{kind}", lan.tag);
            ip(&format!("link add {bridge} type bridge")).map_err(missing)?;
            let host = lan.address(kind, 1);
            ip(&format!("addr add {host}/24 dev {bridge}")).map_err(missing)?;
            ip(&format!("link set {bridge} up")).map_err(missing)?;
        }
        Ok(lan)
    }

    /// Gives a member its namespace and links.
    pub fn admit(&self, at: usize) -> Result<()> {
        let tag = &self.tag;
        if self.members().insert(at, None).is_some() {
            return Ok(());
        }
        ip(&format!("netns add {tag}-{at}")).map_err(missing)?;
        ip(&format!("-n {tag}-{at} link set lo up"))?;
        for kind in ['p', 'c'] {
            let inside = self.address(kind, 10 + at);
            ip(&format!(
                "link add {tag}{kind}{at} type veth peer name e{kind} netns {tag}-{at}"
            ))?;
            ip(&format!("link set {tag}{kind}{at} master {tag}{kind} up"))?;
            ip(&format!("-n {tag}-{at} addr add {inside}/24 dev e{kind}"))?;
            ip(&format!("-n {tag}-{at} link set e{kind} up"))?;
        }
        Ok(())
    }

    fn members(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Option<u16>>> {
        // The set is whole whoever panicked with it.
        self.members.lock().unwrap_or_else(|p| p.into_inner())
    }

    fn address(&self, kind: char, host: usize) -> String {
        let block = if kind == 'p' { 77 } else { 78 };
        format!("10.{block}.{}.{host}", self.net)
    }

    /// Returns where clients reach a member.
    pub fn client_url(&self, at: usize) -> String {
        format!("http://{}:{CLIENT_PORT}", self.address('c', 10 + at))
    }

    /// Returns where the others reach a member.
    pub fn peer_url(&self, at: usize) -> String {
        format!("http://{}:{PEER_PORT}", self.address('p', 10 + at))
    }

    /// Returns the address of whoever stands between the members.
    pub fn host(&self) -> Ipv4Addr {
        let third = u8::try_from(self.net).unwrap_or_default();
        Ipv4Addr::new(10, 77, third, 1)
    }

    /// Returns the words that run a program in a member's network.
    pub fn prefix(&self, at: usize) -> Vec<String> {
        // Not `ip netns exec`: that copies all mounts for itself, and a disk that is
        // mounted elsewhere too cannot be taken away.
        let namespace = format!("--net=/run/netns/{}-{at}", self.tag);
        vec!["nsenter".to_owned(), namespace]
    }

    /// Takes a member's links down: packets are lost, nobody is told.
    pub fn cut(&self, at: usize, what: Cut) -> Result<()> {
        let down = |kind| ip(&format!("link set {}{kind}{at} down", self.tag));
        what.links().iter().try_for_each(down)
    }

    /// Takes them up again.
    pub fn heal(&self, at: usize, what: Cut) -> Result<()> {
        let up = |kind| ip(&format!("link set {}{kind}{at} up", self.tag));
        what.links().iter().try_for_each(up)
    }

    /// Notes that the others reach a member through a relay on this port of the host.
    pub fn relayed(&self, at: usize, port: u16) {
        self.members().insert(at, Some(port));
    }

    /// Does something to all packets from one member to another.
    pub fn hurt(&self, from: usize, to: usize, what: Packets) -> Result<()> {
        let port = |at| self.members().get(&at).copied().flatten();
        let then = match what {
            Packets::Dropped => "-j DROP".to_owned(),
            Packets::Lost(part) => {
                format!("-m statistic --mode random --probability {part} -j DROP")
            }
        };
        match (port(from), port(to)) {
            // Both ends of what goes over the relay: what `from` says where it dialed,
            // and what it answers where `to` did.
            (Some(from_port), Some(to_port)) => {
                let said = format!("-w -A OUTPUT -o ep -p tcp --dport {to_port} {then}");
                let answered = format!("-w -A INPUT -i ep -p tcp --sport {from_port} {then}");
                self.filter(from, &said.split(' ').collect::<Vec<_>>())?;
                self.filter(to, &answered.split(' ').collect::<Vec<_>>())
            }
            _ => {
                let source = self.address('p', 10 + from);
                let rule = format!("-w -A INPUT -i ep -s {source} {then}");
                self.filter(to, &rule.split(' ').collect::<Vec<_>>())
            }
        }
    }

    /// Lets all packets of all members through again.
    pub fn calm(&self) -> Result<()> {
        let members = self.members().clone();
        let mut calmed = members.into_keys().map(|at| {
            self.slow(at, None)?;
            self.heal(at, Cut::Everything)?;
            self.filter(at, &["-w", "-F"])
        });
        calmed.try_for_each(|done| match done {
            // Nothing was hurt with what is missing.
            Err(Error::Missing(..)) => Ok(()),
            done => done,
        })
    }

    fn filter(&self, at: usize, rule: &[&str]) -> Result<()> {
        let program = self.filter.ok_or_else(|| {
            Error::Missing("a packet filter", "iptables is not installed".to_owned())
        })?;
        let namespace = format!("{}-{at}", self.tag);
        let mut words = vec!["netns", "exec", &namespace, program];
        words.extend(rule);
        run("ip", &words).map(drop)
    }

    /// Lets so many bits a second of a member's packets to others pass, and lets as
    /// many packets as take half a second wait for that; `None` lets all pass.
    pub fn slow(&self, at: usize, bits: Option<u32>) -> Result<()> {
        let namespace = format!("{}-{at}", self.tag);
        let mut words = vec!["-n", &namespace, "qdisc"];
        let rate;
        match bits {
            None => {
                words.extend(["del", "dev", "ep", "root"]);
                // There was none to take away.
                let _none = run("tc", &words);
                return Ok(());
            }
            Some(bits) => {
                rate = format!("{bits}bit");
                words.extend(["replace", "dev", "ep", "root", "tbf", "rate", &rate]);
                words.extend(["burst", "8k", "latency", "500ms"]);
            }
        }
        run("tc", &words)
            .map(drop)
            .map_err(|e| Error::Missing("a slow link", e.to_string()))
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // Each may be missing, if it could not be made.
        for at in self.members().clone().into_keys() {
            let _gone = ip(&format!("netns del {}-{at}", self.tag));
        }
        for kind in ['p', 'c'] {
            let _gone = ip(&format!("link del {}{kind}", self.tag));
        }
    }
}

fn missing(why: Error) -> Error {
    Error::Missing("a network namespace", why.to_string())
}

/// Runs `ip`.
fn ip(line: &str) -> Result<()> {
    run("ip", &line.split_whitespace().collect::<Vec<_>>()).map(drop)
}
