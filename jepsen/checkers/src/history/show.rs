//! Operations as people write them down: `p3 get a → a=1@2 (rev 5)`.

use std::fmt::{self, Display, Formatter};

use super::{
    AuthChange, Blob, Body, Compare, Delete, Event, Is, Kv, ListTxn, Micro, Op, Outcome, Put,
    Range, Reply, Request, Target, Told, Txn, TxnOp,
};

/// How many pairs or steps are written out before three dots.
const SHOWN_MAX: usize = 6;

/// How many characters of a value are written out.
const VALUE_MAX: usize = 24;

fn joined<T: Display>(f: &mut Formatter<'_>, items: &[T], between: &str) -> fmt::Result {
    for (at, item) in items.iter().take(SHOWN_MAX).enumerate() {
        if at > 0 {
            f.write_str(between)?;
        }
        write!(f, "{item}")?;
    }
    if items.len() > SHOWN_MAX {
        write!(f, "{between}… {} in all", items.len())?;
    }
    Ok(())
}

fn short(value: &Blob) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn keys(f: &mut Formatter<'_>, key: &Blob, end: &Blob) -> fmt::Result {
    match &end[..] {
        [] => write!(f, "{key}"),
        [0] => write!(f, "{}…", key.escape_ascii()),
        _ if key.prefix_end() == *end => write!(f, "{key}*"),
        _ => write!(f, "{key}..{end}"),
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "p{} {}", self.process, self.request)?;
        match &self.outcome {
            Outcome::Ok(reply) => write!(f, " → {reply}"),
            Outcome::Fail(why) => write!(f, " ✗ {why:?}"),
            Outcome::Info(why) => write!(f, " ? {why}"),
        }
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => write!(f, "{range}"),
            Self::Put(put) => write!(f, "{put}"),
            Self::Delete(delete) => write!(f, "{delete}"),
            Self::Txn(txn) => write!(f, "{txn}"),
            Self::Grant { id, ttl } => write!(f, "grant {id:x} {ttl}s"),
            Self::Revoke { id } => write!(f, "revoke {id:x}"),
            Self::KeepAlive { id } => write!(f, "keep-alive {id:x}"),
            Self::TimeToLive { id } => write!(f, "time-to-live {id:x}"),
            Self::Compact { revision } => write!(f, "compact {revision}"),
            Self::Lock { name, lease } => write!(f, "lock {name} with {lease:x}"),
            Self::Unlock { key } => write!(f, "unlock {key}"),
            Self::Auth(change) => write!(f, "{change}"),
        }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("get ")?;
        keys(f, &self.key, &self.end)?;
        if self.revision > 0 {
            write!(f, " at {}", self.revision)?;
        }
        if self.limit > 0 {
            write!(f, " limit {}", self.limit)?;
        }
        if self.serializable {
            f.write_str(" serializable")?;
        }
        Ok(())
    }
}

impl Display for Put {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "put {}={}", self.key, short(&self.value))?;
        if self.lease != 0 {
            write!(f, " with {:x}", self.lease)?;
        }
        Ok(())
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("delete ")?;
        keys(f, &self.key, &self.end)
    }
}

impl Display for Txn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("txn")?;
        if !self.compare.is_empty() {
            f.write_str(" if ")?;
            joined(f, &self.compare, " & ")?;
        }
        f.write_str(" {")?;
        joined(f, &self.success, "; ")?;
        f.write_str("}")?;
        if !self.failure.is_empty() {
            f.write_str(" else {")?;
            joined(f, &self.failure, "; ")?;
            f.write_str("}")?;
        }
        Ok(())
    }
}

impl Display for TxnOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => write!(f, "{range}"),
            Self::Put(put) => write!(f, "{put}"),
            Self::Delete(delete) => write!(f, "{delete}"),
            Self::Txn(txn) => write!(f, "{txn}"),
        }
    }
}

impl Display for Compare {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        keys(f, &self.key, &self.end)?;
        let is = match self.is {
            Is::Equal => "=",
            Is::NotEqual => "≠",
            Is::Greater => ">",
            Is::Less => "<",
        };
        match &self.to {
            Target::Version(number) => write!(f, ".version{is}{number}"),
            Target::Create(number) => write!(f, ".create{is}{number}"),
            Target::Mod(number) => write!(f, ".mod{is}{number}"),
            Target::Value(value) => write!(f, "{is}{}", short(value)),
            Target::Lease(number) => write!(f, ".lease{is}{number:x}"),
        }
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rev {})", self.body, self.revision)
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done | Self::Put { prev: None } => f.write_str("ok"),
            Self::Put { prev: Some(prev) } => write!(f, "ok, was {prev}"),
            Self::Range { kvs, count, .. } if kvs.is_empty() => write!(f, "{count} keys"),
            Self::Range { kvs, more, .. } => {
                joined(f, kvs, " ")?;
                f.write_str(if *more { " and more" } else { "" })
            }
            Self::Delete { deleted, .. } => write!(f, "{deleted} deleted"),
            Self::Txn { succeeded, results } => {
                f.write_str(if *succeeded { "then {" } else { "else {" })?;
                joined(f, results, "; ")?;
                f.write_str("}")
            }
            Self::Lease { ttl, .. } => write!(f, "{ttl}s"),
            Self::Lock { key } => write!(f, "holds {key}"),
        }
    }
}

impl Display for Kv {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}@{}", self.key, short(&self.value), self.modified)
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.delete {
            write!(f, "-{}@{}", self.kv.key, self.kv.modified)
        } else {
            write!(f, "{}", self.kv)
        }
    }
}

impl Display for Told {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created { revision } => write!(f, "created (rev {revision})"),
            Self::Events { events, .. } => joined(f, events, " "),
            Self::Progress { revision } => write!(f, "progress {revision}"),
            Self::Compacted { revision } => write!(f, "compacted {revision}"),
            Self::Canceled(why) => write!(f, "canceled: {why}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

impl Display for ListTxn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "p{} ", self.span.process)?;
        joined(f, &self.ops, " ")?;
        match self.outcome {
            super::Known::Ok => Ok(()),
            super::Known::Fail => f.write_str(" ✗"),
            super::Known::Info => f.write_str(" ?"),
        }
    }
}

impl Display for Micro {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(key, value) => write!(f, "{key}+={value}"),
            Self::Read(key, Some(list)) => write!(f, "{key}→{list:?}"),
            Self::Write(key, value) => write!(f, "{key}:={value}"),
            Self::Get(key, Some(Some(value))) => write!(f, "{key}→{value}"),
            Self::Get(key, Some(None)) => write!(f, "{key}→nil"),
            Self::Read(key, None) | Self::Get(key, None) => write!(f, "{key}→?"),
        }
    }
}

impl Display for AuthChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enable => f.write_str("enable auth"),
            Self::Disable => f.write_str("disable auth"),
            Self::AddUser(user) => write!(f, "add user {user}"),
            Self::DeleteUser(user) => write!(f, "delete user {user}"),
            Self::ChangePassword(user) => write!(f, "change password of {user}"),
            Self::AddRole(role) => write!(f, "add role {role}"),
            Self::DeleteRole(role) => write!(f, "delete role {role}"),
            Self::GrantRole { user, role } => write!(f, "grant {role} to {user}"),
            Self::RevokeRole { user, role } => write!(f, "revoke {role} from {user}"),
            Self::GrantRange { role, key, end, .. } => {
                write!(f, "grant to {role} ")?;
                keys(f, key, end)
            }
            Self::RevokeRange { role, key, end } => {
                write!(f, "revoke from {role} ")?;
                keys(f, key, end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn operations_read_well() {
        let mut history = History::default();
        history.ok(3, (1, 2), get("a"), found(5, [kv("a", "1", 2, 2, 1)]));
        let guarded = txn()
            .when("a", Is::Equal, Target::Mod(2))
            .then(put("a", "2"))
            .or_else(prefix("b/"));
        history.info(4, (1, 2), guarded, "timeout");
        let shown: Vec<_> = history.ops.iter().map(Op::to_string).collect();
        assert_eq!(shown[0], "p3 get a → a=1@2 (rev 5)");
        assert_eq!(
            shown[1],
            "p4 txn if a.mod=2 {put a=2} else {get b/*} ? timeout"
        );
    }
}
