//! Who may open what: names in certificates, connections without one, what shows of an export that one has no right to,
//! and rights that end while a session is open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{EpochGate, Export, ServerOptions, ServerRights, ServerTls};
use node::audit::{ActorKind, AuditOutcome, AuditQuery, AuditReader, AuditRows, KIND_AUDIT};
use node::identity::scram::Mock;
use node::identity::{
    Action, AttributeChange, Attributes, Caller, CredentialChange, Credentials, Guard, IdentityChange, ObjectPattern,
    Privileges, Role,
};
use node::{Audit, AuditSettings, Clock, Interpreters};
use rcgen::{CertificateParams, DnType, SanType};
use store::{Options, Store};
use tempfile::TempDir;

use crate::client::{self, ACK, Client, FLUSH, READ, TRIM, WRITE, ZEROES, named, queries};
use crate::rig::{Rig, memory, until};
use crate::security::{Authority, connected};

pub(crate) const POLICY: u32 = 0x8000_0002;
const UNKNOWN: u32 = 0x8000_0006;
const EPERM: u32 = 1;
/// `NBD_FLAG_READ_ONLY`.
const READ_ONLY: u16 = 2;

/// How soon a change of rights shows on open sessions.
const SOON: Duration = Duration::from_secs(1);

/// A server with rights, and who grants them.
pub(crate) struct Bench {
    pub(crate) guard: Arc<Guard>,
    audit: Arc<Audit>,
    clock: Clock,
    pub(crate) rig: Rig,
    authority: Authority,
    _folder: TempDir,
}

impl Bench {
    /// With these exports; TLS is offered, and connections without a certificate are `anonymous`.
    pub(crate) fn new(anonymous: Option<&str>, exports: impl IntoIterator<Item = Export>) -> Bench {
        Bench::with(anonymous, AuditSettings::default(), exports)
    }

    fn with(anonymous: Option<&str>, audit: AuditSettings, exports: impl IntoIterator<Item = Export>) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::write(folder.path());
        let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
        let options = Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() };
        let (store, clock) = (Store::in_memory(options).expect("there is memory"), Clock::fixed(1_000_000));
        let audit = Audit::open(&store, audit, clock.clone());
        let guard = Guard::open(store, clock.clone(), Mock::of([7; 32])).expect("it opens");
        let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
        let client_authority = Some(folder.path().join("authority.pem"));
        let anonymous = anonymous.map(str::to_owned);
        let rights = ServerRights { guard: Arc::clone(&guard), anonymous, audit: Some(Arc::clone(&audit)) };
        let options = ServerOptions {
            workers: 2,
            tls: Some(ServerTls { certificate, key, client_authority, client_revocations: None, required: false }),
            rights: Some(rights),
            ..ServerOptions::default()
        };
        Bench { rig: Rig::with(options, exports), guard, audit, clock, authority, _folder: folder }
    }

    fn change(&self, change: IdentityChange) {
        self.guard.change(&Caller::node(), &[change]).expect("the node may");
    }

    /// A user whose certificates have this name.
    pub(crate) fn create(&self, name: &str, certificate: &str) {
        let credentials = Credentials { certificates: vec![certificate.to_owned()], ..Credentials::default() };
        self.change(IdentityChange::Create(Role { name: name.into(), attributes: Attributes::user(), credentials }));
    }

    pub(crate) fn grant(&self, role: &str, actions: &[Action], object: &str) {
        self.change(IdentityChange::Grant { privileges: privileges(role, actions, object), grant_option: false });
    }

    fn revoke(&self, role: &str, actions: &[Action], object: &str) {
        let privileges = privileges(role, actions, object);
        self.change(IdentityChange::Revoke { privileges, option_only: false, cascade: false });
    }

    fn set(&self, role: &str, change: AttributeChange) {
        self.change(IdentityChange::Set { role: role.into(), changes: vec![change] });
    }

    /// A connection from this machine that shows no certificate.
    pub(crate) fn plain(&self) -> Client {
        Client::greeted(client::tcp(self.rig.tcp), 3)
    }

    /// A connection inside TLS that shows a certificate.
    pub(crate) fn shown(&self, params: CertificateParams) -> Client {
        connected(client::tcp(self.rig.tcp), &self.authority, Some(params))
    }

    /// The same as a role opens an export.
    fn open(&self, name: &str, certificate: &str) -> Client {
        let mut client = self.shown(dns(certificate));
        client.go(name).unwrap_or_else(|kind| panic!("{name} does not open: {kind:#x}"));
        client
    }

    /// The reasons of the entries of failed logins.
    fn reasons(&self) -> Vec<String> {
        self.audit.wait_visible().expect("it works");
        let reader = AuditReader::at(self.audit.store().snapshot()).expect("it is there");
        let entries = reader.page(&AuditQuery::default()).expect("it is whole").entries.into_iter();
        let entries = entries.map(|shown| shown.chained.entry).filter(|entry| entry.action == "login");
        entries.map(|entry| entry.reason).collect()
    }

    /// The entries of the audit about openings and logins: who, what, which export, how it ended, and the mode.
    pub(crate) fn entries(&self) -> Vec<(ActorKind, String, String, AuditOutcome, String)> {
        self.audit.wait_visible().expect("it works");
        let reader = AuditReader::at(self.audit.store().snapshot()).expect("it is there");
        let page = reader.page(&AuditQuery { limit: 100, ..AuditQuery::default() }).expect("it is whole");
        let entries = page.entries.into_iter().map(|shown| {
            let entry = shown.chained.entry;
            let mode = entry.details.get("mode").cloned().unwrap_or_default();
            (entry.actor.kind, entry.actor.name, entry.object, entry.outcome, mode)
        });
        entries.collect()
    }
}

fn privileges(role: &str, actions: &[Action], object: &str) -> Privileges {
    let object = ObjectPattern::parse(object).expect("it is one");
    Privileges { actions: actions.to_vec(), object, columns: Vec::new(), grantee: role.into() }
}

pub(crate) fn dns(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).expect("parameters")
}

fn common(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub(crate) fn disk(name: &str) -> Export {
    Export::new(name, memory(1 << 20))
}

/// The names that `LIST` has.
fn listed(client: &mut Client) -> Vec<String> {
    let answers = client.negotiate(3, &[]);
    let (last, names) = answers.split_last().expect("a last reply");
    assert_eq!(last, &(ACK, vec![]));
    names.iter().map(|(_, data)| String::from_utf8_lossy(&data[4..]).into_owned()).collect()
}

/// All that options say about a name.
fn said(client: &mut Client, name: &str) -> Vec<Vec<(u32, Vec<u8>)>> {
    assert_eq!(client.negotiate(8, &[]), [(ACK, vec![])]);
    [(6, named(name, &[1])), (7, named(name, &[1])), (9, queries(name, &[])), (10, queries(name, &["base:allocation"]))]
        .map(|(code, data)| client.negotiate(code, &data))
        .to_vec()
}

const ALL: &[Action] = &[Action::VolumeList, Action::VolumeRead, Action::VolumeWrite];

#[test]
fn who_has_no_role_learns_nothing_and_the_node_itself_may_everything() {
    let bench = Bench::new(None, [disk("disk")]);
    bench.create("ann", "ann.example");
    bench.grant("ann", ALL, "volume *");
    let shown = |name: &str| bench.shown(dns(name));
    for mut client in [bench.plain(), shown("eve.example")] {
        let (there, absent) = (said(&mut client, "disk"), said(&mut client, "none"));
        assert_eq!(there, absent, "nothing shows that an export is there");
        assert!(there.iter().all(|answers| answers.len() == 1 && answers[0].0 == POLICY), "{there:?}");
        assert_eq!(client.negotiate(3, &[])[0].0, POLICY, "the list");
        client.send(&client::option(1, b"disk"));
        assert_eq!(client.until_end(), b"", "EXPORT_NAME");
    }
    // By a unix socket the user of this process, which is the node's.
    let mut own = Client::greeted(client::unix(&bench.rig.unix), 3);
    assert_eq!(listed(&mut own), ["disk"]);
    assert_eq!(own.go("").expect("the only one opens without a name").flags & READ_ONLY, 0);
    assert_eq!(shown("ann.example").go("disk").expect("opens").flags & READ_ONLY, 0);
    until("the openings have entries", || bench.entries().iter().filter(|entry| entry.2 == "disk").count() == 2);
    let entries = bench.entries();
    let failed = entries.iter().find(|entry| entry.3 == AuditOutcome::Refused).expect("failed logins have one");
    assert_eq!((failed.0, failed.2.as_str()), (ActorKind::Claimed, ""));
    let opened = |name: &str| entries.iter().any(|entry| entry.1 == name && entry.4 == "read, write");
    assert!(opened("") && opened("ann"), "{entries:?}");
}

#[test]
fn every_kind_of_name_in_a_certificate_is_that_of_a_role() {
    // The anonymous role may nothing: who shows a certificate is not it.
    let bench = Bench::new(Some("guest"), [disk("disk")]);
    bench.create("guest", "guest.example");
    bench.grant("guest", ALL, "volume *");
    let with = |name: SanType| {
        let mut params = common("guest.example");
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into()), name];
        params
    };
    let email = |text: &str| SanType::Rfc822Name(text.try_into().expect("a name"));
    let uri = |text: &str| SanType::URI(text.try_into().expect("a name"));
    for (name, params) in [
        ("ann.example", dns("ann.example")),
        ("ann@clinic.example", with(email("ann@clinic.example"))),
        ("spiffe://clinic.example/ann", with(uri("spiffe://clinic.example/ann"))),
        ("Ann Example", common("Ann Example")),
    ] {
        assert_eq!(bench.shown(params.clone()).go("disk"), Err(POLICY), "{name} is of no role yet");
        bench.create("ann", name);
        bench.grant("ann", &ALL[..2], "volume disk");
        let flags = bench.shown(params).go("disk").expect(name).flags;
        assert_eq!(flags & READ_ONLY, READ_ONLY, "{name} is ann, and not guest");
        bench.revoke("ann", &ALL[..2], "volume disk");
        bench.change(IdentityChange::Drop { role: "ann".into(), cascade: true });
    }
    assert_eq!(bench.plain().go("disk").expect("from this machine").flags & READ_ONLY, 0);
}

#[test]
fn an_export_without_a_right_is_as_one_that_is_not_there() {
    let bench = Bench::new(Some("guest"), ["hidden", "listed", "readable"].map(disk));
    bench.create("guest", "guest.example");
    bench.grant("guest", &[Action::VolumeList], "volume listed");
    bench.grant("guest", &[Action::VolumeList, Action::VolumeRead], "volume readable");
    // The right to write alone is none to read.
    bench.grant("guest", &[Action::VolumeWrite], "volume hidden");
    let mut client = bench.plain();
    assert_eq!(listed(&mut client), ["listed", "readable"]);
    let absent = said(&mut client, "absent");
    assert!(absent.iter().all(|answers| answers.len() == 1 && answers[0].0 == UNKNOWN), "{absent:?}");
    for name in ["hidden", "listed", "hidden@7", "readable@7"] {
        let said = said(&mut client, name);
        let kinds: Vec<_> = said.iter().map(|answers| answers[0].0).collect();
        assert_eq!(kinds, [UNKNOWN; 4], "{name}");
        assert!(name.starts_with("readable") || said == absent, "{name}: {said:?}");
    }
    // The only one that it may read opens without a name.
    assert_eq!(client.go("").expect("opens").flags & READ_ONLY, READ_ONLY);
}

#[test]
fn without_the_right_to_write_a_session_is_read_only() {
    let bench = Bench::new(Some("guest"), [disk("disk")]);
    bench.create("guest", "guest.example");
    bench.create("ann", "ann.example");
    bench.grant("guest", &[Action::VolumeRead], "volume disk");
    bench.grant("ann", ALL, "volume disk");
    let mut writer = bench.open("disk", "ann.example");
    assert_eq!(writer.request(0, WRITE, 0, 512, &[7; 512]).error, 0);
    let mut reader = bench.plain();
    assert_eq!(reader.go("disk").expect("opens").flags & READ_ONLY, READ_ONLY);
    assert_eq!(reader.request(0, WRITE, 0, 512, &[8; 512]).error, EPERM);
    assert_eq!(reader.request(0, TRIM, 0, 4096, &[]).error, EPERM);
    assert_eq!(reader.request(0, ZEROES, 0, 4096, &[]).error, EPERM);
    assert_eq!(reader.request(0, FLUSH, 0, 0, &[]).error, 0);
    assert_eq!(reader.read(0, 512), [7; 512]);
    until("both openings have entries", || {
        let entries = bench.entries();
        let has = |name: &str, mode: &str| entries.iter().any(|entry| entry.1 == name && entry.4 == mode);
        has("ann", "read, write") && has("guest", "read")
    });
}

#[derive(Debug)]
struct Raised(parking_lot::Mutex<u64>);

impl EpochGate for Raised {
    fn current(&self) -> u64 {
        *self.0.lock()
    }

    fn raise(&self, epoch: u64) -> Result<(), String> {
        *self.0.lock() = epoch;
        Ok(())
    }
}

#[test]
fn an_epoch_is_raised_only_by_who_may_write() {
    let gate = Arc::new(Raised(parking_lot::Mutex::new(4)));
    let bench = Bench::new(Some("guest"), [Export { epochs: Some(Arc::clone(&gate) as _), ..disk("place") }]);
    bench.create("guest", "guest.example");
    bench.create("owner", "owner.example");
    bench.grant("guest", &[Action::VolumeRead], "volume place");
    bench.grant("owner", ALL, "volume place");
    let mut owner = bench.open("place@5", "owner.example");
    assert_eq!(gate.current(), 5);
    let mut guest = bench.plain();
    for code in [6, 7] {
        assert_eq!(guest.negotiate(code, &named("place@9", &[]))[0].0, POLICY);
    }
    assert_eq!(guest.go("place").expect("it may look").flags & READ_ONLY, READ_ONLY);
    assert_eq!((gate.current(), owner.request(0, WRITE, 0, 512, &[1; 512]).error), (5, 0));
    bench.revoke("owner", &[Action::VolumeWrite], "volume place");
    until("the owner writes no more", || owner.request(0, WRITE, 0, 512, &[2; 512]).error == EPERM);
    assert_eq!(bench.shown(dns("owner.example")).go("place@6"), Err(POLICY));
    assert_eq!(gate.current(), 5);
}

#[test]
fn lost_rights_end_open_sessions_within_a_second() {
    let bench = Bench::new(None, [disk("disk")]);
    type Lost = (&'static str, fn(&Bench));
    let lost: [Lost; 5] = [
        ("the right is revoked", |bench| bench.revoke("ann", &[Action::VolumeRead], "volume *")),
        ("the role is locked", |bench| bench.set("ann", AttributeChange::Locked(Some("left".into())))),
        ("the role expires", |bench| {
            bench.set("ann", AttributeChange::Until(Some(2_000_000)));
            bench.clock.set(2_000_000);
            bench.guard.tick();
        }),
        ("the certificate is taken away", |bench| {
            let change = CredentialChange::Certificates(Vec::new());
            bench.change(IdentityChange::Credential { role: "ann".into(), change });
        }),
        ("the role is dropped", |bench| bench.change(IdentityChange::Drop { role: "ann".into(), cascade: true })),
    ];
    for (what, lose) in lost {
        bench.create("ann", "ann.example");
        bench.create("bob", "bob.example");
        bench.grant("ann", ALL, "volume *");
        bench.grant("bob", ALL, "volume *");
        let mut bob = bench.open("disk", "bob.example");
        let mut sessions: Vec<Client> = (0..20).map(|_| bench.open("disk", "ann.example")).collect();
        assert_eq!(sessions[0].request(0, WRITE, 0, 512, &[1; 512]).error, 0);
        let begun = Instant::now();
        lose(&bench);
        // Idle ones, too: none of them sends anything.
        sessions.iter_mut().for_each(|client| assert_eq!(client.until_end(), b"", "{what}"));
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        assert_eq!(bob.read(0, 512), [1; 512], "{what}: others go on");
        bob.begin(0, client::DISCONNECT, 0, 0, &[]);
        bob.until_end();
        for role in ["ann", "bob"] {
            if bench.guard.view().directory().named(role).is_ok() {
                bench.revoke(role, ALL, "volume *");
                bench.change(IdentityChange::Drop { role: role.into(), cascade: true });
            }
        }
        bench.clock.set(1_000_000);
    }
    until("all sessions have ended", || bench.rig.sessions() == 0);
}

#[test]
fn a_lost_right_to_write_refuses_every_later_write_also_one_whose_payload_is_on_its_way() {
    let bench = Bench::new(Some("guest"), [disk("disk")]);
    bench.create("guest", "guest.example");
    bench.grant("guest", ALL, "volume disk");
    let mut client = bench.plain();
    assert_eq!(client.go("disk").expect("opens").flags & READ_ONLY, 0);
    assert_eq!(client.request(0, WRITE, 0, 4096, &[1; 4096]).error, 0);
    let mut other = bench.plain();
    other.go("disk").expect("opens");
    client.begin(0, WRITE, 0, 64 << 10, &[2; 5000]);
    let begun = Instant::now();
    bench.revoke("guest", &[Action::VolumeWrite], "volume disk");
    until("new writes are refused", || other.request(0, WRITE, 8192, 512, &[3; 512]).error == EPERM);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    client.send(&vec![2; (64 << 10) - 5000]);
    assert_eq!(client.reply().error, EPERM);
    assert_eq!(client.read(0, 4096), [1; 4096], "the session reads on");
    // Granted again, it counts for new sessions.
    bench.grant("guest", &[Action::VolumeWrite], "volume disk");
    assert_eq!(client.request(0, WRITE, 0, 512, &[4; 512]).error, EPERM);
    assert_eq!(bench.plain().go("disk").expect("opens").flags & READ_ONLY, 0);
}

#[test]
fn a_role_has_no_more_sessions_than_it_may() {
    let bench = Bench::new(Some("guest"), [disk("disk")]);
    bench.create("guest", "guest.example");
    bench.grant("guest", ALL, "volume disk");
    bench.set("guest", AttributeChange::ConnectionLimit(Some(2)));
    let open = || {
        let mut client = bench.plain();
        client.go("disk").map(|_| client)
    };
    let (first, second) = (open().expect("one"), open().expect("two"));
    assert_eq!(open().err(), Some(POLICY));
    drop(first);
    until("one has ended", || bench.rig.sessions() == 1);
    let third = open().expect("two again");
    drop((second, third));
}

#[test]
fn a_client_s_number_ends_older_connections_of_its_own_role_only() {
    let bench = Bench::new(None, [disk("disk")]);
    for role in ["ann", "eve"] {
        bench.create(role, &format!("{role}.example"));
        bench.grant(role, ALL, "volume disk");
    }
    let open = |role: &str| {
        let mut client = bench.shown(dns(&format!("{role}.example")));
        assert_eq!(client.negotiate(8, &[]), [(ACK, vec![])]);
        let queries = queries("disk", &["base:allocation", "terrace:client:00000000000000a7"]);
        assert_eq!(client.negotiate(10, &queries).last().map(|(kind, _)| *kind), Some(ACK));
        client.go("disk").expect("opens");
        client
    };
    let mut first = open("ann");
    let mut other = open("eve");
    assert_eq!(
        first.request(0, FLUSH, 0, 0, &[]).error,
        0,
        "another role has the same number, by chance or as a guess"
    );
    let mut second = open("ann");
    assert_eq!(first.until_end(), b"", "it has given its older connection up");
    assert_eq!((second.request(0, FLUSH, 0, 0, &[]).error, other.request(0, FLUSH, 0, 0, &[]).error), (0, 0));
}

#[test]
fn a_login_that_failed_says_which_command_would_let_it_in_and_a_flood_of_them_has_few_entries() {
    let bench = Bench::new(None, [disk("disk")]);
    for _ in 0..60 {
        assert_eq!(bench.plain().go("disk"), Err(POLICY));
    }
    assert_eq!(bench.shown(dns("eve.example")).go("disk"), Err(POLICY));
    until("the entries are written", || bench.reasons().len() == 20);
    std::thread::sleep(Duration::from_millis(50));
    let reasons = bench.reasons();
    assert_eq!(reasons.len(), 20, "{reasons:?}");
    assert!(reasons[0].contains("[volumes] anonymous"), "{reasons:?}");
    let bench = Bench::new(None, [disk("disk")]);
    assert_eq!(bench.shown(dns("eve.example")).go("disk"), Err(POLICY));
    until("it is written", || bench.reasons().len() == 1);
    let command = "`terrace user certificate add ROLE eve.example`";
    assert!(bench.reasons()[0].contains(command), "{:?}", bench.reasons());
}

#[test]
fn a_full_audit_stops_no_disk() {
    let settings = AuditSettings { max_bytes: 0, ..AuditSettings::default() };
    let bench = Bench::with(Some("guest"), settings, [disk("disk")]);
    bench.create("guest", "guest.example");
    bench.grant("guest", ALL, "volume disk");
    let mut client = bench.plain();
    client.go("disk").expect("opens");
    until("the entry is refused", || bench.audit.trouble().is_some());
    assert_eq!(client.request(0, WRITE, 0, 512, &[1; 512]).error, 0);
}

#[test]
fn a_shared_socket_is_open_to_all_users_only_where_there_are_rights() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |rig: &Rig| std::fs::metadata(&rig.unix).expect("it is there").permissions().mode() & 0o777;
    let options = ServerOptions { workers: 1, shared_socket: true, ..ServerOptions::default() };
    assert_eq!(mode(&Rig::with(options.clone(), [])), 0o600);
    let store = Store::in_memory(Options::default()).expect("there is memory");
    let guard = Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
    let rights = Some(ServerRights { guard, anonymous: None, audit: None });
    let rig = Rig::with(ServerOptions { rights: rights.clone(), ..options.clone() }, [disk("disk")]);
    assert_eq!(mode(&rig), 0o666);
    assert_eq!(rig.simple("disk").request(0, READ, 0, 512, &[]).error, 0);
    assert_eq!(mode(&Rig::with(ServerOptions { rights, shared_socket: false, ..options }, [])), 0o600);
}
