//! [`Caller`]: who asks, as a login proved it; in every request and session, cheap to clone.

use std::net::IpAddr;
use std::sync::Arc;

use super::role::RoleId;
use super::token::TokenDigest;

/// How a caller proved who it is. What no longer holds (a token that was revoked) ends the caller's rights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A password, by SCRAM or as it is.
    Password,
    /// A password that a directory (LDAP) checked: the number of this login.
    Ldap(u64),
    /// A provider of logins (OIDC): who it is there.
    Oidc(Arc<str>),
    /// An API token.
    Token(TokenDigest),
    /// A name in a client certificate.
    Certificate(Arc<str>),
    /// A user of this machine, at the control socket.
    Uid(u32),
    /// Nothing: from this machine, where the settings trust it.
    Trust,
    /// It is the node itself, or who runs it: root, or the user of its process, at the control socket.
    Node,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    session: RoleId,
    current: RoleId,
    /// Whether `current` is the owner of a view on whose behalf it is read, and not set by SET ROLE.
    on_behalf: bool,
    proof: Proof,
    address: Option<IpAddr>,
}

impl Caller {
    pub(super) fn of(session: RoleId, proof: Proof, address: Option<IpAddr>) -> Caller {
        Caller { session, current: session, on_behalf: false, proof, address }
    }

    /// The node itself, and who runs it: an administrator. For embedders and for tests of services.
    pub fn node() -> Caller {
        Caller::of(RoleId::LOCAL, Proof::Node, None)
    }

    /// The role that logged in.
    pub fn session(&self) -> RoleId {
        self.session
    }

    /// The role whose rights count: another one after SET ROLE, or within a view of another owner.
    pub fn current(&self) -> RoleId {
        self.current
    }

    /// How it proved who it is.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// From where it came, if from a network.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn is_on_behalf(&self) -> bool {
        self.on_behalf
    }

    pub(super) fn with_role(&self, current: RoleId) -> Caller {
        Caller { current, on_behalf: false, ..self.clone() }
    }

    /// The same caller with the rights of `owner`, for what is read through a view of that owner. The owner's rights
    /// count, and the session's role must still be one that may use the node.
    pub fn on_behalf_of(&self, owner: RoleId) -> Caller {
        Caller { current: owner, on_behalf: true, ..self.clone() }
    }
}
