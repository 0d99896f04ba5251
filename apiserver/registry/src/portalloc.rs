//! Picks node ports for services: pure, from the set in use.
//!
//! The caller keeps the set and makes picking and storing one step, as for
//! [`crate::ipalloc`]. Ports that a user may want to name himself are kept for
//! last: the lower band of the range (KEP-3668: a 32nd of it, 16 to 128 ports).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use meta::value::{int_at, str_at};
use serde_json::Value;

/// The ports that can be given out: kube-apiserver's default range.
pub const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// How many ports at the lower end are picked last.
const LOWER_BAND: u16 = 86;

/// Why a port was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The port is outside the range.
    #[error(
        "provided port is not in the valid range. The range of valid ports is {}-{}",
        NODE_PORTS.start(),
        NODE_PORTS.end()
    )]
    NotInRange,
    /// The port is taken.
    #[error("provided port is already allocated")]
    Allocated,
    /// All ports are taken.
    #[error("range is full")]
    Full,
}

/// Checks that a particular port is free.
pub fn claim(port: i64, in_use: &BTreeSet<u16>) -> Result<u16, PortError> {
    let port = u16::try_from(port)
        .ok()
        .filter(|p| NODE_PORTS.contains(p))
        .ok_or(PortError::NotInRange)?;
    match in_use.contains(&port) {
        true => Err(PortError::Allocated),
        false => Ok(port),
    }
}

/// Picks a free port, beginning at a place that `random` chooses, above the
/// lower band as long as there is one.
pub fn pick(random: u64, in_use: &BTreeSet<u16>) -> Result<u16, PortError> {
    let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
    let scan = |from: u16, to: u16| {
        let width = u64::from(to - from) + 1;
        // Below `width`, which fits.
        let start = u16::try_from(random % width).unwrap_or(0);
        let from_start = (from + start..=to).chain(from..from + start);
        from_start.into_iter().find(|port| !in_use.contains(port))
    };
    scan(first + LOWER_BAND, last)
        .or_else(|| scan(first, first + LOWER_BAND - 1))
        .ok_or(PortError::Full)
}

/// Tells whether a service's type has node ports.
pub fn is_exposed(service: &Value) -> bool {
    matches!(str_at(service, "spec.type"), "NodePort" | "LoadBalancer")
}

/// Returns the node ports a service has, those it may not have included.
pub fn of(service: &Value) -> BTreeSet<i64> {
    if !is_exposed(service) {
        return BTreeSet::new();
    }
    crate::validate::items(service, "spec.ports")
        .iter()
        .filter_map(|entry| int_at(entry, "nodePort").filter(|n| *n != 0))
        .collect()
}

/// Puts a node port into every entry of a service that needs one; `next` makes
/// them. Two protocols of one port share theirs, as upstream. Returns false
/// when `next` had too few.
pub fn fill(service: &mut Value, mut next: impl FnMut() -> Option<u16>) -> bool {
    // A load balancer may do without (KEP-1864); what it names it gets.
    let without = service["spec"]["allocateLoadBalancerNodePorts"] == Value::Bool(false)
        && str_at(service, "spec.type") == "LoadBalancer";
    if !is_exposed(service) || without {
        return true;
    }
    let Some(entries) = service["spec"]["ports"].as_array_mut() else {
        return true;
    };
    let protocol = |entry: &Value| str_at(entry, "protocol").to_owned();
    let mut taken: BTreeSet<(String, i64)> = entries
        .iter()
        .filter_map(|e| Some((protocol(e), int_at(e, "nodePort")?)))
        .collect();
    let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
    for entry in entries {
        let port = int_at(entry, "port").unwrap_or(0);
        let mut node = int_at(entry, "nodePort").unwrap_or(0);
        if node == 0 {
            let beside = shared.get(&port).copied();
            let beside = beside.filter(|n| !taken.contains(&(protocol(entry), *n)));
            let Some(given) = beside.or_else(|| next().map(i64::from)) else {
                return false;
            };
            node = given;
            entry["nodePort"] = node.into();
            taken.insert((protocol(entry), node));
        }
        shared.entry(port).or_insert(node);
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gives_every_port_once() {
        let mut in_use = BTreeSet::new();
        for round in 0..2768_u64 {
            let picked = pick(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), &in_use).unwrap();
            assert!(
                NODE_PORTS.contains(&picked) && in_use.insert(picked),
                "{picked}"
            );
            assert!(round >= 2768 - 86 || picked >= 30_086, "{round} {picked}");
        }
        assert_eq!(pick(0, &in_use), Err(PortError::Full));
        in_use.remove(&31_000);
        assert_eq!(pick(9, &in_use), Ok(31_000));
        assert_eq!(claim(31_000, &in_use), Ok(31_000));
        assert_eq!(claim(31_001, &in_use), Err(PortError::Allocated));
        for out in [29_999, 32_768, -1, 1 << 20] {
            assert_eq!(claim(out, &in_use), Err(PortError::NotInRange));
        }
    }

    #[test]
    fn fills_what_is_missing() {
        let mut numbers = 30_100..;
        let mut service = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"},
            {"port": 80, "protocol": "TCP", "nodePort": 31_000},
            {"port": 81, "protocol": "TCP"}]}});
        assert!(fill(&mut service, || numbers.next()));
        let given: Vec<&Value> = (0..4)
            .map(|i| &service["spec"]["ports"][i]["nodePort"])
            .collect();
        assert_eq!(
            given,
            [
                &json!(30_100),
                &json!(30_100),
                &json!(31_000),
                &json!(30_101)
            ]
        );
        assert_eq!(of(&service), BTreeSet::from([30_100, 30_101, 31_000]));

        for (ty, allocate) in [("ClusterIP", true), ("LoadBalancer", false)] {
            let mut none = json!({"spec": {"type": ty, "allocateLoadBalancerNodePorts": allocate,
                "ports": [{"port": 1, "protocol": "TCP"}]}});
            let before = none.clone();
            assert!(fill(&mut none, || panic!("none is needed")));
            assert_eq!(none, before);
        }
        let mut short = json!({"spec": {"type": "NodePort", "ports": [{"port": 1}]}});
        assert!(!fill(&mut short, || None));
    }
}
