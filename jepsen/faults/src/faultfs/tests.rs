//! What is durable when, and what a power cut leaves: of the tree, and through a
//! mount, where there is FUSE.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::tree::{ROOT, Tree};
use super::{FaultFs, Names, Unsynced};

fn rng() -> StdRng {
    StdRng::seed_from_u64(7)
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

#[test]
fn what_is_not_synced_is_lost() {
    let mut tree = Tree::new(Names::WithAnySync);
    let file = tree.make(ROOT, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, b"old").unwrap();
    tree.sync(file).unwrap();
    tree.write(file, 1, &[b'x'; 9000]).unwrap();
    assert_eq!(tree.read(file, 0, 4).unwrap(), b"oxxx");
    tree.cut_power(Unsynced::Lost, &mut rng());
    let file = tree.look_up(ROOT, name("f")).unwrap();
    assert_eq!(file.size, 3);
    assert_eq!(tree.read(file.number, 0, 100).unwrap(), b"old");
    assert_eq!(tree.counts.lost_pages, 3);
}

#[test]
fn a_file_cut_short_is_whole_again_unless_that_was_synced() {
    let mut tree = Tree::new(Names::WithAnySync);
    let file = tree.make(ROOT, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, &[1; 5000]).unwrap();
    tree.sync(file).unwrap();
    tree.resize(file, 10).unwrap();
    tree.resize(file, 20).unwrap();
    assert_eq!(tree.read(file, 8, 4).unwrap(), [1, 1, 0, 0]);
    tree.cut_power(Unsynced::Lost, &mut rng());
    assert_eq!(tree.read(file, 0, 9000).unwrap(), [1; 5000]);
    tree.resize(file, 10).unwrap();
    tree.sync(file).unwrap();
    tree.cut_power(Unsynced::Lost, &mut rng());
    assert_eq!(tree.read(file, 0, 9000).unwrap(), [1; 10]);
    tree.resize(file, 5000).unwrap();
    assert_eq!(tree.read(file, 4990, 99).unwrap(), [0; 10]);
}

#[test]
fn a_rename_needs_a_sync_of_its_folder_where_that_is_the_rule() {
    for names in [Names::WithAnySync, Names::FoldersOnly] {
        for sync_folder in [false, true] {
            let mut tree = Tree::new(names);
            let file = tree.make(ROOT, name("new"), 0o600, false).unwrap().number;
            tree.write(file, 0, b"1").unwrap();
            tree.sync(file).unwrap();
            tree.sync(ROOT).unwrap();
            tree.rename((ROOT, name("new")), (ROOT, name("there")))
                .unwrap();
            tree.write(file, 0, b"2").unwrap();
            tree.sync(file).unwrap();
            if sync_folder {
                tree.sync(ROOT).unwrap();
            }
            tree.cut_power(Unsynced::Lost, &mut rng());
            let renamed = tree.look_up(ROOT, name("there")).is_ok();
            let expected = sync_folder || names == Names::WithAnySync;
            assert_eq!(renamed, expected, "{names:?} {sync_folder}");
            assert_eq!(tree.look_up(ROOT, name("new")).is_err(), expected);
            assert_eq!(tree.read(file, 0, 9).unwrap(), b"2");
        }
    }
}

#[test]
fn a_removed_file_is_back_unless_its_folder_was_synced() {
    let mut tree = Tree::new(Names::FoldersOnly);
    let folder = tree.make(ROOT, name("d"), 0o700, true).unwrap().number;
    tree.sync(ROOT).unwrap();
    let file = tree.make(folder, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, b"1").unwrap();
    tree.sync(file).unwrap();
    tree.sync(folder).unwrap();
    tree.remove(folder, name("f"), false).unwrap();
    tree.forget(file, 1);
    tree.cut_power(Unsynced::Lost, &mut rng());
    assert_eq!(tree.read(file, 0, 9).unwrap(), b"1");
    tree.remove(folder, name("f"), false).unwrap();
    tree.sync(folder).unwrap();
    assert_eq!(tree.taken_bytes(), 0);
    tree.cut_power(Unsynced::Lost, &mut rng());
    assert!(tree.look_up(folder, name("f")).is_err());
}

#[test]
fn a_sync_that_failed_saves_nothing_even_if_the_next_succeeds() {
    let mut tree = Tree::new(Names::WithAnySync);
    let file = tree.make(ROOT, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, b"a").unwrap();
    tree.sync(file).unwrap();
    tree.write(file, 0, b"b").unwrap();
    tree.ills.sync_errors = 1;
    assert_eq!(tree.sync(file), Err(rustix::io::Errno::IO));
    tree.sync(file).unwrap();
    assert_eq!(tree.read(file, 0, 1).unwrap(), b"b");
    tree.cut_power(Unsynced::Lost, &mut rng());
    assert_eq!(tree.read(file, 0, 1).unwrap(), b"a");
}

#[test]
fn torn_writes_keep_some_sectors() {
    let mut tree = Tree::new(Names::WithAnySync);
    let file = tree.make(ROOT, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, &[1; 1 << 16]).unwrap();
    tree.sync(file).unwrap();
    tree.write(file, 0, &[2; 1 << 16]).unwrap();
    tree.cut_power(Unsynced::Torn, &mut rng());
    let found = tree.read(file, 0, 1 << 16).unwrap();
    assert_eq!(found.len(), 1 << 16);
    let new = found.iter().filter(|b| **b == 2).count();
    assert!((1 << 14..3 << 14).contains(&new), "{new}");
    assert!(found.chunks(512).all(|s| s.iter().all(|b| *b == s[0])));
}

#[test]
fn a_full_disk_takes_no_more_and_keeps_what_it_has() {
    let mut tree = Tree::new(Names::WithAnySync);
    let file = tree.make(ROOT, name("f"), 0o600, false).unwrap().number;
    tree.write(file, 0, &[1; 8192]).unwrap();
    tree.ills.room = Some(8192);
    assert_eq!(tree.write(file, 8192, b"x"), Err(rustix::io::Errno::NOSPC));
    tree.write(file, 0, &[2; 8192]).unwrap();
    tree.ills.room = None;
    tree.write(file, 8192, b"x").unwrap();
    assert_eq!(tree.counts.no_room, 1);
}

/// Mounts one, or says why this machine cannot.
fn mount() -> Option<FaultFs> {
    match FaultFs::mount(Names::FoldersOnly) {
        Ok(fs) => Some(fs),
        Err(why) => {
            std::io::stderr()
                .write_all(format!("cannot run: {why}\n").as_bytes())
                .unwrap();
            None
        }
    }
}

#[test]
fn processes_meet_every_fault_through_the_mount() {
    let Some(mut fs) = mount() else { return };
    let data = fs.data();
    fs::create_dir(&data).unwrap();
    File::open(fs.path()).unwrap().sync_all().unwrap();
    let mut kept = File::create(data.join("kept")).unwrap();
    kept.write_all(b"synced").unwrap();
    kept.sync_all().unwrap();
    File::open(&data).unwrap().sync_all().unwrap();
    kept.write_all(b" and not").unwrap();
    fs::write(data.join("lost"), b"never synced").unwrap();
    fs::rename(data.join("kept"), data.join("renamed")).unwrap();
    assert_eq!(fs::read(data.join("renamed")).unwrap(), b"synced and not");
    drop(kept);
    fs.cut_power(Unsynced::Lost, &mut rng()).unwrap();
    assert_eq!(fs::read(data.join("kept")).unwrap(), b"synced");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    assert!(fs.counts().lost_names >= 2 && fs.counts().lost_pages >= 1);

    let mut file = OpenOptions::new()
        .write(true)
        .open(data.join("kept"))
        .unwrap();
    file.write_all(b"x").unwrap();
    fs.fail_syncs(1);
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    file.sync_all().unwrap();

    fs.fill();
    let full = (0..64).find_map(|i| {
        file.seek(SeekFrom::Start(i << 12)).unwrap();
        file.write_all(&[1; 4096]).err()
    });
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    fs.heal();
    file.write_all(&[1; 4096]).unwrap();

    fs.slow(Duration::from_millis(300));
    let started = Instant::now();
    file.sync_all().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
    drop(file);
    assert_eq!(fs.counts().failed_syncs, 1);
}

#[test]
fn a_folder_of_many_files_can_be_emptied_through_the_mount() {
    let Some(fs) = mount() else { return };
    let data = fs.data();
    fs::create_dir(&data).unwrap();
    for i in 0..2000 {
        fs::write(data.join(format!("{i}")), format!("{i}")).unwrap();
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 2000);
    assert_eq!(fs::read_to_string(data.join("1234")).unwrap(), "1234");
    fs::remove_dir_all(&data).unwrap();
    assert_eq!(fs::read_dir(fs.path()).unwrap().count(), 0);
}
