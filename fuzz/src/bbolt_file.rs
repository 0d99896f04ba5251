//! The reader of bbolt files, which an operator may give any file to.
//!
//! Promised (`bbolt`): an error that names the page; never a panic, a loop
//! without end, or an allocation the file has no bytes for.

use std::io::Cursor;

use bbolt::{Db, Writer};

use super::draw::Draw;

/// Writes a file, damages it, and reads all there is; or reads the input itself.
pub fn bbolt_file(input: &[u8]) {
    let mut draw = Draw::new(input);
    if draw.byte().is_multiple_of(4) {
        read(draw.rest().to_vec());
        return;
    }
    let mut writer = Writer::new(Cursor::new(Vec::new())).expect("memory takes all");
    let mut written = Vec::new();
    for bucket in 0..draw.below(4) {
        let name = format!("bucket{bucket}");
        writer.bucket(name.as_bytes()).expect("names ascend");
        let mut pairs = Vec::new();
        for key in 0..draw.below(200) {
            let key = format!("{key:06}");
            let most = match draw.byte() {
                0..250 => 100,
                _ => 20_000,
            };
            let value = vec![b'v'; draw.below(most)];
            writer.put(key.as_bytes(), &value).expect("keys ascend");
            pairs.push((key.into_bytes(), value));
        }
        written.push((name.into_bytes(), pairs));
    }
    let (file, _) = writer.finish().expect("memory takes all");
    let mut bytes = file.into_inner();
    let damages = draw.below(4);
    for _ in 0..damages {
        draw.damage(&mut bytes);
    }
    let got = read(bytes);
    if damages == 0 {
        assert_eq!(got.as_ref(), Some(&written));
    }
}

/// A bucket's name and its pairs.
type Bucket = (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);

fn read(bytes: Vec<u8>) -> Option<Vec<Bucket>> {
    let len = bytes.len();
    let db = Db::open(bytes).ok()?;
    let checked = db.check();
    let mut all = Vec::new();
    let mut whole = true;
    for name in db.buckets().ok()? {
        let mut pairs = Vec::new();
        let mut entries = match db.bucket(&name) {
            Ok(Some(entries)) => entries,
            Ok(None) => panic!("a bucket that was listed is not there"),
            Err(_) => {
                whole = false;
                continue;
            }
        };
        loop {
            match entries.next_entry() {
                Ok(Some(entry)) => pairs.push((entry.key.to_vec(), entry.value.to_vec())),
                Ok(None) => break,
                Err(_) => {
                    whole = false;
                    break;
                }
            }
            // A pair takes sixteen bytes before its key: more of them are a loop.
            assert!(
                pairs.len() <= len / 16,
                "more pairs than the file has room for"
            );
        }
        all.push((name, pairs));
    }
    assert!(
        whole || checked.is_err(),
        "checked, and then not to be read"
    );
    whole.then_some(all)
}
