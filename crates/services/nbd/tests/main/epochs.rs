//! Epochs: an owner that is no longer one does nothing any more when the new one is answered.

use std::sync::Arc;
use std::time::Duration;

use nbd::{EpochGate, Export, ServerOptions};
use parking_lot::{Condvar, Mutex};

use crate::client::{self, Client, STATUS, WRITE};
use crate::rig::{Probe, Rig, memory, until};

const POLICY: u32 = 0x8000_0002;
const UNKNOWN: u32 = 0x8000_0006;

/// Keeps an epoch in memory; raising it can be held back, or fail.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    current: u64,
    is_held: bool,
    waiting: usize,
    fails: bool,
}

impl Gate {
    fn at(current: u64) -> Arc<Gate> {
        Arc::new(Gate { state: Mutex::new(State { current, ..State::default() }), change: Condvar::new() })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.change.notify_all();
    }
}

impl EpochGate for Gate {
    fn current(&self) -> u64 {
        self.state.lock().current
    }

    fn raise(&self, epoch: u64) -> Result<(), String> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.change.wait_while(&mut state, |state| state.is_held);
        if state.fails {
            return Err("the disk is full".to_owned());
        }
        state.current = epoch;
        Ok(())
    }
}

fn export(gate: &Arc<Gate>, probe: &Arc<Probe>) -> Export {
    Export { epochs: Some(Arc::clone(gate) as _), ..Export::new("vol/b", Arc::clone(probe) as _) }
}

fn rig(gate: &Arc<Gate>, probe: &Arc<Probe>) -> Rig {
    Rig::new([export(gate, probe), Export::new("plain", memory(4096))])
}

fn greeted(rig: &Rig) -> Client {
    Client::greeted(client::unix(&rig.unix), 3)
}

#[test]
fn a_name_opens_under_the_epoch_in_force_or_a_higher_one_and_no_other_way() {
    let (gate, probe) = (Gate::at(5), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    let mut client = greeted(&rig);
    for (name, expected) in [
        ("vol/b@4", POLICY),
        ("vol/b@0", POLICY),
        ("vol/b@", UNKNOWN),
        ("vol/b@-6", UNKNOWN),
        ("vol/b@6 ", UNKNOWN),
        ("vol/b@18446744073709551615", POLICY),
        ("vol/b@4503599627370502", POLICY),
        ("vol/b@99999999999999999999", UNKNOWN),
        ("plain@5", UNKNOWN),
        ("none@5", UNKNOWN),
    ] {
        assert_eq!(client.go(name), Err(expected), "{name}");
        let look = client.negotiate(6, &client::named(name, &[]));
        assert_eq!(look.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [expected], "{name}");
    }
    // Looking at a higher epoch does not raise it.
    assert_eq!(client.negotiate(6, &client::named("vol/b@9", &[])).last().map(|(kind, _)| *kind), Some(client::ACK));
    assert_eq!((gate.current(), gate.state.lock().waiting), (5, 0));
    assert_eq!(gate.current(), 5, "what is too far ahead is of no owner, and keeps none out");
    for epoch in [5, 6, 6, 8] {
        greeted(&rig).go(&format!("vol/b@{epoch}")).expect("opens");
        assert_eq!(gate.current(), epoch);
    }
    assert_eq!(gate.state.lock().waiting, 2, "it is raised twice");
    assert_eq!(client.go("vol/b@7"), Err(POLICY), "what was in force is over");
    let status = rig.server().status();
    assert_eq!(status.iter().map(|status| status.epoch).collect::<Vec<_>>(), [None, Some(8)]);
    // A copy that was away for a million owners is opened by the next one.
    greeted(&rig).go("vol/b@4503599627370504").expect("opens");
}

#[test]
fn a_client_without_an_epoch_may_read_and_nothing_else_and_raises_none() {
    let (gate, probe) = (Gate::at(5), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    let mut owner = rig.simple("vol/b@5");
    assert_eq!(owner.write(0, b"owned"), 0);
    let mut looking = rig.simple("vol/b");
    assert_eq!(looking.read(0, 5), b"owned");
    assert_eq!(looking.write(0, b"other"), 1, "EPERM");
    assert_eq!(looking.request(0, client::ZEROES, 0, 4096, &[]).error, 1, "EPERM");
    assert_eq!(owner.read(0, 5), b"owned");
    assert_eq!(gate.current(), 5);
    let facts = greeted(&rig).go("vol/b").expect("opens");
    assert_eq!(facts.flags & 2, 2, "it is said to be read-only");
}

#[test]
fn a_higher_epoch_is_kept_before_its_client_is_answered() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    gate.change(|state| state.is_held = true);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| greeted(&rig).go("vol/b@2").map(|_| gate.current()));
        until("it is being kept", || gate.state.lock().waiting == 1);
        // Nobody else waits for the medium of the gate.
        greeted(&rig).go("plain").expect("opens");
        std::thread::sleep(Duration::from_millis(50));
        assert!(!opening.is_finished(), "no answer before it is kept");
        gate.change(|state| state.is_held = false);
        assert_eq!(opening.join().expect("no panic"), Ok(2));
    });
}

#[test]
fn an_epoch_that_cannot_be_kept_is_refused_and_changes_nothing() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    let mut owner = rig.simple("vol/b@1");
    gate.change(|state| state.fails = true);
    assert_eq!(greeted(&rig).go("vol/b@2"), Err(POLICY));
    assert_eq!(owner.write(0, b"still"), 0);
    assert_eq!(rig.simple("vol/b@1").read(0, 5), b"still");
}

#[test]
fn a_higher_epoch_ends_the_sessions_of_older_ones_and_no_write_of_theirs_comes_after_it() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    let mut old = [rig.simple("vol/b@1"), rig.simple("vol/b@1")];
    probe.hold();
    old[0].begin(0, WRITE, 0, 4096, &[1; 4096]);
    probe.wait_for(1);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let mut client = greeted(&rig);
            client.go("vol/b@2").map(|_| client)
        });
        assert_eq!(old[1].until_end(), b"", "an idle one is cut at once");
        old[0].try_send(&client::request(0, WRITE, 7, 4096, 0));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!opening.is_finished(), "a write of the old owner is in the device");
        probe.release();
        let mut new = opening.join().expect("no panic").expect("opens");
        assert_eq!(probe.seen().len(), 1, "what was in the device ended before the answer");
        assert_eq!(rig.sessions(), 1);
        assert_eq!(old[0].until_end(), b"", "the old owner learns nothing more");
        assert_eq!(new.write(0, &[2; 4096]), 0);
        assert_eq!(new.read(0, 4096), [2; 4096]);
    });
}

#[test]
fn a_second_try_to_open_a_higher_epoch_waits_for_the_old_owner_too() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let options = ServerOptions { workers: 2, handshake: Duration::from_millis(300), ..ServerOptions::default() };
    let rig = Rig::with(options, [export(&gate, &probe)]);
    let mut old = rig.simple("vol/b@1");
    probe.hold();
    old.begin(0, WRITE, 0, 4096, &[1; 4096]);
    probe.wait_for(1);
    for attempt in 0..2 {
        let mut client = greeted(&rig);
        client.send(&client::option(7, &client::named("vol/b@2", &[])));
        assert_eq!(client.until_end(), b"", "attempt {attempt}: a write of the old owner is in the device");
        assert_eq!(gate.current(), 2, "it was kept");
    }
    probe.release();
    let mut new = rig.simple("vol/b@2");
    assert_eq!(new.read(0, 4096), [1; 4096], "all of the old owner's comes before");
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn an_epoch_that_is_being_kept_is_kept_alone_though_its_client_is_gone() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let options = ServerOptions { workers: 2, handshake: Duration::from_millis(300), ..ServerOptions::default() };
    let rig = Rig::with(options, [export(&gate, &probe)]);
    gate.change(|state| state.is_held = true);
    for epoch in [3, 2] {
        let mut client = greeted(&rig);
        client.send(&client::option(7, &client::named(&format!("vol/b@{epoch}"), &[])));
        assert_eq!(client.until_end(), b"", "its time limit ends it");
        assert_eq!(gate.state.lock().waiting, 1, "a lower epoch must not be written after a higher one");
    }
    gate.change(|state| state.is_held = false);
    until("it is kept", || gate.current() == 3);
    assert_eq!(greeted(&rig).go("vol/b@2"), Err(POLICY));
    greeted(&rig).go("vol/b@3").expect("opens");
}

#[test]
fn many_sessions_of_older_epochs_end_while_a_higher_one_waits_for_them() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    for epoch in 1..25 {
        let mut old: Vec<_> = (0..40).map(|_| rig.simple(&format!("vol/b@{epoch}"))).collect();
        let mut new = rig.simple(&format!("vol/b@{}", epoch + 1));
        assert_eq!(rig.sessions(), 1);
        old.iter_mut().for_each(|client| assert_eq!(client.until_end(), b""));
        assert_eq!(new.read(0, 512), [0; 512]);
    }
}

#[test]
fn the_context_of_epochs_reports_the_epoch_of_the_session() {
    let (gate, probe) = (Gate::at(1), Probe::new(1 << 20));
    let rig = rig(&gate, &probe);
    let contexts = ["base:allocation", "terrace:epoch"];
    let mut client = Client::open(client::unix(&rig.unix), "vol/b@7", Some(&contexts));
    let reply = client.request(0, STATUS, 5, 1000, &[]);
    assert_eq!(reply.status, [(1, vec![(1000, 3)]), (2, vec![(1000, 7)])]);
    let mut client = Client::open(client::unix(&rig.unix), "vol/b@7", Some(&contexts[1..]));
    assert_eq!(client.request(0, STATUS, 5, 1000, &[]).status, [(2, vec![(1000, 7)])]);
    let mut plain = greeted(&rig);
    plain.negotiate(8, &[]);
    let answers = plain.negotiate(10, &client::queries("plain", &contexts));
    assert_eq!(answers.len(), 2, "an export without epochs has no such context: {answers:?}");
}
