//! [`Asker`]: who asks for indices and what for, and what the node's rights say to it.
//!
//! ```text
//!   request --route--> Asker: a caller, the rights of now, what is done --may(name)--> yes, and noted; no
//!                        |
//!                        +-- still()    are the rights that were used there, now?   at the end, for each page, for each batch
//!                        +-- record()   entries of the uses that have one, durable  before a change, before the response
//! ```
//!
//! An index of messages is seen as far as the rights on their services go: [`MessageScope`] is a filter under every search of it.
//!
//! Invariants: what is not granted is denied, with a text that is the same whether or not there is such an index. Each right that
//! was used is noted, so that what lasts (a scroll, a request by query, a long search) ends with it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use node::Audit;
use node::audit::AuditEntry;
use node::identity::{Action, Caller, Denied, Grant, Guard, Object, RightsView, RoleId};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::error::SearchError;
use crate::index::{SearchIndex, service_field, services_of};
use crate::recording::{self, ReadNotes, UsedRight, UsedRights};

/// Whether two callers are one: the same role, proven by the same.
pub(crate) fn is_same(a: &Caller, b: &Caller) -> bool {
    (a.session(), a.proof()) == (b.session(), b.proof())
}

/// Only a pattern of all names matches it: a right on it is one on the messages of all services.
const ALL_SERVICES: &str = "*";

/// The rights to what is in messages, as an index of messages has it: without a mask.
const OF_MESSAGES: [Action; 2] = [Action::MessageBody, Action::Unmasked];

/// The part of an index of messages that a caller may see: what came in by some services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageScope {
    field: String,
    services: BTreeSet<String>,
}

impl MessageScope {
    /// The query of what is in it.
    pub fn filter(&self) -> Value {
        match self.services.is_empty() {
            true => json!({"match_none": {}}),
            false => json!({"terms": {(&*self.field): self.services}}),
        }
    }

    /// Whether a document is in it.
    pub fn shows(&self, source: &Map<String, Value>) -> bool {
        source.get(&self.field).and_then(Value::as_str).is_some_and(|service| self.services.contains(service))
    }
}

/// Who asks.
#[derive(Clone)]
pub struct Asker {
    guard: Arc<Guard>,
    view: Arc<RightsView>,
    version: u64,
    caller: Caller,
    /// What Elasticsearch calls what is done.
    action: &'static str,
    /// The rights that it needs on each index.
    needs: &'static [Action],
    used: Arc<Mutex<UsedRights>>,
    notes: ReadNotes,
    /// Where uses are recorded; none for embedders.
    audit: Option<Arc<Audit>>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("caller", &self.caller).field("action", &self.action).finish_non_exhaustive()
    }
}

impl Asker {
    /// A caller by the rights of now. `action` is what Elasticsearch calls what it does, `needs` the rights that this needs on each
    /// index.
    pub fn new(guard: &Arc<Guard>, caller: Caller, action: &'static str, needs: &'static [Action]) -> Asker {
        // In this order: a change between them is noticed.
        let version = guard.version();
        let (used, notes, guard) = (Arc::default(), ReadNotes::default(), Arc::clone(guard));
        Asker { view: guard.view(), guard, version, caller, action, needs, used, notes, audit: None }
    }

    /// The same, whose uses are recorded.
    #[must_use]
    pub fn recorded_in(self, audit: Option<Arc<Audit>>) -> Asker {
        Asker { audit, ..self }
    }

    /// The same caller, for another part of the same request.
    #[must_use]
    pub fn asking(&self, action: &'static str, needs: &'static [Action]) -> Asker {
        Asker { action, needs, ..self.clone() }
    }

    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The name of its role.
    pub fn user(&self) -> &str {
        self.name_of(self.caller.session())
    }

    fn name_of(&self, role: RoleId) -> &str {
        self.view.name(role).unwrap_or("unknown")
    }

    /// All roles and rights, as they were when the request began.
    pub fn view(&self) -> &RightsView {
        &self.view
    }

    /// The rights of now.
    fn now(&self) -> Arc<RightsView> {
        if self.is_outdated() { self.guard.view() } else { Arc::clone(&self.view) }
    }

    fn refusal_text(&self) -> String {
        format!("action [{}] is unauthorized for user [{}]", self.action, self.user())
    }

    /// The refusal of what it does, for the last right that was not there.
    pub fn refusal(&self) -> SearchError {
        self.used.lock().refuse();
        SearchError::new(403, "security_exception", self.refusal_text())
    }

    /// The refusal of an index or alias that it may use, where what is missing is the right to messages: then it says how to get it.
    pub fn refusal_of(&self, name: &str) -> SearchError {
        let refusal = self.refusal();
        if !self.reads() || !self.may(name) || self.may_some_messages() {
            return refusal;
        }
        let reason = format!(
            "{}: messages are read and searched by the rights message-body and unmasked on their services, which somebody who may \
             grant them gives by: terrace role grant message-body unmasked --on \"service *\" --to {}",
            refusal.reason,
            self.user()
        );
        SearchError { reason, ..refusal }
    }

    fn refused_by(&self, denied: Denied) -> SearchError {
        match denied {
            Denied::NoRight(_) => self.refusal(),
            other => SearchError::new(403, "security_exception", format!("{}: {other}", self.refusal_text())),
        }
    }

    fn has(view: &RightsView, caller: &Caller, right: &UsedRight) -> Result<Grant, Denied> {
        match right {
            UsedRight::Node(action) => view.may(caller, *action, Object::Node),
            UsedRight::Index(action, name) => view.may(caller, *action, Object::Index(name)),
            UsedRight::Services(action) => view.may(caller, *action, Object::Service(ALL_SERVICES)),
            UsedRight::Service(action, name) => view.may(caller, *action, Object::Service(name)),
        }
    }

    /// Uses rights, all or none.
    fn use_all(&self, rights: impl Iterator<Item = UsedRight>) -> Result<(), Denied> {
        let (view, mut granted) = (self.now(), Vec::new());
        for right in rights {
            match Asker::has(&view, &self.caller, &right) {
                Ok(grant) => granted.push((right, grant)),
                Err(denied) => {
                    self.used.lock().denied(right);
                    return Err(denied);
                }
            }
        }
        self.used.lock().granted(granted);
        Ok(())
    }

    /// Uses what another one used, as a page of a scroll does.
    pub fn use_as(&self, other: &Asker) {
        if !Arc::ptr_eq(&self.used, &other.used) {
            let mut used = self.used.lock();
            used.use_as(&other.used.lock());
        }
    }

    /// An entry of what it does.
    pub(crate) fn entry(&self, action: &str, object: &str) -> AuditEntry {
        AuditEntry::new(action, object).by_role("search", &self.caller, &self.view)
    }

    fn entry_of_use(&self, action: &str, object: &str) -> AuditEntry {
        self.entry(action, object).with("request", self.action)
    }

    /// Records the uses of rights that have an entry: called after all was decided and before anything is changed or shown.
    /// Durable when it returns.
    ///
    /// Errors: the audit takes no entry.
    pub fn record(&self) -> Result<(), SearchError> {
        let Some(audit) = &self.audit else { return Ok(()) };
        recording::write_uses(&self.used, audit, &|action, object| self.entry_of_use(action, object))
    }

    /// Records that what was allowed and recorded failed: on one index, or all of it.
    pub fn failed(&self, of: Option<&str>, error: &SearchError) {
        if let Some(audit) = &self.audit {
            let entry = |action: &str, object: &str| self.entry_of_use(action, object);
            recording::write_failures(&self.used, audit, (of, error), &entry);
        }
    }

    /// Records what was refused.
    pub fn record_refusals(&self) {
        if let Some(audit) = &self.audit {
            let entry = |action: &str, object: &str| self.entry_of_use(action, object);
            recording::write_refusals(&self.used, audit, &entry);
        }
    }

    /// Whether what is in messages was used.
    pub fn used_messages(&self) -> bool {
        self.used.lock().has_messages()
    }

    /// An entry about messages, with how the rights to them were given.
    pub(crate) fn message_entry(&self, action: &str, object: &str) -> AuditEntry {
        let marks = self.used.lock().message_marks();
        self.entry(action, object).marked(marks)
    }

    /// Where it is noted what is read of messages.
    pub(crate) fn notes(&self) -> &ReadNotes {
        &self.notes
    }

    /// Whether its login holds. Errors: the refusal.
    pub fn holds(&self) -> Result<(), SearchError> {
        self.view.holds(&self.caller).map_err(|denied| self.refused_by(denied))
    }

    /// A right on the node. Errors: the refusal.
    pub fn node(&self, action: Action) -> Result<(), SearchError> {
        self.use_all([UsedRight::Node(action)].into_iter()).map_err(|denied| self.refused_by(denied))
    }

    /// Whether it has the rights of what it does on any index at all; that is no use of them. Errors: the refusal.
    pub fn some(&self) -> Result<(), SearchError> {
        let view = self.now();
        for action in self.needs {
            if let Err(denied) = view.may_some(&self.caller, *action) {
                self.used.lock().denied(UsedRight::Index(*action, "*".to_owned()));
                return Err(self.refused_by(denied));
            }
        }
        Ok(())
    }

    /// Whether it has a right on the node; that is no use of it.
    pub fn may_on_node(&self, action: Action) -> bool {
        self.now().may(&self.caller, action, Object::Node).is_ok()
    }

    /// Whether it may do what it does to an index or alias of this name.
    pub fn may(&self, name: &str) -> bool {
        self.use_all(self.needs.iter().map(|action| UsedRight::Index(*action, name.to_owned()))).is_ok()
    }

    /// The same. Errors: the refusal.
    pub fn check(&self, name: &str) -> Result<(), SearchError> {
        let rights = self.needs.iter().map(|action| UsedRight::Index(*action, name.to_owned()));
        self.use_all(rights).map_err(|denied| self.refused_by(denied))
    }

    /// Whether it reads documents.
    pub fn reads(&self) -> bool {
        self.needs.contains(&Action::IndexRead)
    }

    /// Whether it may do what it does to an index of messages, besides the rights on the index: documents there are what is in
    /// messages, without a mask. Which of them it may see says [`scope_of`](Asker::scope_of); this is no use of a right.
    pub fn may_some_messages(&self) -> bool {
        if !self.reads() {
            return true;
        }
        let view = self.now();
        let missing = OF_MESSAGES.into_iter().find(|action| view.may_some(&self.caller, *action).is_err());
        if let Some(action) = missing {
            self.used.lock().denied(UsedRight::Services(action));
        }
        missing.is_none()
    }

    /// The part of an index that it may see, of an index of messages; `None`: all of it. The rights to it are used.
    ///
    /// Errors: those of the medium; the refusal where messages do not say which service they came in by.
    pub fn scope_of(&self, index: &SearchIndex) -> Result<Option<Arc<MessageScope>>, SearchError> {
        if !index.is_fed() || !self.reads() || self.use_all(OF_MESSAGES.map(UsedRight::Services).into_iter()).is_ok() {
            return Ok(None);
        }
        let Some(field) = service_field(index) else { return Err(self.refusal()) };
        let may = |service: &String| {
            self.use_all(OF_MESSAGES.map(|action| UsedRight::Service(action, service.clone())).into_iter()).is_ok()
        };
        let services: BTreeSet<String> = services_of(index)?.into_iter().filter(may).collect();
        if services.is_empty() {
            // Nothing is found, and that is recorded as a search of messages all the same.
            self.used.lock().note_messages();
        }
        Ok(Some(Arc::new(MessageScope { field: field.to_owned(), services })))
    }

    /// Whether it sees how many documents an index has, and how large it is: of an index of messages that is metadata of
    /// all of them.
    pub fn sees_statistics_of(&self, index: &SearchIndex) -> bool {
        let all = Object::Service(ALL_SERVICES);
        !index.is_fed() || self.now().may(&self.caller, Action::MessageMetadata, all).is_ok()
    }

    /// Whether a right may have changed since.
    pub fn is_outdated(&self) -> bool {
        self.guard.version() != self.version
    }

    /// The same by the rights of now, with what was used. Errors: a right that was used is not there any more.
    pub fn still(&self) -> Result<(), SearchError> {
        if !self.is_outdated() {
            return Ok(());
        }
        let view = self.guard.view();
        let refused = |denied| self.refused_by(denied);
        view.holds(&self.caller).map_err(refused)?;
        let lost = |right: &UsedRight| Some((right.clone(), Asker::has(&view, &self.caller, right).err()?));
        // Not locked any more when it is refused, which is noted there too.
        let lost = self.used.lock().all().find_map(lost);
        let Some((right, denied)) = lost else { return Ok(()) };
        self.used.lock().denied(right);
        Err(refused(denied))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Guards with users, for tests.

    use node::Clock;
    use node::identity::scram::Mock;
    use node::identity::{
        Attributes, CredentialChange, Credentials, IdentityChange, IdentityError, ObjectPattern, Privileges, Role, draw,
    };
    use store::{Options, Store};

    use super::*;

    /// The node itself, which may do everything to indices.
    pub(crate) fn node() -> Asker {
        Asker::new(&guard_with(&[]), Caller::node(), "test", &[])
    }

    /// A guard over a store of its own, with these users and passwords.
    pub(crate) fn guard_with(users: &[(&str, &str)]) -> Arc<Guard> {
        let store = Store::in_memory(Options::default()).expect("a store in memory");
        let guard = Guard::open(store, Clock::fixed(1_000_000), Mock::of([7; 32])).expect("it opens");
        for (name, password) in users {
            let mut credentials = Credentials::default();
            credentials.set_password(name, password).expect("it is allowed");
            let role = Role { name: (*name).into(), attributes: Attributes::user(), credentials };
            guard.change(&Caller::node(), &[IdentityChange::Create(role)]).expect("made");
        }
        guard
    }

    /// A user with a token and without a right; returns who comes with it.
    pub(crate) fn user(guard: &Arc<Guard>, name: &str) -> (String, Caller) {
        let (text, token) = draw("test", 1, None).expect("there is randomness");
        let role = Role { name: name.into(), attributes: Attributes::user(), credentials: Credentials::default() };
        let token = IdentityChange::Credential { role: name.into(), change: CredentialChange::AddToken(token) };
        guard.change(&Caller::node(), &[IdentityChange::Create(role), token]).expect("made");
        let caller = guard.token(&text, None).expect("it is right");
        (text, caller)
    }

    fn privileges(action: Action, object: &str, grantee: &str) -> Privileges {
        let object = ObjectPattern::parse(object).expect("it is one");
        Privileges { actions: vec![action], object, columns: Vec::new(), grantee: grantee.into() }
    }

    /// Grants a right.
    pub(crate) fn grant(guard: &Guard, action: Action, object: &str, grantee: &str) {
        let privileges = privileges(action, object, grantee);
        let change = IdentityChange::Grant { privileges, grant_option: false };
        guard.change(&Caller::node(), &[change]).expect("granted");
    }

    /// Revokes a right.
    pub(crate) fn revoke(guard: &Guard, action: Action, object: &str, grantee: &str) -> Result<(), IdentityError> {
        let privileges = privileges(action, object, grantee);
        guard.change(&Caller::node(), &[IdentityChange::Revoke { privileges, option_only: false, cascade: false }])
    }
}
