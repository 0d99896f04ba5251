//! What an engine must do for the store, and the engines that are compared.
//!
//! All have one tree with all rows, a write-back in one atomic batch, and a cache of
//! the same size. Whatever else a setting is for is said where it is made.

mod fjall;
mod ours;
mod redb;
mod sled;
mod sled1;

use std::path::Path;

use anyhow::Context as _;
use mvcc::{Backend, BackendError, WriteBack};

/// The cache of pages or blocks: what the engine in use has. The machine keeps what is
/// read often in a cache of its own, before any engine is asked.
const CACHE_BYTES: usize = 16 << 20;

/// Is an engine with rows, as the store's rows thread uses one; only that thread writes.
pub(crate) trait Engine: Backend {
    /// Puts one batch in, all of it or nothing. Reads see it at once.
    fn write(&self, batch: &WriteBack) -> anyhow::Result<()>;

    /// Makes every batch so far durable.
    fn flush(&self) -> anyhow::Result<()>;

    /// Gives some space back that replaced rows took; says whether there is more to
    /// do. An engine that has no call for it does nothing.
    fn tidy(&self) -> anyhow::Result<bool> {
        Ok(false)
    }
}

type Open = fn(&Path) -> anyhow::Result<Box<dyn Engine>>;

/// Is one of the engines.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) name: &'static str,
    /// What it is, for people.
    pub(crate) what: &'static str,
    open: Open,
}

/// In the order of the table's columns.
pub(crate) const ENGINES: &[Listed] = &[
    Listed {
        name: "keelson",
        what: "the engine in use: sled 0.34.7 for small rows, a heap of files for large ones",
        open: ours::open,
    },
    Listed {
        name: "sled",
        what: "sled 0.34.7 alone, all rows in its one tree",
        open: sled::open,
    },
    Listed {
        name: "redb",
        what: "redb 4: a copy-on-write B-tree in one file",
        open: redb::open,
    },
    Listed {
        name: "fjall",
        what: "fjall 3: an LSM tree, values in it",
        open: fjall::open,
    },
    Listed {
        name: "fjall-kv",
        what: "fjall 3: an LSM tree, large values in files beside it",
        open: fjall::open_separated,
    },
    Listed {
        name: "sled1",
        what: "sled 1.0.0-alpha.124",
        open: sled1::open,
    },
];

/// Finds an engine by its name.
pub(crate) fn named(name: &str) -> anyhow::Result<Listed> {
    let found = ENGINES.iter().find(|engine| engine.name == name);
    found.copied().with_context(|| {
        let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
        format!("no engine {name}; there are {}", names.join(", "))
    })
}

impl Listed {
    /// Opens the rows in a folder, making both if there are none.
    pub(crate) fn open(&self, folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        (self.open)(folder).with_context(|| format!("{} does not open", self.name))
    }
}

/// Makes an engine's error one that the machine takes.
fn unreadable(error: impl std::fmt::Display) -> BackendError {
    BackendError::Io(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn batch(token: u64, rows: &[(&'static str, Option<&'static str>)]) -> WriteBack {
        let own = |(key, row): &(&'static str, Option<&'static str>)| {
            (Bytes::from(*key), row.map(Bytes::from))
        };
        WriteBack {
            token,
            applied_index: token,
            applied_term: 1,
            revision: 1,
            rows: rows.iter().map(own).collect(),
        }
    }

    fn all(engine: &dyn Engine, from: &[u8], to: &[u8]) -> Vec<(Bytes, Bytes)> {
        let mut seen = Vec::new();
        engine
            .scan(from, to, &mut |key, row| {
                seen.push((key, row));
                Ok(())
            })
            .unwrap();
        seen
    }

    #[test]
    fn every_engine_keeps_the_rows_in_order() {
        for listed in ENGINES {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("data");
            let engine = listed.open(&path).unwrap();
            assert_eq!(engine.get(b"a").unwrap(), None, "{}", listed.name);
            let first = [("b", Some("1")), ("a", Some("2")), ("c", Some("3"))];
            engine.write(&batch(1, &first)).unwrap();
            engine
                .write(&batch(2, &[("b", None), ("c", Some("4"))]))
                .unwrap();
            engine.flush().unwrap();
            while engine.tidy().unwrap() {}
            engine.flush().unwrap();
            drop(engine);
            let engine = listed.open(&path).unwrap();
            let (a, c) = (("a".into(), "2".into()), ("c".into(), "4".into()));
            assert_eq!(engine.get(b"b").unwrap(), None, "{}", listed.name);
            assert_eq!(engine.share().get(b"c").unwrap(), Some("4".into()));
            assert_eq!(all(&*engine, b"", b""), [a.clone(), c.clone()]);
            assert_eq!(all(&*engine, b"a", b"c"), [a]);
            assert_eq!(all(&*engine, b"b", b""), [c]);
        }
    }
}
