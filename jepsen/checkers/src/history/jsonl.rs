//! Histories as JSON lines: one record a line, so that a run that was killed
//! leaves all but its last.

use std::io::{self, BufRead, Write};

use super::{About, ApiSaid, History, Record, WatchOpen, WatchTold};

/// Says what is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line is no record.
    #[error("line {line}: {source}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A watch is told something and was never opened.
    #[error("watch {0} was never opened")]
    NoSuchWatch(u64),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads records one by one; empty lines and those that start with `#` say nothing.
pub struct Reader<R> {
    from: R,
    line: usize,
    text: String,
}

impl<R: BufRead> Reader<R> {
    /// Reads from anything.
    pub fn new(from: R) -> Self {
        Self {
            from,
            line: 0,
            text: String::new(),
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.text.clear();
            match self.from.read_line(&mut self.text) {
                Ok(0) => return None,
                Ok(_) => self.line += 1,
                Err(error) => return Some(Err(error.into())),
            }
            let text = self.text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = self.line;
            return Some(serde_json::from_str(text).map_err(|source| Error::Line { line, source }));
        }
    }
}

/// Reads a whole history.
///
/// # Errors
/// Of reading, and of the first line that is no record.
pub fn read(from: impl BufRead) -> Result<History, Error> {
    let mut history = History::default();
    for record in Reader::new(from) {
        history.push(record?)?;
    }
    Ok(history)
}

impl Record {
    /// Writes the record as one line.
    ///
    /// # Errors
    /// Of writing.
    pub fn write(&self, mut to: impl Write) -> Result<(), Error> {
        serde_json::to_writer(&mut to, self).map_err(io::Error::from)?;
        to.write_all(b"\n")?;
        Ok(())
    }
}

/// Writes a whole history.
///
/// # Errors
/// Of writing.
pub fn write(history: &History, mut to: impl Write) -> Result<(), Error> {
    if history.about != About::default() {
        Record::About(history.about.clone()).write(&mut to)?;
    }
    for op in &history.ops {
        Record::Op(op.clone()).write(&mut to)?;
    }
    for watch in &history.watches {
        let open = WatchOpen {
            id: watch.id,
            process: watch.process,
            member: watch.member,
            user: watch.user.clone(),
            at: watch.opened,
            request: watch.request.clone(),
            whole: watch.whole,
        };
        Record::Open(open).write(&mut to)?;
        for (at, said) in &watch.told {
            let told = WatchTold {
                id: watch.id,
                at: *at,
                said: said.clone(),
            };
            Record::Told(told).write(&mut to)?;
        }
    }
    let lists = history.lists.iter().cloned().map(Record::List);
    let sets = history.sets.iter().cloned().map(Record::Set);
    let locks = history.locks.iter().cloned().map(Record::Held);
    let nemesis = history.nemesis.iter().cloned().map(Record::Fault);
    let finals = history.finals.iter().cloned().map(Record::Final);
    let calls = history.calls.iter().cloned().map(Record::Call);
    let all = lists.chain(sets).chain(locks).chain(nemesis);
    for record in all.chain(finals).chain(calls) {
        record.write(&mut to)?;
    }
    for watch in &history.api_watches {
        Record::ApiOpen(watch.open.clone()).write(&mut to)?;
        for (at, said) in &watch.told {
            let (id, at, said) = (watch.open.id, *at, said.clone());
            Record::ApiSaid(ApiSaid { id, at, said }).write(&mut to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::*;

    fn a_bit_of_everything() -> History {
        let mut history = History::default();
        history.about.title = "a bit of everything".to_owned();
        history.ok(0, (1, 2), put("a", "1"), wrote(2));
        history.ok(1, (1, 3), get("a"), found(2, [kv("a", "1", 2, 2, 1)]));
        let guarded = txn()
            .when("a", Is::Equal, Target::Mod(2))
            .then(put("a", "2"))
            .then(prefix("a"))
            .or_else(delete("\u{1}"))
            .done();
        history.info(2, (2, 9), guarded, "timeout");
        history.fail(3, (4, 5), get("a").at(9), Refusal::FutureRevision);
        history.ok(4, (4, 6), grant(7, 5), lease(2, 7, 5));
        let raw = Put {
            key: Blob::from(vec![0xff, 0]),
            value: "base64:".into(),
            lease: 7,
            ..Put::default()
        };
        history.ok(4, (7, 8), Request::Put(raw), wrote(3));
        let watch = history.watch(5, 1, WatchRequest::default());
        watch.told.push((2, Told::Created { revision: 1 }));
        watch
            .told
            .push((3, events(2, [was_put(kv("a", "1", 2, 2, 1))])));
        watch.told.push((9, Told::Lost));
        history.lists.push(ListTxn {
            span: Span {
                process: 6,
                call: 1,
                ret: 2,
            },
            ops: vec![
                Micro::Append(1, 2),
                Micro::Read(1, Some(vec![2])),
                Micro::Read(2, None),
            ],
            outcome: Known::Ok,
        });
        history.sets.push(SetOp {
            span: Span {
                process: 6,
                call: 3,
                ret: 4,
            },
            set: 0,
            what: SetWhat::Add(1),
            outcome: Known::Info,
        });
        history.nemesis.push(Fault {
            kind: "kill".into(),
            detail: "member 1".to_owned(),
            from: 3,
            to: 5,
        });
        history.finals.push(Final {
            member: 0,
            revision: 3,
            compacted: 1,
            hash: 9,
            answered: true,
        });
        history
    }

    #[test]
    fn a_history_reads_as_it_is_written() {
        let history = a_bit_of_everything();
        let mut text = Vec::new();
        write(&history, &mut text).unwrap();
        assert_eq!(read(&*text).unwrap(), history);
        let lines = String::from_utf8(text).unwrap();
        let first = r#"{"op":{"process":0,"call":1,"ret":2,"do":{"put":{"key":"a","value":"1"}},"got":{"ok":{"revision":2,"body":{"put":{}}}}}}"#;
        assert_eq!(lines.lines().nth(1), Some(first));
    }

    #[test]
    fn a_bad_line_is_named() {
        let text = "# a comment\n\n{\"op\":{}}\n";
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 3: missing field"), "{error}");
        let text = r#"{"told":{"id":3,"at":1,"said":"lost"}}"#;
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "watch 3 was never opened");
    }

    #[test]
    fn prefixes_end_where_etcd_ends_them() {
        assert_eq!(Blob::from("ab").prefix_end(), Blob::from("ac"));
        assert_eq!(Blob::from(vec![b'a', 0xff]).prefix_end(), Blob::from("b"));
        assert_eq!(Blob::from(vec![0xff]).prefix_end(), Blob::from("\0"));
    }
}
