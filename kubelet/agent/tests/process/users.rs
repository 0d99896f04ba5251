//! Containers of another user. Only root can have them: run by anyone else,
//! these tests check that the change is refused, not forgotten.

use std::time::Duration;

use agent::runtime::{Mount, Runtime as _};
use kubelet_core::security::RunAs;

use super::{World, request};

const WHO: RunAs = RunAs {
    uid: 54_321,
    gid: 54_322,
};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// User, group and supplementary groups, and what the user may do: write in
/// its working directory, whose parents are closed to it, but not read its spec.
const SCRIPT: &str = "id -u; id -g; id -G; touch made && echo made; \
                      test -r ../spec.json || echo closed";

#[tokio::test]
async fn a_container_and_its_commands_run_as_the_user_asked_for() {
    let mut world = World::new().await;
    let mut request = request(&world.runtime, &["sh", "-c", SCRIPT], 0);
    request.run_as = Some(WHO);
    let started = world.runtime.start(request.clone()).await;
    if !is_root() {
        assert!(started.is_err(), "{started:?}");
        assert_eq!(world.runtime.relist().await, []);
        return;
    }
    let started = started.unwrap();
    assert_eq!(world.exit(&started.id).await.exit_code, 0);
    let log = world.log(&started.id);
    let lines: Vec<_> = log.lines().filter_map(|l| l.split(" F ").nth(1)).collect();
    assert_eq!(lines, ["54321", "54322", "54322", "made", "closed"]);

    request.command = ["sleep", "3613"].map(str::to_owned).to_vec();
    request.attempt = 1;
    let started = world.runtime.start(request).await.unwrap();
    let command = ["sh", "-c", "id -u; id -g; touch probed && pwd"].map(str::to_owned);
    let ran = world
        .runtime
        .exec(&started.id, command.to_vec(), super::PATIENCE)
        .await
        .unwrap();
    let rootfs = world.container_dir(&started.id).join("rootfs");
    let expected = format!("54321\n54322\n{}\n", rootfs.display());
    assert_eq!((ran.exit_code, ran.output), (Some(0), expected));
    let grace = Duration::from_secs(5);
    world.runtime.stop(&started.id, grace).await.unwrap();
    assert_eq!(world.processes(), [0; 0]);
}

#[tokio::test]
async fn mounts_are_links_of_the_containers_user() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let mut request = request(&world.runtime, &["sh", "-c", "touch etc/x && ls etc"], 0);
    request.run_as = Some(WHO);
    request.mounts.push(Mount {
        volume: "v".into(),
        path: "/etc/conf".into(),
        source: "/".into(),
    });
    let started = world.runtime.start(request).await.unwrap();
    assert_eq!(world.exit(&started.id).await.exit_code, 0);
    // What a link points to is not given away.
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata("/").unwrap().uid(), 0);
}
