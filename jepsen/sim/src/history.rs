//! The second opinion: what the clients of a run were told, given to the same checkers
//! that judge real processes. They know nothing of this store and see no log but what
//! was applied; the witness, the search without revisions and Elle must agree with
//! each other, and with what was checked while the run went on.

use checkers::{
    history as h,
    judge::{Settings, judge},
    lease, verdict, wgl,
};
use kvserver::RpcError;
use mvcc::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteReply, Error, Event,
    EventKind, KeyValue, PutReply, PutRequest, RangeReply, RangeRequest, RequestOp, ResponseOp,
    TxnReply, TxnRequest,
    watch::{WatchCreate, WatchReply},
};

use crate::{
    ops::{Answer, Ask, End, Op, register_of, value_number},
    plan::Time,
    sim::Sim,
};

/// Steps of the search without revisions; where it gives up, the witness decides.
const BUDGET: wgl::Budget = wgl::Budget {
    steps_per_key: 20_000,
    steps: 200_000,
};

/// The longest life of a lease that clients ask for, in seconds.
pub(crate) const TTL_MAX: u64 = 6;

/// What one checker found that is told; the rest is mostly more of the same.
const BLAMED_MAX: usize = 2;

/// The checkers count nanoseconds.
const NANOS: u64 = 1_000;

/// A stream that a client watched by, and what came by it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The number of the client that watches.
    pub(crate) watcher: usize,
    /// The member that served it.
    pub(crate) member: u64,
    /// When it was asked for.
    pub(crate) opened: Time,
    /// What was asked for.
    pub(crate) create: WatchCreate,
    /// What came, and when.
    pub(crate) told: Vec<(Time, WatchReply)>,
}

impl Sim {
    /// Asks the checkers about everything that clients were told.
    pub(crate) fn judge_history(&mut self) {
        let history = self.history();
        self.judge_this(&history);
    }

    fn judge_this(&mut self, history: &h::History) {
        let settings = Settings {
            budget: BUDGET,
            leases: lease::Limits {
                early: self.forgiven(),
                late: None,
            },
        };
        let judgement = judge(history, &settings);
        for finding in &judgement.findings {
            *self.judged.entry(finding.checker).or_default() += finding.checked as u64;
            if let verdict::Verdict::Invalid(anomalies) = &finding.verdict {
                for anomaly in anomalies.described.iter().take(BLAMED_MAX) {
                    let what = format!("by the history: {}: {}", anomaly.name, anomaly.text);
                    self.truth.get().blame(finding.checker, what);
                }
            }
        }
        match judgement.verdict {
            verdict::Verdict::Unknown(why) => self.truth.get().blame("unknown", why),
            verdict::Verdict::Disagreement(why) => self.truth.get().blame("disagreement", why),
            verdict::Verdict::Valid | verdict::Verdict::Invalid(_) => {}
        }
    }

    /// Returns how much earlier than by everybody's time a lease may end, in
    /// nanoseconds: as far as the fastest clock of a member has gone ahead.
    fn forgiven(&self) -> u64 {
        let fastest = self.hosts.iter().map(|host| host.speed).max();
        let fastest = fastest.unwrap_or(1_000).max(1_000);
        TTL_MAX * 1_000_000_000 * (fastest - 1_000) / fastest
    }

    /// Writes down what clients were told.
    fn history(&self) -> h::History {
        let mut history = h::History::default();
        let mut numbers = 0..;
        let mut fresh = || numbers.next().unwrap_or(u32::MAX);
        let mut processes: Vec<u32> = (0..self.plan.clients).map(|_| fresh()).collect();
        for op in &self.clients.ops {
            let unknown = !matches!(op.ended, Some((_, End::Ok(_) | End::Fail(_))));
            let process = match processes.get_mut(op.client) {
                // The request may happen later; its client goes on as somebody else.
                Some(process) if unknown => std::mem::replace(process, fresh()),
                Some(process) => *process,
                // Who looks and who runs the cluster ask several things at a time.
                None => fresh(),
            };
            let member = self.hosts[op.host].id;
            history.ops.extend(operation(op, process, member, self.now));
            history.lists.extend(registers(op, process, self.now));
        }
        let log = self.truth.get();
        let told = (2..=log.revision()).filter_map(|revision| {
            let events = log.at(revision)?.events.iter();
            Some(h::Told::Events {
                revision,
                events: events.map(|event| change(event, false)).collect(),
                fragment: false,
            })
        });
        // Not a member's: what was applied, by whoever applied it first.
        history.log(u8::MAX, told);
        for stream in &self.clients.streams {
            watched(&mut history, stream);
        }
        history.finals = self.finals();
        history
    }

    /// Asks every member for its state.
    fn finals(&self) -> Vec<h::Final> {
        let members = self.members().into_iter();
        let ask = |host: usize| {
            let host = &self.hosts[host];
            let said = host.node.as_ref().and_then(|node| {
                node.with_machine(|machine| {
                    let hash = machine.hash_kv(0).ok()?;
                    Some((machine.revision(), machine.compact_revision(), hash.hash))
                })
            });
            let said = said.flatten();
            let (revision, compacted, hash) = said.unwrap_or_default();
            h::Final {
                member: place(host.id),
                revision,
                compacted,
                hash,
                answered: said.is_some(),
            }
        };
        members.map(ask).collect()
    }
}

/// The checkers count members from 0.
fn place(member: u64) -> u8 {
    u8::try_from(member - 1).unwrap_or(u8::MAX)
}

fn operation(op: &Op, process: u32, member: u64, now: Time) -> Option<h::Op> {
    let (ret, outcome) = match &op.ended {
        Some((at, End::Ok(answer))) => (*at, h::Outcome::Ok(reply(&op.ask, answer)?)),
        Some((at, End::Fail(error))) => (*at, h::Outcome::Fail(refusal(error))),
        Some((at, End::Info)) => (*at, h::Outcome::Info("no answer".into())),
        None => (now, h::Outcome::Info("no answer".into())),
    };
    Some(h::Op {
        process,
        member: place(member),
        user: None,
        call: op.invoked * NANOS,
        ret: ret * NANOS,
        request: request(&op.ask)?,
        outcome,
    })
}

fn request(ask: &Ask) -> Option<h::Request> {
    Some(match ask {
        Ask::Put(asked) => h::Request::Put(put(asked)),
        Ask::Delete(asked) => h::Request::Delete(delete(asked)),
        Ask::Range(asked) => h::Request::Range(range(asked)),
        Ask::Txn(asked) => h::Request::Txn(Box::new(txn(asked))),
        Ask::Compact(asked) => h::Request::Compact {
            revision: asked.revision,
        },
        Ask::Grant(asked) => h::Request::Grant {
            id: asked.id,
            ttl: asked.ttl,
        },
        Ask::Renew(id) => h::Request::KeepAlive { id: *id },
        Ask::Revoke(asked) => h::Request::Revoke { id: asked.id },
        Ask::Members(_) => return None,
    })
}

fn reply(ask: &Ask, answer: &Answer) -> Option<h::Reply> {
    let body = match answer {
        Answer::Put(reply) => body_of_put(reply),
        Answer::Delete(reply) => body_of_delete(reply),
        Answer::Range(reply) => body_of_range(reply),
        Answer::Txn(reply) => body_of_txn(reply),
        Answer::Compact(_) | Answer::Revoked(_) => h::Body::Done,
        Answer::Grant(reply) => h::Body::Lease {
            id: reply.id,
            ttl: reply.ttl,
        },
        Answer::Renewed(ttl) => match ask {
            Ask::Renew(id) => h::Body::Lease { id: *id, ttl: *ttl },
            _ => return None,
        },
        Answer::Members => return None,
    };
    Some(h::Reply {
        revision: crate::judge::revision_of(answer),
        body,
    })
}

fn refusal(error: &RpcError) -> h::Refusal {
    let says = |is: Error| error.message == is.to_string();
    if says(Error::Compacted) {
        h::Refusal::Compacted
    } else if says(Error::FutureRevision) {
        h::Refusal::FutureRevision
    } else if says(Error::LeaseNotFound) {
        h::Refusal::LeaseNotFound
    } else if says(Error::LeaseExists) {
        h::Refusal::LeaseExists
    } else {
        h::Refusal::Other(error.message.as_str().into())
    }
}

fn put(asked: &PutRequest) -> h::Put {
    h::Put {
        key: asked.key.clone().into(),
        value: asked.value.clone().into(),
        lease: asked.lease,
        prev_kv: asked.prev_kv,
        ignore_value: asked.ignore_value,
        ignore_lease: asked.ignore_lease,
    }
}

fn delete(asked: &DeleteRangeRequest) -> h::Delete {
    h::Delete {
        key: asked.key.clone().into(),
        end: asked.range_end.clone().into(),
        prev_kv: asked.prev_kv,
    }
}

fn range(asked: &RangeRequest) -> h::Range {
    h::Range {
        key: asked.key.clone().into(),
        end: asked.range_end.clone().into(),
        limit: asked.limit,
        revision: asked.revision,
        serializable: asked.serializable,
        keys_only: asked.keys_only,
        count_only: asked.count_only,
    }
}

fn txn(asked: &TxnRequest) -> h::Txn {
    let one = |op: &RequestOp| match op {
        RequestOp::Range(asked) => h::TxnOp::Range(range(asked)),
        RequestOp::Put(asked) => h::TxnOp::Put(put(asked)),
        RequestOp::DeleteRange(asked) => h::TxnOp::Delete(delete(asked)),
        RequestOp::Txn(asked) => h::TxnOp::Txn(Box::new(txn(asked))),
        // Nobody asks for nothing.
        RequestOp::Empty => h::TxnOp::Range(h::Range::default()),
    };
    h::Txn {
        compare: asked.compare.iter().map(compare).collect(),
        success: asked.success.iter().map(one).collect(),
        failure: asked.failure.iter().map(one).collect(),
    }
}

fn compare(asked: &Compare) -> h::Compare {
    h::Compare {
        key: asked.key.clone().into(),
        end: asked.range_end.clone().into(),
        is: match asked.result {
            CompareResult::Equal => h::Is::Equal,
            CompareResult::NotEqual => h::Is::NotEqual,
            CompareResult::Greater => h::Is::Greater,
            CompareResult::Less => h::Is::Less,
        },
        to: match &asked.target {
            CompareTarget::Version(given) => h::Target::Version(*given),
            CompareTarget::CreateRevision(given) => h::Target::Create(*given),
            CompareTarget::ModRevision(given) => h::Target::Mod(*given),
            CompareTarget::Value(given) => h::Target::Value(given.clone().into()),
            CompareTarget::Lease(given) => h::Target::Lease(*given),
        },
    }
}

fn pair(kv: &KeyValue) -> h::Kv {
    h::Kv {
        key: kv.key.clone().into(),
        value: kv.value.clone().into(),
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn boxed(kv: Option<&KeyValue>) -> Option<Box<h::Kv>> {
    kv.map(|kv| Box::new(pair(kv)))
}

fn body_of_put(reply: &PutReply) -> h::Body {
    h::Body::Put {
        prev: boxed(reply.prev_kv.as_ref()),
    }
}

fn body_of_delete(reply: &DeleteReply) -> h::Body {
    h::Body::Delete {
        deleted: reply.deleted,
        prev: reply.prev_kvs.iter().map(pair).collect(),
    }
}

fn body_of_range(reply: &RangeReply) -> h::Body {
    h::Body::Range {
        kvs: reply.kvs.iter().map(pair).collect(),
        count: reply.count,
        more: reply.more,
    }
}

fn body_of_txn(reply: &TxnReply) -> h::Body {
    let one = |op: &ResponseOp| match op {
        ResponseOp::Range(reply) => body_of_range(reply),
        ResponseOp::Put(reply) => body_of_put(reply),
        ResponseOp::DeleteRange(reply) => body_of_delete(reply),
        ResponseOp::Txn(reply) => body_of_txn(reply),
    };
    h::Body::Txn {
        succeeded: reply.succeeded,
        results: reply.responses.iter().map(one).collect(),
    }
}

fn change(event: &Event, prev: bool) -> h::Event {
    h::Event {
        delete: event.kind == EventKind::Delete,
        kv: pair(&event.kv),
        prev: boxed(event.prev_kv().filter(|_| prev)),
    }
}

/// Writes down what came by a stream.
fn watched(history: &mut h::History, stream: &Stream) {
    let asked = &stream.create;
    let request = h::WatchRequest {
        key: asked.key.clone().into(),
        end: asked.range_end.clone().into(),
        revision: asked.start_revision,
        prev_kv: asked.prev_kv,
        progress: asked.progress_notify,
        no_put: asked.filter_put,
        no_delete: asked.filter_delete,
        fragment: false,
    };
    // Out of the clients' way, which are numbered from below.
    let process = u32::MAX / 2 + stream.watcher as u32;
    let watch = history.watch(process, stream.opened * NANOS, request);
    watch.member = place(stream.member);
    let told = stream.told.iter();
    watch
        .told
        .extend(told.map(|(at, reply)| (at * NANOS, heard(reply))));
}

fn heard(reply: &WatchReply) -> h::Told {
    let revision = reply.revision;
    if reply.canceled && reply.compact_revision > 0 {
        return h::Told::Compacted {
            revision: reply.compact_revision,
        };
    }
    if reply.canceled {
        return h::Told::Canceled(reply.cancel_reason.as_str().into());
    }
    if reply.created {
        return h::Told::Created { revision };
    }
    if reply.events.is_empty() {
        return h::Told::Progress { revision };
    }
    let events = reply.events.iter();
    h::Told::Events {
        revision,
        events: events.map(|event| change(event, reply.prev_kv)).collect(),
        fragment: false,
    }
}

/// Reads a transaction on registers as Elle does.
fn registers(op: &Op, process: u32, now: Time) -> Option<h::ListTxn> {
    let Ask::Txn(txn) = &op.ask else { return None };
    let (reply, outcome) = match &op.ended {
        Some((_, End::Ok(Answer::Txn(reply)))) => (Some(reply), h::Known::Ok),
        Some((_, End::Fail(_))) => (None, h::Known::Fail),
        _ => (None, h::Known::Info),
    };
    let mut ops = Vec::new();
    for (at, asked) in txn.success.iter().enumerate() {
        ops.push(match asked {
            RequestOp::Put(put) => {
                h::Micro::Write(register_of(&put.key)?, value_number(&put.value)?)
            }
            RequestOp::Range(range) => {
                let answer = reply.and_then(|reply| reply.responses.get(at));
                let found = answer.map(|answer| match answer {
                    ResponseOp::Range(found) => found.kvs.first().map(|kv| value_number(&kv.value)),
                    _ => None,
                });
                // Of a value that nobody writes like that Elle says that it is nobody's.
                let found = found.map(|found| found.map(|number| number.unwrap_or(u64::MAX)));
                h::Micro::Get(register_of(&range.key)?, found)
            }
            RequestOp::DeleteRange(_) | RequestOp::Txn(_) | RequestOp::Empty => return None,
        });
    }
    let ended = op.ended.as_ref().map_or(now, |(at, _)| *at);
    let span = h::Span {
        process,
        call: op.invoked * NANOS,
        ret: ended * NANOS,
    };
    Some(h::ListTxn { span, ops, outcome })
}

#[cfg(test)]
mod tests;
