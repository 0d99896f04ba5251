//! Finds a name among few that are known beforehand, such as the fields of a type:
//! at once, where a search would compare it with several.

/// How far from its place a name may be. With names that crowd more than that, they
/// are searched.
const STEPS_MAX: usize = 16;

/// The places of names in a list that is sorted by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Places, counted from one; zero is free. Empty where they are searched.
    slots: Vec<u32>,
}

impl Index {
    /// Makes the index of a sorted list of names.
    pub(crate) fn of<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Self {
        let mut slots = vec![0; (2 * names.len()).next_power_of_two()];
        for (place, name) in (1..).zip(names) {
            let mut probes = probes(name, slots.len());
            let Some(free) = probes.find(|slot| slots.get(*slot) == Some(&0)) else {
                return Self::default();
            };
            slots[free] = place;
        }
        Self { slots }
    }

    /// Finds the place of a name in the list of which this was made; `at` gives a name
    /// of that list, and `len` is its length.
    pub(crate) fn find<'n>(
        &self,
        name: &str,
        len: usize,
        at: impl Fn(usize) -> &'n str,
    ) -> Option<usize> {
        if self.slots.is_empty() {
            return search(name, len, at);
        }
        for slot in probes(name, self.slots.len()) {
            let place = (*self.slots.get(slot)? as usize).checked_sub(1)?;
            if at(place) == name {
                return Some(place);
            }
        }
        None
    }
}

/// Finds a name in a sorted list.
fn search<'n>(name: &str, len: usize, at: impl Fn(usize) -> &'n str) -> Option<usize> {
    let (mut from, mut to) = (0, len);
    while from < to {
        let middle = from.midpoint(to);
        match at(middle).cmp(name) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return Some(middle),
        }
    }
    None
}

/// Returns where a name may be among so many slots, a power of two.
fn probes(name: &str, slots: usize) -> impl Iterator<Item = usize> {
    let bytes = name.as_bytes();
    let byte = |at: usize| bytes.get(at).map_or(0, |b| u32::from(*b));
    // The names of fields differ in their lengths and ends most.
    let mixed = byte(0) | byte(bytes.len() / 2) << 8 | byte(bytes.len().wrapping_sub(1)) << 16;
    #[allow(clippy::cast_possible_truncation, reason = "only mixed")]
    let mixed = (mixed ^ (bytes.len() as u32) << 24).wrapping_mul(0x9e37_79b1) >> 12;
    (mixed as usize..)
        .take(STEPS_MAX)
        .map(move |slot| slot & (slots - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds_each(names: &[String]) -> Index {
        let index = Index::of(names.iter().map(String::as_str));
        let find = |name: &str| index.find(name, names.len(), |at| names[at].as_str());
        for (place, name) in names.iter().enumerate() {
            assert_eq!(find(name), Some(place), "{name}");
            for other in [format!("{name}x"), name[1..].to_owned(), String::new()] {
                let is = names.iter().position(|n| *n == other);
                assert_eq!(find(&other), is, "{other}");
            }
        }
        index
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        assert_eq!(Index::of([].into_iter()).find("a", 0, |_| "a"), None);
        assert_eq!(Index::default().find("a", 0, |_| "a"), None);
        for n in [1, 2, 3, 50, 1_000] {
            finds_each(&(0..n).map(|i| format!("f{i:04}")).collect::<Vec<_>>());
        }
        for definition in crate::table::table().iter() {
            let names: Vec<String> = definition.fields.iter().map(|f| f.name.into()).collect();
            assert!(!finds_each(&names).slots.is_empty(), "{}", definition.name);
        }
    }

    #[test]
    fn names_that_crowd_are_searched() {
        let crowd: Vec<String> = (0..100).map(|i| format!("a{i:03}bbb{:03}z", 7)).collect();
        assert!(finds_each(&crowd).slots.is_empty());
    }
}
