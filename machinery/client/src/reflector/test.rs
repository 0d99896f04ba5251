//! Named after the behaviours of client-go's `reflector_test.go`.

use super::*;

const T: Duration = Duration::from_secs(10);

fn list(rv: &str, limit: Option<u32>, page: Option<&str>) -> Action {
    Action::List {
        resource_version: rv.into(),
        limit,
        page: page.map(Into::into),
    }
}

fn watch(rv: &str) -> Action {
    Action::Watch {
        resource_version: rv.into(),
        timeout_seconds: WATCH_SECONDS_MIN,
    }
}

fn listed(items: &[u32], rv: &str, page: Option<&str>) -> Input<u32> {
    Input::Listed {
        items: items.to_vec(),
        resource_version: rv.into(),
        next_page: page.map(Into::into),
    }
}

fn added(object: u32, rv: &str) -> Input<u32> {
    Input::Event {
        event: WatchEvent::Added(object),
        resource_version: rv.into(),
    }
}

/// Feeds inputs at one moment without jitter and returns the last answer.
fn run(reflector: &mut Reflector<u32>, inputs: Vec<Input<u32>>) -> Step<u32> {
    let mut last = None;
    for input in inputs {
        last = Some(reflector.step(input, T, 0.0));
    }
    last.expect("at least one input")
}

fn synced(rv: &str) -> Reflector<u32> {
    let mut reflector = Reflector::new();
    run(&mut reflector, vec![Input::Start, listed(&[1], rv, None)]);
    reflector
}

#[test]
fn list_and_watch() {
    let mut r = Reflector::new();
    assert_eq!(
        run(&mut r, vec![Input::Start]).action,
        list("0", Some(500), None)
    );
    let step = run(&mut r, vec![listed(&[1, 2], "7", None)]);
    assert_eq!(step.deliver, Deliver::Replace(vec![1, 2]));
    assert_eq!(step.action, watch("7"));
    let step = run(&mut r, vec![added(3, "8")]);
    assert_eq!(step.deliver, Deliver::Change(WatchEvent::Added(3)));
    assert_eq!(step.action, Action::Continue);
    assert_eq!(run(&mut r, vec![Input::WatchClosed]).action, watch("8"));
}

#[test]
fn paginating_non_consistent_reads_if_watch_cache_disabled() {
    let mut r = Reflector::new();
    let step = run(&mut r, vec![Input::Start, listed(&[1], "7", Some("p2"))]);
    assert_eq!(step.action, list("", Some(500), Some("p2")));
    assert_eq!(
        step.deliver,
        Deliver::Nothing,
        "pages are delivered together"
    );
    let step = run(&mut r, vec![listed(&[2], "7", None)]);
    assert_eq!(step.deliver, Deliver::Replace(vec![1, 2]));
    // From now on lists are paged even at a real version.
    run(&mut r, vec![Input::WatchFailed(Failure::Other)]);
    assert_eq!(
        run(&mut r, vec![Input::TimerFired]).action,
        list("7", Some(500), None)
    );
}

#[test]
fn not_paginating_not_consistent_reads() {
    let mut r = synced("10");
    run(&mut r, vec![Input::WatchFailed(Failure::Other)]);
    assert_eq!(
        run(&mut r, vec![Input::TimerFired]).action,
        list("10", None, None)
    );
}

#[test]
fn expired_exact_resource_version() {
    let mut r = synced("10");
    let step = run(&mut r, vec![Input::WatchFailed(Failure::Expired)]);
    assert_eq!(step.action, Action::Wait(Duration::from_millis(800)));
    assert_eq!(
        run(&mut r, vec![Input::TimerFired]).action,
        list("10", None, None)
    );
    let step = run(&mut r, vec![Input::ListFailed(Failure::Expired)]);
    assert_eq!(
        step.action,
        list("", Some(500), None),
        "at once, the newest state"
    );
    assert_eq!(
        run(&mut r, vec![listed(&[1], "40", None)]).action,
        watch("40")
    );
    run(&mut r, vec![Input::WatchFailed(Failure::Other)]);
    let again = run(&mut r, vec![Input::TimerFired]).action;
    assert_eq!(again, list("40", None, None), "a good list clears the flag");
}

#[test]
fn full_list_if_too_large() {
    let mut r = synced("10");
    run(
        &mut r,
        vec![Input::WatchFailed(Failure::Other), Input::TimerFired],
    );
    let step = run(
        &mut r,
        vec![Input::ListFailed(Failure::TooLargeResourceVersion)],
    );
    assert_eq!(step.action, list("", Some(500), None));
    // The newest state cannot be "too large"; if the server says so, back off.
    let step = run(
        &mut r,
        vec![Input::ListFailed(Failure::TooLargeResourceVersion)],
    );
    assert!(matches!(step.action, Action::Wait(_)));
}

#[test]
fn full_list_if_expired_between_pages() {
    let mut r = Reflector::new();
    run(&mut r, vec![Input::Start, listed(&[1], "7", Some("p2"))]);
    let step = run(&mut r, vec![Input::ListFailed(Failure::Expired)]);
    assert_eq!(step.action, list("0", None, None));
    let step = run(&mut r, vec![listed(&[5, 6], "9", None)]);
    assert_eq!(
        step.deliver,
        Deliver::Replace(vec![5, 6]),
        "the first page is forgotten"
    );
}

#[test]
fn no_relist_on_too_many_requests_and_refused_connection() {
    for failure in [Failure::TooManyRequests, Failure::ConnectionRefused] {
        let mut r = synced("10");
        let step = run(&mut r, vec![Input::WatchFailed(failure)]);
        assert_eq!(step.action, Action::Wait(Duration::from_millis(800)));
        assert_eq!(run(&mut r, vec![Input::TimerFired]).action, watch("10"));
    }
}

#[test]
fn very_short_watch_relists() {
    let mut r = synced("10");
    let action = run(&mut r, vec![Input::WatchClosed]).action;
    assert_eq!(action, Action::Wait(Duration::from_millis(800)));
    assert_eq!(
        run(&mut r, vec![Input::TimerFired]).action,
        list("10", None, None)
    );

    let mut r = synced("10");
    let later = T + Duration::from_secs(2);
    assert_eq!(
        r.step(Input::WatchClosed, later, 0.0).action,
        watch("10"),
        "long enough"
    );
}

#[test]
fn init_conn_backoff_doubles_to_a_limit_and_resets() {
    let mut r = synced("10");
    let mut now = T;
    let mut waits = Vec::new();
    for _ in 0..8 {
        let Action::Wait(wait) = r.step(Input::ListFailed(Failure::Other), now, 0.0).action else {
            panic!("no wait")
        };
        waits.push(wait.as_millis());
        now += wait;
    }
    assert_eq!(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    now += Duration::from_secs(120);
    let step = r.step(Input::ListFailed(Failure::Other), now, 0.5);
    assert_eq!(
        step.action,
        Action::Wait(Duration::from_millis(1200)),
        "reset, with jitter"
    );
}

#[test]
fn a_server_that_is_still_starting_is_asked_again_quickly() {
    let mut r: Reflector<u32> = Reflector::new();
    r.step(Input::Start, Duration::ZERO, 0.0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        let failure = Input::ListFailed(Failure::ConnectionRefused);
        let Action::Wait(wait) = r.step(failure, T, 0.0).action else {
            panic!("no wait")
        };
        waits.push(wait.as_millis());
    }
    assert_eq!(waits, [20, 40, 80, 160, 320, 640, 800, 1600]);
}

#[test]
fn resource_version_follows_events_and_bookmarks() {
    let mut r = synced("10");
    run(&mut r, vec![added(2, "11")]);
    assert_eq!(r.resource_version(), "11");
    let bookmark = WatchEvent::Bookmark {
        resource_version: "20".into(),
        initial_events_end: false,
    };
    let step = run(
        &mut r,
        vec![Input::Event {
            event: bookmark,
            resource_version: "20".into(),
        }],
    );
    assert_eq!(
        (r.resource_version(), step.deliver),
        ("20", Deliver::Nothing)
    );
}

#[test]
fn unordered_added_events_do_not_move_the_version() {
    let mut r = synced("0");
    run(&mut r, vec![added(2, "50"), added(3, "30")]);
    assert_eq!(r.resource_version(), "0");
    let event = Input::Event {
        event: WatchEvent::Modified(2),
        resource_version: "51".into(),
    };
    run(&mut r, vec![event]);
    assert_eq!(r.resource_version(), "51");
}

#[test]
fn watch_timeout_is_jittered_between_five_and_ten_minutes() {
    let mut r: Reflector<u32> = Reflector::new();
    for (jitter, expected) in [(0.0, 300), (0.5, 450), (0.999, 599)] {
        let step = r.step(listed(&[], "1", None), T, jitter);
        let Action::Watch {
            timeout_seconds, ..
        } = step.action
        else {
            panic!("no watch")
        };
        assert_eq!(timeout_seconds, expected);
    }
}
