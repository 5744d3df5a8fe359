//! From where connections may come, by the access rules of a node.

use node::audit::AuditOutcome;
use node::identity::{AccessAddress, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls, Action};

use crate::client::{self, Client};
use crate::rig::until;
use crate::rights::{Bench, POLICY, disk, dns};

const ALL: &[Action] = &[Action::VolumeList, Action::VolumeRead, Action::VolumeWrite];

type Parts = (&'static [&'static str], &'static str, AccessTls, AccessMethod);

fn rules(rules: &[Parts]) -> AccessRules {
    let rule = |(roles, address, tls, method): &Parts| AccessRule {
        port: AccessPort::Volumes,
        roles: roles.iter().map(ToString::to_string).collect(),
        address: AccessAddress::try_from((*address).to_owned()).expect("an address"),
        tls: *tls,
        method: *method,
    };
    AccessRules::new(rules.iter().map(rule).collect()).expect("they can work")
}

#[test]
fn the_rules_decide_before_anything_about_exports_shows() {
    let bench = Bench::new(Some("guest"), [disk("disk")]);
    for name in ["guest", "ann", "eve"] {
        bench.create(name, &format!("{name}.example"));
        bench.grant(name, ALL, "volume *");
    }
    let (any, required) = (AccessTls::Any, AccessTls::Required);
    let all: &'static [&'static str] = &[];
    // Whether these open: without a certificate, ann's, eve's, and the node's user by the unix socket.
    let table: [(&[Parts], [bool; 4]); 7] = [
        (&[], [true; 4]),
        (&[(all, "local", any, AccessMethod::Allow)], [true; 4]),
        (&[(all, "10.0.0.0/8", any, AccessMethod::Allow)], [false; 4]),
        (&[(all, "127.0.0.0/8", any, AccessMethod::Allow)], [true, true, true, false]),
        (&[(all, "all", required, AccessMethod::Allow)], [false, true, true, false]),
        (&[(all, "all", any, AccessMethod::Certificate)], [false, true, true, false]),
        (
            &[
                (&["eve"], "all", any, AccessMethod::Reject),
                (&["ann", "terrace_local"], "all", any, AccessMethod::Allow),
            ],
            [false, true, false, true],
        ),
    ];
    let mut inside = bench.plain();
    inside.go("disk").expect("there are no rules yet");
    for (parts, opens) in table {
        bench.guard.set_access(rules(parts));
        let unix = Client::greeted(client::unix(&bench.rig.unix), 3);
        let clients = [bench.plain(), bench.shown(dns("ann.example")), bench.shown(dns("eve.example")), unix];
        for (number, (mut client, opens)) in clients.into_iter().zip(opens).enumerate() {
            let opened = client.go("disk").map(drop);
            assert_eq!(opened, if opens { Ok(()) } else { Err(POLICY) }, "{parts:?} client {number}");
        }
    }
    assert_eq!(inside.read(0, 512).len(), 512, "who is inside stays");
    let refused = || bench.entries().iter().filter(|entry| entry.3 == AuditOutcome::Refused).count();
    until("refusals have entries", || refused() >= 10);
}
