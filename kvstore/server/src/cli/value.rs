//! Values as Go reads them: etcd's flags are Go's.

use std::time::Duration;

/// Reads a boolean in the spellings of Go's `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Reads a number from zero, decimal or with Go's `0x`, `0o` and `0b`.
pub(crate) fn count(text: &str) -> Option<u64> {
    // Rust takes a leading plus, Go does not.
    if text.starts_with('+') {
        return None;
    }
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok();
        }
    }
    text.parse().ok()
}

/// Reads a number that may be negative.
pub(crate) fn number(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => i64::try_from(count(digits)?).ok().map(|size| -size),
        None => i64::try_from(count(text)?).ok(),
    }
}

/// Reads a duration: numbers with units, such as `1h30m` or `500ms`, or `0`.
/// Negative ones make no sense for any flag.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = &tail[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let millis = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(millis("0"), Some(0));
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("1.5s"), Some(1_500));
        assert_eq!(millis("1m0.5s"), Some(60_500));
        assert_eq!(duration("3us"), Some(Duration::from_micros(3)));
        for bad in ["", "5", "s", "-5s", "5 s", "soon", "1h30", "1e30h", "5x"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn booleans_and_numbers_are_gos() {
        for yes in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(boolean(yes), Some(true));
        }
        assert_eq!(boolean("False"), Some(false));
        assert_eq!(boolean("yes"), None);
        assert_eq!(boolean(""), None);
        assert_eq!(count("0x10"), Some(16));
        assert_eq!(count("18446744073709551615"), Some(u64::MAX));
        assert_eq!(count("-1"), None);
        assert_eq!(count("+1"), None);
        assert_eq!(number("-1"), Some(-1));
        assert_eq!(number("9223372036854775808"), None);
    }
}
