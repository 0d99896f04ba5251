//! What a crash left, compared with what the tape says the rows were: pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use mvcc::WriteBack;
use serde::{Deserialize, Serialize};

/// The row that says which applied index the rows reflect.
const STATE_KEY: &[u8] = b"s";

pub(crate) type Rows = BTreeMap<Bytes, Bytes>;

/// What is found after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The rows are those after this batch, and no batch is missing that was durable.
    /// Batch 0 is nothing at all.
    Whole { after: u64 },
    /// The rows are those after this batch, but a later one had been flushed.
    Lost { after: u64 },
    /// No batch ever left such rows.
    Torn { how: String },
}

/// Judges rows by the batches that were written, in order, of which the flush of one
/// has returned.
pub(crate) fn judge(
    found: &Rows,
    batches: impl Iterator<Item = anyhow::Result<WriteBack>>,
    flushed: u64,
) -> anyhow::Result<Verdict> {
    let mut rows = Rows::new();
    let mut after = found.is_empty().then_some(0);
    let mut nearest: Option<Difference> = None;
    for batch in batches {
        let batch = batch?;
        let token = batch.token;
        take(&mut rows, batch);
        // Batches of one compaction have the same state row; the last that fits counts.
        if rows.get(STATE_KEY) != found.get(STATE_KEY) {
            continue;
        }
        let difference = Difference::of(token, found, &rows);
        if difference.rows() == 0 {
            after = Some(token);
        } else if nearest
            .as_ref()
            .is_none_or(|n| difference.rows() < n.rows())
        {
            nearest = Some(difference);
        }
    }
    Ok(match (after, nearest) {
        (Some(after), _) if after >= flushed => Verdict::Whole { after },
        (Some(after), _) => Verdict::Lost { after },
        (None, Some(nearest)) => Verdict::Torn {
            how: nearest.to_string(),
        },
        (None, None) => Verdict::Torn {
            how: format!("{} rows with an applied index of no batch", found.len()),
        },
    })
}

/// Changes rows as a batch does.
pub(crate) fn take(rows: &mut Rows, batch: WriteBack) {
    for (key, row) in batch.rows {
        match row {
            Some(row) => rows.insert(key, row),
            None => rows.remove(&key),
        };
    }
}

/// How rows differ from those after a batch.
struct Difference {
    token: u64,
    missing: usize,
    extra: usize,
    other: usize,
}

impl Difference {
    fn of(token: u64, found: &Rows, expected: &Rows) -> Self {
        let missing = expected.keys().filter(|key| !found.contains_key(*key));
        let extra = found.keys().filter(|key| !expected.contains_key(*key));
        let other = expected
            .iter()
            .filter(|(key, row)| found.get(*key).is_some_and(|found| found != *row));
        Self {
            token,
            missing: missing.count(),
            extra: extra.count(),
            other: other.count(),
        }
    }

    fn rows(&self) -> usize {
        self.missing + self.extra + self.other
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            token,
            missing,
            extra,
            other,
        } = self;
        write!(
            f,
            "the applied index of batch {token}, with {missing} rows missing, {extra} too many, \
             {other} different"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batch n puts two rows of its own and one that all put, and takes one of the
    /// batch before away.
    fn batches() -> Vec<WriteBack> {
        let batch = |n: u64| WriteBack {
            token: n,
            applied_index: n * 10,
            applied_term: 1,
            revision: n as i64,
            rows: vec![
                (format!("b{n}").into(), Some("block".into())),
                (format!("l{n}").into(), Some("lease".into())),
                ("all".into(), Some(format!("{n}").into())),
                (format!("l{}", n - 1).into(), None),
                ("s".into(), Some(format!("{n}").into())),
            ],
        };
        (1..=5).map(batch).collect()
    }

    fn after(token: u64) -> Rows {
        let mut rows = Rows::new();
        for batch in batches().into_iter().take(token as usize) {
            take(&mut rows, batch);
        }
        rows
    }

    fn judged(found: &Rows, flushed: u64) -> Verdict {
        judge(found, batches().into_iter().map(Ok), flushed).unwrap()
    }

    fn torn(found: &Rows) -> String {
        match judged(found, 3) {
            Verdict::Torn { how } => how,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_flushed_batch_or_one_after_it_is_whole() {
        assert_eq!(judged(&after(3), 3), Verdict::Whole { after: 3 });
        assert_eq!(judged(&after(4), 3), Verdict::Whole { after: 4 });
        assert_eq!(judged(&Rows::new(), 0), Verdict::Whole { after: 0 });
    }

    #[test]
    fn an_old_index_is_a_loss() {
        assert_eq!(judged(&after(2), 3), Verdict::Lost { after: 2 });
        assert_eq!(judged(&Rows::new(), 3), Verdict::Lost { after: 0 });
    }

    #[test]
    fn a_lost_row_is_found() {
        let mut found = after(4);
        found.remove(b"b2".as_slice());
        assert!(torn(&found).contains("batch 4, with 1 rows missing, 0 too many, 0 different"));
    }

    #[test]
    fn a_torn_batch_is_found() {
        let mut found = after(3);
        let half = batches().remove(3).rows;
        for (key, row) in half.into_iter().take(2) {
            found.extend(row.map(|row| (key, row)));
        }
        assert!(torn(&found).contains("batch 3, with 0 rows missing, 2 too many"));
        // The other half: the index and what it took away, without the block.
        let mut found = after(4);
        found.remove(b"b4".as_slice());
        found.insert("all".into(), "3".into());
        assert!(torn(&found).contains("batch 4, with 1 rows missing, 0 too many, 1 different"));
    }

    #[test]
    fn rows_without_an_index_are_torn() {
        let mut found = after(3);
        found.remove(STATE_KEY);
        assert!(torn(&found).contains("of no batch"));
    }

    #[test]
    fn of_batches_with_one_index_the_last_that_fits_counts() {
        let mut all = batches();
        let same = all[2].rows[4].clone();
        all[3].rows[4] = same.clone();
        let mut found = Rows::new();
        for batch in all.iter().take(4).cloned() {
            take(&mut found, batch);
        }
        let verdict = judge(&found, all.into_iter().map(Ok), 4).unwrap();
        assert_eq!(verdict, Verdict::Whole { after: 4 });
    }
}
