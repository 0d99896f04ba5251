//! Where the members of an object stand in its text: two texts that have the same
//! bytes for a member have the same member, and nobody need look inside.

use std::ops::Range;

/// Where the members of an object, and those of its metadata, stand in its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    members: Vec<Mark>,
    metadata: Vec<Mark>,
}

/// Whose member one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The object's.
    Object,
    /// Its metadata's.
    Metadata,
}

/// Where a member's name, without its quotes, and its value stand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    name: Range<usize>,
    value: Range<usize>,
}

/// A text, and where what stands in it.
#[derive(Clone, Copy, Debug)]
pub struct Marked<'t> {
    /// The object's JSON.
    pub text: &'t [u8],
    /// Its marks.
    pub marks: &'t Marks,
}

/// The members that are the same in two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Same<'t> {
    members: Vec<&'t [u8]>,
    metadata: Vec<&'t [u8]>,
}

impl Marks {
    fn of(&self, whose: Of) -> &[Mark] {
        match whose {
            Of::Object => &self.members,
            Of::Metadata => &self.metadata,
        }
    }

    /// Notes where a member stands, in the order in which they do.
    pub(crate) fn note(&mut self, whose: Of, name: Range<usize>, value: Range<usize>) {
        let marks = match whose {
            Of::Object => &mut self.members,
            Of::Metadata => &mut self.metadata,
        };
        marks.push(Mark { name, value });
    }
}

impl<'t> Marked<'t> {
    /// Returns the text of a member of the object other than its metadata.
    pub fn member(self, name: &str) -> Option<&'t [u8]> {
        self.value(Of::Object, name.as_bytes())
    }

    /// Returns the text of a member's value; of metadata that of its members alone, since
    /// a tree may have more of them than its text.
    pub(crate) fn value(self, whose: Of, name: &[u8]) -> Option<&'t [u8]> {
        if whose == Of::Object && name == b"metadata" {
            return None;
        }
        self.members(whose)
            .find(|(there, _)| *there == name)
            .map(|(_, value)| value)
    }

    fn members(self, whose: Of) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        let part = move |range: &Range<usize>| self.text.get(range.clone());
        let marks = self.marks.of(whose).iter();
        marks.filter_map(move |mark| part(&mark.name).zip(part(&mark.value)))
    }

    /// Finds the members that stand in both texts with the same bytes. That others
    /// differ is not said: the same may be written in several ways.
    pub fn same_as(self, other: Marked<'_>) -> Same<'t> {
        let same = |whose| {
            let members = self.members(whose);
            members
                .filter(|(name, value)| other.value(whose, name) == Some(*value))
                .map(|(name, _)| name)
                .collect()
        };
        Same {
            members: same(Of::Object),
            metadata: same(Of::Metadata),
        }
    }
}

impl Same<'_> {
    /// Tells whether a member of the object is known to be the same in both.
    pub fn member(&self, name: &str) -> bool {
        self.members.contains(&name.as_bytes())
    }

    /// Tells whether a member of the metadata is.
    pub fn metadata(&self, name: &str) -> bool {
        self.metadata.contains(&name.as_bytes())
    }
}
