//! `terrace volume create --thin` as a user runs it: what it takes of its media, and where it is refused.

use std::fs;

use device::{AlignedBuffer, Device};
use serde_json::Value;

use crate::node::{Bed, until};
use crate::volumes::{Exporter, client};

const TIERS: &str = "[tiers.a]\nkind = \"file\"\npath = \"a\"\n[tiers.b]\nkind = \"file\"\npath = \"b\"\n[tiers.p]\nkind = \"pmem\"\npath = \"p\"\n";

fn report(bed: &Bed) -> Value {
    let ran = bed.command_line(&["volume", "status", "thin", "--json"]);
    let all: Value = serde_json::from_str(&ran.printed()).expect("JSON");
    all[0].clone()
}

/// What the blocks of both copies take, as it is reported.
fn allocated(bed: &Bed) -> [u64; 2] {
    let report = report(bed);
    assert_eq!(report["is_thin"], true);
    [0, 1].map(|copy| report["copies"][copy]["space"]["allocated_bytes"].as_u64().expect("a number"))
}

#[test]
fn a_thin_volume_takes_space_for_what_clients_write_and_gives_back_what_they_discard() {
    const WRITTEN: u64 = 40 << 20;
    let bed = Bed::new();
    bed.configure(TIERS);
    let copies = ["--copy", "a", "--copy", "b"];
    let made = ["volume", "create", "thin", "--size", "4GiB", "--thin"];
    bed.command_line(&[&made[..], &copies[..]].concat()).succeeds("a thin volume of 2 copies");
    bed.command_line(&["volume", "list"]).succeeds("thin");
    let exporter = Exporter::start(&bed, &["thin"]);
    let device = client(&bed.data().join("nbd.sock"), "thin");
    assert!(allocated(&bed).into_iter().all(|bytes| bytes < 1 << 20));
    let data = AlignedBuffer::from(&vec![7; 1 << 20][..]);
    (0..WRITTEN >> 20).for_each(|place| device.write((place << 26) + 4096, &data).expect("writes"));
    // A checkpoint follows by itself, at half of the window.
    until("most of it is in place", || allocated(&bed).into_iter().all(|bytes| bytes >= WRITTEN / 2));
    (0..WRITTEN >> 20).for_each(|place| device.discard((place << 26) + 4096, 1 << 20).expect("discards"));
    bed.run(&["stop", "--data"]).succeeds("");
    drop(exporter);
    let place = report(&bed)["copies"][1]["at"].as_str().expect("a text").to_owned();
    let data = fs::metadata(format!("{place}/data-0")).expect("a file");
    let taken = std::os::unix::fs::MetadataExt::blocks(&data) * 512;
    assert!(data.len() == 4 << 30 && taken < 4 << 20, "{taken} bytes are left");
    bed.command_line(&["volume", "status", "thin"]).succeeds("thin: taken by what is written");
    bed.command_line(&["volume", "delete", "thin", "--yes"]).succeeds("");
}

#[test]
fn a_volume_whose_media_cannot_give_space_back_is_not_made_thin() {
    let bed = Bed::new();
    bed.configure(TIERS);
    let made = ["volume", "create", "thin", "--size", "1MiB", "--thin"];
    for (args, why) in [
        (&["--place"][..], "cannot be used with"),
        (&["--copy", "a,cache=b:16MiB"], "has no cache"),
        (&["--copy", "nbd+unix:///x?socket=/nowhere.sock"], "cannot be thin"),
        (&["--copy", "a", "--copy", "p"], "not of kind file"),
    ] {
        bed.command_line(&[&made[..], args].concat()).fails(why);
    }
    bed.command_line(&["volume", "list"]).succeeds("there is no volume");
}
