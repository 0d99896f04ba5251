//! From arguments and environment to values, as Go's `flag` package and etcd's
//! `pkg/flags` read them.

use std::collections::BTreeMap;

use super::{
    Refusal,
    flag::{Flag, Kind, Source, Values, find},
};

/// Flags so old that etcd itself only says that it ignores them
/// (server/etcdmain/config.go, `ignored`).
const ANCIENT: &[&str] = &[
    "cluster-active-size",
    "cluster-remove-delay",
    "cluster-sync-interval",
    "config",
    "force",
    "max-result-buffer",
    "max-retry-attempts",
    "peer-heartbeat-interval",
    "peer-election-timeout",
    "retry-interval",
    "snapshot",
    "v",
    "vv",
    "test.coverprofile",
    "test.outputdir",
];

/// Variables that begin as ours do and are none.
const NOT_FLAGS: &[&str] = &["ETCD_UNSUPPORTED_ARCH"];

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Line {
    Help,
    Version,
    Values,
}

/// Reads arguments, without the program's name, into `values`.
pub(crate) fn arguments(
    args: &[String],
    values: &mut Values,
    notes: &mut Vec<String>,
) -> Result<Line, Refusal> {
    let mut version = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(Refusal::Argument(arg.clone()));
        };
        if name.is_empty() || name.starts_with(['-', '=']) {
            // "--" alone ends the flags, and nothing may follow them.
            return match (arg == "--", args.next()) {
                (true, None) => break_off(version),
                (true, Some(next)) => Err(Refusal::Argument(next.clone())),
                (false, _) => Err(Refusal::Argument(arg.clone())),
            };
        }
        let (name, given) = match name.split_once('=') {
            Some((name, text)) => (name, Some(text.to_owned())),
            None => (name, None),
        };
        match name {
            "h" | "help" => return Ok(Line::Help),
            "version" => {
                let on = given.as_deref().unwrap_or("true");
                version =
                    super::value::boolean(on).ok_or_else(|| Refusal::Argument(arg.clone()))?;
                continue;
            }
            _ if ANCIENT.contains(&name) => {
                notes.push(format!("flag --{name} is no longer supported; ignoring it"));
                continue;
            }
            _ => {}
        }
        let flag = find(name).ok_or_else(|| Refusal::Unknown(name.to_owned()))?;
        let text = match given {
            Some(text) => text,
            None if flag.kind == Kind::Bool => "true".to_owned(),
            None => args
                .next()
                .ok_or_else(|| Refusal::NoValue(name.to_owned()))?
                .clone(),
        };
        values.set(flag, &text, Source::CommandLine)?;
    }
    break_off(version)
}

fn break_off(version: bool) -> Result<Line, Refusal> {
    Ok(if version { Line::Version } else { Line::Values })
}

/// Names a flag's variable.
pub(crate) fn variable(name: &str) -> String {
    format!("ETCD_{}", name.to_uppercase().replace('-', "_"))
}

/// Fills in from the environment what the command line left open.
pub(crate) fn environment(
    env: &BTreeMap<String, String>,
    values: &mut Values,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    let known: BTreeMap<String, &'static Flag> = super::flags()
        .flat_map(|flag| {
            let names = [Some(flag.name), flag.old];
            names
                .into_iter()
                .flatten()
                .map(move |name| (variable(name), flag))
        })
        .collect();
    for (key, text) in env {
        if !key.starts_with("ETCD_") || NOT_FLAGS.contains(&key.as_str()) {
            continue;
        }
        match known.get(key) {
            None => notes.push(format!("unrecognized environment variable {key}")),
            // etcd takes an empty variable for one that is not set.
            Some(_) if text.is_empty() => {}
            Some(flag) if values.source(flag.name) == Some(Source::CommandLine) => {
                notes.push(format!(
                    "environment variable {key} is shadowed by --{}",
                    flag.name
                ));
            }
            Some(flag) => values.set(flag, text, Source::Environment)?,
        }
    }
    Ok(())
}
