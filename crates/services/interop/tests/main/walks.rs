//! Several walks over the messages beside each other: together they have what one has.

use std::sync::Arc;

use bytes::Bytes;
use interop::record::{self, Delivery, DeliveryOutcome, Head, Status, Writer};
use interop::rows::{Ids, ReadMessage, Reader, Rows, SharedParts, Wanted, object_key};
use store::{Lsn, Options, Store};

/// A message of about so many bytes with outputs, each of them whole.
fn message(number: usize, bytes: usize, outputs: usize) -> Vec<u8> {
    let mut raw =
        format!("MSH|^~\\&|A|B|||1||ADT^A01|C{number}|P|2.5\rPID|1||{number}||N{}\r", number % 7).into_bytes();
    raw.extend_from_slice(b"NTE|1||");
    raw.resize(raw.len() + bytes, b'x');
    let raw = Bytes::from(raw);
    let head = Head {
        status: if outputs == 0 { Status::Unmatched } else { Status::Routed },
        duplicate: false,
        origin: None,
        received_us: number as i64,
        generation: 7,
        service: "in",
        charset: None,
        reason: "",
    };
    let mut writer = Writer::new(&head, &raw);
    for output in 0..outputs {
        let body = [&raw[..], format!("NTE|2||{output}\r").as_bytes()].concat();
        writer.whole("out", "t", |out| out.extend_from_slice(&body));
    }
    writer.finish().to_vec()
}

fn append(store: &Store, kind: u8, payload: &[u8]) -> Lsn {
    let lsn = store.append(kind, payload.to_vec()).expect("there is room");
    store.commit(lsn).expect("it works");
    lsn
}

/// Messages in a cache that they do not fit in: short ones, long ones, one with more outputs than a part has room for.
fn stored(random: &mut fastrand::Rng) -> (Store, Vec<u64>) {
    let options = Options { interpreter: Some(Arc::new(Rows)), cache_bytes: 4 << 20, ..Options::default() };
    let store = Store::in_memory(options).expect("memory");
    let (mut ids, mut last) = (Vec::new(), Lsn(0));
    for number in 0..1_500 {
        let (bytes, outputs) = match number {
            700 => (6_000, 300),
            _ if number % 10 == 0 => (random.usize(4_000..20_000), 2),
            _ => (random.usize(..2_500), number % 4),
        };
        last = append(&store, record::KIND_MESSAGE, &message(number, bytes, outputs));
        ids.push(last.0);
        if outputs > 1 {
            let (id, output, at_us) = (last.0, 1, 5);
            let delivered = Delivery {
                id,
                output,
                outcome: DeliveryOutcome::Delivered,
                at_us,
                detail: "AA".to_owned(),
                by: String::new(),
            };
            last = append(&store, record::KIND_DELIVERIES, &record::encode_deliveries(&[delivered]));
        }
    }
    store.wait_visible(last).expect("it works");
    (store, ids)
}

fn walked(parts: &Arc<SharedParts>, number: usize) -> Result<Vec<ReadMessage>, interop::InteropError> {
    let mut walk = parts.walk(number);
    let mut found = Vec::new();
    while let Some(message) = walk.next()? {
        found.push(message);
    }
    Ok(found)
}

fn ids_of(found: &[ReadMessage]) -> Vec<u64> {
    found.iter().map(|message| message.id).collect()
}

#[test]
fn walks_beside_each_other_have_each_message_once_and_the_same_ones_again() {
    let (store, ids) = stored(&mut fastrand::Rng::with_seed(3));
    let reader = Reader::new(&store);
    for (outputs, outcomes) in [(false, false), (true, false), (false, true), (true, true)] {
        let wanted = Wanted { outputs, outcomes };
        let mut expected = Vec::new();
        let mut walk = reader.walk(Ids::ALL, wanted);
        while let Some(message) = walk.next().expect("it reads") {
            expected.push(message);
        }
        assert_eq!(ids_of(&expected), ids);
        let parts = SharedParts::new(&reader, wanted, 3);
        let mut found: Vec<ReadMessage> = std::thread::scope(|scope| {
            let walks: Vec<_> = (0..3).map(|number| (scope, number, Arc::clone(&parts))).collect();
            let walks: Vec<_> = walks
                .into_iter()
                .map(|(scope, number, parts)| scope.spawn(move || walked(&parts, number).expect("it reads")))
                .collect();
            walks.into_iter().flat_map(|walk| walk.join().expect("no panic")).collect()
        });
        let again: Vec<u64> = (0..3).flat_map(|number| ids_of(&walked(&parts, number).expect("it reads"))).collect();
        assert_eq!(again, ids_of(&found), "a walk that is begun again");
        found.sort_unstable_by_key(|message| message.id);
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!((&found.stored, &found.outcomes), (&expected.stored, &expected.outcomes));
        }
        assert_eq!(found.len(), expected.len());
    }
    // One walk alone takes all parts, as one that is not left to others.
    let parts = SharedParts::new(&reader, Wanted::default(), 2);
    assert_eq!(ids_of(&walked(&parts, 1).expect("it reads")), ids);
    assert!(walked(&parts, 0).expect("it reads").is_empty());
}

#[test]
fn a_walk_ends_at_what_is_missing_and_others_go_on_without_it() {
    let (store, ids) = stored(&mut fastrand::Rng::with_seed(1));
    let messages = store.interpreted()[0];
    let mut transaction = store.begin();
    transaction.delete(messages, &object_key(ids[301], 1)).expect("a change");
    transaction.commit().expect("it works");
    let wanted = Wanted { outputs: true, outcomes: false };
    let parts = SharedParts::new(&Reader::new(&store), wanted, 2);
    let error = walked(&parts, 0).expect_err("an output is missing");
    assert!(error.to_string().contains(&ids[301].to_string()), "{error}");
    let rest = walked(&parts, 1).expect("the other parts");
    assert!(ids_of(&rest).ends_with(&ids[1_400..]), "{} messages", rest.len());
    let again = walked(&parts, 0).expect_err("it is still missing");
    assert_eq!(again.to_string(), error.to_string());
}
