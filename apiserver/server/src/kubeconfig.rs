//! Writing a kubeconfig: where the server is, whom to trust, who one is.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::pki::{Identity, PkiError, write_private};

/// Returns the text of a kubeconfig with one cluster, user and context. JSON is
/// YAML, and kubectl reads and rewrites it as either.
pub fn render(server: &str, ca_pem: &str, user: &str, identity: &Identity) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "keelson",
        "clusters": [{"name": "keelson", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(&identity.cert_pem),
            "client-key-data": STANDARD.encode(&identity.key_pem),
        }}],
        "contexts": [{"name": "keelson", "context": {"cluster": "keelson", "user": user}}],
    });
    format!("{config:#}\n")
}

/// Writes a kubeconfig that only its owner may read.
pub fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    write_private(path, text.as_bytes())
}
