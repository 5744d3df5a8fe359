//! [`RightsStatement`]: a parsed statement about roles and rights, as data. What each does is `statements::rights`.

use std::fmt;

use node::identity::MembershipPart;
use node::identity::ObjectKind;

/// A password, which is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// A role as a statement names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoleName {
    /// By its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE.
    Current,
    /// SESSION_USER: who logged in.
    Session,
    /// PUBLIC: everyone.
    Public,
}

/// The options of CREATE ROLE and ALTER ROLE; `None`: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleOptions {
    pub(crate) superuser: Option<bool>,
    pub(crate) create_role: Option<bool>,
    pub(crate) inherit: Option<bool>,
    pub(crate) login: Option<bool>,
    /// -1: any number.
    pub(crate) connection_limit: Option<i64>,
    /// `Some(None)`: PASSWORD NULL.
    pub(crate) password: Option<Option<Secret>>,
    pub(crate) valid_until: Option<String>,
    /// IN ROLE.
    pub(crate) member_of: Vec<RoleName>,
    /// ROLE.
    pub(crate) members: Vec<RoleName>,
    /// ADMIN.
    pub(crate) admins: Vec<RoleName>,
}

/// The options of a membership; `None`: not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MembershipOptions {
    pub(crate) admin: Option<bool>,
    pub(crate) inherit: Option<bool>,
    pub(crate) set: Option<bool>,
}

/// A privilege in GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Privilege {
    /// Its keyword in lower case; `None`: ALL.
    pub(crate) keyword: Option<String>,
    /// Its columns; none: the whole object.
    pub(crate) columns: Vec<String>,
}

/// A name with or without its schema.
pub(crate) type QualifiedName = Vec<String>;

/// On what GRANT and REVOKE are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RightsTarget {
    /// Tables and views.
    Tables(Vec<QualifiedName>),
    /// All tables and views of these schemas.
    TablesOfSchemas(Vec<String>),
    /// Sequences.
    Sequences(Vec<QualifiedName>),
    /// All sequences of these schemas.
    SequencesOfSchemas(Vec<String>),
    /// Schemas.
    Schemas(Vec<String>),
    /// Databases.
    Databases(Vec<String>),
}

/// Whether rights are granted or revoked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// GRANT.
    Grant {
        /// WITH GRANT OPTION.
        option: bool,
    },
    /// REVOKE.
    Revoke {
        /// GRANT OPTION FOR.
        option_only: bool,
        /// CASCADE.
        cascade: bool,
    },
}

/// A statement about roles and rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RightsStatement {
    /// CREATE ROLE, USER, GROUP.
    CreateRole { name: String, options: RoleOptions },
    /// ALTER ROLE.
    AlterRole { role: RoleName, options: RoleOptions },
    /// ALTER ROLE .. RENAME TO.
    RenameRole { name: String, to: String },
    /// ALTER GROUP .. ADD USER, DROP USER.
    AlterGroup { group: RoleName, adds: bool, members: Vec<RoleName> },
    /// DROP ROLE.
    DropRoles { names: Vec<String>, if_exists: bool },
    /// GRANT role TO member.
    Join { roles: Vec<String>, members: Vec<RoleName>, options: MembershipOptions, granted_by: Option<RoleName> },
    /// REVOKE role FROM member.
    Leave {
        roles: Vec<String>,
        members: Vec<RoleName>,
        part: MembershipPart,
        granted_by: Option<RoleName>,
        cascade: bool,
    },
    /// GRANT and REVOKE of privileges.
    Privileges {
        privileges: Vec<Privilege>,
        on: RightsTarget,
        grantees: Vec<RoleName>,
        granted_by: Option<RoleName>,
        direction: Direction,
    },
    /// ALTER DEFAULT PRIVILEGES.
    Defaults {
        creators: Vec<RoleName>,
        schemas: Vec<String>,
        privileges: Vec<Privilege>,
        kind: ObjectKind,
        grantees: Vec<RoleName>,
        direction: Direction,
    },
    /// ALTER TABLE, VIEW, SCHEMA .. OWNER TO.
    Owner { kind: OwnedKind, name: QualifiedName, if_exists: bool, owner: RoleName },
    /// REASSIGN OWNED.
    Reassign { of: Vec<RoleName>, to: RoleName },
    /// DROP OWNED.
    DropOwned { of: Vec<RoleName>, cascade: bool },
    /// SET ROLE; `None`: NONE, or RESET ROLE.
    SetRole { local: bool, role: Option<String>, is_reset: bool },
    /// SET SESSION AUTHORIZATION; `None`: DEFAULT, or RESET.
    SetSession { role: Option<String>, is_reset: bool },
}

/// What has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnedKind {
    /// A table; as in PostgreSQL a view too.
    Table,
    /// A view.
    View,
    /// A sequence.
    Sequence,
    /// A schema.
    Schema,
}

impl OwnedKind {
    /// Its word in texts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OwnedKind::Table => "table",
            OwnedKind::View => "view",
            OwnedKind::Sequence => "sequence",
            OwnedKind::Schema => "schema",
        }
    }
}

impl RightsStatement {
    /// The tag of a statement that is complete, as PostgreSQL's.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            RightsStatement::CreateRole { .. } => "CREATE ROLE",
            RightsStatement::AlterRole { .. }
            | RightsStatement::RenameRole { .. }
            | RightsStatement::AlterGroup { .. } => "ALTER ROLE",
            RightsStatement::DropRoles { .. } => "DROP ROLE",
            RightsStatement::Join { .. } => "GRANT ROLE",
            RightsStatement::Leave { .. } => "REVOKE ROLE",
            RightsStatement::Privileges { direction: Direction::Grant { .. }, .. } => "GRANT",
            RightsStatement::Privileges { direction: Direction::Revoke { .. }, .. } => "REVOKE",
            RightsStatement::Defaults { .. } => "ALTER DEFAULT PRIVILEGES",
            RightsStatement::Owner { kind: OwnedKind::Table, .. } => "ALTER TABLE",
            RightsStatement::Owner { kind: OwnedKind::View, .. } => "ALTER VIEW",
            RightsStatement::Owner { kind: OwnedKind::Sequence, .. } => "ALTER SEQUENCE",
            RightsStatement::Owner { kind: OwnedKind::Schema, .. } => "ALTER SCHEMA",
            RightsStatement::Reassign { .. } => "REASSIGN OWNED",
            RightsStatement::DropOwned { .. } => "DROP OWNED",
            RightsStatement::SetRole { is_reset: true, .. } | RightsStatement::SetSession { is_reset: true, .. } => {
                "RESET"
            }
            RightsStatement::SetRole { .. } | RightsStatement::SetSession { .. } => "SET",
        }
    }
}
