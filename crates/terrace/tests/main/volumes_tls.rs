//! Copies and tiers on exports of another node over TLS: certificates of both sides, and what is refused without them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;

use crate::node::{Bed, until};
use crate::volumes::{Exporter, client};

/// Writes an authority, and certificates of `names` with their keys, all in PEM.
fn certificates(folder: &Path, names: &[&str]) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    fs::write(folder.join("authority.pem"), authority.self_signed(&key).expect("an authority").pem()).expect("written");
    let issuer = Issuer::new(authority, key);
    for name in names {
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let own = own.signed_by(&key, &issuer).expect("a certificate");
        fs::write(folder.join(format!("{name}.pem")), own.pem()).expect("written");
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("written");
    }
}

/// The address of an export over TLS.
fn address(bed: &Bed, name: &str) -> String {
    let mut found = None;
    until("the export has an address", || {
        let ran = bed.command_line(&["volume", "status", name, "--json", "--data", "other", "--config", "other.toml"]);
        let text = ran.printed();
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let at = status[0].to_string();
        found = at.split('"').find(|part| part.starts_with("nbds://")).map(str::to_owned);
        found.is_some()
    });
    found.expect("it was found").replace("127.0.0.1", "localhost")
}

#[test]
fn a_copy_and_a_tier_on_another_node_are_reached_over_tls_with_certificates_of_both_sides() {
    let bed = Bed::new();
    certificates(&bed.path("."), &["other", "own", "stranger"]);
    let other = "[volumes]\nlisten = \"127.0.0.1:0\"\ntls_required = true\ncertificate = \"other.pem\"\nkey = \"other.key\"\n\
                 client_authority = \"authority.pem\"\n";
    fs::write(bed.path("other.toml"), other).expect("written");
    let make = ["volume", "create", "--size", "200MiB", "--data", "other", "--config", "other.toml"];
    bed.command_line(&[&make[..], &["copy", "--place"]].concat()).succeeds("");
    bed.command_line(&[&make[..], &["tier"]].concat()).succeeds("");
    let _far = Exporter::start(&bed, &["copy", "tier", "--data", "other", "--config", "other.toml"]);
    // Until it serves, a command would take the lock of the data directory itself. Its socket demands TLS too.
    until("the other node serves", || UnixStream::connect(bed.path("other/nbd.sock")).is_ok());
    let (copy, tier) = (address(&bed, "copy"), address(&bed, "tier"));

    let create = ["volume", "create", "v", "--size", "4MiB", "--copy", "home", "--copy", &copy];
    bed.command_line(&create).fails("set `authority` under [volumes]");
    bed.configure("[volumes]\nauthority = \"authority.pem\"\n");
    bed.command_line(&create).fails("");
    // A certificate of its own, and a name that the server does not have.
    let own = "[volumes]\nauthority = \"authority.pem\"\ncertificate = \"own.pem\"\nkey = \"own.key\"\n";
    bed.configure(own);
    let elsewhere = copy.replace("localhost", "127.0.0.1");
    bed.command_line(&["volume", "create", "v", "--size", "4MiB", "--copy", "home", "--copy", &elsewhere]).fails("");
    bed.command_line(&create).succeeds("");
    let near = Exporter::start(&bed, &["v"]);
    drop(client(&bed.data().join("nbd.sock"), "v"));
    until("both copies are in sync", || {
        let status: Value =
            serde_json::from_str(&bed.command_line(&["volume", "status", "v", "--json"]).printed()).unwrap_or_default();
        let copies = status[0]["copies"].as_array().cloned().unwrap_or_default();
        copies.len() == 2 && copies.iter().all(|copy| copy["state"] == "in-sync")
    });
    near.kill();

    // The node's own journal on a tier there, through a restart.
    let placed = format!("{own}[tiers.far]\nkind = \"nbd\"\nuri = \"{tier}\"\n[placement]\njournal = \"far\"\n");
    bed.configure(&placed);
    let node = bed.start();
    node.send("M1");
    node.stop();
    let node = bed.start();
    // Closed while the node is at work, it connects again, and nothing that was acknowledged is lost.
    let mut lines: Vec<Value> = Vec::new();
    // One is in the list before its handshake.
    until("all are over TLS", || {
        let listed = bed.run(&["connection", "list", "--port", "export", "--json", "--data"]).succeeds("nbds://");
        lines = serde_json::from_str(&listed).expect("JSON");
        lines.iter().all(|line| line["tls"] == true && line["outgoing"] == true)
    });
    let before = lines.iter().filter_map(|line| line["id"].as_u64()).max().expect("the journal lies there");
    // A node that has just started has some that end by themselves.
    let close = |line: &Value| bed.run(&["connection", "close", &line["id"].to_string(), "--data"]);
    let closed = lines.iter().filter(|line| close(line).printed().contains("connects again by itself")).count();
    assert!(closed > 0, "{lines:?}");
    node.send("M2");
    let lines = bed.run(&["connection", "list", "--port", "export", "--json", "--data"]).succeeds("nbds://");
    let lines: Vec<Value> = serde_json::from_str(&lines).expect("JSON");
    assert!(lines.iter().all(|line| line["id"].as_u64() > Some(before)), "{lines:?}");
    assert_eq!(bed.stored(), ["M1", "M2"]);
    node.stop();
    bed.configure(&placed.replace("authority = \"authority.pem\"\n", ""));
    bed.refuses("set `authority` under [volumes]");
}
