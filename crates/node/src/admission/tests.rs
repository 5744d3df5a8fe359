//! Places come back, what is refused is counted, waiting for memory, and closing from outside.

use super::*;
use crate::connections::OPERATION_KIND;

fn bounds() -> Bounds {
    Bounds::of(2, None)
}

/// A connection of an address, with a descriptor of this number.
fn from(origin: u32, number: RawFd) -> Incoming {
    let peer = SocketAddr::from((origin.to_be_bytes(), 9));
    Incoming { origin: Origin::V4(origin), number: Some(number), remote: RemoteEnd::Peer(peer), name: None }
}

#[test]
fn of_one_address_half_may_come_where_nothing_else_is_said() {
    for (sockets, of_address, expected) in
        [(256, None, 128), (1, None, 1), (5, None, 3), (10, Some(10), 10), (10, Some(99), 10)]
    {
        assert_eq!(Bounds::of(sockets, of_address), Bounds { sockets, of_address: expected });
    }
}

#[tokio::test]
async fn a_place_comes_back_with_its_connection_and_what_was_refused_is_counted() {
    let admission = Admission::new(Descriptors::of(1024), 1 << 20);
    let door = admission.door("mllp", "in", bounds());
    let permit = |origin| door.let_in(from(origin, 10), bounds());
    let first = permit(1).expect("there is room");
    let second = permit(2).expect("there is room");
    assert!(permit(1).is_none() && permit(3).is_none());
    assert!(door.let_in(from(4, 1000), Bounds::of(9, None)).is_none(), "that one is storage's");
    drop(first);
    assert!(permit(3).is_some());
    let [status] = &admission.status().doors[..] else { panic!("one service") };
    assert_eq!((status.open, status.proven), (1, 0));
    let refused = [("address_full", 1), ("descriptors", 1), ("full", 1)].map(|(reason, n)| (reason.to_owned(), n));
    assert_eq!(status.refused, refused.into());
    drop(second);
    drop(door);
    assert!(admission.status().doors.is_empty(), "a service that is gone is not shown");
}

#[tokio::test]
async fn a_connection_that_is_closed_gives_its_place_at_once_and_is_in_the_list_until_it_has_ended() {
    let admission = Admission::new(Descriptors::of(1024), 1 << 20);
    let door = admission.door("mllp", "in", Bounds::of(1, Some(1)));
    let permit = |origin| door.let_in(from(origin, 10), Bounds::of(1, Some(1)));
    let mut stuck = permit(1).expect("there is room");
    stuck.prove();
    assert!(permit(2).is_none(), "it is proven, and keeps its place");
    let listed = admission.connections().list(Some("mllp"));
    assert_eq!((listed.len(), listed[0].service()), (1, "in"));
    admission.close(&listed[0]).expect("it has no socket here");
    assert_eq!(stuck.ended().await, Reason::Closed);
    let next = permit(2).expect("the place is free");
    assert_eq!(admission.connections().list(None).len(), 2);
    drop(stuck);
    let left: Vec<u64> = admission.connections().list(None).iter().map(|one| one.id()).collect();
    assert_eq!(left, [next.connection().id()]);
    let [status] = &admission.status().doors[..] else { panic!("one service") };
    assert_eq!(status.ended.get("closed"), Some(&1));
}

#[test]
fn an_outgoing_connection_leaves_the_list_when_it_was_ended_and_stays_there_where_it_could_not_be() {
    let admission = Admission::new(Descriptors::of(1024), 1 << 20);
    let registry = admission.connections();
    let (left, _right) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let ended = registry.outgoing((OPERATION_KIND, "lab"), "lab:2575", &left);
    let nameless = registry.add((OPERATION_KIND, "x-ray"), RemoteEnd::Named("x-ray:2575".into()), None);
    admission.close(ended.connection()).expect("the system does not refuse");
    let error = admission.close(&nameless).expect_err("nothing ends it").to_string();
    assert!(error.contains("descriptor") && !nameless.line(0, |_| None, |_| false).closing, "{error}");
    let left: Vec<u64> = registry.list(None).iter().map(|one| one.id()).collect();
    assert_eq!(left, [nameless.id()], "nobody has ended it: it is still open");
}

#[tokio::test]
async fn a_connection_that_waits_for_memory_gets_it_when_another_gives_it_back_or_ends() {
    let admission = Admission::new(Descriptors::of(1024), 1 << 20);
    let door = admission.door("mllp", "in", Bounds::of(9, Some(9)));
    let permit = |origin| door.let_in(from(origin, 10), Bounds::of(9, Some(9)));
    let [mut first, mut second, mut third] = [1, 2, 3].map(|origin| permit(origin).expect("there is room"));
    first.hold(1 << 20, 1 << 20).await.expect("within the bound");
    second.hold(1 << 20, 1 << 20).await.expect("one goes beyond it");
    assert_eq!(admission.status().frame_bytes, 2 << 20);
    let waits = tokio::spawn(async move {
        third.hold(1 << 20, 1 << 20).await.expect("none is ended");
        third
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    second.release();
    let third = waits.await.expect("it got some");
    assert_eq!(admission.status().frame_bytes, 2 << 20);
    let waits = tokio::spawn(async move {
        second.hold(1 << 20, 1 << 20).await.expect("none is ended");
        second
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    drop(third);
    let mut second = waits.await.expect("it got some");
    second.release();
    first.release();
    assert_eq!(admission.status().frame_bytes, 0);
}
