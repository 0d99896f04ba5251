//! Serving the OpenAPI documents. They are made when first asked for, away
//! from the request threads, and kept as bytes: for ever where only built-in
//! kinds are in them, else as long as the custom resources stay as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, LOCATION, VARY,
};
use http::{Response, StatusCode};
use meta::{Reason, Status};
use registry::KindRef;
use registry::openapi::{self, Document};

use crate::api::Api;
use crate::body::{self, BoxBody, JSON};
use crate::discovery::matches_etag;
use crate::pipeline::Context;
use crate::resources::Custom;

/// The documents that were asked for.
#[derive(Debug, Default)]
pub(crate) struct OpenApi {
    v2_json: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
    v3: OnceLock<V3>,
}

#[derive(Debug)]
struct V3 {
    index: Document,
    documents: BTreeMap<String, Document>,
}

/// The documents of group versions that have only built-in kinds.
static BUILTIN: LazyLock<BTreeMap<String, Document>> = LazyLock::new(|| {
    let kinds = Custom::default().all_kinds();
    documents(&kinds, openapi::v3_paths(&kinds))
});

fn documents(kinds: &[KindRef], paths: Vec<String>) -> BTreeMap<String, Document> {
    let made = paths.into_iter().filter_map(|path| {
        let document = openapi::v3_document(kinds, &path)?;
        Some((path, document))
    });
    made.collect()
}

impl V3 {
    fn make(custom: &Custom) -> Self {
        let mut documents_of_all = BUILTIN.clone();
        let kinds = custom.all_kinds();
        let theirs: Vec<KindRef> = custom.kinds().cloned().collect();
        documents_of_all.extend(documents(&kinds, openapi::v3_paths(&theirs)));
        let documents = documents_of_all;
        let hashes: Vec<(String, String)> = documents
            .iter()
            .map(|(path, d)| (path.clone(), d.hash.clone()))
            .collect();
        Self {
            index: openapi::v3_index(&hashes),
            documents,
        }
    }
}

/// Makes something slow away from the request threads.
async fn apart<T: Send + 'static>(
    api: &Arc<Api>,
    make: impl FnOnce(&Api) -> T + Send + 'static,
) -> Result<T, Status> {
    let api = api.clone();
    tokio::task::spawn_blocking(move || make(&api))
        .await
        .map_err(Status::internal)
}

/// Answers `/openapi/v2`: protobuf to those who ask for it (client-go asks for
/// nothing else), JSON to all others.
pub(crate) async fn v2(api: &Arc<Api>, cx: &Context) -> Result<Response<BoxBody>, Status> {
    let accept = cx
        .headers
        .get(ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let first = accept.split([',', ';']).next().unwrap_or_default().trim();
    let (document, content_type) = match first {
        openapi::V2_PROTOBUF | openapi::V2_PROTOBUF_OLD => {
            let make = |api: &Api| {
                let custom = api.resources.custom();
                let make = || openapi::v2_protobuf(&custom.all_kinds());
                custom.openapi.v2_protobuf.get_or_init(make).clone()
            };
            (apart(api, make).await?, openapi::V2_PROTOBUF)
        }
        "" | "*/*" | "application/*" | "application/json" => {
            let make = |api: &Api| {
                let custom = api.resources.custom();
                let make = || openapi::v2_json(&custom.all_kinds());
                custom.openapi.v2_json.get_or_init(make).clone()
            };
            (apart(api, make).await?, JSON)
        }
        _ => return Err(not_acceptable()),
    };
    Ok(answer(cx, &document, content_type))
}

/// Answers `/openapi/v3` and the documents below it.
pub(crate) async fn v3(
    api: &Arc<Api>,
    cx: &Context,
    rest: &[&str],
) -> Result<Response<BoxBody>, Status> {
    let accept = cx
        .headers
        .get(ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let json = accept.is_empty()
        || accept.split(',').any(|c| {
            let media = c.split(';').next().unwrap_or_default().trim();
            matches!(media, JSON | "*/*" | "application/*")
        });
    if !json {
        return Err(not_acceptable());
    }
    let path = rest.join("/");
    let wanted = path.clone();
    let document = apart(api, move |api: &Api| {
        let custom = api.resources.custom();
        let v3 = custom.openapi.v3.get_or_init(|| V3::make(&custom));
        match wanted.as_str() {
            "" => Some(v3.index.clone()),
            wanted => v3.documents.get(wanted).cloned(),
        }
    })
    .await?
    .ok_or_else(Status::no_such_path)?;
    match cx.query.non_empty("hash") {
        Some(hash) if hash != document.hash => Ok(moved(&path, &document.hash)),
        Some(_) => {
            let mut response = answer(cx, &document, JSON);
            // The hash is in the URL: these very bytes are there for ever.
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            headers.insert(
                EXPIRES,
                HeaderValue::from_static("Thu, 31 Dec 2099 23:59:59 GMT"),
            );
            Ok(response)
        }
        None => Ok(answer(cx, &document, JSON)),
    }
}

fn not_acceptable() -> Status {
    Status::failure(
        Reason::NotAcceptable,
        "only JSON and the gnostic protobuf form are served",
    )
}

fn moved(path: &str, hash: &str) -> Response<BoxBody> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(to) = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}")) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

fn answer(cx: &Context, document: &Document, content_type: &'static str) -> Response<BoxBody> {
    let etag = HeaderValue::from_str(&format!("\"{}\"", document.hash))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""));
    let mut response = match matches_etag(cx, &etag) {
        true => {
            let mut response = Response::new(body::full(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => cx.respond(StatusCode::OK, content_type, document.body.clone()),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(ETAG, etag);
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}
