//! Runs statements about roles and rights in a session's transaction.
//!
//! ```text
//!   GRANT ..     the transaction's own roles and rights --changes--> written in the transaction
//!   COMMIT       durable with everything else, then in force for all ports
//! ```
//!
//! Invariants: all changes of a statement are made or none. Two transactions that change roles or rights at the same
//! time conflict, and the later one fails with 40001, or runs again if it is a statement alone; so nothing is decided on
//! rights that another one has taken away meanwhile. What a transaction changes is in force when it has committed, also
//! for itself: its own later statements are decided by the rights before it.

use std::sync::Arc;

use node::identity::scram::Verifier;
use node::identity::{ChangedTooFast, Credentials, IdentityError, RightsView};

use super::situation::Situation;
use super::{changes, failures, objects};
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::rights::statement::{
    QualifiedName, RightsStatement, RightsTarget, RoleName, RoleOptions, Secret,
};
use crate::engine::plan::{column_labels, prepared};
use crate::engine::session::session_role;
use crate::engine::statements::create_drop;
use crate::engine::{Session, StatementResult};
use crate::identity::SessionIdentity;
use crate::recording;
use crate::table::Entry;

/// What a password begins with that is a verifier already.
const VERIFIER: &str = "SCRAM-SHA-256$";

/// Runs a statement that changes roles or rights; a transaction is open.
pub(crate) async fn change(session: &mut Session, statement: &RightsStatement) -> Result<StatementResult, SqlError> {
    let tag = statement.tag();
    let identity = identity_of(session)?;
    session.changing(tag)?;
    let credentials = credentials(statement).await?;
    let view_columns = view_columns(session, statement).await;
    if let RightsStatement::DropOwned { .. } = statement {
        drop_objects(session, statement, &identity)?;
    }
    let catalog = session.shared.catalog();
    let audit = session.engine.options.audit.clone();
    let transaction = session.changing(tag)?;
    let (guard, caller) = (Arc::clone(identity.guard()), identity.caller().clone());
    let now_us = guard.now_us();
    transaction.with(|transaction| {
        let stored = guard.stored();
        let directory = stored.directory_in(transaction).map_err(plain)?;
        let view = RightsView::of(Arc::new(directory), now_us);
        let situation = Situation {
            caller: &caller,
            view: &view,
            catalog: &catalog,
            view_columns: &view_columns,
            credentials: &credentials,
        };
        let changes = changes::of(statement, &situation)?;
        if changes.is_empty() {
            return Ok(());
        }
        let too_fast = |error: ChangedTooFast| SqlError::statement("53400", error.to_string());
        guard.change_turn(&caller, &changes).map_err(too_fast)?;
        let done = stored.change_in(transaction, &caller, &changes, now_us);
        done.map_err(|error| failures::of(error, statement, &changes, (&view, &caller)))?;
        // What was decided is written in the transaction, and nobody sees it before its commit, which follows the entry.
        audit.as_ref().map_or(Ok(()), |audit| recording::changes(audit, (&view, &caller), &changes))
    })?;
    transaction.refreshes = Some(guard);
    Ok(StatementResult::Done { tag: tag.into() })
}

/// Runs SET ROLE, SET SESSION AUTHORIZATION and their RESETs; `None` if it is another statement.
pub(crate) fn of_session(
    session: &mut Session,
    statement: &RightsStatement,
) -> Result<Option<StatementResult>, SqlError> {
    match statement {
        RightsStatement::SetRole { local, role, .. } => set_role(session, *local, role.as_deref())?,
        RightsStatement::SetSession { role, .. } => set_session(session, role.as_deref())?,
        _ => return Ok(None),
    }
    Ok(Some(StatementResult::Done { tag: statement.tag().into() }))
}

/// Who the session's statements ask for. Errors: 0A000 in a session of the node itself, which has no roles.
fn identity_of(session: &Session) -> Result<SessionIdentity, SqlError> {
    let none = || SqlError::unsupported("a statement about roles and rights in a session of the node itself");
    session.identity().cloned().ok_or_else(none)
}

fn set_role(session: &mut Session, local: bool, role: Option<&str>) -> Result<(), SqlError> {
    let identity = identity_of(session)?;
    let view = identity.guard().view();
    let name = match role {
        Some(name) => name.to_owned(),
        None => view.name(identity.caller().session()).unwrap_or_default().to_owned(),
    };
    if role.is_some() && view.directory().named(&name).is_err() {
        return Err(SqlError::statement("22023", format!("role \"{name}\" does not exist")));
    }
    let message = || format!("permission denied to set role \"{name}\"");
    view.set_role(identity.caller(), &name).map_err(|_| SqlError::statement("42501", message()))?;
    let id = role.and_then(|name| view.directory().named(name).ok());
    session.settings.change(local, |settings| {
        settings.set_role(id.zip(role));
        Ok(())
    })?;
    session_role::follow_role(session)
}

/// Who logged in is who is in the audit: it stays so.
fn set_session(session: &mut Session, role: Option<&str>) -> Result<(), SqlError> {
    let identity = identity_of(session)?;
    let view = identity.guard().view();
    match role {
        Some(name) if view.name(identity.caller().session()) != Some(name) => {
            if view.directory().named(name).is_err() {
                return Err(SqlError::statement("22023", format!("role \"{name}\" does not exist")));
            }
            if view.is_administrator(identity.caller().session()) {
                let hint = "Use SET ROLE: who logged in stays who is recorded.";
                return Err(SqlError::unsupported("SET SESSION AUTHORIZATION").with_hint(hint));
            }
            let message = format!("permission denied to set session authorization \"{name}\"");
            Err(SqlError::statement("42501", message))
        }
        // As in PostgreSQL it also resets the role.
        _ => set_role(session, false, None),
    }
}

fn plain(error: IdentityError) -> SqlError {
    match error {
        IdentityError::Store(error) => error.into(),
        other => SqlError::Engine(Box::new(crate::ErrorFields::new("XX001", other.to_string()))),
    }
}

fn options(statement: &RightsStatement) -> Option<(&str, &RoleOptions)> {
    match statement {
        RightsStatement::CreateRole { name, options } => Some((name, options)),
        RightsStatement::AlterRole { role: RoleName::Named(name), options } => Some((name, options)),
        RightsStatement::AlterRole { options, .. } => Some(("", options)),
        _ => None,
    }
}

/// The forms of a statement's password. It takes a processor for some 20 ms, and so another thread.
async fn credentials(statement: &RightsStatement) -> Result<Credentials, SqlError> {
    let Some((name, options)) = options(statement) else { return Ok(Credentials::default()) };
    let Some(Some(Secret(password))) = &options.password else { return Ok(Credentials::default()) };
    let wrong = |message: &str| Err(SqlError::value("22023", message));
    if password.starts_with(VERIFIER) {
        return match password.parse::<Verifier>() {
            Ok(verifier) => Ok(Credentials { scram: Some(verifier), ..Credentials::default() }),
            Err(_) => wrong("the password begins as a SCRAM-SHA-256 verifier, and is none"),
        };
    }
    let is_md5 = |text: &str| text.len() == 35 && text[3..].bytes().all(|byte| byte.is_ascii_hexdigit());
    if password.strip_prefix("md5").is_some() && password.is_ascii() && is_md5(password) {
        return Err(SqlError::unsupported("a password that is hashed with MD5")
            .with_hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
    }
    let (name, password) = (name.to_owned(), password.clone());
    let hashing = tokio::task::spawn_blocking(move || {
        let mut credentials = Credentials::default();
        credentials.set_password(&name, &password).map(|()| credentials)
    });
    let hashed = hashing.await.map_err(|_| SqlError::Terminated)?;
    hashed.map_err(|error| match error {
        IdentityError::Password(_) => SqlError::value("22023", error.to_string()),
        IdentityError::Memory => SqlError::Engine(Box::new(crate::ErrorFields::new("53200", error.to_string()))),
        other => SqlError::Engine(Box::new(crate::ErrorFields::new("58030", other.to_string()))),
    })
}

/// The columns of the views that GRANT or REVOKE names columns of. A view that cannot be planned has none to check.
async fn view_columns(session: &Session, statement: &RightsStatement) -> Vec<(QualifiedName, Vec<String>)> {
    let RightsStatement::Privileges { privileges, on: RightsTarget::Tables(names), .. } = statement else {
        return Vec::new();
    };
    if privileges.iter().all(|privilege| privilege.columns.is_empty()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in names {
        let Ok((schema, view)) = objects::resolved(name) else { continue };
        let Some(Entry::View(known)) = session.shared.catalog().get(schema, view).cloned() else { continue };
        let Ok(query) = ast::parse(&known.sql) else { continue };
        let Ok(plan) = prepared::plan_query(&session.context, &query).await else { continue };
        let columns = column_labels::labelled(&query, plan.schema().inner());
        found.push((name.clone(), columns.fields().iter().map(|field| field.name().clone()).collect()));
    }
    found
}

/// DROP OWNED: drops the objects that the roles own, each as its own DROP would.
fn drop_objects(
    session: &mut Session,
    statement: &RightsStatement,
    identity: &SessionIdentity,
) -> Result<(), SqlError> {
    let RightsStatement::DropOwned { of, cascade } = statement else { return Ok(()) };
    let catalog = session.shared.catalog();
    let (guard, caller) = (identity.guard(), identity.caller());
    let owned = session.changing("DROP OWNED")?.with(|transaction| {
        let directory = guard.stored().directory_in(transaction).map_err(plain)?;
        let view = RightsView::of(Arc::new(directory), guard.now_us());
        let credentials = Credentials::default();
        let situation =
            Situation { caller, view: &view, catalog: &catalog, view_columns: &[], credentials: &credentials };
        objects::owned(of, &situation)
    })?;
    for (kind, names) in owned {
        let cascade = *cascade && kind != datafusion::sql::sqlparser::ast::ObjectType::Schema;
        create_drop::drop_objects(session, &kind, true, &names, cascade)?;
    }
    Ok(())
}
