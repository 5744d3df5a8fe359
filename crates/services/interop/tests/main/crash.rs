//! Power fails at any moment: what was acknowledged is there and goes out, in order; what was not is there whole or not
//! at all; and a failure during recovery changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::crash::Image;
use device::faulty::{Fault, Rule};
use device::{CrashShelf, FaultyShelf, Operation, Shelf};
use interop::record::DeliveryOutcome;
use interop::rows::{Reader, check, interpreter};
use journal::Preparation;
use store::{Direction, Options, Places, Store, StoreError};

use crate::receiver::{Accepting, Down, id_of};
use crate::rig::{Rig, Running, adt};
use crate::sender::framed;

/// Messages of the load, sent so many at a time.
const LOAD: usize = 48;
const AT_A_TIME: usize = 3;

/// Points of a recording at which the power fails, and images looked at of each.
const POINTS: usize = 40;
const IMAGES: usize = 3;

const RULES: &str = "match first\nrule all { send to one using t; send to two }\n";

fn rig(shelf: Arc<dyn Shelf>, one: &Accepting, two: &Accepting) -> Rig {
    let mut rig = Rig::on(shelf);
    rig.options.journal.segment_bytes = 32 << 10;
    rig.options.journal.buffer_bytes = 8 << 10;
    rig.options.journal.preparation = Preparation::Inline;
    rig.service("in", "")
        .write("rules/main.rules", RULES)
        .write("transforms/t.hl7t", "set PID-5.2 = \"BOB\"\n")
        .operation("one", one.address, "")
        .operation("two", two.address, "");
    rig
}

fn id(n: usize) -> String {
    format!("m{n}")
}

/// The known state of a run before its power failed.
struct Before {
    seed: u64,
    /// Operations of the shelf by the time each message was acknowledged, in order.
    acknowledged: Vec<usize>,
    /// The messages that each receiver has received.
    taken: [BTreeSet<String>; 2],
}

impl Before {
    /// How many messages had been acknowledged when operation `point` was called.
    fn acknowledged_at(&self, point: usize) -> usize {
        self.acknowledged.iter().filter(|operations| **operations <= point).count()
    }
}

/// Runs the load on a recording shelf.
async fn run(recording: &CrashShelf, shelf: Arc<dyn Shelf>) -> Before {
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let running = rig(shelf, &one, &two).start().await;
    let mut sender = running.sender().await;
    let mut acknowledged = Vec::new();
    for group in (0..LOAD).collect::<Vec<_>>().chunks(AT_A_TIME) {
        let frames: Vec<u8> = group.iter().flat_map(|n| framed(&adt(&id(*n)))).collect();
        sender.write(&frames).await;
        for n in group {
            assert_eq!(sender.answer().await.short(), format!("AA {}", id(*n)));
            acknowledged.push(recording.operations());
        }
    }
    running.idle("one").await;
    running.idle("two").await;
    running.until_outcomes(2 * LOAD).await;
    let taken = [&one, &two].map(|receiver| receiver.ids().into_iter().collect());
    running.stop().await;
    Before { seed: recording.seed(), acknowledged, taken }
}

/// The store of an image, recovered.
pub(crate) fn open(image: &Image) -> Result<Reader, StoreError> {
    let journal = journal::Options {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        preparation: Preparation::Inline,
        ..journal::Options::default()
    };
    let options = Options {
        cache_bytes: 8 << 20,
        data_device_bytes: 512 << 10,
        images_device_bytes: 64 << 10,
        journal,
        interpreter: Some(interpreter()),
        background: false,
        ..Options::default()
    };
    let shelf: Arc<dyn Shelf> = Arc::new(image.shelf());
    let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
    Store::open(places, options).map(|(store, _)| Reader::new(&store))
}

/// Ids of the messages that a store holds, in order.
fn ids_in(reader: &Reader) -> Vec<u64> {
    let mut cursor = reader.by_time(None, None, Direction::Forward);
    let mut ids = Vec::new();
    while let Some((_, id, _)) = cursor.next().expect("it reads") {
        ids.push(id);
    }
    ids.sort_unstable();
    ids
}

/// The content of an image: control ids in order, and which outputs are known to be delivered.
fn contents(image: &Image) -> (Vec<String>, BTreeSet<(u64, u16)>, Vec<u64>) {
    let reader = open(image).unwrap_or_else(|e| panic!("{image}: {e}"));
    let report = check::check(&reader).unwrap_or_else(|e| panic!("{image}: {e}"));
    assert_eq!(report.wrong, 0, "{image}: {report:?}");
    let (mut ids, mut delivered) = (Vec::new(), BTreeSet::new());
    let lsns = ids_in(&reader);
    for lsn in &lsns {
        let stored = reader.message(*lsn).expect("a message of ours");
        let id = id_of(&stored.raw);
        assert_eq!(stored.raw, adt(&id).as_bytes(), "{image}: a message is whole");
        assert_eq!(stored.outputs.len(), 2, "{image}: with all of its outputs");
        ids.push(id);
        for outcome in reader.outcomes(*lsn).expect("outcomes of ours") {
            assert_eq!(outcome.outcome, DeliveryOutcome::Delivered);
            delivered.insert((outcome.id, outcome.output));
        }
    }
    (ids, delivered, lsns)
}

/// Starts a node on an image and checks everything; returns the shelf of that run and the messages that the receivers
/// received in it.
async fn recover(before: &Before, image: &Image, acknowledged: usize) -> (Arc<CrashShelf>, [BTreeSet<String>; 2]) {
    let (ids, delivered, lsns) = contents(image);
    let seed = before.seed;
    let expected: Vec<String> = (0..ids.len()).map(id).collect();
    assert_eq!(ids, expected, "seed {seed}, {image}: messages are there in order, without a gap");
    assert!(
        ids.len() >= acknowledged,
        "seed {seed}, {image}: {acknowledged} were acknowledged, {} are there",
        ids.len()
    );
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let shelf = Arc::new(image.shelf());
    let running: Running = rig(shelf.clone(), &one, &two).start().await;
    running.idle("one").await;
    running.idle("two").await;
    let mut taken = [BTreeSet::new(), BTreeSet::new()];
    for (output, receiver) in [&one, &two].into_iter().enumerate() {
        let is_known = |lsn: u64| delivered.contains(&(lsn, output as u16));
        let due: Vec<&String> = ids.iter().zip(&lsns).filter(|(_, lsn)| !is_known(**lsn)).map(|(id, _)| id).collect();
        let received = receiver.ids();
        assert_eq!(
            received.iter().collect::<Vec<_>>(),
            due,
            "seed {seed}, {image}: what waits goes out in order, once"
        );
        for (id, lsn) in ids.iter().zip(&lsns) {
            let by_then = before.taken[output].contains(id);
            assert!(!is_known(*lsn) || by_then, "seed {seed}, {image}: {id} is noted and was never taken");
        }
        taken[output].extend(received);
    }
    running.stop().await;
    (shelf, taken)
}

/// Some images of a point, the plain ones first and one by chance.
pub(crate) fn images_of(shelf: &CrashShelf, point: usize, random: &mut fastrand::Rng) -> Vec<Image> {
    let all: Vec<Image> = shelf.images(point).collect();
    let chosen: BTreeSet<usize> =
        (0..IMAGES).map(|n| if n < 2 { n.min(all.len() - 1) } else { random.usize(..all.len()) }).collect();
    chosen.into_iter().map(|n| all[n].clone()).collect()
}

pub(crate) fn seed() -> u64 {
    std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_point_every_acknowledged_message_reaches_all_receivers_in_order() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let shelf = Arc::new(CrashShelf::new(seed));
    let before = run(&shelf, shelf.clone()).await;
    let end = shelf.operations();
    let mut points: Vec<usize> = (0..POINTS).map(|_| random.usize(..=end)).collect();
    points.extend([0, 1, end]);
    for point in points {
        for image in images_of(&shelf, point, &mut random) {
            recover(&before, &image, before.acknowledged_at(point)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_recovery_loses_nothing_either() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed ^ 0xdead);
    let shelf = Arc::new(CrashShelf::new(seed));
    let mut before = run(&shelf, shelf.clone()).await;
    let end = shelf.operations();
    for _ in 0..POINTS / 4 {
        let point = random.usize(..=end);
        let acknowledged = before.acknowledged_at(point);
        let image = images_of(&shelf, point, &mut random).pop().expect("there is one");
        let (second, taken) = recover(&before, &image, acknowledged).await;
        for (all, taken) in before.taken.iter_mut().zip(taken) {
            all.extend(taken);
        }
        for _ in 0..IMAGES {
            let again =
                images_of(&second, random.usize(..=second.operations()), &mut random).pop().expect("there is one");
            recover(&before, &again, acknowledged).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_receiver_that_is_down_survives_life_after_life() {
    let (one, two) = (Accepting::start().await, Down::new());
    let two_address = two.address;
    let mut shelf = Arc::new(CrashShelf::new(seed()));
    let mut sent = Vec::new();
    for life in 0..5 {
        let rig = Rig::on(shelf.clone());
        rig.service("in", "")
            .write("rules/main.rules", "match first\nrule all { send to one; send to two }\n")
            .operation("one", one.address, "")
            .operation("two", two_address, "");
        let running = rig.start().await;
        assert_eq!(running.waiting("two"), sent.len());
        let id = format!("life{life}");
        running.sender().await.accepted(&adt(&id)).await;
        sent.push(id);
        one.received(sent.len()).await;
        running.until_outcomes(sent.len()).await;
        // The power fails at whatever the node is doing; nothing is closed.
        let point = shelf.operations();
        let image = shelf.image(point, 0).expect("every point has an image");
        running.stop().await;
        shelf = Arc::new(image.shelf());
    }
    let rig = Rig::on(shelf);
    rig.service("in", "")
        .write("rules/main.rules", "match first\nrule all { send to one; send to two }\n")
        .operation("one", one.address, "")
        .operation("two", two_address, "");
    let running = rig.start().await;
    let two = two.up().accepting();
    assert_eq!(two.received(5).await, sent);
    running.idle("one").await;
    let mut taken = one.ids();
    taken.dedup();
    assert_eq!(taken, sent, "in order; an outcome that was not on the medium yet makes one delivery twice at most");
    running.stop().await;
}

/// The test of these tests: on a device that reports a flush without doing it, some image must lack an acknowledged
/// message.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_lies_about_its_flushes_is_caught_by_the_crash_images() {
    let recording = Arc::new(CrashShelf::new(seed()));
    let lying = Arc::new(FaultyShelf::new(recording.clone()));
    lying.inject(Rule::from(Operation::Flush, 12, Fault::Lost));
    let before = run(&recording, lying).await;
    let caught = recording.points().any(|point| {
        let image = recording.image(point, 0).expect("every point has an image");
        let Ok(reader) = open(&image) else { return true };
        ids_in(&reader).len() < before.acknowledged_at(point)
    });
    assert!(caught);
}
