//! Times as the API writes them. The clock itself is always passed in.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// Formats a `metav1.Time`: RFC 3339 in UTC, whole seconds.
pub fn format(t: Timestamp) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(0));
    PRINTER.timestamp_to_string(&t)
}

/// Formats a `metav1.MicroTime`: RFC 3339 in UTC, six digits of fraction.
pub fn format_micro(t: Timestamp) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    PRINTER.timestamp_to_string(&t)
}

/// Parses an RFC 3339 time with any offset, if it [can be written](is_writable).
pub fn parse(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = whole_seconds(text.as_bytes()) {
        return Timestamp::from_second(seconds).ok();
    }
    text.parse().ok().filter(|t| is_writable(*t))
}

/// Reads a time in the form in which [`format`] writes it, which is that of nearly all
/// times there are; `None` for every other.
fn whole_seconds(text: &[u8]) -> Option<i64> {
    let shape = |at: usize| match at {
        4 | 7 => b'-',
        10 => b'T',
        13 | 16 => b':',
        19 => b'Z',
        _ => b'0',
    };
    let fits = |(at, byte): (usize, &u8)| match shape(at) {
        b'0' => byte.is_ascii_digit(),
        mark => *byte == mark,
    };
    if text.len() != 20 || !text.iter().enumerate().all(fits) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = text[range].iter();
        digits.fold(0, |n, digit| n * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day < 1 || day > days || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years begin in March, so that the day that not all have is the last: the months
    // before one have 153 days in five.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leaps + (153 * month + 2) / 5 + day - 1;
    /// From the first of March of the year nought to 1970.
    const TO_EPOCH: i64 = 719_468;
    Some((days - TO_EPOCH) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Tells whether a time can be written, and read again: a year before the first has a
/// sign and more digits than RFC 3339 gives it.
pub fn is_writable(t: Timestamp) -> bool {
    const YEAR_ZERO: i64 = -62_167_219_200;
    t.as_second() >= YEAR_ZERO && t.subsec_nanosecond() >= 0 || t.as_second() > YEAR_ZERO
}

/// Formats an age as kubectl prints it (`human-readable duration` of
/// apimachinery): two units while the larger one is small, one beyond.
pub fn human_duration(seconds: i64) -> String {
    let s = seconds;
    if s < -1 {
        return "<invalid>".to_owned();
    }
    if s < 0 {
        return "0s".to_owned();
    }
    if s < 120 {
        return format!("{s}s");
    }
    let minutes = s / 60;
    let two = |a: i64, au: &str, b: i64, bu: &str| {
        if b == 0 {
            format!("{a}{au}")
        } else {
            format!("{a}{au}{b}{bu}")
        }
    };
    if minutes < 10 {
        return two(minutes, "m", s % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    let hours = s / 3600;
    if hours < 8 {
        return two(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    if hours < 24 * 8 {
        return two(hours / 24, "d", hours % 24, "h");
    }
    if hours < 24 * 365 * 2 {
        return format!("{}d", hours / 24);
    }
    if hours < 24 * 365 * 8 {
        return two(hours / 24 / 365, "y", (hours / 24) % 365, "d");
    }
    format!("{}y", hours / 24 / 365)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_kubernetes_does() {
        let t: Timestamp = "2026-03-01T12:34:56.789Z".parse().unwrap();
        assert_eq!(format(t), "2026-03-01T12:34:56Z");
        assert_eq!(format_micro(t), "2026-03-01T12:34:56.789000Z");
        assert_eq!(
            parse("2026-03-01T14:34:56+02:00"),
            parse("2026-03-01T12:34:56Z")
        );
        assert_eq!(parse("yesterday"), None);
        let first = "0000-01-01T00:00:00Z";
        assert_eq!(parse(first).map(format).as_deref(), Some(first));
        // In UTC that is a year before the first.
        assert_eq!(parse("0000-01-01T00:00:00+01:00"), None);
        assert!(!is_writable(Timestamp::MIN) && is_writable(Timestamp::MAX));
    }

    #[test]
    fn the_usual_form_is_read_as_any_other() {
        // About once in 37 days of ten thousand years, at a second of its own.
        let (first, last) = (-62_167_219_200, 253_402_207_200_i64);
        for second in (first..=last).step_by(37 * 86_400 + 3601) {
            let text = format(Timestamp::from_second(second).unwrap());
            assert_eq!(whole_seconds(text.as_bytes()), Some(second), "{text}");
        }
        for text in [
            "2024-02-29T23:59:59Z",
            "2000-02-29T00:00:00Z",
            "2100-03-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2025-12-31T12:30:00Z",
        ] {
            let want = text.parse::<Timestamp>().unwrap().as_second();
            assert_eq!(whole_seconds(text.as_bytes()), Some(want), "{text}");
        }
        for text in [
            "2023-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00+",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:0Z",
            "",
        ] {
            assert_eq!(whole_seconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn ages_read_as_in_kubectl() {
        for (s, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (61 * 5, "5m5s"),
            (60 * 179, "179m"),
            (3600 * 3 + 60 * 20, "3h20m"),
            (3600 * 47, "47h"),
            (86400 * 3 + 3600 * 4, "3d4h"),
            (86400 * 300, "300d"),
            (86400 * 365 * 3 + 86400, "3y1d"),
            (86400 * 365 * 9, "9y"),
        ] {
            assert_eq!(human_duration(s), text);
        }
    }
}
