//! One volume of a node: closed, being opened, open, or impossible to open for now.
//!
//! ```text
//!   Closed --open--> Opening --recovery--> Open --close--> Closed
//!                       |                   |
//!                       +--error--> Failed  +-- a copy is away: attach it again, with pauses that grow
//!                                     ^ |   +-- the medium of a place has failed --+
//!                                     | |                                          |
//!                                     | +--after a pause--> Opening                |
//!                                     +--------------------------------------------+
//! ```
//!
//! `care` is what is done for a volume that is open.
//!
//! Invariants: one operation at a time changes a volume; nothing holds the shelves of a copy but the volume itself, so that a copy that
//! it gave up can be opened again.

mod care;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use device::{BLOCK_BYTES, Device};
use nbd::EpochGate;
use volume::write_back::CachedShelf;
use volume::{CopyState, Epoch, Options, Volume};

use super::description::{CacheDescription, CopyDescription, Description, MadeState, VolumeKind, window_bytes};
use super::disks;
use super::epochs::EpochFile;
use super::keys::EncryptionDescription;
use super::place_health::PlaceHealth;
use super::places::{self, NewCopy};
use super::requests::{Activity, CacheReport, CopyReport, VolumeReport, VolumeState};
use super::space;
use crate::assemble::TierShelves;

/// The device of a place, on its shelf.
const PLACE: &str = "place";

/// The first pause before something that failed is tried again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(2);

/// How long a change of a volume waits for another one.
const OPERATION_PATIENCE: Duration = Duration::from_secs(20);

/// A medium that comes back is used within a minute.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is open.
#[derive(Debug, Clone)]
pub enum OpenDevice {
    /// A volume of copies.
    Mirror(Arc<Volume>),
    /// A bare device with an epoch.
    Place(Arc<dyn Device>, Arc<EpochFile>),
}

impl OpenDevice {
    /// As a device.
    pub fn device(&self) -> Arc<dyn Device> {
        match self {
            OpenDevice::Mirror(volume) => volume.clone(),
            OpenDevice::Place(device, _) => device.clone(),
        }
    }

    /// The keeper of its epoch, if clients state one.
    pub fn epochs(&self) -> Option<Arc<dyn EpochGate>> {
        match self {
            OpenDevice::Mirror(..) => None,
            OpenDevice::Place(_, epochs) => Some(epochs.clone()),
        }
    }
}

/// A pause that doubles with each failure.
#[derive(Debug, Clone)]
struct Retry {
    why: String,
    not_before: Instant,
    pause: Duration,
}

impl Retry {
    fn after(former: Option<&Retry>, why: String) -> Retry {
        let pause = former.map_or(PAUSE, |former| (former.pause * 2).min(PAUSE_MAX));
        Retry { why, not_before: Instant::now() + pause, pause }
    }
}

#[derive(Debug, Default)]
struct Hosted {
    open: Option<OpenDevice>,
    is_opening: bool,
    failed: Option<Retry>,
    /// The medium of each copy in words and whether it is real, and why it could not be attached.
    copies: [CopyFacts; volume::COPIES_MAX],
}

#[derive(Debug, Clone, Default)]
struct CopyFacts {
    medium: String,
    real: bool,
    cache: Option<Weak<CachedShelf>>,
    disks: BTreeSet<String>,
    failed: Option<Retry>,
}

/// See the module's text.
#[derive(Debug)]
pub struct HostedVolume {
    description: Mutex<Description>,
    hosted: Mutex<Hosted>,
    /// Held by what changes the volume as a whole.
    operation: parking_lot::Mutex<()>,
    /// A thread looks after its copies, or its medium.
    is_cared_for: AtomicBool,
    /// Of a place.
    health: Mutex<PlaceHealth>,
    scrub: Option<Duration>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostedVolume {
    /// One that is closed.
    pub fn new(description: Description, scrub: Option<Duration>) -> HostedVolume {
        let (description, hosted) = (Mutex::new(description), Mutex::default());
        HostedVolume {
            description,
            hosted,
            operation: parking_lot::Mutex::default(),
            is_cared_for: AtomicBool::new(false),
            health: Mutex::default(),
            scrub,
        }
    }

    /// Its description now.
    pub fn description(&self) -> Description {
        lock(&self.description).clone()
    }

    /// Puts another description in the place of this one, which the caller has made durable.
    pub fn describe(&self, description: Description) {
        *lock(&self.description) = description;
    }

    /// Held while the volume as a whole is changed. Waits for another change, but not for ever: that may hang in a medium.
    ///
    /// # Errors
    /// Another change is still under way.
    pub fn operation(&self) -> anyhow::Result<parking_lot::MutexGuard<'_, ()>> {
        self.operation.try_lock_for(OPERATION_PATIENCE).with_context(|| {
            let name = &self.description().name;
            format!("another change of volume {name} is under way, or waits for a medium: `terrace volume status {name}` shows more; try again")
        })
    }

    /// The same, if nothing changes it now.
    pub fn try_operation(&self) -> Option<parking_lot::MutexGuard<'_, ()>> {
        self.operation.try_lock()
    }

    /// What is open, if it is.
    pub fn opened(&self) -> Option<OpenDevice> {
        lock(&self.hosted).open.clone()
    }

    /// The volume, for what only one of copies can do.
    ///
    /// # Errors
    /// It is not open, or it is a place.
    pub fn mirror(&self) -> anyhow::Result<Arc<Volume>> {
        let name = self.description().name;
        match self.opened() {
            Some(OpenDevice::Mirror(volume)) => Ok(volume),
            Some(OpenDevice::Place(..)) => {
                bail!("{name} is a place for a copy of another node's volume: this is done with that volume")
            }
            None => match &lock(&self.hosted).failed {
                Some(retry) => bail!("volume {name} cannot be opened: {}", retry.why),
                None => bail!("volume {name} is not open yet: try again in a moment"),
            },
        }
    }

    /// Opens it. The caller holds [`operation`](HostedVolume::operation).
    ///
    /// # Errors
    /// Its copies do not allow it; also remembered for reports, and tried again after a pause.
    pub fn open(&self, tiers: &TierShelves, accept_loss: bool) -> anyhow::Result<OpenDevice> {
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        lock(&self.hosted).is_opening = true;
        let description = self.description();
        let opened = match description.kind {
            VolumeKind::Mirror => self.open_mirror(tiers, &description, accept_loss),
            VolumeKind::Place => self.open_place(tiers, &description),
        };
        let mut hosted = lock(&self.hosted);
        hosted.is_opening = false;
        match &opened {
            Ok(open) => (hosted.open, hosted.failed) = (Some(open.clone()), None),
            Err(error) => hosted.failed = Some(Retry::after(hosted.failed.as_ref(), format!("{error:#}"))),
        }
        opened
    }

    fn open_mirror(
        &self,
        tiers: &TierShelves,
        description: &Description,
        accept_loss: bool,
    ) -> anyhow::Result<OpenDevice> {
        // Before anything is opened: without its secret a volume is of no use.
        let options = self.options(description, accept_loss)?;
        let mut found = Vec::new();
        let (mut failures, mut opened_copies) = (Vec::new(), Vec::new());
        for (number, copy) in description.copies.iter().enumerate() {
            match places::open(tiers, copy, None) {
                Ok(opened) => {
                    self.note_medium(number, &opened);
                    found.push(opened.place);
                    opened_copies.push(number);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    failures.push(format!("copy {number}: {why}"));
                    self.note_copy(number, Some(why));
                }
            }
        }
        if found.is_empty() {
            bail!("{}", failures.join("; "));
        }
        let opened = Volume::open(found, options);
        let volume = opened.with_context(|| failures.join("; ")).map_err(|error| match failures.is_empty() {
            true => anyhow::anyhow!("{}", error.root_cause()),
            false => error,
        })?;
        opened_copies.into_iter().for_each(|number| self.note_copy(number, None));
        Ok(OpenDevice::Mirror(Arc::new(volume)))
    }

    fn open_place(&self, tiers: &TierShelves, description: &Description) -> anyhow::Result<OpenDevice> {
        let opened = places::open(tiers, &description.copies[0], None)?;
        self.note_medium(0, &opened);
        let shelf = opened.place.data;
        let (device, epochs) = (shelf.open(PLACE)?, EpochFile::open(&*shelf)?);
        lock(&self.health).check_opened(device.len(), description.bytes, epochs.current())?;
        Ok(OpenDevice::Place(device, Arc::new(epochs)))
    }

    /// The options of its volume, of a new owner; with its keys, if it is encrypted.
    ///
    /// # Errors
    /// Its secret cannot be had, or is another one.
    pub fn options(&self, description: &Description, accept_loss: bool) -> anyhow::Result<Options> {
        let defaults = Options::new(super::draw_id() as u64);
        let window_bytes = window_bytes(description.bytes);
        Ok(Options {
            keys: description.encryption.as_ref().map(EncryptionDescription::keys).transpose()?,
            window_bytes,
            segment_bytes: (window_bytes / 4).min(defaults.segment_bytes),
            accept_loss,
            prefer: description.prefer,
            upkeep_bytes_per_second: description.upkeep_bytes_per_second.unwrap_or(defaults.upkeep_bytes_per_second),
            scrub_interval: self.scrub,
            // More than that would end the process, with everything else that it serves.
            memory_bytes: crate::memory::limit().map_or(u64::MAX, |limit| limit / 10 * 9),
            ..defaults
        })
    }

    fn note_medium(&self, number: usize, opened: &places::OpenedPlace) {
        let mut hosted = lock(&self.hosted);
        let facts = &mut hosted.copies[number];
        (facts.medium, facts.real, facts.cache) = (opened.medium.clone(), opened.real, opened.cache.clone());
        facts.disks.clone_from(&opened.disks);
    }

    /// Finds out on which disks its copies lie, where nothing opens them. It may wait for a medium.
    pub fn note_disks(&self) {
        let disks: Vec<_> = self.description().copies.iter().map(places::disks_of).collect();
        lock(&self.hosted).copies.iter_mut().zip(disks).for_each(|(facts, disks)| facts.disks = disks);
    }

    fn note_copy(&self, number: usize, failed: Option<String>) {
        let mut hosted = lock(&self.hosted);
        let former = hosted.copies[number].failed.take();
        hosted.copies[number].failed = failed.map(|why| Retry::after(former.as_ref(), why));
    }

    /// Closes it: what is acknowledged is written in place, and its places are free. The caller holds
    /// [`operation`](HostedVolume::operation) and has ended its export.
    ///
    /// # Errors
    /// A copy could not be written; nothing acknowledged is lost.
    pub fn close(&self) -> anyhow::Result<()> {
        let open = lock(&self.hosted).open.take();
        match open {
            Some(OpenDevice::Mirror(volume)) => Ok(volume.close()?),
            Some(OpenDevice::Place(device, _)) => Ok(device.flush()?),
            None => Ok(()),
        }
    }

    /// Whether it is to be opened, and neither is open nor has failed to.
    pub fn is_untried(&self) -> bool {
        let hosted = lock(&self.hosted);
        self.description().state == MadeState::Ready && hosted.open.is_none() && hosted.failed.is_none()
    }

    /// Whether it failed to open and its pause is over.
    pub fn is_due(&self) -> bool {
        let hosted = lock(&self.hosted);
        hosted.open.is_none()
            && !hosted.is_opening
            && hosted.failed.as_ref().is_none_or(|retry| Instant::now() >= retry.not_before)
    }

    /// Makes copy `number` anew at `place`, which the description names already.
    ///
    /// # Errors
    /// The volume refuses, or the place failed.
    pub fn replace(&self, tiers: &TierShelves, number: u8, place: &CopyDescription) -> anyhow::Result<()> {
        let volume = self.mirror()?;
        let status = volume.status();
        let new = NewCopy { bytes: status.bytes, term: status.epoch.term() };
        let opened = places::open(tiers, place, Some(new))?;
        self.note_medium(usize::from(number), &opened);
        volume.replace(number, opened.place)?;
        self.note_copy(usize::from(number), None);
        Ok(())
    }

    /// Whether it is open and all of its copies are in sync.
    pub fn is_in_sync(&self) -> bool {
        let Some(OpenDevice::Mirror(volume)) = self.opened() else { return false };
        volume.status().copies.iter().all(|copy| copy.state == CopyState::InSync)
    }

    /// What prevents it from doing all of its work, for the operator; `None` if nothing does.
    pub fn trouble(&self) -> Option<String> {
        let description = self.description();
        if description.state != MadeState::Ready {
            return None;
        }
        if let Some(failed) = &lock(&self.hosted).failed {
            return Some(format!("volume {} cannot be opened: {}", description.name, failed.why));
        }
        let Some(OpenDevice::Mirror(volume)) = self.opened() else { return None };
        let status = volume.status();
        if let Some(epoch) = status.superseded {
            return Some(format!("volume {}: {}", description.name, taken_over(epoch)));
        }
        let away = status.copies.iter().filter(|copy| matches!(copy.state, CopyState::Missing | CopyState::Out { .. }));
        let away: Vec<String> = away.map(|copy| copy.number.to_string()).collect();
        let frozen = if status.is_frozen { ": writes wait" } else { "" };
        if !away.is_empty() {
            return Some(format!("volume {} works without copy {}{frozen}", description.name, away.join(" and ")));
        }
        (!status.has_room).then(|| format!("volume {}: {}", description.name, space::no_space(&status)))
    }

    /// Reports it, but for its export.
    pub fn report(&self) -> VolumeReport {
        let description = self.description();
        let opened = self.opened();
        let hosted = lock(&self.hosted);
        let mut report = VolumeReport {
            name: description.name.clone(),
            kind: description.kind,
            state: match (&opened, description.state) {
                (_, MadeState::Making | MadeState::Deleting) => VolumeState::Unfinished,
                (Some(_), _) => VolumeState::Open,
                (None, _) if hosted.is_opening => VolumeState::Opening,
                (None, _) if hosted.failed.is_some() => VolumeState::Failed,
                (None, _) => VolumeState::Closed,
            },
            why: hosted.failed.as_ref().map(|retry| retry.why.clone()),
            bytes: description.bytes,
            epoch: "-".to_owned(),
            min_copies: description.min_copies,
            durability: "-".to_owned(),
            is_encrypted: description.encryption.is_some(),
            is_thin: description.thin,
            copies: description
                .copies
                .iter()
                .enumerate()
                .map(|(number, copy)| copy_report(number, copy, &hosted))
                .collect(),
            same_disk: disks::shared(&hosted.copies.each_ref().map(|facts| facts.disks.clone())),
            iops: description.iops,
            bytes_per_second: description.bytes_per_second,
            export: None,
            activity: Activity::default(),
        };
        drop(hosted);
        match opened {
            Some(OpenDevice::Mirror(volume)) => add_mirror(&mut report, &volume),
            Some(OpenDevice::Place(device, epochs)) => {
                report.epoch = epochs.current().to_string();
                report.durability = device.durability().to_string();
                let health = lock(&self.health);
                report.copies[0].state = if health.failed().is_some() { "failed" } else { "open" }.to_owned();
                report.why = health.failed().map(str::to_owned);
            }
            None => {}
        }
        if description.kind == VolumeKind::Place {
            report.copies[0].failures = lock(&self.health).failures();
        }
        report
    }
}

fn taken_over(epoch: Epoch) -> String {
    format!("another owner has taken it over in epoch {epoch}: nothing is served here any more")
}

fn cache_report(cache: &CacheDescription, shelf: &CachedShelf) -> CacheReport {
    let status = shelf.status();
    let block = BLOCK_BYTES as u64;
    CacheReport {
        tier: cache.place.tier().to_owned(),
        bytes: cache.bytes,
        hit_bytes: status.read_hits * block,
        miss_bytes: status.read_misses * block,
        dirty_bytes: status.dirty_pages * u64::from(status.page_bytes),
        destaged_bytes: status.destaged_bytes,
        stalls: status.stalls,
    }
}

fn copy_report(number: usize, copy: &CopyDescription, hosted: &Hosted) -> CopyReport {
    let facts = &hosted.copies[number];
    let cache = facts.cache.as_ref().and_then(Weak::upgrade);
    CopyReport {
        number: number as u8,
        tier: copy.place.tier().to_owned(),
        journal_tier: copy.journal.as_ref().unwrap_or(&copy.place).tier().to_owned(),
        at: copy.place.text(),
        medium: facts.medium.clone(),
        real: facts.real,
        state: "unknown".to_owned(),
        behind_bytes: 0,
        why: facts.failed.as_ref().map(|retry| retry.why.clone()),
        reads: 0,
        repaired: 0,
        is_unfenced: false,
        space: None,
        cache: copy.cache.as_ref().zip(cache).map(|(cache, shelf)| cache_report(cache, &shelf)),
        failures: 0,
        read_ns: 0,
        read_times: Vec::new(),
        read_bytes: 0,
        write_times: Vec::new(),
        written_bytes: 0,
    }
}

fn add_mirror(report: &mut VolumeReport, volume: &Volume) {
    let status = volume.status();
    if !status.has_room {
        report.state = VolumeState::NoSpace;
        report.why = Some(space::no_space(&status));
    }
    if status.is_frozen {
        report.state = VolumeState::Frozen;
    }
    report.is_thin = status.is_thin;
    if let Some(epoch) = status.superseded {
        report.state = VolumeState::Superseded;
        report.why = Some(taken_over(epoch));
    }
    report.bytes = status.bytes;
    report.epoch = status.epoch.to_string();
    report.durability = volume.durability().to_string();
    for (copy, found) in report.copies.iter_mut().zip(status.copies) {
        let (state, behind) = match found.state {
            CopyState::InSync => ("in-sync", 0),
            CopyState::Syncing { left } => ("syncing", left),
            CopyState::Missing => ("missing", 0),
            CopyState::Out { behind } => ("out", behind),
        };
        (copy.state, copy.behind_bytes) = (state.to_owned(), behind);
        copy.is_unfenced = found.is_unfenced;
        copy.space = found.space.map(space::report);
        (copy.reads, copy.repaired, copy.failures, copy.read_ns) =
            (found.reads, found.repaired, found.failures, found.read_ns);
        (copy.read_times, copy.read_bytes) = (found.read_times.classes, found.read_times.bytes);
        (copy.write_times, copy.written_bytes) = (found.write_times.classes, found.write_times.bytes);
    }
    let classes = |histogram: &hdrhistogram::Histogram<u64>| {
        histogram.iter_recorded().map(|class| (class.value_iterated_to(), class.count_at_value())).collect()
    };
    report.activity = Activity {
        reads: classes(&status.reads),
        writes: classes(&status.writes),
        read_bytes: status.read_bytes,
        written_bytes: status.written_bytes,
        journaled_bytes: status.journaled_bytes,
        checkpoints: status.checkpoints,
        damaged: status.damaged,
        forged: status.forged,
        disputed: status.disputed,
        scrubbed_bytes: status.scrubbed * BLOCK_BYTES as u64,
        scrubs: status.scrubs,
    };
}

/// Makes the device and the epoch of a place.
///
/// # Errors
/// Those of the medium.
pub fn make_place(tiers: &TierShelves, description: &Description) -> anyhow::Result<()> {
    let new = NewCopy { bytes: description.bytes, term: 0 };
    let shelf = places::open(tiers, &description.copies[0], Some(new))?.place.data;
    EpochFile::create(&*shelf)?;
    shelf.create_unwritten(PLACE, description.bytes)?;
    Ok(())
}
