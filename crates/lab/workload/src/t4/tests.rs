//! The workload's production against its referee, without sockets: the declared transforms give what `expect` expects.

use std::net::{Ipv4Addr, SocketAddr};

use hl7::{Draft, Message};
use interop::lang::{Context, Outcome, Verdict};
use interop::production::Production;

use super::expect::{INTERFACES, expected};
use super::{production, service_name};
use crate::messages::Generator;

const SEED: u64 = 404;

fn load(services: usize) -> Production {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receivers = [SocketAddr::from((Ipv4Addr::LOCALHOST, 9)); INTERFACES.len()];
    production::write(folder.path(), services, &receivers).expect("written");
    Production::load(folder.path()).expect("the production has no faults")
}

#[test]
fn the_production_is_what_is_published_and_draws_no_warning() {
    let production = load(128);
    assert_eq!(production.warnings, Vec::<String>::new());
    assert_eq!(production.services.len(), 128);
    assert!(production.services.contains_key(&service_name(127)));
    let operations: Vec<&str> = production.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(operations, INTERFACES);
}

#[test]
fn each_message_goes_to_all_interfaces_as_the_referee_expects() {
    let production = load(1);
    let rules = production.services[&service_name(0)].rules.clone().expect("the services have rules");
    let mut generator = Generator::new(SEED);
    let mut touched = 0;
    let messages = 1_000;
    for number in 0..messages {
        let sample = generator.sample();
        let message = Message::parse(&sample.bytes).expect("generated messages are valid");
        let context = Context::new(jiff::Timestamp::UNIX_EPOCH, "s000", "unused");
        let decision = rules.decide(&message, &context).expect("the rules hold for every message");
        assert_eq!(decision.verdict, Verdict::Routed);
        let mut to: Vec<usize> = decision.sends.iter().map(|send| send.operation).collect();
        to.sort_unstable();
        assert_eq!(to, [0, 1, 2, 3], "message {number} of seed {SEED}");
        for send in decision.sends {
            let mut draft = Draft::new(&message);
            let transform = send.transform.expect("each interface has a transform");
            let outcome = production.transforms.run(transform, &mut draft, &context).expect("the transform fits");
            assert_eq!(outcome, Outcome::Send);
            touched += draft.touched();
            let mut out = Vec::new();
            draft.write_to(&mut out);
            let expected = expected(send.operation, &sample.bytes);
            assert_eq!(
                String::from_utf8_lossy(&out).replace('\r', "\n"),
                String::from_utf8_lossy(&expected).replace('\r', "\n"),
                "{} of message {number} of seed {SEED}",
                INTERFACES[send.operation]
            );
            assert_eq!(out, expected);
        }
    }
    let mean = touched as f64 / f64::from(messages * 4);
    assert!((3.0..=5.0).contains(&mean), "about four segments change in each transform, here {mean}");
}
