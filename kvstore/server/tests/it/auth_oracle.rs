//! One session of etcdctl, told to a real etcd and to us: the answers must be equal.
//!
//! `tests/run` says in `KEELSON_TOOLS` where etcd and etcdctl (3.5) are; without them
//! the test says so and passes.
//!
//! A line of the session is `user:password| arguments`, with nothing before the bar
//! for nobody, and `<<` before what goes to standard input. Where a newer etcd refuses
//! what 3.5.1 still allows, or words it better, `=>` gives the newer answer: ours must
//! be that, and the old one must differ.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use proto::etcdserverpb as pb;
use tonic::transport::Channel;

use crate::{
    auth_who::{Client, cheap},
    store::{DEADLINE, Store},
};

const SESSION: &str = include_str!("auth_session.txt");

fn tool(name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("KEELSON_TOOLS")?).join(name);
    path.exists().then_some(path)
}

/// An etcd of its own.
struct Etcd {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Etcd {
    fn start(program: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Both are held until both are known, so that they differ.
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [url, peer] = ports.map(|port| format!("http://{}", port.local_addr().unwrap()));
        let child = Command::new(program)
            .args(["--name=default", "--bcrypt-cost=4", "--log-level=error"])
            .arg(format!("--data-dir={}", dir.path().join("data").display()))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            url,
            _dir: dir,
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn connect(url: &str) -> Client {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let endpoint = Channel::from_shared(url.to_owned()).unwrap();
        match endpoint.connect().await {
            Ok(channel) => return Client::over(channel),
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Splits a line into words; single quotes keep spaces.
fn words(text: &str) -> Vec<String> {
    text.split('\'')
        .enumerate()
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

/// Runs etcdctl; returns all it says, without what differs by chance.
fn etcdctl(program: &Path, url: &str, user: &str, args: &str) -> String {
    let (args, input) = args.split_once("<<").unwrap_or((args, ""));
    let mut command = Command::new(program);
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", url, "--command-timeout=15s"]);
    if !user.is_empty() {
        command.args(["--user", user]);
    }
    let mut child = command
        .args(words(args))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = input.trim_start().replace("\\n", "\n");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8(said).unwrap().replace(url, "URL");
    let lines = said.lines().filter(|line| !line.starts_with("{\"level\""));
    let lines = lines.map(|line| match line.split_once("remaining(") {
        Some((before, after)) => {
            let after = after.split_once(')').unwrap().1;
            format!("{before}remaining(){after}")
        }
        None => line.trim_end().to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Grants a lease by number, which etcdctl cannot.
async fn grant(client: &Client, id: i64) {
    let root = client.login("root", "rp").await;
    let request = pb::LeaseGrantRequest { id, ttl: 600 };
    root.lease().lease_grant(request).await.unwrap();
}

#[tokio::test]
#[allow(clippy::print_stderr, reason = "what a test says goes to its output")]
async fn a_session_reads_the_same() {
    let (Some(etcd), Some(program)) = (tool("etcd"), tool("etcdctl")) else {
        eprintln!("no etcd and etcdctl in KEELSON_TOOLS: nothing was compared");
        return;
    };
    let etcd = Etcd::start(&etcd);
    let store = Store::start_with(cheap).await;
    let (theirs, ours) = (connect(&etcd.url).await, connect(&store.url()).await);
    let mut wrong = Vec::new();
    for line in SESSION
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        if let Some(id) = line.strip_prefix("lease ") {
            for client in [&theirs, &ours] {
                grant(client, id.parse().unwrap()).await;
            }
            continue;
        }
        let (line, newer) = match line.split_once(" => ") {
            Some((line, newer)) => (line, Some(newer.replace("\\n", "\n"))),
            None => (line, None),
        };
        let (user, args) = line.split_once('|').unwrap();
        let [old, new] = [&etcd.url, &store.url()].map(|url| etcdctl(&program, url, user, args));
        let fine = match &newer {
            None => new == old,
            Some(newer) => new == *newer && new != old,
        };
        if !fine {
            let wanted = newer.as_ref().unwrap_or(&old);
            wrong.push(format!(
                "{line}\n  etcd: {old}\n  wanted: {wanted}\n  ours: {new}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
