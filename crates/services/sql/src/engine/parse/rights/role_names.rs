//! Reads how statements name roles, and the ends that they share.

use super::statement::RoleName;
use super::tokens::Tokens;
use crate::SqlError;

/// A role, however it is named. Errors: 42601.
pub(super) fn role(tokens: &mut Tokens<'_>) -> Result<RoleName, SqlError> {
    let (name, is_quoted) = tokens.word()?;
    Ok(match name.as_str() {
        "current_user" | "current_role" if !is_quoted => RoleName::Current,
        "session_user" if !is_quoted => RoleName::Session,
        // As in PostgreSQL it is the same in quotes: no role has this name.
        "public" => RoleName::Public,
        _ => RoleName::Named(name),
    })
}

/// Reads CASCADE or RESTRICT, the default.
pub(super) fn cascade(tokens: &mut Tokens<'_>) -> bool {
    tokens.take_any(&["CASCADE", "RESTRICT"]) == Some("CASCADE")
}

/// Reads GRANTED BY. Errors: 42601.
pub(super) fn granted_by(tokens: &mut Tokens<'_>) -> Result<Option<RoleName>, SqlError> {
    if tokens.take("GRANTED BY") { role(tokens).map(Some) } else { Ok(None) }
}
