//! A test of the file format: a journal with every kind of frame, as the inspector prints it, and the bytes of its
//! first batches. A change of either file is a change of the format and needs a new version number.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use device::{AlignedBuffer, MemoryShelf, Shelf};
use journal::{Inspect, Journal, View, inspect, verify};

use crate::support::{payload, small};

fn journal() -> Arc<MemoryShelf> {
    let shelf = Arc::new(MemoryShelf::new());
    let (first, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let lsn = first.append(1, &[b"one ", b"record"]).expect("appends");
    first.commit(lsn).expect("commits");
    first.append(2, &[b"two in"]).expect("appends");
    let lsn = first.append(3, &[b"one batch"]).expect("appends");
    first.commit(lsn).expect("commits");
    let lsn = first.append(4, &[b""]).expect("appends");
    first.commit(lsn).expect("commits");
    let lsn = first.append(5, &[&payload(5, 50_000)]).expect("appends");
    first.commit(lsn).expect("commits");
    first.close().expect("closes");
    let (second, _) = Journal::open(shelf.clone(), small()).expect("opens");
    second.append(6, &[b"in the second epoch"]).expect("appends");
    drop(second);
    shelf
}

/// Compares with the file in this folder, or writes it if UPDATE is set.
fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs; if that is meant: UPDATE=1 cargo test -p journal --test main golden");
}

#[test]
fn the_inspector_prints_every_kind_of_frame() {
    let view = View::open(journal()).expect("opens");
    let mut out = Vec::new();
    inspect(&view, &mut out, Inspect { payload_bytes: 24, ..Inspect::default() }).expect("prints");
    out.extend_from_slice(verify(&view).expect("reads").to_string().as_bytes());
    check("inspect.txt", &String::from_utf8(out).expect("ASCII"));
}

#[test]
fn the_bytes_on_the_medium_are_those_of_the_format() {
    let shelf = journal();
    let device = shelf.open_read_only("journal-0000000000000000").expect("is there");
    let mut bytes = AlignedBuffer::zeroed(6 * 4096);
    device.read(0, &mut bytes).expect("reads");
    let mut dump = String::new();
    for (number, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            line.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        writeln!(dump, "{:06x}  {}  {text}", number * 16, hex.join(" ")).expect("a string takes everything");
    }
    // Lines of zeros are left out. 60 lines contain the headers and a sufficient part of the large record.
    let shown: Vec<&str> = dump.lines().take(60).collect();
    check("bytes.txt", &(shown.join("\n") + "\n"));
}
