//! The process runtime against real processes: start, end, take over, kill.

// A function that fails here fails its test.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agent::images::ImageMap;
use agent::process::ProcessRuntime;
use agent::runtime::{PodContainer, Runtime, StartRequest};
use kubelet_core::runtime::{ContainerExit, ContainerInstance, ContainerRun};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

#[path = "process/interactive.rs"]
mod interactive;
#[path = "process/reaping.rs"]
mod reaping;
#[path = "process/users.rs"]
mod users;

/// Limit of a test's patience.
const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    dir: TempDir,
    runtime: ProcessRuntime,
    events: Receiver<PodContainer>,
    attempts: u32,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, events) = open(dir.path()).await;
        World {
            dir,
            runtime,
            events,
            attempts: 0,
        }
    }

    /// Drops the runtime as a killed agent would and opens another one.
    async fn restart(&mut self) -> Vec<PodContainer> {
        let (runtime, events) = open(self.dir.path()).await;
        (self.runtime, self.events) = (runtime, events);
        self.runtime.relist().await
    }

    async fn start(&mut self, command: &[&str]) -> ContainerInstance {
        let request = request(&self.runtime, command, self.attempts);
        self.attempts += 1;
        self.runtime.start(request).await.unwrap()
    }

    async fn shell(&mut self, script: &str) -> ContainerInstance {
        self.start(&["sh", "-c", script]).await
    }

    /// Waits until the container has ended.
    async fn exit(&mut self, id: &str) -> ContainerExit {
        let known = self
            .runtime
            .relist()
            .await
            .into_iter()
            .find(|c| c.instance.id == id);
        if let Some(exit) = known.and_then(|c| c.instance.exit().cloned()) {
            return exit;
        }
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("the runtime ended");
                if event.instance.id == id
                    && let ContainerRun::Exited(exit) = event.instance.run
                {
                    return exit;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("the container does not end")
    }

    fn log(&self, id: &str) -> String {
        fs::read_to_string(self.runtime.log_path(id).unwrap()).unwrap_or_default()
    }

    fn container_dir(&self, id: &str) -> PathBuf {
        self.dir.path().join("containers").join(id)
    }

    fn pid(&self, id: &str, file: &str) -> i64 {
        let bytes = fs::read(self.container_dir(id).join(file)).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        record["pid"].as_i64().unwrap()
    }

    /// Finds every living process of this world's containers.
    fn processes(&self) -> Vec<i64> {
        marked(self.dir.path())
    }
}

/// No test leaves a process behind, whether it passes or not.
impl Drop for World {
    fn drop(&mut self) {
        self.processes()
            .into_iter()
            .for_each(|pid| kill("KILL", pid));
    }
}

async fn open(root: &Path) -> (ProcessRuntime, Receiver<PodContainer>) {
    let shim = vec![OsString::from(env!("CARGO_BIN_EXE_test-shim"))];
    ProcessRuntime::open(root, &root.join("logs"), shim, ImageMap::default())
        .await
        .unwrap()
}

fn request(runtime: &ProcessRuntime, command: &[&str], attempt: u32) -> StartRequest {
    StartRequest {
        pod_uid: "uid-1".into(),
        pod_namespace: "default".into(),
        pod_name: "web".into(),
        grace_seconds: 1,
        container: "app".into(),
        attempt,
        spec_hash: "h".into(),
        image: "host".into(),
        resolved: runtime.resolve_image("host", true).unwrap(),
        command: command.iter().map(|w| (*w).to_owned()).collect(),
        args: Vec::new(),
        env: vec![("GREETING".into(), "hello".into())],
        working_dir: None,
        hostname: "web".into(),
        mounts: Vec::new(),
        run_as: None,
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

/// Every container process knows its rootfs, which lies below the root.
fn marked(root: &Path) -> Vec<i64> {
    let mark = format!("KEELSON_ROOTFS={}", root.display());
    let is_marked = |pid: i64| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ)
            .split('\0')
            .any(|v| v.starts_with(&mark))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse::<i64>().ok())
        .filter(|pid| is_marked(*pid) && is_alive(*pid))
        .collect()
}

fn is_alive(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn kill(signal: &str, pid: i64) {
    let _gone = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .output();
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_running(instance: &ContainerInstance) -> bool {
    matches!(instance.run, ContainerRun::Running { .. })
}

#[tokio::test]
async fn a_container_runs_logs_and_ends_with_its_exit_code() {
    let mut world = World::new().await;
    let started = world
        .shell("echo $GREETING $HOSTNAME; echo oops >&2; printf end; exit 7")
        .await;
    let exit = world.exit(&started.id).await;
    assert_eq!(
        (exit.exit_code, exit.signal, exit.reason.as_str()),
        (7, None, "Error")
    );
    assert!(exit.started_at.unwrap() <= exit.finished_at);
    let log = world.log(&started.id);
    let (times, lines): (Vec<_>, Vec<_>) = log.lines().map(|l| l.split_once(' ').unwrap()).unzip();
    let out: Vec<_> = lines
        .iter()
        .filter(|l| l.starts_with("stdout"))
        .copied()
        .collect();
    assert_eq!(out, ["stdout F hello web", "stdout F end"]);
    assert!(lines.contains(&"stderr F oops"));
    assert!(
        times
            .iter()
            .all(|t| t.len() == "2016-10-06T00:17:09.669794202Z".len()),
        "{times:?}"
    );
}

#[tokio::test]
async fn success_and_signals_are_told_apart() {
    let mut world = World::new().await;
    let started = world.start(&["true"]).await;
    let exit = world.exit(&started.id).await;
    assert_eq!((exit.exit_code, exit.reason.as_str()), (0, "Completed"));
    let started = world.start(&["sleep", "3600"]).await;
    kill("KILL", world.pid(&started.id, "state.json"));
    let exit = world.exit(&started.id).await;
    assert_eq!((exit.exit_code, exit.signal), (137, Some(9)));
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_a_start_error() {
    let mut world = World::new().await;
    let cases = [
        ("no-such-command-here", "executable file not found in $PATH"),
        ("/no/such/file", "no such file or directory"),
        ("/etc/passwd", "permission denied"),
    ];
    for (command, message) in cases {
        let started = world.start(&[command]).await;
        let ContainerRun::Exited(exit) = started.run else {
            panic!("{started:?}")
        };
        assert_eq!((exit.exit_code, exit.reason.as_str()), (128, "StartError"));
        assert!(exit.message.contains(message), "{}", exit.message);
    }
}

#[tokio::test]
async fn the_shim_does_not_show_the_containers_command() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3601"]).await;
    let cmdline = |pid: i64| fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let shim = cmdline(world.pid(&started.id, "shim.json"));
    assert!(!String::from_utf8_lossy(&shim).contains("3601"));
    assert_eq!(
        cmdline(world.pid(&started.id, "state.json")),
        b"sleep\x003601\x00"
    );
    world
        .runtime
        .stop(&started.id, Duration::from_secs(5))
        .await
        .unwrap();
}

#[tokio::test]
async fn term_first_and_kill_when_the_grace_is_over() {
    let mut world = World::new().await;
    let polite = world.shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
    let polite = polite.await;
    eventually("it is up", || world.log(&polite.id).contains("up")).await;
    world.runtime.stop(&polite.id, PATIENCE).await.unwrap();
    assert_eq!(world.exit(&polite.id).await.exit_code, 3);
    assert!(world.log(&polite.id).contains("bye"));

    let stubborn = world
        .shell("trap '' TERM; echo up; while :; do sleep 0.05; done")
        .await;
    eventually("it is up", || world.log(&stubborn.id).contains("up")).await;
    world
        .runtime
        .stop(&stubborn.id, Duration::from_millis(200))
        .await
        .unwrap();
    assert_eq!(world.exit(&stubborn.id).await.exit_code, 137);
    assert_eq!(world.processes(), [0; 0]);
}

#[tokio::test]
async fn nothing_a_container_starts_outlives_it() {
    let mut world = World::new().await;
    // A background child, one in a session of its own, and orphans of a third.
    let script = "sleep 3602 & setsid sleep 3602 & \
                  (setsid sh -c 'sleep 3602 & sleep 3602' &); sleep 0.2; exit 0";
    let started = world.shell(script).await;
    assert_eq!(world.exit(&started.id).await.exit_code, 0);
    assert_eq!(world.processes(), [0; 0]);
}

#[tokio::test]
async fn a_new_agent_takes_over_running_containers_and_sees_their_end() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3603"]).await;
    let pid = world.pid(&started.id, "state.json");
    let found = world.restart().await;
    assert_eq!(found.len(), 1);
    assert!(is_running(&found[0].instance));
    assert_eq!(found[0].instance.id, started.id);
    assert_eq!(
        world.processes(),
        [pid],
        "it is the same process, and the only one"
    );
    kill("KILL", pid);
    assert_eq!(world.exit(&started.id).await.exit_code, 137);
}

#[tokio::test]
async fn an_end_while_no_agent_looks_is_read_afterwards() {
    let mut world = World::new().await;
    let script = "while [ ! -e $KEELSON_ROOTFS/go ]; do sleep 0.02; done; exit 9";
    let started = world.shell(script).await;
    let dir = world.container_dir(&started.id);
    fs::write(dir.join("rootfs/go"), "").unwrap();
    eventually("the shim writes how it ended", || {
        dir.join("exit.json").exists()
    })
    .await;
    let found = world.restart().await;
    let exit = found[0].instance.exit().unwrap();
    assert_eq!((exit.exit_code, found[0].instance.attempt), (9, 0));
}

#[tokio::test]
async fn a_killed_shim_takes_its_container_with_it() {
    let mut world = World::new().await;
    let started = world.shell("setsid sleep 3604 & sleep 3604").await;
    eventually("all run", || world.processes().len() == 3).await;
    kill("KILL", world.pid(&started.id, "shim.json"));
    let exit = world.exit(&started.id).await;
    assert_eq!(exit.exit_code, 137);
    assert!(exit.message.contains("shim was killed"), "{}", exit.message);
    assert_eq!(world.processes(), [0; 0]);
}

/// The agent and the shim are killed at the same moment: the next agent finds
/// a process without a shim and no record of its end.
#[tokio::test]
async fn a_container_whose_agent_and_shim_were_killed_is_ended_by_the_next_agent() {
    let root = tempfile::tempdir().unwrap();
    let started = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (runtime, _events) = open(root.path()).await;
                runtime
                    .start(request(&runtime, &["sleep", "3605"], 0))
                    .await
                    .unwrap()
            })
        });
        // With its event loop dropped the first agent sees nothing any more.
        first.join().unwrap()
    });
    let dir = root.path().join("containers").join(&started.id);
    let record = fs::read(dir.join("shim.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let shim = record["pid"].as_i64().unwrap();
    kill("KILL", shim);
    eventually("the shim is dead", || !is_alive(shim)).await;
    assert_eq!(
        marked(root.path()).len(),
        1,
        "the container runs on without its shim"
    );
    let (runtime, _events) = open(root.path()).await;
    let found = runtime.relist().await;
    assert_eq!(found[0].instance.exit().unwrap().exit_code, 137);
    assert_eq!(marked(root.path()), [0; 0]);
}

#[tokio::test]
async fn an_intent_without_a_shim_is_removed() {
    let mut world = World::new().await;
    let started = world.start(&["true"]).await;
    let spec = fs::read(world.container_dir(&started.id).join("spec.json")).unwrap();
    let (intent, staging) = (
        world.container_dir("0123"),
        world.container_dir(".new-4567"),
    );
    fs::create_dir_all(&intent).unwrap();
    fs::write(intent.join("spec.json"), spec).unwrap();
    fs::create_dir_all(&staging).unwrap();
    world.restart().await;
    assert!(!intent.exists() && !staging.exists());
    // A shim that comes late finds nothing to start.
    let late = Command::new(env!("CARGO_BIN_EXE_test-shim"))
        .arg(&intent)
        .output()
        .unwrap();
    assert_eq!(late.status.code(), Some(1));
}

#[tokio::test]
async fn a_container_is_started_by_one_shim_and_once() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3606"]).await;
    let again = || {
        let dir = world.container_dir(&started.id);
        let output = Command::new(env!("CARGO_BIN_EXE_test-shim"))
            .arg(dir)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(again().contains("another shim"));
    world
        .runtime
        .stop(&started.id, Duration::from_secs(5))
        .await
        .unwrap();
    assert!(again().contains("already started"));
}

#[tokio::test]
async fn exec_runs_in_the_containers_environment_and_is_killed_when_late() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3607"]).await;
    let exec = |script: &str, wait: Duration| {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let (runtime, id) = (world.runtime.clone(), started.id.clone());
        async move { runtime.exec(&id, command, wait).await.unwrap() }
    };
    let output = exec("echo $GREETING; exit 4", PATIENCE).await;
    assert_eq!(
        (output.exit_code, output.output.as_str()),
        (Some(4), "hello\n")
    );
    let output = exec("sleep 3608; true", Duration::from_millis(100)).await;
    assert_eq!(output.exit_code, None);
    eventually("the late command is gone", || world.processes().len() == 1).await;
    world
        .runtime
        .stop(&started.id, Duration::from_secs(5))
        .await
        .unwrap();
}

#[tokio::test]
async fn removal_takes_directory_and_log_but_never_of_a_running_container() {
    let mut world = World::new().await;
    let started = world.shell("echo x; sleep 3609").await;
    let log = world.runtime.log_path(&started.id).unwrap();
    eventually("it logs", || log.exists()).await;
    assert!(world.runtime.remove(&started.id).await.is_err());
    world
        .runtime
        .stop(&started.id, Duration::from_secs(5))
        .await
        .unwrap();
    world.runtime.remove(&started.id).await.unwrap();
    assert!(!log.exists());
    assert!(!world.container_dir(&started.id).exists());
    assert_eq!(world.runtime.relist().await, []);
}

#[tokio::test]
async fn a_container_whose_directory_vanishes_ends() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3610"]).await;
    fs::remove_dir_all(world.container_dir(&started.id)).unwrap();
    eventually("the shim notices", || world.processes().is_empty()).await;
    assert_eq!(world.exit(&started.id).await.exit_code, 137);
    world.runtime.remove(&started.id).await.unwrap();
}

#[tokio::test]
async fn many_containers_start_at_once_and_all_stop() {
    let world = World::new().await;
    let request = |n| request(&world.runtime, &["sleep", "3611"], n);
    let starts: Vec<_> = (0..50)
        .map(|n| {
            let (runtime, request) = (world.runtime.clone(), request(n));
            tokio::spawn(async move { runtime.start(request).await.unwrap() })
        })
        .collect();
    for start in starts {
        assert!(is_running(&start.await.unwrap()));
    }
    assert_eq!(world.processes().len(), 50);
    assert_eq!(
        agent::stop_all(world.dir.path(), Duration::MAX)
            .await
            .unwrap(),
        50
    );
    assert_eq!(world.processes(), [0; 0]);
}

#[tokio::test]
async fn a_mapped_directory_comes_first_in_path_and_is_the_working_directory() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    let image = tempfile::tempdir().unwrap();
    let script = image.path().join("date");
    fs::write(&script, "#!/bin/sh\necho from the image; pwd\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mapping = format!("tools={}", image.path().display());
    let map = ImageMap(vec![mapping.parse().unwrap()]);
    let mut request = request(&world.runtime, &["date"], 0);
    request.resolved = map.resolve("tools:v1", true).unwrap();
    let started = world.runtime.start(request).await.unwrap();
    let expected = image.path().canonicalize().unwrap();
    let expected = format!("stdout F {}\n", expected.display());
    eventually("it prints where it is", || {
        world.log(&started.id).ends_with(&expected)
    })
    .await;
    assert!(world.log(&started.id).contains("stdout F from the image\n"));
}

#[tokio::test]
async fn mounts_are_linked_below_the_rootfs_and_never_outside_it() {
    let mut world = World::new().await;
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("key"), "value").unwrap();
    let script = "cat etc/conf/key; echo; cat $KEELSON_MOUNT_MY_CONF/key; echo; cat up/key; echo";
    let mut request = request(&world.runtime, &["sh", "-c", script], 0);
    for path in ["/etc/conf", "../../up"] {
        request.mounts.push(agent::runtime::Mount {
            volume: "my-conf".into(),
            path: path.into(),
            source: volume.path().to_owned(),
        });
    }
    let started = world.runtime.start(request).await.unwrap();
    assert_eq!(world.exit(&started.id).await.exit_code, 0);
    assert_eq!(
        world.log(&started.id).matches("stdout F value\n").count(),
        3
    );
}

#[tokio::test]
async fn a_long_log_is_rotated_and_read_back_whole() {
    let mut world = World::new().await;
    let started = world.shell("seq 1 700000").await;
    assert_eq!(world.exit(&started.id).await.exit_code, 0);
    let path = world.runtime.log_path(&started.id).unwrap();
    assert!(
        path.with_extension("log.1").exists(),
        "25 MB do not fit one file"
    );
    let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
    let read = tokio::spawn(async move {
        let options = agent::logs::LogOptions::default();
        agent::logs::send_log(&path, &options, || false, &sender).await;
    });
    let mut text = Vec::new();
    while let Some(chunk) = receiver.recv().await {
        text.extend_from_slice(&chunk.unwrap());
    }
    read.await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.lines()
            .map(|l| l.parse::<u32>().unwrap())
            .eq(1..=700_000)
    );
}
