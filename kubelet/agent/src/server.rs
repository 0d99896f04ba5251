//! What the API server asks of a node: logs, streams, pods, health, metrics.
//!
//! HTTPS with a required client certificate; see [`crate::serving`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use kubelet_core::cri_log::Stream;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::driver::{Event, LogQuestion, StreamQuestion};
use crate::error::AgentError;
use crate::logs::{LogOptions, send_log};
use crate::options::AgentOptions;
use crate::runtime::{Runtime, now};
use crate::session::Wanted;
use crate::streaming::{self, Asked, Place, PodPorts, Task};

/// How many connections are served at once; others wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take for the TLS handshake, and then for its request's head.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many chunks of a log wait for a slow reader; beyond this the log waits.
const LOG_CHUNKS_MAX: usize = 4;

type Body = BoxBody<Bytes, std::io::Error>;

/// The kubelet's server.
#[derive(Clone)]
pub(crate) struct Server {
    runtime: Arc<dyn Runtime>,
    questions: mpsc::Sender<Event>,
    tls: TlsAcceptor,
}

/// Binds the server's port.
pub(crate) async fn bind(options: &AgentOptions) -> Result<TcpListener, AgentError> {
    let address = SocketAddr::new(options.node_ip, options.port);
    TcpListener::bind(address)
        .await
        .map_err(|source| AgentError::Listen { address, source })
}

impl Server {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        questions: mpsc::Sender<Event>,
        tls: Arc<rustls::ServerConfig>,
    ) -> Self {
        Server {
            runtime,
            questions,
            tls: TlsAcceptor::from(tls),
        }
    }

    /// Serves until cancelled.
    pub(crate) async fn serve(self, listener: TcpListener, token: CancellationToken) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                () = token.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or the like: give it a moment.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (server, token) = (self.clone(), token.clone());
            let place = Place {
                token: token.clone(),
                slot: Arc::new(slot),
            };
            tokio::spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = server.connection(stream, place) => {}
                }
            });
        }
    }

    async fn connection(self, stream: TcpStream, place: Place) {
        match tokio::time::timeout(PATIENCE, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => self.http(stream, place).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_elapsed) => {}
        }
    }

    async fn http<S>(self, stream: S, place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request| {
            let (server, place) = (self.clone(), place.clone());
            async move { Ok::<_, Infallible>(server.respond(request, place).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "connection ended");
        }
    }

    async fn respond(&self, request: Request<Incoming>, place: Place) -> Response<Body> {
        let path = request.uri().path().trim_matches('/').to_owned();
        let path: Vec<&str> = path.split('/').collect();
        if let ["exec" | "attach" | "portForward", target @ ..] = path.as_slice() {
            let begun = self.stream(path[0], target, request, place).await;
            return begun.unwrap_or_else(|(status, message)| text(status, &message));
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here");
        }
        match path.as_slice() {
            ["healthz"] => text(StatusCode::OK, "ok"),
            ["pods"] => self.pods().await,
            ["metrics"] => self.metrics().await,
            ["containerLogs", namespace, pod, container] => {
                let query = request.uri().query().unwrap_or_default();
                self.logs(namespace, pod, container, query).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }

    /// Begins a stream: `/exec/<namespace>/<pod>[/<uid>]/<container>`, `attach`
    /// alike, `portForward` without a container.
    async fn stream(
        &self,
        what: &str,
        target: &[&str],
        request: Request<Incoming>,
        place: Place,
    ) -> Result<Response<Body>, (StatusCode, String)> {
        let bad = |message| (StatusCode::BAD_REQUEST, message);
        if !matches!(*request.method(), Method::GET | Method::POST) {
            let message = "only GET and POST are served here".to_owned();
            return Err((StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let forwards = what == "portForward";
        let (namespace, pod, uid, container) = match *target {
            [namespace, pod] if forwards => (namespace, pod, None, None),
            [namespace, pod, uid] if forwards => (namespace, pod, Some(uid), None),
            [namespace, pod, container] => (namespace, pod, None, Some(container)),
            [namespace, pod, uid, container] if !forwards => {
                (namespace, pod, Some(uid), Some(container))
            }
            _ => return Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
        };
        let asked = Asked(pairs(request.uri().query().unwrap_or_default()));
        let (wanted, ports) = if forwards {
            (Wanted::default(), streaming::ports(&asked).map_err(bad)?)
        } else {
            (streaming::wanted(&asked).map_err(bad)?, Vec::new())
        };
        let question = StreamQuestion {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uid.map(str::to_owned),
            container: container.map(str::to_owned),
        };
        let answer = self.ask(|answer| Event::Stream(question, answer)).await;
        let found = match answer {
            Some(Ok(found)) => found,
            Some(Err(refusal)) => return Err((refusal.status(), refusal.to_string())),
            None => return Ok(ending()),
        };
        let id = found.container_id;
        let task = match what {
            "exec" => Task::Exec {
                id,
                command: asked.all("command").map(str::to_owned).collect(),
                wanted,
            },
            "attach" => Task::Attach { id, wanted },
            _ => Task::Forward(PodPorts {
                uid: found.pod_uid,
                name: pod.to_owned(),
                ports,
            }),
        };
        let accepted = streaming::begin(request, Arc::clone(&self.runtime), task, place)?;
        let empty = Full::new(Bytes::new()).map_err(|never| match never {});
        let mut response = Response::new(empty.boxed());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().extend(accepted.headers());
        Ok(response)
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.questions.send(question(sender)).await.ok()?;
        receiver.await.ok()
    }

    async fn pods(&self) -> Response<Body> {
        let Some(pods) = self.ask(Event::List).await else {
            return ending();
        };
        let pods: Vec<_> = pods.iter().map(|pod| json!(**pod)).collect();
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods});
        let mut response = text(StatusCode::OK, &list.to_string());
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    async fn metrics(&self) -> Response<Body> {
        let Some(pods) = self.ask(Event::List).await else {
            return ending();
        };
        let containers = self.runtime.relist().await;
        let running = containers.iter().filter(|c| c.instance.is_alive()).count();
        let exited = containers.len() - running;
        let pods = pods.len();
        let body = format!(
            "# HELP kubelet_running_pods Number of pods this kubelet manages.\n\
             # TYPE kubelet_running_pods gauge\n\
             kubelet_running_pods {pods}\n\
             # HELP kubelet_running_containers Number of containers by state.\n\
             # TYPE kubelet_running_containers gauge\n\
             kubelet_running_containers{{container_state=\"running\"}} {running}\n\
             kubelet_running_containers{{container_state=\"exited\"}} {exited}\n"
        );
        text(StatusCode::OK, &body)
    }

    async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &str,
    ) -> Response<Body> {
        let (options, previous) = match log_options(query, now()) {
            Ok(parsed) => parsed,
            Err(message) => return text(StatusCode::BAD_REQUEST, &message),
        };
        let question = LogQuestion {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            previous,
        };
        let (id, path) = match self.ask(|answer| Event::Log(question, answer)).await {
            Some(Ok(found)) => found,
            Some(Err(refusal)) => return text(refusal.status(), &refusal.to_string()),
            None => return ending(),
        };
        let (sender, receiver) = mpsc::channel(LOG_CHUNKS_MAX);
        let runtime = Arc::clone(&self.runtime);
        tokio::spawn(async move {
            send_log(&path, &options, || runtime.is_alive(&id), &sender).await;
        });
        let chunks = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        let body = StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)));
        respond(
            StatusCode::OK,
            "text/plain; charset=utf-8",
            BodyExt::boxed(body),
        )
    }
}

/// Reads a log request's query, whose names are the pods/log subresource's.
fn log_options(query: &str, now: Timestamp) -> Result<(LogOptions, bool), String> {
    let pairs: BTreeMap<String, String> = pairs(query).into_iter().collect();
    let flag = |name: &str| {
        pairs
            .get(name)
            .is_some_and(|v| matches!(&**v, "true" | "1"))
    };
    let number = |name: &str| match pairs.get(name).map(|v| v.parse::<u64>()) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(format!(
            "{name} must be a whole number that is not negative"
        )),
    };
    let since = match (pairs.get("sinceTime"), number("sinceSeconds")?) {
        (Some(time), _) => {
            let time = time.parse::<Timestamp>();
            Some(time.map_err(|_not_a_time| "sinceTime must be an RFC 3339 time".to_owned())?)
        }
        (None, Some(seconds)) => {
            let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.checked_sub(span).unwrap_or(Timestamp::MIN))
        }
        (None, None) => None,
    };
    let options = LogOptions {
        follow: flag("follow"),
        tail_lines: number("tailLines")?,
        since,
        timestamps: flag("timestamps"),
        limit_bytes: number("limitBytes")?,
        stream: match pairs.get("stream").map(String::as_str) {
            None | Some("" | "All") => None,
            Some("Stdout") => Some(Stream::Stdout),
            Some("Stderr") => Some(Stream::Stderr),
            Some(other) => return Err(format!("invalid log stream {other:?}")),
        },
    };
    Ok((options, flag("previous")))
}

/// Takes a query apart.
fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        (decode(name), decode(value))
    });
    decoded.collect()
}

/// Decodes `%XX` and `+`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|h| u8::from_str_radix(h, 16).ok()),
            _ => None,
        };
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ending() -> Response<Body> {
    text(StatusCode::SERVICE_UNAVAILABLE, "the kubelet is ending")
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(text.to_owned()))
        .map_err(|never| match never {})
        .boxed();
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let value = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn queries_are_read_as_the_api_names_them() {
        let now = Timestamp::from_second(1_000).unwrap();
        let (options, previous) = log_options(
            "follow=true&tailLines=5&sinceSeconds=10&timestamps=true&limitBytes=9",
            now,
        )
        .unwrap();
        assert!(options.follow && options.timestamps && !previous);
        assert_eq!(
            (options.tail_lines, options.limit_bytes),
            (Some(5), Some(9))
        );
        assert_eq!(options.since, Some(Timestamp::from_second(990).unwrap()));
        let (options, previous) =
            log_options("previous=true&sinceTime=1970-01-01T00%3A00%3A07Z", now).unwrap();
        assert!(previous && !options.follow && options.stream.is_none());
        assert_eq!(options.since, Some(Timestamp::from_second(7).unwrap()));
        let (options, _) = log_options("stream=Stderr", now).unwrap();
        assert_eq!(options.stream, Some(Stream::Stderr));
        for bad in [
            "tailLines=-1",
            "tailLines=x",
            "sinceTime=yesterday",
            "limitBytes=",
            "stream=stderr",
        ] {
            assert!(log_options(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn percent_signs_are_decoded_and_broken_ones_kept() {
        assert_eq!(decode("a%20b+c%"), "a b c%");
        assert_eq!(decode("%zz%2"), "%zz%2");
    }
}
