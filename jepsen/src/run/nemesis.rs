//! The thread that hurts the cluster: what comes when is drawn from the seed; it
//! ends with everything healed and everybody there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use checkers::history::{Fault, Final, Time};
use faults::bed::Crash;
use faults::{Bed, Error, Kind, Nemesis};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc::UnboundedSender;

/// How long nothing is wrong between two rounds.
const CALM: std::ops::Range<Duration> = Duration::from_millis(1000)..Duration::from_secs(4);
/// How long something is wrong.
const HURT: std::ops::Range<Duration> = Duration::from_millis(500)..Duration::from_secs(7);
/// How many nemeses are at work at a time at most.
const TOGETHER_MAX: usize = 3;
/// How often the thread looks whether it is to come to an end.
const POLL: Duration = Duration::from_millis(50);
/// What is called the nemesis that is a client: it asks for compactions all the time.
pub(super) const COMPACT: &str = "compact";

/// What the thread tells those who run the clients.
pub(super) enum Event {
    /// Something was done, from then to then.
    Fault(Fault),
    /// These are the members now.
    Members(Vec<(usize, String)>),
    /// Compactions begin or end.
    Compacting(bool),
    /// What is wrong right now, for people to see.
    At(String),
    /// All is healed, or cannot be.
    Healed,
}

/// What stands on a cluster, and can be hurt beside it.
pub(super) trait Upper: Send {
    /// Begins what a kind of its own does, and says what was done to whom.
    fn start(&mut self, kind: &str, bed: &mut Bed, rng: &mut StdRng) -> faults::Result<String>;

    /// Ends whatever is wrong, starts who does not run, and waits until all answer. The
    /// cluster below was revived before.
    fn revive(&mut self, bed: &mut Bed) -> faults::Result<()>;
}

/// Nothing stands on it.
impl Upper for () {
    fn start(&mut self, kind: &str, _: &mut Bed, _: &mut StdRng) -> faults::Result<String> {
        Err(Error::Unfit(format!("nothing here can be hurt by {kind}")))
    }

    fn revive(&mut self, _: &mut Bed) -> faults::Result<()> {
        Ok(())
    }
}

/// What is left when all is over.
pub(super) struct Aftermath<U = ()> {
    pub(super) bed: Bed,
    pub(super) upper: U,
    /// Kinds that were asked for and this machine has no means for, and why.
    pub(super) skipped: Vec<(String, String)>,
    /// Why the cluster did not come back, if it did not.
    pub(super) lost: Option<String>,
}

/// What can be drawn: a kind of fault, or the client that compacts.
#[derive(Clone, Copy)]
pub(super) enum Choice {
    Bed(Kind),
    Compact,
    /// A kind of what stands on the cluster.
    Upper(&'static str),
}

impl Choice {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bed(kind) => kind.name,
            Self::Compact => COMPACT,
            Self::Upper(kind) => kind,
        }
    }

    fn lasting(&self) -> bool {
        matches!(self, Self::Bed(kind) if kind.lasting)
    }
}

/// Finds nemeses by their names; `all` is all, `none` none.
pub(super) fn named(names: &str) -> anyhow::Result<Vec<Choice>> {
    let mut chosen = Vec::new();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        match name {
            COMPACT => chosen.push(Choice::Compact),
            _ => chosen.extend(faults::nemesis::named(name)?.into_iter().map(Choice::Bed)),
        }
        if name == "all" {
            chosen.push(Choice::Compact);
        }
    }
    Ok(chosen)
}

/// Hurts a cluster until told to stop.
pub(super) struct Tormentor<U = ()> {
    pub(super) bed: Bed,
    /// What stands on it, if anything.
    pub(super) upper: U,
    pub(super) choices: Vec<Choice>,
    /// How often a round begins; by chance if not given.
    pub(super) every: Option<Duration>,
    pub(super) seed: u64,
    pub(super) started: Instant,
    pub(super) tell: UnboundedSender<Event>,
    pub(super) stop: Arc<AtomicBool>,
}

/// One nemesis at work.
struct AtWork {
    nemesis: Option<Box<dyn Nemesis>>,
    kind: &'static str,
    detail: String,
    from: Time,
    lasting: bool,
}

impl<U: Upper> Tormentor<U> {
    /// Goes on until told to stop, then leaves everything healed.
    pub(super) fn run(mut self) -> Aftermath<U> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut skipped = Vec::new();
        let mut lost = None;
        let mut began = Instant::now();
        while lost.is_none() && !self.stopped() {
            let calm = rng.random_range(CALM);
            self.rest(
                self.every
                    .map_or(calm, |every| every.saturating_sub(began.elapsed())),
            );
            if self.stopped() || self.choices.is_empty() {
                continue;
            }
            began = Instant::now();
            let round = self.hurt(&mut rng, &mut skipped);
            let hurt = rng.random_range(HURT);
            self.rest(self.every.map_or(hurt, |every| hurt.min(every / 2)));
            lost = self.heal(round).err().map(|e| e.to_string());
        }
        if lost.is_none() {
            lost = self.heal(Vec::new()).err().map(|e| e.to_string());
        }
        self.say(Event::Healed);
        Aftermath {
            bed: self.bed,
            upper: self.upper,
            skipped,
            lost,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn say(&self, event: Event) {
        // Nobody listens any more once the run failed for another reason.
        let _gone = self.tell.send(event);
    }

    fn now(&self) -> Time {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Time::MAX)
    }

    fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.stopped() {
            thread::sleep(POLL);
        }
    }

    /// Starts a few nemeses; what this machine lacks is not tried again.
    fn hurt(&mut self, rng: &mut StdRng, skipped: &mut Vec<(String, String)>) -> Vec<AtWork> {
        let count = [1, 1, 1, 2, 2, TOGETHER_MAX][rng.random_range(0..6)];
        let mut at_work: Vec<AtWork> = Vec::new();
        for _ in 0..count {
            if self.choices.is_empty() {
                break;
            }
            let choice = self.choices[rng.random_range(0..self.choices.len())];
            let twice = at_work.iter().any(|w| w.kind == choice.name());
            if twice || (choice.lasting() && at_work.iter().any(|w| w.lasting)) {
                continue;
            }
            let from = self.now();
            let started = match choice {
                Choice::Compact => {
                    self.say(Event::Compacting(true));
                    Ok((None, String::new()))
                }
                Choice::Bed(kind) => {
                    let mut nemesis = kind.make();
                    let started = nemesis.start(&mut self.bed, rng);
                    started.map(|detail| (Some(nemesis), detail))
                }
                Choice::Upper(kind) => {
                    let started = self.upper.start(kind, &mut self.bed, rng);
                    started.map(|detail| (None, detail))
                }
            };
            let kind = choice.name();
            match started {
                Ok((nemesis, detail)) => {
                    self.say(Event::At(format!("{kind}: {detail}")));
                    at_work.push(AtWork {
                        nemesis,
                        kind,
                        detail,
                        from,
                        lasting: choice.lasting(),
                    });
                }
                Err(Error::Missing(what, why)) => {
                    skipped.push((kind.to_owned(), format!("{what} is missing: {why}")));
                    self.choices.retain(|c| c.name() != kind);
                }
                // It does not fit with what is wrong already; another time.
                Err(_unfit) => {}
            }
        }
        at_work
    }

    /// Ends what is wrong, in the order that lets each come back: what all share
    /// first, what takes a member out of the quorum last.
    fn heal(&mut self, mut round: Vec<AtWork>) -> faults::Result<()> {
        let revived = self.bed.revive();
        round.sort_by_key(|w| w.lasting);
        let mut healed = Ok(());
        for work in &mut round {
            if let Some(nemesis) = &mut work.nemesis
                && revived.is_ok()
            {
                healed = healed.and(nemesis.heal(&mut self.bed));
            } else {
                self.say(Event::Compacting(false));
            }
        }
        if revived.is_ok() {
            healed = healed.and(self.upper.revive(&mut self.bed));
        }
        for work in round {
            self.say(Event::Fault(Fault {
                kind: work.kind.into(),
                detail: work.detail,
                from: work.from,
                to: self.now(),
            }));
        }
        self.say(Event::Members(members(&self.bed)));
        self.say(Event::At(String::new()));
        revived.and(healed)
    }
}

/// Returns who is a member, and where clients reach it.
pub(super) fn members(bed: &Bed) -> Vec<(usize, String)> {
    let current = bed.cluster.current().into_iter();
    current
        .map(|at| (at, bed.cluster.members[at].client_url.clone()))
        .collect()
}

/// Waits until all members are at one revision, and asks each for its hash there.
pub(super) fn finals(bed: &Bed) -> faults::Result<Vec<Final>> {
    let revision = bed.cluster.settled()?;
    let hashes = bed.cluster.hashes(revision)?;
    let running = bed.cluster.running().into_iter();
    Ok(running
        .zip(hashes)
        .map(|(at, (_, hash, compacted))| Final {
            member: u8::try_from(at).unwrap_or(u8::MAX),
            revision,
            compacted,
            hash,
            answered: true,
        })
        .collect())
}

/// Words in a member's log that mean it fell over (after Jepsen's crash checker).
const LAST_WORDS: [&str; 5] = [
    "panicked at",
    "panic:",
    "\"level\":\"fatal\"",
    "\"level\":\"panic\"",
    "signal SIG",
];

/// Looks for members that fell over and had no reason to: one whose disk failed or
/// whose bytes rotted may say so in strong words.
pub(super) fn crashes(bed: &Bed) -> Vec<String> {
    let told = |crash: &Crash| {
        format!(
            "m{} ended ({}); the last it said:\n{}",
            crash.member, crash.status, crash.last_words
        )
    };
    let mut found: Vec<String> = bed.crashes.iter().map(told).collect();
    for (at, member) in bed.cluster.members.iter().enumerate() {
        if bed.was_hurt(at) {
            continue;
        }
        let log = member.log();
        let bad = log
            .lines()
            .find(|line| LAST_WORDS.iter().any(|words| line.contains(words)));
        found.extend(bad.map(|line| format!("m{at} logged: {line}")));
    }
    found
}
