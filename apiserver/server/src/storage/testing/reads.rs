//! What listing through a resource must do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::{LabelSelector, Status};
use watchcache::Selector;

use super::{Fixture, resource, start, unique};
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

/// Checks that a list shows every write answered before it began, at once.
pub async fn run_consistency(store: &Arc<dyn Store>) {
    let (fixture, other) = (resource(store).await, resource(store).await);
    let began = Instant::now();
    for i in 0..30 {
        let written = fixture.create("a", &format!("x{i}")).await;
        // Writes elsewhere move the store's revision, but not this resource's.
        other.create("a", &format!("x{i}")).await;
        let result = list(&fixture, ListRequest::default()).await.expect("list");
        assert_eq!(result.items.len(), i + 1);
        assert!(result.resource_version >= written.resource_version.0);
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
