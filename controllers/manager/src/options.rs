//! What a run of the controllers can be told.

use std::fmt;
use std::str::FromStr;

/// Selects controllers by name, as kube-controller-manager's `--controllers`: `*`
/// is all, `name` switches one on, `-name` switches one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    items: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            items: vec!["*".to_owned()],
        }
    }
}

impl Selection {
    /// Tells whether a controller is to run.
    pub fn includes(&self, name: &str) -> bool {
        let has = |wanted: &str| self.items.iter().any(|item| item == wanted);
        let off = self
            .items
            .iter()
            .any(|item| item.strip_prefix('-') == Some(name));
        !off && (has(name) || has("*"))
    }

    /// Returns the first name that is not a controller's.
    pub fn unknown<'a>(&'a self, names: &[&str]) -> Option<&'a str> {
        self.items
            .iter()
            .map(|item| item.strip_prefix('-').unwrap_or(item))
            .find(|item| *item != "*" && !names.contains(item))
    }
}

impl FromStr for Selection {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let items = text.split(',').map(|item| item.trim().to_owned());
        Ok(Self {
            items: items.filter(|item| !item.is_empty()).collect(),
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.items.join(","))
    }
}

/// Says how to run the controllers.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Runs them only while this process holds the Lease
    /// `kube-system/kube-controller-manager`.
    pub leader_elect: bool,
    /// Identifies this process among candidates.
    pub identity: String,
    /// Is the PEM of the cluster's CA, published to every namespace; nothing is
    /// published without it.
    pub cluster_ca: Option<String>,
    /// Selects the controllers to run.
    pub controllers: Selection,
}

impl Default for ManagerOptions {
    /// Runs every controller without election, as a process that holds the only
    /// store does.
    fn default() -> Self {
        Self {
            leader_elect: false,
            identity: default_identity(),
            cluster_ca: None,
            controllers: Selection::default(),
        }
    }
}

/// Makes a name no other candidate has: the host's with a random part, since one
/// host may run several.
pub fn default_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "localhost" } else { host };
    format!("{host}_{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_as_upstream_does() {
        for (text, name, expect) in [
            ("*", "namespace", true),
            ("*,-namespace", "namespace", false),
            ("*,-namespace", "deployment", true),
            ("deployment", "deployment", true),
            ("deployment", "namespace", false),
            ("", "namespace", false),
        ] {
            let selection: Selection = text.parse().unwrap();
            assert_eq!(selection.includes(name), expect, "{name} by {text:?}");
        }
        let selection: Selection = "*,-nope".parse().unwrap();
        assert_eq!(selection.unknown(&["namespace"]), Some("nope"));
    }
}
