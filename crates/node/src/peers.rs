//! Peers: which addresses may connect, as single addresses and networks.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text is no address and no network: correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no address and no network: {problem}; write 10.1.2.3, 10.1.0.0/16 or fd00::/8")]
pub struct NetworkError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// An address, or a network as a prefix of addresses: `10.1.2.3`, `10.1.0.0/16`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    /// The address, or the first of the network.
    address: IpAddr,
    /// How many of its bits count.
    bits: u32,
}

impl Network {
    /// Whether `peer` is in it. An IPv4 address received over an IPv6 socket counts as IPv4.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let (own, own_bits) = number(self.address);
        let (other, other_bits) = number(peer.to_canonical());
        own_bits == other_bits && masked(other, other_bits, self.bits) == own
    }

    /// Whether every address in it is this machine's own.
    pub fn is_loopback(&self) -> bool {
        let least = if self.address.is_ipv4() { 8 } else { 128 };
        self.address.is_loopback() && self.bits >= least
    }
}

/// Whether `peer` may connect: it is in one of the networks, or there are none named.
pub fn allowed(networks: &[Network], peer: IpAddr) -> bool {
    networks.is_empty() || networks.iter().any(|network| network.contains(peer))
}

/// An address as a number, and how many bits it has.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The first `bits` of a number that has `of`; the rest zero.
fn masked(number: u128, of: u32, bits: u32) -> u128 {
    match of - bits {
        0 => number,
        128 => 0,
        cut => number >> cut << cut,
    }
}

impl FromStr for Network {
    type Err = NetworkError;
    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = |problem: String| NetworkError { text: text.to_owned(), problem };
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong(format!("`{address}` is no address")))?;
        let (value, all) = number(address);
        let bits = match bits {
            None => all,
            Some(bits) => match bits.parse::<u32>() {
                Ok(bits) if bits <= all => bits,
                _ => return Err(wrong(format!("`{bits}` is no number of bits from 0 to {all}"))),
            },
        };
        // Peers count as IPv4 then, so it would never be one.
        if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
            return Err(wrong("it is an IPv4 address: write it as one".to_owned()));
        }
        if masked(value, all, bits) != value {
            return Err(wrong(format!("it has bits behind the first {bits}")));
        }
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match number(self.address).1 {
            all if all == self.bits => write!(f, "{}", self.address),
            _ => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;
    fn try_from(text: String) -> Result<Network, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_what_begins_like_it_and_nothing_else() {
        let table: [(&str, &[&str], &[&str]); 6] = [
            ("10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.4", "::1"]),
            ("10.1.0.0/16", &["10.1.0.0", "10.1.255.255"], &["10.2.0.0", "11.1.0.0"]),
            ("10.1.2.128/25", &["10.1.2.128", "10.1.2.255"], &["10.1.2.127"]),
            ("0.0.0.0/0", &["1.2.3.4", "255.255.255.255"], &["::1"]),
            ("fd00::/8", &["fd12::1"], &["fe80::1", "10.0.0.1"]),
            ("::/0", &["::1", "fd00::"], &["1.2.3.4"]),
        ];
        for (text, inside, outside) in table {
            let network: Network = text.parse().expect("it is right");
            assert_eq!(network.to_string(), text);
            let holds = |peer: &&str| network.contains(peer.parse().expect("an address"));
            assert!(inside.iter().all(holds), "{text}");
            assert!(!outside.iter().any(holds), "{text}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "is no address"),
            ("lab.example.org", "is no address"),
            ("10.1.2.3/33", "from 0 to 32"),
            ("10.1.2.3/-1", "from 0 to 32"),
            ("10.1.2.3/", "from 0 to 32"),
            ("fd00::/129", "from 0 to 128"),
            ("10.1.2.3/8", "bits behind the first 8"),
            ("::ffff:10.0.0.0/104", "write it as one"),
        ] {
            let refused = text.parse::<Network>().expect_err("it is wrong").to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_network_is_this_machine_only_if_all_of_it_is() {
        for (text, is_loopback) in [
            ("127.0.0.1", true),
            ("127.0.0.0/8", true),
            ("126.0.0.0/7", false),
            ("0.0.0.0/0", false),
            ("10.0.0.1", false),
            ("::1", true),
            ("::/127", false),
            ("::/0", false),
        ] {
            let network: Network = text.parse().expect("it is right");
            assert_eq!(network.is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn where_nobody_is_named_everybody_may_come() {
        let peer = "10.1.2.3".parse().expect("an address");
        let network = |text: &str| text.parse::<Network>().expect("it is right");
        assert!(allowed(&[], peer));
        assert!(allowed(&[network("::1"), network("10.0.0.0/8")], peer));
        assert!(!allowed(&[network("::1")], peer));
    }
}
