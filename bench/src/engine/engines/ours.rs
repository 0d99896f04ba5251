//! The engine in use, as crate `disk` makes it.

use std::path::Path;

use disk::{Rows, Tidied};
use mvcc::WriteBack;

use super::Engine;

pub(super) fn open(folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
    Ok(Box::new(Rows::open(folder)?))
}

impl Engine for Rows {
    fn write(&self, batch: &WriteBack) -> anyhow::Result<()> {
        Ok(Self::write(self, batch)?)
    }

    fn flush(&self) -> anyhow::Result<()> {
        Ok(Self::flush(self)?)
    }

    /// The server calls it whenever there is nothing to write, and flushes after it.
    fn tidy(&self) -> anyhow::Result<bool> {
        let tidied = Self::tidy(self)?;
        Self::flush(self)?;
        Ok(tidied == Tidied::Some)
    }
}
