//! Starts and stops the programs under test, and waits for what they promise.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it. Generous, since a
/// debug build shares two cores with the other tests; nothing waits this long
/// unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How often a condition is looked at again.
const POLL: Duration = Duration::from_millis(50);

/// Returns a tool's path, or says that the test cannot run and returns `None`.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("KEELSON_TOOLS")
        .map(|d| PathBuf::from(d).join(name))
        .filter(|p| p.exists());
    if found.is_none() {
        eprintln!("cannot run: {name} is not there; run tests/run, which brings it");
    }
    found
}

/// Takes a tool's path out of the environment or ends the test.
macro_rules! need {
    ($name:literal) => {
        match $crate::harness::tool($name) {
            Some(path) => path,
            None => return,
        }
    };
}
pub(crate) use need;

/// Whole clusters run one at a time: two cores cannot keep several of them
/// honest about their deadlines.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits until a condition gives a value; panics with the last reason.
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(why) if Instant::now() >= deadline => panic!("waited for {what}; last: {why}"),
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// A running program of ours; killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: PathBuf,
    /// Where in the file this run's errors begin; a restart appends.
    stderr_from: usize,
}

impl Program {
    /// Starts `keelson` with arguments; standard error goes to a file.
    pub(crate) fn start(stderr: &Path, args: &[&str]) -> Self {
        Self::spawn(
            Command::new(env!("CARGO_BIN_EXE_keelson")).args(args),
            stderr,
        )
    }

    /// Starts any command likewise.
    pub(crate) fn spawn(command: &mut Command, stderr: &Path) -> Self {
        let errors = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(stderr)
            .unwrap();
        let stderr_from = usize::try_from(errors.metadata().unwrap().len()).unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (tx, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tx.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
            stderr: stderr.to_owned(),
            stderr_from,
        }
    }

    /// Waits for a line of standard output that starts so; returns the rest.
    pub(crate) fn line(&mut self, start: &str) -> String {
        if let Some(line) = self
            .seen
            .iter()
            .find_map(|l| l.trim_start().strip_prefix(start))
        {
            return line.trim().to_owned();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!(
                    "no line {start:?} in {:?}; errors:\n{}",
                    self.seen,
                    self.errors()
                );
            };
            self.seen.push(line);
            if let Some(rest) = self
                .seen
                .last()
                .and_then(|l| l.trim_start().strip_prefix(start))
            {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for a line of the log that contains this, and returns it.
    pub(crate) fn logged(&self, words: &str) -> String {
        until(&format!("{words:?} in the log"), || {
            let log = self.errors();
            log.lines()
                .find(|l| l.contains(words))
                .map(str::to_owned)
                .ok_or_else(|| tail(&log))
        })
    }

    /// Returns what this run wrote to standard error so far.
    pub(crate) fn errors(&self) -> String {
        let bytes = fs::read(&self.stderr).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.stderr_from..).unwrap_or_default()).into_owned()
    }

    /// Returns how it ended, if it did by itself.
    #[allow(dead_code, reason = "not every suite asks")]
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills without any chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        // Already gone is as good as killed.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }

    /// Asks it to end and waits for that.
    pub(crate) fn terminate(&mut self) -> std::process::ExitStatus {
        signal(self.pid(), "TERM");
        until("a clean end", || {
            self.child
                .try_wait()
                .map_err(|e| e.to_string())?
                .ok_or_else(|| "still running".into())
        })
    }

    /// Waits for the end of a program that should end by itself.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        until("the end of the program", || {
            self.child
                .try_wait()
                .map_err(|e| e.to_string())?
                .ok_or_else(|| "still running".into())
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!(
                "--- standard error of pid {} ---\n{}",
                self.pid(),
                tail(&self.errors())
            );
        }
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success(), "kill -{name} {pid}");
}

/// Returns the pids of processes whose whole command line is this.
pub(crate) fn processes(command: &[&str]) -> Vec<u32> {
    let want = command.iter().map(|a| format!("{a}\0")).collect::<String>();
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c == want.as_bytes()))
        .collect();
    pids.sort_unstable();
    pids
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// A whole cluster in one process, in a folder of its own.
pub(crate) struct Cluster {
    pub(crate) program: Program,
    pub(crate) store: String,
    folder: tempfile::TempDir,
    kubectl: PathBuf,
}

impl Cluster {
    /// Starts a cluster and waits until its node is ready.
    pub(crate) fn up(kubectl: &Path) -> Self {
        Self::up_with(kubectl, &[])
    }

    /// Starts a cluster with more flags and waits until it says that it is ready.
    pub(crate) fn up_with(kubectl: &Path, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Self::program(folder.path(), flags);
        let mut cluster = Self {
            program,
            store: String::new(),
            folder,
            kubectl: kubectl.to_owned(),
        };
        cluster.await_ready();
        cluster
    }

    fn program(folder: &Path, flags: &[&str]) -> Program {
        let data = folder.join("data");
        let up = [
            "up",
            "--data-dir",
            data.to_str().unwrap(),
            "--port=0",
            "--store-port=0",
        ];
        Program::start(&folder.join("stderr"), &[&up, flags].concat())
    }

    fn await_ready(&mut self) {
        self.program.line("ready in");
        self.store = self.program.line("store");
    }

    /// Starts it again on the same folder.
    pub(crate) fn restart(&mut self) {
        self.program = Self::program(self.folder.path(), &[]);
        self.await_ready();
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file for kubectl to read.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn client(&self) -> Kubectl {
        Kubectl {
            program: self.kubectl.clone(),
            kubeconfig: self.data_dir().join("kubeconfig"),
            home: self.folder.path().to_owned(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A graceful end also ends the pods' processes; if that fails, the
        // program's own drop kills it.
        if !thread::panicking() {
            self.program.terminate();
        }
    }
}

/// kubectl with a kubeconfig.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(program: &Path, kubeconfig: &Path, home: &Path) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            home: home.to_owned(),
        }
    }

    /// Runs kubectl; words are split at spaces.
    pub(crate) fn output(&self, line: &str) -> Output {
        self.output_of(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn output_of(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Makes a command that runs kubectl, with nothing to read.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u")
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl with something to read.
    pub(crate) fn output_with(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // Apart, since kubectl may not read on before its output is taken.
        let writer = thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    /// Runs kubectl, which must succeed, and returns its output.
    pub(crate) fn run(&self, line: &str) -> String {
        self.run_of(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_of(&self, args: &[&str]) -> String {
        let out = self.output_of(args);
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "kubectl {args:?}: {errors}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Runs `kubectl edit` with sed as the editor.
    pub(crate) fn edit(&self, what: &str, sed: &str) -> String {
        let out = Command::new(&self.program)
            .arg("edit")
            .args(what.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBE_EDITOR", format!("sed -i {sed}"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Runs kubectl, which must fail, and returns what it said.
    pub(crate) fn fail(&self, line: &str) -> String {
        let out = self.output(line);
        assert!(!out.status.success(), "kubectl {line} succeeded");
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    /// Waits until exactly `count` pods with a label exist and all run.
    pub(crate) fn running(&self, label: &str, count: usize) -> Vec<String> {
        until(&format!("{count} running pods with {label}"), || {
            let out = self.run(&format!("get pods -l {label} --no-headers"));
            let rows: Vec<&str> = out.lines().collect();
            let running = rows.iter().filter(|r| r.contains(" Running ")).count();
            if rows.len() == count && running == count {
                Ok(rows
                    .iter()
                    .filter_map(|r| r.split_whitespace().next())
                    .map(str::to_owned)
                    .collect())
            } else {
                Err(out)
            }
        })
    }
}

/// Returns a port nobody has now, for programs that cannot take port 0.
pub(crate) fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}
