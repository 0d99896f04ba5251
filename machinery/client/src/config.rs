//! Where the API server is and who we are: reads and writes kubeconfig files.
//!
//! Reads what kubectl writes (inline base64 data or file paths relative to the
//! file). Left out on purpose: `exec` and `auth-provider` plugins.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// Holds everything a [`Transport`](crate::Transport) needs.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Is the server's URL, for instance `https://127.0.0.1:6443`.
    pub server: String,
    /// Is the authority that signed the server's certificate.
    pub ca_pem: Option<Vec<u8>>,
    /// Is our certificate chain, for mutual TLS.
    pub client_certificate_pem: Option<Vec<u8>>,
    /// Is the key of our certificate.
    pub client_key_pem: Option<Vec<u8>>,
    /// Is a bearer token.
    pub token: Option<String>,
    /// Turns off the check of the server's certificate.
    pub insecure_skip_tls_verify: bool,
    /// Overrides the name the server's certificate must carry.
    pub tls_server_name: Option<String>,
    /// Is the namespace of the context, `default` if it names none.
    pub namespace: String,
    /// Is the User-Agent of requests.
    pub user_agent: String,
}

impl ClientConfig {
    /// Builds a configuration with a server and nothing else.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            namespace: "default".into(),
            user_agent: crate::USER_AGENT.into(),
            ..Self::default()
        }
    }

    /// Finds the configuration as kubectl does: the given file, else `$KUBECONFIG`,
    /// else `~/.kube/config`.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let paths = match (path, env::var_os("KUBECONFIG").filter(|v| !v.is_empty())) {
            (Some(path), _) => vec![path.to_owned()],
            (None, Some(list)) => env::split_paths(&list).filter(|p| p.exists()).collect(),
            (None, None) => vec![home()?.join(".kube/config")],
        };
        let mut merged = Kubeconfig::default();
        for path in &paths {
            merged.merge(Kubeconfig::read(path)?);
        }
        if paths.is_empty() {
            return Err(Error::Config("no file of $KUBECONFIG exists".into()));
        }
        merged.client_config(None)
    }

    /// Reads one kubeconfig file and takes its current context.
    pub fn from_file(path: &Path) -> Result<Self> {
        Kubeconfig::read(path)?.client_config(None)
    }

    /// Builds rustls' configuration, for who opens connections by hand.
    pub fn tls(&self) -> Result<rustls::ClientConfig> {
        crate::tls::client_config(self, true)
    }
}

fn home() -> Result<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| Error::Config("no kubeconfig given and $HOME is not set".into()))
}

/// Is a kubeconfig file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubeconfig {
    /// Is always `v1`.
    pub api_version: String,
    /// Is always `Config`.
    pub kind: String,
    /// Names the context used when none is asked for.
    #[serde(rename = "current-context")]
    pub current_context: String,
    /// Lists the known servers.
    pub clusters: Vec<NamedCluster>,
    /// Lists pairs of server and user.
    pub contexts: Vec<NamedContext>,
    /// Lists credentials.
    pub users: Vec<NamedUser>,
}

/// Is one entry of `clusters`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedCluster {
    /// Is what contexts call the cluster.
    pub name: String,
    /// Is the server.
    pub cluster: Cluster,
}

/// Says where a server is and how to trust it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cluster {
    /// Is the server's URL.
    pub server: String,
    /// Is the authority as base64 of PEM; wins over the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// Is the authority's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<PathBuf>,
    /// Turns off the check of the server's certificate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_tls_verify: bool,
    /// Overrides the name the server's certificate must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Keeps settings this client does not use (proxies, compression).
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Is one entry of `contexts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedContext {
    /// Is the context's name.
    pub name: String,
    /// Is the pair it stands for.
    pub context: Context,
}

/// Pairs a cluster with a user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Names the cluster.
    pub cluster: String,
    /// Names the user.
    pub user: String,
    /// Is the namespace of commands that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Is one entry of `users`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedUser {
    /// Is what contexts call the user.
    pub name: String,
    /// Is the credential.
    pub user: User,
}

/// Is a credential.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct User {
    /// Is the certificate as base64 of PEM; wins over the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_data: Option<String>,
    /// Is the certificate's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    /// Is the key as base64 of PEM; wins over the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_data: Option<String>,
    /// Is the key's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    /// Is a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Is a file holding a bearer token, read once.
    #[serde(rename = "tokenFile", skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Keeps settings this client does not use.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

impl User {
    /// Builds a credential of a client certificate and its key, inlined.
    pub fn certificate(cert_pem: &[u8], key_pem: &[u8]) -> Self {
        Self {
            client_certificate_data: Some(STANDARD.encode(cert_pem)),
            client_key_data: Some(STANDARD.encode(key_pem)),
            ..Self::default()
        }
    }

    /// Builds a credential of a bearer token.
    pub fn token(token: impl Into<String>) -> Self {
        Self {
            token: Some(token.into()),
            ..Self::default()
        }
    }
}

impl Kubeconfig {
    /// Builds a file with one cluster, one user and one context, all called `name`.
    pub fn single(name: &str, server: &str, ca_pem: &[u8], user: User) -> Self {
        let cluster = Cluster {
            server: server.to_owned(),
            certificate_authority_data: Some(STANDARD.encode(ca_pem)),
            ..Cluster::default()
        };
        let context = Context {
            cluster: name.to_owned(),
            user: name.to_owned(),
            namespace: None,
        };
        Self {
            api_version: "v1".into(),
            kind: "Config".into(),
            current_context: name.to_owned(),
            clusters: vec![NamedCluster {
                name: name.to_owned(),
                cluster,
            }],
            contexts: vec![NamedContext {
                name: name.to_owned(),
                context,
            }],
            users: vec![NamedUser {
                name: name.to_owned(),
                user,
            }],
        }
    }

    /// Reads a file; relative paths inside it become relative to its folder.
    pub fn read(path: &Path) -> Result<Self> {
        let config = |e: &dyn std::fmt::Display| Error::Config(format!("{}: {e}", path.display()));
        let text = fs::read_to_string(path).map_err(|e| config(&e))?;
        let mut file = Self::parse(&text).map_err(|e| config(&e))?;
        file.anchor(path.parent().unwrap_or(Path::new(".")));
        Ok(file)
    }

    /// Parses the text of a kubeconfig file.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// Writes the file as YAML.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).map_err(|e| Error::Config(e.to_string()))
    }

    /// Writes the file so that only its owner may read it, replacing it in one step.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.to_yaml()?;
        let write = || -> io::Result<()> {
            let temporary = path.with_extension("tmp");
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|e| Error::Config(format!("{}: {e}", path.display())))
    }

    /// Adds what `other` names and this file does not; the first file wins.
    fn merge(&mut self, other: Self) {
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        for entry in other.clusters {
            if !self.clusters.iter().any(|c| c.name == entry.name) {
                self.clusters.push(entry);
            }
        }
        for entry in other.contexts {
            if !self.contexts.iter().any(|c| c.name == entry.name) {
                self.contexts.push(entry);
            }
        }
        for entry in other.users {
            if !self.users.iter().any(|u| u.name == entry.name) {
                self.users.push(entry);
            }
        }
    }

    fn anchor(&mut self, folder: &Path) {
        let anchor = |path: &mut Option<PathBuf>| {
            if let Some(p) = path {
                *p = folder.join(&*p);
            }
        };
        for c in &mut self.clusters {
            anchor(&mut c.cluster.certificate_authority);
        }
        for u in &mut self.users {
            anchor(&mut u.user.client_certificate);
            anchor(&mut u.user.client_key);
            anchor(&mut u.user.token_file);
        }
    }

    /// Resolves a context (the current one by default) to a client configuration.
    pub fn client_config(&self, context: Option<&str>) -> Result<ClientConfig> {
        let name = context.unwrap_or(&self.current_context);
        let missing = |what: &str, name: &str| {
            Error::Config(format!("kubeconfig has no {what} named {name:?}"))
        };
        let context = self
            .contexts
            .iter()
            .find(|c| c.name == name)
            .map(|c| &c.context)
            .ok_or_else(|| missing("context", name))?;
        let cluster = self
            .clusters
            .iter()
            .find(|c| c.name == context.cluster)
            .map(|c| &c.cluster)
            .ok_or_else(|| missing("cluster", &context.cluster))?;
        let user = self
            .users
            .iter()
            .find(|u| u.name == context.user)
            .map(|u| u.user.clone())
            .ok_or_else(|| missing("user", &context.user))?;

        let mut config = ClientConfig::new(&cluster.server);
        config.ca_pem = material(
            "certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        config.client_certificate_pem = material(
            "client-certificate",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        config.client_key_pem = material(
            "client-key",
            user.client_key_data.as_deref(),
            user.client_key.as_deref(),
        )?;
        config.token = match (user.token.filter(|t| !t.is_empty()), user.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(path)) => Some(read_file("tokenFile", &path)?)
                .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()),
            (None, None) => None,
        };
        config.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify;
        config.tls_server_name = cluster.tls_server_name.clone();
        if let Some(ns) = &context.namespace {
            config.namespace.clone_from(ns);
        }
        Ok(config)
    }
}

fn material(what: &str, data: Option<&str>, path: Option<&Path>) -> Result<Option<Vec<u8>>> {
    match (data.filter(|d| !d.is_empty()), path) {
        (Some(data), _) => STANDARD
            .decode(data.trim())
            .map(Some)
            .map_err(|e| Error::Config(format!("{what}-data is not base64: {e}"))),
        (None, Some(path)) => read_file(what, path).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_file(what: &str, path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::Config(format!("{what} {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_file_reads_back() {
        let file = Kubeconfig::single(
            "keelson",
            "https://127.0.0.1:6443",
            b"CA",
            User::certificate(b"C", b"K"),
        );
        let text = file.to_yaml().unwrap();
        let config = Kubeconfig::parse(&text)
            .unwrap()
            .client_config(None)
            .unwrap();
        assert_eq!(config.server, "https://127.0.0.1:6443");
        assert_eq!(config.ca_pem.as_deref(), Some(&b"CA"[..]));
        assert_eq!(config.client_certificate_pem.as_deref(), Some(&b"C"[..]));
        assert_eq!(config.client_key_pem.as_deref(), Some(&b"K"[..]));
        assert_eq!(config.namespace, "default");
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let mut file = Kubeconfig::parse(
            "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca.pem, proxy-url: x}}]\n\
             users: [{name: u, user: {tokenFile: /abs/token}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u, namespace: n}}]\n\
             current-context: x\n",
        )
        .unwrap();
        file.anchor(Path::new("/etc/k"));
        let ca = file.clusters[0].cluster.certificate_authority.as_deref();
        assert_eq!(ca, Some(Path::new("/etc/k/ca.pem")));
        let error = file.client_config(None).unwrap_err().to_string();
        assert!(error.contains("/etc/k/ca.pem"), "{error}");
    }

    #[test]
    fn the_first_file_wins() {
        let file =
            |name: &str, server: &str| Kubeconfig::single(name, server, b"CA", User::token("t"));
        let mut merged = file("a", "https://first");
        merged.merge(file("a", "https://second"));
        merged.merge(file("b", "https://third"));
        assert_eq!(merged.client_config(None).unwrap().server, "https://first");
        let third = merged.client_config(Some("b")).unwrap();
        assert_eq!(
            (third.server.as_str(), third.token.as_deref()),
            ("https://third", Some("t"))
        );
    }

    #[test]
    fn missing_names_are_named() {
        let file = Kubeconfig::parse("current-context: prod\n").unwrap();
        let error = file.client_config(None).unwrap_err().to_string();
        assert!(error.contains(r#"context named "prod""#), "{error}");
    }
}
