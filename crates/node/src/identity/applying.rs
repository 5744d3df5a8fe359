//! What a change of roles and rights does, who may make it, and what follows from it.
//!
//! [`apply`] is pure: it takes a [`Directory`], who asks with the rights of that moment, and a list of changes; after an
//! error the directory must be thrown away. Rules are PostgreSQL's where it has them:
//!
//! | change | who may |
//! |---|---|
//! | making a role | [`Action::UserAdminister`], which gives ADMIN OPTION on it; an administrator: administrators |
//! | a role, its credentials | [`Action::UserAdminister`] with ADMIN OPTION on it, or administrators |
//! | one's own password | oneself, by the password that one had |
//! | membership | who has ADMIN OPTION on the role, or administrators; ending it: who made it, or administrators |
//! | privilege | who has it with grant option, the object's owner, or [`Action::RightsGrant`] |
//! | breaking the glass | [`Action::BreakGlass`], for oneself, for a time |
//!
//! Invariants: memberships have no cycle; the last administrator who can log in stays one who can; what a role granted
//! under a grant option ends with that option ([`super::cascade`]); withheld actions are granted by administrators or
//! under a grant option only; who must change the password changes nothing else before. Who is no administrator changes no role that is
//! one, or can become one by SET ROLE, and makes no member of it, whatever options it has; and no role is made an administrator, or a
//! member that can become one, while others can become it by a membership that no administrator made ([`super::promoting`]).

use super::action::Action;
use super::caller::{Caller, Proof};
use super::cascade::{self, Fallen};
use super::change::{CredentialChange, IdentityChange, MembershipPart, Privileges};
use super::directory::{DefaultPrivilege, Directory, MemberKey, Membership, PrivilegeKey, PrivilegeOptions};
use super::directory_roles;
use super::error::IdentityError;
use super::object::{Object, ObjectKind, ObjectPattern};
use super::promoting;
use super::proof_lists::{added, without};
use super::proof_rules::{check_costs, check_token};
use super::role::{
    Attributes, Credentials, LOCAL_NAME, LdapUser, OidcUser, Role, RoleId, check_certificate_name, check_name,
};
use super::view::RightsView;

/// The longest time that a broken glass gives a right for, in microseconds: 12 hours.
pub const BREAK_GLASS_US_MAX: i64 = 12 * 3600 * 1_000_000;

/// Makes changes, one after the other, by right of `caller` in `view`, which was made of this directory at `now_us`.
///
/// Errors: [`IdentityError`]; the directory must not be used any more.
pub fn apply(
    directory: &mut Directory,
    view: &RightsView,
    caller: &Caller,
    changes: Vec<IdentityChange>,
    now_us: i64,
) -> Result<(), IdentityError> {
    let before = directory.standing_administrators();
    end_broken_glass(directory, now_us);
    for change in changes {
        Applying { directory, view, caller, now_us }.apply(change)?;
    }
    // What was granted by a right that the same list took away.
    cascade::end_dependents(directory, false)?;
    if before > 0 && directory.standing_administrators() == 0 {
        return Err(IdentityError::LastAdministrator);
    }
    Ok(())
}

/// Removes the rights of broken glass whose time is over: a clock that is set back must not bring them back.
fn end_broken_glass(directory: &mut Directory, now_us: i64) {
    let over = |options: &PrivilegeOptions| options.until_us.is_some_and(|until| until <= now_us);
    let all = directory.privileges().iter().filter(|(_, options)| over(options));
    let over: Vec<PrivilegeKey> = all.map(|(key, _)| key.clone()).collect();
    over.into_iter().for_each(|key| directory.set_privilege(key, None));
}

struct Applying<'a> {
    directory: &'a mut Directory,
    view: &'a RightsView,
    caller: &'a Caller,
    now_us: i64,
}

fn denied(what: &str) -> IdentityError {
    IdentityError::Denied(what.into())
}

impl Applying<'_> {
    fn apply(&mut self, change: IdentityChange) -> Result<(), IdentityError> {
        self.allowed(&change)?;
        match change {
            IdentityChange::Create(role) => self.create(role),
            IdentityChange::Alter { role, attributes } => self.alter(&role, attributes),
            IdentityChange::Set { role, changes } => {
                let mut attributes = self.changeable(&role)?.1.attributes;
                changes.into_iter().for_each(|change| attributes.set(change));
                self.alter(&role, attributes)
            }
            IdentityChange::Rename { role, to } => self.rename(&role, &to),
            IdentityChange::Credential { role, change } => self.credential(&role, change),
            IdentityChange::Drop { role, cascade } => self.drop_role(&role, cascade),
            IdentityChange::Join { role, member, admin, inherit, set } => {
                self.join(&role, &member, (admin, inherit, set))
            }
            IdentityChange::Leave { role, member, part, cascade } => self.leave(&role, &member, part, cascade),
            IdentityChange::DirectoryRoles { user, roles, create } => {
                directory_roles::apply(self.directory, self.caller, (user, create), &roles)
            }
            IdentityChange::ProviderUser { user, subject, roles, create } => {
                directory_roles::apply_provider(self.directory, self.caller, (user, create, subject), &roles)
            }
            IdentityChange::Grant { privileges, grant_option } => self.grant(privileges, grant_option),
            IdentityChange::Revoke { privileges, option_only, cascade } => {
                self.revoke(privileges, option_only, cascade)
            }
            IdentityChange::BreakGlass { action, object, until_us, reason } => {
                self.break_glass(action, object, until_us, reason)
            }
            IdentityChange::Default { creator, schema, kind, actions, grantee, grant_option } => {
                let creator = self.directory.named(&creator)?;
                let grantee = self.directory.grantee(&grantee)?;
                self.default_privileges((creator, grantee), schema, kind, &actions, grant_option)
            }
            IdentityChange::Own { object, owner } => self.own(object, &owner),
            IdentityChange::Reassign { from, to } => self.reassign(&from, &to),
        }
    }

    /// What holds for every change: the login does, and a password that must be changed is changed first.
    fn allowed(&self, change: &IdentityChange) -> Result<(), IdentityError> {
        if self.view.holds(self.caller).is_err() {
            return Err(denied("the login does not hold any more"));
        }
        let own = self.view.attributes(self.caller.session());
        let is_first = match change {
            IdentityChange::Credential { role, change } => self.is_own_password(role, change),
            _ => false,
        };
        if own.is_some_and(|own| own.must_change_password) && !is_first {
            return Err(denied("the password must be changed first"));
        }
        Ok(())
    }

    /// Whether it replaces the password of the caller, who logged in by it. Who logged in otherwise does not give itself a
    /// proof that lasts longer than its own: to give a first password, and to take one away, is administration.
    fn is_own_password(&self, name: &str, change: &CredentialChange) -> bool {
        let session = self.caller.session();
        let CredentialChange::Password { scram, hash, .. } = change else { return false };
        let had = self.directory.roles().get(&session).map(|role| &role.credentials);
        session != RoleId::LOCAL
            && self.directory.named(name).is_ok_and(|id| id == session)
            && *self.caller.proof() == Proof::Password
            && had.is_some_and(|had| had.scram.is_some() || had.hash.is_some())
            && (scram.is_some() || hash.is_some())
    }

    /// What is suspended at this moment, or has ended.
    fn fallen(&self) -> Fallen {
        cascade::fallen(self.directory, |role| self.directory.in_force(role, self.now_us))
    }

    fn has_admin_option(&self, role: RoleId) -> bool {
        let is_own = |id| self.view.inherits(self.caller.session(), id);
        cascade::has_admin_option(self.directory, &self.fallen(), is_own, role)
    }

    fn may(&self, action: Action) -> bool {
        self.view.may(self.caller, action, Object::Node).is_ok()
    }

    /// Whether the caller is an administrator now, by its current role.
    fn is_administrator(&self) -> bool {
        self.view.is_administrator(self.caller.current())
    }

    /// The role, if the caller may change it.
    fn changeable(&self, name: &str) -> Result<(RoleId, Role), IdentityError> {
        if !self.may(Action::UserAdminister) {
            return Err(denied("changing roles needs user-administer"));
        }
        let id = self.directory.named(name)?;
        if id == RoleId::LOCAL {
            return Err(IdentityError::Builtin(LOCAL_NAME.into()));
        }
        let role = self.directory.roles().get(&id).cloned().ok_or_else(|| IdentityError::NoRole(name.into()))?;
        if !self.is_administrator() {
            if !self.has_admin_option(id) {
                return Err(denied("changing this role needs its ADMIN OPTION, or to be an administrator"));
            }
            promoting::check_beneath(self.directory, id)?;
        }
        Ok((id, role))
    }

    fn create(&mut self, role: Role) -> Result<(), IdentityError> {
        check_name(&role.name)?;
        if !self.may(Action::UserAdminister) {
            return Err(denied("making roles needs user-administer"));
        }
        if role.attributes.administrator && !self.is_administrator() {
            return Err(denied("only administrators make administrators"));
        }
        if self.directory.named(&role.name).is_ok() {
            return Err(IdentityError::RoleExists(role.name));
        }
        let (scram, hash) = (role.credentials.scram.as_ref(), role.credentials.hash.as_ref());
        check_costs(self.is_administrator(), scram, hash)?;
        let mut made = Role { credentials: Credentials::default(), ..role.clone() };
        made.credentials.scram = role.credentials.scram;
        made.credentials.hash = role.credentials.hash;
        if role.credentials.ldap.is_some() {
            made.credentials =
                Credentials { ldap: Some(LdapUser::ByHand), scram: None, hash: None, ..Credentials::default() };
        }
        if role.credentials.oidc.is_some() {
            made.credentials = Credentials { oidc: Some(OidcUser::default()), ..Credentials::default() };
        }
        let id = self.directory.add_role(made);
        if !self.is_administrator() {
            // As in PostgreSQL it is not the maker's own grant: what it adds under it, it can end, and not this.
            let granted_by = RoleId::LOCAL;
            let option = Membership { admin: true, inherit: false, set: false, granted_by, rooted: true };
            self.directory.add_member(self.caller.session(), id, option);
        }
        let lists = [
            CredentialChange::Certificates(role.credentials.certificates),
            CredentialChange::Uids(role.credentials.uids),
        ];
        lists.into_iter().try_for_each(|change| self.set_credential(id, change))
    }

    fn alter(&mut self, name: &str, attributes: Attributes) -> Result<(), IdentityError> {
        let (id, role) = self.changeable(name)?;
        if attributes.administrator && !self.is_administrator() {
            return Err(denied("only administrators make administrators"));
        }
        if attributes.administrator && !role.attributes.administrator {
            promoting::check(self.directory, id)?;
        }
        self.directory.set_role(id, Some(Role { attributes, ..role }));
        Ok(())
    }

    fn rename(&mut self, name: &str, to: &str) -> Result<(), IdentityError> {
        check_name(to)?;
        let (id, role) = self.changeable(name)?;
        if self.directory.named(to).is_ok_and(|other| other != id) {
            return Err(IdentityError::RoleExists(to.into()));
        }
        self.directory.set_role(id, Some(Role { name: to.into(), ..role }));
        Ok(())
    }

    fn credential(&mut self, name: &str, change: CredentialChange) -> Result<(), IdentityError> {
        if self.is_own_password(name, &change) {
            return self.set_credential(self.caller.session(), change);
        }
        let (id, _) = self.changeable(name)?;
        self.set_credential(id, change)
    }

    fn set_credential(&mut self, id: RoleId, change: CredentialChange) -> Result<(), IdentityError> {
        let Some(mut role) = self.directory.roles().get(&id).cloned() else { return Ok(()) };
        let others = || self.directory.roles().iter().filter(move |(other, _)| **other != id).map(|(_, role)| role);
        match change {
            CredentialChange::Password { scram, hash, must_change } => {
                check_costs(self.is_administrator(), scram.as_ref(), hash.as_ref())?;
                (role.credentials.scram, role.credentials.hash) = (scram, hash);
                (role.credentials.ldap, role.credentials.oidc) = (None, None);
                role.attributes.must_change_password = must_change;
            }
            CredentialChange::Ldap | CredentialChange::Oidc => {
                let is_ldap = matches!(change, CredentialChange::Ldap);
                (role.credentials.scram, role.credentials.hash) = (None, None);
                role.credentials.ldap = is_ldap.then_some(LdapUser::ByHand);
                role.credentials.oidc = (!is_ldap).then(OidcUser::default);
                role.attributes.must_change_password = false;
            }
            CredentialChange::AddToken(token) => {
                check_token(&role.credentials, &token)?;
                role.credentials.tokens.push(token);
            }
            CredentialChange::DropToken(name) => {
                let before = role.credentials.tokens.len();
                role.credentials.tokens.retain(|token| token.name != name);
                if role.credentials.tokens.len() == before {
                    return Err(IdentityError::Invalid(format!("the role has no token named {name}")));
                }
            }
            CredentialChange::AddCertificate(name) => {
                let names = added(role.credentials.certificates, name, "certificate's name")?;
                return self.set_credential(id, CredentialChange::Certificates(names));
            }
            CredentialChange::DropCertificate(name) => {
                let names = without(role.credentials.certificates, &name, "certificate's name")?;
                return self.set_credential(id, CredentialChange::Certificates(names));
            }
            CredentialChange::AddUid(uid) => {
                let uids = added(role.credentials.uids, uid, "user of this machine,")?;
                return self.set_credential(id, CredentialChange::Uids(uids));
            }
            CredentialChange::DropUid(uid) => {
                let uids = without(role.credentials.uids, &uid, "user of this machine,")?;
                return self.set_credential(id, CredentialChange::Uids(uids));
            }
            CredentialChange::Certificates(names) => {
                names.iter().try_for_each(|name| check_certificate_name(name))?;
                let taken = names.iter().find(|name| others().any(|role| role.credentials.certificates.contains(name)));
                if let Some(name) = taken {
                    return Err(IdentityError::Invalid(format!("another role has the certificate's name {name}")));
                }
                role.credentials.certificates = names;
            }
            CredentialChange::Uids(uids) => {
                if uids.contains(&0) {
                    return Err(IdentityError::Invalid("root is the node's own role, and no other".into()));
                }
                let taken = uids.iter().find(|uid| others().any(|role| role.credentials.uids.contains(uid)));
                if let Some(uid) = taken {
                    return Err(IdentityError::Invalid(format!("another role has the user {uid} of this machine")));
                }
                role.credentials.uids = uids;
            }
        }
        self.directory.set_role(id, Some(role));
        Ok(())
    }

    fn drop_role(&mut self, name: &str, cascade: bool) -> Result<(), IdentityError> {
        let (id, role) = self.changeable(name)?;
        let owned: Vec<ObjectPattern> = self
            .directory
            .owners()
            .iter()
            .filter(|(_, owner)| **owner == id)
            .map(|(object, _)| object.clone())
            .collect();
        if let Some(first) = owned.first().cloned() {
            return Err(IdentityError::Owner { role: role.name, count: owned.len(), first: first.to_string() });
        }
        cascade::forget_role(self.directory, id, cascade)?;
        self.directory.set_role(id, None);
        Ok(())
    }

    fn join(
        &mut self,
        role_name: &str,
        member_name: &str,
        (admin, inherit, set): (bool, Option<bool>, bool),
    ) -> Result<(), IdentityError> {
        let (role, member) = (self.directory.named(role_name)?, self.directory.named(member_name)?);
        let rooted = self.may_make_members(role)?;
        if role == RoleId::LOCAL || member == RoleId::LOCAL {
            return Err(IdentityError::Builtin(LOCAL_NAME.into()));
        }
        if self.directory.reach(role, |_, _| true).contains(&member) {
            return Err(IdentityError::Cycle { role: role_name.into(), member: member_name.into() });
        }
        let by_default = self.directory.roles().get(&member).is_none_or(|role| role.attributes.inherit);
        let granted_by = self.caller.session();
        let inherit = inherit.unwrap_or(by_default);
        if set && promoting::becomes_administrator(self.directory, role) {
            promoting::check(self.directory, member)?;
        }
        // What was made by right of administration stays so, but what is added to it without that right does not become so.
        let is_within = |had: &Membership| had.admin >= admin && had.inherit >= inherit && had.set >= set;
        let had = self.directory.members().get(&(member, role, granted_by));
        let rooted = rooted || had.is_some_and(|had| had.rooted && is_within(had));
        self.directory.add_member(member, role, Membership { admin, inherit, set, granted_by, rooted });
        // It may have had more before: what depends on that stands in the way.
        cascade::end_dependents(self.directory, false)
    }

    /// Whether the caller makes members of a role by right of administration (and not under ADMIN OPTION).
    fn may_make_members(&self, role: RoleId) -> Result<bool, IdentityError> {
        if self.is_administrator() {
            return Ok(true);
        }
        if self.has_admin_option(role) {
            return promoting::check_beneath(self.directory, role).map(|()| false);
        }
        Err(denied("making members of this role needs its ADMIN OPTION"))
    }

    fn leave(
        &mut self,
        role_name: &str,
        member_name: &str,
        part: MembershipPart,
        cascade: bool,
    ) -> Result<(), IdentityError> {
        let (role, member) = (self.directory.named(role_name)?, self.directory.named(member_name)?);
        let administers = self.may_make_members(role)?;
        let of_member = self.directory.members().iter().filter(|(key, _)| (key.0, key.1) == (member, role));
        let all: Vec<(MemberKey, Membership)> = of_member.map(|(key, membership)| (*key, *membership)).collect();
        if all.is_empty() {
            return Err(IdentityError::Invalid(format!("role \"{member_name}\" is not a member of \"{role_name}\"")));
        }
        // Administrators end it whoever made it; others what they made themselves.
        let mut own = all.into_iter().filter(|(key, _)| administers || key.2 == self.caller.session()).peekable();
        if own.peek().is_none() {
            return Err(denied("others made this membership: they and administrators end it"));
        }
        for (key, membership) in own.collect::<Vec<_>>() {
            match part {
                MembershipPart::All => self.directory.remove_member(key),
                MembershipPart::Admin => {
                    self.directory.add_member(member, role, Membership { admin: false, ..membership })
                }
                MembershipPart::Inherit => {
                    self.directory.add_member(member, role, Membership { inherit: false, ..membership });
                }
                MembershipPart::Set => self.directory.add_member(member, role, Membership { set: false, ..membership }),
            }
        }
        cascade::end_dependents(self.directory, cascade)
    }

    /// By which right the caller grants this: `Some(true)` the owner's or administration, `Some(false)` a grant option.
    fn granting(&self, action: Action, object: &ObjectPattern, column: Option<&str>) -> Option<bool> {
        let administers = match action.is_withheld() {
            true => self.is_administrator(),
            false => self.may(Action::RightsGrant),
        };
        let owner = self.directory.owners().get(object);
        if administers || owner.is_some_and(|owner| self.view.has_rights_of(self.caller.current(), *owner)) {
            return Some(true);
        }
        // The grant would be the other role's: an administrator grants as itself, so that it is seen.
        if self.view.is_by_power(self.caller) {
            return None;
        }
        let is_own = |id| self.view.inherits(self.caller.current(), id);
        cascade::has_grant_option(self.directory, &self.fallen(), is_own, (action, object, column)).then_some(false)
    }

    fn each(&self, privileges: &Privileges) -> Result<Vec<(Action, Option<String>)>, IdentityError> {
        let kind = privileges.object.kind();
        let wrong = privileges.actions.iter().find(|action| action.kind() != kind || !action.is_grantable());
        if let Some(action) = wrong {
            let text = format!("{} cannot be granted on a {}", action.name(), kind.name());
            return Err(IdentityError::Ungrantable(text));
        }
        let of_columns = [Action::TableSelect, Action::TableInsert, Action::TableUpdate, Action::TableReferences];
        if !privileges.columns.is_empty() {
            if let Some(action) = privileges.actions.iter().find(|action| !of_columns.contains(action)) {
                return Err(IdentityError::Ungrantable(format!("{} cannot be granted on columns", action.name())));
            }
            if privileges.columns.iter().any(|column| {
                column.len() > super::object::PART_BYTES_MAX || column.is_empty() || column.contains('\0')
            }) {
                return Err(IdentityError::Ungrantable("a column has a name of 1 to 255 bytes".into()));
            }
        }
        let columns: Vec<Option<String>> = match privileges.columns.is_empty() {
            true => vec![None],
            false => privileges.columns.iter().cloned().map(Some).collect(),
        };
        let each = |action: &Action| columns.iter().map(|column| (*action, column.clone())).collect::<Vec<_>>();
        Ok(privileges.actions.iter().flat_map(each).collect())
    }

    fn grant(&mut self, privileges: Privileges, grant_option: bool) -> Result<(), IdentityError> {
        let grantee = self.directory.grantee(&privileges.grantee)?;
        if grantee == RoleId::PUBLIC && grant_option {
            return Err(IdentityError::Ungrantable("grant options cannot be granted to public".into()));
        }
        for (action, column) in self.each(&privileges)? {
            let object = &privileges.object;
            let Some(rooted) = self.granting(action, object, column.as_deref()) else {
                return Err(denied(&format!("{} on {object} is not yours to grant", action.name())));
            };
            // Under a grant option of a role that it is a member of, it is still the session's role that granted.
            let granted_by = if rooted { self.caller.session() } else { self.caller.current() };
            let key = PrivilegeKey { object: object.clone(), action, column, grantee, granted_by };
            // A broken glass is nothing that is added to; nor does an option that is added become rooted by what was there.
            let had = self.directory.privileges().get(&key).filter(|had| had.until_us.is_none());
            let had = had.cloned().unwrap_or_default();
            let is_within = had.grant_option >= grant_option;
            let options = PrivilegeOptions {
                grant_option: grant_option || had.grant_option,
                rooted: rooted || (had.rooted && is_within),
                until_us: None,
                reason: None,
            };
            self.directory.set_privilege(key, Some(options));
        }
        Ok(())
    }

    fn revoke(&mut self, privileges: Privileges, option_only: bool, cascade: bool) -> Result<(), IdentityError> {
        let grantee = self.directory.grantee(&privileges.grantee)?;
        for (action, column) in self.each(&privileges)? {
            let object = &privileges.object;
            let Some(rooted) = self.granting(action, object, column.as_deref()) else {
                return Err(denied(&format!("{} on {object} is not yours to revoke", action.name())));
            };
            // The owner and administrators revoke whoever granted it; others what they granted themselves.
            let own = [self.caller.session(), self.caller.current()];
            // As in PostgreSQL, revoking from the table revokes from its columns as well.
            let found: Vec<(PrivilegeKey, PrivilegeOptions)> = self
                .directory
                .privileges()
                .iter()
                .filter(|(key, _)| key.object == *object && key.action == action && key.grantee == grantee)
                .filter(|(key, _)| column.is_none() || key.column == column)
                .filter(|(key, _)| rooted || own.contains(&key.granted_by))
                .map(|(key, options)| (key.clone(), options.clone()))
                .collect();
            for (key, options) in found {
                let left = option_only.then_some(PrivilegeOptions { grant_option: false, ..options });
                self.directory.set_privilege(key, left);
            }
        }
        cascade::end_dependents(self.directory, cascade)
    }

    fn break_glass(
        &mut self,
        action: Action,
        object: ObjectPattern,
        until_us: i64,
        reason: String,
    ) -> Result<(), IdentityError> {
        if !self.may(Action::BreakGlass) {
            return Err(denied("breaking the glass needs break-glass"));
        }
        let reason = reason.trim().to_owned();
        let given =
            [Action::MessageMetadata, Action::MessageBody, Action::Unmasked, Action::TableSelect, Action::IndexRead];
        if !given.contains(&action) || action.kind() != object.kind() {
            return Err(IdentityError::Ungrantable(format!("breaking the glass does not give {}", action.name())));
        }
        if reason.is_empty() || reason.len() > 1000 {
            return Err(IdentityError::Invalid("breaking the glass needs a reason, of 1,000 bytes at most".into()));
        }
        if until_us <= self.now_us || until_us.saturating_sub(self.now_us) > BREAK_GLASS_US_MAX {
            return Err(IdentityError::Invalid("a broken glass gives a right for 12 hours at most".into()));
        }
        let session = self.caller.session();
        let key = PrivilegeKey { object, action, column: None, grantee: session, granted_by: session };
        if self.directory.privileges().get(&key).is_some_and(|had| had.until_us.is_none()) {
            return Ok(());
        }
        let options =
            PrivilegeOptions { grant_option: false, rooted: true, until_us: Some(until_us), reason: Some(reason) };
        self.directory.set_privilege(key, Some(options));
        Ok(())
    }

    fn default_privileges(
        &mut self,
        (creator, grantee): (RoleId, RoleId),
        schema: Option<String>,
        kind: ObjectKind,
        actions: &[Action],
        grant_option: Option<bool>,
    ) -> Result<(), IdentityError> {
        let own = self.view.has_rights_of(self.caller.current(), creator);
        if !own && !self.may(Action::RightsGrant) {
            return Err(denied("default privileges of another role need rights-grant"));
        }
        // The name must be one that a schema can have.
        schema.iter().try_for_each(|name| Object::Schema(name).exactly().map(|_| ()))?;
        for action in actions {
            if action.kind() != kind || !action.is_grantable() || action.is_withheld() {
                let text = format!("{} cannot be a default privilege of a {}", action.name(), kind.name());
                return Err(IdentityError::Ungrantable(text));
            }
            let key = DefaultPrivilege { creator, schema: schema.clone(), kind, action: *action, grantee };
            self.directory.set_default(key, grant_option);
        }
        Ok(())
    }

    fn own(&mut self, object: ObjectPattern, owner: &str) -> Result<(), IdentityError> {
        let owner = self.directory.named(owner)?;
        let own = |id: RoleId| self.view.has_rights_of(self.caller.current(), id);
        // As in PostgreSQL: who owns it, and could set the role of the new owner.
        let is_owner = self.directory.owners().get(&object).is_some_and(|old| own(*old)) && own(owner);
        if !(is_owner || self.is_administrator()) {
            return Err(denied("giving an object away needs to own it, and the rights of its new owner"));
        }
        if !object.is_exact() {
            return Err(IdentityError::Ungrantable("an owner owns one object, not a pattern".into()));
        }
        self.directory.set_owner(object, Some(owner));
        Ok(())
    }

    fn reassign(&mut self, from: &str, to: &str) -> Result<(), IdentityError> {
        let id = self.directory.named(from)?;
        let owned: Vec<ObjectPattern> = self
            .directory
            .owners()
            .iter()
            .filter(|(_, owner)| **owner == id)
            .map(|(object, _)| object.clone())
            .collect();
        owned.into_iter().try_for_each(|object| self.own(object, to))
    }
}
