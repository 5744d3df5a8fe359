//! Tests of headers, checksums and the encoding of extents, against the layouts in the head comments.

use super::*;

#[test]
fn a_sealed_page_passes_at_its_own_id_and_only_unchanged() {
    for bytes in [PAGE_BYTES_MIN, PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX] {
        let mut page: Vec<u8> = (0..bytes).map(|at| ((at * 7) >> 3) as u8).collect();
        seal(PageId(77), &mut page);
        check(PageId(77), &page).expect("just sealed");
        assert!(check(PageId(78), &page).is_err(), "another id");
        for at in [0, 3, 4, 31, 32, bytes / 2, bytes - 1] {
            let mut damaged = page.clone();
            damaged[at] ^= 1;
            assert!(check(PageId(77), &damaged).is_err(), "byte {at} of {bytes}");
        }
    }
    assert!(check(PageId(1), &[0; 31]).is_err(), "too short");
}

#[test]
fn a_header_lies_where_its_picture_says() {
    let mut page = vec![0; 64];
    assert_eq!(PageHeader::of(&page), None, "zeros are no page");
    let header =
        PageHeader { kind: Kind::Leaf, level: 2, flags: 0x0403, tree: 0x0807_0605, lsn: 0x1817_1615_1413_1211 };
    header.put(&mut page);
    assert_eq!(page[..12], [0, 0, 0, 0, 4, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(page[12..32], [0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(PageHeader::of(&page), Some(header));
    assert_eq!(PageHeader::of(&page[..31]), None);
    let kinds = (0..=255).filter_map(Kind::of).map(|kind| kind as u8).collect::<Vec<_>>();
    assert_eq!(kinds, [1, 2, 3, 4], "every kind is its own byte");
}

#[test]
fn an_extent_survives_its_cell_and_knows_its_bytes() {
    let bytes = vec![9; 8193];
    let extent = Extent::of(PageId(5), &bytes);
    assert_eq!((extent.pages(8192), extent.pages(16384)), (2, 1));
    assert_eq!(Extent::decode(&extent.encode()), Some(extent));
    extent.check(&bytes).expect("its own bytes");
    assert!(extent.check(&bytes[1..]).is_err());
    for (first, length) in [(0, 1), (1, 0), (1, EXTENT_BYTES_MAX as u32 + 1)] {
        let impossible = Extent { first: PageId(first), bytes: length, checksum: 0 };
        assert_eq!(Extent::decode(&impossible.encode()), None, "{impossible:?}");
    }
    assert_eq!(Extent::decode(&[1; 11]), None);
}
