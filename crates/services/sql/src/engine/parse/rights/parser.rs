//! Reads statements about roles and rights: PostgreSQL 16's grammar, which the parser for all other statements has in
//! part only.
//!
//! Forms that have no counterpart here are refused by name. Not here: what a statement does, and
//! whether what it names is there.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use node::identity::MembershipPart;

use super::privileges_parser;
use super::role_names::{cascade, granted_by, role};
use super::statement::{MembershipOptions, OwnedKind, RightsStatement, RoleName, RoleOptions, Secret};
use super::tokens::Tokens;
use crate::SqlError;

/// Reads a statement; `None` if it is not about roles and rights. `tokens` are without blanks, comments and semicolons.
///
/// Errors: 42601, 0A000, and those of PostgreSQL for options.
pub(crate) fn read(tokens: &[&TokenWithSpan]) -> Result<Option<RightsStatement>, SqlError> {
    let mut tokens = Tokens::of(tokens);
    let Some(statement) = statement(&mut tokens)? else { return Ok(None) };
    tokens.end()?;
    Ok(Some(statement))
}

fn statement(tokens: &mut Tokens<'_>) -> Result<Option<RightsStatement>, SqlError> {
    let of_mapping = ["CREATE USER MAPPING", "ALTER USER MAPPING", "DROP USER MAPPING"];
    if of_mapping.iter().any(|words| tokens.is_next(words)) {
        return Ok(None);
    }
    let begins = [
        "CREATE ROLE",
        "CREATE USER",
        "CREATE GROUP",
        "ALTER ROLE",
        "ALTER USER",
        "ALTER GROUP",
        "DROP ROLE",
        "DROP USER",
        "DROP GROUP",
        "DROP OWNED",
        "REASSIGN OWNED",
        "ALTER DEFAULT PRIVILEGES",
        "GRANT",
        "REVOKE",
    ];
    let read = match tokens.take_any(&begins) {
        Some("CREATE USER") => create_role(tokens, true),
        Some("CREATE ROLE" | "CREATE GROUP") => create_role(tokens, false),
        Some("ALTER ROLE" | "ALTER USER") => alter_role(tokens),
        Some("ALTER GROUP") => alter_group(tokens),
        Some("DROP ROLE" | "DROP USER" | "DROP GROUP") => drop_roles(tokens),
        Some("DROP OWNED") => drop_owned(tokens),
        Some("REASSIGN OWNED") => reassign(tokens),
        Some("ALTER DEFAULT PRIVILEGES") => privileges_parser::defaults(tokens),
        Some("GRANT") => grant(tokens),
        Some("REVOKE") => revoke(tokens),
        _ => return of_session_or_owner(tokens),
    };
    read.map(Some)
}

/// SET ROLE, SET SESSION AUTHORIZATION, and ALTER .. OWNER TO.
fn of_session_or_owner(tokens: &mut Tokens<'_>) -> Result<Option<RightsStatement>, SqlError> {
    let session = ["SET SESSION AUTHORIZATION", "SET SESSION SESSION AUTHORIZATION", "SET LOCAL SESSION AUTHORIZATION"];
    if tokens.take_any(&session).is_some() {
        let role = if tokens.take("DEFAULT") { None } else { Some(name_or_text(tokens)?) };
        return Ok(Some(RightsStatement::SetSession { role, is_reset: false }));
    }
    if tokens.take_any(&["RESET SESSION AUTHORIZATION", "RESET SESSION_AUTHORIZATION"]).is_some() {
        return Ok(Some(RightsStatement::SetSession { role: None, is_reset: true }));
    }
    if tokens.take("RESET ROLE") {
        return Ok(Some(RightsStatement::SetRole { local: false, role: None, is_reset: true }));
    }
    if let Some(words) = tokens.take_any(&["SET ROLE", "SET SESSION ROLE", "SET LOCAL ROLE"]) {
        let _ = tokens.take("TO") || tokens.take_sign(&Token::Eq);
        let role = if tokens.take_any(&["NONE", "DEFAULT"]).is_some() { None } else { Some(name_or_text(tokens)?) };
        let role = role.filter(|role| role != "none");
        return Ok(Some(RightsStatement::SetRole { local: words == "SET LOCAL ROLE", role, is_reset: false }));
    }
    Ok(owner(tokens))
}

fn name_or_text(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    match tokens.text() {
        Ok(text) => Ok(text),
        Err(_) => tokens.name(),
    }
}

/// ALTER .. OWNER TO; `None` for another change of the object.
fn owner(tokens: &mut Tokens<'_>) -> Option<RightsStatement> {
    let mut ahead = *tokens;
    let kinds = ["ALTER TABLE", "ALTER VIEW", "ALTER SEQUENCE", "ALTER SCHEMA"];
    let kind = match ahead.take_any(&kinds)? {
        "ALTER TABLE" => OwnedKind::Table,
        "ALTER VIEW" => OwnedKind::View,
        "ALTER SEQUENCE" => OwnedKind::Sequence,
        _ => OwnedKind::Schema,
    };
    let if_exists = ahead.take("IF EXISTS");
    ahead.take("ONLY");
    let name = ahead.qualified().ok()?;
    ahead.take_sign(&Token::Mul);
    if !ahead.take("OWNER TO") {
        return None;
    }
    let owner = role(&mut ahead).ok().filter(|_| ahead.is_at_end())?;
    *tokens = ahead;
    Some(RightsStatement::Owner { kind, name, if_exists, owner })
}

/// The name of a role that is to be made. Errors: 42939 for words that denote roles.
fn new_name(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    let (name, is_quoted) = tokens.word()?;
    if !is_quoted && matches!(name.as_str(), "current_user" | "current_role" | "session_user" | "user") {
        let message = format!("{} cannot be used as a role name here", name.to_uppercase());
        return Err(SqlError::statement("42939", message));
    }
    Ok(name)
}

fn create_role(tokens: &mut Tokens<'_>, is_user: bool) -> Result<RightsStatement, SqlError> {
    let name = new_name(tokens)?;
    let mut options = options(tokens, true)?;
    options.login = options.login.or(Some(is_user));
    Ok(RightsStatement::CreateRole { name, options })
}

fn alter_role(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    if tokens.take("ALL") {
        return Err(settings());
    }
    let named = role(tokens)?;
    if ["SET", "RESET", "IN DATABASE"].iter().any(|words| tokens.is_next(words)) {
        return Err(settings());
    }
    if tokens.take("RENAME TO") {
        let RoleName::Named(name) = named else { return Err(tokens.wrong()) };
        return Ok(RightsStatement::RenameRole { name, to: new_name(tokens)? });
    }
    Ok(RightsStatement::AlterRole { role: named, options: options(tokens, false)? })
}

fn settings() -> SqlError {
    SqlError::unsupported("a setting of a role").with_hint("Let the client set it: PGOPTIONS, or SET.")
}

fn alter_group(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    let group = role(tokens)?;
    if let (RoleName::Named(name), true) = (&group, tokens.take("RENAME TO")) {
        return Ok(RightsStatement::RenameRole { name: name.clone(), to: new_name(tokens)? });
    }
    let adds = tokens.take("ADD USER");
    if !adds {
        tokens.expect("DROP USER")?;
    }
    Ok(RightsStatement::AlterGroup { group, adds, members: tokens.list(role)? })
}

fn drop_roles(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    let if_exists = tokens.take("IF EXISTS");
    Ok(RightsStatement::DropRoles { if_exists, names: tokens.list(Tokens::name)? })
}

fn drop_owned(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    tokens.expect("BY")?;
    let of = tokens.list(role)?;
    Ok(RightsStatement::DropOwned { of, cascade: cascade(tokens) })
}

fn reassign(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    tokens.expect("BY")?;
    let of = tokens.list(role)?;
    tokens.expect("TO")?;
    Ok(RightsStatement::Reassign { of, to: role(tokens)? })
}

fn set_once<T>(option: &mut Option<T>, value: T) -> Result<(), SqlError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::statement("42601", "conflicting or redundant options")),
    }
}

/// The options of CREATE ROLE and ALTER ROLE.
fn options(tokens: &mut Tokens<'_>, creates: bool) -> Result<RoleOptions, SqlError> {
    let _ = tokens.take("WITH");
    let mut options = RoleOptions::default();
    while !tokens.is_at_end() {
        option(tokens, &mut options, creates)?;
    }
    Ok(options)
}

/// Options that have no counterpart, and what to do without.
const ABSENT: [(&str, &str); 4] = [
    ("CREATEDB", "A node has one database."),
    ("REPLICATION", "Replication has settings of its own, and no roles."),
    ("BYPASSRLS", "There are no policies on rows."),
    ("SYSID", "Numbers of roles are given by the node, and never again."),
];

fn option(tokens: &mut Tokens<'_>, options: &mut RoleOptions, creates: bool) -> Result<(), SqlError> {
    if let Some((what, hint)) = ABSENT.iter().find(|(word, _)| tokens.is_next(word)) {
        return Err(SqlError::unsupported(what).with_hint(*hint));
    }
    if tokens.take_any(&["NOCREATEDB", "NOREPLICATION", "NOBYPASSRLS"]).is_some() {
        return Ok(());
    }
    let flags = ["SUPERUSER", "CREATEROLE", "INHERIT", "LOGIN", "NOSUPERUSER", "NOCREATEROLE", "NOINHERIT", "NOLOGIN"];
    if let Some(word) = tokens.take_any(&flags) {
        let flag = match word.trim_start_matches("NO") {
            "SUPERUSER" => &mut options.superuser,
            "CREATEROLE" => &mut options.create_role,
            "INHERIT" => &mut options.inherit,
            _ => &mut options.login,
        };
        return set_once(flag, !word.starts_with("NO"));
    }
    let lists = ["IN ROLE", "IN GROUP", "ROLE", "USER", "ADMIN"];
    let words = ["CONNECTION LIMIT", "VALID UNTIL", "UNENCRYPTED", "ENCRYPTED PASSWORD", "PASSWORD"];
    match tokens.take_any(&words) {
        Some("CONNECTION LIMIT") => return connection_limit(tokens, options),
        Some("VALID UNTIL") => return set_once(&mut options.valid_until, tokens.text()?),
        Some("UNENCRYPTED") => {
            let hint = "Remove UNENCRYPTED to store the password in encrypted form instead.";
            return Err(SqlError::statement("0A000", "UNENCRYPTED PASSWORD is no longer supported").with_hint(hint));
        }
        Some(_) => {
            let password = if tokens.take("NULL") { None } else { Some(Secret(tokens.text()?)) };
            return set_once(&mut options.password, password);
        }
        None => {}
    }
    let list = if creates { tokens.take_any(&lists) } else { None };
    match list {
        Some("IN ROLE" | "IN GROUP") => options.member_of.append(&mut tokens.list(role)?),
        Some("ADMIN") => options.admins.append(&mut tokens.list(role)?),
        Some(_) => options.members.append(&mut tokens.list(role)?),
        None => {
            let Ok(word) = tokens.name() else { return Err(tokens.wrong()) };
            return Err(SqlError::statement("42601", format!("unrecognized role option \"{word}\"")));
        }
    }
    Ok(())
}

fn connection_limit(tokens: &mut Tokens<'_>, options: &mut RoleOptions) -> Result<(), SqlError> {
    let limit = tokens.number()?;
    if limit < -1 || limit > i64::from(i32::MAX) {
        return Err(SqlError::statement("22023", format!("invalid connection limit: {limit}")));
    }
    set_once(&mut options.connection_limit, limit)
}

/// GRANT: of privileges if there is an ON, otherwise of roles.
fn grant(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    let of_privileges = privileges_parser::grant(tokens)?;
    if let Some(statement) = of_privileges {
        return Ok(statement);
    }
    let roles = tokens.list(Tokens::name)?;
    tokens.expect("TO")?;
    let members = tokens.list(role)?;
    let mut options = MembershipOptions::default();
    if tokens.take("WITH") {
        tokens.list(|tokens| membership_option(tokens, &mut options))?;
    }
    Ok(RightsStatement::Join { roles, members, options, granted_by: granted_by(tokens)? })
}

fn membership_option(tokens: &mut Tokens<'_>, options: &mut MembershipOptions) -> Result<(), SqlError> {
    let option = match tokens.take_any(&["ADMIN", "INHERIT", "SET"]) {
        Some("ADMIN") => &mut options.admin,
        Some("INHERIT") => &mut options.inherit,
        Some(_) => &mut options.set,
        None => return Err(tokens.wrong()),
    };
    let value = match tokens.take_any(&["OPTION", "TRUE", "FALSE"]) {
        Some(word) => word != "FALSE",
        None => return Err(tokens.wrong()),
    };
    set_once(option, value)
}

fn revoke(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    let of_privileges = privileges_parser::revoke(tokens)?;
    if let Some(statement) = of_privileges {
        return Ok(statement);
    }
    let part = match tokens.take_any(&["ADMIN OPTION FOR", "INHERIT OPTION FOR", "SET OPTION FOR"]) {
        Some("ADMIN OPTION FOR") => MembershipPart::Admin,
        Some("INHERIT OPTION FOR") => MembershipPart::Inherit,
        Some(_) => MembershipPart::Set,
        None => MembershipPart::All,
    };
    let roles = tokens.list(Tokens::name)?;
    tokens.expect("FROM")?;
    let members = tokens.list(role)?;
    let granted_by = granted_by(tokens)?;
    Ok(RightsStatement::Leave { roles, members, part, granted_by, cascade: cascade(tokens) })
}
