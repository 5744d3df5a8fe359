//! Restores a backup to empty shelves. Opening the store there redoes the restored journal.
//!
//! The whole backup is checked first ([`check`]): damage must be found before the old store is gone.
//!
//! ```text
//!   journal first, then pages-0001 ..., pages-0000 last, under a temporary name until it is persistent: while it is
//!   missing, nothing opens
//! ```

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError, Shelf};
use encryption::Sealer;
use journal::{JournalError, Lsn, Record, View};

use super::{Manifest, Until, check_empty, create};
use crate::StoreError;
use crate::options::Places;
use crate::space::devices::{device_name, device_number};
use crate::verify::{Progress, Verified};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Name of a device that is being restored.
const UNFINISHED: &str = "making-pages";

/// What is restored.
#[derive(Clone, Copy, Debug)]
pub struct BackupSource<'a> {
    /// The backup.
    pub backup: &'a Arc<dyn Shelf>,
    /// A journal that continues after the one in the backup: that of the store, if it can still be read.
    pub kept: Option<&'a Arc<dyn Shelf>>,
    /// What decrypts both, if they are encrypted. Nothing is decrypted or encrypted by restoring, except to check it.
    pub sealer: Option<&'a Arc<Sealer>>,
}

/// The result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restoration {
    /// The manifest of the backup.
    pub manifest: Manifest,
    /// The end of the restored journal: opening redoes it from [`Manifest::redo_lsn`] up to here.
    pub end: Lsn,
}

/// The progress of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoring {
    /// The pages of the backup are being checked.
    Checking(Progress),
    /// Pages are being copied.
    Copying {
        /// Bytes copied.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// When a record was committed, microseconds since 1970; `None` if the record does not contain that.
pub(crate) type TimeOf<'a> = &'a dyn Fn(&Record) -> Option<u64>;

/// Restores `backup` to empty places, up to a moment. `kept` is a shelf with a journal that continues after the
/// backup's; without it the backup's own journal is used.
///
/// Errors: [`StoreError::Refused`] if the places are not empty or the moment lies before the backup,
/// [`StoreError::Corrupt`] if the backup is incomplete, or if the journal belongs to another store or was truncated
/// after the backup; [`StoreError::Full`], [`StoreError::Journal`], [`StoreError::Device`]. After an error the places
/// must be emptied.
pub(crate) fn restore(
    source: BackupSource<'_>,
    places: &Places,
    until: Until,
    time_of: TimeOf<'_>,
    progress: &mut dyn FnMut(Restoring),
) -> Result<Restoration, StoreError> {
    let BackupSource { backup, kept, sealer } = source;
    let manifest = Manifest::read(&**backup)?;
    [&places.journal, &places.images, &places.data].into_iter().try_for_each(|shelf| check_empty(&**shelf))?;
    let view = View::open_with(kept.unwrap_or(backup).clone(), sealer.cloned())?;
    if view.identity().is_some_and(|identity| identity != manifest.journal) {
        return Err(StoreError::Corrupt("the kept journal is another store's".into()));
    }
    if kept.is_some() {
        check_lineage(backup, &manifest, &view)?;
    }
    if view.first() > manifest.from {
        let why = format!(
            "the kept journal begins at {}, the backup needs it from {} on: records in between are missing",
            view.first(),
            manifest.from
        );
        return Err(StoreError::Corrupt(why.into()));
    }
    if kept.is_none() && view.end() < manifest.end {
        // A missing end looks like a tail that a crash tore; in a backup nothing is torn.
        let (there, said) = (view.end(), manifest.end);
        let why =
            format!("the backup's journal is whole only up to {there}, but its manifest requires it up to {said}");
        return Err(StoreError::Corrupt(why.into()));
    }
    let until = position(&view, &manifest, until, time_of)?;
    let early = || {
        let why = format!(
            "the moment lies before the backup: the first that it can be restored to is the end of the group commit at {}",
            manifest.consistent_lsn
        );
        StoreError::Refused(why.into())
    };
    if until < manifest.consistent_lsn {
        return Err(early());
    }
    let copied = match journal::copy(&view, &*places.journal, manifest.from, until) {
        Err(JournalError::BeyondEnd { .. }) if until < manifest.end => return Err(early()),
        copied => copied?,
    };
    if copied.end < manifest.consistent_lsn {
        if until < manifest.end {
            return Err(early());
        }
        let why =
            format!("the journal ends at {}, before the backup's state at {}", copied.end, manifest.consistent_lsn);
        return Err(StoreError::Corrupt(why.into()));
    }
    let mut numbers: Vec<u32> = backup.list()?.iter().filter_map(|name| device_number(name)).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let total = numbers.len() as u64 * backup.open_read_only(&device_name(0))?.len();
    let mut done = 0;
    let mut tell = |bytes| {
        done += bytes;
        progress(Restoring::Copying { done, total });
    };
    numbers.into_iter().try_for_each(|number| copy_device(&**backup, &*places.data, number, &mut tell))?;
    Ok(Restoration { manifest, end: copied.end })
}

/// Checks that a kept journal goes on where that of the backup ends: a store that was restored has the identity of the one that was backed
/// up, and may have gone on otherwise before the backup was made. Where the backup's own journal is damaged ahead of its last segment, that
/// one tells it.
///
/// Errors: [`StoreError::Corrupt`], also where the backup's own journal cannot tell it; it says what to do then.
fn check_lineage(backup: &Arc<dyn Shelf>, manifest: &Manifest, kept: &View) -> Result<(), StoreError> {
    let own = View::open(Arc::clone(backup)).map_err(not_known)?;
    if own.end() < manifest.end {
        let why = format!("it is whole only up to {} of {}", own.end(), manifest.end);
        return Err(unknown_lineage(&why));
    }
    let goes_on = match journal::is_continued_by(&own, kept) {
        Err(damage @ JournalError::Corrupt(_)) => {
            if !journal::ends_within(&own, kept).map_err(not_known)? {
                return Err(not_known(damage));
            }
            tracing::warn!(%damage, "the backup's own journal is damaged: what lies behind the damage is that of the kept one, which is taken");
            true
        }
        found => found?,
    };
    if !goes_on {
        let why = "the kept journal does not go on behind this backup: it is that of a node that was restored to an earlier \
                   moment, and went on otherwise. Take a backup that was made after that restore, or one of before the \
                   moment that it was restored to";
        return Err(StoreError::Corrupt(why.into()));
    }
    Ok(())
}

/// What damage of the backup's own journal means for a kept one.
fn not_known(error: JournalError) -> StoreError {
    match error {
        JournalError::Corrupt(damage) => unknown_lineage(&damage.to_string()),
        other => other.into(),
    }
}

fn unknown_lineage(damage: &str) -> StoreError {
    let why = format!(
        "the backup's own journal is damaged ({damage}), so it is not known whether the kept journal goes on behind it: take another backup, \
         of before or after this one, with the kept journal. If the node was never restored, put the kept journal's files in the place of \
         those of the same names (journal-*) in a copy of the backup, and restore that"
    );
    StoreError::Corrupt(why.into())
}

/// Checks that a verified backup is sound and matches its manifest.
///
/// Errors: [`StoreError::Corrupt`], with the first damaged place.
pub(crate) fn check(manifest: &Manifest, found: &Verified) -> Result<(), StoreError> {
    if let Some(first) = found.messages.first() {
        let why = format!("the backed up data is damaged, {} faults: {first}", found.faults);
        return Err(StoreError::Corrupt(why.into()));
    }
    if !manifest.is_of(found) {
        return Err(StoreError::Corrupt("the backup's pages do not match its manifest".into()));
    }
    Ok(())
}

/// Returns the position of a moment in the journal.
fn position(view: &View, manifest: &Manifest, until: Until, time_of: TimeOf<'_>) -> Result<Lsn, StoreError> {
    let micros = match until {
        Until::End => return Ok(Lsn(u64::MAX)),
        Until::Lsn(lsn) => return Ok(lsn),
        Until::Micros(micros) => micros,
    };
    if micros < manifest.micros {
        return Ok(Lsn::ZERO);
    }
    for record in view.read(manifest.redo_lsn) {
        let record = record?;
        if time_of(&record).is_some_and(|time| time > micros) {
            return Ok(record.lsn);
        }
    }
    Ok(Lsn(u64::MAX))
}

fn copy_device(from: &dyn Shelf, to: &dyn Shelf, number: u32, tell: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
    let name = device_name(number);
    let source = from.open_read_only(&name)?;
    match to.remove(UNFINISHED) {
        Ok(()) | Err(DeviceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let target = create(to, UNFINISHED, source.len())?;
    let mut at = 0;
    while at < source.len() {
        let mut chunk = AlignedBuffer::zeroed((source.len() - at).min(CHUNK_BYTES as u64) as usize);
        source.read(at, &mut chunk)?;
        // A new device contains zeros already.
        if chunk.iter().any(|byte| *byte != 0) {
            target.write(at, &chunk)?;
        }
        at += chunk.len() as u64;
        tell(chunk.len() as u64);
    }
    target.flush()?;
    Ok(to.rename(UNFINISHED, &name)?)
}
