//! The formats of the write image journal, the superblock and the allocation map, byte by byte; and batches larger than a device.

use std::fmt::Write as _;
use std::path::Path;

use device::MemoryShelf;

use super::*;
use crate::space::bitmap::Bitmap;
use crate::space::map;
use crate::space::superblock::Superblock;

const GEOMETRY: Geometry = Geometry { page_bytes: 4096, device_pages: 64 };

/// Lines of 16 bytes; lines of zeros are omitted.
fn dump(title: &str, bytes: &[u8], out: &mut String) {
    writeln!(out, "{title}").expect("a string takes everything");
    for (number, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            line.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        writeln!(out, "{:06x}  {}  {text}", number * 16, hex.join(" ")).expect("a string takes everything");
    }
}

fn batch(images: &Images, checkpoint: u64, pages: &[u32]) -> (BatchHeader, Vec<(PageId, Vec<u8>)>) {
    let mut batch = images.begin(0x0123_4567_89ab_cdef, GEOMETRY, checkpoint, Lsn(0x7788), pages.len() as u32);
    let mut pushed = Vec::new();
    for page in pages {
        let mut image = vec![0; 4096];
        image[..8].copy_from_slice(format!("page{page:04}").as_bytes());
        images.push(&mut batch, PageId(*page), &image).expect("memory takes it");
        pushed.push((PageId(*page), image));
    }
    (images.seal(batch).expect("memory takes it"), pushed)
}

#[test]
fn the_bytes_on_the_medium_are_those_of_the_format() {
    let shelf = Arc::new(MemoryShelf::new());
    let images = Images::create(shelf.clone(), Poison::default(), 65_536).expect("there is room");
    let (header, _) = batch(&images, 3, &[1, 17, 42]);
    images.mark(&header, Mark::Committed).expect("memory takes it");
    let mut bytes = AlignedBuffer::zeroed(65_536);
    shelf.open_read_only("images-0000").expect("is there").read(0, &mut bytes).expect("reads");
    let mut out = String::new();
    dump("write image journal: a committed batch of three", &bytes, &mut out);
    let superblock = Superblock {
        encrypted: None,
        geometry: GEOMETRY,
        devices: 2,
        identity: 0x0123_4567_89ab_cdef,
        journal: 0x5eed_1d00,
        catalog: PageId(17),
        next_tree: 7,
        is_clean: true,
        redo_lsn: Lsn(0x7788),
        checkpoint: 3,
        micros: 0x0102_0304_0506,
    };
    dump("superblock", &superblock.encode(), &mut out);
    let mut bitmap = Bitmap::new(64);
    [(0, 2), (17, 1), (40, 3)].into_iter().for_each(|(first, pages)| bitmap.take(first, pages));
    dump("the only map page of device 1", &map::encode(GEOMETRY, 1, 0, &bitmap, 0x7788).1, &mut out);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/images.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &out).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(out, expected, "images.txt differs; if that is meant: UPDATE=1 cargo test -p store images");
}

#[test]
fn a_batch_that_spans_devices_is_read_back_as_it_was_written() {
    let shelf = Arc::new(MemoryShelf::new());
    let mut images = Images::create(shelf.clone(), Poison::default(), 40_960).expect("there is room");
    // More than one write of a mebibyte, and many devices.
    let pages: Vec<u32> = (0..700).map(|page| page * 3).collect();
    images.reserve(GEOMETRY, pages.len() as u32).expect("there is room");
    let (header, pushed) = batch(&images, 1, &pages);
    images.mark(&header, Mark::Committed).expect("memory takes it");
    let again = Images::open(shelf, Poison::default(), true).expect("opens").expect("is there");
    assert_eq!(again.headers(), Headers::Batch(header, Mark::Committed));
    let mut found = Vec::new();
    let whole = again.visit(&header, |page, expected, image| {
        assert_eq!(sum(image), expected);
        found.push((page, image.to_vec()));
        Ok(())
    });
    assert!(whole.expect("reads"), "the table verifies");
    assert_eq!(found, pushed);
    assert!(!again.is_overwritten(&header).expect("reads"));
    batch(&again, 2, &[5, 6]);
    assert!(again.is_overwritten(&header).expect("reads"), "a checkpoint had begun that was never committed");
}
