//! What was acknowledged is there after any end.

use proto::etcdserverpb as pb;

use crate::store::{Store, delete, range};

async fn everything(store: &Store) -> (i64, Vec<(String, usize, i64, i64, i64)>) {
    let reply = store.kv().await.range(range("\0", "\0")).await.unwrap();
    let rows = reply.kvs.into_iter().map(|kv| {
        let key = String::from_utf8(kv.key.to_vec()).unwrap();
        (
            key,
            kv.value.len(),
            kv.create_revision,
            kv.mod_revision,
            kv.version,
        )
    });
    (reply.header.unwrap().revision, rows.collect())
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_the_power() {
    let mut store = Store::start().await;
    let mut term = 0;
    for round in 0..4 {
        let mut kv = store.kv().await;
        for key in 0..50 {
            kv.put(&format!("k{key}"), &"v".repeat(round * 100 + key))
                .await;
        }
        kv.0.delete_range(delete(&format!("k{round}"), ""))
            .await
            .unwrap();
        let before = everything(&store).await;
        store.lose_power().await;
        assert_eq!(everything(&store).await, before);
        let status = store.running().handle.status().unwrap();
        assert!(status.raft_term > term, "each start is a new term");
        term = status.raft_term;
    }
}

#[tokio::test]
async fn rows_take_over_from_the_log() {
    const KEYS: usize = 3_000;
    let mut store = Store::start().await;
    let handle = store.running().handle.clone();
    // Enough for several write-backs and many segments of the log.
    for start in (0..KEYS).step_by(100) {
        let puts = (start..start + 100).map(|key| {
            let request = mvcc::PutRequest {
                key: format!("key-{key:05}").into(),
                value: vec![b'v'; 3_000].into(),
                ..mvcc::PutRequest::default()
            };
            let handle = handle.clone();
            async move { handle.put(request).await }
        });
        for put in futures::future::join_all(puts).await {
            put.unwrap();
        }
    }
    let deadline = tokio::time::Instant::now() + crate::store::DEADLINE;
    while store.wal_files()[0]
        .to_string_lossy()
        .contains("0000000000000001-")
    {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the log is never released"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    drop(handle);
    let before = everything(&store).await;
    assert_eq!(before.1.len(), KEYS);
    store.lose_power().await;
    assert_eq!(everything(&store).await, before);
    let old = pb::RangeRequest {
        revision: 1_000,
        count_only: true,
        ..range("\0", "\0")
    };
    assert_eq!(
        store.kv().await.range(old).await.unwrap().count,
        999,
        "history is there too"
    );
    store.restart().await;
    assert_eq!(everything(&store).await, before);
    store.kv().await.compact(2_000).await.unwrap();
    store.lose_power().await;
    assert_eq!(everything(&store).await, before);
    let old = pb::RangeRequest {
        revision: 1_999,
        ..range("\0", "\0")
    };
    assert!(
        store.kv().await.range(old).await.is_err(),
        "compacted stays compacted"
    );
}

#[tokio::test]
async fn an_orderly_end_leaves_nothing_to_replay() {
    let mut store = Store::start().await;
    let mut kv = store.kv().await;
    for key in 0..20 {
        kv.put(&format!("k{key}"), "x").await;
    }
    let before = everything(&store).await;
    store.restart().await;
    assert_eq!(everything(&store).await, before);
}

#[tokio::test]
async fn a_torn_last_record_is_dropped_and_the_rest_is_there() {
    let mut store = Store::start().await;
    store.kv().await.put("kept", "x").await;
    // The last record is then one that need not be there.
    store.commit_is_written().await;
    drop(store.running.take());
    let file = store.wal_files().pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.truncate(used - 5);
    std::fs::write(&file, bytes).unwrap();
    store.running = Some(kvserver::Server::start(store.config.clone()).await.unwrap());
    assert_eq!(store.kv().await.get("kept").await.unwrap(), "x");
    let dir = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let copies = dir.filter(|file| {
        file.as_ref()
            .unwrap()
            .path()
            .to_string_lossy()
            .contains("torn")
    });
    assert_eq!(copies.count(), 1, "what was dropped is kept aside");
}

#[tokio::test]
async fn a_flipped_byte_is_refused_with_file_and_offset() {
    let mut store = Store::start().await;
    let mut kv = store.kv().await;
    for _ in 0..5 {
        kv.put("a", "0123456789abcdef").await;
    }
    drop(store.running.take());
    let file = store.wal_files().pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let place = bytes
        .windows(16)
        .position(|window| window == b"0123456789abcdef")
        .unwrap();
    bytes[place] ^= 0x10;
    std::fs::write(&file, bytes).unwrap();
    let error = kvserver::Server::start(store.config.clone())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(file.to_str().unwrap()) && error.contains("byte "),
        "{error}"
    );
}
