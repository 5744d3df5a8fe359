//! Reads GRANT and REVOKE of privileges, and ALTER DEFAULT PRIVILEGES.

use datafusion::sql::sqlparser::tokenizer::Token;
use node::identity::ObjectKind;

use super::role_names::{cascade, granted_by, role};
use super::statement::{Direction, Privilege, RightsStatement, RightsTarget, RoleName};
use super::tokens::Tokens;
use crate::SqlError;

/// Kinds of objects that PostgreSQL has rights on, and that do not exist here.
const ABSENT: [&str; 19] = [
    "ALL FUNCTIONS IN SCHEMA",
    "ALL PROCEDURES IN SCHEMA",
    "ALL ROUTINES IN SCHEMA",
    "FOREIGN DATA WRAPPER",
    "FOREIGN SERVER",
    "LARGE OBJECT",
    "SEQUENCES",
    "FUNCTIONS",
    "ROUTINES",
    "TYPES",
    "FUNCTION",
    "PROCEDURE",
    "ROUTINE",
    "LANGUAGE",
    "TABLESPACE",
    "DOMAIN",
    "TYPE",
    "PARAMETER",
    "LARGE OBJECTS",
];

/// Reads GRANT of privileges behind its first word; `None` if it is of roles, and then nothing is read.
///
/// Errors: 42601, 0A000.
pub(super) fn grant(tokens: &mut Tokens<'_>) -> Result<Option<RightsStatement>, SqlError> {
    let mut ahead = *tokens;
    let Some(privileges) = privileges_on(&mut ahead) else { return Ok(None) };
    *tokens = ahead;
    let on = target(tokens)?;
    tokens.expect("TO")?;
    let grantees = tokens.list(grantee)?;
    let option = tokens.take("WITH GRANT OPTION");
    let direction = Direction::Grant { option };
    Ok(Some(RightsStatement::Privileges { privileges, on, grantees, granted_by: granted_by(tokens)?, direction }))
}

/// The same for REVOKE.
pub(super) fn revoke(tokens: &mut Tokens<'_>) -> Result<Option<RightsStatement>, SqlError> {
    let mut ahead = *tokens;
    let option_only = ahead.take("GRANT OPTION FOR");
    let Some(privileges) = privileges_on(&mut ahead) else {
        return if option_only { Err(ahead.wrong()) } else { Ok(None) };
    };
    *tokens = ahead;
    let on = target(tokens)?;
    tokens.expect("FROM")?;
    let grantees = tokens.list(grantee)?;
    let granted_by = granted_by(tokens)?;
    let direction = Direction::Revoke { option_only, cascade: cascade(tokens) };
    Ok(Some(RightsStatement::Privileges { privileges, on, grantees, granted_by, direction }))
}

/// A list of privileges and the ON behind it.
fn privileges_on(tokens: &mut Tokens<'_>) -> Option<Vec<Privilege>> {
    let privileges = tokens.list(privilege).ok()?;
    tokens.take("ON").then_some(privileges)
}

fn privilege(tokens: &mut Tokens<'_>) -> Result<Privilege, SqlError> {
    let keyword = match tokens.take("ALL") {
        true => {
            tokens.take("PRIVILEGES");
            None
        }
        false => Some(tokens.name()?),
    };
    let mut columns = Vec::new();
    if tokens.take_sign(&Token::LParen) {
        columns = tokens.list(Tokens::name)?;
        tokens.expect_sign(&Token::RParen)?;
    }
    Ok(Privilege { keyword, columns })
}

fn grantee(tokens: &mut Tokens<'_>) -> Result<RoleName, SqlError> {
    tokens.take("GROUP");
    role(tokens)
}

fn target(tokens: &mut Tokens<'_>) -> Result<RightsTarget, SqlError> {
    if tokens.take("ALL TABLES IN SCHEMA") {
        return Ok(RightsTarget::TablesOfSchemas(tokens.list(Tokens::name)?));
    }
    if tokens.take("ALL SEQUENCES IN SCHEMA") {
        return Ok(RightsTarget::SequencesOfSchemas(tokens.list(Tokens::name)?));
    }
    refuse_absent(tokens)?;
    // A table may have such a name.
    let is_name = |word: &&str| ["TO", "FROM"].iter().any(|end| tokens.is_next(&format!("{word} {end}")));
    let kinds: Vec<&str> =
        ["SCHEMA", "DATABASE", "TABLE", "SEQUENCE"].into_iter().filter(|word| !is_name(word)).collect();
    match tokens.take_any(&kinds) {
        Some("SCHEMA") => Ok(RightsTarget::Schemas(tokens.list(Tokens::name)?)),
        Some("SEQUENCE") => Ok(RightsTarget::Sequences(tokens.list(Tokens::qualified)?)),
        Some("DATABASE") => Ok(RightsTarget::Databases(tokens.list(Tokens::name)?)),
        _ => Ok(RightsTarget::Tables(tokens.list(Tokens::qualified)?)),
    }
}

/// Errors: 0A000 for rights on what does not exist here; a table may have such a name.
fn refuse_absent(tokens: &Tokens<'_>) -> Result<(), SqlError> {
    let mut ahead = *tokens;
    match ahead.take_any(&ABSENT) {
        Some(kind) if !["TO", "FROM"].iter().any(|word| ahead.is_next(word)) && ahead.name().is_ok() => {
            Err(unsupported(kind))
        }
        _ => Ok(()),
    }
}

fn unsupported(kind: &str) -> SqlError {
    SqlError::unsupported(format!("a right on {}", kind.to_lowercase()))
}

/// ALTER DEFAULT PRIVILEGES, behind these words.
pub(super) fn defaults(tokens: &mut Tokens<'_>) -> Result<RightsStatement, SqlError> {
    let (mut creators, mut schemas) = (Vec::new(), Vec::new());
    loop {
        match tokens.take_any(&["FOR ROLE", "FOR USER", "IN SCHEMA"]) {
            Some("IN SCHEMA") => schemas = tokens.list(Tokens::name)?,
            Some(_) => creators = tokens.list(role)?,
            None => break,
        }
    }
    let grants = match tokens.take_any(&["GRANT", "REVOKE"]) {
        Some(word) => word == "GRANT",
        None => return Err(tokens.wrong()),
    };
    let option_only = !grants && tokens.take("GRANT OPTION FOR");
    let privileges = tokens.list(privilege)?;
    tokens.expect("ON")?;
    let kind = match tokens.take_any(&["TABLES", "SCHEMAS"]) {
        Some("TABLES") => ObjectKind::Table,
        Some(_) => ObjectKind::Schema,
        None => return Err(tokens.take_any(&ABSENT).map_or_else(|| tokens.wrong(), unsupported)),
    };
    tokens.expect(if grants { "TO" } else { "FROM" })?;
    let grantees = tokens.list(grantee)?;
    let direction = match grants {
        true => Direction::Grant { option: tokens.take("WITH GRANT OPTION") },
        false => Direction::Revoke { option_only, cascade: cascade(tokens) },
    };
    if privileges.iter().any(|privilege| !privilege.columns.is_empty()) {
        return Err(SqlError::statement("0LP01", "default privileges cannot be set for columns"));
    }
    Ok(RightsStatement::Defaults { creators, schemas, privileges, kind, grantees, direction })
}
