//! Who may open which export: the node's [`Guard`] decides, this asks it.
//!
//! ```text
//!   connection --> Visitor   over a unix socket: the user that the system names
//!                            over TCP: a name in the certificate that it shows; from this machine without one: `anonymous`
//!                     |
//!   LIST              +--> volume-list    others are not in the list
//!   INFO, GO, ..      +--> volume-read    without it an export is as unknown as one that is not there
//!                     +--> volume-write   without it the session is read-only
//!   version changed --+--> the same again, for every session: lost read ends it, lost write makes it read-only
//! ```
//!
//! Before all that the access rules decide whether it may come in from where it is; they see the names in a certificate,
//! so they are asked behind the TLS handshake.
//!
//! Invariants: the right is asked for before an export is looked up, so that nothing about one shows without it; a
//! session is looked at again once it is in the list of its export, so that no change falls between. A server without
//! rights (a program's own, volumes without a node) lets everybody do everything who can connect.

use std::net::IpAddr;
use std::sync::Arc;

use node::audit::{Actor, ActorKind, AuditEntry, AuditOutcome, EntryMarks};
use node::identity::{
    AccessMethod, AccessPort, Action, Caller, Connected, Grant, Guard, LoginError, Object, Proof, RightsView, RoleId,
    Visit, Who,
};
use node::{Audit, Permit, certificate};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::origin::Origin;
use super::recorder::Recorder;
use crate::protocol::answer;

/// The name of this port in entries of the audit.
const PORT: &str = "nbd";

/// The name of an export in a line of the log, at most.
const NAME_SHOWN: usize = 200;

/// Where rights are kept, and what logs callers in.
#[derive(Debug, Clone)]
pub struct ServerRights {
    /// The one of the node.
    pub guard: Arc<Guard>,
    /// The role of a connection over TCP from this machine that shows no certificate. `None`: it may do nothing.
    pub anonymous: Option<String>,
    /// Gets an entry for each export that is opened, and for logins that fail.
    pub audit: Option<Arc<Audit>>,
}

/// The rights of a running server.
#[derive(Debug)]
pub(super) struct Rights {
    pub(super) guard: Arc<Guard>,
    anonymous: Option<String>,
    recorder: Option<Recorder>,
}

impl Rights {
    pub(super) fn new(settings: &ServerRights) -> Arc<Rights> {
        let ServerRights { guard, anonymous, audit } = settings;
        let recorder = audit.as_ref().map(Recorder::new);
        Arc::new(Rights { guard: Arc::clone(guard), anonymous: anonymous.clone(), recorder })
    }

    /// What writes entries, if there are any.
    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }
}

/// What a caller may do with an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) read: bool,
    pub(super) write: bool,
    /// An entry in the audit must be durable before anything is answered.
    must_record: bool,
    /// What is remarkable about its rights.
    marks: EntryMarks,
}

impl Allowed {
    fn all() -> Allowed {
        Allowed { read: true, write: true, ..Allowed::default() }
    }

    fn with(self, grant: Grant) -> Allowed {
        Allowed { must_record: self.must_record || grant.audited, marks: self.marks.and(&grant), ..self }
    }
}

/// Why a connection has no role.
#[derive(Debug, Clone)]
struct Stranger {
    /// What it showed: names of a certificate.
    names: String,
    why: String,
}

/// Who a connection is.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    rights: Option<Arc<Rights>>,
    origin: Origin,
    is_secure: bool,
    login: Result<Caller, Stranger>,
}

/// Why something is refused: kind of [`answer`], and a text.
type Refused = (u32, String);

impl Visitor {
    /// A connection that has shown no certificate.
    pub(super) fn new(rights: Option<Arc<Rights>>, origin: Origin) -> Visitor {
        let stranger = |why: String| Stranger { names: String::new(), why };
        let login = match (&rights, origin) {
            // Nobody looks at it.
            (None, _) => Ok(Caller::node()),
            (Some(rights), Origin::Local(Some(uid))) => rights.guard.local(uid).map_err(|error| {
                let how = format!("`terrace user uid add ROLE {uid}` gives this user of the machine to a role");
                stranger(format!("{}; {how}", why(&error)))
            }),
            (Some(_), Origin::Local(None)) => Err(stranger("the system does not say whose it is".to_owned())),
            (Some(rights), Origin::Tcp(address)) => match &rights.anonymous {
                Some(role) if address.to_canonical().is_loopback() => {
                    let text = |error| format!("the role {role} that `anonymous` names: {}", why(&error));
                    rights.guard.trusted(role, address).map_err(|error| stranger(text(error)))
                }
                _ => Err(stranger(
                    "it showed no certificate; [volumes] anonymous names the role of such connections from this machine"
                        .to_owned(),
                )),
            },
        };
        Visitor { rights, origin, is_secure: false, login }
    }

    /// The same over TLS, which has verified its certificates. Who shows one is who that says, and nobody else.
    pub(super) fn secured(self, shown: Option<&[CertificateDer<'_>]>) -> Visitor {
        Visitor { is_secure: true, ..self }.with_certificate(shown)
    }

    fn with_certificate(self, shown: Option<&[CertificateDer<'_>]>) -> Visitor {
        let (Some(rights), Some(own)) = (&self.rights, shown.and_then(<[_]>::first)) else { return self };
        let names = certificate::names(own);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let login = rights.guard.certificate(&names, self.address());
        let login = login.map_err(|error| {
            let name = names.first().copied().unwrap_or("NAME");
            let how = format!("`terrace user certificate add ROLE {name}` gives this name to a role");
            Stranger { names: names.join(", "), why: format!("{}; {how}", why(&error)) }
        });
        Visitor { login, ..self }
    }

    /// What it may do with an export of this name, whether or not there is one.
    pub(super) fn allowed(&self, export: &str) -> Allowed {
        match &self.rights {
            None => Allowed::all(),
            Some(rights) => self.allowed_by(&rights.guard.view(), export),
        }
    }

    /// The same by these rights.
    pub(super) fn allowed_by(&self, view: &RightsView, export: &str) -> Allowed {
        let may = |action| self.login.as_ref().ok().and_then(|caller| may(view, caller, action, export));
        let Some(read) = may(Action::VolumeRead) else { return Allowed::default() };
        let allowed = Allowed { read: true, ..Allowed::default() }.with(read);
        match may(Action::VolumeWrite) {
            Some(write) => Allowed { write: true, ..allowed.with(write) },
            None => allowed,
        }
    }

    /// Those of the names that it may see.
    pub(super) fn listed<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
        let Some(rights) = &self.rights else { return names.collect() };
        let (view, Ok(caller)) = (rights.guard.view(), &self.login) else { return Vec::new() };
        names.filter(|name| may(&view, caller, Action::VolumeList, name).is_some()).collect()
    }

    /// Refuses whom the access rules refuse.
    fn check_access(&self) -> Result<(), Refused> {
        let Some(rights) = &self.rights else { return Ok(()) };
        let visit = Visit { port: AccessPort::Volumes, address: self.address(), tls: self.is_secure };
        let admitted = match &self.login {
            Ok(caller) => rights.guard.admit_caller(visit, caller, method(caller.proof())),
            Err(_) => rights.guard.admit(visit, Who::Unnamed).map(drop),
        };
        let Err(refusal) = admitted else { return Ok(()) };
        if let (Some(recorder), Some(left_out)) = (self.recorder(), refusal.recorded) {
            let user = match &self.login {
                Ok(_) => self.role(),
                Err(stranger) => stranger.names.clone(),
            };
            recorder.note(AuditEntry::failed_login("nbd", &user, refusal.host(), refusal.to_string(), left_out));
        }
        Err((answer::POLICY, refusal.to_string()))
    }

    /// Refuses whom the access rules refuse, and who has no role. Where there are rights, that is all that such a
    /// connection learns.
    pub(super) fn check_known(&self, permit: &Permit) -> Result<(), Refused> {
        self.check_access()?;
        let Err(stranger) = &self.login else { return Ok(()) };
        if let Some(left_out) = permit.line() {
            let Stranger { names, why } = stranger;
            tracing::warn!(from = %self.origin, names, why, left_out, "a login failed: nothing is shown to it");
        }
        if let Some(recorder) = self.recorder() {
            let proof = match (self.origin, stranger.names.is_empty()) {
                (Origin::Local(_), _) => "uid",
                (Origin::Tcp(_), false) => "certificate",
                (Origin::Tcp(_), true) => "none",
            };
            let entry = self.entry("login", "").with("proof", proof);
            recorder.note_refused(entry.ended(AuditOutcome::Refused, stranger.why.as_str()));
        }
        Err((
            answer::POLICY,
            "who you are is not known here: show a client certificate of a role of the node".to_owned(),
        ))
    }

    /// Logs that an export was not opened for it.
    pub(super) fn log_refused(&self, export: &str, permit: &Permit) {
        if let Some(left_out) = permit.line() {
            let export: String = export.chars().take(NAME_SHOWN).collect();
            let role = self.role();
            tracing::warn!(?export, role, from = %self.origin, left_out, "an export was not opened: no right");
        }
    }

    /// Its role's name, as far as it has one.
    pub(super) fn role(&self) -> String {
        let name = |caller: &Caller| {
            let view = self.rights.as_ref()?.guard.view();
            view.name(caller.session()).map(str::to_owned)
        };
        self.login.as_ref().ok().and_then(name).unwrap_or_default()
    }

    /// Counts a connection of its role.
    pub(super) fn connect(&self) -> Result<Option<Connected>, Refused> {
        let (Some(rights), Ok(caller)) = (&self.rights, &self.login) else { return Ok(None) };
        rights.guard.connect(caller).map(Some).map_err(|error| (answer::POLICY, error.to_string()))
    }

    /// Enters an opened export into the audit: durably before the answer if its use must be recorded, otherwise as far as
    /// there is room, so that a full audit stops no disk.
    pub(super) async fn record_opened(
        &self,
        export: &str,
        is_read_only: bool,
        allowed: Allowed,
    ) -> Result<(), Refused> {
        let Some(recorder) = self.recorder() else { return Ok(()) };
        let mode = if is_read_only { "read" } else { "read, write" };
        let entry = self.entry("volume.open", export).with("mode", mode).marked(allowed.marks);
        if allowed.must_record {
            return recorder
                .write(entry)
                .await
                .map_err(|why| (answer::POLICY, format!("the audit takes no entry: {why}")));
        }
        if let Ok(caller) = &self.login {
            recorder.note_opened(entry, (caller.session(), self.origin, export, is_read_only));
        }
        Ok(())
    }

    /// Whose it is: one role gives up no connection of another. `None`: of nobody that is known.
    pub(super) fn role_id(&self) -> Option<RoleId> {
        self.login.as_ref().ok().map(Caller::session)
    }

    fn address(&self) -> Option<IpAddr> {
        match self.origin {
            Origin::Tcp(address) => Some(address),
            Origin::Local(_) => None,
        }
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.rights.as_ref().and_then(|rights| rights.recorder())
    }

    fn entry(&self, action: &str, export: &str) -> AuditEntry {
        let (entry, address) = (AuditEntry::new(action, export), self.address());
        let mut entry = match (&self.login, &self.rights) {
            (Ok(caller), Some(rights)) => entry.by_role(PORT, caller, &rights.guard.view()),
            (Ok(_), None) => entry.by_claimed(PORT, "", address),
            (Err(stranger), _) => entry.by_claimed(PORT, stranger.names.as_str(), address),
        };
        if let Origin::Local(id) = self.origin {
            entry.origin.address = "local".to_owned();
            if self.login.as_ref().is_ok_and(|caller| *caller.proof() == Proof::Node) {
                entry.actor = Actor { kind: ActorKind::Local, id, name: String::new() };
            }
        }
        entry
    }
}

fn may(view: &RightsView, caller: &Caller, action: Action, export: &str) -> Option<Grant> {
    view.may(caller, action, Object::Volume(export)).ok()
}

/// What a proof is for the access rules.
fn method(proof: &Proof) -> AccessMethod {
    match proof {
        Proof::Password | Proof::Ldap(_) => AccessMethod::Password,
        Proof::Oidc(_) => AccessMethod::Oidc,
        Proof::Token(_) => AccessMethod::Token,
        Proof::Certificate(_) => AccessMethod::Certificate,
        Proof::Uid(_) | Proof::Trust | Proof::Node => AccessMethod::Trust,
    }
}

/// Why a login failed, for the log.
fn why(error: &LoginError) -> String {
    match error {
        LoginError::Refused(why) => format!("{why:?}").to_lowercase(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use node::audit::{AuditReader, AuditRows, KIND_AUDIT};
    use node::identity::Via;
    use node::identity::scram::Mock;
    use node::{AuditSettings, Clock, Interpreters};
    use store::{Options, Store};

    use super::*;

    #[tokio::test]
    async fn a_use_that_must_be_recorded_is_durable_in_the_audit_or_refused() {
        let grant = Grant { via: Via::Administrator, audited: true, self_granted: true, break_glass: false };
        for (max_bytes, is_open) in [(1 << 20, true), (0, false)] {
            let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
            let options = Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() };
            let (store, clock) = (Store::in_memory(options).expect("there is memory"), Clock::fixed(1));
            let settings = AuditSettings { max_bytes, ..AuditSettings::default() };
            let audit = Audit::open(&store, settings, clock.clone());
            let guard = Guard::open(store, clock, Mock::of([7; 32])).expect("it opens");
            let rights = ServerRights { guard, anonymous: None, audit: Some(Arc::clone(&audit)) };
            let visitor = Visitor::new(Some(Rights::new(&rights)), Origin::Local(Some(0)));
            let allowed = visitor.allowed("disk");
            assert_eq!(allowed, Allowed::all());
            let recorded = visitor.record_opened("disk", false, allowed.with(grant)).await;
            assert_eq!(recorded.map_err(|(kind, _)| kind), if is_open { Ok(()) } else { Err(answer::POLICY) });
            audit.wait_visible().expect("it works");
            let reader = AuditReader::at(audit.store().snapshot()).expect("it is there");
            let entries = reader.page(&node::audit::AuditQuery::default()).expect("it is whole").entries;
            let found: Vec<_> = entries.iter().map(|shown| &shown.chained.entry).collect();
            assert_eq!(found.len(), usize::from(is_open));
            for entry in found {
                assert_eq!((entry.object.as_str(), entry.actor.id), ("disk", Some(0)));
                assert_eq!(entry.details.get("self_granted").map(String::as_str), Some("yes"));
            }
        }
    }
}
