//! [`Directory`]: all roles, memberships, rights and owners at one moment; plain data in memory.
//!
//! ```text
//!   stored rows  --read-->  Directory  --changes (super::change)-->  Directory  --writes-->  stored rows
//!                               |
//!                               +--> super::view, by which requests are decided
//! ```
//!
//! Invariants: every change of an item is among the writes; an item is stored under a key that its value repeats.
//! Memberships have no cycle, and what names a role that is not there gives no right to anybody.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::error::IdentityError;
use super::object::{Object, ObjectKind, ObjectPattern};
use super::role::{Attributes, Credentials, LOCAL_NAME, Role, RoleId};

/// The first byte of the keys of what is about objects; the rest begins with the object.
pub(super) const PRIVILEGES: u8 = b'g';
pub(super) const OWNERS: u8 = b'o';
const ROLES: u8 = b'r';
const MEMBERS: u8 = b'm';
const DEFAULTS: u8 = b'd';
const NEXT: u8 = b'n';

/// A membership: the member, the role, and who made it. As in PostgreSQL 16, each grantor's is one of its own.
pub type MemberKey = (RoleId, RoleId, RoleId);

/// One role's membership in another, by one grantor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Whether the member may make others members: ADMIN OPTION.
    pub admin: bool,
    /// Whether the member has the role's rights without SET ROLE.
    pub inherit: bool,
    /// Whether the member may SET ROLE to it.
    pub set: bool,
    /// Who made it.
    pub granted_by: RoleId,
    /// Whether it was made by right of administration; otherwise it ends with the ADMIN OPTION of who made it.
    pub rooted: bool,
}

/// What a privilege is: an action on objects, or on a column of a table, for a role or for [`RoleId::PUBLIC`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PrivilegeKey {
    /// On what.
    pub object: ObjectPattern,
    /// What.
    pub action: Action,
    /// On which column; `None`: the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Who has it.
    pub grantee: RoleId,
    /// Who granted it.
    pub granted_by: RoleId,
}

/// How a privilege was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrivilegeOptions {
    /// Whether the grantee may grant it on: GRANT OPTION.
    pub grant_option: bool,
    /// Whether it was granted by the owner, or by right of administration; otherwise it ends with the grant option of
    /// who granted it.
    pub rooted: bool,
    /// When it ends, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
    /// Why somebody broke the glass for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is granted on objects that a role will create.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DefaultPrivilege {
    /// The role that creates.
    pub creator: RoleId,
    /// In which schema; `None`: in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// What kind of object.
    pub kind: ObjectKind,
    /// What.
    pub action: Action,
    /// To whom.
    pub grantee: RoleId,
}

/// A stored item.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Row {
    Role(RoleId, Box<Role>),
    Member(RoleId, RoleId, Membership),
    Privilege(PrivilegeKey, PrivilegeOptions),
    Owner(ObjectPattern, RoleId),
    Default(DefaultPrivilege, bool),
    Next(u32),
}

/// A row to store, or to remove if it has no value.
pub type RowWrite = (Vec<u8>, Option<Vec<u8>>);

/// All roles, memberships, rights and owners.
#[derive(Clone, Debug)]
pub struct Directory {
    roles: BTreeMap<RoleId, Role>,
    names: BTreeMap<String, RoleId>,
    /// By member, then role.
    members: BTreeMap<MemberKey, Membership>,
    privileges: BTreeMap<PrivilegeKey, PrivilegeOptions>,
    owners: BTreeMap<ObjectPattern, RoleId>,
    /// With whether they are granted with grant option.
    defaults: BTreeMap<DefaultPrivilege, bool>,
    next: u32,
    /// In the order of the changes; of two for a key the later one counts.
    writes: Vec<RowWrite>,
}

/// The schema that everyone may use at first, as in PostgreSQL.
const PUBLIC_SCHEMA: &str = "public";

impl Default for Directory {
    /// With the node's own role alone.
    fn default() -> Directory {
        let attributes = Attributes { administrator: true, ..Attributes::default() };
        let local = Role { name: LOCAL_NAME.into(), attributes, credentials: Credentials::default() };
        Directory {
            roles: BTreeMap::from([(RoleId::LOCAL, local)]),
            names: BTreeMap::from([(LOCAL_NAME.into(), RoleId::LOCAL)]),
            members: BTreeMap::new(),
            privileges: BTreeMap::new(),
            owners: BTreeMap::new(),
            defaults: BTreeMap::new(),
            next: RoleId::FIRST.0,
            writes: Vec::new(),
        }
    }
}

/// The begin of the keys of everything of a kind of item about one object.
pub(super) fn object_prefix(first: u8, object: &ObjectPattern) -> Vec<u8> {
    let (schema, name) = object.parts();
    let mut key = vec![first];
    // A table may be named `*`: it is not the pattern of all.
    let how = if object.is_exact() { "" } else { "*" };
    for part in [object.kind().name(), how, schema, name] {
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    key
}

fn numbers(mut key: Vec<u8>, numbers: &[RoleId]) -> Vec<u8> {
    numbers.iter().for_each(|number| key.extend_from_slice(&number.0.to_be_bytes()));
    key
}

fn texts(mut key: Vec<u8>, texts: &[&str]) -> Vec<u8> {
    for text in texts {
        key.extend_from_slice(text.as_bytes());
        key.push(0);
    }
    key
}

impl Row {
    fn key(&self) -> Vec<u8> {
        match self {
            Row::Role(id, _) => numbers(vec![ROLES], &[*id]),
            Row::Member(member, role, membership) => numbers(vec![MEMBERS], &[*member, *role, membership.granted_by]),
            Row::Privilege(key, _) => {
                let column = key.column.as_deref().unwrap_or_default();
                let of_object = object_prefix(PRIVILEGES, &key.object);
                numbers(texts(of_object, &[key.action.name(), column]), &[key.grantee, key.granted_by])
            }
            Row::Owner(object, _) => object_prefix(OWNERS, object),
            Row::Default(key, _) => {
                let schema = key.schema.as_deref().unwrap_or_default();
                let of_creator = numbers(vec![DEFAULTS], &[key.creator, key.grantee]);
                texts(of_creator, &[key.kind.name(), key.action.name(), schema])
            }
            Row::Next(_) => vec![NEXT],
        }
    }

    fn write(&self) -> RowWrite {
        // Nothing here has a form that JSON lacks; an empty value would be refused when read.
        (self.key(), Some(serde_json::to_vec(self).unwrap_or_default()))
    }
}

impl Directory {
    /// That of a new store, to be written with its first change: with what everyone has in PostgreSQL, logging in to SQL
    /// and using the names of schema `public`. The node grants both, so that they are revoked as any right is.
    pub fn first() -> Directory {
        let mut first = Directory::default();
        let grants = [
            (Action::SqlConnect, Some(ObjectPattern::node())),
            (Action::SchemaUse, Object::Schema(PUBLIC_SCHEMA).exactly().ok()),
        ];
        for (action, object) in grants {
            let Some(object) = object else { continue };
            let (grantee, granted_by) = (RoleId::PUBLIC, RoleId::LOCAL);
            let key = PrivilegeKey { object, action, column: None, grantee, granted_by };
            first.set_privilege(key, Some(PrivilegeOptions { rooted: true, ..PrivilegeOptions::default() }));
        }
        first
    }

    /// Adds a stored row. Errors: [`IdentityError::Unreadable`].
    pub fn read(&mut self, key: &[u8], value: &[u8]) -> Result<(), IdentityError> {
        let row: Row =
            serde_json::from_slice(value).map_err(|error| IdentityError::Unreadable(format!("a row: {error}")))?;
        if row.key() != key {
            return Err(IdentityError::Unreadable("a row lies under the key of another".into()));
        }
        match row {
            Row::Role(id, role) => {
                if self.names.insert(role.name.clone(), id).is_some_and(|other| other != id) {
                    return Err(IdentityError::Unreadable(format!("two roles are named {}", role.name)));
                }
                self.next = self.next.max(id.0.saturating_add(1));
                self.roles.insert(id, *role);
            }
            Row::Member(member, role, membership) => {
                self.members.insert((member, role, membership.granted_by), membership);
            }
            Row::Privilege(key, options) => _ = self.privileges.insert(key, options),
            Row::Owner(object, role) => _ = self.owners.insert(object, role),
            Row::Default(key, grant_option) => _ = self.defaults.insert(key, grant_option),
            Row::Next(next) => self.next = self.next.max(next),
        }
        Ok(())
    }

    /// Takes the rows to write for the changes since the last call.
    pub fn take_writes(&mut self) -> Vec<RowWrite> {
        std::mem::take(&mut self.writes)
    }

    /// All roles by number, the node's own among them.
    pub fn roles(&self) -> &BTreeMap<RoleId, Role> {
        &self.roles
    }

    /// All memberships, by member, role and grantor.
    pub fn members(&self) -> &BTreeMap<MemberKey, Membership> {
        &self.members
    }

    /// All privileges.
    pub fn privileges(&self) -> &BTreeMap<PrivilegeKey, PrivilegeOptions> {
        &self.privileges
    }

    /// The owners of objects.
    pub fn owners(&self) -> &BTreeMap<ObjectPattern, RoleId> {
        &self.owners
    }

    /// What is granted on objects to come, and whether with grant option.
    pub fn defaults(&self) -> &BTreeMap<DefaultPrivilege, bool> {
        &self.defaults
    }

    /// The role of a name. Errors: [`IdentityError::NoRole`].
    pub fn named(&self, name: &str) -> Result<RoleId, IdentityError> {
        self.names.get(name).copied().ok_or_else(|| IdentityError::NoRole(name.into()))
    }

    /// The role of a name, or everyone for `public`. Errors: [`IdentityError::NoRole`].
    pub fn grantee(&self, name: &str) -> Result<RoleId, IdentityError> {
        if name == "public" { Ok(RoleId::PUBLIC) } else { self.named(name) }
    }

    /// The name of a role, for messages.
    pub fn name_of(&self, id: RoleId) -> &str {
        match self.roles.get(&id) {
            Some(role) => &role.name,
            None if id == RoleId::PUBLIC => "public",
            None if id == RoleId::LDAP => "terrace_ldap",
            None if id == RoleId::OIDC => "terrace_oidc",
            None => "(dropped)",
        }
    }

    /// The role itself and all roles that it reaches over memberships that `follow` accepts.
    pub fn reach(&self, from: RoleId, follow: impl Fn(&MemberKey, &Membership) -> bool) -> BTreeSet<RoleId> {
        let (mut found, mut open) = (BTreeSet::from([from]), vec![from]);
        let (first, last) = (RoleId(0), RoleId(u32::MAX));
        while let Some(member) = open.pop() {
            let of_member = self.members.range((member, first, first)..=(member, last, last));
            for ((_, role, _), _) in of_member.filter(|(key, membership)| follow(key, membership)) {
                if found.insert(*role) {
                    open.push(*role);
                }
            }
        }
        found
    }

    /// Whether a role is there, not locked and not expired at a moment; otherwise it gives no right, and leads to none.
    pub fn in_force(&self, id: RoleId, now_us: i64) -> bool {
        self.roles.get(&id).is_some_and(|role| {
            role.attributes.locked.is_none() && role.attributes.until_us.is_none_or(|until| now_us < until)
        })
    }

    /// The rights for a time that are in force at a moment by broken glass: a line for each role, reason and end.
    pub fn broken_glass(&self, now_us: i64) -> Vec<String> {
        let mut taken: BTreeMap<(RoleId, i64, &str), Vec<String>> = BTreeMap::new();
        for (key, options) in &self.privileges {
            if let (Some(until_us), Some(reason)) = (options.until_us.filter(|until| *until > now_us), &options.reason)
            {
                let of = taken.entry((key.grantee, until_us, reason)).or_default();
                of.push(format!("{} on {}", key.action.name(), key.object));
            }
        }
        let line = |((role, until_us, reason), rights): ((RoleId, i64, &str), Vec<String>)| {
            let until =
                jiff::Timestamp::from_microsecond(until_us).map_or_else(|_| until_us.to_string(), |at| at.to_string());
            format!("{} has taken {} until {until}, because: {reason}", self.name_of(role), rights.join(", "))
        };
        taken.into_iter().map(line).collect()
    }

    /// Standing administrators apart from the node's own role: those who can always log in.
    pub fn standing_administrators(&self) -> usize {
        self.roles.iter().filter(|(id, role)| **id != RoleId::LOCAL && role.is_standing_administrator()).count()
    }

    /// Adds a role under a number that was never used. The caller has checked its name.
    pub(super) fn add_role(&mut self, role: Role) -> RoleId {
        let id = RoleId(self.next);
        self.next += 1;
        self.writes.push(Row::Next(self.next).write());
        self.set_role(id, Some(role));
        id
    }

    pub(super) fn set_role(&mut self, id: RoleId, role: Option<Role>) {
        if let Some(old) = self.roles.remove(&id) {
            self.names.remove(&old.name);
        }
        match role {
            Some(role) => {
                self.names.insert(role.name.clone(), id);
                self.writes.push(Row::Role(id, Box::new(role.clone())).write());
                self.roles.insert(id, role);
            }
            None => self.writes.push((numbers(vec![ROLES], &[id]), None)),
        }
    }

    pub(super) fn add_member(&mut self, member: RoleId, role: RoleId, membership: Membership) {
        self.writes.push(Row::Member(member, role, membership).write());
        self.members.insert((member, role, membership.granted_by), membership);
    }

    pub(super) fn remove_member(&mut self, key @ (member, role, granted_by): MemberKey) {
        self.writes.push((numbers(vec![MEMBERS], &[member, role, granted_by]), None));
        self.members.remove(&key);
    }

    pub(super) fn set_privilege(&mut self, key: PrivilegeKey, options: Option<PrivilegeOptions>) {
        let row = Row::Privilege(key.clone(), options.clone().unwrap_or_default());
        match options {
            Some(options) => {
                self.writes.push(row.write());
                self.privileges.insert(key, options);
            }
            None => {
                self.writes.push((row.key(), None));
                self.privileges.remove(&key);
            }
        }
    }

    pub(super) fn set_owner(&mut self, object: ObjectPattern, owner: Option<RoleId>) {
        match owner {
            Some(owner) => {
                self.writes.push(Row::Owner(object.clone(), owner).write());
                self.owners.insert(object, owner);
            }
            None => {
                self.writes.push((object_prefix(OWNERS, &object), None));
                self.owners.remove(&object);
            }
        }
    }

    pub(super) fn set_default(&mut self, key: DefaultPrivilege, grant_option: Option<bool>) {
        let row = Row::Default(key.clone(), grant_option.unwrap_or_default());
        match grant_option {
            Some(grant_option) => {
                self.writes.push(row.write());
                self.defaults.insert(key, grant_option);
            }
            None => {
                self.writes.push((row.key(), None));
                self.defaults.remove(&key);
            }
        }
    }

    /// A new object: its owner. What is left of an earlier object of that name gives no right on this one.
    pub(super) fn created_alone(&mut self, object: &ObjectPattern, owner: RoleId) {
        self.dropped(object);
        self.set_owner(object.clone(), Some(owner));
    }

    /// A new object: its owner, and what the owner's default privileges grant on it. What is left of an earlier object of
    /// that name gives no right on this one.
    pub(super) fn created(&mut self, object: &ObjectPattern, owner: RoleId) {
        self.created_alone(object, owner);
        let schema = object.parts().0;
        let of_owner: Vec<(DefaultPrivilege, bool)> = self
            .defaults
            .iter()
            .filter(|(key, _)| key.creator == owner && key.kind == object.kind())
            .filter(|(key, _)| key.schema.as_deref().is_none_or(|own| own == schema))
            .map(|(key, grant_option)| (key.clone(), *grant_option))
            .collect();
        for (key, grant_option) in of_owner {
            let (action, grantee) = (key.action, key.grantee);
            let privilege = PrivilegeKey { object: object.clone(), action, column: None, grantee, granted_by: owner };
            let options = PrivilegeOptions { grant_option, rooted: true, ..PrivilegeOptions::default() };
            self.set_privilege(privilege, Some(options));
        }
    }

    /// An object is gone: nobody has a right on the next one of that name.
    pub(super) fn dropped(&mut self, object: &ObjectPattern) {
        if self.owners.contains_key(object) {
            self.set_owner(object.clone(), None);
        }
        let of_object: Vec<PrivilegeKey> =
            self.privileges.keys().filter(|key| key.object == *object).cloned().collect();
        of_object.into_iter().for_each(|key| self.set_privilege(key, None));
    }

    /// An object has another name: owner and rights go with it.
    pub(super) fn renamed(&mut self, from: &ObjectPattern, to: &ObjectPattern) {
        let owner = self.owners.get(from).copied();
        let of_object: Vec<(PrivilegeKey, PrivilegeOptions)> = self
            .privileges
            .iter()
            .filter(|(key, _)| key.object == *from)
            .map(|(key, options)| (key.clone(), options.clone()))
            .collect();
        self.dropped(from);
        self.set_owner(to.clone(), owner);
        for (key, options) in of_object {
            self.set_privilege(PrivilegeKey { object: to.clone(), ..key }, Some(options));
        }
    }

    /// A column of a table is gone, or has another name: the rights on it too.
    pub(super) fn column(&mut self, table: &ObjectPattern, from: &str, to: Option<&str>) {
        let is = |key: &&PrivilegeKey| key.object == *table && key.column.as_deref() == Some(from);
        let of_column: Vec<PrivilegeKey> = self.privileges.keys().filter(is).cloned().collect();
        for key in of_column {
            let options = self.privileges.get(&key).cloned();
            self.set_privilege(key.clone(), None);
            if let Some(to) = to {
                self.set_privilege(PrivilegeKey { column: Some(to.to_owned()), ..key }, options);
            }
        }
    }
}
