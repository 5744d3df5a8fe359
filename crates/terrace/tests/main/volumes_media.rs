//! Media of volumes: a place for another node's copy that fails once, under a running owner; copies that share a disk.
//!
//! The system itself makes writes fail: a limit of the size of files, which a running process is given and loses again.

use std::fs;

use nbd::{ClientOptions, NbdDevice, NbdUri};
use serde_json::json;

use crate::node::until;
use crate::volumes::{
    Exporter, bed, client, client_of, copy_states, create, in_sync, place_of, read, report, report_at, volume, write,
};

#[test]
fn a_place_whose_medium_fails_once_is_opened_again_from_it_and_its_copy_is_brought_up_to_date() {
    let bed = bed();
    volume(&bed, &["create", "place", "--size", "200MiB", "--place", "--data", "other"]);
    let far = Exporter::start(&bed, &["place", "--data", "other"]);
    let socket = bed.path("other/nbd.sock");
    drop(client(&socket, "place"));
    let address = format!("nbd+unix:///place?socket={}", socket.display());
    create(&bed, "v", &["--copy", "a", "--copy", "b", "--copy", &address]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    assert!((0..64).all(|block| write(&device, block, 1)));
    far.limit_files("65536");
    assert!(write(&device, 0, 2), "the other copies are enough");
    until("the copy is left out", || copy_states(&bed, "v")[2] != "in-sync");
    far.limit_files("unlimited");
    assert!((1..32).all(|block| write(&device, block, 2)));
    in_sync(&bed, "v");
    let place = report_at(&bed, "other", "place");
    assert_eq!((&place["state"], &place["copies"][0]["failures"]), (&"open".into(), &1.into()), "{place}");
    assert!(bed.log().contains("the medium of a place has failed"), "{}", bed.log());
    // All of it is there, and the others are not needed.
    node.stop();
    for copy in [0, 1] {
        fs::rename(place_of(&bed, "v", copy), bed.path(&format!("away-{copy}"))).expect("it is moved");
    }
    let node = bed.start();
    volume(&bed, &["accept-loss", "v", "--yes"]);
    let device = client_of(&bed, "v");
    for block in 0..64 {
        assert_eq!(read(&device, block), if block < 32 { 2 } else { 1 }, "block {block}");
    }
    node.stop();
    // An epoch that cannot be kept is no end either.
    let epoch = report_at(&bed, "other", "place")["epoch"].as_str().and_then(|text| text.parse::<u64>().ok());
    let epoch = epoch.expect("a number");
    far.limit_files("4096");
    let takeover = |epoch| {
        let at = NbdUri::unix(&socket, "place");
        NbdDevice::connect(ClientOptions { epoch: Some(epoch), ..ClientOptions::new(at) })
    };
    assert!(takeover(epoch + 1).is_err(), "it cannot be kept");
    until("it is in the log", || bed.log().contains("a higher epoch could not be kept"));
    far.limit_files("unlimited");
    until("a higher epoch is kept again", || takeover(epoch + 1).is_ok());
    assert!(takeover(epoch).is_err(), "an older one is refused");
    assert_eq!(report_at(&bed, "other", "place")["copies"][0]["failures"], 2, "{}", report(&bed, "v"));
}

#[test]
fn copies_on_one_disk_are_warned_of_when_they_are_made_and_named_by_the_status() {
    let bed = bed();
    // All tiers of a bed are folders of one disk.
    let said = "copies 0 and 1 are on the same disk (";
    let made = bed.command_line(&["volume", "create", "v", "--size", "1MiB", "--copy", "a", "--copy", "b"]);
    assert!(made.warned().contains(&format!("warning: {said}")), "{}", made.warned());
    made.succeeds("made v");
    for (name, args) in
        [("wanted", &["--copy", "a", "--copy", "b", "--share-tiers"][..]), ("single", &["--copy", "a"]), ("home", &[])]
    {
        let made = bed.command_line(&[&["volume", "create", name, "--size", "1MiB"], args].concat());
        assert_eq!(made.warned(), "", "{name}");
        made.succeeds("");
    }
    let shared = |name: &str| report(&bed, name)["same_disk"][0]["copies"].clone();
    assert!(volume(&bed, &["status", "v"]).contains(said));
    let node = bed.start();
    until("the volume is open", || report(&bed, "v")["state"] == "open");
    assert!(volume(&bed, &["status", "v"]).contains(said));
    assert_eq!([shared("v"), shared("wanted"), shared("single")], [json!([0, 1]), json!([0, 1]), json!(null)]);
    node.stop();
}

#[test]
fn a_volume_that_cannot_be_made_takes_no_place_on_another_node() {
    let bed = bed();
    for name in ["one", "two"] {
        volume(&bed, &["create", name, "--size", "200MiB", "--place", "--data", name]);
    }
    let address = |name: &str| format!("nbd+unix:///{name}?socket={}", bed.path(name).join("nbd.sock").display());
    let (one, two) = (address("one"), address("two"));
    let make = ["volume", "create", "v", "--size", "4MiB", "--copy", "a", "--copy", &one, "--copy", &two];
    let _one = Exporter::start(&bed, &["one", "--data", "one"]);
    drop(client(&bed.path("one/nbd.sock"), "one"));
    bed.command_line(&make).fails("cannot connect");
    let _two = Exporter::start(&bed, &["two", "--data", "two"]);
    drop(client(&bed.path("two/nbd.sock"), "two"));
    bed.command_line(&make).succeeds("");
}
