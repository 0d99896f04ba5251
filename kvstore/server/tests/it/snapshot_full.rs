//! Disks that fill up, or fail, under a snapshot: a clear refusal, nothing half-made.

use std::{fs, io};

use kvserver::snapshot::{self, Save, SnapshotError};
use tokio::time::timeout;

use crate::{
    snapshot::{order, save},
    store::{DEADLINE, Store},
};

/// Bytes of a value: all of them fill several segments of the rows' heap.
const LONG: usize = 100_000;

/// A store that takes several batches to restore.
async fn large() -> Store {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for at in 0..150 {
        kv.put(&format!("k{at}"), &"x".repeat(LONG)).await;
    }
    store
}

#[tokio::test]
async fn a_snapshot_saved_to_a_full_disk_is_not_there() {
    let store = large().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    // Where it arrives until it is whole: a disk without any room.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("s.db.part")).unwrap();
    let order = Save {
        endpoint: store.url(),
        file,
        cacert: None,
        cert: None,
        user: None,
    };
    let refused = snapshot::save(&order, &mut |_, _| ()).await.unwrap_err();
    let SnapshotError::Io { what, path, source } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(
        (*what, source.kind()),
        ("write", io::ErrorKind::StorageFull)
    );
    assert!(path.ends_with("s.db.part"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // The member lost nothing by it, and the next one is whole.
    save(&store.url(), &order.file).await;
    assert!(order.file.exists());
}

#[tokio::test]
async fn a_restore_that_cannot_be_written_ends_and_leaves_nothing() {
    let store = large().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    save(&store.url(), &file).await;
    let data_dir = dir.path().join("data");
    let heap = dir.path().join("data.restoring/db/heap");
    let order = order(&file, &data_dir);
    let restoring = tokio::task::spawn_blocking(move || {
        snapshot::restore(&order, &mut |_, _| {
            // After the first batch there is no place for another segment any more.
            if heap.exists() {
                fs::remove_dir_all(&heap).unwrap();
            }
        })
    });
    let restored = timeout(DEADLINE, restoring).await;
    let refused = restored.expect("it hangs").unwrap().unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("data.restoring"), "{said}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the snapshot and nothing else: {left:?}");
}
