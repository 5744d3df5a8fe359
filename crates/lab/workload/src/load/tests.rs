//! The load against a substitute for the node, which can be set to misbehave: proof that the checks can fail.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::t4::expect;

/// The fault of the substitute, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Message 3 of service 1 goes to interface 2 with a byte changed.
    WrongByte,
    /// ... does not go to interface 2.
    Lose,
    /// ... goes to interface 2 twice.
    Duplicate,
    /// ... goes to interface 2 after message 4.
    Swap,
    /// ... is refused the first time.
    Refuse,
    /// ... is acknowledged under another control id first.
    WrongAcknowledgement,
    /// ... is forwarded, but the connection is cut instead of acknowledging it.
    Cut,
    /// ... goes to interface 2 with a byte between frames.
    Junk,
    /// A message that was not sent goes to interface 2.
    Foreign,
}

const FAULTY: (usize, usize) = (1, 3);
const PLAN: Plan =
    Plan { services: 3, messages: 40, interfaces: 4, bodies: 17, seed: 42, crash_window: Duration::ZERO };

/// Accepts for every service, forwards to every receiver; its threads end with their connections.
fn stand_in(receivers: &[SocketAddr], services: usize, fault: Fault) -> Vec<SocketAddr> {
    let queues: Vec<mpsc::Sender<Vec<u8>>> = receivers
        .iter()
        .enumerate()
        .map(|(interface, address)| {
            let (sender, queue) = mpsc::channel();
            let address = *address;
            thread::spawn(move || forward(address, &queue, interface, fault));
            sender
        })
        .collect();
    let service = |_| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let queues = queues.clone();
        thread::spawn(move || {
            let mut once = fault;
            for stream in listener.incoming().flatten() {
                serve(stream, &queues, &mut once);
            }
        });
        address
    };
    (0..services).map(service).collect()
}

/// Reads frames and acknowledges them, until the peer goes.
fn serve(mut stream: TcpStream, queues: &[mpsc::Sender<Vec<u8>>], fault: &mut Fault) {
    while let Some(message) = read_frame(&mut stream) {
        let id = control_id_of(&message);
        let hit = crate::messages::control_id::read(id.as_bytes()) == Some(FAULTY);
        let now = if hit { std::mem::replace(fault, Fault::None) } else { Fault::None };
        if now == Fault::Refuse {
            write_ack(&mut stream, "AE", &id);
            continue;
        }
        for (interface, queue) in queues.iter().enumerate() {
            queue.send(expect::expected(interface, &message)).expect("the forwarder lives");
        }
        match now {
            Fault::Cut => return,
            Fault::WrongAcknowledgement => write_ack(&mut stream, "AA", "T4-001-0000002"),
            _ => {}
        }
        write_ack(&mut stream, "AA", &id);
    }
}

fn forward(address: SocketAddr, queue: &mpsc::Receiver<Vec<u8>>, interface: usize, fault: Fault) {
    let mut late = None;
    let mut stream = TcpStream::connect(address).expect("the receiver listens");
    let mut deliver = |message: &[u8], junk: &[u8]| {
        let framed = [junk, b"\x0b", message, b"\x1c\r"].concat();
        // A receiver that has seen a fault of framing closes the connection.
        if stream.write_all(&framed).is_err() || read_frame(&mut stream).is_none() {
            stream = TcpStream::connect(address).expect("the receiver listens");
        }
    };
    while let Ok(mut message) = queue.recv() {
        let hit =
            interface == 2 && crate::messages::control_id::read(control_id_of(&message).as_bytes()) == Some(FAULTY);
        let mut junk: &[u8] = b"";
        match fault {
            Fault::WrongByte if hit => *message.iter_mut().rev().nth(3).expect("long") ^= 1,
            Fault::Lose if hit => continue,
            Fault::Duplicate if hit => deliver(&message, b""),
            Fault::Swap if hit => {
                late = Some(message);
                continue;
            }
            Fault::Junk if hit => junk = b"?",
            Fault::Foreign if hit => {
                let text = String::from_utf8_lossy(&message).replace("T4-001-0000003", "T4-001-0000999");
                deliver(text.as_bytes(), b"");
            }
            _ => {}
        }
        deliver(&message, junk);
        if control_id_of(&message) == "T4-001-0000004"
            && let Some(late) = late.take()
        {
            deliver(&late, b"");
        }
    }
}

fn control_id_of(message: &[u8]) -> String {
    String::from_utf8_lossy(message).split('|').nth(9).expect("a header").to_owned()
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    let mut byte = [0];
    while !frame.ends_with(b"\x1c\r") {
        match stream.read(&mut byte) {
            Ok(1) => frame.push(byte[0]),
            _ => return None,
        }
    }
    Some(frame[1..frame.len() - 2].to_vec())
}

fn write_ack(stream: &mut TcpStream, code: &str, id: &str) {
    let ack = format!("\x0bMSH|^~\\&|HUB|T|A|B|20260101||ACK|1|P|2.5\rMSA|{code}|{id}\r\x1c\r");
    stream.write_all(ack.as_bytes()).expect("the sender waits for it");
}

/// The account of a run in which the node has one fault: the counts, the deliveries that never come.
fn blame(fault: Fault) -> (Counts, u64) {
    let messages = (PLAN.services * PLAN.messages) as u64;
    let clean = Counts { sent: messages, acknowledged: messages, delivered: 4 * messages, ..Counts::default() };
    match fault {
        Fault::None => (clean, 0),
        Fault::WrongByte => (Counts { wrong: 1, ..clean }, 0),
        Fault::Lose => (Counts { delivered: 4 * messages - 1, ..clean }, 1),
        Fault::Duplicate => (Counts { duplicated: 1, ..clean }, 0),
        Fault::Swap => (Counts { out_of_order: 1, ..clean }, 0),
        Fault::Refuse => (Counts { refused: 1, resends: 1, ..clean }, 0),
        Fault::WrongAcknowledgement => (Counts { bad_acknowledgements: 1, ..clean }, 0),
        // The message is sent again: four deliveries twice, which a resend excuses.
        Fault::Cut => (Counts { resends: 1, duplicated: 4, excused: 4, ..clean }, 0),
        // The forwarder drops the message and connects again.
        Fault::Junk => (Counts { framing: 1, delivered: 4 * messages - 1, ..clean }, 1),
        Fault::Foreign => (Counts { foreign: 1, wrong: 1, ..clean }, 0),
    }
}

/// Runs the load until the account is as it should be; a minute without that is a failure.
fn run(fault: Fault) -> Load {
    let mut load = Load::new(PLAN, expect::expected).expect("loopback ports");
    let receivers = load.receivers().expect("bound");
    load.aim(stand_in(&receivers, PLAN.services, fault));
    load.go();
    let begun = Instant::now();
    while load.account().counts() != blame(fault).0 && begun.elapsed() < Duration::from_secs(60) {
        load.step(Duration::from_millis(10)).expect("epoll");
    }
    load
}

#[test]
fn a_faultless_node_leaves_a_clean_account() {
    let load = run(Fault::None);
    assert!(load.is_over());
    assert_eq!(load.account().counts(), blame(Fault::None).0, "{:?}", load.account().examples());
    assert_eq!((load.account().lost(), load.account().partial()), (0, 0));
    assert_eq!(load.latency().count(), 120);
    assert!(load.elapsed() > Duration::ZERO);
}

#[test]
fn each_fault_of_a_node_is_seen_and_named() {
    for fault in [
        Fault::WrongByte,
        Fault::Lose,
        Fault::Duplicate,
        Fault::Swap,
        Fault::Refuse,
        Fault::WrongAcknowledgement,
        Fault::Cut,
        Fault::Junk,
        Fault::Foreign,
    ] {
        let load = run(fault);
        let (expected, lost) = blame(fault);
        assert_eq!(load.account().counts(), expected, "{fault:?}: {:?}", load.account().examples());
        assert_eq!(load.account().lost(), lost, "{fault:?}");
        assert_eq!(load.is_over(), lost == 0, "{fault:?}");
        assert_eq!(load.account().examples().is_empty(), fault == Fault::Cut, "{fault:?}");
    }
}

#[test]
fn a_held_load_finishes_what_it_has_begun() {
    let mut load = Load::new(Plan { messages: 1_000_000, ..PLAN }, expect::expected).expect("loopback ports");
    let receivers = load.receivers().expect("bound");
    load.aim(stand_in(&receivers, PLAN.services, Fault::None));
    load.go();
    while load.account().counts().acknowledged < 30 {
        load.step(Duration::from_millis(10)).expect("epoll");
    }
    load.hold();
    while !load.is_over() {
        load.step(Duration::from_millis(10)).expect("epoll");
    }
    let counts = load.account().counts();
    assert_eq!((counts.sent, counts.delivered), (counts.acknowledged, 4 * counts.acknowledged));
}
