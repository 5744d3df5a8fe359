//! The format of leaves and inner pages, fixed. A change of these files is a change of the format.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

/// Compares with the file, or writes it if UPDATE is set.
fn check(name: &str, bytes: &[u8]) {
    let mut dump = String::new();
    for (number, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            line.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        writeln!(dump, "{:06x}  {}  {text}", number * 16, hex.join(" ")).expect("a string takes everything");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &dump).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(dump, expected, "{name} differs; if that is meant: UPDATE=1 cargo test -p store golden");
}

#[test]
fn pages_of_a_tree_are_those_of_the_format() {
    let pages = MemoryPages::new(4096);
    let tree = Tree::create(&pages, TreeId(0x0403_0201), Lsn(0x11)).expect("room");
    let mut writer = tree.writer(&pages);
    for at in 0..40u32 {
        let key = format!("patient/{:04}/observation", at * 7);
        writer.put(key.as_bytes(), &[b'a' + (at % 26) as u8; 300], Lsn(0x100 + u64::from(at))).expect("room");
    }
    writer.put(b"patient/0100/x", &[b'V'; 5000], Lsn(0x1234_5678)).expect("room");
    writer.put(b"p", b"", Lsn(0x1234_5679)).expect("room");
    let mut leaf = tree.descend(&pages, inner::Toward::At(b"patient/0100/x"), |_, _| ()).unwrap_or_default();
    let mut bytes = pages.read(leaf).expect("is there").to_vec();
    crate::page::seal(leaf, &mut bytes);
    check("leaf.txt", &bytes);
    leaf = tree.root;
    let mut bytes = vec![0; 4096];
    pages
        .inner(leaf, |words| {
            let each = bytes.as_chunks_mut::<8>().0.iter_mut().zip(words);
            each.for_each(|(bytes, word)| *bytes = word.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes());
        })
        .expect("is there");
    crate::page::seal(leaf, &mut bytes);
    check("inner.txt", &bytes);
}
