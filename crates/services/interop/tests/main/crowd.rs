//! Many connections without use: silent, half-sent, from addresses that are not allowed. Senders can connect
//! nevertheless.

use std::net::SocketAddr;
use std::time::Duration;

use hl7::mllp;
use node::DoorStatus;
use node::audit::{AuditOutcome, AuditQuery, AuditReader};
use node::identity::{AccessAddress, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use crate::receiver::Accepting;
use crate::rig::{Rig, Running, adt, until};
use crate::sender::Sender;

/// A store for long messages.
fn roomy(mut rig: Rig) -> Rig {
    rig.options.store.cache_bytes = 64 << 20;
    rig.options.store.data_device_bytes = 16 << 20;
    rig
}

/// A service's connections.
pub(crate) fn door(running: &Running, kind: &str) -> DoorStatus {
    let doors = running.status().admission.doors;
    doors.into_iter().find(|door| door.kind == kind).expect("it is served")
}

/// How often connections ended for this reason.
pub(crate) fn ended(running: &Running, reason: &str) -> u64 {
    door(running, "mllp").ended.get(reason).copied().unwrap_or(0)
}

/// So many connections, each of which sends this and nothing more. Those refused are among them.
pub(crate) async fn crowd(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(address).await.expect("it listens");
        // One that was refused is closed already.
        let _ = socket.write_all(bytes).await;
        all.push(socket);
    }
    all
}

/// A sender that tries until it is let in and its message is accepted.
async fn insists(running: &Running, id: &str) -> Sender {
    for _ in 0..600 {
        let mut sender = running.sender().await;
        if let Some(answer) = sender.answer_of(&adt(id)).await {
            assert_eq!(answer.short(), format!("AA {id}"));
            return sender;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no sender gets in");
}

fn half() -> Vec<u8> {
    let mut frame = Vec::new();
    mllp::encode(adt("half").as_bytes(), &mut frame);
    frame.truncate(frame.len() / 2);
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_frames_end_in_time_and_the_service_is_free_again() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "connections = 8\nconnections_per_address = 8\nframe_timeout = \"200ms\"\n");
    let running = rig.start().await;
    let crowd = crowd(running.address("in"), 8, &half()).await;
    until("all have ended", || (ended(&running, "frame_timeout") == 8).then_some(())).await;
    until("all are gone", || (door(&running, "mllp").open == 0).then_some(())).await;
    running.sender().await.accepted(&adt("1")).await;
    assert_eq!((running.status().partial, running.stored().len()), (8, 1));
    drop(crowd);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_and_silent_connections_that_fill_a_service_make_room_for_senders_and_senders_stay() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "connections = 6\nconnections_per_address = 6\n");
    let running = rig.start().await;
    let mut first = running.sender().await;
    first.accepted(&adt("1")).await;
    let half_sent = crowd(running.address("in"), 3, &half()).await;
    let silent = crowd(running.address("in"), 20, b"").await;
    until("some are refused", || door(&running, "mllp").refused.get("address_full").map(|_| ())).await;
    let mut second = insists(&running, "2").await;
    first.accepted(&adt("3")).await;
    second.accepted(&adt("4")).await;
    let door = door(&running, "mllp");
    assert!(door.ended["newcomer"] >= 1 && door.proven == 2 && door.open <= 6, "{door:?}");
    assert_eq!(running.stored().len(), 4);
    drop((half_sent, silent));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_may_have_half_of_a_service_where_nothing_else_is_said() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "connections = 6\n");
    let running = rig.start().await;
    let mut senders = Vec::new();
    for id in ["1", "2", "3"] {
        let mut sender = running.sender().await;
        sender.accepted(&adt(id)).await;
        senders.push(sender);
    }
    assert_eq!(running.sender().await.answer_of(&adt("4")).await, None);
    assert_eq!(door(&running, "mllp").refused, [("address_full".to_owned(), 1)].into());
    for sender in &mut senders {
        sender.accepted(&adt("5")).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_address_is_not_named_is_refused_and_a_reload_names_it() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "peers = [\"10.0.0.0/8\", \"127.0.0.2\"]\n");
    let running = rig.start().await;
    assert_eq!(running.sender().await.answer_of(&adt("1")).await, None);
    assert_eq!(door(&running, "mllp").refused, [("peer".to_owned(), 1)].into());
    rig.service("in", "peers = [\"127.0.0.0/8\"]\n");
    running.request("reload").await.expect("it is right");
    running.sender().await.accepted(&adt("2")).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_rules_decide_from_where_senders_connect_and_who_is_inside_stays() {
    let rule = |address: &str, tls| AccessRule {
        port: AccessPort::Mllp,
        roles: Vec::new(),
        address: AccessAddress::try_from(address.to_owned()).expect("an address"),
        tls,
        method: AccessMethod::Allow,
    };
    let rules = |rule| AccessRules::new(vec![rule]).expect("it can work");
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.access = rules(rule("127.0.0.1", AccessTls::Any));
    let running = rig.start().await;
    let mut inside = running.sender().await;
    inside.accepted(&adt("1")).await;
    for (number, refused) in
        [rule("10.0.0.0/8", AccessTls::Any), rule("local", AccessTls::Required)].into_iter().enumerate()
    {
        running.node.guard().set_access(rules(refused));
        assert_eq!(running.sender().await.answer_of(&adt("2")).await, None, "it is closed");
        assert_eq!(door(&running, "mllp").refused, [("access".to_owned(), number as u64 + 1)].into());
        inside.accepted(&adt(&format!("inside {number}"))).await;
    }
    let audit = running.node.audit();
    let recorded = || {
        audit.wait_visible().expect("it goes on");
        let reader = AuditReader::at(audit.store().snapshot()).expect("it reads");
        let entries = reader.page(&AuditQuery::default()).expect("it reads").entries;
        let mut entries = entries.into_iter().map(|shown| shown.chained.entry);
        entries.find(|entry| entry.origin.protocol == "mllp" && entry.outcome == AuditOutcome::Refused)
    };
    let entry = until("the refusal has an entry", recorded).await;
    assert_eq!(entry.reason, "no access rule for host \"127.0.0.1\", TLS off");
    assert_eq!(entry.details["service"], "in");
    running.node.guard().set_access(AccessRules::default());
    running.sender().await.accepted(&adt("3")).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_long_frames_wait_beyond_the_memory_of_their_service_and_end_in_time() {
    let out = Accepting::start().await;
    let rig = roomy(Rig::to(out.address));
    let settings = "frame_memory = \"4MiB\"\nframe_timeout = \"3s\"\n[intake]\nmessage_bytes = \"16MiB\"\n";
    rig.service("in", settings);
    let running = rig.start().await;
    let address = running.address("in");
    let mut unfinished = vec![b'x'; 12 << 20];
    unfinished[0] = mllp::START;
    let unfinished: std::sync::Arc<[u8]> = unfinished.into();
    let crowd: Vec<_> = (0..20)
        .map(|_| {
            let bytes = std::sync::Arc::clone(&unfinished);
            tokio::spawn(async move {
                let mut socket = TcpStream::connect(address).await.expect("it listens");
                // Where the node reads no more, this waits, until the node ends it.
                let _ = socket.write_all(&bytes).await;
                socket
            })
        })
        .collect();
    let held = || running.status().admission.frame_bytes;
    until("the memory is taken", || (held() >= 4 << 20).then_some(())).await;
    let mut most = 0;
    until("all end in time", || {
        most = most.max(held());
        (ended(&running, "frame_timeout") == 20).then_some(())
    })
    .await;
    // The bound, and one frame that goes on beyond it.
    assert!(most <= (4 + 16) << 20, "{most}");
    until("the memory is given back", || (held() == 0).then_some(())).await;
    let large = format!("{}NTE|1||{}\r", adt("large"), "y".repeat(3 << 20));
    running.sender().await.accepted(&large).await;
    // The acknowledgement may arrive a moment before the frame's memory is given back.
    until("its memory is given back too", || (held() == 0).then_some(())).await;
    drop(crowd);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_frames_of_many_senders_at_once_all_come_in_beyond_the_memory_of_their_service() {
    let out = Accepting::start().await;
    let rig = roomy(Rig::to(out.address));
    rig.service("in", "frame_memory = \"2MiB\"\n");
    let running = rig.start().await;
    let senders: Vec<_> = (0..12)
        .map(|n| {
            let address = running.address("in");
            tokio::spawn(async move {
                let text = format!("{}NTE|1||{}\r", adt(&format!("{n}")), "y".repeat(1_000_000));
                Sender::connect(address).await.answer_of(&text).await.map(|answer| answer.short())
            })
        })
        .collect();
    for (n, sender) in senders.into_iter().enumerate() {
        let answer = sender.await.expect("it does not panic");
        assert_eq!(answer, Some(format!("AA {n}")), "{:#?}", running.status());
    }
    assert_eq!(running.stored().len(), 12);
    until("the memory is given back", || (running.status().admission.frame_bytes == 0).then_some(())).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_to_the_control_socket_make_room_for_who_asks() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(UnixStream::connect(running.node.data().join("control.sock")).await.expect("it listens"));
    }
    until("some are refused", || door(&running, "control").refused.get("address_full").map(|_| ())).await;
    let mut answered = None;
    for _ in 0..600 {
        match running.request("count").await {
            Ok(answer) => answered = Some(answer),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        if answered.is_some() {
            break;
        }
    }
    assert!(answered.is_some(), "nobody can ask");
    assert!(door(&running, "control").ended["newcomer"] >= 1);
    drop(silent);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_have_a_few_lines_in_the_log_about_their_bytes_and_no_more() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    let log = crate::logs::listen();
    let mut senders = Vec::new();
    for count in [500, 1_000] {
        let mut sender = running.sender().await;
        sender.write(&[mllp::START; 501]).await;
        senders.push(sender);
        until("all are counted", || (running.status().partial == count).then_some(())).await;
    }
    let lines: usize = senders.iter().map(|sender| log.count(&[&sender.local(), "began a new frame"])).sum();
    // Twenty in ten seconds; a loaded machine may take longer for it.
    assert!((20..=100).contains(&lines), "{lines}");
    let mut sender = running.sender().await;
    sender.write(&crate::sender::framed(&adt("1"))).await;
    assert_eq!(sender.answer().await.short(), "AA 1");
    running.stop().await;
}
