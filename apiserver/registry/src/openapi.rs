//! OpenAPI documents of what is served: version 3 an index and a document per
//! group version, version 2 one document as JSON and as protobuf.
//!
//! Documents are made when asked for (some milliseconds, a few megabytes while
//! at it); the caller keeps what it serves. Both carry paths: kubectl decides
//! from the PATCH operations whether it may send strategic merge patches and
//! whether `fieldValidation` is understood.

mod definitions;
mod paths;
mod v2;
mod v2proto;
mod v3;

pub use definitions::Version;

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha512};

use crate::kind::KindRef;
use crate::unstored::UNSTORED;

/// The media type of the version 2 document in protobuf, as clients ask for it.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Its older spelling, the only one client-go sends.
pub const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// A document with the hash that is its ETag and its URL's `hash`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The body.
    pub body: Bytes,
    /// SHA-512 in upper-case hexadecimal digits.
    pub hash: String,
}

impl Document {
    fn of(body: Vec<u8>) -> Self {
        let digest = Sha512::digest(&body);
        let hash = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        Self {
            body: Bytes::from(body),
            hash,
        }
    }

    fn json(value: &Value) -> Self {
        Self::of(value.to_string().into_bytes())
    }
}

/// Makes the index of version 3, `/openapi/v3`, from the hashes of the
/// documents (group version, hash).
pub fn v3_index(documents: &[(String, String)]) -> Document {
    Document::json(&v3::index(documents))
}

/// Returns the paths below `/openapi/v3/` that have a document: `api/v1`,
/// `apis/apps/v1`, each once.
pub fn v3_paths(kinds: &[KindRef]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    // What is only posted is there wherever built-in kinds are.
    let posted = UNSTORED
        .iter()
        .filter(|_| kinds.iter().any(|k| !k.is_custom()));
    let all = kinds.iter().map(|k| (k.group, k.version));
    for (group, version) in all.chain(posted.map(|u| (u.group, u.version))) {
        let path = group_path(group, version);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Makes the version 3 document of a group version; `None` if it is not served.
pub fn v3_document(kinds: &[KindRef], path: &str) -> Option<Document> {
    let is_it = |group: &str, version: &str| group_path(group, version) == path;
    let of_it = |k: &&KindRef| is_it(k.group, k.version);
    let kinds: Vec<KindRef> = kinds.iter().filter(of_it).cloned().collect();
    let posted = UNSTORED.iter().find(|u| is_it(u.group, u.version));
    let first = kinds.first().map(|k| (k.group, k.version));
    let (group, version) = first.or(posted.map(|u| (u.group, u.version)))?;
    Some(Document::json(&v3::document(group, version, &kinds)))
}

/// Makes the version 2 document as JSON.
pub fn v2_json(kinds: &[KindRef]) -> Document {
    Document::json(&v2::document(kinds))
}

/// Makes the version 2 document as protobuf (gnostic's `openapi.v2.Document`).
pub fn v2_protobuf(kinds: &[KindRef]) -> Document {
    Document::of(v2proto::encode(&v2::document(kinds)))
}

/// Returns `api/v1` or `apis/group/version`.
fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

#[cfg(test)]
mod tests;
