//! Names of custom kinds, kept for the life of the process, each once.
//!
//! A [`Kind`](crate::Kind) names things by texts that never go away. Those of a
//! definition are kept here, so that a definition that changes a thousand times
//! costs what its distinct names cost: some hundred bytes. What is not a name
//! (schemas, columns, descriptions) lives and goes with the kind.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::kind::Subresource;

static TEXTS: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);
static LISTS: LazyLock<Mutex<BTreeSet<&'static [&'static str]>>> = LazyLock::new(Mutex::default);
static SUBRESOURCES: LazyLock<Mutex<Vec<&'static [Subresource]>>> = LazyLock::new(Mutex::default);

/// Returns a text that is the same and stays.
pub fn text(text: &str) -> &'static str {
    // A panic under the lock leaves the set whole.
    let mut kept = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept.get(text) {
        return found;
    }
    let new: &'static str = Box::leak(text.into());
    kept.insert(new);
    new
}

/// Returns a list of texts that is the same and stays.
pub fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> &'static [&'static str] {
    let texts: Vec<&'static str> = texts.into_iter().map(text).collect();
    let mut kept = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept.get(texts.as_slice()) {
        return found;
    }
    let new: &'static [&'static str] = texts.leak();
    kept.insert(new);
    new
}

/// Returns a list of subresources that is the same and stays.
pub fn subresources(wanted: Vec<Subresource>) -> &'static [Subresource] {
    let mut kept = SUBRESOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept.iter().find(|k| **k == wanted) {
        return found;
    }
    let new: &'static [Subresource] = wanted.leak();
    kept.push(new);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once() {
        let first = text("intern-test");
        assert!(std::ptr::eq(first, text(&String::from("intern-test"))));
        let first = list(["a", "b"]);
        assert!(std::ptr::eq(first, list(["a", "b"])));
        assert!(!std::ptr::eq(first, list(["b", "a"])));
    }
}
