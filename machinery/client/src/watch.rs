//! Decodes a watch: a body of JSON events, one per line.
//!
//! The splitter ([`Lines`]) is pure and takes chunks cut anywhere; the stream puts
//! it behind a response body.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::Stream;
use http_body::Body;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::transport::ResponseBody;

/// Bounds one event; a longer one ends the watch with an error, and the reflector
/// lists again. Kubernetes refuses objects over 3 MiB, so this is ample.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Is one change, as the server sends it.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// Is an object that came into view.
    Added(T),
    /// Is an object that changed.
    Modified(T),
    /// Is the last state of an object that left the view.
    Deleted(T),
    /// Says that everything up to this resource version was sent.
    Bookmark {
        /// Is the version reached.
        resource_version: String,
        /// Marks the end of the initial events of a streaming list.
        initial_events_end: bool,
    },
    /// Is the server's reason to end the watch.
    Error(Box<Status>),
}

/// Yields the events of a watch until the server ends it.
///
/// An error is the last item. An event whose object cannot be decoded comes as
/// [`Error::Decode`] and does not end the stream.
pub struct WatchStream<T> {
    body: Option<ResponseBody>,
    lines: Lines,
    decoded: PhantomData<fn() -> T>,
}

/// Starts decoding a body.
pub(crate) fn decode<T>(body: ResponseBody) -> WatchStream<T> {
    WatchStream {
        body: Some(body),
        lines: Lines::default(),
        decoded: PhantomData,
    }
}

impl<T: DeserializeOwned> Stream for WatchStream<T> {
    type Item = Result<WatchEvent<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Poll::Ready(Some(parse(&line)));
            }
            let Some(body) = self.body.as_mut() else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if let Err(error) = self.lines.push(data) {
                        self.body = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Some(Err(error)) => {
                    self.body = None;
                    return Poll::Ready(Some(Err(Error::Transport(error))));
                }
                // A line without its end was cut off: the object is not whole.
                None => self.body = None,
            }
        }
    }
}

/// Splits chunks into lines. A chunk that holds whole lines is not copied.
#[derive(Debug, Default)]
struct Lines {
    partial: BytesMut,
    ready: VecDeque<Bytes>,
}

impl Lines {
    fn push(&mut self, mut chunk: Bytes) -> Result<()> {
        while let Some(end) = chunk.iter().position(|&b| b == b'\n') {
            let mut line = chunk.split_to(end);
            chunk.advance(1);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                line = self.partial.split().freeze();
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.ready.push_back(line);
            }
        }
        if self.partial.len() + chunk.len() > EVENT_BYTES_MAX {
            return Err(Error::Transport(
                format!("a watch event is longer than {EVENT_BYTES_MAX} bytes").into(),
            ));
        }
        self.partial.extend_from_slice(&chunk);
        Ok(())
    }

    fn next_line(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    type_: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// Marks the bookmark after which a streaming list is complete (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<WatchEvent<T>> {
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(Error::Decode)?;
    let object = envelope.object.get();
    let event = match envelope.type_.as_str() {
        "ADDED" => WatchEvent::Added(json(object)?),
        "MODIFIED" => WatchEvent::Modified(json(object)?),
        "DELETED" => WatchEvent::Deleted(json(object)?),
        "BOOKMARK" => {
            let meta = json::<BookmarkObject>(object)?.metadata;
            let initial_events_end = meta
                .annotations
                .is_some_and(|a| a.get(INITIAL_EVENTS_END).is_some_and(|v| v == "true"));
            let resource_version = meta.resource_version.unwrap_or_default();
            WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            }
        }
        "ERROR" => WatchEvent::Error(json(object)?),
        other => {
            let text = format!("unknown watch event type {other:?}");
            return Err(Error::Decode(serde::de::Error::custom(text)));
        }
    };
    Ok(event)
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(Error::Decode)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn lines_survive_any_cut() {
        let text = b"{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                lines.push(Bytes::copy_from_slice(chunk)).unwrap();
                while let Some(line) = lines.next_line() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(
                seen,
                [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#],
                "chunks of {size}"
            );
        }
    }

    #[test]
    fn endless_line_is_refused() {
        let mut lines = Lines::default();
        let chunk = Bytes::from(vec![b'x'; EVENT_BYTES_MAX / 2 + 1]);
        lines.push(chunk.clone()).unwrap();
        assert!(lines.push(chunk).is_err());
    }

    #[test]
    fn events_are_told_apart() {
        let event = |text: &str| parse::<Value>(text.as_bytes());
        assert_eq!(
            event(r#"{"type":"ADDED","object":{"x":1}}"#).unwrap(),
            WatchEvent::Added(json!({"x": 1}))
        );
        assert_eq!(
            event(
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#
            )
            .unwrap(),
            WatchEvent::Bookmark {
                resource_version: "7".into(),
                initial_events_end: false
            }
        );
        let Ok(WatchEvent::Error(status)) = event(
            r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}"#,
        ) else {
            panic!("not an error event")
        };
        assert!(Error::Api(status).is_expired());
        assert!(matches!(
            event(r#"{"type":"ADDED","object":}"#),
            Err(Error::Decode(_))
        ));
        assert!(matches!(
            event(r#"{"type":"HELLO","object":{}}"#),
            Err(Error::Decode(_))
        ));
    }
}
