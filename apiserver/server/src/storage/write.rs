//! Writing: always a compare and swap on the revision that was read, retried
//! from the store's own answer; never last-write-wins.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use meta::marks::{Marked, Marks};
use meta::{Encoded, Object, ResourceVersion, Status, value};
use serde_json::Value;

use super::request::{Preconditions, UpdateOutcome};
use super::resource::ResourceStore;
use super::store::{Cas, Kv};
use super::trees::{Draft, Stored, Tree};

/// How often an update or a deletion is tried against others' writes before
/// the client is told of the conflict.
const ATTEMPTS_MAX: usize = 64;

/// How much longer than before an object may become without its bytes being moved
/// while it is encoded.
const GROWTH: usize = 64;

/// What a write starts from.
struct Current {
    object: Arc<Object>,
    /// Whether it came from the store, and not from the cache that may lag.
    certain: bool,
}

impl Current {
    /// Tells whether both are the same state.
    fn is(&self, other: &Self) -> bool {
        let (one, other) = (&self.object, &other.object);
        one.resource_version == other.resource_version && one.body() == other.body()
    }
}

impl ResourceStore {
    /// Creates an object that was checked as a body of its kind is; 409 AlreadyExists if
    /// there is one. A resource version in the body is dropped. `ttl` overrides the
    /// resource's.
    pub async fn create(
        &self,
        namespace: Option<&str>,
        name: &str,
        body: Value,
        ttl: Option<u64>,
    ) -> Result<Arc<Object>, Status> {
        let key = self.key(namespace, name);
        let (body, mut encoded) = encode(body)?;
        let ttl = ttl.or(self.config.ttl);
        let marks = encoded.take_marks();
        let created = self.put(&key, &body, encoded, 0, ttl).await?;
        created
            .inspect(|object| self.keep_tree(&key, object, (body, marks, true)))
            .map_err(|_there| Status::already_exists(&self.config.resource, name))
    }

    /// Changes an object by a function of its present state, which may run many
    /// times: first perhaps on a stale state, after a conflict on the newer one.
    ///
    /// `change` gets the object and its JSON (with resource version) and returns
    /// the new JSON, or `None` for no change. A result that encodes to the same
    /// bytes is not written. A failure is believed only if the state it was
    /// computed from is the store's.
    pub async fn guaranteed_update<F>(
        &self,
        namespace: Option<&str>,
        name: &str,
        preconditions: &Preconditions,
        mut change: F,
    ) -> Result<UpdateOutcome, Status>
    where
        F: FnMut(&Arc<Object>, Value) -> Result<Option<Value>, Status>,
    {
        let change = |object: &Arc<Object>, stored: Stored| {
            let next = change(object, Arc::unwrap_or_clone(stored.tree))?;
            Ok(next.map(Next::from))
        };
        self.update(namespace, name, preconditions, change).await
    }

    /// Changes an object as [`Self::guaranteed_update`] does, by a function that only
    /// looks at its JSON: that is shared.
    pub async fn update<F>(
        &self,
        namespace: Option<&str>,
        name: &str,
        preconditions: &Preconditions,
        mut change: F,
    ) -> Result<UpdateOutcome, Status>
    where
        F: FnMut(&Arc<Object>, Stored) -> Result<Option<Next>, Status>,
    {
        let key = self.key(namespace, name);
        // Held after the first conflict: see `turn`.
        let mut turn = self.turn_if_contended(&key).await;
        let mut current = self.current(&key, name).await?;
        for _ in 0..ATTEMPTS_MAX {
            let Current { object, certain } = &current;
            let changed = self
                .check(&key, preconditions, object)
                .and_then(|()| self.tree(&key, object))
                .and_then(|stored| {
                    let (marks, checked) = (stored.marks.clone(), stored.checked);
                    let Some(mut next) = change(object, stored)? else {
                        return Ok(None);
                    };
                    next.checked |= checked;
                    next.encode(object, marks.as_deref()).map(Some)
                });
            let changed = match changed {
                // What is stored otherwise than it is served is written anew.
                Ok(Some(new)) if new.encoded.bytes() == object.body() && !object.renewed => {
                    Ok(None)
                }
                other => other,
            };
            match changed {
                Ok(Some(new)) => match self.swap(&key, new, object).await? {
                    Ok(object) => {
                        return Ok(UpdateOutcome {
                            object,
                            changed: true,
                        });
                    }
                    Err(newer) if turn.is_some() => {
                        let newer = newer.ok_or_else(|| self.not_found(name))?;
                        current = self.found(&key, &newer)?;
                    }
                    Err(_) => {
                        turn = Some(self.turn(&key).await);
                        current = self.certainly(&key, name).await?;
                    }
                },
                Ok(None) if *certain => {
                    let object = object.clone();
                    return Ok(UpdateOutcome {
                        object,
                        changed: false,
                    });
                }
                Err(status) if *certain => return Err(status),
                nothing => {
                    let certain = self.certainly(&key, name).await?;
                    if !certain.is(&current) {
                        current = certain;
                        continue;
                    }
                    // It was what is stored: what was made of it stands.
                    let object = certain.object;
                    return nothing.map(|_| UpdateOutcome {
                        object,
                        changed: false,
                    });
                }
            }
        }
        Err(Status::modified(&self.config.resource, name))
    }

    /// Removes an object if `check` agrees with its present state. Returns its
    /// last state under the revision of the deletion.
    pub async fn delete(
        &self,
        namespace: Option<&str>,
        name: &str,
        preconditions: &Preconditions,
        mut check: impl FnMut(&Arc<Object>) -> Result<(), Status>,
    ) -> Result<Arc<Object>, Status> {
        let key = self.key(namespace, name);
        let full = self.full(&key);
        let mut turn = self.turn_if_contended(&key).await;
        let mut current = self.current(&key, name).await?;
        for _ in 0..ATTEMPTS_MAX {
            let Current { object, certain } = &current;
            let agreed = self
                .check(&key, preconditions, object)
                .and_then(|()| check(object));
            match agreed {
                Ok(()) => {}
                Err(status) if *certain => return Err(status),
                Err(_) => {
                    current = self.certainly(&key, name).await?;
                    continue;
                }
            }
            let done = self.store.delete(&full, object.resource_version.0).await;
            match done.map_err(|e| e.into_status())? {
                Cas::Done(revision) => {
                    self.trees().forget(&key);
                    let mut gone = Object::clone(object);
                    gone.resource_version = ResourceVersion(revision);
                    return Ok(Arc::new(gone));
                }
                Cas::Conflict(None) => return Err(self.not_found(name)),
                Cas::Conflict(Some(kv)) if turn.is_some() => {
                    current = self.found(&key, &kv)?;
                }
                Cas::Conflict(Some(_)) => {
                    turn = Some(self.turn(&key).await);
                    current = self.certainly(&key, name).await?;
                }
            }
        }
        Err(Status::modified(&self.config.resource, name))
    }

    /// Waits for the turn of those in this process who met a conflict on a key
    /// (or one that shares its place). A refused swap costs the store as much
    /// as a write, so the losers line up instead of all trying again at once.
    async fn turn(&self, key: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.place(key).lock().await
    }

    /// Lines up behind those who met a conflict, if there are any: whoever came
    /// new could otherwise overtake one of them again and again.
    async fn turn_if_contended(&self, key: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let place = self.place(key);
        match place.try_lock() {
            Ok(_free) => None,
            Err(_held) => Some(place.lock().await),
        }
    }

    fn place(&self, key: &str) -> &tokio::sync::Mutex<()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.turns[hasher.finish() as usize % self.turns.len()]
    }

    /// Writes a new state over `old`; `Err` carries what is there instead.
    async fn swap(
        &self,
        key: &str,
        new: New,
        old: &Object,
    ) -> Result<Result<Arc<Object>, Option<Kv>>, Status> {
        let (expected, ttl) = (old.resource_version.0, self.config.ttl);
        let New {
            body,
            mut encoded,
            checked,
        } = new;
        let marks = encoded.take_marks();
        let done = self.put(key, &body, encoded, expected, ttl).await?;
        Ok(done.inspect(|object| self.keep_tree(key, object, (body, marks, checked))))
    }

    /// Asks the store to write an object; `Err` carries what is there instead of what
    /// was expected.
    async fn put(
        &self,
        key: &str,
        body: &Value,
        new: Encoded,
        expected: u64,
        ttl: Option<u64>,
    ) -> Result<Result<Arc<Object>, Option<Kv>>, Status> {
        let (bytes, fields) = (new.bytes().clone(), self.fields(body));
        let as_written = self.serves_as_written(body);
        // Before it is asked: it may report a write before it answers.
        let announced = self.own.announce(key, new, fields, as_written);
        let done = self
            .store
            .put(&self.full(key), bytes, expected, ttl)
            .await
            .map_err(|e| e.into_status())?;
        Ok(match done {
            Cas::Done(revision) => Ok(announced.written(revision)),
            Cas::Conflict(there) => Err(there),
        })
    }

    /// Returns the object as this process knows it if it does, else from the
    /// store.
    async fn current(&self, key: &str, name: &str) -> Result<Current, Status> {
        match self.newest(key) {
            Some(object) => Ok(Current {
                object,
                certain: false,
            }),
            None => self.certainly(key, name).await,
        }
    }

    /// Returns what the store told of a key.
    fn found(&self, key: &str, kv: &Kv) -> Result<Current, Status> {
        let object = match self.known(key, kv) {
            Some(known) => known,
            None => self.decode(kv)?,
        };
        Ok(Current {
            object,
            certain: true,
        })
    }

    async fn certainly(&self, key: &str, name: &str) -> Result<Current, Status> {
        let object = self.read(key).await?;
        Ok(Current {
            object: object.ok_or_else(|| self.not_found(name))?,
            certain: true,
        })
    }

    fn check(&self, key: &str, wanted: &Preconditions, object: &Object) -> Result<(), Status> {
        let name = &object.meta.name;
        let refuse = |what: &str, wanted: &str, is: &str| {
            // In the words of upstream's storage, the key among them.
            Err(Status::conflict(
                &self.config.resource,
                name,
                &format!(
                    "StorageError: invalid object, Code: 4, Key: {}{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}",
                    self.root
                ),
            ))
        };
        if let Some(uid) = &wanted.uid
            && *uid != object.meta.uid
        {
            return refuse("UID", uid, &object.meta.uid);
        }
        if let Some(version) = &wanted.resource_version {
            let is = object.resource_version.to_string();
            if *version != is {
                return refuse("ResourceVersion", version, &is);
            }
        }
        Ok(())
    }

    /// Returns an object as JSON, with its resource version.
    fn tree(&self, key: &str, object: &Object) -> Result<Stored, Status> {
        if let Some(stored) = self.trees().get(key, object) {
            return Ok(stored);
        }
        let tree = object.to_value().map_err(Status::internal)?;
        Ok(Stored {
            tree: Arc::new(tree),
            marks: None,
            checked: false,
        })
    }

    /// Takes an earlier state of an object, if there is one at hand.
    pub fn draft(&self, namespace: Option<&str>, name: &str) -> Option<Draft> {
        self.trees().draft(&self.key(namespace, name))
    }

    /// Keeps the tree of an object that was written: it is likely to be changed soon.
    fn keep_tree(
        &self,
        key: &str,
        object: &Object,
        (mut tree, marks, checked): (Value, Option<Marks>, bool),
    ) {
        let version = object.resource_version.to_string();
        value::set_metadata(&mut tree, "resourceVersion", version);
        let gone = match Tree::of(tree, marks, checked) {
            Some(tree) => self.trees().put(key, object, tree),
            None => (self.trees().forget(key).into_iter().collect(), None),
        };
        // Not before the next who wants one can have it.
        drop(gone);
    }
}

/// What becomes of an object.
#[derive(Debug)]
pub struct Next {
    /// All of it.
    pub tree: Value,
    /// A member that is as it was.
    pub kept: Option<&'static str>,
    /// Whether all of it was checked as a body of its kind is, by rules that do not
    /// change. It goes on to be if it was before.
    pub checked: bool,
}

impl From<Value> for Next {
    fn from(tree: Value) -> Self {
        Self {
            tree,
            kept: None,
            checked: false,
        }
    }
}

impl Next {
    /// Encodes what is stored over an object of which it may be known where what stands
    /// in it.
    fn encode(self, over: &Object, marks: Option<&Marks>) -> Result<New, Status> {
        let text = over.body();
        let marked = marks.map(|marks| Marked { text, marks });
        let kept = marked.zip(self.kept);
        let kept = kept.and_then(|(marked, name)| Some((name, marked.member(name)?)));
        let body = stored_form(self.tree);
        let encoded = Encoded::over(&body, text.len() + GROWTH, kept);
        Ok(New {
            body,
            encoded: encoded.map_err(Status::internal)?,
            checked: self.checked,
        })
    }
}

/// What is about to be stored over an object.
struct New {
    body: Value,
    encoded: Encoded,
    checked: bool,
}

/// Encodes what is stored of an object that is new.
fn encode(object: Value) -> Result<(Value, Encoded), Status> {
    let body = stored_form(object);
    let encoded = Encoded::of(&body, 0).map_err(Status::internal)?;
    Ok((body, encoded))
}

/// Returns an object without what the store itself knows.
fn stored_form(mut object: Value) -> Value {
    let metadata = value::metadata_mut(&mut object);
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    object
}
