//! Network namespaces: each member has its own, with one link to the other
//! members and one to its clients, so that it can be cut off from either.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// What is cut off from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
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

/// The most members a network has.
const MEMBERS_MAX: usize = 3;
/// How long an HTTP answer may take.
const HTTP_PATIENCE: Duration = Duration::from_secs(10);

/// Two bridges, and namespaces linked to both. Gone when dropped.
pub(crate) struct Lan {
    /// Begins the names of everything, so that two runs do not meet.
    tag: String,
    /// The third number of all addresses, for the same reason.
    net: u32,
}

impl Lan {
    /// Builds it, or says why it cannot be and returns `None`.
    pub(crate) fn build() -> Option<Self> {
        let pid = std::process::id();
        let lan = Self {
            tag: format!("k{pid}"),
            net: pid % 250,
        };
        match lan.set_up() {
            Ok(()) => Some(lan),
            Err(why) => {
                eprintln!("cannot run: no network namespaces here ({why})");
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let tag = &self.tag;
        for kind in ['p', 'c'] {
            ip(&format!("link add {tag}{kind} type bridge"))?;
            ip(&format!(
                "addr add {}/24 dev {tag}{kind}",
                self.address(kind, 1)
            ))?;
            ip(&format!("link set {tag}{kind} up"))?;
        }
        for at in 0..MEMBERS_MAX {
            ip(&format!("netns add {tag}-{at}"))?;
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
        }
        Ok(())
    }

    fn address(&self, kind: char, host: usize) -> String {
        let block = if kind == 'p' { 77 } else { 78 };
        format!("10.{block}.{}.{host}", self.net)
    }

    pub(crate) fn client_url(&self, at: usize) -> String {
        format!("http://{}:2379", self.address('c', 10 + at))
    }

    pub(crate) fn peer_url(&self, at: usize) -> String {
        format!("http://{}:2380", self.address('p', 10 + at))
    }

    /// Returns the words that run a program in a member's network.
    pub(crate) fn prefix(&self, at: usize) -> Vec<String> {
        let namespace = format!("{}-{at}", self.tag);
        ["ip", "netns", "exec", &namespace]
            .map(str::to_owned)
            .to_vec()
    }

    /// Takes a member's links down: packets are lost, nobody is told.
    pub(crate) fn cut(&self, at: usize, what: Cut) {
        for kind in what.links() {
            ip(&format!("link set {}{kind}{at} down", self.tag)).unwrap();
        }
    }

    /// Takes them up again.
    pub(crate) fn heal(&self, at: usize, what: Cut) {
        for kind in what.links() {
            ip(&format!("link set {}{kind}{at} up", self.tag)).unwrap();
        }
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // Each may be missing, if it could not be made.
        for at in 0..MEMBERS_MAX {
            let _ = ip(&format!("netns del {}-{at}", self.tag));
        }
        for kind in ['p', 'c'] {
            let _ = ip(&format!("link del {}{kind}", self.tag));
        }
    }
}

/// Runs `ip`.
fn ip(line: &str) -> Result<(), String> {
    let out = Command::new("ip").args(line.split_whitespace()).output();
    let out = out.map_err(|e| format!("ip: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("ip {line}: {}", said.trim()))
}

/// Gets a page over HTTP/1.0.
pub(crate) fn http_get(url: &str, path: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HTTP_PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
