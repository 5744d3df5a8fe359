//! The decision of opening about the write image journal: a table of its content against the superblock on the data
//! devices.
//!
//! | superblock \ images | missing | zeros | torn header | damaged header | committed k | invalidated k |
//! |---|---|---|---|---|---|---|
//! | no data devices | create | create | pages missing | pages missing | pages missing | pages missing |
//! | superblock unreadable | damaged | damaged | damaged | damaged | **restore** | **mend** |
//! | closed | begin images | nothing | nothing | nothing | as below | as below |
//! | checkpoint s = 0 | images missing | nothing | nothing | nothing | as below | as below |
//! | checkpoint s > 0, not closed | images missing | images missing | nothing | images damaged | k = s or s + 1: **restore**; else foreign | k = s: nothing; else foreign |
//!
//! An identity other than the superblock's is foreign in every row.
//!
//! Why this is right, given the order *images, flush, commit, flush, in place, flush, invalidate, flush*:
//!
//! * **Torn header.** Only the write that commits or the write that invalidates can leave a half-written header. Before
//!   the commit mark is persistent, no page of the batch was written in place: the data devices contain s. When
//!   invalidating begins, all of the batch is in place and flushed: they contain k. In both cases the data devices are
//!   whole.
//! * **Damaged header.** Drives keep a sector whole, and each copy is one sector: there no crash leaves two copies that do not
//!   verify, and the batch that they are of may have been half in place.
//! * **Committed k** is restored whatever the data devices contain: s = k - 1 before page 0 was written in place, s = k
//!   after that, unreadable if the crash tore it. Restoring again is harmless: the batch contains the current state
//!   until the next batch is committed.
//! * **Superblock unreadable, invalidated k**: the last batch that was written in place also contains page 0. If that
//!   image is whole, and matches the journal and the maps, it is written in place again.
//! * **Invalidated k** and another s: one of the two shelves belongs to another store, or is older.
//! * **Zeros or missing** although checkpoints were run: the data devices may be half written, and the images that
//!   would repair them are gone. After closing nothing is half written: opening removes the clean mark, in a checkpoint
//!   that writes nothing else, before anything is changed.
//! * **Missing at checkpoint 0**: images are created before pages. So they existed, and a first checkpoint may have
//!   begun.
//!
//! A committed batch was persistent once; if some of it does not verify, it is damaged. The rest of it is still
//! restored. A page whose image is damaged is right if the data device already contains exactly that image. Otherwise
//! opening refuses and names the pages.

use crate::images::format::{Headers, Mark};

/// The state of the superblock on the data devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataState {
    /// There is no data device.
    Absent,
    /// Page 0 does not verify.
    Unreadable,
    /// Page 0 verifies; its content.
    Readable {
        /// The store's identity.
        identity: u64,
        /// The checkpoint that wrote it.
        checkpoint: u64,
        /// Whether the store was closed after that.
        is_clean: bool,
    },
}

/// The action of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Create a store.
    Create,
    /// Create an empty write image journal.
    Begin,
    /// The data devices are whole.
    Nothing,
    /// Write the images in place.
    Restore,
    /// Write the superblock in place, from the last batch that was written in place.
    Mend,
    /// Refuse to open.
    Refuse(Refusal),
}

/// Why opening is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are images, but no pages.
    PagesMissing,
    /// The pages may be half written, and the images that would repair them are missing.
    ImagesMissing,
    /// The pages may be half written, and the images that would repair them are damaged.
    ImagesDamaged,
    /// The superblock is damaged, and no batch contains it.
    Damaged,
    /// Images and pages belong to different stores, or to different times of one store.
    Foreign,
}

impl Refusal {
    /// The text for the user: the cause and what to do.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::PagesMissing => {
                "there are write images but no pages: mount the medium of the pages, or restore a backup"
            }
            Refusal::ImagesMissing => {
                "the write image journal is missing, and the store was not closed: mount its medium, or restore a backup"
            }
            Refusal::ImagesDamaged => {
                "both headers of the write image journal (images-0000) are damaged, and the store was not closed: restore a \
                 backup"
            }
            Refusal::Damaged => "the superblock (page 0 in pages-0000) is damaged: restore a backup",
            Refusal::Foreign => {
                "the write image journal and the pages are not of one store and time: check where both lie, or restore a \
                 backup"
            }
        }
    }
}

/// The table. `images` is `None` if there is no device of images.
pub(crate) fn decide(data: DataState, images: Option<Headers>) -> Verdict {
    let batch = match images {
        Some(Headers::Batch(header, mark)) => Some((header, mark)),
        None | Some(Headers::Zeros | Headers::Torn | Headers::Damaged) => None,
    };
    match (data, images) {
        (DataState::Absent, None | Some(Headers::Zeros)) => Verdict::Create,
        (DataState::Absent, Some(_)) => Verdict::Refuse(Refusal::PagesMissing),
        (DataState::Unreadable, Some(Headers::Batch(_, Mark::Committed))) => Verdict::Restore,
        (DataState::Unreadable, Some(Headers::Batch(_, Mark::Invalid))) => Verdict::Mend,
        (DataState::Unreadable, _) => Verdict::Refuse(Refusal::Damaged),
        (DataState::Readable { identity, checkpoint, is_clean }, _) => match (images, batch) {
            (_, Some((header, _))) if header.identity != identity => Verdict::Refuse(Refusal::Foreign),
            (_, Some((header, Mark::Committed)))
                if header.checkpoint == checkpoint || header.checkpoint == checkpoint + 1 =>
            {
                Verdict::Restore
            }
            (_, Some((header, Mark::Invalid))) if header.checkpoint == checkpoint => Verdict::Nothing,
            (_, Some(_)) => Verdict::Refuse(Refusal::Foreign),
            (Some(Headers::Torn), None) => Verdict::Nothing,
            (None, None) if is_clean => Verdict::Begin,
            (Some(_), None) if is_clean || checkpoint == 0 => Verdict::Nothing,
            (Some(Headers::Damaged), None) => Verdict::Refuse(Refusal::ImagesDamaged),
            (_, None) => Verdict::Refuse(Refusal::ImagesMissing),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::format::BatchHeader;
    use crate::space::geometry::Geometry;
    use journal::Lsn;

    #[test]
    fn every_combination_of_facts_has_the_decision_of_the_table() {
        use Refusal::{Damaged, Foreign, ImagesDamaged, ImagesMissing, PagesMissing};
        use Verdict::{Begin, Create, Mend, Nothing, Refuse, Restore};
        let geometry = Geometry { page_bytes: 4096, device_pages: 64 };
        let batch = |identity, checkpoint, mark| {
            let header = BatchHeader { identity, geometry, checkpoint, redo_lsn: Lsn(0), count: 0, table: 0 };
            Some(Headers::Batch(header, mark))
        };
        let committed = |checkpoint| batch(1, checkpoint, Mark::Committed);
        let invalid = |checkpoint| batch(1, checkpoint, Mark::Invalid);
        let images = [
            None,
            Some(Headers::Zeros),
            Some(Headers::Torn),
            Some(Headers::Damaged),
            committed(4),
            committed(5),
            committed(6),
            committed(7),
            invalid(4),
            invalid(5),
            invalid(6),
            batch(2, 5, Mark::Committed),
            batch(2, 5, Mark::Invalid),
        ];
        let (no, gone, torn, other) = (Refuse(PagesMissing), Refuse(ImagesMissing), Refuse(Damaged), Refuse(Foreign));
        let lost = Refuse(ImagesDamaged);
        let readable = |checkpoint, is_clean| DataState::Readable { identity: 1, checkpoint, is_clean };
        #[rustfmt::skip]
        let table = [
            //                      none    zeros    torn     damaged  f4       f5       f6       f7       c4     c5       c6     other  other
            (DataState::Absent,         [Create, Create,  no,      no,      no,      no,      no,      no,      no,    no,      no,    no,    no]),
            (DataState::Unreadable,     [torn,   torn,    torn,    torn,    Restore, Restore, Restore, Restore, Mend,  Mend,    Mend,  Restore, Mend]),
            (readable(5, false),   [gone,   gone,    Nothing, lost,    other,   Restore, Restore, other,   other, Nothing, other, other, other]),
            (readable(5, true),    [Begin,  Nothing, Nothing, Nothing, other,   Restore, Restore, other,   other, Nothing, other, other, other]),
            (readable(0, false),   [gone,   Nothing, Nothing, Nothing, other,   other,   other,   other,   other, other,   other, other, other]),
        ];
        for (data, row) in table {
            for (images, expected) in images.iter().zip(row) {
                assert_eq!(decide(data, *images), expected, "{data:?} {images:?}");
            }
        }
    }
}
