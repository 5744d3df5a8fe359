//! [`RightsView`]: who may do what, at one version; the one place where every port's requests are decided.
//!
//! ```text
//!   may(caller, action, object)
//!     the caller's role is there, not locked, not expired, its proof still holds       else denied
//!     its current role is an administrator, and the action is not withheld             granted
//!     it has the rights of the object's owner                                          granted
//!     a privilege on the object, or on a pattern that matches, of one of its roles     granted
//!                                                                                      else denied
//! ```
//!
//! It is made once for a version from a [`Directory`] and a moment, and never changes; a decision reads it without a
//! lock. Roles' memberships are resolved when it is made: a decision is a look-up of the object, and a bit for each
//! privilege on it.
//!
//! Invariants: what cannot be decided is denied: an unknown role, an action on an object of another kind, a grant that
//! names a role which is gone. A view holds until [`RightsView::next_change_us`]; then time itself changes rights.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;

use super::action::{Action, ActionSet};
use super::bits::Bits;
use super::caller::{Caller, Proof};
use super::cascade::{self, Fallen};
use super::directory::{Directory, MemberKey, PrivilegeKey};
use super::directory_ends::DirectoryEnds;
use super::object::{Object, ObjectKind, ObjectPattern};
use super::role::{Attributes, Role, RoleId};
use super::token::TokenDigest;

/// By which right something was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The role is an administrator.
    Administrator,
    /// It owns the object, or is a member of who does.
    Owner,
    /// A privilege of this role, or of everyone.
    Privilege(RoleId),
}

/// A decision to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// By which right.
    pub via: Via,
    /// Whether the use must be in the audit before anything is answered.
    pub audited: bool,
    /// Whether the caller gave itself this right, or the membership that it comes from, or has it only because it
    /// administers: an administrator may SET ROLE to any role, and make any role the owner of a view.
    pub self_granted: bool,
    /// Whether it is a right for a time, with a reason.
    pub break_glass: bool,
}

/// Why something is denied. It says nothing about the object, not even whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nobody granted it.
    #[error("permission denied: {} is not allowed", .0.name())]
    NoRight(Action),
    /// The role was dropped, locked, has expired, or may not log in any more.
    #[error("permission denied: the role may not be used any more")]
    Role,
    /// What proved the role was revoked: log in again.
    #[error("permission denied: the login was revoked")]
    Proof,
    /// The role set by SET ROLE is not one that may be set any more.
    #[error("permission denied: the role may not be set any more")]
    SetRole,
    /// The role must change its password first.
    #[error("permission denied: the password must be changed first")]
    MustChangePassword,
}

/// A role, resolved.
#[derive(Debug)]
struct RoleFacts {
    id: RoleId,
    name: Box<str>,
    attributes: Attributes,
    /// Whether its password is in a directory.
    is_of_ldap: bool,
    /// Who it is at the provider of logins.
    subject: Option<Box<str>>,
    /// Whether it may log in at the view's moment.
    may_log_in: bool,
    /// Whether it is neither locked nor expired.
    is_in_force: bool,
    /// The roles whose rights it has, itself among them.
    inherited: Bits,
    /// The roles that it may SET ROLE to.
    settable: Bits,
    /// All roles that it is a member of, however.
    member_of: Bits,
    /// Whether it is an administrator, or may SET ROLE to one.
    may_administer: bool,
    /// Whether it made itself, or a role that it is a member of, a member of another.
    has_joined_by_itself: bool,
}

/// Privileges of one grantee by one grantor.
#[derive(Debug)]
struct Held {
    /// Index of the role; [`PUBLIC`] for everyone.
    grantee: u32,
    granted_by: RoleId,
    break_glass: bool,
    actions: ActionSet,
}

const PUBLIC: u32 = u32::MAX;

/// Who asks for what.
#[derive(Clone, Copy)]
struct Asked<'v> {
    session: &'v RoleFacts,
    current: &'v RoleFacts,
    /// Whether the session has the current role only because it administers.
    is_by_power: bool,
    action: Action,
}

/// What there is on one object, or on the objects of one pattern.
#[derive(Debug, Default)]
struct ObjectRights {
    owner: Option<u32>,
    whole: Vec<Held>,
    columns: HashMap<Box<str>, Vec<Held>>,
}

/// What there is on the objects of one kind.
#[derive(Debug, Default)]
struct KindRights {
    /// By the two parts of a name.
    exact: HashMap<Box<str>, HashMap<Box<str>, ObjectRights>>,
    patterns: Vec<(ObjectPattern, ObjectRights)>,
}

/// Who may do what, at one version.
#[derive(Debug)]
pub struct RightsView {
    roles: Vec<RoleFacts>,
    index: HashMap<RoleId, u32>,
    kinds: [KindRights; ObjectKind::ALL.len()],
    tokens: HashMap<TokenDigest, RoleId>,
    certificates: HashMap<Arc<str>, RoleId>,
    uids: HashMap<u32, RoleId>,
    directory: Arc<Directory>,
    /// What a directory has ended.
    ended: Arc<DirectoryEnds>,
    next_change_us: Option<i64>,
}

impl RightsView {
    /// The rights of a directory at a moment, in microseconds since 1970.
    pub fn of(directory: Arc<Directory>, now_us: i64) -> RightsView {
        let ids = directory.roles().keys().zip(0..);
        let index: HashMap<RoleId, u32> = ids.map(|(id, at)| (*id, at)).collect();
        let mut joins: HashMap<RoleId, Vec<RoleId>> = HashMap::default();
        for ((member, ..), membership) in directory.members() {
            if membership.inherit || membership.set {
                joins.entry(membership.granted_by).or_default().push(*member);
            }
        }
        let fallen = cascade::fallen(&directory, |role| directory.in_force(role, now_us));
        let facts_of = |(id, role): (&RoleId, &Role)| {
            let by_it = joins.get(id).map(Vec::as_slice).unwrap_or_default();
            facts(&directory, &index, (*id, role), (by_it, &fallen), now_us)
        };
        let roles: Vec<RoleFacts> = directory.roles().iter().map(facts_of).collect();
        let mut view = RightsView {
            roles,
            index,
            kinds: Default::default(),
            tokens: HashMap::default(),
            certificates: HashMap::default(),
            uids: HashMap::default(),
            next_change_us: next_change(&directory, now_us),
            directory: Arc::clone(&directory),
            ended: Arc::default(),
        };
        directory.roles().iter().for_each(|(id, role)| view.add_credentials(*id, role, now_us));
        for (object, owner) in directory.owners() {
            let owner = view.index.get(owner).copied();
            view.rights_mut(object).owner = owner;
        }
        for (key, options) in directory.privileges() {
            if options.until_us.is_none_or(|until| now_us < until) && !fallen.privileges.contains(key) {
                view.add_privilege(key, options.reason.is_some());
            }
        }
        view
    }

    /// The same rights, without what a directory has ended.
    pub(super) fn with_ended(self, ended: Arc<DirectoryEnds>) -> RightsView {
        RightsView { ended, ..self }
    }

    fn add_credentials(&mut self, id: RoleId, role: &Role, now_us: i64) {
        let in_time = |until: Option<i64>| until.is_none_or(|until| now_us < until);
        let tokens = role.credentials.tokens.iter().filter(|token| in_time(token.until_us));
        self.tokens.extend(tokens.map(|token| (token.digest, id)));
        self.certificates.extend(role.credentials.certificates.iter().map(|name| (name.as_str().into(), id)));
        self.uids.extend(role.credentials.uids.iter().map(|uid| (*uid, id)));
    }

    fn rights_mut(&mut self, object: &ObjectPattern) -> &mut ObjectRights {
        let kind = &mut self.kinds[object.kind() as usize];
        let (schema, name) = object.parts();
        if object.is_exact() {
            return kind.exact.entry(schema.into()).or_default().entry(name.into()).or_default();
        }
        let at = kind.patterns.iter().position(|(pattern, _)| pattern == object).unwrap_or_else(|| {
            kind.patterns.push((object.clone(), ObjectRights::default()));
            kind.patterns.len() - 1
        });
        &mut kind.patterns[at].1
    }

    fn add_privilege(&mut self, key: &PrivilegeKey, break_glass: bool) {
        let grantee = match self.index.get(&key.grantee) {
            Some(at) => *at,
            None if key.grantee == RoleId::PUBLIC => PUBLIC,
            None => return,
        };
        let rights = self.rights_mut(&key.object);
        let held = match &key.column {
            Some(column) => rights.columns.entry(column.as_str().into()).or_default(),
            None => &mut rights.whole,
        };
        let is =
            |held: &Held| (held.grantee, held.granted_by, held.break_glass) == (grantee, key.granted_by, break_glass);
        match held.iter_mut().find(|held| is(held)) {
            Some(held) => held.actions.add(key.action),
            None => {
                let mut actions = ActionSet::default();
                actions.add(key.action);
                held.push(Held { grantee, granted_by: key.granted_by, break_glass, actions });
            }
        }
    }

    /// Decides whether a caller may do something to an object.
    ///
    /// Errors: [`Denied`].
    pub fn may(&self, caller: &Caller, action: Action, object: Object<'_>) -> Result<Grant, Denied> {
        let (session, current) = self.in_force(caller)?;
        if session.attributes.must_change_password {
            return Err(Denied::MustChangePassword);
        }
        let denied = Denied::NoRight(action);
        if action.kind() != object.kind() {
            return Err(denied);
        }
        let granted = |via| Grant { via, audited: action.is_audited(), self_granted: false, break_glass: false };
        if current.attributes.administrator && !action.is_withheld() {
            return Ok(granted(Via::Administrator));
        }
        let asked = Asked { session, current, is_by_power: self.has_by_power(session, current), action };
        let (schema, name) = object.parts();
        let kind = &self.kinds[object.kind() as usize];
        let mut best: Option<Grant> = None;
        if let Some(rights) = kind.exact.get(schema).and_then(|names| names.get(name)) {
            if rights.owner.is_some_and(|owner| current.inherited.has(owner)) && !action.is_withheld() {
                return Ok(granted(Via::Owner));
            }
            best = self.held(rights, asked, &object);
        }
        for (pattern, rights) in &kind.patterns {
            if best.is_some_and(|grant| !grant.self_granted) {
                break;
            }
            // The bits of roles first: comparing a pattern takes longer.
            let found = self.held(rights, asked, &object);
            if found.is_some_and(|grant| best.is_none() || !grant.self_granted) && pattern.matches(&object) {
                best = found;
            }
        }
        best.ok_or(denied)
    }

    /// Whether a caller may do something to any object at all: for requests whose objects are known only when they are
    /// found, and are then decided one by one.
    ///
    /// Errors: [`Denied`].
    pub fn may_some(&self, caller: &Caller, action: Action) -> Result<(), Denied> {
        let (session, current) = self.in_force(caller)?;
        if session.attributes.must_change_password {
            return Err(Denied::MustChangePassword);
        }
        if current.attributes.administrator && !action.is_withheld() {
            return Ok(());
        }
        let asked = Asked { session, current, is_by_power: self.has_by_power(session, current), action };
        let kind = &self.kinds[action.kind() as usize];
        let gives = |rights: &ObjectRights| {
            let is_owner = rights.owner.is_some_and(|owner| current.inherited.has(owner)) && !action.is_withheld();
            let mut all = rights.columns.values().chain([&rights.whole]);
            is_owner || all.any(|held| self.first(held, asked).is_some())
        };
        let mut all =
            kind.exact.values().flat_map(HashMap::values).chain(kind.patterns.iter().map(|(_, rights)| rights));
        if all.any(gives) { Ok(()) } else { Err(Denied::NoRight(action)) }
    }

    fn held(&self, rights: &ObjectRights, asked: Asked<'_>, object: &Object<'_>) -> Option<Grant> {
        let find = |held: &[Held]| self.first(held, asked);
        if let Some(grant) = find(&rights.whole) {
            return Some(grant);
        }
        match object {
            Object::Table { columns, .. } if !columns.is_empty() => {
                let mut all: Option<Grant> = None;
                for column in *columns {
                    let one = find(rights.columns.get(*column)?)?;
                    let flags = |grant: Grant| Grant {
                        self_granted: grant.self_granted || one.self_granted,
                        break_glass: grant.break_glass || one.break_glass,
                        ..grant
                    };
                    all = Some(all.map_or(one, flags));
                }
                all
            }
            Object::SomeColumn { .. } => rights.columns.values().find_map(|held| find(held)),
            _ => None,
        }
    }

    /// The first of the privileges that the caller has, rather one that it did not give itself.
    fn first(&self, held: &[Held], asked: Asked<'_>) -> Option<Grant> {
        let Asked { session, current, is_by_power, action } = asked;
        let mut flagged = None;
        for held in held.iter().filter(|held| held.actions.has(action)) {
            let grantee = match self.roles.get(held.grantee as usize) {
                None => RoleId::PUBLIC,
                Some(role) if current.inherited.has(held.grantee) && role.is_in_force => role.id,
                Some(_) => continue,
            };
            let by_way_of_role = grantee != session.id && grantee != RoleId::PUBLIC;
            let by_power = is_by_power && grantee != RoleId::PUBLIC && !session.inherited.has(held.grantee);
            let grant = Grant {
                via: Via::Privilege(grantee),
                audited: action.is_audited() || held.break_glass,
                self_granted: held.granted_by == session.id
                    || (by_way_of_role && session.has_joined_by_itself)
                    || by_power,
                break_glass: held.break_glass,
            };
            if !grant.self_granted {
                return Some(grant);
            }
            flagged = flagged.or(Some(grant));
        }
        flagged
    }

    /// The roles of a caller, if its login still holds. Ports call it for what needs no right but a valid session.
    ///
    /// Errors: [`Denied::Role`], [`Denied::Proof`], [`Denied::SetRole`].
    pub fn holds(&self, caller: &Caller) -> Result<(), Denied> {
        self.in_force(caller).map(|_| ())
    }

    fn in_force(&self, caller: &Caller) -> Result<(&RoleFacts, &RoleFacts), Denied> {
        let session = self.facts(caller.session()).ok_or(Denied::Role)?;
        let by = match caller.proof() {
            Proof::Password | Proof::Trust => Some(session.id),
            Proof::Ldap(login) => {
                let is_over = self.ended.has_ended(session.id, *login);
                Some(session.id).filter(|_| session.is_of_ldap && !is_over)
            }
            Proof::Oidc(subject) => Some(session.id).filter(|_| session.subject.as_deref() == Some(&**subject)),
            Proof::Node => Some(RoleId::LOCAL),
            Proof::Token(digest) => self.of_token(digest),
            Proof::Certificate(name) => self.of_certificate(name).map(|(_, id)| id),
            Proof::Uid(uid) => self.of_uid(*uid),
        };
        if by != Some(session.id) {
            return Err(Denied::Proof);
        }
        if !(session.may_log_in || session.id == RoleId::LOCAL) {
            return Err(Denied::Role);
        }
        if caller.current() == caller.session() {
            return Ok((session, session));
        }
        let at = *self.index.get(&caller.current()).ok_or(Denied::Role)?;
        let current = &self.roles[at as usize];
        if caller.is_on_behalf() {
            return Ok((session, current));
        }
        let may_set = session.settable.has(at) || session.attributes.administrator;
        if may_set && current.is_in_force { Ok((session, current)) } else { Err(Denied::SetRole) }
    }

    /// Whether the session has the current role, by SET ROLE or through a view, only because it administers.
    fn has_by_power(&self, session: &RoleFacts, current: &RoleFacts) -> bool {
        let is_given = || self.index.get(&current.id).is_some_and(|at| session.settable.has(*at));
        current.id != session.id && session.may_administer && !is_given()
    }

    /// Whether a caller has its current role only because it administers.
    pub(super) fn is_by_power(&self, caller: &Caller) -> bool {
        self.in_force(caller).is_ok_and(|(session, current)| self.has_by_power(session, current))
    }

    /// Whether a role has the rights of another by membership, or is it; unlike
    /// [`has_rights_of`](RightsView::has_rights_of) administration does not count.
    pub(super) fn inherits(&self, role: RoleId, of: RoleId) -> bool {
        self.facts(role).zip(self.index.get(&of)).is_some_and(|(facts, at)| facts.inherited.has(*at))
    }

    fn facts(&self, id: RoleId) -> Option<&RoleFacts> {
        self.roles.get(*self.index.get(&id)? as usize)
    }

    /// SET ROLE: the caller with the rights of another role, or with its own again.
    ///
    /// Errors: [`Denied::SetRole`], the same whether or not the role exists.
    pub fn set_role(&self, caller: &Caller, name: &str) -> Result<Caller, Denied> {
        let id = self.directory.named(name).map_err(|_| Denied::SetRole)?;
        let made = caller.with_role(id);
        self.in_force(&made).map(|_| made)
    }

    /// Whether a role has the rights of another without SET ROLE; as PostgreSQL's `pg_has_role(.., 'USAGE')`.
    pub fn has_rights_of(&self, role: RoleId, of: RoleId) -> bool {
        let at = self.index.get(&of);
        self.facts(role).zip(at).is_some_and(|(facts, at)| facts.attributes.administrator || facts.inherited.has(*at))
    }

    /// Whether a role is a member of another, however: as PostgreSQL's `pg_has_role(.., 'MEMBER')`.
    pub fn is_member(&self, role: RoleId, of: RoleId) -> bool {
        let at = self.index.get(&of);
        self.facts(role).zip(at).is_some_and(|(facts, at)| facts.attributes.administrator || facts.member_of.has(*at))
    }

    /// Whether a role is another one or was made a member of it, however; administration does not count.
    pub(super) fn belongs_to(&self, role: RoleId, of: RoleId) -> bool {
        let at = self.index.get(&of);
        role == of || self.facts(role).zip(at).is_some_and(|(facts, at)| facts.member_of.has(*at))
    }

    /// Whether a role is an administrator.
    pub fn is_administrator(&self, role: RoleId) -> bool {
        self.facts(role).is_some_and(|facts| facts.attributes.administrator)
    }

    /// The attributes of a role.
    pub fn attributes(&self, role: RoleId) -> Option<&Attributes> {
        self.facts(role).map(|facts| &facts.attributes)
    }

    /// The name of a role.
    pub fn name(&self, role: RoleId) -> Option<&str> {
        self.facts(role).map(|facts| &*facts.name)
    }

    /// Whether the directory that has a role's password lets it in no more.
    fn is_gone(&self, id: RoleId) -> bool {
        self.ended.is_gone(id) && self.facts(id).is_some_and(|facts| facts.is_of_ldap)
    }

    /// The role of a token, whatever it may do.
    pub(super) fn of_token(&self, digest: &TokenDigest) -> Option<RoleId> {
        self.tokens.get(digest).copied().filter(|id| !self.is_gone(*id))
    }

    /// The role of a name in a certificate.
    pub(super) fn of_certificate(&self, name: &str) -> Option<(Arc<str>, RoleId)> {
        let found = self.certificates.get_key_value(name).map(|(name, id)| (Arc::clone(name), *id));
        found.filter(|(_, id)| !self.is_gone(*id))
    }

    /// The role of a user of this machine.
    pub(super) fn of_uid(&self, uid: u32) -> Option<RoleId> {
        self.uids.get(&uid).copied().filter(|id| !self.is_gone(*id))
    }

    /// Everything that it was made of, for lists and catalogs.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// When time itself next changes a right, in microseconds since 1970: a role, a token or a privilege expires.
    pub fn next_change_us(&self) -> Option<i64> {
        self.next_change_us
    }
}

/// A role, resolved; `joined` are the members of the memberships that it granted. What fell leads nowhere.
fn facts(
    directory: &Directory,
    index: &HashMap<RoleId, u32>,
    (id, role): (RoleId, &Role),
    (joined, fallen): (&[RoleId], &Fallen),
    now_us: i64,
) -> RoleFacts {
    let bits = |ids: &BTreeSet<RoleId>| Bits::of(index.len(), ids.iter().filter_map(|id| index.get(id).copied()));
    let all = directory.reach(id, |_, _| true);
    let leads = |key: &MemberKey| directory.in_force(key.1, now_us) && !fallen.members.contains(key);
    let settable = directory.reach(id, |key, membership| membership.set && leads(key));
    let administers = |id: &RoleId| directory.roles().get(id).is_some_and(|role| role.attributes.administrator);
    let has_joined_by_itself = joined.iter().any(|member| all.contains(member));
    let own = &role.attributes;
    RoleFacts {
        id,
        name: role.name.as_str().into(),
        attributes: own.clone(),
        is_of_ldap: role.credentials.ldap.is_some(),
        subject: role.credentials.oidc.as_ref().and_then(|own| own.subject.as_deref()).map(Box::from),
        may_log_in: own.may_log_in(now_us),
        is_in_force: directory.in_force(id, now_us),
        inherited: bits(&directory.reach(id, |key, membership| membership.inherit && leads(key))),
        settable: bits(&settable),
        member_of: bits(&all),
        may_administer: settable.iter().any(administers),
        has_joined_by_itself,
    }
}

fn next_change(directory: &Directory, now_us: i64) -> Option<i64> {
    let of_role = |role: &Role| {
        let tokens = role.credentials.tokens.iter().filter_map(|token| token.until_us);
        tokens.chain(role.attributes.until_us).collect::<Vec<i64>>()
    };
    let roles = directory.roles().values().flat_map(of_role);
    let privileges = directory.privileges().values().filter_map(|options| options.until_us);
    roles.chain(privileges).filter(|until| *until > now_us).min()
}
