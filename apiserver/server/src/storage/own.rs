//! What this process writes, from before the store is asked to until the cache has it:
//! the feed need not decode it, and whoever changes it next begins with it.
//!
//! The store may report a write before it answers the writer. So every write is
//! announced before it is asked for, and whoever learns its revision first makes the
//! object: the feed from the report, or the writer from the answer. The other gets the
//! same one. An announcement is good for its very bytes under its very key, and at any
//! revision: the same bytes written twice are two states, and two objects.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use meta::{Encoded, Object, ResourceVersion};

/// The most objects that were written and have not come back; beyond it the oldest are
/// decoded.
const WRITTEN_MAX: usize = 256;

/// The version of an object whose revision is not known. No write has it.
const NONE: ResourceVersion = ResourceVersion(0);

/// The writes of this process to one resource.
#[derive(Debug, Default)]
pub(super) struct Own(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    /// What the store was asked for and has not answered, by key: as many as there are
    /// writers who wait.
    announced: HashMap<String, Vec<Announced>>,
    /// How many ever were.
    count: u64,
    /// What the store has written and the cache does not have, by revision.
    written: BTreeMap<u64, Written>,
    /// The revision of the cache.
    reached: u64,
}

#[derive(Debug)]
struct Announced {
    /// Its place among all that ever were.
    number: u64,
    object: Arc<Object>,
    /// Whether the object is what the cache makes of the bytes.
    as_written: bool,
}

#[derive(Debug)]
struct Written {
    key: String,
    object: Arc<Object>,
}

impl Announced {
    fn is_of(&self, body: &Bytes) -> bool {
        self.as_written && self.object.body() == body
    }

    /// Returns the object as it is once it was written at a revision.
    fn at(&mut self, revision: u64) -> Arc<Object> {
        let version = ResourceVersion(revision);
        if self.object.resource_version == NONE {
            // Nobody else has it yet, and so nothing is copied.
            Arc::make_mut(&mut self.object).resource_version = version;
        } else if self.object.resource_version != version {
            // Others wrote the same before.
            let mut other = Object::clone(&self.object);
            other.resource_version = version;
            self.object = Arc::new(other);
        }
        self.object.clone()
    }
}

impl Own {
    /// Announces that the store is about to be asked to write an object. That stands
    /// until what is returned is dropped. `as_written` says whether the cache would make
    /// just that of it.
    pub(super) fn announce<'o>(
        &'o self,
        key: &'o str,
        encoded: Encoded,
        fields: Vec<(&'static str, String)>,
        as_written: bool,
    ) -> Announcement<'o> {
        let object = Arc::new(encoded.stored(NONE, fields));
        let mut writes = self.lock();
        writes.count += 1;
        let number = writes.count;
        let announced = Announced {
            number,
            object,
            as_written,
        };
        match writes.announced.get_mut(key) {
            Some(others) => others.push(announced),
            None => {
                writes.announced.insert(key.to_owned(), vec![announced]);
            }
        }
        drop(writes);
        Announcement {
            own: self,
            key,
            number,
            stands: true,
        }
    }

    /// Returns the object that is these bytes, stored under this key at this revision,
    /// if this process writes or wrote it.
    pub(super) fn recall(&self, key: &str, body: &Bytes, revision: u64) -> Option<Arc<Object>> {
        let mut writes = self.lock();
        if let Some(written) = writes.written.get(&revision)
            && written.key == key
            && written.object.body() == body
        {
            return Some(written.object.clone());
        }
        let announced = writes.announced.get_mut(key)?;
        let announced = announced.iter_mut().find(|a| a.is_of(body))?;
        Some(announced.at(revision))
    }

    /// Returns the newest state of an object that this process has written and the cache
    /// does not have.
    pub(super) fn newest(&self, key: &str) -> Option<Arc<Object>> {
        let writes = self.lock();
        let written = writes.written.values().rev().find(|w| w.key == key);
        written.map(|w| w.object.clone())
    }

    /// Learns that the cache has everything up to a revision.
    pub(super) fn reached(&self, revision: u64) {
        let mut writes = self.lock();
        if revision < writes.reached {
            // Another history: what was written in this one is in none now.
            writes.written.clear();
        }
        writes.reached = revision;
        while let Some(first) = writes.written.first_entry()
            && *first.key() <= revision
        {
            first.remove();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Writes> {
        // Every change under the lock leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writes {
    /// Takes an announcement back.
    fn withdraw(&mut self, key: &str, number: u64) -> Option<(String, Announced)> {
        let of_key = self.announced.get_mut(key)?;
        let at = of_key.iter().position(|a| a.number == number)?;
        let announced = of_key.swap_remove(at);
        let key = match of_key.is_empty() {
            true => self.announced.remove_entry(key)?.0,
            false => key.to_owned(),
        };
        Some((key, announced))
    }
}

/// Keeps an announcement standing: a write that failed, met a conflict or is not waited
/// for any more is not this process's to tell of.
#[derive(Debug)]
pub(super) struct Announcement<'o> {
    own: &'o Own,
    key: &'o str,
    number: u64,
    stands: bool,
}

impl Announcement<'_> {
    /// Learns that the store has written the object at a revision, and returns it.
    pub(super) fn written(mut self, revision: u64) -> Arc<Object> {
        let mut writes = self.own.lock();
        let withdrawn = writes.withdraw(self.key, self.number);
        let Some((key, mut announced)) = withdrawn else {
            unreachable!("nobody else takes an announcement back");
        };
        self.stands = false;
        let object = announced.at(revision);
        if revision > writes.reached && announced.as_written {
            let written = Written {
                key,
                object: object.clone(),
            };
            writes.written.insert(revision, written);
            if writes.written.len() > WRITTEN_MAX {
                writes.written.pop_first();
            }
        }
        object
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if self.stands {
            self.own.lock().withdraw(self.key, self.number);
        }
    }
}

#[cfg(test)]
mod test;
