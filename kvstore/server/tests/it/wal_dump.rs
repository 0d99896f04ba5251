//! The log told to people: of a member that runs, that stopped, that is damaged.

use kvserver::wal_dump::{DumpError, dump};
use serde_json::Value;

use crate::store::Store;

fn lines(store: &Store) -> (Vec<Value>, Result<(), DumpError>) {
    let mut out = Vec::new();
    let dumped = dump(&store.config.data_dir, None, &mut out);
    let text = String::from_utf8(out).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), dumped)
}

#[tokio::test]
async fn the_log_is_told_line_by_line_and_left_as_it_is() {
    let store = Store::start().await;
    for n in 0..5 {
        store
            .kv()
            .await
            .put(&format!("key{n}"), &"v".repeat(200))
            .await;
    }
    // It runs, and is not disturbed.
    let (told, dumped) = lines(&store);
    dumped.unwrap();
    assert_eq!(told[0]["record"], "segment");
    let ids = store.running().handle.ids();
    assert_eq!(told[0]["member"], format!("{:x}", ids.0));
    let begins = told.iter().find(|line| line["record"] == "base").unwrap();
    assert_eq!(begins["index"], mvcc::BOOTSTRAP_INDEX);
    let puts: Vec<_> = told
        .iter()
        .filter(|line| line["command"] == "put")
        .collect();
    assert_eq!(puts.len(), 5);
    assert_eq!(puts[4]["put"]["key"], "key4");
    let value = puts[4]["put"]["value"].as_str().unwrap();
    assert!(value.ends_with("and 136 bytes more"), "{value}");
    assert!(puts[4]["since"].as_u64().unwrap() < puts[4]["index"].as_u64().unwrap());
    store.kv().await.put("after", "1").await;
}

#[tokio::test]
async fn a_damaged_log_is_told_around_the_damage_which_is_named() {
    let mut store = Store::start().await;
    for n in 0..5 {
        store.kv().await.put(&format!("key{n}"), "value").await;
    }
    store.running.take().unwrap().shutdown().await;
    let (whole, dumped) = lines(&store);
    dumped.unwrap();
    let third = whole
        .iter()
        .filter(|line| line["command"] == "put")
        .nth(2)
        .unwrap();
    let at = third["offset"].as_u64().unwrap();
    let file = store
        .config
        .data_dir
        .join("wal")
        .join(third["file"].as_str().unwrap());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[at as usize + 40] ^= 4;
    std::fs::write(&file, &bytes).unwrap();

    let (told, dumped) = lines(&store);
    let Err(DumpError::Damaged {
        file: named,
        offset,
        ..
    }) = dumped
    else {
        panic!("{dumped:?}")
    };
    assert_eq!((named, offset), (file.clone(), at));
    assert_eq!(
        told.iter().filter(|line| line["command"] == "put").count(),
        2
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "nothing was mended");
}

#[tokio::test]
async fn a_lone_member_that_is_forced_to_be_one_keeps_everything() {
    let mut store = Store::start().await;
    store.kv().await.put("a", "1").await;
    let ids = store.running().handle.ids();
    store.config.force_new_cluster = true;
    store.restart().await;
    assert_eq!(store.running().handle.ids(), ids);
    assert_eq!(store.kv().await.get("a").await.unwrap(), "1");
    store.kv().await.put("a", "2").await;
    store.lose_power().await;
    assert_eq!(store.kv().await.get("a").await.unwrap(), "2");
}
