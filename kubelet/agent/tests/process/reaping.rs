//! Every shim that ends is reaped, however its end is noticed.

use std::fs;
use std::time::Duration;

use super::{World, eventually, open, request};

/// Finds those that are children of this process, alive or zombies.
fn children(pids: &[i64]) -> Vec<i64> {
    let own = std::process::id().to_string();
    let is_child = |pid: &&i64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str())
    };
    pids.iter().filter(is_child).copied().collect()
}

/// Containers that end at once: their end is known before their shims end, by
/// the start itself, by a relist, or by the shim's pidfd.
#[tokio::test]
async fn no_shim_of_a_quick_container_stays_a_zombie() {
    let world = World::new().await;
    let starts = (0..40).map(|n| {
        let runtime = world.runtime.clone();
        let command: &[&str] = match n % 3 {
            0 => &["true"],
            1 => &["no-such-command-here"],
            _ => &["sleep", "0.05"],
        };
        let request = request(&runtime, command, n);
        async move {
            let started = agent::runtime::Runtime::start(&runtime, request).await;
            agent::runtime::Runtime::relist(&runtime).await;
            started.unwrap().id
        }
    });
    let ids = futures::future::join_all(starts).await;
    let shims: Vec<i64> = ids.iter().map(|id| world.pid(id, "shim.json")).collect();
    eventually("every shim has ended and is reaped", || {
        children(&shims).is_empty()
    })
    .await;
}

/// A second runtime adopts the shims of the first, which are still children of
/// this process: both watch them, one reaps them.
#[tokio::test]
async fn an_adopted_child_is_reaped_too() {
    let mut world = World::new().await;
    let started = world.start(&["sleep", "3612"]).await;
    let shim = world.pid(&started.id, "shim.json");
    let (second, _events) = open(world.dir.path()).await;
    agent::runtime::Runtime::stop(&second, &started.id, Duration::from_secs(5))
        .await
        .unwrap();
    eventually("it is reaped", || children(&[shim]).is_empty()).await;
}
