//! Where an object lies in the store.
//!
//! Keys are laid out exactly as Kubernetes lays them out
//! (`/registry/<prefix>/<namespace>/<name>`), so that a kube-apiserver can be
//! put on the same store. `<prefix>` is the resource name but for the historic
//! exceptions (`minions`, `services/specs`), which a kind names itself.

/// The root of everything an API server stores.
pub const REGISTRY: &str = "/registry/";

/// Returns the key of an object under a kind's storage prefix.
pub fn object_key(prefix: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(ns) => format!("{REGISTRY}{prefix}/{ns}/{name}"),
        None => format!("{REGISTRY}{prefix}/{name}"),
    }
}

/// Returns the prefix of all objects of a kind, or of one namespace's.
pub fn list_prefix(prefix: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(ns) => format!("{REGISTRY}{prefix}/{ns}/"),
        None => format!("{REGISTRY}{prefix}/"),
    }
}

/// Returns the end of the range that holds every key with this prefix, as
/// etcd's clients compute it; empty means "to the end of the key space".
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lays_keys_out_as_kubernetes_does() {
        assert_eq!(
            object_key("pods", Some("default"), "web"),
            "/registry/pods/default/web"
        );
        assert_eq!(object_key("minions", None, "n1"), "/registry/minions/n1");
        assert_eq!(
            list_prefix("services/specs", Some("a")),
            "/registry/services/specs/a/"
        );
    }

    #[test]
    fn prefix_end_carries() {
        assert_eq!(prefix_end(b"/a/"), b"/a0");
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff\xff"), b"\0");
    }
}
