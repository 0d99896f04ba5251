//! Addresses that endpoints may have, and the lists of them that are printed.

use std::net::IpAddr;

use meta::FieldError;
use serde_json::Value;

use crate::validate::Errors;

/// How many elements a printed list shows.
const SHOWN: usize = 3;

/// Refuses addresses at which nothing but the host itself, or nobody, is.
pub(super) fn not_special(text: &str, path: &str, errors: &mut Errors) {
    let Ok(ip) = text.parse::<IpAddr>() else {
        errors.push(FieldError::invalid(
            path,
            text,
            "must be a valid IP address",
        ));
        return;
    };
    let (link_local, multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    let refusals = [
        (
            ip.is_unspecified(),
            "may not be unspecified (0.0.0.0 or ::)",
        ),
        (
            ip.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ];
    for (_, words) in refusals.iter().filter(|(holds, _)| *holds) {
        errors.push(FieldError::invalid(path, text, *words));
    }
}

/// Joins the first few elements of a list and says how many more there are.
pub(super) fn shortened(all: &[String], none: &str) -> Value {
    let shown = all
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(",");
    match all.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => Value::from(format!("{shown} + {more} more...")),
        _ if shown.is_empty() => Value::from(none),
        _ => Value::from(shown),
    }
}
