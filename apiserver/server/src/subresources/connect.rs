//! `exec`, `attach` and `portforward`: a connection that is handed through to the
//! kubelet of the pod's node. Once the kubelet agrees to the upgrade this server
//! only copies bytes, whatever they mean.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use meta::value;
use meta::{Reason, Status};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::kubelet;
use crate::api::{Api, Target};
use crate::authn;
use crate::body::{self, BoxBody};
use crate::pipeline::Context;
use crate::query::Query;

/// The headers of an upgrade, handed through in both directions.
const HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::USER_AGENT,
    HeaderName::from_static("x-stream-protocol-version"),
];
/// How soon a client that found no place may come again, in seconds.
const RETRY_SECONDS: u32 = 1;

/// Which connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connect {
    /// A command beside a container.
    Exec,
    /// A container's own process.
    Attach,
    /// Ports of a pod.
    PortForward,
}

/// Hands a connection through to a kubelet.
pub(super) async fn serve(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    what: Connect,
) -> Result<Response<BoxBody>, Status> {
    let query = what.query(&cx.query)?;
    let pod = kubelet::pod(target).await?;
    // Names are checked against RFC 1123 on their way in: no escapes needed.
    let (ns, name) = (value::namespace(&pod), value::name(&pod));
    let path = match what {
        Connect::PortForward => format!("/portForward/{ns}/{name}"),
        Connect::Exec | Connect::Attach => {
            let container = kubelet::container(&pod, cx.query.non_empty("container"))?;
            format!("/{}/{ns}/{name}/{container}", what.path())
        }
    };
    let node = kubelet::node_of(api, &pod).await?;
    let pairs: Vec<(&str, &str)> = query.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let uri = kubelet::uri(&node, &path, &pairs)?;
    let Some(client) = cx.upgrade.take().filter(|_| wants_upgrade(&cx.headers)) else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let place = Arc::clone(&api.kubelets.streams)
        .try_acquire_owned()
        .map_err(|_full| {
            let text = "too many streams, please try again later";
            Status::failure(Reason::TooManyRequests, text).with_retry_after(RETRY_SECONDS)
        })?;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = cx.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = handed_through(&cx.headers);
    let mut answer = api.kubelets.upgrade(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(kubelet::refusal(answer).await);
    }
    let kubelet = hyper::upgrade::on(&mut answer);
    tokio::spawn(join(client, kubelet, place, api.shutdown.clone()));
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = handed_through(answer.headers());
    Ok(response)
}

impl Connect {
    fn path(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portForward",
        }
    }

    /// Translates the options into the kubelet's words.
    fn query(self, query: &Query) -> Result<Vec<(&'static str, String)>, Status> {
        let mut pairs = Vec::new();
        if self == Self::PortForward {
            let ports = ports(query)?;
            if !ports.is_empty() {
                pairs.push(("port", ports.join(",")));
            }
            return Ok(pairs);
        }
        let flags = [
            ("stdin", "input", false),
            ("stdout", "output", true),
            ("stderr", "error", true),
            ("tty", "tty", false),
        ];
        for (ours, theirs, default) in flags {
            let given = query.get(ours).map_or(default, |_| query.flag(ours));
            if given {
                pairs.push((theirs, "1".to_owned()));
            }
        }
        if self == Self::Exec {
            let words = query.all("command");
            pairs.extend(words.map(|word| ("command", word.to_owned())));
        }
        Ok(pairs)
    }
}

/// Reads the ports that websocket clients name in the query.
fn ports(query: &Query) -> Result<Vec<String>, Status> {
    let given = query.all("ports").flat_map(|list| list.split(','));
    given
        .filter(|port| !port.is_empty())
        .map(|port| match port.parse::<u16>() {
            Ok(port) => Ok(port.to_string()),
            Err(e) => Err(Status::bad_request(format!(
                "invalid value for ports: {port:?}: {e}"
            ))),
        })
        .collect()
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let words = headers.get_all(header::CONNECTION).iter();
    let mut words = words
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
        && headers.contains_key(header::UPGRADE)
}

/// Copies the headers of an upgrade, without a token among the subprotocols.
fn handed_through(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    for name in HEADERS {
        for value in headers.get_all(&name) {
            if name != header::SEC_WEBSOCKET_PROTOCOL {
                out.append(name.clone(), value.clone());
                continue;
            }
            let text = value.to_str().unwrap_or_default();
            let kept: Vec<&str> = authn::subprotocols(text)
                .filter(|p| !p.starts_with(authn::BEARER_PROTOCOL))
                .collect();
            if let Ok(value) = HeaderValue::from_str(&kept.join(", "))
                && !kept.is_empty()
            {
                out.append(name.clone(), value);
            }
        }
    }
    out
}

/// Copies bytes both ways until both sides have ended, one of them has gone, or
/// the server stops. The end of one direction is passed on and the other goes on.
async fn join(
    client: OnUpgrade,
    kubelet: OnUpgrade,
    place: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) {
    let copied = async {
        let (client, kubelet) = tokio::try_join!(client, kubelet)?;
        let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
        // Holds one small buffer for each direction; a slow side holds the other up.
        let copied = tokio::io::copy_bidirectional(&mut client, &mut kubelet).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "a stream broke off");
        }
        Ok::<_, hyper::Error>(())
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        copied = copied => if let Err(error) = copied {
            tracing::debug!(%error, "no stream came of an upgrade");
        },
    }
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(what: Connect, text: &str) -> Vec<(&'static str, String)> {
        what.query(&Query::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn options_are_translated() {
        let given = "command=sh&command=-c&command=exit+3&stdin=true&stderr=0&tty=false&x=1";
        let own = |n, v: &str| (n, v.to_owned());
        assert_eq!(
            query(Connect::Exec, given),
            [
                own("input", "1"),
                own("output", "1"),
                own("command", "sh"),
                own("command", "-c"),
                own("command", "exit 3"),
            ]
        );
        assert_eq!(query(Connect::Attach, "stderr=false"), [own("output", "1")]);
        assert_eq!(
            query(Connect::PortForward, "ports=80,81&ports=82"),
            [own("port", "80,81,82")]
        );
        let bad = Query::parse("ports=70000").unwrap();
        assert_eq!(Connect::PortForward.query(&bad).unwrap_err().code, 400);
    }

    #[test]
    fn tokens_stay_here() {
        let mut headers = HeaderMap::new();
        let protocols = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
        headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        let through = handed_through(&headers);
        assert_eq!(through["sec-websocket-protocol"], "v5.channel.k8s.io");
        assert_eq!(through["upgrade"], "websocket");
        assert!(through.get("authorization").is_none());
    }
}
