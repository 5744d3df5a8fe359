//! [`Situation`]: by whom a statement about roles and rights is made, and what is there at that moment.

use node::identity::{Action, Caller, Credentials, Directory, Object, RightsView, RoleId};

use crate::SqlError;
use crate::engine::parse::rights::statement::{QualifiedName, RoleName};
use crate::table::Catalog;

/// By whom, and in which state, a statement is translated.
pub(super) struct Situation<'a> {
    /// Who asks.
    pub(super) caller: &'a Caller,
    /// The rights as the transaction sees them.
    pub(super) view: &'a RightsView,
    /// The objects as the transaction sees them.
    pub(super) catalog: &'a Catalog,
    /// The columns of views that the statement names columns of.
    pub(super) view_columns: &'a [(QualifiedName, Vec<String>)],
    /// The statement's password in the forms that logins need.
    pub(super) credentials: &'a Credentials,
}

impl Situation<'_> {
    pub(super) fn directory(&self) -> &Directory {
        self.view.directory()
    }

    /// The name of a role that is there, or `public`. Errors: 42704.
    pub(super) fn grantee(&self, role: &RoleName) -> Result<String, SqlError> {
        match role {
            RoleName::Public => Ok("public".into()),
            role => Ok(self.role(role)?.1),
        }
    }

    /// A role that is there. Errors: 42704.
    pub(super) fn role(&self, role: &RoleName) -> Result<(RoleId, String), SqlError> {
        let of_id = |id: RoleId| Ok((id, self.directory().name_of(id).to_owned()));
        match role {
            RoleName::Current => of_id(self.caller.current()),
            RoleName::Session => of_id(self.caller.session()),
            RoleName::Public => Err(no_role("public")),
            RoleName::Named(name) => Ok((self.named(name)?, name.clone())),
        }
    }

    /// Errors: 42704.
    pub(super) fn named(&self, name: &str) -> Result<RoleId, SqlError> {
        self.directory().named(name).map_err(|_| no_role(name))
    }

    /// Checks that GRANTED BY names the current role. Errors: 0A000.
    pub(super) fn check_grantor(&self, granted_by: Option<&RoleName>) -> Result<(), SqlError> {
        match granted_by.map(|role| self.role(role)).transpose()? {
            Some((id, _)) if id != self.caller.current() => {
                Err(SqlError::statement("0A000", "grantor must be current user"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a role of the caller: CURRENT_USER or SESSION_USER.
    pub(super) fn is_in_use(&self, id: RoleId) -> Option<&'static str> {
        match id {
            id if id == self.caller.current() => Some("current"),
            id if id == self.caller.session() => Some("session"),
            _ => None,
        }
    }
}

fn no_role(name: &str) -> SqlError {
    SqlError::statement("42704", format!("role \"{name}\" does not exist"))
}

/// Whether the role of a caller may do something on the node's objects, for checks that PostgreSQL makes of a role that
/// is not the caller's.
pub(super) fn may_as(situation: &Situation<'_>, role: RoleId, action: Action, object: Object<'_>) -> bool {
    situation.view.may(&situation.caller.on_behalf_of(role), action, object).is_ok()
}
