//! The roles as the catalogs show them: those of the node's identity, at this moment.
//!
//! A session of the node itself has no identity: it shows one role, its user, which may do everything.

use std::sync::Arc;

use node::identity::{Attributes, ObjectPattern, RightsView, RoleId};

use super::session_objects::{OWNER, SessionFacts};
use crate::SessionIdentity;

/// The text that PostgreSQL shows in place of passwords.
pub(super) const HIDDEN: &str = "********";

/// A role.
#[derive(Debug, Clone)]
pub(super) struct KnownRole {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) attributes: Attributes,
    /// Whether it may make roles.
    pub(super) creates_roles: bool,
    /// What its password is checked against; only for administrators.
    pub(super) verifier: Option<String>,
}

impl SessionFacts {
    fn identity(&self) -> Option<SessionIdentity> {
        self.shared.identity()
    }

    /// The rights of now; `None` in a session of the node itself.
    pub(super) fn view(&self) -> Option<Arc<RightsView>> {
        self.identity().map(|identity| identity.guard().view())
    }

    /// The caller and the rights of now; `None` in a session of the node itself.
    pub(super) fn asking(&self) -> Option<(SessionIdentity, Arc<RightsView>)> {
        let identity = self.identity()?;
        let view = identity.guard().view();
        Some((identity, view))
    }

    /// The role whose rights count: CURRENT_USER.
    pub(super) fn user(&self) -> String {
        self.named_by(|identity| identity.caller().current())
    }

    /// The role that logged in: SESSION_USER.
    pub(super) fn session_user(&self) -> String {
        self.named_by(|identity| identity.caller().session())
    }

    fn named_by(&self, id: impl Fn(&SessionIdentity) -> RoleId) -> String {
        match self.asking() {
            Some((identity, view)) => view.directory().name_of(id(&identity)).to_owned(),
            None => self.user.clone(),
        }
    }

    /// All roles, by number.
    pub(super) fn roles(&self) -> Vec<KnownRole> {
        let Some((identity, view)) = self.asking() else {
            let attributes = Attributes { administrator: true, login: true, ..Attributes::default() };
            let (name, verifier) = (self.user.clone(), None);
            return vec![KnownRole { oid: OWNER, name, attributes, creates_roles: false, verifier }];
        };
        let sees = view.is_administrator(identity.caller().current());
        let directory = view.directory();
        let administers = |id: RoleId| {
            directory.privileges().keys().any(|key| {
                key.grantee == id && key.action == node::identity::Action::UserAdminister && key.column.is_none()
            })
        };
        let known = |(id, role): (&RoleId, &node::identity::Role)| KnownRole {
            oid: id.0,
            name: role.name.clone(),
            attributes: role.attributes.clone(),
            creates_roles: role.attributes.administrator || administers(*id),
            verifier: role.credentials.scram.as_ref().filter(|_| sees).map(ToString::to_string),
        };
        directory.roles().iter().map(known).collect()
    }

    /// The name of the role with this OID.
    pub(super) fn role(&self, oid: u32) -> Option<String> {
        match self.view() {
            Some(view) => view.name(RoleId(oid)).map(str::to_owned),
            None => (oid == OWNER).then(|| self.user.clone()),
        }
    }

    /// The OID of the role with this name.
    pub(super) fn role_number(&self, name: &str) -> Option<u32> {
        match self.view() {
            Some(view) => view.directory().named(name).ok().map(|id| id.0),
            None => (name == self.user).then_some(OWNER),
        }
    }

    /// The OID of the owner of an object: the node's own role if it has none.
    pub(super) fn owner(&self, object: Option<&ObjectPattern>) -> u32 {
        let view = self.view();
        let own = object.zip(view.as_ref()).and_then(|(object, view)| view.directory().owners().get(object));
        own.map_or(OWNER, |id| id.0)
    }
}
