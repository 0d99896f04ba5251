//! The help and the version, in etcd's form.

use std::fmt::Write as _;

use super::{
    SECTIONS,
    flag::{Effect, Kind},
};
use crate::API_VERSION;

/// How wide the help is.
const WIDTH: usize = 96;

const USAGE: &str = "\
Usage:

  keelson kvstore [flags]
    Run one member of the replicated store, a drop-in for etcd.

  keelson kvstore --version
    Show the version of etcd that is spoken.

  keelson kvstore -h | --help
    Show this help.

  keelson kvstore --config-file FILE
    Read the configuration from a file as etcd's; flags and environment are then ignored.

Each flag may be given as ETCD_<FLAG> in the environment, too; a flag goes before it.
";

/// Writes the help: flags by section, each with its default.
pub(crate) fn help() -> String {
    let mut out = USAGE.to_owned();
    for (title, flags) in SECTIONS {
        let _infallible = write!(out, "\n{title}:\n");
        for flag in *flags {
            let default = match flag.kind {
                Kind::Count | Kind::Number => flag.default.to_owned(),
                _ => format!("'{}'", flag.default),
            };
            let _infallible = writeln!(out, "  --{} {default}", flag.name);
            wrap(&mut out, flag.help);
            match flag.effect {
                Effect::Works => {}
                Effect::Nothing(why) => wrap(&mut out, &format!("(No effect: {why}.)")),
                Effect::Refused(why) => wrap(&mut out, &format!("(Refused: {why}.)")),
            }
        }
    }
    out
}

fn wrap(out: &mut String, text: &str) {
    const INDENT: &str = "    ";
    let mut column = 0;
    for word in text.split(' ') {
        if column == 0 {
            out.push_str(INDENT);
            column = INDENT.len();
        } else if column + 1 + word.len() > WIDTH {
            out.push('\n');
            out.push_str(INDENT);
            column = INDENT.len();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
}

/// Writes what `etcd --version` does, which scripts read.
pub(crate) fn version() -> String {
    let (os, arch) = (std::env::consts::OS, go_arch(std::env::consts::ARCH));
    format!(
        "etcd Version: {API_VERSION}\nGit SHA: keelson-{}\nGo Version: none, written in Rust\n\
         Go OS/Arch: {os}/{arch}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Names a processor as Go does.
fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
