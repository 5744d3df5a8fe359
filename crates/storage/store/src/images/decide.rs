//! What opening does about the write image journal: a table of what lies there against what the superblock on the data devices says.
//!
//! | superblock \ images | missing | zeros | torn header | committed k | invalidated k |
//! |---|---|---|---|---|---|
//! | no data devices | create | create | pages missing | pages missing | pages missing |
//! | superblock unreadable | damaged | damaged | damaged | **restore** | **mend** |
//! | closed | begin images | nothing | nothing | as below | as below |
//! | checkpoint s = 0 | images missing | nothing | nothing | as below | as below |
//! | checkpoint s > 0, not closed | images missing | images missing | nothing | k = s or s + 1: **restore**; else foreign | k = s: nothing; else foreign |
//!
//! Another identity than the superblock's is foreign in every row.
//!
//! Why that is right, given the order *images, flush, commit, flush, in place, flush, invalidate, flush*:
//!
//! * **Torn header.** A header is half written only inside the write that commits or the write that invalidates. Before the commit mark has
//!   returned nothing of the batch was written in place: the data devices hold s. When invalidating begins all of it
//!   is in place, flushed: they hold k.
//!   Either way the data devices are whole. (Drives keep a sector whole, and each copy is one sector: there it means damage to both.)
//! * **Committed k** is restored whatever the data devices hold: s = k - 1 while page 0 has not been written in place, s = k since, unreadable when the
//!   crash tore it. Restoring once more is harmless: what the batch holds is the state until the next batch is committed.
//! * **Superblock unreadable, invalidated k**: the last batch that was written in place holds page 0 as well; where its image is whole, and
//!   fits the journal and the maps, it is written in place again.
//! * **Invalidated k** and another s: one of the two shelves is not this store's, or is older.
//! * **Zeros or missing** although checkpoints were run: the data devices may be half written, and what would mend it is gone. After closing
//!   nothing is half written: opening takes the mark away, in a checkpoint that writes nothing else, before anything is changed.
//! * **Missing at checkpoint 0**: images are made ahead of pages, so that they were there, and a first checkpoint may have begun.
//!
//! A committed batch of which something does not verify was persistent once, so that it is damaged. The restoration of the rest
//! goes on; a page whose image is damaged is right if the data device holds just that image already. Otherwise opening refuses and names
//! the pages.

use crate::images::format::{Headers, Mark};

/// What the superblock on the data devices says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataState {
    /// There is no data device.
    Absent,
    /// Page 0 does not verify.
    Unreadable,
    /// What it says.
    Readable {
        /// Of the store.
        identity: u64,
        /// The checkpoint that wrote it.
        checkpoint: u64,
        /// Whether the store was closed after that.
        is_clean: bool,
    },
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make a store.
    Create,
    /// Make an empty write image journal.
    Begin,
    /// The data devices are whole.
    Nothing,
    /// Write the images in place.
    Restore,
    /// Write the superblock in place, of the last batch that went there.
    Mend,
    /// Open nothing.
    Refuse(Refusal),
}

/// Why nothing is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are images, and no pages.
    PagesMissing,
    /// The pages may be half written, and the images that would mend them are not there.
    ImagesMissing,
    /// The superblock is damaged, and no batch holds it.
    Damaged,
    /// Images and pages are not of one store, or not of one time.
    Foreign,
}

impl Refusal {
    /// What to tell, and what to do.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::PagesMissing => {
                "there are write images and no pages: mount the medium of the pages, or restore a backup"
            }
            Refusal::ImagesMissing => {
                "the write image journal is missing, and the store was not closed: mount its medium, or restore a backup"
            }
            Refusal::Damaged => "the superblock (page 0 in pages-0000) is damaged: restore a backup",
            Refusal::Foreign => {
                "the write image journal and the pages are not of one store and time: check where both lie, or restore a \
                 backup"
            }
        }
    }
}

/// The table. `images` is none where there is no device of images.
pub(crate) fn decide(data: DataState, images: Option<Headers>) -> Verdict {
    let batch = match images {
        Some(Headers::Batch(header, mark)) => Some((header, mark)),
        None | Some(Headers::Zeros | Headers::Torn) => None,
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
        use Refusal::{Damaged, Foreign, ImagesMissing, PagesMissing};
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
        let readable = |checkpoint, is_clean| DataState::Readable { identity: 1, checkpoint, is_clean };
        #[rustfmt::skip]
        let table = [
            //                      none    zeros    torn     f4       f5       f6       f7       c4     c5       c6     other  other
            (DataState::Absent,         [Create, Create,  no,      no,      no,      no,      no,      no,    no,      no,    no,    no]),
            (DataState::Unreadable,     [torn,   torn,    torn,    Restore, Restore, Restore, Restore, Mend,  Mend,    Mend,  Restore, Mend]),
            (readable(5, false),   [gone,   gone,    Nothing, other,   Restore, Restore, other,   other, Nothing, other, other, other]),
            (readable(5, true),    [Begin,  Nothing, Nothing, other,   Restore, Restore, other,   other, Nothing, other, other, other]),
            (readable(0, false),   [gone,   Nothing, Nothing, other,   other,   other,   other,   other, other,   other, other, other]),
        ];
        for (data, row) in table {
            for (images, expected) in images.iter().zip(row) {
                assert_eq!(decide(data, *images), expected, "{data:?} {images:?}");
            }
        }
    }
}
