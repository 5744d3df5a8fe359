//! Pages of the allocation map: header, then one bit for each page of the device, 1 for in use, lowest bit first.

use crate::page::{self, HEADER_BYTES, Kind, PageHeader, PageId};
use crate::space::bitmap::Bitmap;
use crate::space::geometry::Geometry;

/// The `nth` map page of a device, sealed.
pub(crate) fn encode(geometry: Geometry, device: u32, nth: u32, map: &Bitmap, lsn: u64) -> (PageId, Vec<u8>) {
    let page = geometry.map_page(device, nth);
    let mut bytes = vec![0; geometry.page_bytes as usize];
    let words = map.words(nth as usize * geometry.map_words(), geometry.map_words());
    let places = bytes[HEADER_BYTES..].chunks_exact_mut(8);
    places.zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    PageHeader { kind: Kind::Map, level: 0, flags: 0, tree: 0, lsn }.put(&mut bytes);
    page::seal(page, &mut bytes);
    (page, bytes)
}

/// Decodes the `nth` map page of a device into its map; returns `false` if it is not one.
#[must_use]
pub(crate) fn decode(geometry: Geometry, device: u32, nth: u32, bytes: &[u8], map: &mut Bitmap) -> bool {
    if page::check(geometry.map_page(device, nth), bytes).is_err() || page::kind(bytes) != Some(Kind::Map) {
        return false;
    }
    let words = bytes[HEADER_BYTES..].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    map.set_words(nth as usize * geometry.map_words(), words);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_comes_back_from_its_pages_and_a_page_of_another_place_is_refused() {
        let geometry = Geometry { page_bytes: 4096, device_pages: 1 << 17 };
        let random = &mut fastrand::Rng::with_seed(7);
        let mut map = Bitmap::new(geometry.device_pages);
        (0..geometry.device_pages).filter(|_| random.bool()).for_each(|page| map.take(page, 1));
        let mut read = Bitmap::new(geometry.device_pages);
        for nth in 0..geometry.maps() {
            let (page, bytes) = encode(geometry, 1, nth, &map, 5);
            assert_eq!(page, geometry.map_page(1, nth));
            assert!(!decode(geometry, 2, nth, &bytes, &mut read) && !decode(geometry, 1, nth + 1, &bytes, &mut read));
            assert!(decode(geometry, 1, nth, &bytes, &mut read));
        }
        assert_eq!(read, map);
        assert!(geometry.maps() > 1);
    }
}
