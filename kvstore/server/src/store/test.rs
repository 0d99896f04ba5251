//! Beginnings, and what becomes of data directories of other times.

use std::{fs, path::Path};

use bytes::Bytes;
use disk::install;
use member::LogEntry;
use mvcc::{
    Command, MemberCommand, Proposal, PutRequest, RangeRequest, ReplicaImport, StateMachine,
};

use super::*;

const IDS: Ids = Ids {
    member: 2,
    cluster: 77,
};

fn config(dir: &Path) -> Config {
    let mut config = Config::new(dir);
    config.name = "two".to_owned();
    config.wal_segment_bytes = 64 << 10;
    config
}

fn three() -> Membership {
    let member = |id| MemberInfo {
        id,
        name: format!("m{id}"),
        peer_urls: vec![format!("http://m{id}:2380")],
        ..MemberInfo::default()
    };
    Membership::new(77, (1..=3).map(member))
}

fn open(config: &Config, beginning: Beginning) -> Result<(Store, DataDir), StartError> {
    let dir = DataDir::open(&config.data_dir)?;
    Ok((
        Store::open(config, IDS, &Place::of(&dir, config), beginning)?,
        dir,
    ))
}

fn put(index: u64, term: u64) -> LogEntry {
    let put = PutRequest {
        key: format!("k{index}").into(),
        value: Bytes::from(vec![b'v'; 200]),
        ..PutRequest::default()
    };
    proposal(index, term, Command::Put(put))
}

fn proposal(index: u64, term: u64, command: Command) -> LogEntry {
    let proposal = Proposal {
        id: 900 + index,
        since: Some(index - 1),
        identity: None,
        command,
    };
    LogEntry {
        term,
        index,
        kind: EntryKind::Normal,
        data: proposal.encode(),
    }
}

fn keys(machine: &StateMachine) -> Vec<String> {
    let all = RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..RangeRequest::default()
    };
    let kvs = machine.range(&all).unwrap().kvs;
    kvs.iter()
        .map(|kv| String::from_utf8_lossy(&kv.key).into_owned())
        .collect()
}

fn names(indexes: impl Iterator<Item = u64>) -> Vec<String> {
    let mut names: Vec<_> = indexes.map(|index| format!("k{index}")).collect();
    names.sort();
    names
}

#[test]
fn a_new_store_begins_behind_the_entry_of_its_members() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    for start in 0..2 {
        let (store, _dir) = open(&config, Beginning::New(three())).unwrap();
        assert_eq!(
            store.machine.applied_index(),
            BOOTSTRAP_INDEX,
            "start {start}"
        );
        assert_eq!(store.recovered.base_index, BOOTSTRAP_INDEX);
        assert_eq!(store.recovered.hard_state.commit, BOOTSTRAP_INDEX);
        assert_eq!(store.machine.membership(), &three());
    }
}

#[test]
fn a_beginning_without_its_log_is_made_again_as_the_flags_say_now() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    drop(open(&config, Beginning::New(three())).unwrap());
    // The power went before the log was made.
    fs::remove_dir_all(home.path().join("wal")).unwrap();
    let other = Membership::new(
        78,
        [MemberInfo {
            id: 2,
            ..MemberInfo::default()
        }],
    );
    let (store, _dir) = open(&config, Beginning::New(other.clone())).unwrap();
    assert_eq!(store.machine.membership(), &other);
    assert_eq!(store.recovered.base_index, BOOTSTRAP_INDEX);
}

#[test]
fn one_that_joins_begins_with_nothing() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    for _ in 0..2 {
        let (store, _dir) = open(&config, Beginning::Joining).unwrap();
        assert!(store.machine.membership().is_empty());
        assert_eq!(
            (store.machine.applied_index(), store.recovered.last_index()),
            (0, 0)
        );
    }
}

/// A format 1 directory as the versions before this one left it: rows up to an entry,
/// a log from the first entry on, and nothing that names a member.
#[test]
fn a_store_that_knew_no_members_is_taken_over_with_all_it_had() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    fs::write(home.path().join("VERSION"), "keelson-store 1\n").unwrap();
    let rows = Rows::open(&home.path().join("db")).unwrap();
    let mut machine = open_machine(&config, &rows).unwrap();
    let entries: Vec<_> = (1..=30).map(|index| put(index, 3)).collect();
    for entry in &entries[..20] {
        let proposal = Proposal::decode(entry.data.clone()).unwrap();
        machine.apply(entry.index, entry.term, proposal).unwrap();
    }
    write_everything_back(&mut machine, &rows).unwrap();
    drop((machine, rows));
    let options = Options {
        identity: Identity {
            cluster_id: IDS.cluster,
            member_id: IDS.member,
        },
        segment_bytes: config.wal_segment_bytes,
    };
    fs::create_dir(home.path().join("wal")).unwrap();
    let (mut wal, _) = Wal::open(Arc::new(RealDisk), &home.path().join("wal"), options).unwrap();
    let state = HardState {
        term: 3,
        vote: 2,
        commit: 25,
    };
    wal.append(Some(&state), &entries).unwrap();
    wal.flush(true).unwrap();
    drop(wal);

    for _ in 0..2 {
        let (store, _dir) = open(&config, Beginning::New(three())).unwrap();
        assert_eq!(store.machine.applied_index(), 30);
        assert_eq!(keys(&store.machine), names(1..=30));
        let members = store.machine.membership();
        assert_eq!(members.cluster_id(), 77);
        assert_eq!(members.conf_state().voters, [2], "the flags are not asked");
        assert_eq!(members.get(2).unwrap().name, "two");
        assert_eq!(
            (store.recovered.base_index, store.recovered.base_term),
            (30, 3)
        );
        assert_eq!(store.recovered.hard_state.vote, 2);
    }
}

#[test]
fn rows_that_are_lost_are_not_taken_for_an_older_store() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    let (mut store, dir) = open(&config, Beginning::New(three())).unwrap();
    store.wal.append(None, &[put(2, 4)]).unwrap();
    store.wal.flush(true).unwrap();
    let rows = dir.rows();
    drop((store, dir));
    fs::remove_dir_all(&rows).unwrap();
    let error = open(&config, Beginning::New(three())).err().unwrap();
    let named = format!("the rows in {} are the state after entry 0", rows.display());
    assert!(error.to_string().contains(&named), "{error}");
}

#[test]
fn a_member_forced_to_stand_alone_keeps_what_was_committed() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path());
    let (mut store, dir) = open(&config, Beginning::New(three())).unwrap();
    let mut entries: Vec<_> = (2..=40).map(|index| put(index, 4)).collect();
    // Within what was committed, the third member was replaced by a fourth.
    for (index, change) in [
        (10, member::Change::Remove(3)),
        (11, member::Change::AddLearner(4)),
    ] {
        let command = match change {
            member::Change::Remove(id) => MemberCommand::Remove(id),
            _ => MemberCommand::Add(MemberInfo {
                id: 4,
                learner: true,
                ..MemberInfo::default()
            }),
        };
        let context = proposal(index, 4, Command::Member(command)).data;
        let mut data = Vec::new();
        member::encode_change(change, &context, &mut data);
        let entry = &mut entries[index as usize - 2];
        entry.kind = EntryKind::ConfChangeV2;
        entry.data = data.into();
    }
    let state = HardState {
        term: 5,
        vote: 1,
        commit: 30,
    };
    store.wal.append(Some(&state), &entries).unwrap();
    store.wal.flush(true).unwrap();
    drop((store, dir));

    config.force_new_cluster = true;
    for start in 0..2 {
        let (store, _dir) = open(&config, Beginning::New(three())).unwrap();
        let members = store.machine.membership();
        assert_eq!(members.cluster_id(), 77);
        assert_eq!(
            members.conf_state(),
            &mvcc::ConfState {
                voters: vec![2],
                ..Default::default()
            }
        );
        assert_eq!(members.members().map(|m| m.id).collect::<Vec<_>>(), [2]);
        assert_eq!(members.removed().collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(
            keys(&store.machine),
            names((2..=30).filter(|n| !(10..=11).contains(n)))
        );
        assert_eq!(store.machine.applied_index(), 30);
        assert_eq!(store.recovered.last_index(), 30, "start {start}");
        assert_eq!(
            store.recovered.hard_state,
            HardState {
                commit: 30,
                ..state
            }
        );
    }
}

#[test]
fn a_lone_member_forced_to_be_one_keeps_what_it_wrote() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path());
    let alone = Membership::new(
        77,
        vec![MemberInfo {
            id: 2,
            ..MemberInfo::default()
        }],
    );
    let (mut store, dir) = open(&config, Beginning::New(alone.clone())).unwrap();
    let entries: Vec<_> = (2..=40).map(|index| put(index, 4)).collect();
    // Its clients heard of all of them, the log not yet of the last ten.
    let state = HardState {
        term: 5,
        vote: 2,
        commit: 30,
    };
    store.wal.append(Some(&state), &entries).unwrap();
    store.wal.flush(true).unwrap();
    drop((store, dir));

    config.force_new_cluster = true;
    let (store, _dir) = open(&config, Beginning::New(alone)).unwrap();
    assert_eq!(keys(&store.machine), names(2..=40));
    assert_eq!(store.recovered.hard_state.commit, 40);
}

#[test]
fn a_cluster_cannot_be_forced_out_of_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path());
    drop(open(&config, Beginning::Joining).unwrap());
    config.force_new_cluster = true;
    let error = open(&config, Beginning::Joining).err().unwrap();
    assert!(error.to_string().contains("force-new-cluster"), "{error}");
}

/// The whole way of a snapshot into the data directory of a member that fell behind.
#[test]
fn rows_that_a_snapshot_brought_take_over() {
    let sender = tempfile::tempdir().unwrap();
    let (mut ahead, _dir) = open(&config(sender.path()), Beginning::New(three())).unwrap();
    for index in 2..=500 {
        let proposal = Proposal::decode(put(index, 6).data).unwrap();
        ahead.machine.apply(index, 6, proposal).unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path());
    let (mut store, dir) = open(&config, Beginning::Joining).unwrap();
    let first = dir.rows();

    let replica = ahead.machine.replica(std::time::Duration::ZERO);
    let path = dir.home().fresh().unwrap();
    let rows = Rows::open(&path).unwrap();
    let mut import = ReplicaImport::new(config.write_behind.block_bytes);
    for frame in replica.frames() {
        if let Some(batch) = import.push(&frame.unwrap()).unwrap() {
            rows.write(&batch).unwrap();
        }
    }
    let head = import.head().unwrap().clone();
    rows.write(&import.finish().unwrap()).unwrap();
    rows.flush().unwrap();
    let machine = open_machine(&config, &rows).unwrap();
    let base = Base {
        index: head.applied_index,
        term: head.applied_term,
    };
    let state = HardState {
        term: 6,
        vote: 0,
        commit: base.index,
    };
    install(&dir.home(), &mut store.wal, &path, base, Some(&state)).unwrap();
    assert_eq!(machine.hash_kv(0), ahead.machine.hash_kv(0));
    drop((machine, rows, store, dir));

    let (store, dir) = open(&config, Beginning::Joining).unwrap();
    assert_eq!(dir.rows(), path);
    assert!(!first.exists(), "nobody needs the old rows");
    assert_eq!(store.machine.applied_index(), 500);
    assert_eq!(store.machine.hash_kv(0), ahead.machine.hash_kv(0));
    assert_eq!(store.machine.membership(), &three());
    assert_eq!(
        (store.recovered.base_index, store.recovered.base_term),
        (500, 6)
    );
}
