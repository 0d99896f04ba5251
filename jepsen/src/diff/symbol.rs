//! Numbers that mean something only while a program runs: the revision reached,
//! the revision compacted at, the lease an earlier step was given, the member.
//!
//! Without them a program could not lose a step: every later revision would be
//! another. In a message they are numbers far beyond any real one; in text they
//! read `<head-2>`, `<compact+1>`, `<lease+3>`, `<member>`.

/// The newest revision.
pub(crate) const HEAD: i64 = 1 << 50;
/// The revision compacted at last; 0 before.
pub(crate) const COMPACT: i64 = 1 << 51;
/// The n-th lease whose id the server chose.
pub(crate) const LEASE: i64 = 1 << 52;
/// The member's own id.
pub(crate) const MEMBER: i64 = 1 << 53;

/// How far from its base a number is still taken for a symbol.
const REACH: i64 = 1 << 20;

const NAMES: [(&str, i64); 4] = [
    ("head", HEAD),
    ("compact", COMPACT),
    ("lease", LEASE),
    ("member", MEMBER),
];

/// What the symbols stand for now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'a> {
    pub(crate) head: i64,
    pub(crate) compact: i64,
    pub(crate) leases: &'a [i64],
    pub(crate) member: i64,
}

/// A lease nobody was ever granted.
pub(crate) const NO_LEASE: i64 = 9_999;

impl Values<'_> {
    /// Replaces a symbol by what it stands for; other numbers stay.
    pub(crate) fn resolve(&self, number: i64) -> i64 {
        match split(number) {
            // A revision below zero is nonsense of its own kind, and said outright.
            Some(("head", offset)) => (self.head + offset).max(0),
            Some(("compact", offset)) => (self.compact + offset).max(0),
            Some(("member", offset)) => self.member.wrapping_add(offset),
            Some((_, offset)) => usize::try_from(offset)
                .ok()
                .and_then(|nth| self.leases.get(nth).copied())
                .unwrap_or(NO_LEASE),
            None => number,
        }
    }

    /// Replaces a lease's id by its symbol; other numbers stay.
    pub(crate) fn name_lease(&self, id: i64) -> i64 {
        let nth = self.leases.iter().position(|each| *each == id);
        nth.and_then(|nth| i64::try_from(nth).ok())
            .map_or(id, |nth| LEASE + nth)
    }
}

fn split(number: i64) -> Option<(&'static str, i64)> {
    NAMES.iter().find_map(|(name, base)| {
        let offset = number.checked_sub(*base)?;
        (-REACH..REACH).contains(&offset).then_some((*name, offset))
    })
}

/// Writes the symbols of a message's text by name. Quoted text stays as it is.
pub(crate) fn to_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c == '"' || c.is_ascii_digit()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = match rest.strip_prefix('"') {
            Some(_) => quoted(rest),
            None => rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        };
        let token = &rest[..end];
        match token.parse().ok().and_then(split) {
            Some((name, 0)) => out.push_str(&format!("<{name}>")),
            Some((name, offset)) => out.push_str(&format!("<{name}{offset:+}>")),
            None => out.push_str(token),
        }
        rest = &rest[end..];
    }
    out + rest
}

/// Writes the named symbols of a message's text as numbers again.
pub(crate) fn from_names(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['"', '<']) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = if rest.starts_with('"') {
            let end = quoted(rest);
            out.push_str(&rest[..end]);
            end
        } else {
            let end = rest.find('>')?;
            out.push_str(&number(&rest[1..end])?.to_string());
            end + 1
        };
        rest = &rest[end..];
    }
    Some(out + rest)
}

fn number(symbol: &str) -> Option<i64> {
    let at = symbol.find(['+', '-']).unwrap_or(symbol.len());
    let (name, offset) = symbol.split_at(at);
    let offset: i64 = match offset {
        "" => 0,
        offset => offset.parse().ok()?,
    };
    let (_, base) = NAMES.iter().find(|(each, _)| *each == name)?;
    Some(base + offset)
}

/// Returns where a quoted string that starts here ends.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_read_as_they_are_written() {
        let text = format!(
            r#"revision:{},lease:{},key:"{HEAD}\"{HEAD}",limit:-3,memberID:{MEMBER}"#,
            HEAD - 2,
            LEASE + 1,
        );
        let named = to_names(&text);
        assert!(named.starts_with("revision:<head-2>,lease:<lease+1>,key:"));
        assert!(named.ends_with("limit:-3,memberID:<member>"), "{named}");
        assert_eq!(from_names(&named), Some(text));
        assert_eq!(from_names("revision:<heat>"), None);
    }

    #[test]
    fn symbols_stand_for_the_values_of_the_moment() {
        let values = Values {
            head: 9,
            compact: 4,
            leases: &[70, 71],
            member: 5,
        };
        assert_eq!(values.resolve(HEAD - 2), 7);
        assert_eq!(values.resolve(COMPACT + 1), 5);
        assert_eq!(values.resolve(LEASE + 1), 71);
        assert_eq!(values.resolve(LEASE + 2), NO_LEASE);
        assert_eq!(values.resolve(MEMBER), 5);
        assert_eq!(values.resolve(i64::MIN), i64::MIN);
        assert_eq!(values.name_lease(71), LEASE + 1);
        assert_eq!(values.name_lease(3), 3);
    }
}
