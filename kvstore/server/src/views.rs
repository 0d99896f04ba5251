//! Reads that take long, done apart from the core.
//!
//! Whatever may take more than some tenths of a millisecond (a large list, a hash
//! over everything, a snapshot) takes a view under the lock, which is quick, and
//! reads it on a thread for blocking work. Nobody waits behind it.

use std::time::Duration;

use mvcc::{Error, Facts, KvHash, StateMachine, View};

use crate::{
    handle::{Handle, checked},
    rpc_error::RpcError,
};

/// Long reads under way at a time. Others wait their turn, first come first
/// served: each holds its answer, and what the store has changed since, in memory.
pub(crate) const LONG_READS_MAX: usize = 8;

/// How long a view is kept for its reader. After that compaction does not wait for
/// it any more, and the reader is told "request timed out". A snapshot of 8 GB
/// over a network of 1 Gbit/s takes a minute.
pub(crate) const VIEW_AGE_MAX: Duration = Duration::from_secs(600);

/// Is an answer, or the view that will give it.
pub(crate) enum Answer<T> {
    Now(T),
    Later(Box<View>),
}

impl Handle {
    /// Takes a view of what this member has applied, together with the leases,
    /// alarms and rows of the shell of the same moment. Only root may.
    pub(crate) fn view(&self) -> Result<(View, Facts), RpcError> {
        let now = self.shared.now();
        self.read(
            |machine, who| machine.auth().check_root(who),
            |machine| Ok((machine.view(now), machine.facts())),
        )
    }

    /// Hashes the history up to a revision, byte for byte as etcd does, so that
    /// members can be compared. It holds nobody up. Only root may.
    pub async fn hash_kv(&self, revision: i64) -> Result<KvHash, RpcError> {
        let (view, _facts) = self.view()?;
        self.read_apart(view, move |view| view.hash_kv(revision))
            .await
    }

    /// Hashes all this member holds, and says as of which revision. Unlike HashKV it
    /// compares only with members that compacted alike, as etcd's does.
    pub(crate) async fn hash(&self) -> Result<(u32, i64), RpcError> {
        let now = self.shared.now();
        let (view, beside) = self.read(
            |machine, who| machine.auth().check_root(who),
            |machine| Ok((machine.view(now), machine.hash_beside_keys())),
        )?;
        let keys = self.read_apart(view, |view| view.hash_kv(0)).await?;
        let mut hash = crc32fast::Hasher::new();
        hash.update(&keys.hash.to_be_bytes());
        hash.update(&beside.to_be_bytes());
        Ok((hash.finalize(), keys.hash_revision))
    }

    /// Reads a view on a thread for blocking work.
    pub(crate) async fn read_apart<T: Send + 'static>(
        &self,
        view: View,
        read: impl FnOnce(&View) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, RpcError> {
        let turn = self.shared.long_reads.acquire().await;
        let _turn = turn.map_err(|_closed| RpcError::from(Error::Stopped))?;
        let done = tokio::task::spawn_blocking(move || read(&view)).await;
        // It panicked, or the runtime ends; the first was logged.
        done.map_err(|_gone| RpcError::from(Error::Stopped))?
            .map_err(checked)
    }

    /// Gives the answer that came at once, or reads it from the view.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        answer: Result<Answer<T>, RpcError>,
        read: impl FnOnce(&View) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, RpcError> {
        match answer? {
            Answer::Now(answer) => Ok(answer),
            Answer::Later(view) => self.read_apart(*view, read).await,
        }
    }
}

/// Answers at once if that is little work, or takes a view to answer from.
pub(crate) fn answer_or_view<T>(
    machine: &mut StateMachine,
    now: Duration,
    read_if_short: impl FnOnce(&StateMachine) -> Result<Option<T>, Error>,
) -> Result<Answer<T>, Error> {
    Ok(match read_if_short(machine)? {
        Some(answer) => Answer::Now(answer),
        None => Answer::Later(Box::new(machine.view(now))),
    })
}
