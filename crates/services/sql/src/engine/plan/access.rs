//! [`Access`]: what a statement may do. Every way from a name to rows, or to a changed definition, asks here.
//!
//! ```text
//!   Session::refresh      an Access for the statement: the rights of now, who asks, what its transaction created
//!     names of a query    session_catalog   SELECT, or a provider that asks for its columns
//!     changed tables      changed_table     INSERT, UPDATE, DELETE, TRUNCATE; their columns by the statements
//!     definitions         create_drop, alter_table    CREATE in the schema, or owner
//!   Access::recheck       the same questions again, when the rights have changed while rows are sent
//! ```
//!
//! Invariants: what is asked is kept until the statement ends, so that it can be asked again; a view is read with the
//! rights of its owner, and who has none is an administrator's. A session of the node itself has no `Access`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use node::identity::{Action, Caller, Denied, Grant, Object, ObjectChange, ObjectPattern, RightsView, RoleId};
use parking_lot::Mutex;

use crate::SqlError;
use crate::engine::limits::cancellation::RIGHT_REVOKED;
use crate::engine::parse::ast::DATABASE;
use crate::identity::SessionIdentity;
use crate::recording::Trail;

/// What objects the open transaction created or renamed, with their owners: nobody else sees them yet.
pub(crate) type OwnObjects = Arc<Mutex<BTreeMap<ObjectPattern, RoleId>>>;

/// The questions of a statement.
pub(crate) type Questions = Arc<Mutex<Vec<Question>>>;

/// An object of a question.
#[derive(Clone, Debug, PartialEq)]
enum Named {
    Node,
    Schema(String),
    /// A table or view; without columns as a whole.
    Table(String, String, Vec<String>),
    /// Any column of it.
    SomeColumn(String, String),
    /// The messages of a service: a virtual table has asked for them.
    Service(String),
}

impl Named {
    /// As the audit names it.
    fn shown(&self) -> String {
        match self {
            Named::Node => "node".to_owned(),
            Named::Schema(name) => format!("schema {name}"),
            Named::Table(schema, name, _) | Named::SomeColumn(schema, name) => format!("table {schema}.{name}"),
            Named::Service(name) => format!("service {name}"),
        }
    }
}

/// A question that was answered with yes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    caller: Caller,
    action: Action,
    object: Named,
}

/// The rights of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    identity: SessionIdentity,
    view: Arc<RightsView>,
    version: u64,
    own: OwnObjects,
    questions: Questions,
    /// The version of rights at which all questions were last answered with yes; 0 after a new question.
    checked: Arc<AtomicU64>,
    trail: Trail,
}

/// An error of the identity store, as SQL reports it.
pub(crate) fn failed(error: node::identity::IdentityError) -> SqlError {
    use node::identity::IdentityError;
    match error {
        IdentityError::Store(error) => SqlError::from(error),
        IdentityError::Busy => SqlError::Again("roles and rights were changed by others".into()),
        IdentityError::Denied(text) => SqlError::statement("42501", text),
        error => SqlError::statement("XX000", error.to_string()),
    }
}

/// The pattern of one object. Errors: 42602 for a name that no right can be on.
pub(crate) fn exactly(object: Object<'_>) -> Result<ObjectPattern, SqlError> {
    object.exactly().map_err(|error| SqlError::statement("42602", error.to_string()))
}

/// A table or view as a whole.
pub(crate) fn table_object<'a>(schema: &'a str, name: &'a str) -> Object<'a> {
    Object::Table { schema, name, columns: &[] }
}

/// Keeps a question that was answered with yes.
fn keep(questions: &Questions, checked: &AtomicU64, question: Question) {
    let mut questions = questions.lock();
    if !questions.contains(&question) {
        questions.push(question);
        checked.store(0, Ordering::Release);
    }
}

/// The error of a statement whose right was revoked while it ran.
fn revoked() -> SqlError {
    SqlError::statement("42501", RIGHT_REVOKED)
}

fn no_right(what: &str, name: &str) -> SqlError {
    SqlError::statement("42501", format!("permission denied for {what} {name}"))
}

impl Access {
    /// The rights of now.
    pub(crate) fn new(identity: SessionIdentity, own: OwnObjects, trail: Trail) -> Access {
        // The version first: a view that is newer than it is only read again.
        let version = identity.guard().version();
        let view = identity.guard().view();
        Access { identity, view, version, own, questions: Questions::default(), checked: Arc::default(), trail }
    }

    /// Who asks, and whose rights count.
    pub(crate) fn caller(&self) -> &Caller {
        self.identity.caller()
    }

    /// The session's identity.
    pub(crate) fn identity(&self) -> &SessionIdentity {
        &self.identity
    }

    /// For what is read through a view: its owner's rights. A view without an owner, made by an earlier version, is read with
    /// the rights of who reads it.
    pub(crate) fn on_behalf_of_owner(&self, schema: &str, name: &str) -> Result<Access, SqlError> {
        let pattern = exactly(table_object(schema, name))?;
        let own = self.own.lock().get(&pattern).copied();
        let owner = own.or_else(|| self.view.directory().owners().get(&pattern).copied());
        Ok(owner.map_or_else(|| self.clone(), |owner| self.on_behalf_of(owner)))
    }

    /// All roles and rights, as the statement sees them.
    pub(crate) fn rights(&self) -> &Arc<RightsView> {
        &self.view
    }

    /// The owner of a table or view; `None`: nobody.
    pub(crate) fn owner(&self, schema: &str, name: &str) -> Option<RoleId> {
        let pattern = exactly(table_object(schema, name)).ok()?;
        let own = self.own.lock().get(&pattern).copied();
        own.or_else(|| self.view.directory().owners().get(&pattern).copied())
    }

    /// Whether the caller has the rights of an object's owner; what nobody owns belongs to administrators.
    pub(crate) fn has_owners_rights(&self, schema: &str, name: &str) -> bool {
        match self.owner(schema, name) {
            Some(owner) => self.view.has_rights_of(self.caller().current(), owner),
            None => self.view.is_administrator(self.caller().current()),
        }
    }

    /// The same questions list, with another role's rights.
    pub(crate) fn on_behalf_of(&self, owner: RoleId) -> Access {
        let caller = self.caller().on_behalf_of(owner);
        Access { identity: self.identity.with_caller(caller), ..self.clone() }
    }

    /// Whether plans made with the other rights are right with these.
    pub(crate) fn is_same(&self, other: &Access) -> bool {
        let is_own_same =
            || Arc::ptr_eq(&self.own, &other.own) || (self.own.lock().is_empty() && other.own.lock().is_empty());
        self.version == other.version && self.caller() == other.caller() && is_own_same()
    }

    /// The same rights, with the questions of an earlier plan.
    pub(crate) fn with_questions_of(&self, earlier: &Access) -> Access {
        Access { questions: Arc::clone(&earlier.questions), checked: Arc::clone(&earlier.checked), ..self.clone() }
    }

    /// Whether the open transaction created an object.
    pub(crate) fn has_made(&self, schema: &str, name: &str) -> bool {
        exactly(table_object(schema, name)).is_ok_and(|pattern| self.own.lock().contains_key(&pattern))
    }

    /// The identity for the scans of virtual tables: what they ask is asked again with the statement's other questions.
    pub(crate) fn for_scans(&self) -> SessionIdentity {
        let (caller, questions, checked) = (self.caller().clone(), self.questions.clone(), self.checked.clone());
        self.identity.keeping(move |action, service| {
            let question = Question { caller: caller.clone(), action, object: Named::Service(service.to_owned()) };
            keep(&questions, &checked, question);
        })
    }

    /// The grant is missing where the caller created the object.
    fn decide(view: &RightsView, own: &OwnObjects, question: &Question) -> Result<Option<Grant>, Denied> {
        let Question { caller, action, object } = question;
        let has_made = |object: Object<'_>| {
            let owner = object.exactly().ok().and_then(|pattern| own.lock().get(&pattern).copied());
            view.holds(caller).is_ok() && owner.is_some_and(|owner| view.has_rights_of(caller.current(), owner))
        };
        let (answer, whole) = match object {
            Named::Node => return view.may(caller, *action, Object::Node).map(Some),
            Named::Service(name) => return view.may(caller, *action, Object::Service(name)).map(Some),
            Named::Schema(name) => (view.may(caller, *action, Object::Schema(name)), Object::Schema(name)),
            Named::SomeColumn(schema, name) => {
                (view.may(caller, *action, Object::SomeColumn { schema, name }), table_object(schema, name))
            }
            Named::Table(schema, name, columns) => {
                let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
                let object = Object::Table { schema, name, columns: &columns };
                (view.may(caller, *action, object), table_object(schema, name))
            }
        };
        match answer {
            Err(_) if has_made(whole) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Asks, and records where each use is recorded. Errors: what `denied` says; 58030 if it cannot be recorded.
    fn require(&self, action: Action, object: Named, denied: impl FnOnce() -> SqlError) -> Result<(), SqlError> {
        let question = Question { caller: self.caller().clone(), action, object };
        let by = (&*self.view, self.caller());
        match Access::decide(&self.view, &self.own, &question) {
            Ok(grant) => {
                if action.is_audited() {
                    self.trail.used(action, &question.object.shown(), by, grant.as_ref())?;
                }
                keep(&self.questions, &self.checked, question);
                Ok(())
            }
            Err(_) => {
                self.trail.refused(action, &question.object.shown(), by);
                Err(denied())
            }
        }
    }

    /// Records that rows leave by COPY. Errors: 58030.
    pub(crate) fn exports(&self, object: &str, query: &str) -> Result<(), SqlError> {
        self.trail.exported(object, query, (&self.view, self.caller()))
    }

    /// Asks everything again if the rights have changed. Errors: 42501.
    pub(crate) fn recheck(&self) -> Result<(), SqlError> {
        let version = self.identity.guard().version();
        if version == self.version || self.checked.load(Ordering::Acquire) == version {
            return Ok(());
        }
        let view = self.identity.guard().view();
        let asked = self.questions.lock().clone();
        if !asked.iter().all(|question| Access::decide(&view, &self.own, question).is_ok()) {
            return Err(revoked());
        }
        let questions = self.questions.lock();
        if questions.len() == asked.len() {
            self.checked.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until a right of the statement is revoked. Returns whether its role may not use the node any more at all.
    pub(crate) async fn until_revoked(&self) -> bool {
        let mut changed = self.identity.guard().changed();
        while self.recheck().is_ok() {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        self.is_over()
    }

    /// Whether its role may not use the node any more.
    pub(crate) fn is_over(&self) -> bool {
        self.identity.guard().view().holds(self.identity.caller()).is_err()
    }

    /// USAGE of a schema. Errors: 42501.
    pub(crate) fn schema(&self, name: &str) -> Result<(), SqlError> {
        self.require(Action::SchemaUse, Named::Schema(name.into()), || no_right("schema", name))
    }

    /// CREATE in a schema. Errors: 42501.
    pub(crate) fn make_in(&self, schema: &str) -> Result<(), SqlError> {
        self.schema(schema)?;
        self.require(Action::TableMake, Named::Schema(schema.into()), || no_right("schema", schema))
    }

    /// CREATE of schemas. Errors: 42501.
    pub(crate) fn make_schema(&self) -> Result<(), SqlError> {
        self.require(Action::SchemaMake, Named::Node, || no_right("database", DATABASE))
    }

    /// Changing or dropping a table or view; `what` is its kind. Errors: 42501.
    pub(crate) fn own(&self, what: &str, schema: &str, name: &str) -> Result<(), SqlError> {
        self.schema(schema)?;
        let object = Named::Table(schema.into(), name.into(), Vec::new());
        let denied = || SqlError::statement("42501", format!("must be owner of {what} {name}"));
        self.require(Action::TableOwn, object, denied)
    }

    /// Dropping a schema. Errors: 42501.
    pub(crate) fn own_schema(&self, name: &str) -> Result<(), SqlError> {
        let denied = || SqlError::statement("42501", format!("must be owner of schema {name}"));
        self.require(Action::SchemaOwn, Named::Schema(name.into()), denied)
    }

    /// What only the owner of the database does: it belongs to administrators. Errors: 42501.
    pub(crate) fn own_database(&self) -> Result<(), SqlError> {
        match self.view.holds(self.caller()).is_ok() && self.view.is_administrator(self.caller().current()) {
            true => Ok(()),
            false => Err(SqlError::statement("42501", format!("must be owner of database {DATABASE}"))),
        }
    }

    /// Files of this machine as a table: for administrators, as in PostgreSQL. Errors: 42501.
    pub(crate) fn server_files(&self) -> Result<(), SqlError> {
        match self.view.holds(self.caller()).is_ok() && self.view.is_administrator(self.caller().current()) {
            true => Ok(()),
            false => Err(SqlError::statement("42501", "permission denied to read files of the server")),
        }
    }

    /// Whether a column may be read, without asking for it.
    pub(crate) fn reads(&self, schema: &str, name: &str, column: &str) -> bool {
        let object = Named::Table(schema.into(), name.into(), vec![column.into()]);
        let question = Question { caller: self.caller().clone(), action: Action::TableSelect, object };
        Access::decide(&self.view, &self.own, &question).is_ok()
    }

    /// Whether a right is there, without asking for it: for lists.
    fn has(&self, action: Action, object: Named) -> bool {
        let question = Question { caller: self.caller().clone(), action, object };
        Access::decide(&self.view, &self.own, &question).is_ok()
    }

    /// Whether one of several rights on a table or sequence is there: for lists.
    pub(crate) fn has_one_of(&self, actions: &[Action], schema: &str, name: &str) -> bool {
        actions.iter().any(|action| self.has(*action, Named::Table(schema.into(), name.into(), Vec::new())))
    }

    /// The same for a right on any column of a table.
    pub(crate) fn has_some_column(&self, actions: &[Action], schema: &str, name: &str) -> bool {
        actions.iter().any(|action| self.has(*action, Named::SomeColumn(schema.into(), name.into())))
    }

    /// The same for a column, by itself or with its table.
    pub(crate) fn has_column(&self, actions: &[Action], (schema, name): (&str, &str), column: &str) -> bool {
        let object = || Named::Table(schema.into(), name.into(), vec![column.into()]);
        actions.iter().any(|action| self.has(*action, object()))
    }

    /// Whether the objects of a schema may be used: for lists.
    pub(crate) fn uses_schema(&self, name: &str) -> bool {
        self.has(Action::SchemaUse, Named::Schema(name.into()))
    }

    /// Whether objects may be made in a schema: for lists.
    pub(crate) fn makes_in_schema(&self, name: &str) -> bool {
        self.has(Action::TableMake, Named::Schema(name.into()))
    }

    /// The owner of a schema; `None`: nobody.
    pub(crate) fn schema_owner(&self, name: &str) -> Option<RoleId> {
        let pattern = exactly(Object::Schema(name)).ok()?;
        let own = self.own.lock().get(&pattern).copied();
        own.or_else(|| self.view.directory().owners().get(&pattern).copied())
    }

    /// One of several rights on a table or sequence. Errors: 42501.
    pub(crate) fn one_of(&self, actions: &[Action], what: &str, schema: &str, name: &str) -> Result<(), SqlError> {
        let question = |action: Action| {
            let object = Named::Table(schema.into(), name.into(), Vec::new());
            Question { caller: self.caller().clone(), action, object }
        };
        let is = |action: &&Action| Access::decide(&self.view, &self.own, &question(**action)).is_ok();
        let Some(action) = actions.iter().find(is).or(actions.first()) else { return Ok(()) };
        let object = Named::Table(schema.into(), name.into(), Vec::new());
        self.require(*action, object, || no_right(what, name))
    }

    /// Some of a table, at least of one column; what exactly is asked by column. Errors: 42501.
    pub(crate) fn some(&self, action: Action, what: &str, schema: &str, name: &str) -> Result<(), SqlError> {
        self.schema(schema)?;
        self.require(action, Named::SomeColumn(schema.into(), name.into()), || no_right(what, name))
    }

    /// Whether all of a table may be had, now and in later columns.
    pub(crate) fn has_whole(&self, action: Action, schema: &str, name: &str) -> bool {
        self.require(action, Named::Table(schema.into(), name.into(), Vec::new()), || no_right("table", name)).is_ok()
    }

    /// These columns of a table; no columns: at least one. Errors: 42501.
    pub(crate) fn columns(
        &self,
        action: Action,
        what: &str,
        (schema, name): (&str, &str),
        columns: Vec<String>,
    ) -> Result<(), SqlError> {
        let object = match columns.is_empty() {
            true => Named::SomeColumn(schema.into(), name.into()),
            false => Named::Table(schema.into(), name.into(), columns),
        };
        self.require(action, object, || no_right(what, name))
    }

    /// Whether a table shows in lists: some of it may be read.
    pub(crate) fn shows(&self, schema: &str, name: &str) -> bool {
        let question = |action, object| Question { caller: self.caller().clone(), action, object };
        let table = question(Action::TableSelect, Named::SomeColumn(schema.into(), name.into()));
        let schema = question(Action::SchemaUse, Named::Schema(schema.into()));
        [schema, table].iter().all(|question| Access::decide(&self.view, &self.own, question).is_ok())
    }

    /// What happened to an object, for the transaction in which it happens: its creator owns it there at once.
    pub(crate) fn note(&self, change: &ObjectChange) {
        let mut own = self.own.lock();
        match change {
            ObjectChange::Created { object, owner } | ObjectChange::CreatedWithoutDefaults { object, owner } => {
                own.insert(object.clone(), *owner);
            }
            ObjectChange::Dropped(object) => drop(own.remove(object)),
            ObjectChange::Renamed { from, to } => {
                let owners = self.view.directory().owners();
                if let Some(owner) = own.remove(from).or_else(|| owners.get(from).copied()) {
                    own.insert(to.clone(), owner);
                }
            }
            ObjectChange::Column { .. } => {}
        }
    }
}

/// An error of a statement as its role may see it: values of columns that it may not read are not told.
pub(crate) fn hidden(error: SqlError, access: Option<&Access>) -> SqlError {
    let Some(access) = access else { return error };
    error.hidden_from(|object, column| access.reads(&object.schema, &object.table, column))
}
