//! Who takes more than its share of the console: live tabs, connections that say nothing, forms and bodies that come in slowly.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Browser, OPERATOR, bed, newest, signed_in, user};
use crate::node::{Bed, Node, until};

/// More than the requests that may run at a time.
const MANY: usize = 40;

fn configure(bed: &Bed, more: &str) {
    bed.configure(&format!("production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n{more}"));
}

fn first_line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    line
}

#[test]
fn tabs_are_bounded_one_user_leaves_half_of_them_to_others_and_a_silent_connection_holds_nobody_up() {
    let bed = bed();
    configure(&bed, "tabs = 4\nconnections = 8\nconnections_per_address = 8\n");
    let node = bed.start();
    ["ann", "bob"].iter().for_each(|name| user(&bed, name, OPERATOR));
    let (mut ann, mut bob) = (signed_in(&node, "ann"), signed_in(&node, "bob"));
    let is_live = |stream: &mut BufReader<TcpStream>| first_line(stream).contains("200");
    let mut own: Vec<_> = (0..2).map(|_| ann.stream("/live/media")).collect();
    assert!(own.iter_mut().all(is_live));
    ann.get("/live/production").shows(503, "of yours");
    ann.get("/live/tail").shows(200, "It has ended");
    ann.get("/api/v1/messages/tail").is(503);
    let mut others: Vec<_> = (0..2).map(|_| bob.stream("/live/media")).collect();
    assert!(others.iter_mut().all(is_live), "there is room for others");
    bob.get("/live/production").is(503);
    drop((own, others));
    until("a place is free again", || is_live(&mut ann.stream("/live/media")));
    // Silent connections make room for one that says something.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(node.console()).expect("it listens")).collect();
    // A connection may be refused at first.
    let is_served = || {
        let mut ann = ann.clone();
        catch_unwind(AssertUnwindSafe(|| ann.get("/account").status == 200)).unwrap_or(false)
    };
    until("somebody is served beside them", is_served);
    drop(silent);
    node.stop();
}

#[test]
fn sign_ins_that_wait_for_a_directory_take_no_turn_of_those_who_are_in() {
    // A directory that takes connections and says nothing.
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ldap://{}", hangs.local_addr().expect("it is bound"));
    let bed = bed();
    configure(
        &bed,
        &format!(
            "[ldap]\nurl = [\"{url}\"]\nuser_dn = \"uid={{user}},dc=x\"\nstarttls = false\nuser_attribute = \"uid\"\nbinds = 64\ntimeout = \"8s\"\ncreate = true\n\
             group_attribute = \"memberOf\"\n[ldap.roles]\n\"cn=doctors,dc=x\" = \"doctors\"\n"
        ),
    );
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    let mut stranger = Browser::at(node.console());
    let token = stranger.get("/sign-in").is(200).field("token");
    let waiting: Vec<_> = (0..MANY)
        .map(|number| stranger.open("POST", "/sign-in", &format!("token={token}&user=u{number}&password=x&next=/")))
        .collect();
    for _ in 0..3 {
        ann.get("/messages").is(200);
    }
    let is_refused = |stream: &mut BufReader<TcpStream>| first_line(stream).contains("503");
    let refused = waiting.into_iter().filter_map(|mut stream| is_refused(&mut stream).then_some(())).count();
    assert_eq!(refused, MANY - 32, "beyond the places of one address");
    node.stop();
}

/// The head of a request whose body does not come.
fn without_its_body(node: &Node<'_>, target: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.console()).expect("it listens");
    let address = node.console();
    let head = format!("POST {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000\r\n{headers}\r\na");
    stream.write_all(head.as_bytes()).expect("it is taken");
    stream
}

#[test]
fn forms_and_edited_messages_that_come_in_slowly_hold_up_nobody_else() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    bed.run(&["role", "grant", "message-edit", "--on", "service *", "--to", "ann", "--data"]).succeeds("");
    let told = bed.run(&["user", "token", "ann", "ci", "--data"]).succeeds("");
    node.send("M1");
    let mut ann = signed_in(&node, "ann");
    let id = newest(&mut ann);
    let form = format!(
        "Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        node.console()
    );
    let edit = format!("Authorization: Bearer {}\r\nIdempotency-Key: ticket-4711\r\n", told.trim());
    let target = format!("/api/v1/messages/{id}/edit?to=out");
    for (target, headers) in [("/sign-in", form), (target.as_str(), edit)] {
        let slow: Vec<_> = (0..MANY).map(|_| without_its_body(&node, target, &headers)).collect();
        // They are taken one after the other, and so is this, behind them.
        for _ in 0..3 {
            ann.get("/messages").is(200);
        }
        drop(slow);
    }
    node.stop();
}
