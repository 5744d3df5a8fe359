//! One node with everything on: a production with a service and an operation, SQL, search, metrics, a volume exported over TLS; and
//! its roles, each with a token, a certificate and, where one is of use, a password.
//!
//! Nothing is left to everyone: the two rights that `public` has at first are revoked.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use nbd::ClientTls;
use node::identity::scram::Verifier;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;

use super::ports::{Control, Http, sql, sql_login};
use super::ways::Right;
use crate::node::{Bed, Node, until};
use crate::volumes::volume;

/// The password of roles that have one.
pub(crate) const PASSWORD: &str = "a long password";

/// A time that has been: 2001.
const PAST_US: i64 = 1_000_000_000_000_000;

/// What makes a role one that may do nothing, whatever was granted to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has what was granted to it.
    Plain,
    /// All but what is withheld, on everything.
    Administrator,
    /// Locked: nothing.
    Locked,
    /// Expired: nothing.
    Expired,
}

/// A role of a test.
pub(crate) struct TestRole {
    pub(crate) name: String,
    pub(crate) standing: Standing,
    pub(crate) rights: Vec<Right>,
    pub(crate) token: String,
    pub(crate) tls: Arc<ClientConfig>,
}

impl TestRole {
    /// Whether it has a right.
    pub(crate) fn has(&self, right: Right) -> bool {
        match self.standing {
            Standing::Plain => self.rights.contains(&right),
            Standing::Administrator => !right.0.is_withheld(),
            Standing::Locked | Standing::Expired => false,
        }
    }
}

/// The authority of a bed, which makes certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    pub(crate) fn new(bed: &Bed) -> Authority {
        let folder = bed.path("tls");
        fs::create_dir_all(&folder).expect("a folder");
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = authority.self_signed(&key).expect("an authority").pem();
        fs::write(folder.join("authority.pem"), pem).expect("written");
        let made = Authority { issuer: Issuer::new(authority, key), folder };
        made.certificate("localhost");
        made
    }

    /// Writes a certificate of this name and its key.
    fn certificate(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let own = own.signed_by(&key, &self.issuer).expect("a certificate");
        let places = (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")));
        fs::write(&places.0, own.pem()).expect("written");
        fs::write(&places.1, key.serialize_pem()).expect("written");
        places
    }

    /// TLS of a client that shows a certificate of this name.
    pub(crate) fn client(&self, name: &str) -> Arc<ClientConfig> {
        let own = Some(self.certificate(name));
        let tls = ClientTls { authority: self.folder.join("authority.pem"), own, server_name: None };
        Arc::clone(tls.load("localhost").expect("certificates").0.config())
    }
}

/// The settings of a node with everything on.
pub(crate) const SETTINGS: &str = "production = \"production\"\n[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n\
    [search]\nlisten = \"127.0.0.1:0\"\n[metrics]\nlisten = \"127.0.0.1:0\"\ntrust = false\n\
    [console]\nlisten = \"127.0.0.1:0\"\n\
    [volumes]\nlisten = \"127.0.0.1:0\"\ntls_required = true\ncertificate = \"tls/localhost.pem\"\n\
    key = \"tls/localhost.key\"\nclient_authority = \"tls/authority.pem\"\n";

/// Writes the production: messages come in by `adt` and go out by `out`.
pub(crate) fn write_production(bed: &Bed) {
    let put = |path: &str, text: &str| {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    put("services/adt.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n");
    put("operations/out.toml", "kind = \"file\"\nfolder = \"out\"\n");
    put("rules/main.rules", "match all\n\nrule admissions when MSH-9.1 = \"ADT\" {\n  send to out\n}\n");
}

/// Makes what the requests of the matrix are about, by who runs the node; the id of the stored message.
pub(crate) fn write_objects(bed: &Bed, node: &Node<'_>, control: &mut Control) -> u64 {
    node.send("M1");
    volume(bed, &["create", "v", "--size", "4MiB"]);
    volume(bed, &["export", "v"]);
    let line = control.must("messages {}")[0].clone();
    let id = line["id"].as_u64().expect("a number");
    let everyone = |action: &str, object: Value| {
        let privileges = json!({ "actions": [action], "object": object, "columns": [], "grantee": "public" });
        json!({ "revoke": { "privileges": privileges, "option_only": false, "cascade": false } })
    };
    control.change(&[
        everyone("sql-connect", json!({ "kind": "node" })),
        everyone("schema-use", json!({ "kind": "schema", "name": "public" })),
    ]);
    id
}

/// Makes tables and documents, as the administrator that a role is.
pub(crate) fn write_data(node: &Node<'_>, administrator: &TestRole) {
    let mut client = sql_login(node.sql(), &administrator.name, None).expect("it may log in");
    for statement in [
        "CREATE TABLE t (a bigint PRIMARY KEY, b int)",
        "INSERT INTO t VALUES (-1, 1)",
        "CREATE TABLE own (a int PRIMARY KEY)",
        "CREATE VIEW reads_own AS SELECT a FROM own",
        "CREATE SCHEMA own",
        "CREATE TABLE own.inner (a int PRIMARY KEY)",
    ] {
        let made = sql(&mut client, statement);
        assert!(matches!(made, super::ports::Outcome::Answered(_)), "{statement}: {made:?}");
    }
    let mut http = Http::open(node.search());
    for (method, target, body) in
        [("PUT", "/i/_doc/1?refresh=true", r#"{"colour":"red"}"#), ("PUT", "/other/_doc/1?refresh=true", "{}")]
    {
        let made = http.send(&administrator.token, (method, target, body));
        assert!(matches!(made, super::ports::Outcome::Answered(_)), "{target}: {made:?}");
    }
}

/// Makes a role with its rights and what proves it.
pub(crate) fn make_role(
    control: &mut Control,
    authority: &Authority,
    (name, standing): (&str, Standing),
    rights: &[Right],
) -> TestRole {
    let verifier = Verifier::of(PASSWORD).expect("a password");
    let attributes = match standing {
        Standing::Plain => json!({ "login": true }),
        Standing::Administrator => json!({ "login": true, "administrator": true }),
        Standing::Locked => json!({ "login": true, "locked": "a test" }),
        Standing::Expired => json!({ "login": true, "until_us": PAST_US }),
    };
    let credentials = json!({ "scram": verifier, "certificates": [name] });
    control.change(&[json!({ "create": { "name": name, "attributes": attributes, "credentials": credentials } })]);
    for few in rights.chunks(8) {
        let grants: Vec<Value> = few.iter().map(|right| grant(*right, name)).collect();
        control.change(&grants);
    }
    let draw = json!({ "verb": "draw-token", "role": name, "name": "test", "until_us": null });
    let drawn = control.must(&format!("identity {draw}"));
    TestRole {
        name: name.to_owned(),
        standing,
        rights: rights.to_vec(),
        token: drawn["token"].as_str().expect("a text").to_owned(),
        tls: authority.client(name),
    }
}

/// The change that grants a right. What cannot be granted comes with owning the object.
pub(crate) fn grant((action, object): Right, to: &str) -> Value {
    let object: node::identity::ObjectPattern = node::identity::ObjectPattern::parse(object).expect("it is one");
    if !action.is_grantable() {
        return json!({ "own": { "object": object, "owner": to } });
    }
    let privileges = json!({ "actions": [action], "object": object, "columns": [], "grantee": to });
    json!({ "grant": { "privileges": privileges, "grant_option": false } })
}

/// The address of the exports over TCP.
pub(crate) fn nbd_address(control: &mut Control) -> std::net::SocketAddr {
    let mut found = None;
    until("the export has an address", || {
        let status = control.must(r#"volume {"verb":"status","names":["v"]}"#).to_string();
        let uri = status.split('"').find_map(|part| part.strip_prefix("nbds://")).map(str::to_owned);
        found = uri.and_then(|uri| uri.split('/').next()?.parse().ok());
        found.is_some()
    });
    found.expect("it was found")
}
