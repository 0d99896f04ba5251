//! The configuration file: YAML with etcd's keys, which are mostly its flags'
//! (server/embed/config.go, the `json` tags).
//!
//! Times are whole nanoseconds there, as Go marshals them; `10m` is taken, too.

use std::path::Path;

use serde_json::{Map, Value};

use super::flag::{Flag, Kind, Source, Values, find};
use crate::config::StartError;

const FLAG: &str = "config-file";

/// Largest configuration file; a larger one is not one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What only a file can say: the subjects clients may have.
pub(crate) const CLIENT_ALLOWED_CN: Flag = Flag::new(
    "client-transport-security.allowed-cn",
    Kind::List,
    "",
    "Names of clients, in a configuration file.",
);

pub(super) const FLAGS: &[Flag] = &[CLIENT_ALLOWED_CN];

/// Reads a file into `values`.
pub(crate) fn read(
    path: &Path,
    values: &mut Values,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    let refuse = |reason: String| StartError::Flag { flag: FLAG, reason };
    let unreadable = |error: std::io::Error| refuse(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        return Err(refuse(format!(
            "{}: {size} bytes, more than {FILE_BYTES_MAX}",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let parsed: Value = serde_saphyr::from_str(&text).map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        refuse(format!("{}: {first}", path.display()))
    })?;
    let map = match parsed {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => return Err(refuse(format!("{}: it is not a map", path.display()))),
    };
    for (key, value) in &map {
        match (key.as_str(), value) {
            ("client-transport-security", value) => {
                section(key, value, client_flag, values, notes)?
            }
            ("peer-transport-security", value) => section(key, value, peer_flag, values, notes)?,
            ("socket-options", value) => section(key, value, socket_flag, values, notes)?,
            ("discovery-config", value) => discovery(value)?,
            (_, value) => match find(key).filter(|flag| flag.name != FLAG) {
                Some(flag) => set(key, flag, value, values)?,
                None => notes.push(format!("--{FLAG}: unknown key {key:?}")),
            },
        }
    }
    values.read_from_file();
    Ok(())
}

/// Reads one section, whose keys are named by `flag_of`.
fn section(
    name: &str,
    value: &Value,
    flag_of: fn(&str) -> String,
    values: &mut Values,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok(()),
        _ => {
            let reason = format!("invalid {name}");
            return Err(StartError::Flag { flag: FLAG, reason });
        }
    };
    for (key, value) in map {
        match find(&flag_of(key)) {
            Some(flag) => set(&format!("{name}.{key}"), flag, value, values)?,
            None => notes.push(format!("--{FLAG}: unknown key {key:?} in {name}")),
        }
    }
    Ok(())
}

fn client_flag(key: &str) -> String {
    match key {
        "allowed-cn" => CLIENT_ALLOWED_CN.name.to_owned(),
        "allowed-hostname" => "client-cert-allowed-hostname".to_owned(),
        // Not etcd's; a list of revoked certificates must not go unread.
        "crl-file" => "client-crl-file".to_owned(),
        key => key.to_owned(),
    }
}

fn peer_flag(key: &str) -> String {
    match key {
        "allowed-cn" | "allowed-hostname" => format!("peer-cert-{key}"),
        key => format!("peer-{key}"),
    }
}

fn socket_flag(key: &str) -> String {
    format!("socket-{key}")
}

/// Refuses a discovery service; its other settings mean nothing without.
fn discovery(value: &Value) -> Result<(), StartError> {
    let endpoints = value.get("endpoints").and_then(Value::as_array);
    match endpoints.is_some_and(|endpoints| !endpoints.is_empty()) {
        true => Err(StartError::Flag {
            flag: "discovery-endpoints",
            reason: "finding members through a discovery service is not supported".to_owned(),
        }),
        false => Ok(()),
    }
}

fn set(
    key: &str,
    flag: &'static Flag,
    value: &Value,
    values: &mut Values,
) -> Result<(), StartError> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::Number(number) if flag.kind == Kind::Duration => format!("{number}ns"),
        Value::Array(parts) => {
            let parts: Option<Vec<String>> = parts.iter().map(plain).collect();
            parts
                .map(|parts| parts.join(","))
                .ok_or_else(|| wrong(key))?
        }
        value => plain(value).ok_or_else(|| wrong(key))?,
    };
    values.set(flag, &text, Source::File)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        _ => None,
    }
}

fn wrong(key: &str) -> StartError {
    StartError::Flag {
        flag: FLAG,
        reason: format!("{key} is neither a plain value nor a list of them"),
    }
}
