//! Runs a program on both members, step by step, and compares as it goes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost_reflect::{DynamicMessage, MethodDescriptor, ReflectMessage as _};
use proto::{etcdserverpb as pb, v3electionpb, v3lockpb};

use super::{
    answer::{self, Answer, Part},
    authority, boundary,
    compare::{Comparer, Difference},
    known,
    process::Launch,
    program::{Step, Verb},
    side::Side,
    symbol::Values,
    ties,
    watching::{MARK_KEY, Stream},
    wire,
};

/// How long a short lease may take to expire, and how often that is looked at.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(20);
const EXPIRY_POLL: Duration = Duration::from_millis(50);

/// How long a watcher may read history until that is a difference.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The key a short lease is put on besides `a`.
pub(crate) const EXPIRING_KEY: &[u8] = b"~expiring";

/// Who may always put the mark of settled streams.
pub(crate) const ROOT: &str = "root";

/// Two members that should say the same.
pub(crate) struct Pair {
    ours: Side,
    peer: Side,
    comparer: Comparer,
    head: i64,
    compact: i64,
    /// Whether a watch was created since streams were settled.
    watches_new: bool,
}

/// What a run found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Steps that were taken.
    pub(crate) steps: usize,
    /// Explained differences by name.
    pub(crate) explained: BTreeMap<&'static str, u64>,
    /// The first difference nothing explains; the run ends there.
    pub(crate) failure: Option<Failure>,
    /// What both said to each step taken.
    pub(crate) trace: Vec<(Answer, Answer)>,
}

/// Differences nothing explains.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The step that showed them.
    pub(crate) at: usize,
    pub(crate) differences: Vec<Difference>,
}

impl Pair {
    /// Starts two members without data.
    pub(crate) async fn start(ours: &Launch, peer: &Launch) -> anyhow::Result<Self> {
        let (ours, peer) = tokio::try_join!(Side::start(ours), Side::start(peer))?;
        Ok(Self {
            ours,
            peer,
            comparer: Comparer::default(),
            head: 1,
            compact: 0,
            watches_new: false,
        })
    }

    /// Runs a program until its end or the first difference nothing explains.
    pub(crate) async fn run(&mut self, steps: &[Step]) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, step) in steps.iter().enumerate() {
            let (ours, peer) = self.take(step).await;
            outcome.steps += 1;
            self.head = self.head.max(answer::revision(&peer).unwrap_or(0));
            let mut differences = self.comparer.compare(&ours, &peer);
            if !differences.is_empty()
                && let (Some(ours), Some(peer)) =
                    (ties::untied(step, &ours), ties::untied(step, &peer))
            {
                let left = self.comparer.compare(&ours, &peer);
                if left.len() < differences.len() {
                    *outcome.explained.entry(known::TIES.name).or_default() += 1;
                }
                differences = left;
            }
            if !differences.is_empty()
                && let Some(ours) = boundary::without_deletes_at(&ours, self.compact)
            {
                let fewer = boundary::without_deletes_at(&peer, self.compact);
                let left = self
                    .comparer
                    .compare(&ours, fewer.as_ref().unwrap_or(&peer));
                if left.len() < differences.len() {
                    *outcome.explained.entry(known::BOUNDARY.name).or_default() += 1;
                    differences = left;
                }
            }
            if step.name() == "Maintenance/HashKV"
                && differences.iter().any(|found| found.path == "hash")
                && self.is_empty(step).await
            {
                *outcome.explained.entry(known::EMPTY_HASH.name).or_default() += 1;
                differences.retain(|found| found.path != "hash");
            }
            let (mut differences, ends) = self.unexplained(step, differences, &mut outcome).await;
            if ends {
                // What else differs in the same answer comes of it.
                differences.clear();
            }
            outcome.trace.push((ours, peer));
            if !differences.is_empty() {
                self.add_ends(&mut differences);
                outcome.failure = Some(Failure { at, differences });
            }
            if ends || outcome.failure.is_some() {
                break;
            }
        }
        outcome
    }

    /// Says whether no key was left at the revision a step hashes.
    async fn is_empty(&self, step: &Step) -> bool {
        let hash: pb::HashKvRequest = wire::typed(&self.resolved(&step.request).0);
        let range = pb::RangeRequest {
            key: b"\0".as_slice().into(),
            range_end: b"\0".as_slice().into(),
            revision: hash.revision,
            count_only: true,
            ..pb::RangeRequest::default()
        };
        let counted = self.ours.ask("KV/Range", &range, ROOT).await;
        counted.is_ok_and(|range: pb::RangeResponse| range.count == 0)
    }

    /// Leaves the differences that nothing explains; says whether one that is
    /// explained ends the program.
    async fn unexplained(
        &self,
        step: &Step,
        differences: Vec<Difference>,
        outcome: &mut Outcome,
    ) -> (Vec<Difference>, bool) {
        let (mut left, mut ends) = (Vec::new(), false);
        for difference in differences {
            let mut known = known::explain(step, &difference);
            if known.is_none() {
                let request = self.resolved(&step.request).1;
                known = authority::explain(&self.peer, step, &request, &difference).await;
            }
            if known.is_none() && authority::is_open_watch(&self.peer, &difference) {
                known = Some(&known::OPEN_WATCHES);
            }
            if known.is_none() && authority::is_forgotten(&self.peer, step, &difference).await {
                known = Some(&known::SHORT_OF_SPACE);
            }
            match known {
                Some(known) => {
                    *outcome.explained.entry(known.name).or_default() += 1;
                    ends |= known.ends;
                }
                None => left.push(difference),
            }
        }
        (left, ends)
    }

    /// Tells of a member that ended: that explains everything else.
    fn add_ends(&mut self, differences: &mut Vec<Difference>) {
        let ends = (self.ours.ended(), self.peer.ended());
        if ends.0.is_some() || ends.1.is_some() {
            let tell = |end: Option<String>| end.unwrap_or_else(|| "runs".to_owned());
            differences.push(Difference {
                path: "process".to_owned(),
                ours: tell(ends.0),
                peer: tell(ends.1),
            });
        }
    }

    async fn take(&mut self, step: &Step) -> (Answer, Answer) {
        match &step.verb {
            Verb::Call(method) => self.call(step, method).await,
            Verb::Watch(stream) => self.watch(step, *stream).await,
            Verb::Close(stream) => {
                let told = self.settle().await;
                self.ours.streams.remove(stream);
                self.peer.streams.remove(stream);
                told
            }
            Verb::Settle => self.settle().await,
            Verb::Brief => {
                let requests = self.resolved(&step.request);
                tokio::join!(
                    brief(&self.ours, &requests.0, &step.user),
                    brief(&self.peer, &requests.1, &step.user)
                )
            }
            Verb::Expire => {
                let requests = self.resolved(&step.request);
                tokio::join!(
                    expire(&self.ours, &requests.0, &step.user),
                    expire(&self.peer, &requests.1, &step.user)
                )
            }
        }
    }

    async fn call(&mut self, step: &Step, method: &MethodDescriptor) -> (Answer, Answer) {
        let name = step.name();
        let mut before = (Vec::new(), Vec::new());
        if matches!(name.as_str(), "KV/Compact" | "Auth/AuthDisable") {
            // What a watcher still reads, and the old values it shows, go; or the
            // stream itself does.
            before = self.settle().await;
        }
        let requests = self.resolved(&step.request);
        if self.would_wait(&name, &requests.1).await {
            return before;
        }
        let (mut ours, mut peer) = tokio::join!(
            call(&self.ours, method, &requests.0, &step.user),
            call(&self.peer, method, &requests.1, &step.user)
        );
        if name == "KV/Compact" && peer.iter().all(|part| part.said.is_ok()) {
            self.compact = wire::typed::<pb::CompactionRequest>(&requests.1).revision;
        }
        for (side, answer) in [(&mut self.ours, &mut ours), (&mut self.peer, &mut peer)] {
            learn(side, &name, &requests.1, answer);
        }
        before.0.append(&mut ours);
        before.1.append(&mut peer);
        before
    }

    /// Makes the message each member is sent: symbols become what they stand for.
    fn resolved(&self, request: &DynamicMessage) -> (DynamicMessage, DynamicMessage) {
        let resolve = |side: &Side| {
            let values = Values {
                head: self.head,
                compact: self.compact,
                leases: &side.leases,
                member: side.member,
            };
            let mut request = request.clone();
            wire::each_integer(&mut request, &mut |_, number| values.resolve(number));
            fill_leader(side, &mut request);
            request
        };
        (resolve(&self.ours), resolve(&self.peer))
    }

    /// Says whether a call would wait for somebody else, who is this client too.
    async fn would_wait(&self, name: &str, request: &DynamicMessage) -> bool {
        let (prefix, key) = match name {
            "Lock/Lock" => {
                let lock: v3lockpb::LockRequest = wire::typed(request);
                candidate(&lock.name, lock.lease)
            }
            "Election/Campaign" => {
                let campaign: v3electionpb::CampaignRequest = wire::typed(request);
                candidate(&campaign.name, campaign.lease)
            }
            "Election/Observe" => {
                let leader: v3electionpb::LeaderRequest = wire::typed(request);
                candidate(&leader.name, 0)
            }
            _ => return false,
        };
        let mut range_end = prefix.clone();
        if let Some(last) = range_end.last_mut() {
            // The prefix ends with a slash.
            *last += 1;
        }
        let range = pb::RangeRequest {
            key: prefix.into(),
            range_end: range_end.into(),
            sort_order: pb::range_request::SortOrder::Ascend.into(),
            sort_target: pb::range_request::SortTarget::Create.into(),
            limit: 1,
            ..pb::RangeRequest::default()
        };
        let first = self.peer.ask("KV/Range", &range, ROOT).await;
        let first = first
            .ok()
            .and_then(|range: pb::RangeResponse| range.kvs.into_iter().next());
        match name {
            // Nobody leads, so the stream would say nothing.
            "Election/Observe" => first.is_none(),
            _ => first.is_some_and(|first| first.key != key),
        }
    }

    async fn watch(&mut self, step: &Step, number: u8) -> (Answer, Answer) {
        let requests = self.resolved(&step.request);
        let request = |message| wire::typed::<pb::WatchRequest>(message).request_union;
        let (Some(ours), Some(peer)) = (request(&requests.0), request(&requests.1)) else {
            return (Vec::new(), Vec::new());
        };
        if !self.peer.streams.contains_key(&number) {
            let (a, b) = tokio::join!(
                Stream::open(&self.ours, &step.user),
                Stream::open(&self.peer, &step.user)
            );
            self.ours.streams.insert(number, a);
            self.peer.streams.insert(number, b);
        }
        // What is on its way when a watch is cancelled may come or not.
        let is_create = matches!(peer, pb::watch_request::RequestUnion::CreateRequest(_));
        let told = match is_create {
            true => (Vec::new(), Vec::new()),
            false => self.settle().await,
        };
        self.watches_new |= is_create;
        let is_progress = matches!(peer, pb::watch_request::RequestUnion::ProgressRequest(_));
        let stream = self.peer.streams.get(&number);
        if is_progress && !stream.is_some_and(|stream| stream.tells_progress(self.head)) {
            return told;
        }
        tokio::join!(
            speak(&mut self.ours, number, &ours),
            speak(&mut self.peer, number, &peer)
        );
        told
    }

    /// Waits until every stream has told all there is, and takes it.
    async fn settle(&mut self) -> (Answer, Answer) {
        if self.peer.streams.is_empty() {
            return (Vec::new(), Vec::new());
        }
        if std::mem::take(&mut self.watches_new) {
            tokio::join!(
                self.ours.caught_up(CATCH_UP_TIMEOUT),
                self.peer.caught_up(CATCH_UP_TIMEOUT)
            );
        }
        let (mut ours, mut peer) = tokio::join!(mark(&self.ours), mark(&self.peer));
        self.head = self.head.max(answer::revision(&peer).unwrap_or(0));
        let revisions = (answer::revision(&ours), answer::revision(&peer));
        tokio::join!(
            listen(&mut self.ours, revisions.0),
            listen(&mut self.peer, revisions.1)
        );
        for (side, answer) in [(&mut self.ours, &mut ours), (&mut self.peer, &mut peer)] {
            for (number, stream) in &mut side.streams {
                answer.append(&mut stream.told(&format!("stream {number}")));
            }
            name_leases(side, answer);
        }
        (ours, peer)
    }
}

/// The keys of everyone who wants a lock or an election, and the one of a lease
/// (etcd: concurrency, Mutex and Election).
fn candidate(name: &[u8], lease: i64) -> (Vec<u8>, Vec<u8>) {
    let prefix = [name, b"/"].concat();
    let key = [prefix.as_slice(), format!("{lease:x}").as_bytes()].concat();
    (prefix, key)
}

/// Puts the mark that streams wait for.
async fn mark(side: &Side) -> Answer {
    let put = pb::PutRequest {
        key: Bytes::from_static(MARK_KEY),
        ..pb::PutRequest::default()
    };
    let method = wire::method("KV/Put").expect("a method of our own .proto text");
    let request = wire::describe(method.input(), &put);
    let mut answer = side.call(&method, &request, ROOT).await;
    for part in &mut answer {
        "mark".clone_into(&mut part.label);
    }
    answer
}

/// Listens on every stream until it has told everything up to the mark.
async fn listen(side: &mut Side, mark: Option<i64>) {
    for stream in side.streams.values_mut() {
        match mark {
            Some(revision) if stream.marked => stream.hear_mark(revision).await,
            _ => stream.hear_silence().await,
        }
    }
}

async fn speak(side: &mut Side, number: u8, request: &pb::watch_request::RequestUnion) {
    if let Some(stream) = side.streams.get_mut(&number) {
        let live = stream.knows(request);
        stream.say(request);
        stream.hear_answer(request, live).await;
    }
}

async fn call(
    side: &Side,
    method: &MethodDescriptor,
    request: &DynamicMessage,
    user: &str,
) -> Answer {
    let answer = side.call(method, request, user).await;
    if method.name() != "RangeStream" {
        return answer;
    }
    // etcd has it since 3.7; an older one is asked for the same in one piece.
    let unimplemented = |part: &Part| part.said.as_ref().is_err_and(|r| r.code == 12);
    if answer.iter().any(unimplemented) {
        let range = wire::method("KV/Range").expect("a method of our own .proto text");
        return side.call(&range, request, user).await;
    }
    vec![Part::new("", joined(answer))]
}

/// Puts the pieces of a streamed range together.
fn joined(answer: Answer) -> Result<DynamicMessage, answer::Refusal> {
    let mut whole = pb::RangeResponse::default();
    for part in answer {
        let piece = wire::typed::<pb::RangeStreamResponse>(&part.said?);
        let piece = piece.range_response.unwrap_or_default();
        let mut kvs = std::mem::take(&mut whole.kvs);
        kvs.extend(piece.kvs.iter().cloned());
        whole = pb::RangeResponse { kvs, ..piece };
    }
    let kind = wire::message("RangeResponse").expect("a message of our own .proto text");
    Ok(wire::describe(kind, &whole))
}

/// Keeps what later steps of one member depend on, and gives its leases their names.
fn learn(side: &mut Side, name: &str, request: &DynamicMessage, answer: &mut Answer) {
    let said = answer.last().and_then(|part| part.said.clone().ok());
    match (name, said) {
        ("Lease/LeaseGrant", Some(said))
            if wire::typed::<pb::LeaseGrantRequest>(request).id == 0 =>
        {
            let granted: pb::LeaseGrantResponse = wire::typed(&said);
            side.leases.push(granted.id);
        }
        // The random ids of leases are part of what was hashed.
        ("Maintenance/HashKV", Some(_)) if !side.leases.is_empty() => {
            for part in answer.iter_mut() {
                if let Ok(message) = &mut part.said {
                    message.clear_field_by_name("hash");
                }
            }
        }
        // Before 3.5.21, tokens given earlier are refused where none is needed any
        // more, on streams too.
        ("Auth/AuthDisable", Some(_)) => {
            side.tokens.clear();
            side.streams.clear();
        }
        ("Auth/Authenticate", Some(said)) => {
            let user = wire::typed::<pb::AuthenticateRequest>(request).name;
            let token = wire::typed::<pb::AuthenticateResponse>(&said).token;
            side.tokens.insert(user, token);
        }
        ("Election/Campaign", Some(said)) => {
            let won = wire::typed::<v3electionpb::CampaignResponse>(&said).leader;
            if let Some(leader) = won {
                side.leaders.insert(leader.name.clone(), leader);
            }
        }
        _ => {}
    }
    name_leases(side, answer);
}

/// Replaces the ids a server chose by their symbols: they are random.
fn name_leases(side: &Side, answer: &mut Answer) {
    if side.leases.is_empty() {
        return;
    }
    let values = Values {
        leases: &side.leases,
        ..Values::default()
    };
    for message in answer.iter_mut().filter_map(|part| part.said.as_mut().ok()) {
        wire::each_integer(message, &mut |field, number| match field.name() {
            "lease" | "ID" => values.name_lease(number),
            _ => number,
        });
    }
}

/// Completes the leader of a proclamation or resignation that gives only its name.
fn fill_leader(side: &Side, request: &mut DynamicMessage) {
    if request.descriptor().package_name() != "v3electionpb" {
        return;
    }
    let Some(field) = request.descriptor().get_field_by_name("leader") else {
        return;
    };
    let given = request.get_field(&field).into_owned();
    let Some(given) = given.as_message() else {
        return;
    };
    let leader: v3electionpb::LeaderKey = wire::typed(given);
    if let (true, Some(known)) = (leader.key.is_empty(), side.leaders.get(&leader.name)) {
        let known = wire::describe(given.descriptor(), known);
        request.set_field(&field, prost_reflect::Value::Message(known));
    }
}

async fn one(
    side: &Side,
    name: &str,
    method: &str,
    request: &impl prost::Message,
    user: &str,
) -> Part {
    let method = wire::method(method).expect("a method of our own .proto text");
    let request = wire::describe(method.input(), request);
    let said = side.call(&method, &request, user).await.pop();
    match said {
        Some(part) => Part::new(name, part.said),
        None => Part::missing(name, "no answer"),
    }
}

/// Grants a lease and revokes it.
async fn brief(side: &Side, request: &DynamicMessage, user: &str) -> Answer {
    let grant: pb::LeaseGrantRequest = wire::typed(request);
    let mut granted = one(side, "grant", "Lease/LeaseGrant", &grant, user).await;
    let mut id = grant.id;
    if let (0, Ok(message)) = (id, &mut granted.said) {
        id = wire::typed::<pb::LeaseGrantResponse>(message).id;
        // Random, and gone at once.
        message.clear_field_by_name("ID");
    }
    let revoke = pb::LeaseRevokeRequest { id };
    let revoked = one(side, "revoke", "Lease/LeaseRevoke", &revoke, user).await;
    vec![granted, revoked]
}

/// Grants a lease, puts two keys on it and waits until it has expired.
async fn expire(side: &Side, request: &DynamicMessage, user: &str) -> Answer {
    let grant: pb::LeaseGrantRequest = wire::typed(request);
    let mut answer = vec![one(side, "grant", "Lease/LeaseGrant", &grant, user).await];
    if answer[0].said.is_err() {
        return answer;
    }
    for key in [b"a".as_slice(), EXPIRING_KEY] {
        let put = pb::PutRequest {
            key: Bytes::from_static(key),
            lease: grant.id,
            ..pb::PutRequest::default()
        };
        answer.push(one(side, "put", "KV/Put", &put, user).await);
    }
    let deadline = Instant::now() + EXPIRY_TIMEOUT;
    let ask = pb::LeaseTimeToLiveRequest {
        id: grant.id,
        keys: true,
    };
    loop {
        let left = one(side, "left", "Lease/LeaseTimeToLive", &ask, user).await;
        let typed = left.said.as_ref().ok();
        let typed = typed.map(wire::typed::<pb::LeaseTimeToLiveResponse>);
        let over = typed.is_none_or(|left| left.ttl < 0);
        if over || Instant::now() > deadline {
            answer.push(left);
            break;
        }
        tokio::time::sleep(EXPIRY_POLL).await;
    }
    for key in [b"a".as_slice(), EXPIRING_KEY] {
        let range = pb::RangeRequest {
            key: Bytes::from_static(key),
            ..pb::RangeRequest::default()
        };
        answer.push(one(side, "range", "KV/Range", &range, user).await);
    }
    answer
}
