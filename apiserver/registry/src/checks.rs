//! Checks of texts that many kinds hold: names of other things, addresses,
//! paths, drivers. Paths and words are upstream's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use meta::value::{at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use crate::kind::Column;
use crate::validate::{Errors, items, labels};

/// The column that kinds without columns of their own have instead of an age.
pub const CREATED_AT: Column = Column {
    ty: "date",
    ..Column::text("Created At", "When the server created the object.")
};

/// The most parameters of a class, and the largest sum of their keys and values.
const PARAMETERS_MAX: (usize, usize) = (512, 256 << 10);
/// The longest name of a CSI driver.
const DRIVER_NAME_MAX: usize = 63;

/// Describes a column of booleans.
pub const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column {
        ty: "boolean",
        ..Column::text(name, description)
    }
}

/// Returns the boolean at a path; false when absent.
pub fn bool_at(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// Says of a text everything that is wrong with it.
pub fn all_invalid(text: &str, path: &str, messages: Vec<String>, errors: &mut Errors) {
    for message in messages {
        errors.push(FieldError::invalid(path, text, message));
    }
}

/// Returns the texts of a list.
pub fn texts<'a>(object: &'a Value, path: &str) -> Vec<&'a str> {
    items(object, path)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// Takes any name.
pub fn any_name(_: &str) -> Vec<String> {
    Vec::new()
}

/// Returns what is wrong with a name that must fit between two slashes of a URL.
pub fn segment_errors(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%']
        .into_iter()
        .filter(|c| text.contains(*c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Checks a text that is required and must fit between two slashes of a URL.
pub fn required_segment(object: &Value, name: &str, path: &str, errors: &mut Errors) {
    let (text, path) = (str_at(object, name), format!("{path}.{name}"));
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        all_invalid(text, &path, segment_errors(text), errors);
    }
}

/// Returns what is wrong with a host of the form `*.example.com`.
pub fn wildcard_errors(text: &str) -> Vec<String> {
    const WORDS: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut errors = Vec::new();
    if text.len() > names::SUBDOMAIN_MAX {
        errors.push(format!(
            "must be no more than {} characters",
            names::SUBDOMAIN_MAX
        ));
    }
    let bad = |rest: &str| {
        names::subdomain_errors(rest)
            .iter()
            .any(|e| !e.starts_with("must be no more"))
    };
    if text.strip_prefix("*.").is_none_or(bad) {
        errors.push(WORDS.to_owned());
    }
    errors
}

/// Checks a name of at least three domain segments.
pub fn fully_qualified(text: &str, path: &str, errors: &mut Errors) {
    let wrong = names::subdomain_errors(text);
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, text, wrong.join(",")));
    } else if text.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            path,
            text,
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

/// Checks a path behind a domain, such as `example.com/controller`.
pub fn domain_prefixed_path(text: &str, path: &str, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((host, rest)) = text
        .split_once('/')
        .filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, text, words));
        return;
    };
    all_invalid(host, path, names::subdomain_errors(host), errors);
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(legal) {
        errors.push(FieldError::invalid(
            path,
            rest,
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ));
    }
}

/// Checks the name of a CSI or device driver.
pub fn driver_name(text: &str, path: &str, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if text.len() > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(path, DRIVER_NAME_MAX));
    }
    let lower = text.to_lowercase();
    all_invalid(text, path, names::subdomain_errors(&lower), errors);
}

/// Checks the name of what provisions a class's volumes.
pub fn provisioner(text: &str, path: &str, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        let lower = text.to_lowercase();
        all_invalid(&lower, path, names::qualified_name_errors(&lower), errors);
    }
}

/// Checks the parameters of a class.
pub fn parameters(object: &Value, may_be_empty: bool, errors: &mut Errors) {
    const PATH: &str = "parameters";
    let map = at(object, PATH).and_then(Value::as_object);
    let count = map.map_or(0, |m| m.len());
    let (most, largest) = PARAMETERS_MAX;
    if count > most {
        errors.push(FieldError::too_long(PATH, most));
        return;
    }
    let mut size = 0;
    for (key, value) in map.into_iter().flatten() {
        if key.is_empty() {
            errors.push(FieldError::invalid(PATH, "", "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > largest {
        errors.push(FieldError::too_long(PATH, largest));
    }
    if !may_be_empty && count == 0 {
        let words = "must contain at least one key/value pair";
        errors.push(FieldError::required(PATH, words));
    }
}

/// Forbids a change of a top-level field.
pub fn frozen(new: &Value, old: &Value, field: &str, errors: &mut Errors) {
    if !crate::validate::same(new.get(field), old.get(field)) {
        errors.push(FieldError::forbidden(
            field,
            format!("updates to {field} are forbidden."),
        ));
    }
}

/// Reports elements of a list that stand a second time.
pub fn no_duplicates(list: &[&str], path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, text) in list.iter().enumerate() {
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), *text));
        }
    }
}

/// Checks a list of node selector terms.
pub fn node_selector(selector: &Value, path: &str, errors: &mut Errors) {
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(
            format!("{path}.nodeSelectorTerms"),
            "must have at least one node selector term",
        ));
    }
    for (index, term) in terms.iter().enumerate() {
        for (n, expression) in items(term, "matchExpressions").iter().enumerate() {
            let at =
                |field| format!("{path}.nodeSelectorTerms[{index}].matchExpressions[{n}].{field}");
            let key = str_at(expression, "key");
            all_invalid(key, &at("key"), names::qualified_name_errors(key), errors);
            let values = items(expression, "values").len();
            match str_at(expression, "operator") {
                "In" | "NotIn" if values == 0 => errors.push(FieldError::required(
                    at("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                )),
                "Exists" | "DoesNotExist" if values > 0 => errors.push(FieldError::forbidden(
                    at("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )),
                "Gt" | "Lt" if values != 1 => errors.push(FieldError::required(
                    at("values"),
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                )),
                "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
                other => errors.push(FieldError::invalid(
                    at("operator"),
                    other,
                    "not a valid selector operator",
                )),
            }
        }
    }
}

/// Checks the conditions of a status: each type once, and a type at all.
pub fn conditions(object: &Value, empty_type: &str, errors: &mut Errors) {
    let list = items(object, "status.conditions");
    crate::validate::unique(list, "status.conditions", "type", errors);
    for (index, condition) in list.iter().enumerate() {
        if str_at(condition, "type").is_empty() {
            let path = format!("status.conditions[{index}].type");
            errors.push(FieldError::required(path, empty_type));
        }
    }
}

/// Checks the labels of a selector that is only a map.
pub fn label_map(object: &Value, path: &str, field: &str, errors: &mut Errors) {
    labels(object.get(field), &format!("{path}.{field}"), errors);
}

/// Parses an address as Go's older parser does: leading zeros are skipped.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let plain: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        })
        .collect();
    plain.join(".").parse().ok()
}

fn mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Returns what is wrong with an address in its one canonical form.
pub fn ip_errors(text: &str) -> Vec<String> {
    let wrong = match sloppy_ip(text) {
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned(),
        Some(_) if text.parse::<IpAddr>().is_err() => "must not have leading 0s".to_owned(),
        Some(ip) if mapped(ip) => "must not be an IPv4-mapped IPv6 address".to_owned(),
        Some(ip) if ip.to_string() != text => {
            format!("must be in canonical form ({:?})", ip.to_string())
        }
        Some(_) => return Vec::new(),
    };
    vec![wrong]
}

/// Returns what is wrong with an address of an older field, which any form will do.
pub fn sloppy_ip_errors(text: &str) -> Vec<String> {
    match sloppy_ip(text) {
        Some(_) => Vec::new(),
        None => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// Tells whether a text is an address.
pub fn is_ip(text: &str) -> bool {
    sloppy_ip(text).is_some()
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, with whatever bits it was written.
    pub ip: IpAddr,
    /// How many bits all addresses of the range share.
    pub length: u8,
}

impl Cidr {
    /// Parses a range as Go's older parser does.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, length) = text.split_once('/')?;
        let ip = sloppy_ip(ip)?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
        let length = length.parse().ok().filter(|n| digits && *n <= most)?;
        Some(Self { ip, length })
    }

    /// Returns the first address of the range.
    pub fn first(self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length));
                IpAddr::V4((u32::from(ip) & mask.unwrap_or(0)).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length));
                IpAddr::V6((u128::from(ip) & mask.unwrap_or(0)).into())
            }
        }
    }

    /// Tells whether a range lies within this one and is smaller.
    pub fn strictly_holds(self, other: Self) -> bool {
        let cut = Self {
            ip: other.ip,
            length: self.length,
        };
        self.ip.is_ipv4() == other.ip.is_ipv4()
            && self.length < other.length
            && cut.first() == self.first()
    }
}

/// Returns what is wrong with a range in its one canonical form.
pub fn cidr_errors(text: &str) -> Vec<String> {
    let Some(cidr) = Cidr::parse(text) else {
        return sloppy_cidr_errors(text);
    };
    let (ip, length) = text.split_once('/').unwrap_or((text, ""));
    let canonical = format!("{}/{}", cidr.first(), cidr.length);
    let wrong = if ip.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        "must not have leading 0s in IP or prefix length".to_owned()
    } else if mapped(cidr.ip) {
        "must not have an IPv4-mapped IPv6 address".to_owned()
    } else if cidr.first() != cidr.ip {
        "must not have bits set beyond the prefix length".to_owned()
    } else if canonical != text {
        format!("must be in canonical form ({canonical:?})")
    } else {
        return Vec::new();
    };
    vec![wrong]
}

/// Returns what is wrong with a range of an older field.
pub fn sloppy_cidr_errors(text: &str) -> Vec<String> {
    match Cidr::parse(text) {
        Some(_) => Vec::new(),
        None => vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, wrong) in [
            ("10.0.0.1", ""),
            ("2001:db8::1", ""),
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
            (
                "1.2.3",
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        ] {
            assert_eq!(ip_errors(text).join(";"), wrong, "{text}");
        }
    }

    #[test]
    fn ranges() {
        for (text, wrong) in [
            ("10.0.0.0/8", ""),
            ("0.0.0.0/0", ""),
            ("::/0", ""),
            (
                "10.1.0.0/8",
                "must not have bits set beyond the prefix length",
            ),
            (
                "10.0.0.0/08",
                "must not have leading 0s in IP or prefix length",
            ),
            (
                "2001:DB8::/64",
                "must be in canonical form (\"2001:db8::/64\")",
            ),
            (
                "10.0.0.0/33",
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
        ] {
            assert_eq!(cidr_errors(text).join(";"), wrong, "{text}");
        }
        let holds = |a: &str, b: &str| {
            Cidr::parse(a)
                .unwrap()
                .strictly_holds(Cidr::parse(b).unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.9.0.0/16"));
        assert!(!holds("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!holds("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!holds("10.0.0.0/8", "::/16"));
        assert!(holds("0.0.0.0/0", "11.0.0.0/16"));
    }

    #[test]
    fn texts_of_other_things() {
        let said = |check: fn(&str, &str, &mut Errors), text: &str| {
            let mut errors = Errors::new();
            check(text, "p", &mut errors);
            errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(";")
        };
        assert_eq!(said(fully_qualified, "a.b.c"), "");
        assert!(said(fully_qualified, "a.b").contains("at least three segments"));
        assert_eq!(said(domain_prefixed_path, "a.io/b"), "");
        assert!(said(domain_prefixed_path, "a.io").contains("acme.io/foo"));
        assert!(said(domain_prefixed_path, "a.io/b c").contains("Invalid path"));
        assert_eq!(said(driver_name, "Ebs.csi.Aws.com"), "");
        assert_eq!(said(driver_name, ""), "p: Required value");
        assert_eq!(
            segment_errors("a/b%"),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(segment_errors(".."), ["may not be '..'"]);
        assert!(wildcard_errors("*.a.b").is_empty());
        assert_eq!(wildcard_errors("a.*.b").len(), 1);
    }
}
