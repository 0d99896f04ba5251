//! What a member that handles passwords and tokens says of them in its log, however
//! much it is told to say: nothing.
//!
//! A process of its own, since it listens to every event of every thread.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

#[path = "it/store.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod store;

use std::{
    fmt::{Debug, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proto::etcdserverpb::{self as pb, auth_client::AuthClient};
use tonic::transport::Channel;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::store::{Store, put, range};

/// Takes down every event and span of every crate, down to the finest level.
#[derive(Clone, Default)]
struct Scribe {
    text: Arc<Mutex<String>>,
    spans: Arc<AtomicU64>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Scribe {
    fn note(&self, metadata: &Metadata<'_>, fields: impl FnOnce(&mut Line)) {
        let mut line = Line(metadata.target().to_owned());
        fields(&mut line);
        let mut text = self.text.lock().unwrap();
        text.push_str(&line.0);
        text.push('\n');
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        self.note(span.metadata(), |line| span.record(line));
        span::Id::from_u64(1 + self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.text.lock().unwrap().push_str(&line.0);
    }

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata(), |line| event.record(line));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The passwords in use. No other text has these words in it.
const FIRST: &str = "xylophone-first";
const SECOND: &str = "xylophone-second";
const WRONG: &str = "xylophone-wrong";

/// Adds a user, changes the password, and gets in and not, over gRPC; returns the
/// token.
async fn over_grpc(mut auth: AuthClient<Channel>, name: &str) -> String {
    let name = || name.to_owned();
    let add = pb::AuthUserAddRequest {
        name: name(),
        password: FIRST.to_owned(),
        ..pb::AuthUserAddRequest::default()
    };
    auth.user_add(add).await.unwrap();
    let change = pb::AuthUserChangePasswordRequest {
        name: name(),
        password: SECOND.to_owned(),
        ..pb::AuthUserChangePasswordRequest::default()
    };
    auth.user_change_password(change).await.unwrap();
    let role = || "root".to_owned();
    let add = pb::AuthRoleAddRequest { name: role() };
    auth.role_add(add).await.unwrap();
    let (user, role) = (name(), role());
    let grant = pb::AuthUserGrantRoleRequest { user, role };
    auth.user_grant_role(grant).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    let mut enter = async |password: &str| {
        let request = pb::AuthenticateRequest {
            name: name(),
            password: password.to_owned(),
        };
        auth.authenticate(request).await
    };
    assert!(enter(WRONG).await.is_err());
    enter(SECOND).await.unwrap().into_inner().token
}

/// The same over JSON, as one who may.
async fn over_json(store: &Store, token: &str) -> String {
    let post = async |path: &str, body: String| {
        let head = format!("POST /v3/auth/{path}\nAuthorization: {token}");
        store.http(&head, &body).await
    };
    let with = |password: &str| format!(r#"{{"name":"json","password":"{password}"}}"#);
    assert_eq!(post("user/add", with(FIRST)).await.status, 200);
    assert_eq!(post("user/changepw", with(SECOND)).await.status, 200);
    assert_eq!(post("authenticate", with(WRONG)).await.status, 400);
    // Half a text is told with its place in it, not with what it says.
    let half = format!(r#"{{"name":"json","password":"{FIRST}"#);
    assert_eq!(post("user/add", half).await.status, 400);
    let entered = post("authenticate", with(SECOND)).await;
    assert_eq!(entered.status, 200);
    let token = entered.body.split("\"token\":\"").nth(1).unwrap();
    token.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn no_password_and_no_token_is_ever_logged() {
    let scribe = Scribe::default();
    tracing::subscriber::set_global_default(scribe.clone()).unwrap();
    let store = Store::start_with(|config| {
        config.bcrypt_cost = 4;
        // Every call is a slow one, and told of.
        config.warning_unary_request_duration = Duration::from_nanos(1);
    })
    .await;
    let auth = AuthClient::new(store.channel().await);
    let tokens = [over_grpc(auth, "root").await];
    let tokens = [tokens[0].clone(), over_json(&store, &tokens[0]).await];
    for token in &tokens {
        let mut request = tonic::Request::new(range("a", ""));
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
        let answer = store.kv().await.0.range(request).await;
        assert_eq!(answer.is_ok(), token == &tokens[0], "root and another");
    }
    store.kv().await.0.put(put("a", "x")).await.unwrap_err();
    drop(store);

    let text = scribe.text.lock().unwrap();
    assert!(
        text.contains("h2::"),
        "nothing was heard of the connections"
    );
    assert!(text.contains("kvserver"), "nothing was heard of the member");
    for secret in ["xylophone", &tokens[0], &tokens[1]] {
        for form in [
            secret.to_owned(),
            hex(secret),
            format!("{:?}", secret.as_bytes()),
        ] {
            // As text, as hex, and as a list of bytes without its brackets.
            let form = form.trim_matches(['[', ']']);
            let line = text.lines().find(|line| line.contains(form));
            assert_eq!(line, None, "{secret} is in the log");
        }
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
