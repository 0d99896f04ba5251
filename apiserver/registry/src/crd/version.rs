//! The order of versions: the mature ones first, the newer ones first.

use std::cmp::Ordering;

/// A version, ordered as discovery prefers them: `v10`, `v2`, `v1`, `v2beta1`,
/// `v1beta2`, `v1alpha1`, and then all that is not of this form, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority<'a>(pub &'a str);

/// The stage of a version, and its numbers.
type Parsed = (u8, u64, u64);

impl Priority<'_> {
    fn parsed(&self) -> Option<Parsed> {
        let rest = self.0.strip_prefix('v')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (major, stage) = rest.split_at(digits);
        let major = number(major)?;
        if stage.is_empty() {
            return Some((2, major, 0));
        }
        let (rank, minor) = match (stage.strip_prefix("alpha"), stage.strip_prefix("beta")) {
            (Some(minor), _) => (0, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((rank, major, number(minor)?))
    }
}

fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| plain && *n > 0)
}

impl Ord for Priority<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.parsed(), other.parsed()) {
            (Some(a), Some(b)) => b.cmp(&a).then_with(|| self.0.cmp(other.0)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.0.cmp(other.0),
        }
    }
}

impl PartialOrd for Priority<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mature_and_new_versions_come_first() {
        let ordered = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01a",
            "v1gamma1",
        ];
        let mut mixed: Vec<Priority<'_>> = ordered.iter().rev().map(|v| Priority(v)).collect();
        mixed.sort();
        let sorted: Vec<&str> = mixed.iter().map(|p| p.0).collect();
        assert_eq!(sorted, ordered);
    }
}
