//! Queue and message log by themselves, without sockets.

use std::sync::Arc;

use bytes::Bytes;
use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use interop::message_log::{Destination, MessageLog, Refusal};
use interop::production::{self, settings};
use interop::queue::{Entry, Queue};
use interop::record::{self, Delivery, DeliveryOutcome};
use store::{Options, Places, Store};
use tokio::task::JoinHandle;

fn queue(settings: &str) -> Arc<Queue> {
    let text = format!("kind = \"mllp\"\naddress = \"h:1\"\n{settings}");
    let settings = settings::OperationSettings::Mllp(toml::from_str(&text).expect("settings"));
    let key = Some("PID-3.1".parse().expect("a path"));
    let operation = production::Operation { name: "out".to_owned(), settings, key, tls: None };
    Arc::new(Queue::new(Arc::new(operation), None))
}

fn entry(id: u64, bytes: usize) -> Entry {
    Entry { id, output: 0, charset: None, body: Some(Bytes::from(vec![b'x'; bytes])), received_us: id as i64 }
}

#[tokio::test]
async fn entries_leave_a_lane_from_its_head_and_make_room() {
    let queue = queue("[queue]\nmessages = 2\n");
    for id in [1, 2] {
        queue.room().await;
        queue.reserve();
        queue.push(0, entry(id, 10));
    }
    assert_eq!((queue.depth(), queue.memory(), queue.oldest()), (2, 20, Some(1)));
    let mut waits = std::pin::pin!(queue.room());
    assert!(once(waits.as_mut()).await.is_none(), "two are the bound");
    let head = queue.lanes()[0].head().await;
    assert_eq!(head.id, 1);
    assert_eq!(queue.lanes()[0].head().await.id, 1, "it stays until its outcome is known");
    queue.done(0, &head);
    waits.await;
    assert_eq!((queue.depth(), queue.memory(), queue.oldest()), (1, 10, Some(2)));
}

/// Polls once.
async fn once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    tokio::select! {
        biased;
        out = &mut future => Some(out),
        () = std::future::ready(()) => None,
    }
}

#[tokio::test]
async fn a_change_of_orders_lets_those_in_who_wait_for_a_larger_bound() {
    let small = queue("[queue]\nmessages = 1\n");
    small.reserve();
    let mut waits = std::pin::pin!(small.room());
    assert!(once(waits.as_mut()).await.is_none());
    let larger = queue("[queue]\nmessages = 2\n").orders().borrow().operation.clone();
    small.order(|orders| orders.operation = larger);
    waits.await;
}

#[test]
fn beyond_the_memory_bound_only_the_body_is_left_in_the_journal() {
    let queue = queue("[queue]\nmemory = \"1KiB\"\n");
    for id in 0..4 {
        queue.reserve();
        queue.push(0, entry(id, 400));
    }
    assert_eq!((queue.depth(), queue.memory()), (4, 800), "the third and fourth would go beyond it");
    assert_eq!(queue.lanes()[0].len(), 4);
}

#[test]
fn a_key_has_one_lane_whatever_else_there_is() {
    let queue = queue("[order]\nkey = \"PID-3.1\"\nlanes = 8\n");
    let lanes: Vec<usize> = (0..1_000u64).map(|hash| queue.lane_of(hash)).collect();
    assert_eq!(lanes, (0..1_000u64).map(|hash| queue.lane_of(hash)).collect::<Vec<_>>());
    assert!((0..8).all(|lane| lanes.contains(&lane)));
}

/// 1 MiB of memory for bodies: a receiver with more than 64 KiB before it is behind.
fn behind() -> Arc<Queue> {
    let queue = queue("[queue]\nmemory = \"1MiB\"\n");
    queue.flows(true);
    for id in 0..70 {
        queue.reserve();
        queue.push(0, entry(id, 1_000));
    }
    queue
}

#[tokio::test]
async fn messages_wait_a_moment_for_a_receiver_that_is_behind_until_it_has_caught_up() {
    let queue = behind();
    let mut waits = std::pin::pin!(queue.room());
    assert!(once(waits.as_mut()).await.is_none(), "it waits");
    for _ in 0..5 {
        let head = queue.lanes()[0].head().await;
        queue.done(0, &head);
    }
    assert!(once(waits.as_mut()).await.is_some(), "the receiver has 65,000 bytes before it");
}

#[tokio::test]
async fn a_receiver_that_makes_no_room_in_time_is_not_waited_for_again_soon() {
    let queue = behind();
    queue.room().await;
    assert!(once(std::pin::pin!(queue.room())).await.is_some(), "the first wait was of no use");
    queue.flows(false);
    assert!(once(std::pin::pin!(queue.room())).await.is_some(), "one that takes nothing is never waited for");
}

#[test]
fn bodies_share_the_memory_of_their_record_while_few_wait_and_are_copied_when_many_do() {
    let queue = queue("[queue]\nmemory = \"8KiB\"\n");
    let record = Bytes::from(vec![b'x'; 4_000]);
    let shares = |number: u16| {
        queue.reserve();
        let body = Some(record.slice(..800));
        queue.push(0, Entry { id: u64::from(number), output: 0, charset: None, body, received_us: 1 });
        let held = queue.lanes()[0].held(usize::from(number) + 1, usize::MAX);
        held.last().expect("there is one").1.as_ptr() == record.as_ptr()
    };
    assert_eq!([0, 1, 2, 3].map(shares), [true, true, false, false], "more than 1 KiB waits before the third");
}

fn message_log(shelf: Arc<dyn Shelf>) -> (Arc<MessageLog>, JoinHandle<()>) {
    let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
    let journal = journal::Options { segment_bytes: 1 << 20, ..journal::Options::default() };
    let (store, _) = Store::open(places, Options { journal, ..Options::default() }).expect("opens");
    let message_log = MessageLog::new(store);
    let hand_over = message_log.start().expect("there is room for a thread");
    (message_log, hand_over)
}

fn destination(queue: &Arc<Queue>) -> Vec<Destination> {
    queue.reserve();
    vec![Destination { queue: Arc::clone(queue), lane: 0, entry: entry(0, 1) }]
}

async fn end(message_log: &MessageLog, hand_over: JoinHandle<()>) {
    message_log.close();
    hand_over.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_reach_the_queue_in_the_order_of_their_records_whoever_submits() {
    let queue = queue("");
    let (message_log, hand_over) = message_log(Arc::new(MemoryShelf::new()));
    let submitters: Vec<_> = (0..4)
        .map(|_| {
            let (message_log, queue) = (Arc::clone(&message_log), Arc::clone(&queue));
            std::thread::spawn(move || {
                for _ in 0..250 {
                    let durable = message_log
                        .submit(Bytes::from_static(b"a record"), destination(&queue))
                        .expect("there is room");
                    let lsn = durable.blocking_recv().expect("it becomes durable");
                    assert!(message_log.store().durable() > lsn);
                }
            })
        })
        .collect();
    submitters.into_iter().for_each(|submitter| submitter.join().expect("it ends"));
    let mut last = 0;
    for _ in 0..1_000 {
        let head = queue.lanes()[0].head().await;
        assert!(head.id >= last, "overtaken");
        last = head.id;
        queue.done(0, &head);
    }
    assert!(message_log.barrier().expect("it works").is_none(), "nothing waits");
    end(&message_log, hand_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_written_by_themselves_and_before_the_message_log_closes() {
    let shelf = Arc::new(MemoryShelf::new());
    let (message_log, hand_over) = message_log(shelf.clone());
    for output in 0..10_000u16 {
        message_log.record_outcome(Delivery {
            id: 8,
            output,
            outcome: DeliveryOutcome::Delivered,
            by: String::new(),
            at_us: 0,
            detail: String::new(),
        });
    }
    end(&message_log, hand_over).await;
    let journal = message_log.store().journal();
    let outputs: Vec<u16> = journal
        .read(journal.first())
        .map(|record| record.expect("it reads"))
        .flat_map(|record| record::decode_deliveries(&record.payload.into()).expect("ours"))
        .map(|delivery| delivery.output)
        .collect();
    assert_eq!(outputs, (0..10_000).collect::<Vec<u16>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_takes_the_outcomes_that_wait_into_its_own_write() {
    let (message_log, hand_over) = message_log(Arc::new(MemoryShelf::new()));
    let outcome = |id| Delivery {
        id,
        output: 0,
        outcome: DeliveryOutcome::Delivered,
        at_us: 0,
        detail: String::new(),
        by: String::new(),
    };
    for id in 0..20 {
        message_log.record_outcome(outcome(id));
        let durable = message_log.submit(Bytes::from_static(b"a record"), Vec::new()).expect("there is room");
        durable.await.expect("it becomes durable");
    }
    let stats = message_log.store().journal().stats();
    assert_eq!(stats.records, 40);
    assert!(stats.batches <= 30, "{} batches for 20 messages, each with an outcome", stats.batches);
    end(&message_log, hand_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_and_after_closing_everything_is_refused_and_what_was_reserved_is_given_back() {
    let queue = queue("");
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let (message_log, hand_over) = message_log(shelf.clone());
    shelf.inject(Rule::from(Operation::Flush, 1, Fault::Eio));
    let waiting = message_log.submit(Bytes::from_static(b"lost"), Vec::new()).expect("the failure is not known yet");
    assert!(waiting.await.is_err(), "it never becomes durable");
    message_log.failed().wait_for(Option::is_some).await.expect("it is told");
    assert!(matches!(message_log.submit(Bytes::from_static(b"later"), destination(&queue)), Err(Refusal::Failed(_))));
    assert!(matches!(message_log.barrier(), Err(Refusal::Failed(_))));
    assert_eq!(queue.depth(), 0);
    end(&message_log, hand_over).await;
    let (healthy, hand_over) = self::message_log(Arc::new(MemoryShelf::new()));
    end(&healthy, hand_over).await;
    assert_eq!(healthy.submit(Bytes::from_static(b"late"), destination(&queue)).unwrap_err(), Refusal::Closed);
    assert_eq!(queue.depth(), 0);
}
