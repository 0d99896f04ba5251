//! Picks cluster IPs for services: pure, from the set in use.
//!
//! The caller keeps the set (from the services it stores) and makes picking and
//! storing one step. The first address of the range belongs to the `kubernetes`
//! service of the namespace `default`. As upstream, addresses that a user may
//! want to name himself are kept for last: the lower band of the range (an
//! sixteenth of it, 16 to 256 addresses; KEP-3070).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

/// The most addresses of a range that are used, as upstream: a larger IPv6
/// range is cut.
pub const MAX_ADDRESSES: u128 = 1 << 20;

/// A range of addresses, in prefix notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    network: u128,
    prefix: u32,
    /// How many addresses can be given out.
    size: u128,
    v4: bool,
}

/// Why an address was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpError {
    /// The text is no `address/prefix`.
    #[error("not an address range")]
    Range,
    /// The address is outside the range.
    #[error("provided IP is not in the valid range")]
    NotInRange,
    /// The address is taken.
    #[error("provided IP is already allocated")]
    Allocated,
    /// All addresses are taken.
    #[error("range is full")]
    Full,
}

impl std::fmt::Display for IpRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(0), self.prefix)
    }
}

fn to_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

impl IpRange {
    /// Parses `10.96.0.0/16`.
    pub fn parse(text: &str) -> Result<Self, IpError> {
        let (address, prefix) = text.split_once('/').ok_or(IpError::Range)?;
        let address: IpAddr = address.parse().ok().ok_or(IpError::Range)?;
        let prefix: u32 = prefix.parse().ok().ok_or(IpError::Range)?;
        let v4 = address.is_ipv4();
        let bits = if v4 { 32_u32 } else { 128 };
        let host = bits.checked_sub(prefix).ok_or(IpError::Range)?;
        let all = 1_u128.checked_shl(host).unwrap_or(u128::MAX);
        // Without the network's own address and, for IPv4, the broadcast one.
        let size = all
            .saturating_sub(if v4 { 2 } else { 1 })
            .min(MAX_ADDRESSES);
        if size == 0 {
            return Err(IpError::Range);
        }
        let mask = !(all.wrapping_sub(1));
        Ok(Self {
            network: to_number(address) & mask,
            prefix,
            size,
            v4,
        })
    }

    fn address(&self, offset: u128) -> IpAddr {
        let number = self.network.wrapping_add(offset);
        if self.v4 {
            IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)))
        } else {
            IpAddr::V6(Ipv6Addr::from(number))
        }
    }

    /// Returns the first address, which the `kubernetes` service has.
    pub fn first(&self) -> IpAddr {
        self.address(1)
    }

    /// Returns `IPv4` or `IPv6`.
    pub fn family(&self) -> &'static str {
        if self.v4 { "IPv4" } else { "IPv6" }
    }

    /// Tells whether an address can be given out.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.v4
            && to_number(ip)
                .checked_sub(self.network)
                .is_some_and(|offset| (1..=self.size).contains(&offset))
    }

    /// Checks that a particular address is free.
    pub fn claim(&self, ip: IpAddr, in_use: &BTreeSet<IpAddr>) -> Result<(), IpError> {
        if !self.contains(ip) {
            Err(IpError::NotInRange)
        } else if in_use.contains(&ip) {
            Err(IpError::Allocated)
        } else {
            Ok(())
        }
    }

    /// Picks a free address, beginning at a place that `random` chooses, above
    /// the lower band as long as there is one. Never picks the first address.
    pub fn pick(&self, random: u64, in_use: &BTreeSet<IpAddr>) -> Result<IpAddr, IpError> {
        let band = if self.size < 16 {
            0
        } else {
            (self.size / 16).clamp(16, 256)
        };
        let band = band.min(self.size - 1);
        let upper = self.scan(band.max(1) + 1, self.size, random, in_use);
        upper
            .or_else(|| self.scan(2, band, random, in_use))
            .ok_or(IpError::Full)
    }

    fn scan(&self, from: u128, to: u128, random: u64, in_use: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let width = (to + 1).checked_sub(from).filter(|w| *w > 0)?;
        let start = u128::from(random) % width;
        // At most one more step than addresses are in use.
        (0..width)
            .map(|step| self.address(from + (start + step) % width))
            .find(|ip| !in_use.contains(ip))
    }
}

/// Gives a service its address, and the families that follow from it.
pub fn assign(service: &mut Value, ip: IpAddr) {
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let spec = meta::value::object_mut(service, "spec");
    spec.insert("clusterIP".to_owned(), Value::from(ip.to_string()));
    spec.insert("clusterIPs".to_owned(), json!([ip.to_string()]));
    spec.insert("ipFamilies".to_owned(), json!([family]));
    spec.entry("ipFamilyPolicy")
        .or_insert_with(|| json!("SingleStack"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn gives_every_address_once_and_the_first_to_none() {
        let range = IpRange::parse("10.0.0.0/24").unwrap();
        assert_eq!(range.first(), ip("10.0.0.1"));
        let mut in_use = BTreeSet::from([range.first()]);
        for round in 0..253_u64 {
            let picked = range
                .pick(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), &in_use)
                .unwrap();
            assert!(range.contains(picked) && in_use.insert(picked), "{picked}");
            // The lower band comes last.
            assert!(round >= 238 || picked > ip("10.0.0.16"), "{round} {picked}");
        }
        assert_eq!(range.pick(0, &in_use), Err(IpError::Full));
        assert!(!in_use.contains(&ip("10.0.0.0")) && !in_use.contains(&ip("10.0.0.255")));
        in_use.remove(&ip("10.0.0.77"));
        assert_eq!(range.pick(9, &in_use), Ok(ip("10.0.0.77")));
    }

    #[test]
    fn checks_claims() {
        let range = IpRange::parse("10.96.7.0/16").unwrap();
        let in_use = BTreeSet::from([ip("10.96.0.10")]);
        assert_eq!(
            range.claim(ip("10.96.0.10"), &in_use),
            Err(IpError::Allocated)
        );
        assert_eq!(
            range.claim(ip("10.97.0.1"), &in_use),
            Err(IpError::NotInRange)
        );
        assert_eq!(
            range.claim(ip("10.96.0.0"), &in_use),
            Err(IpError::NotInRange)
        );
        assert_eq!(
            range.claim(ip("fd00::1"), &in_use),
            Err(IpError::NotInRange)
        );
        assert_eq!(range.claim(ip("10.96.255.1"), &in_use), Ok(()));
    }

    #[test]
    fn an_address_brings_its_family() {
        let mut service = json!({"spec": {"type": "ClusterIP"}});
        assign(&mut service, ip("fd00::5"));
        assert_eq!(
            service["spec"],
            json!({"type": "ClusterIP", "clusterIP": "fd00::5", "clusterIPs": ["fd00::5"],
                "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"})
        );
    }

    #[test]
    fn odd_ranges() {
        let six = IpRange::parse("fd00:1::/64").unwrap();
        assert_eq!((six.first(), six.family()), (ip("fd00:1::1"), "IPv6"));
        assert!(six.contains(six.pick(7, &BTreeSet::new()).unwrap()));
        assert!(IpRange::parse("::/0").is_ok() && IpRange::parse("0.0.0.0/0").is_ok());
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/32",
            "10.0.0.0/31",
            "x/8",
            "::/129",
        ] {
            assert_eq!(IpRange::parse(bad), Err(IpError::Range), "{bad}");
        }
        let tiny = IpRange::parse("10.0.0.0/30").unwrap();
        assert_eq!(tiny.pick(3, &BTreeSet::new()), Ok(ip("10.0.0.2")));
    }
}
