//! What listing through a resource must do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::{LabelSelector, Status};
use watchcache::Selector;

use super::{Fixture, resource, start, unique, within};
use crate::storage::compactor::follow;
use crate::storage::items::STORE_PAGE;
use crate::storage::request::{ListRequest, ListResult, ReadVersion, VersionMatch};
use crate::storage::resource::WAIT_FOR_REVISION;
use crate::storage::store::Store;

async fn list(fixture: &Fixture, request: ListRequest) -> Result<ListResult, Status> {
    fixture.resource.list(request).await
}

fn names(result: &ListResult) -> Vec<String> {
    let names = result
        .items
        .iter()
        .map(|o| format!("{}/{}", o.meta.namespace, o.meta.name));
    names.collect()
}

/// Checks that a list shows every write answered before it began, at once, and that its
/// version is none before what the store had by then: versions never go back for whoever
/// asks for what is fresh.
pub async fn run_consistency(store: &Arc<dyn Store>) {
    let (fixture, other) = (resource(store).await, resource(store).await);
    let began = Instant::now();
    for i in 0..30 {
        let written = fixture.create("a", &format!("x{i}")).await;
        // Writes elsewhere move the store's revision, but not this resource's.
        let elsewhere = other.create("a", &format!("x{i}")).await;
        let result = list(&fixture, ListRequest::default()).await.expect("list");
        assert_eq!(result.items.len(), i + 1);
        assert!(written.resource_version < elsewhere.resource_version);
        assert!(result.resource_version >= elsewhere.resource_version.0);
    }
    let each = began.elapsed() / 30;
    assert!(
        each < Duration::from_millis(80),
        "a consistent list took {each:?}"
    );
}

/// Checks the decision table of resource versions.
pub async fn run_list_versions(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let first = fixture.create("a", "x").await.resource_version.0;
    let second = fixture.create("b", "y").await.resource_version.0;
    let ask = |version, version_match, limit| ListRequest {
        version,
        version_match,
        limit,
        ..ListRequest::default()
    };
    let (exact, newer) = (Some(VersionMatch::Exact), Some(VersionMatch::NotOlderThan));
    for (request, want) in [
        (ask(ReadVersion::Unset, None, 0), 2),
        (ask(ReadVersion::At(second), None, 0), 2),
        (ask(ReadVersion::At(first), newer, 0), 2),
        (ask(ReadVersion::At(first), exact, 0), 1),
        (ask(ReadVersion::At(first), None, 5), 1),
        (ask(ReadVersion::Any, None, 1), 2),
        (ask(ReadVersion::Any, newer, 0), 2),
        (ask(ReadVersion::Unset, None, 1), 1),
    ] {
        let result = list(&fixture, request.clone()).await.expect("list");
        assert_eq!(result.items.len(), want, "{request:?}");
        if want == 1 && request.version != ReadVersion::Unset {
            assert_eq!(result.resource_version, first, "{request:?}");
        } else {
            assert!(result.resource_version >= second, "{request:?}");
        }
    }
    for request in [
        ask(ReadVersion::Unset, exact, 0),
        ask(ReadVersion::Unset, newer, 0),
        ask(ReadVersion::Any, exact, 0),
    ] {
        let refused = list(&fixture, request).await.expect_err("refused");
        assert_eq!(refused.code, 422, "{refused}");
    }
    let began = Instant::now();
    for version_match in [None, exact] {
        let future = ask(ReadVersion::At(second + 1_000_000), version_match, 0);
        let late = list(&fixture, future).await.expect_err("not there yet");
        assert_eq!(late.code, 504);
        assert!(late.has_cause("ResourceVersionTooLarge"));
        assert_eq!(late.details.expect("details").retry_after_seconds, 1);
    }
    assert!(began.elapsed() < WAIT_FOR_REVISION * 3);
}

/// Checks that pages add up to the state at the first page.
pub async fn run_list_pages(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let mut want = Vec::new();
    for ns in ["a", "a-b", "b"] {
        for i in 0..4 {
            fixture.create(ns, &format!("x{i}")).await;
            fixture
                .set(
                    ns,
                    &format!("x{i}"),
                    "metadata.labels.odd",
                    if i % 2 == 1 { "y" } else { "n" },
                )
                .await;
            want.push(format!("{ns}/x{i}"));
        }
    }
    // The store's order, in which "a-b/" comes before "a/".
    want.sort();
    let odd = LabelSelector::parse("odd=y").expect("selector");
    for (namespace, labels) in [
        (None, LabelSelector::default()),
        (Some("a"), LabelSelector::default()),
        (None, odd.clone()),
        (Some("b"), odd),
    ] {
        let selector = Selector {
            labels,
            ..Selector::all(namespace)
        };
        let want: Vec<String> = want
            .iter()
            .filter(|n| namespace.is_none_or(|ns| n.starts_with(&format!("{ns}/"))))
            .filter(|n| selector.labels.is_empty() || n.ends_with(['1', '3']))
            .cloned()
            .collect();
        let (mut got, mut token, mut version) = (Vec::new(), None, None);
        loop {
            let request = ListRequest {
                selector: selector.clone(),
                limit: 3,
                continue_token: token.clone(),
                ..ListRequest::default()
            };
            let result = list(&fixture, request).await.expect("list");
            got.extend(names(&result));
            assert!(version.is_none_or(|v| v == result.resource_version));
            version = Some(result.resource_version);
            let left = (want.len() - got.len()) as u64;
            let counted = selector.is_whole_scope() && left > 0;
            assert_eq!(result.remaining, counted.then_some(left));
            // What comes between the pages is not seen.
            let late = unique("zz");
            fixture.create("b", &late).await;
            fixture.delete("b", &late).await;
            token = result.continue_token;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(got, want, "{selector:?}");
    }
    let garbage = ListRequest {
        limit: 1,
        continue_token: Some("garbage".to_owned()),
        ..ListRequest::default()
    };
    assert_eq!(
        list(&fixture, garbage).await.expect_err("refused").code,
        400
    );
}

/// Checks reads of one object, at every freshness, there or not.
pub async fn run_gets(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let before = store.current_revision().await.expect("revision");
    let made = fixture.create("a", "x").await;
    let newest = fixture.set("a", "x", "spec.v", "1").await;
    let at = newest.resource_version.0;
    // From the cache, once that has it.
    let get = |name: &'static str, version| fixture.resource.get(Some("a"), name, version);
    for version in [
        ReadVersion::Unset,
        ReadVersion::At(at),
        ReadVersion::At(made.resource_version.0),
        ReadVersion::At(before),
        ReadVersion::Any,
    ] {
        let got = get("x", version).await.expect("get");
        assert!(got.resource_version.0 >= made.resource_version.0);
        if matches!(version, ReadVersion::Unset) || version == ReadVersion::At(at) {
            assert_eq!(got.body(), newest.body());
        }
        let absent = get("none", version).await.expect_err("absent");
        assert_eq!(
            (absent.code, absent.message.as_str()),
            (404, "things \"none\" not found")
        );
    }
    let future = ReadVersion::At(at + 1_000_000);
    let late = get("x", future).await.expect_err("not there yet");
    assert_eq!(late.code, 504);
    assert!(late.has_cause("ResourceVersionTooLarge"));
    fixture.delete("a", "x").await;
    let gone = get("x", ReadVersion::Unset).await.expect_err("gone");
    assert_eq!(gone.code, 404);
}

/// Checks lists by scope, name, labels and fields, at every freshness.
pub async fn run_list_selectors(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    // Names and namespaces that begin like others.
    for (ns, name) in [("a", "x"), ("a", "xy"), ("ab", "x"), ("b", "x"), ("b", "y")] {
        fixture.create(ns, name).await;
    }
    fixture.set("a", "xy", "metadata.labels.app", "web").await;
    fixture.set("b", "x", "metadata.labels.app", "web").await;
    fixture.set("b", "x", "spec.nodeName", "n1").await;
    let last = fixture.set("b", "y", "spec.nodeName", "n1").await;
    let exact = last.resource_version.0;
    let select = |ns: Option<&str>, labels: &str, fields: &str| Selector {
        labels: LabelSelector::parse(labels).expect("labels"),
        fields: meta::FieldSelector::parse(fields).expect("fields"),
        ..Selector::all(ns)
    };
    let named = Selector {
        name: Some("x".to_owned()),
        ..Selector::all(Some("b"))
    };
    for (selector, want) in [
        (
            select(None, "", ""),
            &["a/x", "a/xy", "ab/x", "b/x", "b/y"][..],
        ),
        (select(Some("a"), "", ""), &["a/x", "a/xy"]),
        (select(Some("none"), "", ""), &[]),
        (named, &["b/x"]),
        (select(None, "", "metadata.name=x"), &["a/x", "ab/x", "b/x"]),
        (select(Some("ab"), "", "metadata.name=x"), &["ab/x"]),
        (select(None, "", "metadata.namespace=b"), &["b/x", "b/y"]),
        (select(Some("a"), "", "metadata.namespace=b"), &[]),
        (select(None, "", "metadata.name!=x"), &["a/xy", "b/y"]),
        (
            select(None, "", "metadata.namespace=b,metadata.name=y"),
            &["b/y"],
        ),
        (select(None, "app=web", ""), &["a/xy", "b/x"]),
        (select(None, "app=web", "spec.nodeName=n1"), &["b/x"]),
        (select(Some("a"), "!app", ""), &["a/x"]),
        (select(None, "", "spec.nodeName=n1"), &["b/x", "b/y"]),
        (select(None, "", "spec.nodeName="), &["a/x", "a/xy", "ab/x"]),
    ] {
        for (version, version_match) in [
            (ReadVersion::Unset, None),
            (ReadVersion::At(exact), None),
            (ReadVersion::At(exact), Some(VersionMatch::NotOlderThan)),
            (ReadVersion::At(exact), Some(VersionMatch::Exact)),
            (ReadVersion::Any, None),
        ] {
            let request = ListRequest {
                selector: selector.clone(),
                version,
                version_match,
                ..ListRequest::default()
            };
            let result = list(&fixture, request).await.expect("list");
            assert_eq!(names(&result), want, "{selector:?} {version:?}");
            assert!(result.resource_version >= exact);
            assert_eq!((result.continue_token, result.remaining), (None, None));
        }
    }
}

/// Checks that pages of what is rare are as full as those of what is not, and
/// that a page which happens to be full at the end has none behind it.
pub async fn run_list_rare(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    for i in 0..60 {
        fixture.create("a", &format!("x{i:02}")).await;
    }
    for i in [7, 33, 59] {
        let name = format!("x{i:02}");
        fixture.set("a", &name, "metadata.labels.rare", "y").await;
    }
    let page = |labels: &str, limit, token| ListRequest {
        selector: Selector {
            labels: LabelSelector::parse(labels).expect("labels"),
            ..Selector::all(Some("a"))
        },
        limit,
        continue_token: token,
        ..ListRequest::default()
    };
    let first = list(&fixture, page("rare", 2, None)).await.expect("list");
    assert_eq!(names(&first), ["a/x07", "a/x33"]);
    assert_eq!(first.remaining, None, "what is filtered is not counted");
    let token = first.continue_token;
    let rest = list(&fixture, page("rare", 2, token)).await.expect("list");
    assert_eq!(names(&rest), ["a/x59"]);
    assert_eq!(rest.continue_token, None);
    let whole = list(&fixture, page("", 60, None)).await.expect("list");
    assert_eq!((whole.items.len(), whole.continue_token), (60, None));
    // The continued list is of the first page's state, whatever came since.
    let first = list(&fixture, page("", 59, None)).await.expect("list");
    assert_eq!(first.remaining, Some(1));
    fixture.delete("a", "x59").await;
    let token = first.continue_token;
    let rest = list(&fixture, page("", 0, token)).await.expect("list");
    assert_eq!(names(&rest), ["a/x59"]);
    assert_eq!(rest.resource_version, first.resource_version);
}

/// Checks that what the store was made to forget is not served from memory
/// either: not the list at that version, and not the rest of one.
pub async fn run_list_compacted(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    for name in ["x", "y", "z"] {
        fixture.create("a", name).await;
    }
    let page = |token| ListRequest {
        limit: 2,
        continue_token: token,
        ..ListRequest::default()
    };
    let exact = |version| ListRequest {
        version: ReadVersion::At(version),
        version_match: Some(VersionMatch::Exact),
        ..ListRequest::default()
    };
    let first = list(&fixture, page(None)).await.expect("list");
    let old = first.resource_version;
    let last = fixture.set("a", "z", "spec.v", "1").await;
    let last = last.resource_version.0;
    // The cache has it all.
    assert_eq!(
        list(&fixture, exact(old)).await.expect("list").items.len(),
        3
    );
    let told = fixture.resource.clone();
    let token = tokio_util::sync::CancellationToken::new();
    tokio::spawn(follow(
        store.clone(),
        Arc::new(move || vec![told.clone()]),
        Duration::from_millis(20),
        token.clone(),
    ));
    let _stop = token.drop_guard();
    store.compact(last).await.expect("compact");
    let refused = async {
        loop {
            match list(&fixture, exact(old)).await {
                Err(status) => break status,
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let refused = within("a refusal", refused).await;
    assert_eq!((refused.code, refused.reason), (410, meta::Reason::Expired));
    let refused = list(&fixture, page(first.continue_token)).await;
    let refused = refused.expect_err("gone");
    assert_eq!((refused.code, refused.reason), (410, meta::Reason::Expired));
    let token = refused.metadata.continue_token;
    let rest = list(&fixture, page(Some(token))).await.expect("list");
    assert_eq!(names(&rest), ["a/z"]);
    assert!(rest.resource_version >= last);
    // What is left is served.
    assert_eq!(
        list(&fixture, exact(last)).await.expect("list").items.len(),
        3
    );
}

/// Checks that a page at a forgotten revision is refused with a token that
/// works, and that a revision only the store remembers is still served.
pub async fn run_list_expiry(store: &Arc<dyn Store>) {
    let prefix = unique("expiring");
    let fixture = start(store, &prefix).await;
    for name in ["x", "y", "z"] {
        fixture.create("a", name).await;
    }
    let page = |token| ListRequest {
        limit: 2,
        continue_token: token,
        ..ListRequest::default()
    };
    let first = list(&fixture, page(None)).await.expect("list");
    fixture.delete("a", "z").await;
    // A server that starts now has no memory of that revision.
    let fresh = start(store, &prefix).await;
    let rest = list(&fresh, page(first.continue_token.clone()))
        .await
        .expect("list");
    assert_eq!(names(&rest), ["a/z"]);
    assert_eq!(rest.resource_version, first.resource_version);

    let newest = store.current_revision().await.expect("revision");
    store.compact(newest).await.expect("compact");
    let fresh = start(store, &prefix).await;
    let refused = list(&fresh, page(first.continue_token))
        .await
        .expect_err("gone");
    assert_eq!((refused.code, refused.reason), (410, meta::Reason::Expired));
    let token = refused.metadata.continue_token;
    assert!(!token.is_empty());
    fixture.create("a", "zz").await;
    let rest = list(&fresh, page(Some(token))).await.expect("list");
    assert_eq!(names(&rest), ["a/zz"]);
    let exact = ListRequest {
        version: ReadVersion::At(first.resource_version),
        version_match: Some(VersionMatch::Exact),
        ..ListRequest::default()
    };
    assert_eq!(list(&fresh, exact).await.expect_err("gone").code, 410);
}

/// Checks that the items of a list can be taken later, whatever was written meanwhile,
/// and that a list whose rest the store has forgotten breaks off: it must not just end.
pub async fn run_list_later(store: &Arc<dyn Store>) {
    let prefix = unique("later");
    let fixture = start(store, &prefix).await;
    // More than a page of the store's.
    let count = STORE_PAGE + 20;
    let made = (0..count).map(|i| format!("x{i:04}"));
    let made: Vec<String> = made.collect();
    futures::future::join_all(made.iter().map(|name| fixture.create("a", name))).await;
    let want: Vec<String> = made.iter().map(|name| format!("a/{name}")).collect();
    let open = fixture.resource.open_list(ListRequest::default()).await;
    let open = open.expect("list");
    let exact = ListRequest {
        version: ReadVersion::At(open.resource_version),
        version_match: Some(VersionMatch::Exact),
        ..ListRequest::default()
    };
    fixture.delete("a", "x0519").await;
    fixture.create("a", "y").await;
    assert_eq!(names(&open.collect().await.expect("items")), want);

    // A server that starts now has no memory of that revision.
    let fresh = start(store, &prefix).await;
    let open = || fresh.resource.open_list(exact.clone());
    let (mut twice, other) = (open().await.expect("list"), open().await.expect("list"));
    let again = twice.items.clone();
    fixture.delete("a", "x0518").await;
    for items in [twice.items, again] {
        twice.items = items;
        let mut taken = Vec::new();
        while twice.items.refill().await.expect("items") {
            let ready = std::iter::from_fn(|| twice.items.take());
            taken.extend(ready.map(|o| format!("a/{}", o.meta.name)));
        }
        assert_eq!(taken, want);
    }
    let newest = store.current_revision().await.expect("revision");
    store.compact(newest).await.expect("compact");
    let broken = other.collect().await.expect_err("the rest is gone");
    assert_eq!((broken.code, broken.reason), (410, meta::Reason::Expired));
}
