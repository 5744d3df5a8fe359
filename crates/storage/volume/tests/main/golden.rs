//! A test of the format: the bytes of a small volume on its medium. A change of the file is a change of the format and needs a new
//! version number.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use device::{AlignedBuffer, Device, MemoryShelf, Shelf};
use volume::{Place, Volume};

use crate::support::{at, new_volume, options, tagged};

/// The number of the journal is drawn at random: it is no part of what is compared.
fn without_identity(name: &str, bytes: &mut [u8]) {
    if name == "superblock" {
        for slot in bytes.chunks_mut(4096) {
            slot[12..16].fill(0);
            slot[44..48].fill(0);
        }
    }
}

#[test]
fn the_bytes_on_the_medium_are_those_of_the_format() {
    let media: Vec<Arc<MemoryShelf>> = (0..2).map(|_| Arc::new(MemoryShelf::new())).collect();
    let places: Vec<Place> = media.iter().map(|medium| Place::on(medium.clone())).collect();
    Volume::create(&places, &new_volume(16), &options(1)).expect("creates");
    let volume = Volume::open(places.clone(), options(2)).expect("opens");
    volume.write(at(1), &tagged(0x1122_3344)).expect("writes");
    volume.write(at(3), b"a part of a block").expect("writes");
    volume.exclude(1).expect("one is left");
    volume.write(at(2), &tagged(7)).expect("writes");
    volume.discard(at(1), at(1)).expect("discards");
    volume.close().expect("closes");
    let mut dump = String::new();
    for name in ["superblock", "tables-0", "data-0"] {
        let device = media[0].open(name).expect("is there");
        let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
        device.read(0, &mut bytes).expect("reads");
        without_identity(name, &mut bytes);
        writeln!(dump, "{name}, {} bytes", bytes.len()).expect("a string takes everything");
        let shown = bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)).take(40);
        for (number, line) in shown {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(dump, "{:06x}  {}", number * 16, hex.join(" ")).expect("a string takes everything");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bytes.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &dump).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(dump, expected, "bytes.txt differs; if that is meant: UPDATE=1 cargo test -p volume --test main golden");
}
