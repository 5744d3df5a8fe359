//! [`Superblock`]: page 0, through which everything else of a store is found.
//!
//! ```text
//!   offset  bytes  field
//!        0     32  header of a page: checksum, kind, lsn (redo LSN)
//!       32      8  magic "TERRSTO" and a zero
//!       40      4  version: 1, or 2 of an encrypted store
//!       44      4  page_bytes
//!       48      4  device_pages
//!       52      4  devices whose map counts; later ones are newer and empty
//!       56      8  identity of the store, drawn when it was created
//!       64      4  identity of its journal
//!       68      4  root of the catalog, a page
//!       72      4  next tree id
//!       76      4  1 if the store was closed and nothing has to be redone, else 0
//!       80      8  redo LSN: the pages are the state after every record before it
//!       88      8  checkpoint: number of the checkpoint that wrote this; 0 when the store is created
//!       96      8  microseconds since 1970 when the checkpoint began
//!      104     12  version 2: number of the data key that the store was created with, and 8 bytes that recognise it
//!      116    ...  zeros
//! ```
//!
//! All fields lie in the first sector, so that geometry can be read before the size of a page is known. The superblock
//! is written through the write image journal like every changed page: opening repairs a torn one.

use encryption::{KeyMark, MARK_BYTES, Sealer};
use journal::Lsn;

use crate::StoreError;
use crate::page::{self, HEADER_BYTES, Kind, PageHeader, PageId};
use crate::space::geometry::Geometry;

const MAGIC: &[u8; 8] = b"TERRSTO\0";

/// Version of this layout, and of the map's.
pub(crate) const VERSION: u32 = 1;
/// Version of an encrypted store.
const VERSION_ENCRYPTED: u32 = 2;
/// Where an encrypted store's mark lies.
const MARK: usize = 104;

/// How many bytes [`Superblock::geometry`] needs.
pub(crate) const PROBE_BYTES: usize = 4096;

/// The page of the superblock.
pub(crate) const PAGE: PageId = PageId(0);

/// The content of page 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Sizes.
    pub(crate) geometry: Geometry,
    /// Devices whose map counts.
    pub(crate) devices: u32,
    /// Identity of the store.
    pub(crate) identity: u64,
    /// Identity of its journal.
    pub(crate) journal: u32,
    /// Root of the catalog.
    pub(crate) catalog: PageId,
    /// The next tree id.
    pub(crate) next_tree: u32,
    /// Whether the store was closed properly.
    pub(crate) is_clean: bool,
    /// Everything before this is in the pages.
    pub(crate) redo_lsn: Lsn,
    /// Number of the checkpoint that wrote it.
    pub(crate) checkpoint: u64,
    /// When its checkpoint began, microseconds since 1970.
    pub(crate) micros: u64,
    /// Of an encrypted store: recognises the data key that was the newest one at its checkpoint.
    pub(crate) encrypted: Option<KeyMark>,
}

/// Why page 0 cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The checksum does not match.
    Damaged,
    /// It has another version of the format.
    Version(u32),
}

impl Superblock {
    /// The sizes in a first block; they determine how much to read for [`decode`](Superblock::decode).
    pub(crate) fn geometry(block: &[u8]) -> Option<Geometry> {
        let geometry = Geometry { page_bytes: u32_at(block, 44), device_pages: u32_at(block, 48) };
        (block[32..40] == *MAGIC && geometry.is_sound()).then_some(geometry)
    }

    /// Decodes a whole page 0.
    pub(crate) fn decode(page: &[u8]) -> Result<Superblock, Unreadable> {
        let geometry = Superblock::geometry(page).ok_or(Unreadable::Damaged)?;
        if page.len() != geometry.page_bytes as usize
            || page::check(PAGE, page).is_err()
            || page::kind(page) != Some(Kind::Super)
        {
            return Err(Unreadable::Damaged);
        }
        let version = u32_at(page, 40);
        if version != VERSION && version != VERSION_ENCRYPTED {
            return Err(Unreadable::Version(version));
        }
        Ok(Superblock {
            geometry,
            devices: u32_at(page, 52),
            identity: u64_at(page, 56),
            journal: u32_at(page, 64),
            catalog: PageId(u32_at(page, 68)),
            next_tree: u32_at(page, 72),
            is_clean: u32_at(page, 76) == 1,
            redo_lsn: Lsn(u64_at(page, 80)),
            checkpoint: u64_at(page, 88),
            micros: u64_at(page, 96),
            encrypted: (version == VERSION_ENCRYPTED).then(|| mark_of(page)),
        })
    }

    /// Checks that the sealer is the store's. Errors: [`StoreError::Corrupt`].
    pub(crate) fn check_key(&self, sealer: Option<&Sealer>) -> Result<(), StoreError> {
        let refused = |why: String| Err(StoreError::Corrupt(why.into()));
        match (sealer, self.encrypted) {
            (None, None) => Ok(()),
            (None, Some(_)) => refused("the store is encrypted: give the key-encryption key".into()),
            (Some(_), None) => refused(
                "the store is not encrypted, but a key was given: data is encrypted from its beginning or not at all"
                    .into(),
            ),
            (Some(sealer), Some(mark)) => sealer.check(mark).or_else(|fault| refused(format!("the store: {fault}"))),
        }
    }

    /// Encodes the sealed page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; self.geometry.page_bytes as usize];
        let mut at = HEADER_BYTES;
        let mut put = |bytes: &[u8]| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(MAGIC);
        let version = if self.encrypted.is_some() { VERSION_ENCRYPTED } else { VERSION };
        let sizes = [version, self.geometry.page_bytes, self.geometry.device_pages, self.devices];
        sizes.iter().for_each(|field| put(&field.to_le_bytes()));
        put(&self.identity.to_le_bytes());
        let roots = [self.journal, self.catalog.0, self.next_tree, u32::from(self.is_clean)];
        roots.iter().for_each(|field| put(&field.to_le_bytes()));
        [self.redo_lsn.0, self.checkpoint, self.micros].iter().for_each(|field| put(&field.to_le_bytes()));
        if let Some(mark) = &self.encrypted {
            put(&mark.encode());
        }
        PageHeader { kind: Kind::Super, level: 0, flags: 0, tree: 0, lsn: self.redo_lsn.0 }.put(&mut page);
        page::seal(PAGE, &mut page);
        page
    }
}

fn mark_of(page: &[u8]) -> KeyMark {
    KeyMark::decode(page[MARK..].first_chunk::<MARK_BYTES>().expect("the geometry was sound"))
}

/// Reads a number of a layout.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads a number of a layout.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Superblock {
        Superblock {
            geometry: Geometry { page_bytes: 4096, device_pages: 64 },
            devices: 3,
            identity: 0x0123_4567_89ab_cdef,
            journal: 0xaabb_ccdd,
            catalog: PageId(17),
            next_tree: 1001,
            is_clean: true,
            redo_lsn: Lsn(0x1122_3344_5566),
            checkpoint: 9,
            micros: 1_700_000_000_000_000,
            encrypted: None,
        }
    }

    #[test]
    fn it_reads_what_it_wrote_and_nothing_that_was_changed() {
        let page = example().encode();
        assert_eq!(Superblock::decode(&page), Ok(example()));
        let encrypted = Superblock { encrypted: Some(Sealer::for_tests(1, 1, 1).mark()), ..example() };
        assert_eq!(Superblock::decode(&encrypted.encode()), Ok(encrypted));
        for byte in 0..page.len() {
            let mut changed = page.clone();
            changed[byte] ^= 4;
            assert_eq!(Superblock::decode(&changed), Err(Unreadable::Damaged), "byte {byte}");
        }
        assert_eq!(Superblock::decode(&page[..512]), Err(Unreadable::Damaged), "too short");
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut page = example().encode();
        page[40] = 3;
        page::seal(PAGE, &mut page);
        assert_eq!(Superblock::decode(&page), Err(Unreadable::Version(3)));
    }
}
