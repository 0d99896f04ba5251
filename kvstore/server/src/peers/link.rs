//! One link: dialled, kept, watched, dialled again.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use proto::peer::{Frame, LinkReply, peer_client::PeerClient};
use rand::Rng as _;
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::{
    Address, Inner, REMOVED,
    dial::{Conn, Watch},
    meters::PeerMeters,
    queue::Queue,
};

/// Shortest and longest time between two attempts to dial. It doubles between them
/// while they fail; a peer that dials this member is dialled at once.
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(1);

/// Probes without any answer after which a link is given up. There is one every half
/// election, so a peer that is gone is noticed within two to three elections.
const PROBES_UNANSWERED_MAX: u32 = 4;

/// A link to one peer.
#[derive(Debug)]
pub(super) struct Link {
    id: u64,
    pub(super) queue: Queue,
    pub(super) stop: CancellationToken,
    pub(super) meters: PeerMeters,
    /// The peer has shown itself: now is a good time to dial.
    nudge: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    urls: Vec<String>,
    up: Option<Up>,
}

#[derive(Debug)]
struct Up {
    client: PeerClient<Conn>,
    since: Instant,
    /// Cancelled when the link goes down, for the questions asked over it.
    down: CancellationToken,
}

impl Link {
    pub(super) fn new(member: &Address, stop: CancellationToken, meters: PeerMeters) -> Self {
        Self {
            id: member.id,
            queue: Queue::default(),
            stop,
            meters,
            nudge: Notify::new(),
            state: Mutex::new(State {
                urls: member.urls.clone(),
                up: None,
            }),
        }
    }

    /// Says where the peer is from now on. A link that is up stays.
    pub(super) fn set_urls(&self, urls: &[String]) {
        let mut state = self.state();
        if state.urls != urls {
            state.urls = urls.to_vec();
            self.nudge.notify_one();
        }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.state().urls.clone()
    }

    /// Returns what to ask the peer with, and what will say that there is no point in
    /// waiting for the answer.
    pub(super) fn client(&self) -> Option<(PeerClient<Conn>, CancellationToken)> {
        let state = self.state();
        let up = state.up.as_ref()?;
        Some((up.client.clone(), up.down.clone()))
    }

    pub(super) fn active_for(&self) -> Option<Duration> {
        Some(self.state().up.as_ref()?.since.elapsed())
    }

    /// Notes that the peer is there: it has just dialled.
    pub(super) fn seen(&self) {
        if self.state().up.is_none() {
            self.nudge.notify_one();
        }
    }

    fn set_up(&self, client: PeerClient<Conn>) {
        let up = Up {
            client,
            since: Instant::now(),
            down: CancellationToken::new(),
        };
        self.state().up = Some(up);
        self.meters.active.set(1);
    }

    fn set_down(&self) {
        self.queue.close();
        let up = self.state().up.take();
        if let Some(up) = up {
            up.down.cancel();
            self.meters.active.set(0);
            self.meters.disconnected.inc();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change to it is one assignment; a panic leaves none half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a link until it is stopped.
pub(super) async fn run(inner: Arc<Inner>, link: Arc<Link>) {
    tokio::select! {
        () = link.stop.cancelled() => {}
        () = keep(&inner, &link) => {}
    }
    link.set_down();
}

/// Dials for ever, and uses what comes of it.
async fn keep(inner: &Arc<Inner>, link: &Arc<Link>) {
    let mut pause = REDIAL_MIN;
    let mut first = 0;
    let mut complaint = String::new();
    loop {
        let began = Instant::now();
        let why = match attach(inner, link, &mut first).await {
            Ok(attached) => {
                complaint.clear();
                tracing::info!(peer = %format!("{:x}", link.id), "the link to a peer is up");
                let why = converse(inner, link, attached).await;
                if began.elapsed() > REDIAL_MAX {
                    pause = REDIAL_MIN;
                }
                why
            }
            Err(why) => why,
        };
        link.set_down();
        // Said once: a peer that is down for a day must not fill the log.
        if mem::replace(&mut complaint, why.clone()) != why {
            tracing::warn!(peer = %format!("{:x}", link.id), %why, "there is no link to a peer");
        }
        if link.queue.take_lost()
            && let Some(sink) = inner.sink()
        {
            sink.unreachable(link.id);
        }
        tokio::time::sleep_until(began + REDIAL_MIN).await;
        let jittered = pause.mul_f64(rand::rng().random_range(0.5..=1.0));
        tokio::select! {
            () = tokio::time::sleep_until(began + jittered) => {}
            () = link.nudge.notified() => pause = REDIAL_MIN,
        }
        pause = (pause * 2).min(REDIAL_MAX);
    }
}

/// A link that was accepted.
struct Attached {
    client: PeerClient<Conn>,
    replies: Streaming<LinkReply>,
}

/// Tries the peer's URLs in turn, from the one that worked last; an error says why
/// none does.
async fn attach(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    first: &mut usize,
) -> Result<Attached, String> {
    let urls = link.urls();
    let mut why = Vec::new();
    for turn in 0..urls.len() {
        let at = (*first + turn) % urls.len();
        let url = &urls[at];
        match attach_to(inner, link, url).await {
            Ok(attached) => {
                *first = at;
                return Ok(attached);
            }
            Err(reason) => why.push(format!("{url}: {reason}")),
        }
    }
    match why.is_empty() {
        true => Err("it has no peer URL".to_owned()),
        false => Err(why.join("; ")),
    }
}

async fn attach_to(inner: &Arc<Inner>, link: &Arc<Link>, url: &str) -> Result<Attached, String> {
    let dialled = inner.dialler.dial(url, Watch::Not).await;
    let mut client = dialled.map_err(|error| error.to_string())?;
    // What is sent from now on waits for the peer to accept.
    let number = link.queue.open();
    let request = inner.request(link.id, frames(Arc::clone(link), number));
    let answered = tokio::time::timeout(inner.dialler.timeout, client.link(request)).await;
    let refused = match answered {
        Ok(Ok(response)) => {
            let replies = response.into_inner();
            return Ok(Attached { client, replies });
        }
        Ok(Err(status)) => {
            heed(inner, link, &status);
            words(&status)
        }
        Err(_late) => "it does not answer".to_owned(),
    };
    link.queue.close();
    Err(refused)
}

/// Yields what is to be sent, as long as the link is this one.
fn frames(link: Arc<Link>, number: u64) -> impl futures::Stream<Item = Frame> + Send {
    futures::stream::unfold(link, move |link| async move {
        let frame = link.queue.frame(number).await?;
        link.meters.sent_bytes.inc_by(frame.notes.len() as u64);
        Some((frame, link))
    })
}

/// Tells the core if a peer says that this member is none any more.
fn heed(inner: &Inner, link: &Link, status: &Status) {
    if status.code() == Code::PermissionDenied
        && status.message() == REMOVED
        && let Some(sink) = inner.sink()
    {
        sink.removed(link.id);
    }
}

fn words(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    }
}

/// Watches a link that is up; returns why it ended.
async fn converse(inner: &Arc<Inner>, link: &Arc<Link>, attached: Attached) -> String {
    let Attached {
        client,
        mut replies,
    } = attached;
    link.set_up(client);
    if let Some(sink) = inner.sink() {
        sink.linked(link.id);
    }
    // Ticks are counted, not time: a member that stood still itself must not take
    // its peers for dead.
    let mut ticks = tokio::time::interval(inner.election_timeout / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = 0;
    let mut probe = (0, Instant::now());
    loop {
        tokio::select! {
            reply = replies.message() => match reply {
                Ok(Some(reply)) => {
                    unanswered = 0;
                    if reply.probe == probe.0 {
                        link.meters.round_trip.observe(probe.1.elapsed().as_secs_f64());
                    }
                }
                Ok(None) => return "the peer has ended it".to_owned(),
                Err(status) => {
                    heed(inner, link, &status);
                    return words(&status);
                }
            },
            _ = ticks.tick() => {
                if unanswered >= PROBES_UNANSWERED_MAX {
                    return "the peer is silent".to_owned();
                }
                unanswered += 1;
                probe = (link.queue.probe(), Instant::now());
            }
            () = link.queue.trouble() => {
                if link.queue.take_lost() && let Some(sink) = inner.sink() {
                    sink.unreachable(link.id);
                }
            }
        }
    }
}
