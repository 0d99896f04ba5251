//! The page says what was found, in a size that does not grow with the run.

use checkers::{
    generate::{self, Shape},
    history::{Fault, History, found, get, put, wrote},
    judge::{Settings, judge},
};

use super::*;

fn page(history: &History) -> String {
    html(history, &judge(history, &Settings::default()))
}

fn stale() -> History {
    let mut history = generate::history(1, &Shape::default());
    history.about.title = "a <bad> run".to_owned();
    history.about.seed = Some(42);
    let end = history.ops.iter().map(|op| op.ret).max().unwrap();
    history.ok(900, (end + 1, end + 2), get("k0"), found(1, []));
    history.nemesis.push(Fault {
        kind: "kill".into(),
        detail: "member 1".to_owned(),
        from: end / 3,
        to: end / 2,
    });
    history
}

#[test]
fn the_page_says_what_was_found_and_draws_it() {
    let text = page(&stale());
    for part in [
        "a &lt;bad&gt; run",
        "stale-read",
        "class=\"band\"",
        "<dd>42</dd>",
        "marker-end",
        "Operations per second",
    ] {
        assert!(text.contains(part), "no {part}");
    }
    assert!(!text.contains("http"), "it needs nothing else");
    assert!(!text.contains("NaN") && !text.contains("inf\""));
}

#[test]
fn a_long_run_does_not_make_a_long_page() {
    let mut history = History::default();
    for at in 0..100_000u64 {
        let process = u32::try_from(at % 50).unwrap();
        let call = at * 1_000_000;
        let took = 1_000_000 * (1 + at % 17);
        history.ok(process, (call, call + took), put("a", "1"), wrote(2));
    }
    // The checkers have their own tests.
    let judgement = Judgement {
        verdict: Verdict::Valid,
        findings: Vec::new(),
    };
    let text = html(&history, &judgement);
    assert!(text.len() < 4_000_000, "{} bytes", text.len());
}

#[test]
fn nothing_at_all_is_drawn_too() {
    let text = page(&History::default());
    assert!(text.contains("nothing to check"));
}

#[test]
fn machines_read_the_same() {
    let history = stale();
    let value = summary(&history, &judge(&history, &Settings::default()));
    assert_eq!(value["verdict"], "stale-read");
    assert_eq!(value["seed"], 42);
    assert_eq!(value["operations"]["all"], history.len());
    assert_eq!(value["faults"]["kill"], 1);
    assert_eq!(value["checkers"][0]["checker"], "witness");
    assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
}
