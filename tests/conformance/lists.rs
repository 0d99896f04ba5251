//! Lists in chunks, and watches.

use std::time::Duration;

use proto::etcdserverpb::CompactionRequest;
use proto::etcdserverpb::kv_client::KvClient;
use serde_json::{Value, json};

use crate::api::{Api, MERGE, names, version};
use crate::harness::{Program, until};
use crate::subjects::pod_template;

/// How many objects a list is made of, and how many a chunk may have.
const OBJECTS: usize = 40;
const CHUNK: usize = 17;

/// Makes pod templates in a namespace of their own; returns the path.
fn templates(api: &Api) -> String {
    let namespace = api.namespace();
    let subject = pod_template();
    let path = subject.path(&namespace);
    for number in 0..OBJECTS {
        let name = format!("template-{number:04}");
        api.post(&path, &subject.object(&name, &json!({}))).ok();
    }
    path
}

/// The continue token, and how many items are said to remain.
fn rest(list: &Value) -> (String, Option<u64>) {
    let token = list["metadata"]["continue"].as_str().unwrap_or_default();
    let remaining = list["metadata"]["remainingItemCount"].as_u64();
    (token.to_owned(), remaining)
}

/// Follows continue tokens to the end; every chunk is of this version.
fn follow(api: &Api, path: &str, mut token: String, seen: &mut Vec<String>, at: Option<&str>) {
    let mut at = at.map(str::to_owned);
    while !token.is_empty() {
        let list = api
            .get(&format!("{path}?limit={CHUNK}&continue={token}"))
            .ok();
        let items = names(&list);
        assert!(items.len() <= CHUNK, "{}", items.len());
        assert_eq!(at.get_or_insert_with(|| version(&list)), &version(&list));
        seen.extend(items);
        let (next, remaining) = rest(&list);
        let left = (OBJECTS - seen.len()) as u64;
        assert_eq!(remaining.unwrap_or(0), left);
        assert_eq!(next.is_empty(), left == 0);
        token = next;
    }
}

pub(crate) fn chunks(api: &Api) {
    let path = templates(api);
    let first = api.get(&format!("{path}?limit={CHUNK}")).ok();
    let mut seen = names(&first);
    assert_eq!(seen.len(), CHUNK);
    let (token, remaining) = rest(&first);
    assert_eq!(remaining, Some((OBJECTS - CHUNK) as u64));
    // What happens meanwhile is not in a list that began before.
    let late = pod_template().object("template-9999", &json!({}));
    api.post(&path, &late).ok();
    follow(api, &path, token, &mut seen, Some(&version(&first)));
    assert_eq!(seen.len(), OBJECTS);
    assert!(seen.is_sorted(), "{seen:?}");
    let whole = api.get(&path).ok();
    assert_eq!(names(&whole).len(), OBJECTS + 1);
    assert_eq!(rest(&whole), (String::new(), None));
}

/// In a cluster of its own: what its store forgets, the other tests' would miss.
pub(crate) fn chunks_compacted(_: &Api) {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, api) = crate::start(folder.path());
    let path = templates(&api);
    let first = api.get(&format!("{path}?limit={CHUNK}")).ok();
    let (token, remaining) = rest(&first);
    assert_eq!(remaining, Some((OBJECTS - CHUNK) as u64));
    let late = pod_template().object("template-9999", &json!({}));
    let late = api.post(&path, &late).ok();
    compact(&mut program, version(&late).parse().unwrap());
    // The server hears of it within a quarter of a minute, and refuses.
    let next = format!("{path}?limit={CHUNK}&continue={token}");
    let refused = until("the old version is refused", || {
        let answer = api.get(&next);
        if answer.code == 200 {
            std::thread::sleep(Duration::from_millis(200));
            return Err("it is still served".to_owned());
        }
        Ok(answer)
    });
    let message = refused.refused(410);
    assert!(message.starts_with("The provided continue parameter is too old"));
    let status: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(status["reason"], "Expired");
    let (token, _) = rest(&status);
    assert!(!token.is_empty(), "{status}");
    // The rest is to be had with the token of the refusal, of a newer version.
    let mut seen = names(&first);
    let list = api
        .get(&format!("{path}?limit={CHUNK}&continue={token}"))
        .ok();
    let at = version(&list);
    assert_ne!(at, version(&first));
    assert_eq!(names(&list).len(), CHUNK);
    seen.extend(names(&list));
    let (token, _) = rest(&list);
    let list = api.get(&format!("{path}?limit=400&continue={token}")).ok();
    assert_eq!(version(&list), at);
    assert_eq!(rest(&list), (String::new(), None));
    seen.extend(names(&list));
    // So that what came meanwhile is in it.
    assert_eq!(seen.len(), OBJECTS + 1);
    assert!(seen.is_sorted() && seen.last().unwrap() == "template-9999");
    drop(api);
    program.terminate();
}

/// Makes a cluster's store forget what was before a revision, as an
/// administrator would.
fn compact(program: &mut Program, revision: i64) {
    let endpoint = program.line("store");
    let compacted = async {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        let mut store = KvClient::connect(endpoint).await.unwrap();
        store.compact(request).await.unwrap();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(compacted);
}

fn config_map(name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"watched": label}}})
}

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Changes the data of a config map.
fn mutate(api: &Api, path: &str, name: &str, value: u32) -> Value {
    let patch = json!({"data": {"mutation": value.to_string()}});
    api.patch(&format!("{path}/{name}"), MERGE, &patch).ok()
}

pub(crate) fn watchers(api: &Api) {
    let path = maps(&api.namespace());
    let on_a = api.watch(&format!("{path}?labelSelector=watched%3Da"));
    let on_b = api.watch(&format!("{path}?labelSelector=watched%3Db"));
    let on_both = api.watch(&format!("{path}?labelSelector=watched%20in%20(a,b)"));
    for (name, label, mine) in [("map-a", "a", &on_a), ("map-b", "b", &on_b)] {
        api.post(&path, &config_map(name, label)).ok();
        // Each sees its own, and nothing of the other's comes between.
        for watch in [mine, &on_both] {
            watch.expect("ADDED", name);
        }
        for value in [1, 2] {
            mutate(api, &path, name, value);
            for watch in [mine, &on_both] {
                let seen = watch.expect("MODIFIED", name);
                assert_eq!(seen["data"]["mutation"], value.to_string());
            }
        }
        assert!(api.delete(&format!("{path}/{name}")).code < 300);
        for watch in [mine, &on_both] {
            watch.expect("DELETED", name);
        }
    }
}

pub(crate) fn watch_from_version(api: &Api) {
    let path = maps(&api.namespace());
    api.post(&path, &config_map("from", "x")).ok();
    let first = mutate(api, &path, "from", 1);
    mutate(api, &path, "from", 2);
    assert!(api.delete(&format!("{path}/from")).code < 300);
    let mine = "labelSelector=watched%3Dx";
    let watch = api.watch(&format!(
        "{path}?{mine}&resourceVersion={}",
        version(&first)
    ));
    assert_eq!(watch.expect("MODIFIED", "from")["data"]["mutation"], "2");
    let gone = watch.expect("DELETED", "from");
    assert_eq!(gone["data"]["mutation"], "2");
}

pub(crate) fn watch_restarted(api: &Api) {
    let path = maps(&api.namespace());
    // A namespace gets config maps that are not ours.
    let path_of_ours = format!("{path}?labelSelector=watched%3Dx");
    let watch = api.watch(&path_of_ours);
    api.post(&path, &config_map("again", "x")).ok();
    watch.expect("ADDED", "again");
    mutate(api, &path, "again", 1);
    let last = version(&watch.expect("MODIFIED", "again"));
    drop(watch);
    mutate(api, &path, "again", 2);
    let watch = api.watch(&format!("{path_of_ours}&resourceVersion={last}"));
    assert_eq!(watch.expect("MODIFIED", "again")["data"]["mutation"], "2");
    assert!(api.delete(&format!("{path}/again")).code < 300);
    watch.expect("DELETED", "again");
}

pub(crate) fn watch_selector(api: &Api) {
    let path = maps(&api.namespace());
    let relabel = |label: &str| {
        let patch = json!({"metadata": {"labels": {"watched": label}}});
        api.patch(&format!("{path}/moving"), MERGE, &patch).ok()
    };
    let watch = api.watch(&format!("{path}?labelSelector=watched%3Din"));
    api.post(&path, &config_map("moving", "in")).ok();
    watch.expect("ADDED", "moving");
    mutate(api, &path, "moving", 1);
    watch.expect("MODIFIED", "moving");
    relabel("out");
    watch.expect("DELETED", "moving");
    // Out of sight, it changes for nobody; back, it is new and has changed.
    mutate(api, &path, "moving", 2);
    relabel("in");
    assert_eq!(watch.expect("ADDED", "moving")["data"]["mutation"], "2");
    mutate(api, &path, "moving", 3);
    assert_eq!(watch.expect("MODIFIED", "moving")["data"]["mutation"], "3");
    assert!(api.delete(&format!("{path}/moving")).code < 300);
    watch.expect("DELETED", "moving");
}

pub(crate) fn watch_order(api: &Api) {
    const ROUNDS: u32 = 30;
    let path = maps(&api.namespace());
    let start = version(&api.get(&path).ok());
    let ours = format!("{path}?labelSelector=watched%3Dx");
    let first = api.watch(&format!("{ours}&resourceVersion={start}"));
    for round in 0..ROUNDS {
        let name = format!("order-{}", round % 7);
        if round < 7 {
            api.post(&path, &config_map(&name, "x")).ok();
        } else {
            mutate(api, &path, &name, round);
        }
    }
    let versions: Vec<String> = (0..ROUNDS).map(|_| version(&first.next().1)).collect();
    // A watch from each event on sees the same events, in the same order.
    for (at, from) in versions.iter().enumerate() {
        let watch = api.watch(&format!("{ours}&resourceVersion={from}"));
        for want in &versions[at + 1..] {
            assert_eq!(&version(&watch.next().1), want);
        }
    }
}
