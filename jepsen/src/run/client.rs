//! A client: it asks one thing at a time, never again by itself, and writes down
//! what it was told.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use checkers::history::{
    Blob, Kv, Op, Outcome, Put, Range, Record, Reply, Request, Span, Txn, TxnOp,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::wire::{self, Token};
use super::world::World;

/// How long a client waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long it rests after a connection was refused.
const REST: Duration = Duration::from_millis(50);

/// One client.
pub(super) struct Client {
    pub(super) world: Rc<World>,
    /// Its number in its workload.
    pub(super) number: usize,
    /// Its number in the history; another after each answer that did not come.
    pub(super) process: u32,
    /// Which member it asks.
    pub(super) member: usize,
    pub(super) rng: StdRng,
    /// As whom it asks.
    pub(super) user: Option<Arc<str>>,
    pub(super) token: Option<Token>,
    /// How long it waits for an answer.
    pub(super) patience: Duration,
}

impl Client {
    /// Makes one; all it draws comes from the seed.
    pub(super) fn new(world: &Rc<World>, number: usize, seed: u64) -> Self {
        let members = world.members();
        Self {
            world: world.clone(),
            number,
            process: world.process(),
            member: members
                .get(number % members.len().max(1))
                .copied()
                .unwrap_or(0),
            rng: StdRng::seed_from_u64(seed),
            user: None,
            token: None,
            patience: PATIENCE,
        }
    }

    /// Asks, and writes down what came of it.
    pub(super) async fn ask(&mut self, request: Request) -> Outcome {
        self.world.pace().await;
        let Some(channel) = self.channel() else {
            tokio::time::sleep(REST).await;
            return Outcome::Info("there are no members".into());
        };
        let call = self.world.now();
        let outcome = wire::ask(&channel, self.token.as_ref(), &request, self.patience).await;
        let op = Op {
            process: self.process,
            member: u8::try_from(self.member).unwrap_or(u8::MAX),
            user: self.user.clone(),
            call,
            ret: self.world.now(),
            request,
            outcome: outcome.clone(),
        };
        self.world.record(Record::Op(op));
        match &outcome {
            Outcome::Ok(reply) => self.world.told(reply.revision),
            Outcome::Fail(checkers::history::Refusal::Other(_)) => {
                tokio::time::sleep(REST).await;
                self.move_on();
            }
            Outcome::Fail(_) => {}
            Outcome::Info(_) => {
                self.process = self.world.process();
                self.move_on();
            }
        }
        outcome
    }

    /// Asks, and returns the answer if there is one.
    pub(super) async fn get_reply(&mut self, request: Request) -> Option<Reply> {
        match self.ask(request).await {
            Outcome::Ok(reply) => Some(reply),
            _ => None,
        }
    }

    fn channel(&mut self) -> Option<tonic::transport::Channel> {
        if self.world.channel(self.member).is_none() {
            self.move_on();
        }
        self.world.channel(self.member)
    }

    /// Goes on with another member now and then, as clients with several addresses
    /// do; the others stay, or nobody would ask who is in trouble.
    pub(super) fn move_on(&mut self) {
        let members = self.world.members();
        if members.is_empty() {
            return;
        }
        let gone = !members.contains(&self.member);
        if gone || self.rng.random_bool(0.3) {
            self.member = members[self.rng.random_range(0..members.len())];
        }
    }

    /// Returns a value nobody wrote before.
    pub(super) fn unique(&self) -> Blob {
        self.world.count("unique").to_string().into()
    }

    /// Returns the span of something that began then and ends now.
    pub(super) fn span(&self, process: u32, call: u64) -> Span {
        Span {
            process,
            call,
            ret: self.world.now(),
        }
    }

    /// Reads one key.
    pub(super) async fn read(&mut self, key: &Blob) -> Option<Option<Kv>> {
        let reply = self.get_reply(get(key.clone())).await?;
        Some(first(&reply.body))
    }
}

/// Reads one key.
pub(super) fn get(key: impl Into<Blob>) -> Request {
    Request::Range(Range {
        key: key.into(),
        ..Range::default()
    })
}

/// Writes one key.
pub(super) fn put(key: impl Into<Blob>, value: impl Into<Blob>) -> Put {
    Put {
        key: key.into(),
        value: value.into(),
        ..Put::default()
    }
}

/// Reads one key, in a transaction.
pub(super) fn in_txn(key: impl Into<Blob>) -> TxnOp {
    TxnOp::Range(Range {
        key: key.into(),
        ..Range::default()
    })
}

/// Makes a request of a transaction.
pub(super) fn txn(txn: Txn) -> Request {
    Request::Txn(Box::new(txn))
}

/// Returns the first pair of an answer.
pub(super) fn first(body: &checkers::history::Body) -> Option<Kv> {
    match body {
        checkers::history::Body::Range { kvs, .. } => kvs.first().cloned(),
        _ => None,
    }
}
