//! Flags of the cluster: who its members are at first, and how they agree.

use std::{collections::BTreeMap, time::Duration};

use super::flag::{Flag, Kind, Values};
use crate::{
    config::{AutoCompaction, Config, StartError},
    listen::Url,
};

const DEFAULT_PEER_URL: &str = "http://localhost:2380";
const DEFAULT_CLIENT_URL: &str = "http://localhost:2379";

const NO_DISCOVERY: &str = "finding members through a discovery service is not supported; name them with --initial-cluster";

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "initial-advertise-peer-urls",
        Kind::List,
        DEFAULT_PEER_URL,
        "List of this member's peer URLs to advertise to the rest of the cluster. Ignored once the member has data.",
    ),
    Flag::new(
        "initial-cluster",
        Kind::Text,
        "default=http://localhost:2380",
        "Members of a new cluster, as name=url,name=url. Ignored once the member has data.",
    ),
    Flag::new(
        "initial-cluster-state",
        Kind::Choice(&["new", "existing"]),
        "new",
        "Whether the cluster is 'new' or 'existing'. Ignored once the member has data.",
    ),
    Flag::new(
        "initial-cluster-token",
        Kind::Text,
        "etcd-cluster",
        "Keeps clusters apart that begin with the same URLs. Ignored once the member has data.",
    ),
    Flag::new(
        "advertise-client-urls",
        Kind::List,
        DEFAULT_CLIENT_URL,
        "List of this member's client URLs to advertise to the public; clients connect to them.",
    ),
    Flag::new(
        "discovery",
        Kind::Text,
        "",
        "Discovery URL used to bootstrap the cluster.",
    )
    .refused(NO_DISCOVERY),
    Flag::new(
        "discovery-token",
        Kind::Text,
        "",
        "V3 discovery: token of the cluster to be bootstrapped.",
    )
    .refused(NO_DISCOVERY),
    Flag::new(
        "discovery-endpoints",
        Kind::List,
        "",
        "V3 discovery: endpoints of the discovery service.",
    )
    .refused(NO_DISCOVERY),
    Flag::new(
        "discovery-srv",
        Kind::Text,
        "",
        "DNS SRV domain used to bootstrap the cluster.",
    )
    .refused(NO_DISCOVERY),
    Flag::new(
        "discovery-srv-name",
        Kind::Text,
        "",
        "Suffix of the DNS SRV name.",
    )
    .refused(NO_DISCOVERY),
    Flag::new(
        "discovery-fallback",
        Kind::Choice(&["exit", "proxy"]),
        "exit",
        "What to do when discovery fails.",
    )
    .refused("the v2 proxy does not exist here"),
    Flag::new(
        "discovery-proxy",
        Kind::Text,
        "",
        "HTTP proxy for traffic to the discovery service.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-dial-timeout",
        Kind::Duration,
        "2s",
        "V3 discovery: dial timeout.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-request-timeout",
        Kind::Duration,
        "5s",
        "V3 discovery: request timeout.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-keepalive-time",
        Kind::Duration,
        "2s",
        "V3 discovery: keepalive time.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-keepalive-timeout",
        Kind::Duration,
        "6s",
        "V3 discovery: keepalive timeout.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-insecure-transport",
        Kind::Bool,
        "true",
        "V3 discovery: no TLS.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-insecure-skip-tls-verify",
        Kind::Bool,
        "false",
        "V3 discovery: trust any certificate.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-cert",
        Kind::Text,
        "",
        "V3 discovery: client certificate.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new("discovery-key", Kind::Text, "", "V3 discovery: its key.").nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-cacert",
        Kind::Text,
        "",
        "V3 discovery: trusted CA.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-user",
        Kind::Text,
        "",
        "V3 discovery: user[:password].",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "discovery-password",
        Kind::Text,
        "",
        "V3 discovery: password.",
    )
    .nothing(NO_DISCOVERY),
    Flag::new(
        "strict-reconfig-check",
        Kind::Bool,
        "true",
        "Reject member changes that would cause quorum loss.",
    ),
    Flag::new(
        "pre-vote",
        Kind::Bool,
        "true",
        "Ask before standing for election, so that a member that was cut off does not disturb the others.",
    ),
    Flag::new(
        "max-learners",
        Kind::Count,
        "1",
        "Maximum number of learners in the cluster.",
    )
    .old("experimental-max-learners"),
    Flag::new(
        "auto-compaction-retention",
        Kind::Text,
        "0",
        "How much history is kept: hours or a duration such as 5m, or revisions; 0 keeps all.",
    ),
    Flag::new(
        "auto-compaction-mode",
        Kind::Choice(&["periodic", "revision"]),
        "periodic",
        "What --auto-compaction-retention counts: time, or revisions.",
    ),
];

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    _notes: &mut Vec<String>,
) -> Result<(), StartError> {
    advertised(values, config)?;
    config.initial_cluster_token = values.text("initial-cluster-token").to_owned();
    config.initial_cluster = initial_cluster(values, config)?;
    config.initial_cluster_existing = values.text("initial-cluster-state") == "existing";
    config.strict_reconfig_check = values.boolean("strict-reconfig-check");
    config.pre_vote = values.boolean("pre-vote");
    config.max_learners = usize::try_from(values.count("max-learners")).unwrap_or(usize::MAX);
    config.auto_compaction = auto_compaction(values)?;
    Ok(())
}

/// Reads what others are told to use.
fn advertised(values: &Values, config: &mut Config) -> Result<(), StartError> {
    let peers = "initial-advertise-peer-urls";
    config.initial_advertise_peer_urls = hosts(peers, values.list(peers))?;
    let clients = "advertise-client-urls";
    let given = values.source(clients).is_some();
    // etcd (configFromCmdLine): a listener of one's own voids the default. Port 0
    // is not known before it is bound; then what is bound is advertised.
    let ephemeral = config
        .listen_client_urls
        .iter()
        .any(|url| url.ends_with(":0"));
    let own_listener = values.is_set("listen-client-urls") && !config.listen_client_urls.is_empty();
    if own_listener && !given && !values.are_a_files() && !ephemeral {
        return Err(StartError::Flag {
            flag: clients,
            reason: "is required when --listen-client-urls is set explicitly".to_owned(),
        });
    }
    config.advertise_client_urls = match ephemeral && !given {
        true => Vec::new(),
        false => hosts(clients, values.list(clients))?,
    };
    Ok(())
}

/// Checks that each URL names a host (etcd: embed, checkHostURLs).
fn hosts(flag: &'static str, urls: Vec<String>) -> Result<Vec<String>, StartError> {
    for text in &urls {
        let url = Url::parse(text).map_err(|reason| StartError::Flag { flag, reason })?;
        if url.host_is_missing() {
            return Err(StartError::Flag {
                flag,
                reason: format!("{text:?} must be \"host:port\" (unexpected empty host)"),
            });
        }
    }
    Ok(urls)
}

/// Reads the members of a new cluster; which of them is this one, and whether that
/// is possible, is decided when it turns out that the member is new.
fn initial_cluster(
    values: &Values,
    config: &Config,
) -> Result<BTreeMap<String, Vec<String>>, StartError> {
    let flag = "initial-cluster";
    // etcd (UpdateDefaultClusterFromName): only the name decides the default.
    if !values.is_set(flag) && config.name != "default" {
        let urls = config.initial_advertise_peer_urls.clone();
        return Ok(BTreeMap::from([(config.name.clone(), urls)]));
    }
    named_members(values.text(flag))
}

/// Reads `name=url,name=url`.
pub(crate) fn named_members(text: &str) -> Result<BTreeMap<String, Vec<String>>, StartError> {
    let flag = "initial-cluster";
    let mut members = BTreeMap::<String, Vec<String>>::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let refuse = |reason: String| StartError::Flag { flag, reason };
        let Some((name, url)) = part.split_once('=') else {
            return Err(refuse(format!("{part:?} is not name=url")));
        };
        Url::parse(url).map_err(refuse)?;
        members
            .entry(name.to_owned())
            .or_default()
            .push(url.to_owned());
    }
    Ok(members)
}

fn auto_compaction(values: &Values) -> Result<AutoCompaction, StartError> {
    let flag = "auto-compaction-retention";
    let text = values.text(flag).trim();
    let refuse = |what: &str| {
        Err(StartError::Flag {
            flag,
            reason: format!("{text:?} is not {what}"),
        })
    };
    if text == "0" || text.is_empty() {
        return Ok(AutoCompaction::Off);
    }
    if values.text("auto-compaction-mode") == "revision" {
        return match text.parse() {
            Ok(keep @ 1..) => Ok(AutoCompaction::Revision(keep)),
            _ => refuse("a number of revisions"),
        };
    }
    // A bare number is hours, as in etcd.
    let retention = match text.parse::<u32>() {
        Ok(hours) => Some(Duration::from_secs(3600) * hours),
        Err(_) => super::value::duration(text),
    };
    match retention {
        Some(time) if time.is_zero() => Ok(AutoCompaction::Off),
        Some(time) => Ok(AutoCompaction::Periodic(time)),
        None => refuse("a number of hours or a duration such as 5m"),
    }
}
