//! What the server says it is: which Kubernetes it speaks, and which build it is.
//!
//! Who packages it says the latter in the environment of the compiler, so that the
//! same sources and the same words make the same program: `KEELSON_GIT_COMMIT`,
//! `KEELSON_GIT_TREE_STATE` (`clean` unless told), and `SOURCE_DATE_EPOCH`, which
//! reproducible builds know. A build that is told nothing has no commit and no time.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The version this server calls itself, of the API it speaks.
const GIT_VERSION: &str = concat!("v1.36.0+keelson.", env!("CARGO_PKG_VERSION"));
const MAJOR: &str = "1";
const MINOR: &str = "36";
/// The oldest version that a cluster may go back to: that before, as upstream.
const MIN_COMPATIBLE_MINOR: &str = "35";
/// The commit of a build that was told none.
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// What a build was told of itself.
struct Stamp<'a> {
    commit: Option<&'a str>,
    tree_state: Option<&'a str>,
    epoch: Option<&'a str>,
}

const STAMP: Stamp<'static> = Stamp {
    commit: option_env!("KEELSON_GIT_COMMIT"),
    tree_state: option_env!("KEELSON_GIT_TREE_STATE"),
    epoch: option_env!("SOURCE_DATE_EPOCH"),
};

/// Returns Kubernetes' `version.Info`.
pub(crate) fn info() -> Value {
    info_of(&STAMP)
}

fn info_of(stamp: &Stamp<'_>) -> Value {
    let commit = stamp.commit.filter(|commit| !commit.is_empty());
    let tree_state = match (commit, stamp.tree_state) {
        (None, _) => "",
        (Some(_), Some(state)) if !state.is_empty() => state,
        (Some(_), _) => "clean",
    };
    let seconds = stamp.epoch.and_then(|text| text.parse().ok());
    let built = seconds.and_then(|s| Timestamp::from_second(s).ok());
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBLE_MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": commit.unwrap_or(NO_COMMIT),
        "gitTreeState": tree_state,
        "buildDate": meta::time::format(built.unwrap_or(Timestamp::UNIX_EPOCH)),
        "goVersion": env!("KEELSON_RUSTC"),
        "compiler": "rustc",
        "platform": format!("{}/{}", go_os(), go_arch()),
    })
}

/// Names the system as Go does, which clients compare with.
fn go_os() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

/// Names the architecture as Go does.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(commit: &str, tree_state: &str, epoch: &str) -> [String; 3] {
        fn told(text: &str) -> Option<&str> {
            Some(text).filter(|text| !text.is_empty())
        }
        let info = info_of(&Stamp {
            commit: told(commit),
            tree_state: told(tree_state),
            epoch: told(epoch),
        });
        ["gitCommit", "gitTreeState", "buildDate"]
            .map(|field| info[field].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_build_says_what_it_was_told() {
        let epoch = "1970-01-01T00:00:00Z";
        assert_eq!(build("", "", ""), [NO_COMMIT, "", epoch]);
        assert_eq!(build("", "dirty", "nonsense"), [NO_COMMIT, "", epoch]);
        assert_eq!(
            build("abc", "", "1717236000"),
            ["abc", "clean", "2024-06-01T10:00:00Z"]
        );
        assert_eq!(build("abc", "dirty", "0"), ["abc", "dirty", epoch]);
    }

    #[test]
    fn the_version_is_one_that_clients_can_read() {
        let info = info();
        let version = info["gitVersion"].as_str().unwrap();
        let number = version.strip_prefix("v1.36.").unwrap();
        assert!(number.contains("+keelson."), "{version}");
        assert!(info["goVersion"].as_str().unwrap().starts_with("rustc 1."));
    }
}
