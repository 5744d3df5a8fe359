//! Every option and every answer to it, and what is no negotiation at all.

use std::time::{Duration, Instant};

use nbd::{Export, ServerOptions};

use crate::client::{self, ACK, Client, named, option, queries, string};
use crate::rig::{Rig, memory};

const SERVER: u32 = 2;
const INFO: u32 = 3;
const CONTEXT: u32 = 4;
const UNSUPPORTED: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;
const TOO_BIG: u32 = 0x8000_0009;

/// has flags, flush, FUA, trim, zeroes, one piece, several connections, cache, fast zero
const FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;

fn rig() -> Rig {
    let disk = Export { description: "a disk".to_owned(), ..Export::new("disk", memory(1 << 20)) };
    Rig::new([disk, Export { read_only: true, ..Export::new("other", memory(4096)) }])
}

fn export_info(bytes: u64, flags: u16) -> (u32, Vec<u8>) {
    (INFO, [&[0, 0], &bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat())
}

fn block_sizes() -> (u32, Vec<u8>) {
    (INFO, [&[0, 3], &1u32.to_be_bytes()[..], &4096u32.to_be_bytes(), &(32u32 << 20).to_be_bytes()].concat())
}

#[test]
fn each_option_is_answered_as_the_protocol_says() {
    let rig = rig();
    let done = || (ACK, vec![]);
    let context = |id: u32| (CONTEXT, [&id.to_be_bytes(), &b"base:allocation"[..]].concat());
    let description = (INFO, b"\0\x02a disk".to_vec());
    let disk = || export_info(1 << 20, FLAGS);
    type Case = (&'static str, u32, Vec<u8>, Vec<(u32, Vec<u8>)>);
    // The text of an error is for people: only its kind is compared.
    let error = |kind| vec![(kind, vec![])];
    let cases: Vec<Case> = vec![
        ("list", 3, vec![], vec![(SERVER, string("disk")), (SERVER, string("other")), done()]),
        ("list with data", 3, vec![0], error(INVALID)),
        ("info", 6, named("disk", &[]), vec![disk(), block_sizes(), done()]),
        (
            "names",
            6,
            named("disk", &[1, 2, 99]),
            vec![disk(), (INFO, b"\0\x01disk".to_vec()), description, block_sizes(), done()],
        ),
        (
            "read-only",
            6,
            named("other", &[]),
            vec![export_info(4096, 0b101_1000_1111 & !(1 << 6 | 1 << 5) | 1 << 8), block_sizes(), done()],
        ),
        ("info of nothing", 6, named("none", &[]), error(UNKNOWN)),
        ("an epoch that there is not", 6, named("disk@1", &[]), error(UNKNOWN)),
        ("no name, of two", 6, named("", &[]), error(UNKNOWN)),
        ("info that is too short", 6, named("disk", &[1])[..9].to_vec(), error(INVALID)),
        ("info that is too long", 6, [named("disk", &[]), vec![0]].concat(), error(INVALID)),
        ("info without data", 6, vec![], error(INVALID)),
        ("go to nothing", 7, named("none", &[]), error(UNKNOWN)),
        ("go without data", 7, vec![], error(INVALID)),
        ("a context too early", 9, queries("disk", &[]), error(INVALID)),
        ("setting one too early", 10, queries("disk", &["base:allocation"]), error(INVALID)),
        ("structured with data", 8, vec![1], error(INVALID)),
        ("structured", 8, vec![], vec![done()]),
        ("all contexts", 9, queries("disk", &[]), vec![context(0), done()]),
        ("a namespace", 9, queries("disk", &["base:"]), vec![context(0), done()]),
        ("another namespace", 9, queries("disk", &["qemu:"]), vec![done()]),
        ("contexts of nothing", 9, queries("none", &[]), error(UNKNOWN)),
        ("setting nothing", 10, queries("disk", &[]), vec![done()]),
        ("setting an unknown one", 10, queries("disk", &["qemu:dirty-bitmap:x"]), vec![done()]),
        ("setting contexts", 10, queries("disk", &["x:y", "base:allocation"]), vec![context(1), done()]),
        ("fewer queries than stated", 10, queries("disk", &["a"])[..12].to_vec(), error(INVALID)),
        ("more queries than can be", 10, [string("disk"), vec![0xff; 4]].concat(), error(INVALID)),
        ("TLS", 5, vec![], error(POLICY)),
        ("peek export", 4, vec![], error(UNSUPPORTED)),
        ("extended headers", 11, vec![], error(UNSUPPORTED)),
        ("no option of anybody", 0xdead_beef, vec![7; 100], error(UNSUPPORTED)),
        ("longer than is read", 6, vec![0; 40 << 10], error(TOO_BIG)),
        ("the list again", 3, vec![], vec![(SERVER, string("disk")), (SERVER, string("other")), done()]),
        ("abort", 2, vec![], vec![done()]),
    ];
    for (transport, mut client) in
        [("unix", Client::greeted(client::unix(&rig.unix), 3)), ("TCP", Client::greeted(client::tcp(rig.tcp), 3))]
    {
        for (name, code, data, expected) in &cases {
            let mut answers = client.negotiate(*code, data);
            answers.iter_mut().filter(|(kind, _)| kind >> 31 == 1).for_each(|(_, text)| text.clear());
            assert_eq!(answers, *expected, "{name}, {transport}");
        }
        assert_eq!(client.until_end(), b"", "after an abort the session ends");
    }
}

#[test]
fn export_name_opens_with_zeros_unless_they_are_left_out() {
    let rig = rig();
    for (flags, zeros) in [(1, 124), (3, 0)] {
        let mut client = Client::greeted(client::tcp(rig.tcp), flags);
        client.send(&option(1, b"disk"));
        let expected = [&(1u64 << 20).to_be_bytes()[..], &FLAGS.to_be_bytes(), &vec![0; zeros]].concat();
        assert_eq!(client.take(expected.len()), expected);
        assert_eq!(client.write(5, b"by its name"), 0);
        assert_eq!(client.read(5, 11), b"by its name");
    }
    for wrong in [&b"none"[..], b"", b"disk@1", b"\xff\xfe"] {
        let mut client = Client::greeted(client::tcp(rig.tcp), 3);
        client.send(&option(1, wrong));
        assert_eq!(client.until_end(), b"", "{wrong:?}: this option cannot be refused, so the session ends");
    }
}

#[test]
fn requests_sent_with_the_option_that_opens_are_answered() {
    let rig = rig();
    let mut client = Client::greeted(client::unix(&rig.unix), 3);
    let write = [client::request(0, client::WRITE, 7, 0, 3), b"now".to_vec()].concat();
    client.send(&[option(7, &named("disk", &[])), write].concat());
    assert_eq!(client.answers(7), [export_info(1 << 20, FLAGS), block_sizes(), (ACK, vec![])]);
    assert_eq!((client.reply().cookie, client.read(0, 3)), (7, b"now".to_vec()));
}

#[test]
fn what_is_no_negotiation_ends_only_its_own_session() {
    let rig = rig();
    let mut good = rig.simple("disk");
    let long = [b"IHAVEOPT", &6u32.to_be_bytes()[..], &(64u32 << 20).to_be_bytes()].concat();
    let cases: [(&str, u32, Vec<u8>); 6] = [
        ("the old negotiation", 0, vec![]),
        ("flags that nobody knows", 7, vec![]),
        ("HTTP", u32::from_be_bytes(*b"GET "), b"/ HTTP/1.1\r\n\r\n".to_vec()),
        ("a wrong magic", 3, b"IHAVEOPTIHAVEOPTIHAVEOPT".map(|byte| byte ^ 1).to_vec()),
        ("an option longer than anything", 3, long),
        ("a request", 3, client::request(0, 0, 1, 0, 512)),
    ];
    for (name, flags, bytes) in cases {
        let mut client = Client::greeted(client::tcp(rig.tcp), flags);
        client.try_send(&bytes);
        assert_eq!(client.until_end(), b"", "{name}");
        assert_eq!(good.read(0, 512), [0; 512], "{name}: another session goes on");
    }
}

#[test]
fn half_a_negotiation_is_ended_by_its_time_limit() {
    let limit = Duration::from_millis(400);
    let options = ServerOptions { workers: 2, handshake: limit, ..ServerOptions::default() };
    let rig = Rig::with(options, [Export::new("disk", memory(1 << 20))]);
    let mut good = rig.simple("disk");
    let whole = [3u32.to_be_bytes().to_vec(), option(7, &named("disk", &[]))].concat();
    let start = Instant::now();
    let mut clients: Vec<_> = (0..whole.len())
        .map(|cut| {
            let mut client = Client::new(client::unix(&rig.unix));
            client.take(18);
            client.send(&whole[..cut]);
            client
        })
        .collect();
    // One that keeps asking gets no more time than the others.
    let mut busy = Client::greeted(client::tcp(rig.tcp), 3);
    while busy.try_send(&option(99, &[])) && start.elapsed() < client::PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    clients.iter_mut().enumerate().for_each(|(cut, client)| assert_eq!(client.until_end(), b"", "{cut} bytes"));
    assert!((limit..10 * limit).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(good.read(0, 512), [0; 512], "an open session has no such limit");
}

#[test]
fn one_negotiation_has_a_bound_of_options() {
    let rig = rig();
    let mut client = Client::greeted(client::unix(&rig.unix), 3);
    let mut answered = 0;
    while client.try_send(&option(99, &[])) {
        if client.try_answer().is_none() {
            break;
        }
        answered += 1;
        assert!(answered <= 2000, "without end");
    }
    assert_eq!(answered, 2000);
}
