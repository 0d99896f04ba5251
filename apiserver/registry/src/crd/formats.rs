//! The formats of strings that are checked. A format that is not here says
//! something to people only.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

/// Checks a text.
pub(super) type Holds = fn(&str) -> bool;

/// Returns the check of a format; dashes in its name count for nothing.
pub(super) fn known(format: &str) -> Option<Holds> {
    if format.is_empty() {
        return None;
    }
    let name = format.replace('-', "");
    Some(match name.as_str() {
        "bsonobjectid" => |t| t.len() == 24 && t.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |t| t.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |t| t.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |t| is_uuid(t, None),
        "uuid3" => |t| is_uuid(t, Some(b'3')),
        "uuid4" => |t| is_uuid(t, Some(b'4')),
        "uuid5" => |t| is_uuid(t, Some(b'5')),
        "isbn" => |t| is_isbn10(t) || is_isbn13(t),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |t| shaped(t, "000-00-0000") || shaped(t, "000 00 0000"),
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => |t| shaped(t, "0000-00-00") && t.parse::<jiff::civil::Date>().is_ok(),
        "datetime" => is_date_time,
        "duration" => is_duration,
        "k8sshortname" => |t| meta::names::label_errors(t).is_empty(),
        "k8slongname" => |t| meta::names::subdomain_errors(t).is_empty(),
        _ => return None,
    })
}

/// Compares a text with a shape in which `0` stands for any digit.
fn shaped(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(b, s)| match s {
            b'0' => b.is_ascii_digit(),
            other => b == other,
        })
}

fn is_uri(text: &str) -> bool {
    text.starts_with('/') || text.parse::<UriParts>().is_ok()
}

/// A URI as far as Go's `ParseRequestURI` looks: a scheme and something.
struct UriParts;

impl std::str::FromStr for UriParts {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (scheme, rest) = text.split_once(':').ok_or(())?;
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let clean = !rest.bytes().any(|b| b.is_ascii_control() || b == b' ');
        (named && clean).then_some(Self).ok_or(())
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    !local.is_empty()
        && !local.contains(char::is_whitespace)
        && !domain.is_empty()
        && domain
            .split('.')
            .all(|part| !part.is_empty() && !part.contains(char::is_whitespace))
}

fn is_hostname(text: &str) -> bool {
    static LABEL: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]([\p{L}\p{N}-]*[\p{L}\p{N}])?$").ok());
    let text = text.strip_suffix('.').unwrap_or(text);
    let fits = |label: &str| {
        label.len() <= 63
            && LABEL
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(label))
    };
    !text.is_empty() && text.len() <= 255 && text.split('.').all(fits)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| plain) else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let bytes = parts.len() * digits / 2;
        matches!(bytes, 6 | 8 | 20)
            && parts
                .iter()
                .all(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bare: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let dashed = !text.contains('-')
        || text.len() == 36 && [8, 13, 18, 23].iter().all(|i| text.as_bytes()[*i] == b'-');
    let hex = bare.len() == 32 && bare.iter().all(u8::is_ascii_hexdigit);
    let variant = |b: u8| matches!(b.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    hex && dashed && version.is_none_or(|v| bare[12] == v && (v == b'3' || variant(bare[16])))
}

fn digits_of(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !b"- ".contains(b)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let value = |index: usize, b: u8| match b {
        b'X' | b'x' if index == 9 => Some(10),
        b if b.is_ascii_digit() => Some(u32::from(b - b'0')),
        _ => None,
    };
    let sum = digits.iter().enumerate().try_fold(0, |sum, (i, b)| {
        Some(sum + value(i, *b)? * (10 - i as u32).max(1))
    });
    digits.len() == 10 && sum.is_some_and(|s: u32| s.is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let sum: u32 = digits
        .iter()
        .enumerate()
        .map(|(i, b)| u32::from(b.wrapping_sub(b'0')) * if i % 2 == 0 { 1 } else { 3 })
        .sum();
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && sum.is_multiple_of(10)
}

/// Luhn's sum over twelve to nineteen digits.
fn is_credit_card(text: &str) -> bool {
    let digits = digits_of(text);
    if !(12..=19).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let digit = u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 2 };
            digit / 10 + digit % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|p| p.parse::<u8>().is_ok())
}

fn is_base64(text: &str) -> bool {
    let encoding = base64::engine::general_purpose::STANDARD;
    encoding.decode(text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    const SHAPE: &str = "0000-00-00T00:00:00";
    let upper = text.to_ascii_uppercase();
    let Some((moment, rest)) = upper.split_at_checked(SHAPE.len()) else {
        return false;
    };
    // Apart from its offset, so that the last second there is is one as well.
    let is_moment = shaped(moment, SHAPE) && moment.parse::<jiff::civil::DateTime>().is_ok();
    is_moment && is_zone(after_fraction(rest))
}

/// Returns what follows the fraction of a second, if there is one.
fn after_fraction(rest: &str) -> &str {
    let digits = rest.strip_prefix('.').unwrap_or_default();
    match digits.trim_start_matches(|c: char| c.is_ascii_digit()) {
        end if end.len() < digits.len() => end,
        _ => rest,
    }
}

/// Tells whether a text is the offset from UTC at the end of a time.
fn is_zone(text: &str) -> bool {
    let hours = |text: &str| text.parse::<u8>().is_ok_and(|hours| hours < 24);
    let minutes = |text: &str| text.parse::<u8>().is_ok_and(|minutes| minutes < 60);
    let offset = |text: &str| shaped(text, "00:00") && hours(&text[..2]) && minutes(&text[3..]);
    text == "Z" || text.strip_prefix(['+', '-']).is_some_and(offset)
}

/// A duration as Go writes it (`1h30m`), or in words (`3 days`).
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$").ok()
    });
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)^(\d+)\s*(nanoseconds?|nanos?|nanosecs?|ns|microseconds?|micros?|microsecs?|us|µs|milliseconds?|millis?|millisecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w)$",
        )
        .ok()
    });
    let fits = |pattern: &Option<Regex>| pattern.as_ref().is_some_and(|p| p.is_match(text));
    fits(&GO) || fits(&WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_texts_apart() {
        for (format, good, bad) in [
            ("date", "2026-01-31", "2026-02-31"),
            ("date-time", "2026-01-31T10:00:00.5+02:00", "2026-01-31"),
            ("datetime", "2026-01-31T10:00:00Z", "yesterday"),
            ("date-time", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59"),
            (
                "date-time",
                "2026-01-31t10:00:00.25z",
                "2026-01-31T10:00:00.Z",
            ),
            (
                "date-time",
                "2026-01-31T10:00:00-00:59",
                "2026-01-31T10:00:00-00:60",
            ),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "01:02:03:04:ab:cd", "01:02:03"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            (
                "uuid4",
                "123e4567-e89b-42d3-a456-426614174000",
                "123e4567-e89b-12d3-a456-426614174000",
            ),
            ("hostname", "a.example.com", "-a.example.com"),
            ("email", "a@example.com", "example.com"),
            ("uri", "https://example.com/x", "no uri"),
            ("byte", "YQ==", "%"),
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", "3 moons"),
            ("hexcolor", "#A0b1C2", "#12"),
            ("rgbcolor", "rgb(1, 2, 255)", "rgb(1, 2, 256)"),
            ("isbn10", "0-321-14653-0", "0-321-14653-1"),
            ("isbn13", "978-0-321-14653-3", "978-0-321-14653-4"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "123-45-6789", "123456789"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
        ] {
            let holds = known(format).unwrap();
            assert!(holds(good), "{format} {good}");
            assert!(!holds(bad), "{format} {bad}");
        }
        assert!(known("int32").is_none() && known("").is_none());
    }
}
