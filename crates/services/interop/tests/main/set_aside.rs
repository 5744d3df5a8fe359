//! Setting a message aside: the next goes on, the order of the others is kept, and nothing is both delivered and set aside.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{CrashShelf, FaultyShelf, MemoryShelf, Operation};
use interop::history::{Filter, OutputState};
use interop::queue::{SetAsideDone, SetAsideOrder, SetAsideRefusal};
use interop::record::DeliveryOutcome;
use interop::rows::check;
use interop::running::SetAsideMessage;
use journal::Preparation;
use tokio::sync::oneshot;

use crate::crash::{images_of, open, seed};
use crate::receiver::{Accepting, Down, Receiver, id_of};
use crate::rig::{Rig, Running, adt, keyed};

/// Suspended by an answer AR.
const SUSPENDS: &str = "[reply]\nAR = \"suspend\"\n";

async fn set_aside(running: &Running, message: Option<u64>) -> Result<SetAsideMessage, String> {
    let message = message.map_or("null".to_owned(), |id| id.to_string());
    let request = format!("set-aside {{\"operation\":\"out\",\"message\":{message},\"reason\":\"unknown patient\"}}");
    let answer = running.request(&request).await.map_err(|error| error.to_string())?;
    Ok(serde_json::from_value(answer).expect("it is one"))
}

/// Orders the first lane of `out` to set a message aside; as the request does, but at this very moment.
fn order(running: &Running, id: u64) -> oneshot::Receiver<Result<SetAsideDone, SetAsideRefusal>> {
    let (answer, answered) = oneshot::channel();
    let order = SetAsideOrder { id, by: "ann".to_owned(), reason: "a test".to_owned(), answer };
    assert!(running.node.engine().plan().queues[0].lanes()[0].order_set_aside(order), "its task runs");
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_message_is_set_aside_durably_the_others_keep_their_order_and_it_can_be_sent_again() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, SUSPENDS);
    let running = rig.start_on_files().await;
    let mut sender = running.sender().await;
    for id in ["poison", "2", "3"] {
        sender.accepted(&adt(id)).await;
    }
    let ids = running.ids();
    for _ in 0..2 {
        receiver.next_is("poison").await.answer("AR");
        crate::rig::until("it is suspended", || running.is_suspended("out").then_some(())).await;
        running.request("resume out").await.expect("it is there");
    }
    receiver.next_is("poison").await.answer("AR");
    crate::rig::until("it is suspended", || running.is_suspended("out").then_some(())).await;
    let done = set_aside(&running, None).await.expect("it waits");
    assert_eq!((done.message, done.outputs, done.next), (ids[0], 1, Some(ids[1])));
    assert!(!done.by.is_empty() && done.at_us > 0, "{done:?}");
    assert!(running.is_suspended("out") && running.waiting("out") == 2);
    assert_eq!(running.status().operations[0].set_aside, 1);
    running.stop().await;
    let running = rig.start_on_files().await;
    assert_eq!(running.waiting("out"), 2, "it is set aside for good");
    running.request("resume out").await.expect("it is there");
    receiver.next_is("2").await.answer("AA");
    receiver.next_is("3").await.answer("AA");
    running.until_outcomes(3).await;
    let outcome = running.reader().outcomes(ids[0]).expect("it reads").remove(0);
    assert_eq!((outcome.outcome, outcome.detail.as_str()), (DeliveryOutcome::SetAside, "unknown patient"));
    assert_eq!(outcome.by, done.by);
    let filter = Filter { output: Some(OutputState::SetAside), ..Filter::default() };
    let lines = rig.history().list(&filter).expect("it lists");
    assert_eq!(lines.iter().map(|line| line.id).collect::<Vec<_>>(), [ids[0]]);
    let counts = rig.history().count().expect("it counts");
    assert_eq!((counts.delivered, counts.failed, counts.set_aside), (2, 0, 1));
    assert_eq!(check::check(&running.reader()).expect("it reads").wrong, 0);
    let again = running.request(&format!("resend {}", ids[0])).await.expect("it is stored").as_u64().expect("an id");
    receiver.next_is("poison").await.answer("AA");
    running.idle("out").await;
    let trace = rig.history().outline(ids[0]).expect("it is there");
    assert_eq!(trace.derived.iter().map(|derived| derived.id).collect::<Vec<_>>(), [again]);
    assert_eq!(trace.deliveries[0].outcome, DeliveryOutcome::SetAside, "the old one stays as it was");
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_answer_is_awaited_is_delivered_or_set_aside_by_that_answer_and_never_both() {
    for (code, is_delivered) in [("AA", true), ("AE", false)] {
        let mut receiver = Receiver::start().await;
        let rig = Rig::to(receiver.address);
        rig.operation("out", receiver.address, "[reply]\nAE = \"retry\"\n");
        let running = rig.start().await;
        let mut sender = running.sender().await;
        sender.accepted(&adt("1")).await;
        sender.accepted(&adt("2")).await;
        let id = running.ids()[0];
        let arrival = receiver.next_is("1").await;
        let mut answered = order(&running, id);
        assert!(answered.try_recv().is_err(), "the answer is waited for");
        arrival.answer(code);
        let told = answered.await.expect("its task runs");
        receiver.next_is("2").await.answer("AA");
        let outcomes = running.until_outcomes(2).await;
        let of_first: Vec<_> = outcomes.iter().filter(|outcome| outcome.id == id).collect();
        assert_eq!(of_first.len(), 1, "{code}: {outcomes:?}");
        let expected = if is_delivered { DeliveryOutcome::Delivered } else { DeliveryOutcome::SetAside };
        assert_eq!(of_first[0].outcome, expected);
        assert!(!of_first[0].detail.contains("unknown"), "{:?}", of_first[0]);
        match told {
            Err(SetAsideRefusal::NotThere) => assert!(is_delivered),
            Ok(done) => assert!(!is_delivered && done.outputs == 1),
            Err(other) => panic!("{other:?}"),
        }
        let why = set_aside(&running, Some(id)).await.expect_err("it waits no more");
        assert!(why.contains("does not wait in operation out"), "{why}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_message_that_was_sent_and_not_answered_it_is_recorded_that_it_may_have_arrived() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "ack_timeout = \"40ms\"\n[retry]\nfirst = \"60s\"\nmax = \"60s\"\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let arrival = receiver.next_is("1").await;
    receiver.closed(arrival.connection).await;
    // It is between two tries: the order ends the pause.
    let done = set_aside(&running, None).await.expect("it waits");
    assert_eq!((done.outputs, done.next), (1, None));
    let outcome = running.until_outcomes(1).await.remove(0);
    let expected = "unknown patient; whether the receiver has it is unknown: no answer within 40ms";
    assert_eq!((outcome.outcome, outcome.detail.as_str()), (DeliveryOutcome::SetAside, expected));
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn which_message_is_set_aside_is_never_guessed() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.operation("out", down.address, "[order]\nkey = \"PID-3.1\"\nlanes = 4\n");
    let running = rig.start().await;
    let why = set_aside(&running, None).await.expect_err("nothing waits");
    assert!(why.contains("nothing waits in operation out"), "{why}");
    let mut sender = running.sender().await;
    for n in 0..16 {
        sender.accepted(&keyed(&format!("m{n}"), &format!("P{n}"))).await;
    }
    let why = set_aside(&running, None).await.expect_err("there are several heads");
    assert!(why.contains("several heads: name the message"), "{why}");
    let ids = running.ids();
    let why = set_aside(&running, Some(ids[0] + 1)).await.expect_err("there is none");
    assert!(why.contains("does not wait in operation out"), "{why}");
    // One from the middle of its lane.
    let done = set_aside(&running, Some(ids[15])).await.expect("it waits");
    assert_eq!(done.message, ids[15]);
    for (request, expected) in [
        (r#"set-aside {"operation":"out","reason":" "}"#, "a reason is needed"),
        (r#"set-aside {"operation":"out"}"#, "missing field `reason`"),
        (r#"set-aside {"operation":"in","reason":"x"}"#, "no operation is called `in`"),
    ] {
        let why = running.request(request).await.expect_err("it is wrong").to_string();
        assert!(why.contains(expected), "{request}: {why}");
    }
    let out = down.up().accepting();
    let mut received = out.received(15).await;
    received.sort();
    assert!(!received.contains(&"m15".to_owned()), "{received:?}");
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_a_message_is_not_set_aside_and_stays_where_it_is() {
    let down = Down::new();
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut rig = Rig::on(shelf.clone());
    rig.options.journal.segment_bytes = 32 << 10;
    rig.options.journal.buffer_bytes = 8 << 10;
    rig.options.journal.preparation = Preparation::Inline;
    rig.options.on_full = interop::running::OnFull::Refuse;
    let running = rig.usual(down.address).start().await;
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let mut sender = running.sender().await;
    let mut accepted = 0;
    while sender.exchange(&adt(&accepted.to_string())).await.at("MSA-1") == "AA" {
        accepted += 1;
        assert!(accepted < 1_000, "the disk is never full");
    }
    // What is left of the segment takes some outcomes, and then no more.
    let mut waiting = accepted;
    let refused = loop {
        let id = running.node.engine().plan().queues[0].lanes()[0].oldest().expect("they wait");
        match order(&running, id).await.expect("its task runs") {
            Ok(_) => waiting -= 1,
            Err(refused) => break refused,
        }
        assert_eq!(running.waiting("out"), waiting);
    };
    assert!(matches!(refused, SetAsideRefusal::NotStored(why) if why.contains("full")));
    assert_eq!(running.waiting("out"), waiting, "it stays");
    shelf.heal();
    let out = down.up().accepting();
    assert_eq!(out.received(waiting).await.len(), waiting);
    running.stop().await;
}

/// The receiver refuses every second message.
fn is_poison(id: &str) -> bool {
    id.starts_with('p')
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_point_a_message_is_set_aside_or_waits_and_never_goes_out_once_that_was_acknowledged() {
    let mut random = fastrand::Rng::with_seed(seed() ^ 0xa51de);
    let shelf = Arc::new(CrashShelf::new(seed()));
    let rig_on = |shelf: Arc<CrashShelf>, address| {
        let mut rig = Rig::on(shelf);
        rig.options.journal.segment_bytes = 32 << 10;
        rig.options.journal.buffer_bytes = 8 << 10;
        rig.options.journal.preparation = Preparation::Inline;
        rig.usual(address).operation("out", address, SUSPENDS);
        rig
    };
    let mut receiver = Receiver::start().await;
    let rig = rig_on(shelf.clone(), receiver.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let names: Vec<String> = (0..12).map(|n| if n % 2 == 0 { format!("p{n}") } else { format!("m{n}") }).collect();
    for name in &names {
        sender.accepted(&adt(name)).await;
    }
    // Operations of the shelf by the time each was acknowledged as set aside.
    let mut acknowledged = Vec::new();
    for name in &names {
        let arrival = receiver.next_is(name).await;
        if is_poison(name) {
            arrival.answer("AR");
            crate::rig::until("it is suspended", || running.is_suspended("out").then_some(())).await;
            set_aside(&running, None).await.expect("it waits");
            acknowledged.push((name.clone(), shelf.operations()));
            running.request("resume out").await.expect("it is there");
        } else {
            arrival.answer("AA");
        }
    }
    running.until_outcomes(names.len()).await;
    running.stop().await;
    let end = shelf.operations();
    let mut points: Vec<usize> = acknowledged.iter().flat_map(|(_, at)| [at - 1, *at]).collect();
    points.extend((0..10).map(|_| random.usize(..=end)));
    for point in points {
        for image in images_of(&shelf, point, &mut random) {
            let reader = open(&image).unwrap_or_else(|error| panic!("{image}: {error}"));
            assert_eq!(check::check(&reader).expect("it reads").wrong, 0, "{image}");
            let due: BTreeSet<u64> = reader.pending().expect("it reads").into_keys().collect();
            let (mut waits, mut all) = (Vec::new(), reader.by_time(None, None, store::Direction::Forward));
            while let Some((_, id, _)) = all.next().expect("it reads") {
                let name = id_of(&reader.message(id).expect("it is whole").raw);
                let outcomes = reader.outcomes(id).expect("it reads");
                let is_acknowledged = acknowledged.iter().any(|(known, at)| *known == name && *at <= point);
                assert_eq!(outcomes.is_empty(), due.contains(&id), "{image}: {name} waits or has an outcome");
                assert!(!is_acknowledged || !outcomes.is_empty(), "{image}: {name} was acknowledged as set aside");
                let is_aside = |outcome: DeliveryOutcome| outcome == DeliveryOutcome::SetAside;
                assert!(outcomes.iter().all(|found| is_aside(found.outcome) == is_poison(&name)), "{image}: {name}");
                let is_delivered = outcomes.iter().any(|found| found.outcome == DeliveryOutcome::Delivered);
                let overtaken = waits.iter().any(|name: &String| is_poison(name));
                assert!(!is_delivered || !overtaken, "{image}: {name} went ahead of one that waits: {waits:?}");
                if outcomes.is_empty() {
                    waits.push(name);
                }
            }
            drop((all, reader));
            let out = Accepting::start().await;
            let rig = rig_on(Arc::new(image.shelf()), out.address);
            let running = rig.start().await;
            running.request("resume out").await.expect("it is there");
            running.idle("out").await;
            assert_eq!(out.ids(), waits, "{image}: what waits goes out in order, and nothing else");
            running.stop().await;
        }
    }
}
