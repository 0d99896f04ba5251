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
    text.parse().ok().filter(|t| is_writable(*t))
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
