//! Whole command lines, with their environment and their files.

use std::time::Duration;

use super::*;
use crate::config::{AutoCompaction, KeepAlive, QUOTA_BACKEND_BYTES, TlsVersion};

fn read_with(args: &[&str], env: &[(&str, &str)]) -> Result<Asked, Refusal> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let env = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    read(&args, &env.collect())
}

fn plan_of(args: &[&str], env: &[(&str, &str)]) -> Plan {
    match read_with(args, env) {
        Ok(Asked::Run(plan)) => *plan,
        other => panic!("{args:?}: {other:?}"),
    }
}

fn config(args: &[&str]) -> Config {
    plan_of(args, &[]).config
}

#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let error = read_with(args, &[]).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{args:?}: {error}");
    }
    assert!(!error.contains('\n'), "{error:?}");
}

#[test]
fn the_defaults_are_etcds() {
    let plan = plan_of(&[], &[]);
    let config = plan.config;
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir, PathBuf::from("default.etcd"));
    assert_eq!(config.listen_client_urls, ["http://localhost:2379"]);
    assert_eq!(config.listen_peer_urls, ["http://localhost:2380"]);
    assert_eq!(config.advertise_client_urls, ["http://localhost:2379"]);
    assert_eq!(
        config.initial_advertise_peer_urls,
        ["http://localhost:2380"]
    );
    assert_eq!(config.quota_backend_bytes, QUOTA_BACKEND_BYTES);
    assert_eq!(config.keep_alive, KeepAlive::default());
    assert_eq!(config.max_request_bytes, 1_572_864);
    assert_eq!(config.tls_rules.min, Some(TlsVersion::Tls12));
    assert!(config.pre_vote && config.strict_reconfig_check);
    assert!(plan.log.json && plan.log.level == "info");
    let notes = plan.notes.join("\n");
    assert!(
        notes.contains("default.etcd") && notes.contains("default name"),
        "{notes}"
    );
    // `Config::new` says the same but for listeners and names.
    let new = Config {
        listen_client_urls: config.listen_client_urls.clone(),
        listen_peer_urls: config.listen_peer_urls.clone(),
        advertise_client_urls: config.advertise_client_urls.clone(),
        initial_cluster: config.initial_cluster.clone(),
        tls_rules: config.tls_rules.clone(),
        ..Config::new("default.etcd")
    };
    assert_eq!(format!("{config:?}"), format!("{new:?}"));
}

#[test]
fn flags_come_with_one_dash_or_two_and_in_two_forms() {
    for args in [
        &["--name=a", "--data-dir=/d"][..],
        &["-name=a", "-data-dir", "/d"],
        &["--name", "a", "-data-dir=/d"],
        &["-name", "b", "--name", "a", "--data-dir", "/d", "--"],
    ] {
        let config = config(args);
        assert_eq!((config.name.as_str(), config.data_dir), ("a", "/d".into()));
    }
    assert!(!config(&["--pre-vote=false"]).pre_vote);
    assert!(!config(&["-pre-vote=F"]).pre_vote);
    assert!(config(&["--unsafe-no-fsync"]).unsafe_no_fsync);
}

#[test]
fn what_is_no_flag_is_refused_in_one_line() {
    refused(&["--nonsense=1"], &["not defined: --nonsense"]);
    refused(&["--name"], &["needs an argument: --name"]);
    // As in Go, a boolean takes no word after it.
    refused(&["--pre-vote", "false"], &["\"false\" is not a valid flag"]);
    refused(&["start"], &["\"start\" is not a valid flag"]);
    refused(&["---name=a"], &["not a valid flag"]);
    refused(&["--", "more"], &["\"more\" is not a valid flag"]);
    refused(&["--pre-vote=perhaps"], &["--pre-vote", "true or false"]);
    refused(&["--max-txn-ops=-1"], &["--max-txn-ops", "number"]);
    refused(
        &["--initial-cluster-state=old"],
        &["--initial-cluster-state", "new, existing"],
    );
}

#[test]
fn every_flag_has_its_variable_and_flags_go_first() {
    let env = [
        ("ETCD_NAME", "a"),
        ("ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", "7s"),
        ("ETCD_MAX_TXN_OPS", ""),
        ("ETCD_NONSENSE", "1"),
        ("ETCD_UNSUPPORTED_ARCH", "arm64"),
        ("PATH", "/bin"),
    ];
    let plan = plan_of(&[], &env);
    assert_eq!(plan.config.name, "a");
    assert_eq!(plan.config.watch_progress_interval, Duration::from_secs(7));
    assert_eq!(plan.config.max_txn_ops, 128);
    let notes = plan.notes.join("\n");
    assert!(
        notes.contains("unrecognized environment variable ETCD_NONSENSE"),
        "{notes}"
    );
    assert!(
        !notes.contains("ARCH") && !notes.contains("PATH"),
        "{notes}"
    );
    let plan = plan_of(&["--name=b"], &env);
    assert_eq!(plan.config.name, "b");
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("ETCD_NAME is shadowed by --name"))
    );
    for flag in flags().filter(|flag| !flag.name.contains('.')) {
        // Its default is a value it takes.
        let env = [(parse::variable(flag.name), flag.default)];
        let env = [
            (env[0].0.as_str(), env[0].1),
            ("ETCD_ADVERTISE_CLIENT_URLS", "http://localhost:2379"),
        ];
        let asked = read_with(&[], &env);
        assert!(asked.is_ok(), "{}: {:?}", flag.name, asked.err());
    }
}

#[test]
fn old_spellings_are_understood() {
    let config = config(&[
        "--experimental-watch-progress-notify-interval=5s",
        "--experimental-compaction-batch-limit=77",
        "--experimental-compaction-sleep-interval=3ms",
        "--experimental-warning-apply-duration=1s",
        "--experimental-peer-skip-client-san-verification",
        "--experimental-initial-corrupt-check=true",
    ]);
    assert_eq!(config.watch_progress_interval, Duration::from_secs(5));
    assert!(config.corruption_checks.initial);
    assert_eq!(config.compaction.batch, Some(77));
    assert_eq!(config.compaction.pause, Duration::from_millis(3));
    assert_eq!(config.warning_apply_duration, Duration::from_secs(1));
}

#[test]
fn what_has_no_effect_is_said_with_its_reason() {
    let plan = plan_of(
        &[
            "--snapshot-count=10000",
            "--feature-gates=LeaseCheckpoint=true",
        ],
        &[],
    );
    let notes = plan.notes.join("\n");
    assert!(
        notes.contains("--snapshot-count=10000 has no effect: "),
        "{notes}"
    );
    assert!(
        notes.contains("LeaseCheckpoint=true has no effect: "),
        "{notes}"
    );
    for flag in flags() {
        let silent = matches!(
            flag.effect,
            flag::Effect::Nothing("") | flag::Effect::Refused("")
        );
        assert!(!silent, "{} says nothing", flag.name);
        assert!(!flag.help.is_empty(), "{}", flag.name);
        assert_eq!(
            flags().filter(|other| other.name == flag.name).count(),
            1,
            "{}",
            flag.name
        );
    }
}

#[test]
fn what_must_not_be_ignored_is_refused() {
    refused(
        &["--discovery-srv=example.com"],
        &["--discovery-srv", "--initial-cluster"],
    );
    refused(&["--discovery=http://d:1/x"], &["--discovery"]);
    refused(&["--enable-v2=true"], &["--enable-v2"]);
    refused(&["--proxy=on"], &["--proxy"]);
    refused(&["--enable-log-rotation"], &["--enable-log-rotation"]);
    // Their defaults are fine.
    config(&[
        "--enable-v2=false",
        "--proxy=off",
        "--discovery-fallback=exit",
    ]);
}

#[test]
fn feature_gates() {
    refused(
        &["--feature-gates=Nonsense=true"],
        &["unrecognized feature gate: Nonsense"],
    );
    refused(
        &["--feature-gates=LeaseCheckpoint"],
        &["missing bool value for LeaseCheckpoint"],
    );
    refused(
        &["--feature-gates=LeaseCheckpoint=si"],
        &["invalid value of LeaseCheckpoint"],
    );
    refused(
        &["--feature-gates=LeaseCheckpointPersist=true"],
        &["requires"],
    );
    config(&["--feature-gates=LeaseCheckpoint=true,LeaseCheckpointPersist=true,AllAlpha=false"]);
}

#[test]
fn retention_is_hours_duration_or_revisions() {
    let retention = |args: &[&str]| config(args).auto_compaction;
    let off = retention(&["--auto-compaction-retention=0"]);
    assert_eq!(off, AutoCompaction::Off);
    assert_eq!(retention(&["--auto-compaction-retention=0s"]), off);
    let hour = AutoCompaction::Periodic(Duration::from_secs(3600));
    assert_eq!(retention(&["--auto-compaction-retention=1"]), hour);
    assert_eq!(retention(&["--auto-compaction-retention=60m"]), hour);
    let mode = "--auto-compaction-mode=revision";
    let revisions = retention(&[mode, "--auto-compaction-retention=1000"]);
    assert_eq!(revisions, AutoCompaction::Revision(1000));
    refused(
        &["--auto-compaction-retention=soon"],
        &["--auto-compaction-retention"],
    );
    refused(
        &[mode, "--auto-compaction-retention=5m"],
        &["number of revisions"],
    );
    refused(&["--auto-compaction-mode=never"], &["periodic, revision"]);
}

#[test]
fn heartbeat_and_election_must_fit() {
    refused(&["--heartbeat-interval=0"], &["--heartbeat-interval", ">0"]);
    refused(&["--election-timeout=0"], &["--election-timeout", ">0"]);
    refused(
        &["--heartbeat-interval=500"],
        &[
            "--election-timeout",
            "[1000ms]",
            "--heartbeat-interval[500ms]",
        ],
    );
    refused(&["--election-timeout=50001"], &["too long", "50000ms"]);
}

#[test]
fn listeners_are_checked_before_anything_is_touched() {
    refused(
        &["--listen-client-urls=http://127.0.0.1:23791"],
        &["--advertise-client-urls", "is required"],
    );
    let advertise = "--advertise-client-urls=http://a:2379";
    let client = |url: &str| format!("--listen-client-urls={url}");
    refused(
        &[&client("http://example.com:1"), advertise],
        &["--listen-client-urls", "expected IP"],
    );
    refused(
        &[&client("http://127.0.0.1"), advertise],
        &["--listen-client-urls", "host:port"],
    );
    refused(
        &[&client("https://127.0.0.1:1"), advertise],
        &["--listen-client-urls", "--cert-file, --key-file"],
    );
    refused(
        &["--listen-peer-urls=https://127.0.0.1:1"],
        &["--listen-peer-urls", "--peer-cert-file"],
    );
    refused(
        &["--listen-metrics-urls=https://127.0.0.1:1"],
        &["--listen-metrics-urls", "--cert-file"],
    );
    refused(
        &["--advertise-client-urls=http://:2379"],
        &["--advertise-client-urls", "host"],
    );
    refused(
        &["--initial-advertise-peer-urls=10.0.0.1:2380"],
        &["--initial-advertise-peer-urls", "scheme"],
    );
    // What port 0 becomes is known later, and then advertised.
    assert!(
        config(&[&client("http://127.0.0.1:0")])
            .advertise_client_urls
            .is_empty()
    );
    let both = "--listen-client-http-urls=http://localhost:2379";
    refused(&[both], &["--listen-client-http-urls", "same url"]);
}

#[test]
fn quota_may_be_off() {
    assert_eq!(
        config(&["--quota-backend-bytes=-1"]).quota_backend_bytes,
        u64::MAX
    );
    assert_eq!(config(&["--quota-backend-bytes=9"]).quota_backend_bytes, 9);
    let of = |b| config(&[&format!("--disk-reserve-bytes={b}")]).disk_reserve_bytes;
    assert_eq!((of(-1), of(0)), (None, Some(0)));
    let plan = plan_of(&["--quota-backend-bytes=10737418240"], &[]);
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("--quota-backend-bytes"))
    );
}

#[test]
fn certificates_come_in_pairs_and_with_an_authority() {
    refused(&["--cert-file=x"], &["--cert-file", "--key-file"]);
    refused(&["--key-file=x"], &["--key-file", "--cert-file"]);
    refused(
        &["--peer-cert-file=x"],
        &["--peer-cert-file", "--peer-key-file"],
    );
    let pair = ["--cert-file=c", "--key-file=k"];
    let with = |more: &[&'static str]| [&pair[..], more].concat();
    refused(
        &with(&["--client-cert-auth"]),
        &["--client-cert-auth", "--trusted-ca-file"],
    );
    refused(
        &with(&["--client-crl-file=x"]),
        &["--client-crl-file", "--trusted-ca-file"],
    );
    refused(
        &with(&["--client-cert-file=x"]),
        &["--client-cert-file", "--client-key-file"],
    );
    let peers = [
        "--peer-cert-file=c",
        "--peer-key-file=k",
        "--peer-trusted-ca-file=a",
    ];
    let with = |more: &[&'static str]| [&peers[..], more].concat();
    refused(
        &with(&["--peer-cert-allowed-cn=a", "--peer-cert-allowed-hostname=b"]),
        &["--peer-cert-allowed-cn", "mutually exclusive"],
    );
    let tls = config(&with(&["--peer-cert-allowed-cn=a,b"]))
        .peer_tls
        .unwrap();
    assert_eq!(tls.allowed_cns, ["a", "b"]);
    assert!(tls.check_address);
    refused(
        &["--self-signed-cert-validity=0", "--auto-tls"],
        &["--self-signed-cert-validity"],
    );
    refused(&["--tls-min-version=TLS1.1"], &["--tls-min-version"]);
    refused(
        &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
        &["--tls-min-version", "greater"],
    );
    refused(
        &["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"],
        &["--cipher-suites", "TLS_RSA_WITH_RC4_128_SHA"],
    );
    refused(
        &[
            "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "--tls-min-version=TLS1.3",
        ],
        &["--cipher-suites", "TLS1.3"],
    );
}

/// What kubeadm passes since 1.34 (cmd/kubeadm/app/phases/etcd/local.go); `{}` is a
/// folder with certificates.
pub(crate) const KUBEADM: &[&str] = &[
    "--advertise-client-urls=https://10.0.0.4:2379",
    "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
    "--client-cert-auth=true",
    "--data-dir=/var/lib/etcd",
    "--feature-gates=InitialCorruptCheck=true",
    "--initial-advertise-peer-urls=https://10.0.0.4:2380",
    "--initial-cluster=cp1=https://10.0.0.4:2380",
    "--key-file=/etc/kubernetes/pki/etcd/server.key",
    "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.4:2379",
    "--listen-metrics-urls=http://127.0.0.1:2381",
    "--listen-peer-urls=https://10.0.0.4:2380",
    "--name=cp1",
    "--peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt",
    "--peer-client-cert-auth=true",
    "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
    "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
    "--snapshot-count=10000",
    "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
    "--watch-progress-notify-interval=5s",
];

#[test]
fn kubeadms_flags_are_understood() {
    let config = config(KUBEADM);
    assert_eq!(config.name, "cp1");
    assert_eq!(config.listen_client_urls.len(), 2);
    assert!(config.client_tls.unwrap().trusted_ca_file.is_some());
    assert!(config.peer_tls.unwrap().trusted_ca_file.is_some());
    assert_eq!(config.watch_progress_interval, Duration::from_secs(5));
    let mut older = KUBEADM.to_vec();
    older.retain(|flag| !flag.contains("feature-gates") && !flag.contains("progress"));
    older.extend([
        "--experimental-initial-corrupt-check=true",
        "--experimental-watch-progress-notify-interval=5s",
    ]);
    assert_eq!(
        plan_of(&older, &[]).config.watch_progress_interval,
        Duration::from_secs(5)
    );
}

/// What k3s writes for its etcd (pkg/etcd, ETCDConfig).
const K3S: &str = "\
name: server-1-5f2a
data-dir: /var/lib/rancher/k3s/server/db/etcd
listen-client-urls: https://127.0.0.1:2379,https://10.0.0.4:2379
listen-client-http-urls: https://127.0.0.1:2382
listen-metrics-urls: http://127.0.0.1:2381
listen-peer-urls: https://127.0.0.1:2380,https://10.0.0.4:2380
advertise-client-urls: https://10.0.0.4:2379
initial-advertise-peer-urls: https://10.0.0.4:2380
initial-cluster: server-1-5f2a=https://10.0.0.4:2380
initial-cluster-state: new
heartbeat-interval: 500
election-timeout: 5000
snapshot-count: 10000
log-outputs:
- stderr
logger: zap
client-transport-security:
  cert-file: /tls/server-client.crt
  client-cert-auth: true
  key-file: /tls/server-client.key
  trusted-ca-file: /tls/server-ca.crt
peer-transport-security:
  cert-file: /tls/peer-server-client.crt
  client-cert-auth: true
  key-file: /tls/peer-server-client.key
  trusted-ca-file: /tls/peer-ca.crt
experimental-initial-corrupt-check: true
experimental-watch-progress-notify-interval: 5000000000
feature-gates: InitialCorruptCheck=true
";

fn with_file(text: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Plan, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    let file = format!("--config-file={}", path.display());
    match read_with(&[&[file.as_str()], args].concat(), env) {
        Ok(Asked::Run(plan)) => Ok(*plan),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn k3s_file_is_understood() {
    let config = with_file(K3S, &[], &[]).unwrap().config;
    assert_eq!(config.name, "server-1-5f2a");
    assert_eq!(config.listen_client_http_urls.len(), 1);
    assert_eq!(config.election_timeout, Duration::from_secs(5));
    assert_eq!(config.watch_progress_interval, Duration::from_secs(5));
    assert!(config.peer_tls.unwrap().trusted_ca_file.is_some());
}

#[test]
fn a_file_makes_flags_and_environment_void_and_says_so() {
    let env = [("ETCD_MAX_TXN_OPS", "7")];
    let plan = with_file("name: a\nnonsense: 1\n", &["--name=b"], &env).unwrap();
    assert_eq!(
        (plan.config.name.as_str(), plan.config.max_txn_ops),
        ("a", 128)
    );
    let notes = plan.notes.join("\n");
    assert!(
        notes.contains("ignoring --name, ETCD_MAX_TXN_OPS"),
        "{notes}"
    );
    assert!(notes.contains("unknown key \"nonsense\""), "{notes}");
}

#[test]
fn what_a_file_may_say() {
    let config = |text| with_file(text, &[], &[]).unwrap().config;
    // A listener of one's own does not void the default of what is advertised.
    let own = config("listen-client-urls: http://127.0.0.1:1\n");
    assert_eq!(own.advertise_client_urls, ["http://localhost:2379"]);
    let some = config(
        "cipher-suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n\
         socket-options: {reuse-port: true}\n\
         grpc-keepalive-min-time: 1000000\n\
         compaction-sleep-interval: 10ms\n\
         strict-reconfig-check: false\n\
         client-transport-security:\n  cert-file: c\n  key-file: k\n  trusted-ca-file: a\n  allowed-cn: [ann, bob]\n",
    );
    assert_eq!(some.tls_rules.cipher_suites.len(), 1);
    assert!(some.socket.reuse_port && !some.strict_reconfig_check);
    assert_eq!(some.keep_alive.min_time, Duration::from_millis(1));
    assert_eq!(some.compaction.pause, Duration::from_millis(10));
    assert_eq!(some.client_tls.unwrap().allowed_cns, ["ann", "bob"]);
    config("");
    for (text, words) in [
        ("- a\n", "not a map"),
        ("name: [\n", "config.yaml"),
        ("name: {a: b}\n", "name is neither"),
        (
            "peer-transport-security: x\n",
            "invalid peer-transport-security",
        ),
        ("heartbeat-interval: soon\n", "--heartbeat-interval"),
        ("discovery-config: {endpoints: [a]}\n", "discovery"),
    ] {
        let error = with_file(text, &[], &[]).unwrap_err();
        assert!(
            error.contains(words) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
    refused(
        &["--config-file=/nowhere/x"],
        &["--config-file", "/nowhere/x"],
    );
}

#[test]
fn the_log_goes_where_it_should() {
    let log = |args: &[&str]| plan_of(args, &[]).log;
    assert_eq!(log(&[]).outputs, [LogOutput::Stderr]);
    let several = log(&[
        "--log-outputs=stdout,/var/log/x",
        "--log-level=fatal",
        "--log-format=console",
    ]);
    assert_eq!(
        several.outputs,
        [LogOutput::Stdout, LogOutput::File("/var/log/x".into())]
    );
    assert_eq!((several.level, several.json), ("error", false));
    refused(
        &["--log-outputs=default,stdout"],
        &["--log-outputs", "multi"],
    );
    refused(&["--logger=capnslog"], &["--logger"]);
    refused(&["--log-level=loud"], &["--log-level"]);
}

#[test]
fn help_and_version_are_etcds() {
    let printed = |args: &[&str]| match read_with(args, &[]) {
        Ok(Asked::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    let version = printed(&["--version"]);
    assert!(version.starts_with("etcd Version: 3.5."), "{version}");
    assert!(version.contains("\nGit SHA: ") && version.contains("\nGo OS/Arch: "));
    assert_eq!(printed(&["-version", "--name=a"]), version);
    config(&["--version=false"]);
    let help = printed(&["--name=a", "-h"]);
    for line in [
        "\nMember:\n",
        "\nClustering:\n",
        "\nSecurity:\n",
        "\n  --name 'default'\n    Human-readable name for this member.\n",
        "\n  --max-txn-ops 128\n",
    ] {
        assert!(help.contains(line), "{line:?} is not in {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 130), "it is readable");
    assert_eq!(printed(&["--help"]), help);
}
