//! The body of a list, made a frame at a time as the client takes it: what a list costs
//! in memory does not depend on how long it is.
//!
//! ```text
//! storage::Listing -> Frames (text, protobuf) -> [Gzip] -> whole body, or a stream
//! ```
//!
//! The first frames are made before the head goes out. A list that ends with them is a
//! whole body, as any small answer; what fails by then is a Status. Later nothing can be
//! said but by breaking the body off: a list is never cut to a shorter one that looks
//! complete. The rooms: [`text`] writes JSON and YAML in all shapes, [`binary`] protobuf,
//! [`row`] reads of an object what the cells of a table need, [`stream`] is the body.

mod binary;
mod gzip;
mod row;
mod stream;
mod text;
mod turns;

#[cfg(test)]
mod test;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http::{Response, StatusCode};
use meta::{Reason, Status};
use registry::KindRef;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::body::{self, BoxBody};
use crate::negotiation::{Accepted, Media, Shape};
use crate::pipeline::{Context, GZIP_FROM_BYTES};
use crate::respond::{self, METADATA};
use crate::storage::Listing;
use crate::table::IncludeObject;

use binary::Binary;
use gzip::Gzip;
use text::Text;

/// How large a frame becomes, apart from the item that crosses the line: making one is
/// a turn of its connection, and whoever reads something small beside ten lists waits
/// for ten of them.
const FRAME_BYTES: usize = 32 * 1024;
/// How many bytes of stored objects are read for one frame at most, apart from the last
/// object: what is read for a table or for metadata is mostly left out.
const READ_BYTES: usize = 2 * FRAME_BYTES;
/// How large a body is still made whole before it is answered.
const WHOLE_BYTES: usize = GZIP_FROM_BYTES;

/// Answers a list. A body that is not taken until the deadline breaks off.
pub(crate) async fn answer(
    cx: &Context,
    accepted: Accepted,
    kind: &KindRef,
    listing: Listing,
    deadline: Instant,
) -> Result<Response<BoxBody>, Status> {
    let include = match accepted.shape {
        Shape::Table(_) => IncludeObject::read(&cx.query)?,
        _ => IncludeObject::Metadata,
    };
    let mut frames = Frames::new(kind.clone(), accepted, include, listing)?;
    let content_type = accepted.media.content_type();
    let (mut made, mut bytes) = (Vec::new(), 0);
    while bytes < WHOLE_BYTES {
        let Some(frame) = frames.next().await? else {
            return Ok(cx.respond(StatusCode::OK, content_type, join(made)));
        };
        bytes += frame.len();
        made.push(frame);
        if bytes >= FRAME_BYTES {
            yield_now().await;
        }
    }
    frames.made = made.into_iter();
    let mut response = body::respond(StatusCode::OK, content_type, "");
    let parts = match cx.accepts_gzip() {
        true => {
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            Parts::Gzip(Box::new(Gzip::new(frames)))
        }
        false => Parts::Plain(frames),
    };
    *response.body_mut() = body::streaming(stream::body(parts, deadline));
    Ok(response)
}

/// Puts the frames of a body together, of which there are mostly one.
fn join(mut frames: Vec<Bytes>) -> Bytes {
    match frames.len() {
        0 => Bytes::new(),
        1 => frames.swap_remove(0),
        _ => {
            let mut all = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
            frames.iter().for_each(|f| all.extend_from_slice(f));
            all.freeze()
        }
    }
}

/// A list as frames.
struct Frames {
    /// Those that were made already.
    made: std::vec::IntoIter<Bytes>,
    writer: Writer,
}

/// What writes a list.
enum Writer {
    Text(Box<Text>),
    Binary(Box<Binary>),
}

impl Frames {
    /// Decides how a list is written; 406 where it cannot be written so.
    fn new(
        kind: KindRef,
        accepted: Accepted,
        include: IncludeObject,
        listing: Listing,
    ) -> Result<Self, Status> {
        if let Shape::Metadata(_) = accepted.shape {
            let text = format!(
                "you requested {METADATA}, but the requested object is a list ({})",
                respond::go_type(&kind, kind.list_kind)
            );
            return Err(Status::failure(Reason::NotAcceptable, text));
        }
        let (metadata, items) = (metadata(&listing), listing.items);
        let writer = match accepted.media {
            Media::Protobuf => {
                let binary = Binary::new(kind, accepted.shape, metadata, items)?;
                Writer::Binary(Box::new(binary))
            }
            Media::Json | Media::Yaml => {
                let text = Text::new(kind, accepted, include, metadata, items);
                Writer::Text(Box::new(text))
            }
        };
        Ok(Self {
            made: Vec::new().into_iter(),
            writer,
        })
    }

    /// Returns the next frame; `None` after the last. After an error nothing comes that
    /// could be used.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some(frame) = self.made.next() {
            return Ok(Some(frame));
        }
        match &mut self.writer {
            Writer::Text(text) => text.next().await,
            Writer::Binary(binary) => binary.next().await,
        }
    }
}

/// The frames of a body.
enum Parts {
    Plain(Frames),
    Gzip(Box<Gzip>),
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        match self {
            Self::Plain(frames) => frames.next().await,
            Self::Gzip(gzip) => gzip.next().await,
        }
    }
}

/// Returns the metadata of a list.
fn metadata(list: &Listing) -> Value {
    let mut metadata = json!({"resourceVersion": list.resource_version.to_string()});
    if let Some(token) = &list.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(n) = list.remaining {
        metadata["remainingItemCount"] = n.into();
    }
    metadata
}
