//! Whom a member without data begins with: the members that its flags name, or those
//! of the cluster it joins.
//!
//! As in etcd (server/etcdserver/bootstrap.go, and membership/cluster.go:
//! NewClusterFromURLsMap, ValidateClusterAndAssignIDs): the ids of a new cluster come
//! from the flags alone, so that members that are started with the same flags agree
//! without talking; those of an existing cluster come from its members, and the flags
//! must name exactly these.

use std::{collections::BTreeSet, time::Duration};

use proto::peer as pb;

use crate::{
    config::{Config, StartError},
    identity::{Ids, cluster_id, member_id},
    listen::{Place, Url},
    peers::Dialler,
};

const INITIAL_CLUSTER: &str = "initial-cluster";

/// How long one member may take to list the others (etcd: getClusterFromRemotePeers).
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a member of a new cluster asks whether it has been there before (etcd:
/// BootstrapTimeoutEffective).
const BOOTSTRAPPED_TIMEOUT: Duration = Duration::from_secs(1);

/// How long finding the addresses of a host may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A member as a new one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) peer_urls: Vec<String>,
    pub(crate) learner: bool,
}

/// What a member without data begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// This member and its cluster.
    pub(crate) ids: Ids,
    /// All members, this one too, by id. Of a cluster that is joined they are those
    /// of now: its log may begin with others.
    pub(crate) members: Vec<First>,
}

impl Beginning {
    /// Returns the members that a new cluster begins with. They must be the same on
    /// each of them, so what only one knows is published later; unless there is only
    /// one, which knows its clients' URLs.
    pub(crate) fn membership(&self, client_urls: &[String]) -> mvcc::Membership {
        let alone = self.members.len() == 1;
        let members = self.members.iter().map(|member| mvcc::MemberInfo {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: if alone {
                client_urls.to_vec()
            } else {
                Vec::new()
            },
            learner: member.learner,
        });
        mvcc::Membership::new(self.ids.cluster, members)
    }
}

/// How a member starts.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// As one of the first of a new cluster.
    New(Beginning),
    /// As one that others took in.
    Joining(Beginning),
    /// With data it had.
    Again,
}

/// Makes a new cluster of what the flags name (etcd: VerifyBootstrap).
pub(crate) fn new_cluster(config: &Config) -> Result<Beginning, StartError> {
    let members = named(config)?;
    check_advertised(config, &members)?;
    let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    let own = own(config, &members)?;
    let ids = Ids {
        member: own.id,
        cluster: cluster_id(&ids),
    };
    Ok(Beginning { ids, members })
}

/// Refuses to found a cluster anew that this member has been part of: it has lost its
/// data, and would vote a second time (etcd: isMemberBootstrapped). Members that
/// cannot be reached have no say.
pub(crate) async fn check_not_bootstrapped(
    config: &Config,
    beginning: &Beginning,
    dialler: &Dialler,
) -> Result<(), StartError> {
    let urls = others(config, &beginning.members);
    let own = beginning.ids.member;
    let asking = ask(dialler, &urls);
    let Ok(Ok(existing)) = tokio::time::timeout(BOOTSTRAPPED_TIMEOUT, asking).await else {
        return Ok(());
    };
    let mut members = existing.members.iter();
    let there = members.any(|member| member.id == own && !member.client_urls.is_empty());
    match there {
        true => refuse(format!("member {own:x} has already been bootstrapped")),
        false => Ok(()),
    }
}

/// Asks the cluster that is joined for its members, and finds out which of them this
/// one is (etcd: bootstrapExistingClusterNoWAL).
pub(crate) async fn existing_cluster(
    config: &Config,
    dialler: &Dialler,
) -> Result<Beginning, StartError> {
    let named = named(config)?;
    let urls = others(config, &named);
    let existing = match ask(dialler, &urls).await {
        Ok(existing) => existing,
        Err(why) => {
            return refuse(format!("cannot fetch cluster info from peer urls: {why}"));
        }
    };
    let members = match assign(&named, &existing.members).await {
        Ok(members) => members,
        Err(why) => {
            let ids: Vec<_> = existing
                .members
                .iter()
                .map(|member| format!("{:x}={}", member.id, member.peer_urls.join(",")))
                .collect();
            return refuse(format!(
                "error validating peerURLs of cluster {:x} ({}): {why}",
                existing.cluster_id,
                ids.join("; ")
            ));
        }
    };
    let own = own(config, &members)?;
    let ids = Ids {
        member: own.id,
        cluster: existing.cluster_id,
    };
    Ok(Beginning { ids, members })
}

fn refuse<T>(reason: String) -> Result<T, StartError> {
    let flag = INITIAL_CLUSTER;
    Err(StartError::Flag { flag, reason })
}

/// Reads the members that the flags name, with the ids they would have in a new
/// cluster.
fn named(config: &Config) -> Result<Vec<First>, StartError> {
    let alone = [(&config.name, &config.initial_advertise_peer_urls)];
    let named: Vec<_> = match config.initial_cluster.is_empty() {
        true => alone.into(),
        false => config.initial_cluster.iter().collect(),
    };
    if !named.iter().any(|(name, _)| **name == config.name) {
        let known: Vec<_> = named.iter().map(|(name, _)| name.as_str()).collect();
        return refuse(format!(
            "couldn't find local name {:?} in the initial cluster configuration ({})",
            config.name,
            known.join(", ")
        ));
    }
    let mut urls = BTreeSet::new();
    if !named
        .iter()
        .all(|(_, of)| of.iter().all(|url| urls.insert(url)))
    {
        let all: Vec<_> = named
            .iter()
            .flat_map(|(name, urls)| urls.iter().map(move |url| format!("{name}={url}")))
            .collect();
        return refuse(format!(
            "initial cluster {} has duplicate url",
            all.join(",")
        ));
    }
    let mut members: Vec<_> = named
        .into_iter()
        .map(|(name, urls)| First {
            id: member_id(urls, &config.initial_cluster_token),
            name: name.clone(),
            peer_urls: sorted(urls),
            learner: false,
        })
        .collect();
    members.sort_by_key(|member| member.id);
    if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return refuse(format!("member exists with identical ID {:x}", pair[0].id));
    }
    if members.iter().any(|member| member.id == 0) {
        return refuse("cannot use 0 as member id".to_owned());
    }
    Ok(members)
}

/// Checks that the two flags that say where this member is do not contradict (etcd:
/// advertiseMatchesCluster).
fn check_advertised(config: &Config, members: &[First]) -> Result<(), StartError> {
    let own = own(config, members)?;
    let advertised = sorted(&config.initial_advertise_peer_urls);
    match own.peer_urls == advertised {
        true => Ok(()),
        false => refuse(format!(
            "has {} for {:?}, but --initial-advertise-peer-urls has {}; the two must agree",
            own.peer_urls.join(","),
            config.name,
            advertised.join(",")
        )),
    }
}

fn own<'a>(config: &Config, members: &'a [First]) -> Result<&'a First, StartError> {
    match members.iter().find(|member| member.name == config.name) {
        Some(own) => Ok(own),
        None => refuse(format!("does not name this member, {:?}", config.name)),
    }
}

fn sorted(urls: &[String]) -> Vec<String> {
    let mut urls = urls.to_vec();
    urls.sort();
    urls
}

/// Returns where the other members are.
fn others(config: &Config, members: &[First]) -> Vec<String> {
    let others = members.iter().filter(|member| member.name != config.name);
    let urls: Vec<_> = others.flat_map(|member| member.peer_urls.clone()).collect();
    sorted(&urls)
}

/// Asks one after the other for the members; the first that answers is believed.
async fn ask(dialler: &Dialler, urls: &[String]) -> Result<pb::MembersReply, String> {
    let mut why = "could not retrieve cluster information from the given URLs".to_owned();
    for url in urls {
        let asked = tokio::time::timeout(ASK_TIMEOUT, dialler.members(url)).await;
        let reason = match asked {
            Ok(Ok(reply)) if reply.members.is_empty() => {
                return Err("failed to get raft cluster member(s) from the given URLs".to_owned());
            }
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(reason)) => reason,
            Err(_late) => "it does not answer".to_owned(),
        };
        tracing::warn!(url, reason, "a member does not say who the members are");
        why.push_str(&format!("; {url}: {reason}"));
    }
    Err(why)
}

/// Gives the members that the flags name the ids they have in the cluster, by their
/// URLs (etcd: ValidateClusterAndAssignIDs).
async fn assign(named: &[First], existing: &[pb::Member]) -> Result<Vec<First>, String> {
    if named.len() != existing.len() {
        return Err("member count is unequal".to_owned());
    }
    let mut left = named.to_vec();
    let mut members = Vec::new();
    for member in existing {
        let mut found = None;
        for (at, candidate) in left.iter().enumerate() {
            if same_urls(&candidate.peer_urls, &member.peer_urls).await {
                found = Some(at);
                break;
            }
        }
        let Some(at) = found else {
            return Err(format!(
                "PeerURLs: no match found for existing member ({:x}, [{}])",
                member.id,
                member.peer_urls.join(" ")
            ));
        };
        let First { name, .. } = left.swap_remove(at);
        members.push(First {
            id: member.id,
            name,
            peer_urls: sorted(&member.peer_urls),
            learner: member.learner,
        });
    }
    members.sort_by_key(|member| member.id);
    Ok(members)
}

/// Says whether URLs lead to the same places: as they are written, or else by the
/// addresses of their hosts (etcd: netutil, URLStringsEqual).
async fn same_urls(one: &[String], other: &[String]) -> bool {
    let (one, other) = (sorted(one), sorted(other));
    if one == other {
        return true;
    }
    if one.len() != other.len() {
        return false;
    }
    let (one, other) = tokio::join!(places(&one), places(&other));
    one.is_some() && one == other
}

/// Finds the places that URLs lead to.
async fn places(urls: &[String]) -> Option<Vec<String>> {
    let mut places = Vec::new();
    for url in urls {
        let parsed = Url::parse(url).ok()?;
        places.push(match parsed.place {
            Place::Unix(path) => format!("{} {}", parsed.tls, path.display()),
            Place::Tcp { host, port } => {
                let looked_up = tokio::net::lookup_host((host.as_str(), port));
                let found = tokio::time::timeout(LOOKUP_TIMEOUT, looked_up).await;
                // As Go does for one that has both kinds.
                let address = found
                    .ok()?
                    .ok()?
                    .min_by_key(std::net::SocketAddr::is_ipv6)?;
                format!("{} {address}", parsed.tls)
            }
        });
    }
    places.sort();
    Some(places)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(name: &str, members: &[(&str, &[&str])]) -> Config {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let mut config = Config::new("unused");
        config.name = name.to_owned();
        config.initial_cluster = members
            .iter()
            .map(|(name, of)| ((*name).to_owned(), urls(of)))
            .collect::<BTreeMap<_, _>>();
        if let Some(own) = config.initial_cluster.get(name) {
            config.initial_advertise_peer_urls.clone_from(own);
        }
        config
    }

    fn reason(error: StartError) -> String {
        match error {
            StartError::Flag { reason, .. } => reason,
            other => panic!("{other}"),
        }
    }

    const THREE: &[(&str, &[&str])] = &[
        ("a", &["http://10.0.0.1:2380"]),
        ("b", &["http://10.0.0.2:2380", "http://10.1.0.2:2380"]),
        ("c", &["http://10.0.0.3:2380"]),
    ];

    #[test]
    fn members_of_a_new_cluster_agree_without_talking() {
        let beginnings = ["a", "b", "c"].map(|name| new_cluster(&config(name, THREE)).unwrap());
        let [a, b, c] = &beginnings;
        assert_eq!(a.members, b.members);
        assert_eq!(b.members, c.members);
        assert_eq!(a.ids.cluster, c.ids.cluster);
        let own: BTreeSet<u64> = beginnings.iter().map(|one| one.ids.member).collect();
        let all: BTreeSet<u64> = a.members.iter().map(|member| member.id).collect();
        assert_eq!((own.len(), own), (3, all));
    }

    #[test]
    fn flags_that_make_no_cluster() {
        let refused = |config: &Config| reason(new_cluster(config).unwrap_err());
        let words = refused(&config("d", THREE));
        assert!(words.contains("couldn't find local name \"d\""), "{words}");
        let twice: &[(&str, &[&str])] = &[("a", &["http://h:1"]), ("b", &["http://h:1"])];
        let words = refused(&config("a", twice));
        assert!(words.contains("has duplicate url"), "{words}");
        let mut elsewhere = config("a", THREE);
        elsewhere.initial_advertise_peer_urls = vec!["http://10.9.9.9:1".to_owned()];
        let words = refused(&elsewhere);
        assert!(words.contains("the two must agree"), "{words}");
    }

    fn existing(members: &[(u64, &[&str])]) -> Vec<pb::Member> {
        let member = |(id, urls): &(u64, &[&str])| pb::Member {
            id: *id,
            peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            ..pb::Member::default()
        };
        members.iter().map(member).collect()
    }

    #[tokio::test]
    async fn a_member_that_joins_gets_the_ids_of_the_cluster() {
        let named = named(&config("c", THREE)).unwrap();
        let cluster = existing(&[
            (7, &["http://10.0.0.3:2380"]),
            (5, &["http://10.1.0.2:2380", "http://10.0.0.2:2380"]),
            (6, &["http://10.0.0.1:2380"]),
        ]);
        let members = assign(&named, &cluster).await.unwrap();
        let ids: Vec<_> = members
            .iter()
            .map(|member| (member.id, member.name.as_str()))
            .collect();
        assert_eq!(ids, [(5, "b"), (6, "a"), (7, "c")]);
    }

    #[tokio::test]
    async fn flags_that_do_not_fit_the_cluster() {
        let named = named(&config("c", THREE)).unwrap();
        let two = existing(&[(6, THREE[0].1), (5, THREE[1].1)]);
        let unequal = assign(&named, &two).await.unwrap_err();
        assert_eq!(unequal, "member count is unequal");
        let other = existing(&[
            (6, THREE[0].1),
            (5, THREE[1].1),
            (7, &["http://10.0.0.9:1"]),
        ]);
        let words = assign(&named, &other).await.unwrap_err();
        assert_eq!(
            words,
            "PeerURLs: no match found for existing member (7, [http://10.0.0.9:1])"
        );
    }

    #[tokio::test]
    async fn a_host_is_its_address() {
        let urls = |url: &str| vec![url.to_owned()];
        let (name, address) = (urls("http://localhost:1"), urls("http://127.0.0.1:1"));
        assert!(same_urls(&name, &address).await);
        assert!(!same_urls(&name, &urls("http://127.0.0.1:2")).await);
        assert!(!same_urls(&name, &urls("https://127.0.0.1:1")).await);
    }
}
