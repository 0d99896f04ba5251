//! Which of the names that a definition asks for it gets: those that no other
//! definition of the group has. What it got once it keeps until it asks for
//! another.

use std::collections::BTreeSet;

use meta::value::{at, str_at};
use serde_json::{Map, Value};

use crate::validate::items;

/// The names taken in a group.
#[derive(Debug, Default)]
pub struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    /// Collects the names that definitions were given.
    pub fn by<'d>(definitions: impl IntoIterator<Item = &'d Value>) -> Self {
        let mut taken = Self::default();
        for definition in definitions {
            let Some(names) = at(definition, "status.acceptedNames") else {
                continue;
            };
            let mut resources = vec![str_at(names, "plural"), str_at(names, "singular")];
            resources.extend(items(names, "shortNames").iter().filter_map(Value::as_str));
            taken
                .resources
                .extend(resources.into_iter().map(str::to_owned));
            for field in ["kind", "listKind"] {
                taken.kinds.insert(str_at(names, field).to_owned());
            }
        }
        taken.resources.remove("");
        taken.kinds.remove("");
        taken
    }
}

/// What came of asking for names.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The names that the definition has now.
    pub accepted: Value,
    /// Why not all it asked for: a reason and a message.
    pub conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that it asks for, as far as they are free.
pub fn accept(definition: &Value, taken: &Taken) -> Outcome {
    let empty = Value::Object(Map::new());
    let asked = at(definition, "spec.names").unwrap_or(&empty);
    let had = at(definition, "status.acceptedNames").unwrap_or(&empty);
    let mut accepted = had.clone();
    if !accepted.is_object() {
        accepted = empty.clone();
    }
    let mut conflict = None;
    let mut set = |name: &str, value: Option<&Value>| {
        crate::kind::put(&mut accepted, name, value.cloned());
    };
    let single = |field: &str, reason: &'static str, used: &BTreeSet<String>| {
        let name = str_at(asked, field);
        match name == str_at(had, field) || !used.contains(name) {
            true => Ok(()),
            false => Err((reason, in_use(name))),
        }
    };
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
    ] {
        match single(field, reason, used) {
            Ok(()) => set(field, asked.get(field)),
            Err(why) => conflict = Some(why),
        }
    }
    let clashes = short_names(asked, had, taken);
    if clashes.is_empty() {
        set("shortNames", asked.get("shortNames"));
    } else {
        conflict = Some(("ShortNamesConflict", aggregate(&clashes)));
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        match single(field, reason, &taken.kinds) {
            Ok(()) => set(field, asked.get(field)),
            Err(why) => conflict = Some(why),
        }
    }
    set("categories", asked.get("categories"));
    Outcome { accepted, conflict }
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn short_names(asked: &Value, had: &Value, taken: &Taken) -> Vec<String> {
    let own: Vec<&str> = items(had, "shortNames")
        .iter()
        .filter_map(Value::as_str)
        .chain([str_at(had, "plural"), str_at(had, "singular")])
        .collect();
    items(asked, "shortNames")
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !own.contains(name) && taken.resources.contains(*name))
        .map(in_use)
        .collect()
}

/// Words several errors as one.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_others_have_are_refused_and_the_rest_given() {
        let other = json!({"status": {"acceptedNames": {"plural": "apples", "singular": "apple",
            "shortNames": ["ap"], "kind": "Apple", "listKind": "AppleList"}}});
        let taken = Taken::by([&other]);
        let names = json!({"plural": "pears", "singular": "pear", "shortNames": ["ap", "pe"],
            "kind": "Pear", "listKind": "PearList", "categories": ["fruit"]});
        let outcome = accept(&json!({"spec": {"names": names}}), &taken);
        assert_eq!(
            outcome.conflict,
            Some(("ShortNamesConflict", "\"ap\" is already in use".to_owned()))
        );
        assert_eq!(
            outcome.accepted,
            json!({"plural": "pears", "singular": "pear", "kind": "Pear", "listKind": "PearList",
                "categories": ["fruit"]})
        );
        let same = json!({"spec": {"names": {"plural": "apples", "kind": "Apple"}}});
        assert_eq!(accept(&same, &taken).conflict.unwrap().0, "KindConflict");
        let outcome = accept(&json!({"spec": {"names": names}}), &Taken::default());
        assert_eq!((outcome.accepted, outcome.conflict), (names, None));
    }
}
