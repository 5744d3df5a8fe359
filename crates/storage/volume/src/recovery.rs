//! Opening: which copies count, what their journals contain, and how they become equal.
//!
//! ```text
//!   superblocks        a term is promised by enough copies; the highest epoch decides          membership
//!   each member        its tables, the images of sectors, the writes in its journal
//!   the set            without the members that cannot be opened: recorded on the others
//!   the union          of every block the latest write that any member's journal has; appended where it is missing, durable
//!   a checkpoint       the journals become empty, the tables equal; only now anything is served
//! ```
//!
//! **Why the union.** A write that was not acknowledged may be in one journal and not in another. If it stayed so, a read would
//! depend on the copy: the write could appear, then vanish (Crucible #595). The latest write of a block wins, on every copy; no mark
//! of what had been acknowledged is needed, since an acknowledged write is in every journal and the union loses nothing.
//!
//! Nothing is applied in place before every member has the union in its journal: after a crash in between, the next opening finds the
//! same union again, whichever members it finds.
//!
//! **Too few copies.** If fewer than `min_copies` members can be opened, nothing is recorded, appended or written in place: a missing
//! member may have other writes in its journal. Blocks in place are read; a block that a journal contains is refused, since its write
//! may have been acknowledged or not. The volume must be opened again with more copies. A member that was
//! being brought up to date is not missing in this sense: it has no acknowledged write that the others lack. So a resync of the last
//! copies that `min_copies` needs can be resumed.
//!
//! **Sums.** For a block without a write in the union the members must agree. Where they do not, a sector of a table is lost or is
//! older than it should be: the sum that most members give and whose block matches it wins; the others are repaired like damage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc;

use device::BLOCK_BYTES;
use journal::Record;

use crate::checkpoint;
use crate::checksum::Sum;
use crate::copy::{self, VolumeCopy};
use crate::core::Core;
use crate::encryption::VolumeKeys;
use crate::error::VolumeError;
use crate::geometry::{Content, Geometry, SECTOR};
use crate::mark::{BlockMark, entry_bytes};
use crate::members::{Epoch, Members, Set};
use crate::membership::{self, Refusal, decide};
use crate::options::{Options, Place, Threads};
use crate::overlay::{Fresh, Stored};
use crate::record::{Found, HEAD, Head, ZEROES, encode_marks};
use crate::rules::{Rule, obeys};
use crate::superblock::{SUPERBLOCK, Superblock};
use crate::tables::{self, StoredTables, Tables};
use crate::workers::Workers;

/// How many openings a copy may have seen that none of the others has: as far as a place of another node lets its epoch be raised.
const TERMS_AHEAD_MAX: u64 = 1 << 20;

/// The latest write of each block.
type Writes = HashMap<u64, Fresh>;

/// A member with what it has stored.
struct Member {
    copy: Arc<VolumeCopy>,
    tables: StoredTables,
    writes: Writes,
}

/// Opens a volume from the places that are there.
pub(crate) fn open(places: Vec<Place>, options: Options) -> Result<Core, VolumeError> {
    options.check()?;
    let workers = Arc::default();
    let found = promised(places, &workers, &options)?;
    let superblocks: Vec<Superblock> = found.iter().map(|(_, superblock)| superblock.clone()).collect();
    let (set, usable) = decide(&superblocks, options.accept_loss).map_err(|refusal| refused(&superblocks, refusal))?;
    let syncing = superblocks.iter().filter(|superblock| superblock.is_syncing);
    let syncing = syncing.fold(Members::NONE, |all, superblock| all.with(superblock.copy));
    let promised = superblocks[0].promised;
    let parts = parts_of(&superblocks, usable);
    options.check_memory(&parts, superblocks[0].is_encrypted, superblocks[0].copies)?;
    let geometry = Geometry::new(&parts, superblocks[0].is_encrypted);
    let mut members = Vec::new();
    let mut failure = None;
    let (mut started, mut hanging) = (Vec::new(), Vec::new());
    for (place, mut superblock) in found.into_iter().filter(|(_, superblock)| usable.has(superblock.copy)) {
        superblock.parts.clone_from(&parts);
        let (number, geometry, settings) = (superblock.copy, geometry.clone(), options.clone());
        let under_way = Arc::new(());
        hanging.push((number, Arc::downgrade(&under_way)));
        let work = move || {
            let _until_it_ends = under_way;
            load(place, &superblock, &geometry, &settings)
        };
        started.push((number, start(&workers, &options, work)?));
    }
    for (number, reported) in started {
        match reported.recv_timeout(options.checkpoint_timeout).unwrap_or(Err(VolumeError::Stalled(number))) {
            Ok(member) => members.push(member),
            Err(error) => {
                tracing::warn!(copy = number, %error, "a copy of the volume cannot be opened");
                failure = Some(error);
            }
        }
    }
    let working = members.iter().fold(Members::NONE, |all, member| all.with(member.copy.number));
    let is_fenced = members.iter().any(|member| !member.copy.is_unfenced());
    let core = begin(&superblocks[0], &geometry, set, (promised, working), options, failure)?;
    if !is_fenced && !core.options.accept_loss {
        return Err(VolumeError::OnlyUnfenced);
    }
    hanging.into_iter().for_each(|(number, under_way)| core.is_leaving(number, under_way));
    for member in &members {
        core.observe(&member.copy)?;
        core.attach(member.copy.clone(), false);
    }
    core.begin(set, working)?;
    if core.is_frozen() && !set.in_sync.minus(working).minus(syncing).is_empty() {
        core.keep_journals();
    }
    make_equal(&core, members)?;
    Ok(core)
}

/// Reads the superblocks and makes their copies promise a new term.
fn promised(
    places: Vec<Place>,
    workers: &Arc<Workers>,
    options: &Options,
) -> Result<Vec<(Place, Superblock)>, VolumeError> {
    let mut found: Vec<(Place, Superblock)> = Vec::new();
    let mut failure = None;
    let look = |place: Place| {
        let looked = place.clone();
        start(workers, options, move || copy::peek(&looked)).map(|reported| (place, reported))
    };
    let started = places.into_iter().map(look).collect::<Result<Vec<_>, _>>()?;
    for (index, (place, reported)) in started.into_iter().enumerate() {
        match reported.recv_timeout(options.checkpoint_timeout).unwrap_or(Err(VolumeError::Stalled(index as u8))) {
            Ok(superblock) => found.push((place, superblock)),
            Err(error @ VolumeError::Version { .. }) => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    let Some((_, first)) = found.first() else {
        return Err(failure.unwrap_or(VolumeError::Options("a volume has one to three copies")));
    };
    let first = first.clone();
    for (index, (_, other)) in found.iter().enumerate() {
        if other.volume != first.volume {
            return Err(foreign(&other.volume, &first.volume));
        }
        VolumeKeys::check_all(options.keys.as_deref(), other.encryption())?;
        if (other.copies, other.min_copies) != (first.copies, first.min_copies) {
            let why = "the copies do not say the same about how many there are, and how many are needed";
            return Err(VolumeError::Format { name: SUPERBLOCK.to_owned(), why });
        }
        if found[..index].iter().any(|(_, earlier)| earlier.copy == other.copy) {
            return Err(VolumeError::Twice(other.copy));
        }
    }
    leave_far_ones_out(&mut found);
    let needed = membership::needed(first.copies, first.min_copies);
    let quorum = |found: usize| VolumeError::Quorum { found: found as u8, needed, copies: first.copies };
    if found.len() < needed as usize && !options.accept_loss {
        return Err(quorum(found.len()));
    }
    let term = found.iter().map(|(_, superblock)| seen(superblock)).max().unwrap_or(0) + 1;
    let mut willing = promise_all(&found, term, workers, options)?;
    if willing.len() < found.len() {
        // A fence may have been raised by an owner that died before it wrote the superblock: only a later term comes after that one.
        willing = promise_all(&found, term + 1, workers, options)?;
    }
    if willing.is_empty() || (willing.len() < needed as usize && !options.accept_loss) {
        return Err(quorum(willing.len()));
    }
    Ok(willing)
}

/// The highest term that a copy knows of.
fn seen(superblock: &Superblock) -> u64 {
    superblock.promised.term().max(superblock.set.epoch.term())
}

/// Leaves out copies whose term is of no owner. The next term is promised by all copies: one that comes after such a term would leave
/// them none in the end, also without that copy.
fn leave_far_ones_out(found: &mut Vec<(Place, Superblock)>) {
    let nearest = found.iter().map(|(_, superblock)| seen(superblock)).min().unwrap_or(0);
    found.retain(|(_, superblock)| {
        let (copy, term) = (superblock.copy, seen(superblock));
        let is_near = term - nearest <= TERMS_AHEAD_MAX;
        if !is_near {
            tracing::error!(
                copy,
                term,
                nearest,
                "a copy claims a term that no owner can have had, and is left out: replace it"
            );
        }
        is_near
    });
}

/// Makes copies promise a term; returns those that did, in time.
fn promise_all(
    found: &[(Place, Superblock)],
    term: u64,
    workers: &Arc<Workers>,
    options: &Options,
) -> Result<Vec<(Place, Superblock)>, VolumeError> {
    let promised = Epoch::of_term(term, membership::mint(options.owner, term));
    let mut willing = Vec::new();
    let ask = |(place, _): &(Place, Superblock)| {
        let asked = place.clone();
        start(workers, options, move || copy::promise(&asked, promised))
    };
    let started = found.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
    for ((place, superblock), reported) in found.iter().zip(started) {
        let stalled = Err(VolumeError::Stalled(superblock.copy));
        match reported.recv_timeout(options.checkpoint_timeout).unwrap_or(stalled) {
            Ok(superblock) => willing.push((place.clone(), superblock)),
            Err(error @ VolumeError::Fenced { .. }) => return Err(error),
            Err(error) => tracing::warn!(%error, "a copy of the volume cannot promise a term"),
        }
    }
    Ok(willing)
}

/// Starts a call on a place, or does it at once if the volume has no threads: one that hangs does not keep the others from being opened.
fn start<T: Send + 'static>(
    workers: &Arc<Workers>,
    options: &Options,
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<mpsc::Receiver<Result<T, VolumeError>>, VolumeError> {
    let (report, reported) = mpsc::channel();
    // If nobody waits any more, the copy is left out.
    let run = move || drop(report.send(work()));
    match options.threads {
        Threads::Callers => run(),
        Threads::Background => workers.run(run).map_err(VolumeError::Thread)?,
    }
    Ok(reported)
}

pub(crate) fn foreign(found: &[u8; 16], expected: &[u8; 16]) -> VolumeError {
    let hex = |bytes: &[u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    VolumeError::Foreign { found: hex(found), expected: hex(expected) }
}

fn refused(superblocks: &[Superblock], refusal: Refusal) -> VolumeError {
    match refusal {
        Refusal::Quorum { found, needed } => VolumeError::Quorum { found, needed, copies: superblocks[0].copies },
        Refusal::OnlyUnfenced => VolumeError::OnlyUnfenced,
        Refusal::Diverged => VolumeError::Diverged,
        Refusal::NoneInSync(set) => {
            VolumeError::NoneInSync { epoch: set.epoch.number, in_sync: set.in_sync.to_string() }
        }
    }
}

/// The parts that all members have: growing that was interrupted is not finished.
fn parts_of(superblocks: &[Superblock], usable: Members) -> Vec<u64> {
    let members = superblocks.iter().filter(|superblock| usable.has(superblock.copy));
    members.map(|superblock| &superblock.parts).min_by_key(|parts| parts.len()).expect("there is a member").clone()
}

/// The state of the opened volume, with nothing attached yet.
fn begin(
    first: &Superblock,
    geometry: &Geometry,
    set: Set,
    (promised, working): (Epoch, Members),
    options: Options,
    failure: Option<VolumeError>,
) -> Result<Core, VolumeError> {
    if working.is_empty() {
        return Err(failure.expect("no member was opened, so one has failed"));
    }
    let found = Superblock { promised, ..first.clone() };
    Core::new(options, &found, Tables::new(geometry.clone()), set)
}

/// Opens a member and reads what it has stored.
fn load(place: Place, found: &Superblock, geometry: &Geometry, options: &Options) -> Result<Member, VolumeError> {
    let copy = VolumeCopy::open(place, found, options)?;
    let mut tables = StoredTables::new(geometry);
    copy.read_tables(&mut |number, sector| tables.load(number, sector));
    let mut writes = Writes::new();
    for record in copy.journal.read(copy.journal.first()) {
        visit(&record?, geometry, &mut tables, &mut writes)?;
    }
    let unknown = tables.finish();
    if unknown > 0 {
        tracing::warn!(copy = copy.number, unknown, "sectors of tables are damaged");
    }
    Ok(Member { copy: Arc::new(copy), tables, writes })
}

/// The blocks of writes in a journal: those that a copy that returns may have and others not.
pub(crate) fn blocks_in_journal(copy: &VolumeCopy, geometry: &Geometry) -> Result<Vec<u64>, VolumeError> {
    let (mut tables, mut writes) = (StoredTables::new(geometry), Writes::new());
    for record in copy.journal.read(copy.journal.first()) {
        visit(&record?, geometry, &mut tables, &mut writes)?;
    }
    Ok(writes.into_keys().collect())
}

fn visit(
    record: &Record,
    geometry: &Geometry,
    tables: &mut StoredTables,
    writes: &mut Writes,
) -> Result<(), VolumeError> {
    let mut take = |head: Head, stored: &mut dyn FnMut(usize) -> Stored| {
        for index in 0..head.blocks as usize {
            let block = head.first + index as u64;
            if writes.get(&block).is_none_or(|known| known.order < head.order) {
                writes.insert(block, Fresh { order: head.order, stored: stored(index) });
            }
        }
    };
    match Found::decode(record.kind, &record.payload, geometry.blocks(), geometry.is_encrypted) {
        Some(Found::Write(head, marks, bytes)) => {
            let entry = entry_bytes(geometry.is_encrypted);
            take(head, &mut |index| {
                let mark = BlockMark::decode(&marks[index * entry..][..entry]);
                Stored::Bytes(Arc::from(&bytes[index * BLOCK_BYTES..][..BLOCK_BYTES]), mark.seal)
            });
        }
        Some(Found::Zeroes(head)) => take(head, &mut |_| Stored::Zeroes { free: head.is_free }),
        Some(Found::Sectors(sectors)) => {
            for sector in sectors.chunks_exact(SECTOR) {
                if let Some(number) = tables::number_of(sector) {
                    tables.load_image(number, sector);
                }
            }
        }
        None => {
            let why = "a record that is none of this volume";
            return Err(VolumeError::Format { name: format!("journal, at {}", record.lsn), why });
        }
    }
    Ok(())
}

/// Makes the members equal, then empties their journals.
fn make_equal(core: &Core, members: Vec<Member>) -> Result<(), VolumeError> {
    let mut union: BTreeMap<u64, Fresh> = BTreeMap::new();
    for (block, fresh) in members.iter().flat_map(|member| &member.writes) {
        if union.get(block).is_none_or(|known| is_better(core, *block, known, fresh)) {
            union.insert(*block, fresh.clone());
        }
    }
    if core.is_unequal() {
        // Nothing is appended: see the head comment.
    } else if obeys(Rule::Equal) {
        for member in &members {
            let missing: Vec<(u64, Fresh)> = union
                .iter()
                .filter(|(block, fresh)| member.writes.get(block).is_none_or(|known| known.order != fresh.order))
                .map(|(block, fresh)| (*block, fresh.clone()))
                .collect();
            let (copy, is_encrypted) = (member.copy.clone(), core.is_encrypted());
            let work = move || append_missing(&copy, is_encrypted, &missing);
            // It may hang since it was read.
            if let Err(why) = core.in_time(member.copy.number, core.options.checkpoint_timeout, work) {
                core.fail(&member.copy, &why)?;
            }
        }
    } else {
        return apply_each_alone(core, &members);
    }
    if core.is_unequal() {
        merge_tables(core, &members, &BTreeMap::new());
        // What is in place was visible once, so a write that is equal to it was acknowledged.
        union.retain(|block, fresh| core.tables.mark(*block) != mark_of(&fresh.stored));
        union.into_iter().for_each(|(block, fresh)| core.overlay.put(block, fresh));
        return Ok(());
    }
    merge_tables(core, &members, &union);
    let out = Members::first(core.copies).minus(core.working());
    for (block, fresh) in union {
        let mark = mark_of(&fresh.stored);
        core.overlay.put(block, fresh);
        core.tables.set_mark(block, &mark);
        out.iter().for_each(|number| core.tables.mark_dirty(number, block));
    }
    drop(members);
    checkpoint::checkpoint(core)
}

fn mark_of(stored: &Stored) -> BlockMark {
    match stored {
        Stored::Bytes(bytes, seal) => BlockMark { sum: Sum::of(bytes), seal: *seal },
        Stored::Zeroes { .. } => BlockMark::NONE,
    }
}

/// Whether a write of a block counts before another one: the later one does. Of one write that two journals have differently, which a
/// medium does not do to a record whose checksums match, the bytes that open with their seal.
fn is_better(core: &Core, block: u64, known: &Fresh, other: &Fresh) -> bool {
    if known.order != other.order || !core.is_encrypted() {
        return known.order < other.order;
    }
    let verifies = |stored: &Stored| match stored {
        Stored::Bytes(bytes, _) => core.matches(block, bytes, &mark_of(stored)),
        Stored::Zeroes { .. } => false,
    };
    let is_equal = match (&known.stored, &other.stored) {
        (Stored::Bytes(one, seal), Stored::Bytes(two, other)) => seal == other && one == two,
        (Stored::Zeroes { .. }, Stored::Zeroes { .. }) => true,
        _ => false,
    };
    !is_equal && !verifies(&known.stored) && verifies(&other.stored)
}

/// Appends the writes that a journal lacks, under their own order, and makes them durable.
fn append_missing(copy: &VolumeCopy, is_encrypted: bool, missing: &[(u64, Fresh)]) -> Result<(), VolumeError> {
    for (block, fresh) in missing {
        let is_free = matches!(fresh.stored, Stored::Zeroes { free: true });
        let head: [u8; HEAD] = Head { order: fresh.order, first: *block, blocks: 1, is_free }.encode();
        match &fresh.stored {
            Stored::Bytes(bytes, _) => {
                let (kind, mark) = encode_marks(&[mark_of(&fresh.stored)], is_encrypted);
                copy.journal.append(kind, &[&head, &mark, bytes])?
            }
            Stored::Zeroes { .. } => copy.journal.append(ZEROES, &[&head])?,
        };
    }
    Ok(copy.journal.commit(copy.journal.appended())?)
}

/// Fills the tables of the volume from those of the members.
fn merge_tables(core: &Core, members: &[Member], union: &BTreeMap<u64, Fresh>) {
    let tables = &core.tables;
    for sector in 0..tables.geometry.sectors() {
        match tables.geometry.content(sector) {
            Content::Sums { first, count } => {
                for block in (first..first + count).filter(|block| !union.contains_key(block)) {
                    let mut marks = members.iter().map(|member| member.tables.mark(block));
                    let first = marks.next().expect("there is a member");
                    if marks.all(|mark| mark == first) {
                        tables.load_mark(block, &first);
                    } else {
                        tables.set_mark(block, &settle(core, members, block));
                    }
                }
            }
            Content::Dirty { copy, first, count } => {
                let is_out = copy < core.copies && !core.working().has(copy);
                for region in (first..first + count).filter(|_| is_out) {
                    if members.iter().any(|member| member.tables.dirty[copy as usize].get(region)) {
                        tables.load_dirty(copy, region);
                    }
                }
                // Members may differ, and a copy that works has no dirty region: stored anew on all.
                let is_marked = members
                    .iter()
                    .any(|member| (first..first + count).any(|region| member.tables.dirty[copy as usize].get(region)));
                if is_marked {
                    tables.restore_changed(&[sector]);
                }
            }
        }
    }
    // The checkpoint that follows empties the journals: their images must be in place by then, also of sectors without a write in the union.
    members.iter().for_each(|member| tables.restore_changed(&member.tables.imaged));
}

/// What members say of a block, how many say so, and whether the block of one of them matches it.
type Vote = (BlockMark, usize, bool);

/// The sum of a block about which members disagree: of the most members, and one that the block matches before one that it does not.
fn settle(core: &Core, members: &[Member], block: u64) -> BlockMark {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut votes: Vec<Vote> = Vec::new();
    for member in members {
        let mark = member.tables.mark(block);
        if mark.sum == Sum::UNKNOWN {
            continue;
        }
        // One that does not answer is asked once, and excluded.
        let is_there = mark.sum != Sum::NONE
            && core.copy(member.copy.number).is_some()
            && core.read_copy(&member.copy, block, &mut buffer).is_ok();
        let matches = is_there && core.matches(block, &buffer, &mark);
        match votes.iter_mut().find(|(other, ..)| *other == mark) {
            Some((_, count, verified)) => {
                *count += 1;
                *verified |= matches;
            }
            None => votes.push((mark, 1, matches)),
        }
    }
    if votes.len() > 1 {
        core.metrics.disputed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tracing::warn!(block, "the copies disagree about the sum of a block");
    }
    let best = if core.is_encrypted() { best_sealed(votes) } else { best_of(votes) };
    best.map_or(BlockMark::UNKNOWN, |(mark, ..)| mark)
}

/// That of the most members; of those, one that the block matches.
fn best_of(votes: Vec<Vote>) -> Option<Vote> {
    votes.into_iter().rev().max_by_key(|(_, count, verified)| (*count, *verified))
}

/// Of sealed blocks one whose seal matches its bytes, and the newest of these: who has no key cannot make one, however many copies are
/// changed. Whether the block has content at all is decided by the most members.
fn best_sealed(votes: Vec<Vote>) -> Option<Vote> {
    let (empty, sealed): (Vec<Vote>, Vec<Vote>) = votes.into_iter().partition(|(mark, ..)| mark.sum == Sum::NONE);
    let members = sealed.iter().map(|(_, count, _)| count).sum();
    let newest =
        |(mark, count, verified): &Vote| (*verified, if *verified { mark.seal.version() } else { (0, 0) }, *count);
    let best = sealed.into_iter().rev().max_by_key(newest).map(|(mark, _, verified)| (mark, members, verified));
    best_of(empty.into_iter().chain(best).collect())
}

/// Rule 3 left out: each copy applies its own journal, and the first one's tables count.
fn apply_each_alone(core: &Core, members: &[Member]) -> Result<(), VolumeError> {
    for member in members.iter().rev() {
        for (block, fresh) in &member.writes {
            if let Stored::Bytes(bytes, _) = &fresh.stored {
                member.copy.write(*block, bytes)?;
                core.tables.set_mark(*block, &mark_of(&fresh.stored));
            }
        }
    }
    let empty = BTreeMap::new();
    merge_tables(core, &members[..1], &empty);
    for (block, fresh) in &members[0].writes {
        if let Stored::Bytes(..) = &fresh.stored {
            core.tables.set_mark(*block, &mark_of(&fresh.stored));
        }
    }
    checkpoint::checkpoint(core)
}
