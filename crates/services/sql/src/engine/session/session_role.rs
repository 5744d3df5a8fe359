//! The role of a session: SET ROLE is a setting, and the statements ask for the role that the settings name.

use super::Session;
use crate::SqlError;

/// Lets the session's statements ask for the role that its settings name: after SET ROLE, and after the end of a
/// transaction, which may have undone one.
///
/// Errors: 42501 if it may not be set any more; then the session is its own role again.
pub(crate) fn follow_role(session: &mut Session) -> Result<(), SqlError> {
    let Some(identity) = session.identity().cloned() else { return Ok(()) };
    let (role, own) = (session.settings.now().role(), identity.caller().session());
    let wanted = role.unwrap_or(own);
    if identity.caller().current() == wanted {
        return Ok(());
    }
    let view = identity.guard().view();
    let caller_with = |id| view.name(id).and_then(|name| view.set_role(identity.caller(), name).ok());
    match caller_with(wanted) {
        Some(caller) => session.set_caller(caller),
        // The login itself does not hold any more: each statement is refused.
        None if role.is_none() => {}
        None => {
            session.settings.now_mut().set_role(None);
            caller_with(own).into_iter().for_each(|caller| session.set_caller(caller));
            return Err(SqlError::statement("42501", "permission denied to set the role of before"));
        }
    }
    Ok(())
}
