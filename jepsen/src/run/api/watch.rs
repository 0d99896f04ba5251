//! Clients that watch: from a list, over cuts, other replicas, restarts and
//! compactions, until they were told everything.

use std::time::Duration;

use bytes::BytesMut;
use checkers::history::{ApiOpen, ApiSaid, ApiTold, Came, Read, Record, Scope, Since};
use client::transport::ResponseBody;
use http::Request;
use http_body_util::{BodyExt, Full};
use rand::Rng;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::END_PATIENCE;
use super::object::{CONFIG_MAPS, path_of_scope, seen, version};
use super::read::scope;
use super::talk::Talker;

/// How long the answer to a watch may take to begin.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
/// After how many seconds the server is to end a watch; it sends a bookmark before.
const SERVER_ENDS: std::ops::Range<u32> = 4..12;
/// How long a client rests before it watches anew.
const REST: Duration = Duration::from_millis(50);
/// How often a watch that hears nothing looks whether the run is over.
const LOOK: Duration = Duration::from_millis(200);
/// The longest event taken.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Marks, in a bookmark, that all came that was there.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Watches one scope until the run is over and everything was told.
pub(super) async fn run(mut client: Talker) {
    let scope = scope(&mut client);
    // Whatever else is written goes on; there is no last change that must come.
    let due = &*scope.resource == CONFIG_MAPS;
    let whole = client.rng.random_bool(0.35);
    let mut at: Option<i64> = None;
    let mut deadline = None;
    loop {
        if let Some(finish) = client.shared.finish.get() {
            let late = *deadline.get_or_insert_with(|| Instant::now() + END_PATIENCE);
            if !due || at.is_some_and(|at| at >= finish) || Instant::now() > late {
                return;
            }
        }
        let from = match at {
            Some(rv) => Since::After(rv),
            None if whole => Since::State(Read::Fresh),
            None => match client.list(&scope, Read::Fresh).await {
                Came::Ok(answer) => Since::After(answer.rv),
                _ => continue,
            },
        };
        at = Watching::new(&mut client, &scope, from, due).run().await;
        if client.rng.random_bool(0.7) {
            client.move_on();
        }
        tokio::time::sleep(REST).await;
    }
}

/// One watch.
struct Watching<'a> {
    client: &'a mut Talker,
    scope: &'a Scope,
    from: Since,
    id: u64,
    /// The version from which to go on, unless all has to be listed anew.
    at: Option<i64>,
    /// Whether something must come at the end.
    due: bool,
}

/// Whether a watch goes on.
enum Next {
    More,
    End,
}

impl<'a> Watching<'a> {
    fn new(client: &'a mut Talker, scope: &'a Scope, from: Since, due: bool) -> Self {
        let world = client.world();
        let id = world.count("api watch");
        world.record(Record::ApiOpen(ApiOpen {
            id,
            process: client.process,
            replica: u8::try_from(client.replica).unwrap_or(u8::MAX),
            at: world.now(),
            scope: scope.clone(),
            from,
        }));
        let at = match from {
            Since::After(rv) => Some(rv),
            Since::State(_) => None,
        };
        Self {
            client,
            scope,
            from,
            id,
            at,
            due,
        }
    }

    fn told(&mut self, said: ApiTold) {
        let world = self.client.world();
        if let Some(rv) = said.version() {
            world.told(rv);
            // Before its end is marked, a state is not one to go on from.
            let whole = matches!(said, ApiTold::InitialEnd(_));
            if let Some(at) = &mut self.at {
                *at = rv.max(*at);
            } else if whole {
                self.at = Some(rv);
            }
        }
        if matches!(said, ApiTold::Expired) {
            self.at = None;
        }
        world.record(Record::ApiSaid(ApiSaid {
            id: self.id,
            at: world.now(),
            said,
        }));
    }

    /// Watches to the end, and returns from where to go on.
    async fn run(mut self) -> Option<i64> {
        match self.open().await {
            Some(body) => self.follow(body).await,
            None => {
                self.told(ApiTold::Lost);
                tokio::time::sleep(REST).await;
            }
        }
        self.at
    }

    async fn open(&mut self) -> Option<ResponseBody> {
        let seconds = self.client.rng.random_range(SERVER_ENDS);
        let from = match self.from {
            Since::After(rv) => format!("resourceVersion={rv}"),
            Since::State(_) => {
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
            }
        };
        let path = format!(
            "{}watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{from}",
            path_of_scope(self.scope)
        );
        let request = Request::get(&path).body(Full::default()).ok()?;
        let link = self.client.link();
        let opened = tokio::time::timeout(OPEN_PATIENCE, link.request_raw(request));
        let response = opened.await.ok()?.ok()?;
        match response.status().as_u16() {
            200 => return Some(response.into_body()),
            410 => self.told(ApiTold::Expired),
            429 | 500.. => {}
            odd => self.client.shared.odd(format!("GET {path}: {odd}")),
        }
        None
    }

    /// Takes what comes, until either side has enough.
    async fn follow(&mut self, mut body: ResponseBody) {
        let span = Duration::from_millis(self.client.rng.random_range(200..15_000));
        let cut = Instant::now() + span;
        let mut late: Option<Instant> = None;
        let mut buffer = BytesMut::new();
        loop {
            let finish = self.client.shared.finish.get();
            let now = Instant::now();
            if let Some(finish) = finish {
                if !self.due {
                    return self.told(ApiTold::Lost);
                }
                if self.at.is_some_and(|at| at >= finish) {
                    return self.told(ApiTold::Due(finish));
                }
                let late = *late.get_or_insert(now + END_PATIENCE);
                if now > late {
                    return self.told(ApiTold::Due(finish));
                }
            } else if now > cut {
                return self.told(ApiTold::Lost);
            }
            let frame = match timeout_at(now + LOOK, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(_) => return self.told(ApiTold::Lost),
                Err(_elapsed) => continue,
            };
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                if let Next::End = self.line(&line) {
                    return;
                }
            }
            if buffer.len() > LINE_BYTES_MAX {
                return self.told(ApiTold::Lost);
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Next {
        let shared = self.client.shared.clone();
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            shared.odd(format!("watch of {}: a line that is no JSON", self.scope));
            self.told(ApiTold::Lost);
            return Next::End;
        };
        let object = &event["object"];
        let seen = || seen(&self.scope.resource, object);
        let said = match event["type"].as_str().unwrap_or_default() {
            "ADDED" => ApiTold::Added(seen()),
            "MODIFIED" => ApiTold::Modified(seen()),
            "DELETED" => ApiTold::Deleted(seen()),
            "BOOKMARK" if object["metadata"]["annotations"][INITIAL_END] == "true" => {
                ApiTold::InitialEnd(version(object))
            }
            "BOOKMARK" => ApiTold::Bookmark(version(object)),
            "ERROR" if object["code"] == 410 => ApiTold::Expired,
            other => {
                if object["code"].as_u64().is_none_or(|code| code < 429) {
                    shared.odd(format!("watch of {}: {other} {object}", self.scope));
                }
                ApiTold::Lost
            }
        };
        let ends = matches!(said, ApiTold::Expired | ApiTold::Lost);
        let times = match said.object() {
            Some(_) => shared.liar.times(),
            None => 1,
        };
        for _ in 0..times {
            self.told(said.clone());
        }
        match ends {
            true => Next::End,
            false => Next::More,
        }
    }
}
