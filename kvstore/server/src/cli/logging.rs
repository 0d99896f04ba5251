//! Flags of the log, and what is logged as slow.

use std::path::PathBuf;

use super::flag::{Flag, Kind, Values};
use crate::config::{Config, StartError};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("logger", Kind::Choice(&["zap"]), "zap", "Currently only 'zap', for structured logging."),
    Flag::new("log-outputs", Kind::List, "default", "Where the log goes: 'default' and 'stderr', 'stdout', or paths of files, comma-separated."),
    Flag::new("log-level", Kind::Choice(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]), "info", "How much is logged: debug, info, warn, error, panic, or fatal."),
    Flag::new("log-format", Kind::Choice(&["json", "console"]), "json", "How a line looks: json or console."),
    Flag::new("enable-log-rotation", Kind::Bool, "false", "Rotate a log file.")
        .refused("a log file is not rotated here, and would grow without end; rotate it with logrotate"),
    Flag::new("log-rotation-config-json", Kind::Text, "{\"maxsize\": 100, \"maxage\": 0, \"maxbackups\": 0, \"localtime\": false, \"compress\": false}", "How a log file is rotated.")
        .nothing("log files are not rotated here"),
    Flag::new("warning-apply-duration", Kind::Duration, "100ms", "Applying a request is logged as slow if it takes longer.")
        .old("experimental-warning-apply-duration"),
    Flag::new("warning-unary-request-duration", Kind::Duration, "300ms", "A unary request is logged as slow if it takes longer.")
        .old("experimental-warning-unary-request-duration"),
];

/// A place the log goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

/// How the member wants its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The least severe level that is logged: debug, info, warn or error.
    pub level: &'static str,
    /// Whether a line is a JSON object as etcd's are; else it is for people.
    pub json: bool,
    /// Where lines go.
    pub outputs: Vec<LogOutput>,
}

/// Reads where and how to log.
pub(super) fn options(values: &Values, notes: &mut Vec<String>) -> Result<LogOptions, StartError> {
    let flag = "log-outputs";
    let mut names = values.list(flag);
    if names.is_empty() {
        names.push("default".to_owned());
    }
    if names.len() > 1 && names.iter().any(|name| name == "default") {
        return Err(StartError::Flag {
            flag,
            reason: "multi logoutput for \"default\" is not supported yet".to_owned(),
        });
    }
    let outputs = names.into_iter().map(|name| match name.as_str() {
        "default" | "stderr" => LogOutput::Stderr,
        "stdout" => LogOutput::Stdout,
        "systemd/journal" => {
            // systemd gives a unit's standard error to its journal.
            notes.push("--log-outputs=systemd/journal: writing to standard error".to_owned());
            LogOutput::Stderr
        }
        path => LogOutput::File(path.into()),
    });
    Ok(LogOptions {
        outputs: outputs.collect(),
        level: match values.text("log-level") {
            "debug" => "debug",
            "warn" => "warn",
            // Whatever is worse than an error ends the process, and says so.
            "error" | "dpanic" | "panic" | "fatal" => "error",
            _ => "info",
        },
        json: values.text("log-format") == "json",
    })
}

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    _notes: &mut Vec<String>,
) -> Result<(), StartError> {
    config.warning_apply_duration = values.duration("warning-apply-duration");
    config.warning_unary_request_duration = values.duration("warning-unary-request-duration");
    Ok(())
}
