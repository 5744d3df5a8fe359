//! From where a connection came, as far as it needs no proof.

use std::net::IpAddr;

/// From where a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// Over TCP, from an address.
    Tcp(IpAddr),
    /// Over a unix socket, from a user of this machine, if the system says which.
    Local(Option<u32>),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Tcp(address) => address.fmt(f),
            Origin::Local(Some(uid)) => write!(f, "user {uid} of this machine"),
            Origin::Local(None) => f.write_str("this machine"),
        }
    }
}
