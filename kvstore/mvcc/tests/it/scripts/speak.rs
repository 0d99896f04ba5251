//! What scripts can say.

use std::time::Duration;

use bytes::Bytes;
use goldenscript::ArgumentConsumer;
use mvcc::check::{check_delete_range, check_put, check_range, check_txn};
use mvcc::watch::WatchCreate;
use mvcc::*;

use super::{Member, Outcome, auth, members, print, refused};

pub(super) fn run(m: &mut Member, command: &goldenscript::Command) -> Outcome {
    let mut args = command.consume_args();
    let out = match command.name.as_str() {
        "put" => {
            let r = put(&mut args)?;
            refused(check_put(&r))?;
            m.apply(Command::Put(r))?
        }
        "get" => {
            let r = range(&mut args)?;
            refused(check_range(&r))?;
            m.allowed(|m, who| m.auth().check_read(who, &r.key, &r.range_end))?;
            print::range(&refused(m.machine.range(&r))?)
        }
        "del" => {
            let r = delete(&mut args)?;
            refused(check_delete_range(&r))?;
            m.apply(Command::DeleteRange(r))?
        }
        "txn" => {
            let r = Words::new(pos(&mut args)?).txn()?;
            refused(check_txn(&r, 128))?;
            match r.is_readonly() {
                true => {
                    m.allowed(|m, who| m.check_txn(who, &r))?;
                    print::txn(&refused(m.machine.txn_readonly(&r))?)
                }
                false => m.apply(Command::Txn(r))?,
            }
        }
        "compact" => {
            let revision = pos(&mut args)?.parse()?;
            m.apply(Command::Compact(CompactRequest {
                revision,
                physical: false,
            }))?
        }
        "repeat" => {
            let id = pos(&mut args)?.parse()?;
            let command = Command::Put(PutRequest {
                key: "repeated".into(),
                ..PutRequest::default()
            });
            m.propose(Proposal {
                id,
                since: None,
                identity: None,
                command,
            })?
        }
        "forget" => m.compact_all()?,
        "flush" => m.flush(),
        "restart" => m.restart()?,
        "status" => status(&m.machine),
        "hash" => {
            let h = refused(m.machine.hash_kv(number(&mut args, "rev")?))?;
            format!(
                "hash={} compacted={} rev={}",
                h.hash, h.compact_revision, h.hash_revision
            )
        }
        "alarm" => alarm(m, &mut args)?,
        "bootstrap" | "member" | "members" => members::run(m, &command.name, &mut args)?,
        "page" => page(m, &mut args)?,
        "downgrade" => downgrade(m, args.next_pos())?,
        "as" | "auth" | "user" | "role" | "may" => auth::run(m, &command.name, &mut args)?,
        "watch" | "unwatch" | "poll" | "progress" | "tick" => watch(m, &command.name, &mut args)?,
        _ => lease(m, &command.name, &mut args)?,
    };
    args.reject_next()?;
    Ok(out)
}

fn status(m: &StateMachine) -> String {
    format!(
        "rev={} compacted={} index={} keys={}",
        m.revision(),
        m.compact_revision(),
        m.applied_index(),
        m.key_count()
    )
}

fn downgrade(m: &mut Member, target: Option<&str>) -> Outcome {
    match target {
        Some("show") => Ok(format!("{:?}", m.machine.downgrade())),
        target => m.apply(Command::Downgrade(target.map(str::to_owned))),
    }
}

fn page(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let most = |n: i64| {
        usize::try_from(n)
            .ok()
            .filter(|n| *n > 0)
            .unwrap_or(usize::MAX)
    };
    let request = PageRequest {
        key: bytes(pos(args)?),
        range_end: bytes(args.next_pos().unwrap_or_default()),
        revision: number(args, "rev")?,
        limit: most(number(args, "limit")?),
        bytes_max: most(number(args, "bytes")?),
        keys_only: flag(args, "keys")?,
        count_only: flag(args, "count")?,
    };
    let page = refused(m.machine.page(&request))?;
    let mut lines = vec![format!("found={} rev={}", page.found, page.revision)];
    lines.extend(page.kvs.iter().map(print::kv));
    if let Some(next) = page.next {
        lines.push(format!("next={}", next.escape_ascii()));
    }
    Ok(lines.join("\n"))
}

fn alarm(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let verb = pos(args)?;
    if verb == "list" {
        return Ok(print::alarms(&m.machine.alarms()));
    }
    let member = pos(args)?.parse()?;
    let kind = if pos(args)? == "corrupt" {
        AlarmKind::Corrupt
    } else {
        AlarmKind::NoSpace
    };
    let alarm = Alarm { member, kind };
    m.apply(match verb {
        "on" => Command::AlarmActivate(alarm),
        _ => Command::AlarmDeactivate(alarm),
    })
}

fn lease(m: &mut Member, name: &str, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let seconds = |text: &str| -> Result<Duration, _> { text.parse().map(Duration::from_millis) };
    let list = |ids: &[i64]| format!("{ids:?}");
    Ok(match name {
        "grant" => {
            let (id, ttl) = (pos(args)?.parse()?, pos(args)?.parse()?);
            m.apply(Command::LeaseGrant(LeaseGrantRequest { id, ttl }))?
        }
        "revoke" => {
            let id = pos(args)?.parse()?;
            m.apply(Command::LeaseRevoke(LeaseRevokeRequest { id }))?
        }
        "checkpoint" => {
            let checkpoints = vec![(pos(args)?.parse()?, pos(args)?.parse()?)];
            m.apply(Command::LeaseCheckpoint(LeaseCheckpointRequest {
                checkpoints,
            }))?
        }
        "checkpoints" => format!(
            "{:?}",
            m.machine.checkpoints_due(m.now, seconds(pos(args)?)?, 100)
        ),
        "leases" => list(&m.machine.leases()),
        "expired" => list(&m.machine.expired(m.now, 100)),
        "renew" => {
            let renewed = refused(m.machine.renew(pos(args)?.parse()?, m.now))?;
            format!(
                "ttl={} clear_checkpoint={}",
                renewed.ttl, renewed.clear_checkpoint
            )
        }
        "ttl" => {
            let id = pos(args)?.parse()?;
            let keys: Vec<_> = m
                .machine
                .lease_keys(id)
                .iter()
                .map(|k| k.escape_ascii().to_string())
                .collect();
            match m.machine.lease_ttl(id, m.now) {
                Some(s) => format!("ttl={} granted={} keys={keys:?}", s.ttl, s.granted_ttl),
                None => "unknown".to_owned(),
            }
        }
        "promote" => {
            m.machine.promote(m.now, seconds(pos(args)?)?);
            String::new()
        }
        "demote" => {
            m.machine.demote();
            String::new()
        }
        "sleep" => {
            m.now += seconds(pos(args)?)?;
            String::new()
        }
        other => return Err(format!("no command {other:?}").into()),
    })
}

fn watch(m: &mut Member, name: &str, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let stream = pos(args)?.parse()?;
    Ok(match name {
        "tick" => format!("due={}", m.hub.progress_tick(stream)),
        "watch" => {
            let create = WatchCreate {
                key: bytes(args.next_pos().unwrap_or_default()),
                range_end: bytes(args.next_pos().unwrap_or_default()),
                start_revision: number(args, "start")?,
                watch_id: number(args, "id")?,
                progress_notify: flag(args, "progress")?,
                prev_kv: flag(args, "prev")?,
                filter_put: flag(args, "noput")?,
                filter_delete: flag(args, "nodelete")?,
                fragment: false,
            };
            format!("id={}", m.hub.create(stream, create))
        }
        "unwatch" => format!("known={}", m.hub.cancel(stream, pos(args)?.parse()?)),
        "progress" => {
            m.hub.request_progress(stream);
            String::new()
        }
        _ => {
            let max = number(args, "max")?;
            let polled = m.hub.poll(
                stream,
                &m.machine,
                if max == 0 { 1000 } else { max as usize },
            )?;
            let mut lines: Vec<_> = polled.replies.iter().map(print::watch).collect();
            if polled.more {
                lines.push("more".to_owned());
            }
            if lines.is_empty() {
                lines.push("nothing".to_owned());
            }
            lines.join("\n")
        }
    })
}

// --- arguments ---

pub(super) fn pos<'a>(
    args: &mut ArgumentConsumer<'a>,
) -> Result<&'a str, Box<dyn std::error::Error>> {
    args.next_pos()
        .ok_or_else(|| "an argument is missing".into())
}

pub(super) fn number(
    args: &mut ArgumentConsumer<'_>,
    key: &str,
) -> Result<i64, Box<dyn std::error::Error>> {
    Ok(args
        .take_key(key)
        .map(str::parse)
        .transpose()?
        .unwrap_or_default())
}

pub(super) fn flag(
    args: &mut ArgumentConsumer<'_>,
    key: &str,
) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(args
        .take_key(key)
        .map(str::parse)
        .transpose()?
        .unwrap_or_default())
}

/// Reads a key or value; `0x` introduces hexadecimal.
pub(super) fn bytes(text: &str) -> Bytes {
    match text.strip_prefix("0x") {
        Some(hex) => (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect(),
        None => Bytes::from(text.to_owned()),
    }
}

fn put(args: &mut ArgumentConsumer<'_>) -> Result<PutRequest, Box<dyn std::error::Error>> {
    Ok(PutRequest {
        key: bytes(args.next_pos().unwrap_or_default()),
        value: bytes(args.next_pos().unwrap_or_default()),
        lease: number(args, "lease")?,
        prev_kv: flag(args, "prev")?,
        ignore_value: flag(args, "ignore_value")?,
        ignore_lease: flag(args, "ignore_lease")?,
    })
}

fn delete(
    args: &mut ArgumentConsumer<'_>,
) -> Result<DeleteRangeRequest, Box<dyn std::error::Error>> {
    Ok(DeleteRangeRequest {
        key: bytes(args.next_pos().unwrap_or_default()),
        range_end: bytes(args.next_pos().unwrap_or_default()),
        prev_kv: flag(args, "prev")?,
    })
}

fn range(args: &mut ArgumentConsumer<'_>) -> Result<RangeRequest, Box<dyn std::error::Error>> {
    Ok(RangeRequest {
        key: bytes(args.next_pos().unwrap_or_default()),
        range_end: bytes(args.next_pos().unwrap_or_default()),
        limit: number(args, "limit")?,
        revision: number(args, "rev")?,
        sort_order: SortOrder::from_i32(number(args, "order")? as i32).ok_or("order")?,
        sort_target: SortTarget::from_i32(number(args, "target")? as i32).ok_or("target")?,
        serializable: false,
        keys_only: flag(args, "keys_only")?,
        count_only: flag(args, "count_only")?,
        min_mod_revision: number(args, "min_mod")?,
        max_mod_revision: number(args, "max_mod")?,
        min_create_revision: number(args, "min_create")?,
        max_create_revision: number(args, "max_create")?,
    })
}

// --- the line of a txn ---

/// Reads `if (...) then (...) else (...)` word by word.
struct Words<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

type Read<T> = Result<T, Box<dyn std::error::Error>>;

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            let opens = word.len() - word.trim_start_matches('(').len();
            let closes = word.len() - word.trim_end_matches(')').len();
            words.extend(std::iter::repeat_n("(", opens));
            words.extend(Some(&word[opens..word.len() - closes]).filter(|w| !w.is_empty()));
            words.extend(std::iter::repeat_n(")", closes));
        }
        Self {
            words: words.into_iter().peekable(),
        }
    }

    fn txn(&mut self) -> Read<TxnRequest> {
        let mut txn = TxnRequest::default();
        while let Some(part) = self.words.next_if(|w| *w != ")") {
            while self.words.next_if_eq(&"(").is_some() {
                match part {
                    "if" => txn.compare.push(self.compare()?),
                    "then" => txn.success.push(self.op()?),
                    _ => txn.failure.push(self.op()?),
                }
                self.words.next_if_eq(&")").ok_or("expected )")?;
            }
        }
        Ok(txn)
    }

    /// Reads up to the closing parenthesis.
    fn rest(&mut self) -> Vec<&'a str> {
        std::iter::from_fn(|| self.words.next_if(|w| *w != ")")).collect()
    }

    fn compare(&mut self) -> Read<Compare> {
        let words = self.rest();
        let [target, key, result, value, ..] = words[..] else {
            return Err("expected: target key result value [range_end]".into());
        };
        let result = match result {
            "=" => CompareResult::Equal,
            "!=" => CompareResult::NotEqual,
            ">" => CompareResult::Greater,
            _ => CompareResult::Less,
        };
        let target = match target {
            "version" => CompareTarget::Version(value.parse()?),
            "create" => CompareTarget::CreateRevision(value.parse()?),
            "mod" => CompareTarget::ModRevision(value.parse()?),
            "lease" => CompareTarget::Lease(value.parse()?),
            _ => CompareTarget::Value(bytes(value)),
        };
        let range_end = bytes(words.get(4).copied().unwrap_or_default());
        Ok(Compare {
            key: bytes(key),
            range_end,
            result,
            target,
        })
    }

    fn op(&mut self) -> Read<RequestOp> {
        let Some(verb) = self.words.next_if(|w| *w != ")") else {
            return Ok(RequestOp::Empty);
        };
        if verb == "txn" {
            return Ok(RequestOp::Txn(self.txn()?));
        }
        let words = self.rest();
        let pos: Vec<_> = words
            .iter()
            .filter(|w| !w.contains('='))
            .map(|w| bytes(w))
            .collect();
        let key = |name: &str| {
            words
                .iter()
                .find_map(|w| w.strip_prefix(name)?.strip_prefix('='))
        };
        let number = |name: &str| {
            key(name)
                .map(str::parse::<i64>)
                .transpose()
                .map(Option::unwrap_or_default)
        };
        let nth = |n: usize| pos.get(n).cloned().unwrap_or_default();
        Ok(match verb {
            "get" => RequestOp::Range(RangeRequest {
                key: nth(0),
                range_end: nth(1),
                revision: number("rev")?,
                limit: number("limit")?,
                ..RangeRequest::default()
            }),
            "put" => RequestOp::Put(PutRequest {
                key: nth(0),
                value: nth(1),
                lease: number("lease")?,
                prev_kv: key("prev").is_some(),
                ignore_value: key("ignore_value").is_some(),
                ignore_lease: key("ignore_lease").is_some(),
            }),
            "del" => RequestOp::DeleteRange(DeleteRangeRequest {
                key: nth(0),
                range_end: nth(1),
                prev_kv: key("prev").is_some(),
            }),
            other => return Err(format!("no operation {other:?}").into()),
        })
    }
}
