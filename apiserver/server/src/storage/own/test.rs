//! What is announced, written and reported, in every order.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::storage::memory::MemoryStore;
use crate::storage::request::{Preconditions, ReadVersion};
use crate::storage::resource::{Read, Reader, ResourceConfig, ResourceStore};
use crate::storage::store::Store;
use crate::storage::testing::faulty::FaultyStore;
use crate::storage::testing::{start, thing, unique, within};

/// The orders of what can happen, one run for each.
#[derive(Default)]
struct Orders {
    /// Which of how many was taken, at each turn.
    taken: Vec<(usize, usize)>,
    turn: usize,
}

impl Orders {
    fn take(&mut self, of: usize) -> usize {
        if self.turn == self.taken.len() {
            self.taken.push((0, of));
        }
        self.turn += 1;
        self.taken[self.turn - 1].0
    }

    /// Goes to the next order; tells whether there is one.
    fn next(&mut self) -> bool {
        self.turn = 0;
        while let Some((taken, of)) = self.taken.pop() {
            if taken + 1 < of {
                self.taken.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Waits for the answer.
    Waits,
    /// Is dropped, perhaps before the store was asked.
    Dropped,
    /// Is served in another form than it is written in.
    Renewed,
    /// Is another process, which swaps nothing.
    Foreign,
}

/// A writer: its key, what it writes, and how.
type Plan = (&'static str, &'static str, How);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Announce(usize),
    Ask(usize),
    Hear(usize),
    Report,
    Publish,
}

/// The part of a writer in a run.
#[derive(Default)]
struct Writer<'o> {
    announcement: Option<Announcement<'o>>,
    /// What was read before: the revision that is swapped.
    expected: u64,
    announced: bool,
    asked: bool,
    heard: bool,
    /// The revision that was written, if one was.
    written: Option<u64>,
}

struct World<'o> {
    own: &'o Own,
    plans: &'o [Plan],
    /// What each of them writes, as it is decoded.
    decoded: &'o [Object],
    writers: Vec<Writer<'o>>,
    revision: u64,
    /// Who wrote at which revision.
    log: Vec<(usize, u64)>,
    reported: usize,
    published: usize,
    /// What the feed or a writer was given of a revision.
    given: BTreeMap<u64, Arc<Object>>,
}

fn body(what: &str) -> Value {
    json!({"metadata": {"labels": {"of": what}, "name": "x"}, "spec": what})
}

fn fields(what: &str) -> Vec<(&'static str, String)> {
    vec![("spec", what.to_owned())]
}

impl<'o> World<'o> {
    fn new(own: &'o Own, plans: &'o [Plan], decoded: &'o [Object]) -> Self {
        Self {
            own,
            plans,
            decoded,
            writers: plans.iter().map(|_| Writer::default()).collect(),
            revision: 1,
            log: Vec::new(),
            reported: 0,
            published: 0,
            given: BTreeMap::new(),
        }
    }

    fn possible(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (n, (writer, (_, _, how))) in self.writers.iter().zip(self.plans).enumerate() {
            let foreign = *how == How::Foreign;
            if !writer.announced && !foreign {
                steps.push(Step::Announce(n));
            }
            if !writer.asked && (writer.announced || foreign) {
                steps.push(Step::Ask(n));
            }
            let may_hear = writer.asked || writer.announced && *how == How::Dropped;
            if !writer.heard && may_hear && !foreign {
                steps.push(Step::Hear(n));
            }
        }
        if self.reported < self.log.len() {
            steps.push(Step::Report);
        }
        if self.published < self.reported {
            steps.push(Step::Publish);
        }
        steps
    }

    fn newest(&self, key: &str) -> u64 {
        let of_key = |(n, _): &&(usize, u64)| self.plans[*n].0 == key;
        self.log.iter().rfind(of_key).map_or(0, |(_, r)| *r)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Announce(n) => {
                let (key, what, how) = self.plans[n];
                let encoded = Encoded::of(&body(what), 0).unwrap();
                let as_written = how != How::Renewed;
                let announcement = self.own.announce(key, encoded, fields(what), as_written);
                let expected = self.newest(key);
                let writer = &mut self.writers[n];
                writer.announcement = Some(announcement);
                (writer.expected, writer.announced) = (expected, true);
            }
            Step::Ask(n) => {
                let (key, _, how) = self.plans[n];
                self.writers[n].asked = true;
                if how == How::Foreign || self.newest(key) == self.writers[n].expected {
                    self.revision += 1;
                    self.writers[n].written = Some(self.revision);
                    self.log.push((n, self.revision));
                }
            }
            Step::Hear(n) => {
                let writer = &mut self.writers[n];
                writer.heard = true;
                let announcement = writer.announcement.take().unwrap();
                let written = writer.written.filter(|_| self.plans[n].2 != How::Dropped);
                if let Some(revision) = written {
                    self.given(n, revision, announcement.written(revision));
                }
            }
            Step::Report => self.report(),
            Step::Publish => {
                self.published = self.reported;
                self.own.reached(self.log[self.reported - 1].1);
            }
        }
        self.check_newest();
    }

    fn report(&mut self) {
        let (n, revision) = self.log[self.reported];
        self.reported += 1;
        let (key, what, how) = self.plans[n];
        let bytes = self.decoded[n].body();
        let recalled = self.own.recall(key, bytes, revision);
        let tells = |(writer, plan): (&Writer<'_>, &Plan)| {
            plan.2 != How::Renewed
                && (plan.0, plan.1) == (key, what)
                && writer.announcement.is_some()
        };
        let known = how == How::Waits || self.writers.iter().zip(self.plans).any(tells);
        assert_eq!(recalled.is_some(), known);
        if let Some(object) = recalled {
            self.given(n, revision, object);
        }
        // Nor for anything else.
        assert!(self.own.recall("elsewhere", bytes, revision).is_none());
        assert!(
            self.own
                .recall(key, &Bytes::from_static(b"{}"), revision)
                .is_none()
        );
    }

    /// What is given out is what would be decoded, and one for all.
    fn given(&mut self, n: usize, revision: u64, object: Arc<Object>) {
        let (key, what, how) = self.plans[n];
        let mut decoded = self.decoded[n].clone();
        decoded.resource_version = ResourceVersion(revision);
        assert_eq!(object.resource_version, decoded.resource_version);
        assert_eq!(
            (&object.meta, &object.fields),
            (&decoded.meta, &decoded.fields)
        );
        assert_eq!(object.to_json(), decoded.to_json());
        let same = |plan: &&Plan| (plan.0, plan.1) == (key, what);
        let alone = self.plans.iter().filter(same).count() == 1 && how == How::Waits;
        let before = self.given.insert(revision, object.clone());
        if let Some(before) = before.filter(|_| alone) {
            assert!(Arc::ptr_eq(&before, &object), "made twice");
        }
    }

    /// The newest state is what was answered and has not come back.
    fn check_newest(&self) {
        let reached = match self.published {
            0 => 0,
            n => self.log[n - 1].1,
        };
        for key in ["a", "b"] {
            let answered = |(n, revision): &&(usize, u64)| {
                let (of, _, how) = self.plans[*n];
                of == key && how == How::Waits && self.writers[*n].heard && *revision > reached
            };
            let want = self.log.iter().rfind(answered).map(|(_, r)| *r);
            let newest = self.own.newest(key).map(|o| o.resource_version.0);
            assert_eq!(newest, want);
        }
    }
}

#[test]
fn whoever_learns_a_revision_first_makes_the_object() {
    use How::{Dropped, Foreign, Renewed, Waits};
    let worlds: [&[Plan]; 8] = [
        &[("a", "1", Waits)],
        // One of them meets a conflict, or comes after the other.
        &[("a", "1", Waits), ("a", "2", Waits)],
        &[("a", "1", Waits), ("a", "1", Waits)],
        &[("a", "1", Waits), ("b", "1", Waits)],
        &[("a", "1", Dropped), ("a", "1", Waits)],
        &[("a", "1", Renewed), ("a", "2", Waits)],
        // There and back again.
        &[("a", "1", Waits), ("a", "2", Foreign), ("a", "1", Foreign)],
        &[("a", "1", Waits), ("a", "2", Foreign), ("a", "1", Waits)],
    ];
    let decode = |(_, what, _): &Plan| {
        let bytes = serde_json::to_vec(&body(what)).unwrap().into();
        Object::decode(bytes, NONE, fields(what)).unwrap()
    };
    for plans in worlds {
        let decoded: Vec<Object> = plans.iter().map(decode).collect();
        let mut orders = Orders::default();
        let mut runs = 0;
        loop {
            let own = Own::default();
            let mut world = World::new(&own, plans, &decoded);
            loop {
                let steps = world.possible();
                if steps.is_empty() {
                    break;
                }
                let step = steps[orders.take(steps.len())];
                world.step(step);
            }
            let writes = own.lock();
            assert!(writes.announced.is_empty() && writes.written.is_empty());
            runs += 1;
            drop(writes);
            if !orders.next() {
                break;
            }
        }
        // Alone: answered before it is reported, between that and the publication, or
        // after both.
        assert!(runs >= 3, "{runs}");
    }
}

#[test]
fn what_does_not_come_back_is_forgotten() {
    let own = Own::default();
    let write = |n: usize| {
        let encoded = Encoded::of(&body("1"), 0).unwrap();
        let announcement = own.announce("a", encoded, Vec::new(), true);
        announcement.written(n as u64)
    };
    let written: Vec<_> = (1..=WRITTEN_MAX + 1).map(write).collect();
    let recall = |object: &Object| {
        let recalled = own.recall("a", object.body(), object.resource_version.0);
        recalled.is_some()
    };
    assert!(!recall(&written[0]) && recall(&written[1]) && recall(&written[WRITTEN_MAX]));
    assert_eq!(own.lock().written.len(), WRITTEN_MAX);
}

#[tokio::test]
async fn nobody_decodes_what_is_written_here() {
    let faulty = FaultyStore::new();
    let store: Arc<dyn Store> = Arc::new(faulty.clone());
    let fixture = start(&store, &unique("own")).await;
    let things = &fixture.resource;
    let none = Preconditions::default();
    for n in 0..12 {
        // Reported before it is answered, or after.
        let held = n % 2 == 0;
        faulty.faults.hold_answers.send_replace(held);
        let write = async {
            match n {
                0 | 1 => {
                    let name = format!("x{n}");
                    let body = thing("a", &name);
                    let created = things.create(Some("a"), &name, body, None).await;
                    (name, created.unwrap())
                }
                _ => {
                    let change = |_: &Arc<Object>, mut v: Value| {
                        v["spec"] = json!({"nodeName": n.to_string()});
                        Ok(Some(v))
                    };
                    let update = things.guaranteed_update(Some("a"), "x0", &none, change);
                    ("x0".to_owned(), update.await.unwrap().object)
                }
            }
        };
        let mut changes = things.changes();
        let before = *changes.borrow_and_update();
        let release = async {
            if held {
                let reported = changes.wait_for(|revision| *revision > before);
                within("the report", reported).await.unwrap();
                faulty.faults.hold_answers.send_replace(false);
            }
        };
        let ((name, written), ()) = tokio::join!(write, release);
        // In the cache.
        let version = ReadVersion::At(written.resource_version.0);
        let read = things.get(Some("a"), &name, version).await;
        assert!(Arc::ptr_eq(&written, &read.unwrap()), "{n}");
    }
    let writes = things.own.lock();
    assert!(writes.announced.is_empty() && writes.written.is_empty());
}

#[tokio::test]
async fn a_write_that_ends_otherwise_is_not_told_of() {
    let faulty = FaultyStore::new();
    let store: Arc<dyn Store> = Arc::new(faulty.clone());
    let prefix = unique("own");
    let (here, there) = (start(&store, &prefix).await, start(&store, &prefix).await);
    let things = here.resource.clone();
    let announced = || things.own.lock().announced.len();
    let first = here.create("a", "x").await;

    // Nobody waits for the answer any more.
    faulty.faults.hold_answers.send_replace(true);
    let body = thing("a", "y");
    let dropped = things.create(Some("a"), "y", body, None);
    assert!(futures::poll!(std::pin::pin!(dropped)).is_pending());
    assert_eq!(announced(), 0);
    faulty.faults.hold_answers.send_replace(false);
    let read = things.get(Some("a"), "y", ReadVersion::Unset).await;
    assert_eq!(read.unwrap().meta.name, "y");

    // It was not carried out.
    faulty.faults.refuse.store(true, Ordering::SeqCst);
    let refused = things.create(Some("a"), "z", thing("a", "z"), None).await;
    assert_eq!((refused.unwrap_err().code, announced()), (503, 0));
    faulty.faults.refuse.store(false, Ordering::SeqCst);

    // Others were there first.
    let again = things.create(Some("a"), "x", thing("a", "x"), None).await;
    assert_eq!((again.unwrap_err().code, announced()), (409, 0));
    there.set("a", "x", "spec.v", "there").await;
    let written = here.set("a", "x", "spec.w", "here").await;
    assert!(written.resource_version > first.resource_version);
    let value = written.to_value().unwrap();
    assert_eq!(value["spec"], json!({"v": "there", "w": "here"}));
    assert_eq!(announced(), 0);
}

/// Gives what has no `spec` one.
struct Defaults;

impl Read for Defaults {
    fn renew(&self, object: &mut Value) -> bool {
        let lacks = object.get("spec").is_none();
        if lacks {
            object["spec"] = json!({});
        }
        lacks
    }

    fn selectable(&self, _: &Value) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[tokio::test]
async fn what_is_served_otherwise_than_written_is_read() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let fixture = start(&store, &unique("own")).await;
    let config = ResourceConfig {
        storage_prefix: unique("renewed"),
        reader: Some(Reader(Arc::new(Defaults))),
        ..fixture.resource.config().clone()
    };
    let token = CancellationToken::new();
    let things = ResourceStore::start(store, config, token.clone());
    within("ready", things.ready()).await;
    let whole = {
        let mut whole = thing("a", "whole");
        whole["spec"] = json!({"v": 1});
        whole
    };
    for (name, body, renewed) in [("bare", thing("a", "bare"), true), ("whole", whole, false)] {
        let written = things.create(Some("a"), name, body, None).await.unwrap();
        let version = ReadVersion::At(written.resource_version.0);
        let read = things.get(Some("a"), name, version).await;
        let read = read.unwrap();
        assert_eq!(read.renewed, renewed);
        assert_eq!(Arc::ptr_eq(&read, &written), !renewed);
        assert!(read.to_value().unwrap()["spec"].is_object());
        assert_eq!(read.resource_version, written.resource_version);
    }
    token.cancel();
}

#[test]
fn a_restored_store_takes_back_what_was_written() {
    let own = Own::default();
    let announce = |revision| {
        let encoded = Encoded::of(&json!({"metadata": {"name": "x"}}), 0).unwrap();
        own.announce("a/x", encoded, Vec::new(), true)
            .written(revision)
    };
    let newest = || own.newest("a/x").map(|object| object.resource_version.0);
    own.reached(99);
    announce(100);
    assert_eq!(newest(), Some(100));
    own.reached(90);
    assert_eq!(newest(), None);
    announce(91);
    assert_eq!(newest(), Some(91));
}
