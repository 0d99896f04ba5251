//! What is written is read back, holds together, and stays harmless when damaged.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::io::Cursor;

use bbolt::{Db, MetaProblem, PAGE_SIZE, Problem, ReadError, WriteError, Writer};
use proptest::prelude::*;

type Bucket = BTreeMap<Vec<u8>, Vec<u8>>;
type Buckets = BTreeMap<Vec<u8>, Bucket>;

fn write(buckets: &Buckets) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
    for (name, pairs) in buckets {
        writer.bucket(name).unwrap();
        for (key, value) in pairs {
            writer.put(key, value).unwrap();
        }
    }
    let (out, size) = writer.finish().unwrap();
    let bytes = out.into_inner();
    assert_eq!(bytes.len() as u64, size);
    bytes
}

fn read(bytes: &[u8]) -> Result<Buckets, ReadError> {
    let db = Db::open(bytes)?;
    let mut buckets = Buckets::new();
    for name in db.buckets()? {
        let mut pairs = Bucket::new();
        let mut entries = db.bucket(&name)?.unwrap();
        while let Some(entry) = entries.next_entry()? {
            pairs.insert(entry.key.to_vec(), entry.value.to_vec());
        }
        buckets.insert(name, pairs);
    }
    Ok(buckets)
}

fn pairs(count: u32, value: usize) -> Bucket {
    (0..count)
        .map(|n| {
            let key = u64::from(n).to_be_bytes().to_vec();
            (key, vec![n as u8; value])
        })
        .collect()
}

fn sample() -> Buckets {
    Buckets::from([
        (b"empty".to_vec(), Bucket::new()),
        (b"large".to_vec(), pairs(3, 3 * PAGE_SIZE)),
        (b"many".to_vec(), pairs(20_000, 10)),
        (b"small".to_vec(), pairs(5, 5)),
    ])
}

#[test]
fn trees_of_every_height() {
    for count in [0, 1, 2, 3, 50, 100, 200, 10_000, 40_000] {
        for value in [0, 20, PAGE_SIZE] {
            if count * value > 20 << 20 {
                continue;
            }
            let buckets = Buckets::from([(b"b".to_vec(), pairs(count as u32, value))]);
            let bytes = write(&buckets);
            Db::open(bytes.as_slice()).unwrap().check().unwrap();
            assert_eq!(read(&bytes).unwrap(), buckets, "{count} of {value}");
        }
    }
}

#[test]
fn long_keys_make_long_branches() {
    let long = |n: u8| {
        let mut key = vec![7; 30_000];
        key.push(n);
        key
    };
    let buckets = Buckets::from([(
        b"b".to_vec(),
        (0..60).map(|n| (long(n), vec![n])).collect::<Bucket>(),
    )]);
    let bytes = write(&buckets);
    Db::open(bytes.as_slice()).unwrap().check().unwrap();
    assert_eq!(read(&bytes).unwrap(), buckets);
}

#[test]
fn a_file_is_nearly_as_small_as_its_data() {
    let bytes = write(&Buckets::from([(b"b".to_vec(), pairs(50_000, 100))]));
    let data = 50_000 * (16 + 8 + 100);
    assert!(bytes.len() < data * 5 / 4, "{} for {data}", bytes.len());
}

#[test]
fn disorder_is_refused_when_writing() {
    let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
    assert!(matches!(writer.put(b"k", b""), Err(WriteError::NoBucket)));
    writer.bucket(b"b").unwrap();
    writer.put(b"k", b"").unwrap();
    assert!(matches!(
        writer.put(b"k", b""),
        Err(WriteError::Order("key"))
    ));
    assert!(matches!(writer.put(b"", b""), Err(WriteError::KeySize(0))));
    assert!(matches!(
        writer.bucket(b"b"),
        Err(WriteError::Order("bucket"))
    ));
}

#[test]
fn what_is_wrong_is_named() {
    let good = write(&sample());
    let refuse = |bytes: &[u8]| read(bytes).unwrap_err();
    assert!(matches!(
        refuse(b"short"),
        ReadError::NotBbolt(MetaProblem::Short)
    ));
    assert!(matches!(
        refuse(&[0; 9000]),
        ReadError::NotBbolt(MetaProblem::Magic(0))
    ));
    assert!(matches!(
        refuse(&good[..good.len() - 1]),
        ReadError::NotBbolt(MetaProblem::Truncated { .. })
    ));
    // A page that says it is another.
    let mut bad = good.clone();
    bad[3 * PAGE_SIZE] ^= 1;
    let error = refuse(&bad);
    assert!(
        matches!(
            error,
            ReadError::Corrupt {
                page: 3,
                offset: 12288,
                problem: Problem::Id(2)
            }
        ),
        "{error}"
    );
}

#[test]
fn one_broken_meta_page_is_survived() {
    let good = write(&sample());
    for page in [0, PAGE_SIZE] {
        let mut bad = good.clone();
        bad[page + 20] ^= 0xff;
        assert_eq!(read(&bad).unwrap(), sample());
    }
}

#[test]
fn a_shared_page_and_a_loop_end() {
    let good = write(&sample());
    let branches: Vec<usize> = (3..good.len() / PAGE_SIZE)
        .filter(|page| good[page * PAGE_SIZE + 8] == 1 && good[page * PAGE_SIZE] == *page as u8)
        .collect();
    assert!(!branches.is_empty());
    for page in branches {
        let mut bad = good.clone();
        // Its first child becomes itself.
        let child = page * PAGE_SIZE + 16 + 8;
        bad[child..child + 8].copy_from_slice(&(page as u64).to_le_bytes());
        read(&bad).unwrap_err();
        Db::open(bad.as_slice()).unwrap().check().unwrap_err();
        // Its second child becomes its first.
        let mut bad = good.clone();
        bad.copy_within(child..child + 8, child + 16);
        read(&bad).unwrap_err();
        Db::open(bad.as_slice()).unwrap().check().unwrap_err();
    }
}

/// Gives the same numbers each time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn damage_gives_an_error_or_data_never_a_panic() {
    let buckets = Buckets::from([
        (b"empty".to_vec(), Bucket::new()),
        (b"large".to_vec(), pairs(2, 2 * PAGE_SIZE)),
        (b"many".to_vec(), pairs(2_000, 10)),
        (b"small".to_vec(), pairs(5, 5)),
    ]);
    let good = write(&buckets);
    let mut refused = 0;
    let mut numbers = Numbers(0x5eed);
    for _ in 0..4_000 {
        let mut bad = good.clone();
        for _ in 0..1 + numbers.below(3) {
            // Heads and tables of pages are where numbers are trusted.
            let page = numbers.below(bad.len() / PAGE_SIZE) * PAGE_SIZE;
            let within = [64, PAGE_SIZE][numbers.below(2)];
            let at = page + numbers.below(within);
            bad[at] = match numbers.below(3) {
                0 => bad[at] ^ (1 << numbers.below(8)),
                1 => 0xff,
                _ => numbers.below(256) as u8,
            };
        }
        if numbers.below(10) == 0 {
            bad.truncate(numbers.below(bad.len()));
        }
        refused += usize::from(read(&bad).is_err());
        if let Ok(db) = Db::open(bad.as_slice()) {
            let _sound = db.check();
        }
    }
    assert!(refused > 1_000, "only {refused} were refused");
}

fn bucket() -> impl Strategy<Value = Bucket> {
    let key = prop::collection::vec(any::<u8>(), 1..40);
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (0usize..3 * PAGE_SIZE).prop_map(|len| vec![9; len]),
    ];
    prop::collection::btree_map(key, value, 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_written_is_read(
        buckets in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..9), bucket(), 0..6)
    ) {
        let bytes = write(&buckets);
        Db::open(bytes.as_slice()).unwrap().check().unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), buckets);
    }

    #[test]
    fn a_page_of_any_bytes_is_refused_or_read(
        page in 0usize..40,
        from in 0usize..PAGE_SIZE,
        bytes in prop::collection::vec(any::<u8>(), 1..PAGE_SIZE),
    ) {
        let mut bad = write(&Buckets::from([(b"b".to_vec(), pairs(3_000, 10))]));
        let start = page % (bad.len() / PAGE_SIZE) * PAGE_SIZE + from;
        let end = bad.len().min(start + bytes.len());
        bad[start..end].copy_from_slice(&bytes[..end - start]);
        let _ = read(&bad);
        if let Ok(db) = Db::open(bad.as_slice()) {
            let _ = db.check();
        }
    }
}
