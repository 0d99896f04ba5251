//! How long a request may take: the server's limit, or less if its client says so
//! (`?timeout=10s`, which kubectl's `--request-timeout` sends).

use std::time::Duration;

use meta::Status;

use crate::query::Query;
use crate::request_info::Verb;

/// How long a request that is not long-running may take; then 504.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a write of one object may take, whatever its client says.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// Decides how long a request may take; 400 for a timeout that is none.
pub(crate) fn of(query: &Query, verb: Verb) -> Result<Duration, Status> {
    let limit = match verb {
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => WRITE_TIMEOUT,
        _ => REQUEST_TIMEOUT,
    };
    let Some(asked) = query.non_empty("timeout") else {
        return Ok(limit);
    };
    let asked = duration(asked).map_err(|why| {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: {why}"
        ))
    })?;
    // None, or less than none, means that the client does not mind.
    Ok(asked.filter(|a| !a.is_zero()).unwrap_or(limit).min(limit))
}

/// Reads a duration as Go writes it (`1h30m`, `1.5s`); `None` is a negative one.
fn duration(text: &str) -> Result<Option<Duration>, String> {
    let invalid = || format!("invalid duration {text:?}");
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut rest = unsigned;
    if rest == "0" {
        return Ok(Some(Duration::ZERO));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_ignored| invalid())?;
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("missing unit in duration {text:?}")),
            unit => return Err(format!("unknown unit {unit:?} in duration {text:?}")),
        };
        total += number * seconds;
        rest = after;
    }
    let whole = Duration::try_from_secs_f64(total).map_err(|_ignored| invalid())?;
    Ok(Some(whole).filter(|_| !text.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_ask_for_less() {
        let asked = |text: &str, verb| {
            let query = Query::parse(&format!("timeout={text}")).unwrap();
            of(&query, verb)
                .map(|d| d.as_millis())
                .map_err(|s| s.message)
        };
        for (text, want) in [
            ("", 60_000),
            ("0", 60_000),
            ("0s", 60_000),
            ("-5s", 60_000),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("%2B500ms", 500),
            ("1m", 60_000),
            ("1h30m", 60_000),
            ("2m0.5s", 60_000),
            (".5s", 500),
        ] {
            assert_eq!(asked(text, Verb::List), Ok(want), "{text}");
        }
        assert_eq!(asked("50s", Verb::Create), Ok(34_000));
        for (text, why) in [
            ("x", r#"time: invalid duration "x""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("5d", r#"time: unknown unit "d" in duration "5d""#),
            ("1.2.3s", r#"time: invalid duration "1.2.3s""#),
        ] {
            let error = asked(text, Verb::Get).unwrap_err();
            assert_eq!(
                error,
                format!("invalid timeout specified in the request URL - {why}")
            );
        }
    }
}
