//! Stands between the members and passes on what they say, later or never: for
//! delays where the kernel has no `netem`, and for everything where there are no
//! network namespaces.
//!
//! What is held is not lost: it arrives when it is let go, long after it was true.
//! That is what a network may do at worst, and it finds what a plain loss does not.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::client::runtime;
use crate::error::{Error, Result};

/// How many bytes are passed on at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How many chunks wait in one direction; a sender whose are waiting finds its
/// connection full.
const CHUNKS_MAX: usize = 256;

/// What happens to bytes on their way from one member to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// They wait until they are let go.
    pub held: bool,
    /// They come so much later,
    pub delay: Duration,
    /// and by chance up to so much later still.
    pub jitter: Duration,
    /// Raised whenever connections are torn down; bytes in them are lost.
    resets: u64,
}

type Flows = BTreeMap<(usize, usize), Flow>;
/// Tells which member has a connection's other end.
type Whose = Arc<dyn Fn(SocketAddr) -> Option<usize> + Send + Sync>;

/// A relay before each of some members.
#[derive(Debug)]
pub struct Relay {
    flows: watch::Sender<Flows>,
    /// The members' processes, by pid: whose a connection on loopback is.
    pids: Arc<Mutex<BTreeMap<u32, usize>>>,
    listeners: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            flows: watch::Sender::new(Flows::new()),
            pids: Arc::default(),
            listeners: Mutex::default(),
        }
    }
}

impl Relay {
    /// Begins to pass on what is said to a member, and returns where that is said.
    /// Members with an address of their own end in ten and their number.
    pub fn stand_before(
        &self,
        at: usize,
        listen: IpAddr,
        member: SocketAddr,
    ) -> Result<SocketAddr> {
        let pids = self.pids.clone();
        let whose: Whose = match listen.is_loopback() {
            true => Arc::new(move |peer| owner(peer.port(), &pids)),
            false => Arc::new(|peer| match peer.ip() {
                IpAddr::V4(ip) => usize::from(ip.octets()[3]).checked_sub(10),
                IpAddr::V6(_) => None,
            }),
        };
        self.stand(whose, at, listen, member)
    }

    /// Begins to pass on what one says to another, and returns where it says that.
    pub fn stand_between(
        &self,
        from: usize,
        to: usize,
        listen: IpAddr,
        member: SocketAddr,
    ) -> Result<SocketAddr> {
        self.stand(Arc::new(move |_| Some(from)), to, listen, member)
    }

    fn stand(
        &self,
        whose: Whose,
        at: usize,
        listen: IpAddr,
        member: SocketAddr,
    ) -> Result<SocketAddr> {
        let bound = runtime().block_on(TcpListener::bind((listen, 0)));
        let listener = bound.map_err(Error::io("a relay"))?;
        let address = listener.local_addr().map_err(Error::io("a relay"))?;
        let flows = self.flows.subscribe();
        let accept = async move {
            while let Ok((dialed, peer)) = listener.accept().await {
                let (flows, whose) = (flows.clone(), whose.clone());
                tokio::spawn(async move {
                    let from = whose(peer);
                    // A member that is down refuses, and its caller is told by an end.
                    if let Ok(member) = TcpStream::connect(member).await {
                        pass(dialed, member, from, at, flows).await;
                    }
                });
            }
        };
        let task = runtime().spawn(accept);
        self.listeners
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .push(task);
        Ok(address)
    }

    /// Notes which member a process is.
    pub(crate) fn note(&self, pid: u32, at: usize) {
        let mut pids = self.pids.lock().unwrap_or_else(|p| p.into_inner());
        pids.retain(|_, member| *member != at);
        pids.insert(pid, at);
    }

    /// Holds what one member says to another until it is let go.
    pub fn hold(&self, from: usize, to: usize) {
        self.change(from, to, |flow| flow.held = true);
    }

    /// Delays what one member says to another.
    pub fn delay(&self, from: usize, to: usize, delay: Duration, jitter: Duration) {
        self.change(from, to, |flow| (flow.delay, flow.jitter) = (delay, jitter));
    }

    /// Tears down all connections between two members, with what is in them.
    pub fn reset(&self, one: usize, other: usize) {
        self.change(one, other, |flow| flow.resets += 1);
        self.change(other, one, |flow| flow.resets += 1);
    }

    /// Lets everything go.
    pub fn calm(&self) {
        self.flows.send_modify(|flows| {
            for flow in flows.values_mut() {
                let resets = flow.resets;
                *flow = Flow {
                    resets,
                    ..Flow::default()
                };
            }
        });
    }

    fn change(&self, from: usize, to: usize, change: impl FnOnce(&mut Flow)) {
        let change = |flows: &mut Flows| change(flows.entry((from, to)).or_default());
        self.flows.send_modify(change);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for task in self
            .listeners
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .drain(..)
        {
            task.abort();
        }
        // Who still passes something on ends with this.
        self.flows.send_modify(|flows| {
            flows.values_mut().for_each(|flow| flow.resets += 1);
        });
    }
}

/// Passes on both directions of one connection until either ends, or it is torn down.
async fn pass(
    dialed: TcpStream,
    member: TcpStream,
    from: Option<usize>,
    to: usize,
    flows: watch::Receiver<Flows>,
) {
    // Unless its ends are slow this only costs: what waits, waits here.
    let _best_effort = (dialed.set_nodelay(true), member.set_nodelay(true));
    let (dialed_in, dialed_out) = dialed.into_split();
    let (member_in, member_out) = member.into_split();
    let from = from.unwrap_or(usize::MAX);
    let there = one_way(dialed_in, member_out, (from, to), flows.clone());
    let back = one_way(member_in, dialed_out, (to, from), flows.clone());
    let mut flows = flows;
    let before = flows
        .borrow_and_update()
        .get(&(from, to))
        .map_or(0, |f| f.resets);
    let torn = async {
        let is_torn = |flows: &Flows| flows.get(&(from, to)).is_some_and(|f| f.resets != before);
        // An error means that the relay is gone.
        let _torn = flows.wait_for(is_torn).await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
        () = torn => {}
    }
}

async fn one_way(
    mut input: OwnedReadHalf,
    mut output: OwnedWriteHalf,
    way: (usize, usize),
    flows: watch::Receiver<Flows>,
) {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let mut letting_go = flows.clone();
    let read = async move {
        let mut rng = StdRng::seed_from_u64(way.0 as u64 ^ (way.1 as u64) << 8);
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = input.read(&mut buffer).await {
            let flow = flows.borrow().get(&way).copied().unwrap_or_default();
            let jitter = rng.random_range(Duration::ZERO..=flow.jitter);
            let due = Instant::now() + flow.delay + jitter;
            if queue.send((due, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = queued.recv().await {
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let open = |flows: &Flows| !flows.get(&way).is_some_and(|f| f.held);
            if letting_go.wait_for(open).await.is_err() || output.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// How often the table of connections is read for one: while others come and go, a
/// reading may leave out a row.
const READINGS: usize = 10;

/// Finds which of some processes has a connection from a port of this machine: its
/// inode by `/proc/net/tcp`, who has that open by `/proc/<pid>/fd`.
fn owner(port: u16, pids: &Mutex<BTreeMap<u32, usize>>) -> Option<usize> {
    let socket = (0..READINGS).find_map(|_| {
        let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
        let found = table.lines().find_map(|row| inode(row, port));
        found.map(str::to_owned)
    })?;
    let socket = format!("socket:[{socket}]");
    let pids = pids.lock().unwrap_or_else(|p| p.into_inner()).clone();
    let has = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .any(|link| link.as_os_str() == socket.as_str())
    };
    pids.into_iter()
        .find(|(pid, _)| has(*pid))
        .map(|(_, at)| at)
}

/// Reads the inode of an established connection from a port out of a row of
/// `/proc/net/tcp`. What is left of earlier ones from that port has none.
fn inode(row: &str, port: u16) -> Option<&str> {
    const ESTABLISHED: &str = "01";
    let words: Vec<_> = row.split_whitespace().collect();
    let (local, state) = (words.get(1)?, words.get(3)?);
    let is = local.ends_with(&format!(":{port:04X}")) && *state == ESTABLISHED;
    let inode = words.get(9).filter(|_| is)?;
    (*inode != "0").then_some(inode)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream as Blocking;

    use super::*;

    /// A relay before a listener, a connection through it, and both its ends.
    fn connected(relay: &Relay) -> (Blocking, Blocking) {
        let member = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = member.local_addr().unwrap();
        relay.note(std::process::id(), 3);
        let relayed = relay.stand_before(1, "127.0.0.1".parse().unwrap(), address);
        let dialed = Blocking::connect(relayed.unwrap()).unwrap();
        let (accepted, _) = member.accept().unwrap();
        for end in [&dialed, &accepted] {
            end.set_read_timeout(Some(Duration::from_millis(300)))
                .unwrap();
        }
        (dialed, accepted)
    }

    fn read(stream: &mut Blocking) -> Option<String> {
        let mut buffer = [0; 64];
        let length = stream.read(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    #[test]
    fn a_connection_is_told_from_those_before_it() {
        let row = |state: &str, inode: &str| {
            format!("1: 0100007F:8AE3 0100007F:0CEA {state} 0:0 00:0 0 0 0 {inode} 1")
        };
        let port = 0x8ae3;
        assert_eq!(inode(&row("01", "777"), port), Some("777"));
        assert_eq!(inode(&row("06", "0"), port), None, "TIME_WAIT");
        assert_eq!(inode(&row("01", "0"), port), None);
        assert_eq!(inode(&row("01", "777"), 0x0cea), None, "the other end");
        assert_eq!(inode("sl local_address rem_address st", port), None);
    }

    #[test]
    fn bytes_are_held_one_way_and_arrive_when_let_go() {
        let relay = Relay::default();
        let (mut dialed, mut accepted) = connected(&relay);
        relay.hold(3, 1);
        dialed.write_all(b"late").unwrap();
        accepted.write_all(b"back").unwrap();
        assert_eq!(read(&mut dialed).as_deref(), Some("back"));
        assert_eq!(read(&mut accepted), None);
        relay.calm();
        assert_eq!(read(&mut accepted).as_deref(), Some("late"));
    }

    #[test]
    fn who_stands_between_two_hurts_no_others() {
        let relay = Relay::default();
        let member = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (here, there) = ("127.0.0.1".parse().unwrap(), member.local_addr().unwrap());
        let mut ends = Vec::new();
        for from in [7, 8] {
            let relayed = relay.stand_between(from, 1, here, there).unwrap();
            let dialed = Blocking::connect(relayed).unwrap();
            let (accepted, _) = member.accept().unwrap();
            let patience = Some(Duration::from_millis(300));
            accepted.set_read_timeout(patience).unwrap();
            ends.push((dialed, accepted));
        }
        relay.hold(7, 1);
        for (dialed, _) in &mut ends {
            dialed.write_all(b"said").unwrap();
        }
        assert_eq!(read(&mut ends[0].1), None);
        assert_eq!(read(&mut ends[1].1).as_deref(), Some("said"));
        relay.calm();
        assert_eq!(read(&mut ends[0].1).as_deref(), Some("said"));
    }

    #[test]
    fn bytes_are_delayed() {
        let relay = Relay::default();
        let (mut dialed, mut accepted) = connected(&relay);
        let delay = Duration::from_millis(100);
        relay.delay(3, 1, delay, Duration::ZERO);
        let started = std::time::Instant::now();
        dialed.write_all(b"slow").unwrap();
        assert_eq!(read(&mut accepted).as_deref(), Some("slow"));
        assert!(started.elapsed() >= delay);
    }

    #[test]
    fn connections_are_torn_down() {
        let relay = Relay::default();
        let (mut dialed, mut accepted) = connected(&relay);
        dialed.write_all(b"a").unwrap();
        assert_eq!(read(&mut accepted).as_deref(), Some("a"));
        relay.reset(1, 3);
        // However long that takes on a busy machine, and whichever way it is told.
        let patience = Some(Duration::from_secs(10));
        accepted.set_read_timeout(patience).unwrap();
        let ended = accepted.read(&mut [0]);
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(
            matches!(ended, Ok(0)) || ended.as_ref().is_err_and(reset),
            "{ended:?}"
        );
    }
}
