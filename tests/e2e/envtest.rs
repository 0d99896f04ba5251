//! Started as controller-runtime's envtest starts etcd and kube-apiserver: programs of
//! those names, its flags, and the certificates that it made beforehand
//! (controller-runtime: pkg/internal/testing/controlplane).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::harness::{Kubectl, Program, alone, free_address, need, until};

struct Authority {
    pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "envtest");
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, names: &[&str], subject: &[(DnType, &str)]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    }
}

/// Says whether a program has a flag, as envtest finds that out: a line of its help
/// begins with it.
fn has_flag(program: &Path, flag: &str) -> bool {
    let help = Command::new(program).arg("--help").output().unwrap();
    assert!(help.status.success(), "{help:?}");
    let flag = format!("--{flag}");
    let text = [help.stdout, help.stderr].concat();
    String::from_utf8_lossy(&text).lines().any(|line| {
        let rest = line.trim_start().strip_prefix(&flag);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

/// What envtest puts beside a test.
struct Assets {
    folder: tempfile::TempDir,
    etcd: PathBuf,
    apiserver: PathBuf,
    /// Who signed what the API server serves with; whose clients it believes.
    serving: Authority,
    clients: Authority,
}

impl Assets {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let link = |name: &str| {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keelson"), &link).unwrap();
            link
        };
        let (etcd, apiserver) = (link("etcd"), link("kube-apiserver"));
        let certs = folder.path().join("certs");
        fs::create_dir(&certs).unwrap();
        let write = |name: &str, text: &str| fs::write(certs.join(name), text).unwrap();
        let (serving, clients) = (Authority::new(), Authority::new());
        let (cert, key) = serving.issue(&["localhost", "127.0.0.1"], &[]);
        write("apiserver.crt", &cert);
        write("apiserver.key", &key);
        write("client-cert-auth-ca.crt", &clients.pem);
        let tokens = Authority::new();
        write("sa-signer.crt", &tokens.pem);
        write("sa-signer.key", &tokens.key_pem);
        Self {
            folder,
            etcd,
            apiserver,
            serving,
            clients,
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, program: &Path, args: &[String]) -> Program {
        let log = format!("{}.log", program.display());
        Program::spawn(Command::new(program).args(args), Path::new(&log))
    }

    fn start_etcd(&self) -> (Program, String) {
        let url = format!("http://{}", free_address());
        let args = [
            format!("--advertise-client-urls={url}"),
            format!("--data-dir={}", self.path("etcd-data")),
            format!("--listen-client-urls={url}"),
            format!("--listen-peer-urls=http://{}", free_address()),
            "--unsafe-no-fsync=true".to_owned(),
        ];
        (self.run(&self.etcd, &args), url)
    }

    fn start_apiserver(&self, etcd: &str) -> (Program, String) {
        let address = free_address();
        let certs = self.path("certs");
        let url = format!("https://{address}");
        let args = [
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            format!("--bind-address={}", address.ip()),
            format!("--cert-dir={certs}"),
            format!("--client-ca-file={certs}/client-cert-auth-ca.crt"),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers={etcd}"),
            format!("--secure-port={}", address.port()),
            format!("--service-account-issuer={url}/"),
            format!("--service-account-key-file={certs}/sa-signer.crt"),
            format!("--service-account-signing-key-file={certs}/sa-signer.key"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        (self.run(&self.apiserver, &args), url)
    }

    /// kubectl as the administrator that envtest makes, who knows the server by the
    /// authority that envtest made.
    fn kubectl(&self, kubectl: &Path, url: &str) -> Kubectl {
        let write = |name: &str, text: &str| {
            let path = self.path(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (cert, key) = self.clients.issue(
            &[],
            &[
                (DnType::CommonName, "admin"),
                (DnType::OrganizationName, "system:masters"),
            ],
        );
        let ca = write("serving-ca.crt", &self.serving.pem);
        let (cert, key) = (write("admin.crt", &cert), write("admin.key", &key));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             clusters: [{{name: it, cluster: {{server: \"{url}\", certificate-authority: {ca}}}}}]\n\
             users: [{{name: it, user: {{client-certificate: {cert}, client-key: {key}}}}}]\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
        );
        let kubeconfig = write("kubeconfig", &text);
        Kubectl::new(kubectl, Path::new(&kubeconfig), self.folder.path())
    }
}

#[test]
fn envtest_finds_what_it_starts_and_stops() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let assets = Assets::new();
    assert!(has_flag(&assets.etcd, "unsafe-no-fsync"));
    assert!(has_flag(&assets.apiserver, "secure-port"));
    assert!(!has_flag(&assets.apiserver, "insecure-port"));

    let (mut etcd, store) = assets.start_etcd();
    let (mut apiserver, url) = assets.start_apiserver(&store);
    let admin = assets.kubectl(&kubectl, &url);
    until("health", || {
        let out = admin.output("get --raw /healthz");
        match out.status.success() && out.stdout == b"ok" {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    });
    admin.run("create configmap it --from-literal=a=b");
    assert_eq!(admin.run("get configmap it -o jsonpath={.data.a}"), "b");
    assert_eq!(
        admin.run("get service kubernetes -o jsonpath={.spec.clusterIP}"),
        "10.0.0.1"
    );

    assert!(apiserver.terminate().success());
    assert!(etcd.terminate().success());
}

#[test]
fn what_is_not_there_is_not_promised() {
    let assets = Assets::new();
    let mut command = Command::new(&assets.apiserver);
    let out = command
        .arg("--authorization-mode=Webhook")
        .output()
        .unwrap();
    assert!(!out.status.success());
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(
        text.contains("--authorization-mode") && text.contains("Webhook"),
        "{text}"
    );
}
