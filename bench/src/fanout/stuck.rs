//! One watcher who does not read and one who reads too slowly, among many who do: what
//! the many notice, and how the two are let go.

use std::time::Duration;

use super::cases::Case;
use super::figures::Results;
use super::measure::{Plan, round, sum_up};
use super::order::{Pace, Saw, Wire};
use super::server::Server;
use crate::report::say_error;

/// How many watch, and what is written.
const WATCHERS: usize = 1_000;
const BYTES: usize = 1_000;

/// Those who hold up.
const OTHERS: [Pace; 2] = [Pace::Stuck, Pace::Slow(10_000)];

/// How long it goes on at least, so that what waits for the two reaches any limit.
const WINDOW_MIN: Duration = Duration::from_secs(25);

/// How much later than without them the others' events may come.
const LATER: f64 = 1.1;

/// Returns the case.
fn case(scale: f64) -> Case {
    Case {
        wire: Wire::Json,
        watchers: super::scaled(WATCHERS, scale),
        on_nodes: false,
        bytes: BYTES,
        saturating: false,
    }
}

/// Returns the name of the case.
pub(super) fn name(scale: f64) -> String {
    let watchers = case(scale).watchers;
    format!("slow, one stuck and one at 10 kB/s among {watchers}")
}

/// Runs rounds without the two and with them, in turn.
pub(super) async fn measure(
    server: &Server,
    plan: Plan,
    (rounds, scale): (usize, f64),
    results: &mut Results,
) -> anyhow::Result<()> {
    let (case, name) = (case(scale), name(scale));
    let plan = Plan {
        window: plan.window.max(WINDOW_MIN),
        ..plan
    };
    let door = server.door();
    case.objects(0).make(&door).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for nth in 0..rounds {
        for (runs, others) in [(&mut without, &[][..]), (&mut with, &OTHERS)] {
            let base = super::base(2 * nth + usize::from(!others.is_empty()))?;
            let run = round(server, &case, plan, case.objects(base), others).await?;
            say_error(&format!(
                "{name}, round {}, {}, {} beside: {}",
                nth + 1,
                server.name,
                others.len(),
                run.line()
            ));
            runs.push(run);
        }
    }
    let mut alone = sum_up(&case, &server.name, &without)?;
    let mut beside = sum_up(&case, &server.name, &with)?;
    alone.case = format!("{name}: without them");
    beside.case.clone_from(&name);
    let target = &server.name;
    let more = beside.peak_rss_mb - alone.peak_rss_mb;
    results.fact(&name, target, "MB more at the peak than without", more);
    let (mut open, mut wrong) = (0, 0);
    for saw in with.iter().flat_map(|run| &run.others) {
        let (was_open, was_wrong) = judge(saw);
        open += u64::from(was_open);
        wrong += u64::from(was_wrong);
        for how in &saw.ended {
            say_error(&format!("{name}, {target}: {how}"));
        }
        if saw.gaps + saw.duplicates + saw.backwards + saw.strange > 0 {
            results.breaks(format!("{name}, {target}: a slow watcher saw {saw:?}"));
        }
    }
    results.fact(
        &name,
        target,
        "slow watches that were left open",
        open as f64,
    );
    if server.is_ours() {
        let later = beside.p99_us / alone.p99_us.max(1.0);
        results.check(&name, "p99 of the others, of that without", later, LATER);
        let ended = beside.terminated as f64;
        results.check(&name, "watches of others that were ended", ended, 0.0);
        let stuck = with.iter().filter_map(|run| run.others.first());
        let stuck = stuck.filter(|saw| saw.ended.is_empty()).count();
        results.check(
            &name,
            "stuck watches that were left open",
            stuck as f64,
            0.0,
        );
        results.check(&name, "watches closed in a wrong way", wrong as f64, 0.0);
    }
    results.add(alone);
    results.add(beside);
    Ok(())
}

/// Tells whether a slow watch was left open, and whether it was ended otherwise than
/// clients know how to deal with: by the end of its body after a whole event or by 410,
/// after which it goes on where it was or lists anew.
fn judge(saw: &Saw) -> (bool, bool) {
    let well = |how: &String| {
        let (end, after) = how.rsplit_once("; ").unwrap_or((how, ""));
        let end = end == "ended well" || (end.starts_with("said") && end.contains("410"));
        let after = ["goes on where it ended", "must list anew (410)"].contains(&after)
            || after == "nothing was left to come";
        end && after
    };
    (saw.ended.is_empty(), !saw.ended.iter().all(well))
}

#[cfg(test)]
mod test {
    use super::*;

    fn judged(how: &str) -> (bool, bool) {
        judge(&Saw {
            ended: vec![how.to_owned()],
            ..Saw::default()
        })
    }

    #[test]
    fn only_what_clients_know_is_well() {
        assert_eq!(judge(&Saw::default()), (true, false));
        assert_eq!(judged("ended well; goes on where it ended"), (false, false));
        let expired = "said {\"code\":410}; must list anew (410)";
        assert_eq!(judged(expired), (false, false));
        for wrong in [
            "ended within an event; goes on where it ended",
            "broke: reset; goes on where it ended",
            "ended well; goes on with a gap",
            "ended well; cannot be resumed: no answer",
        ] {
            assert_eq!(judged(wrong), (false, true), "{wrong}");
        }
    }
}
