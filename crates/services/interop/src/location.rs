//! Where a node's journal lies, and the note of it in the data directory that keeps a changed setting from losing it.
//!
//! ```text
//! DATA/placement.json   {"version": 1, "journal": {"tier": "pmem", "kind": "pmem", "folder": "/mnt/pmem0/node/journal"}, "made": true}
//! DATA/journal/         where the journal lies when there is no such file
//! ```
//!
//! The note is written, durably, before the journal is made, and says `made` once it is. Whoever reads a data directory
//! (`message list`, `verify`, a bench that counts) follows it. Before a node opens its journal, the note, the settings and
//! what lies on the media are compared:
//!
//! | noted | settings say | at the noted place | at the wanted place | then |
//! |---|---|---|---|---|
//! | P, not made | P | anything | | open |
//! | P, made | P | a journal | | open |
//! | P, made | P | nothing | | refuse: the medium is not mounted, or the journal is lost |
//! | P | Q | a journal | anything | refuse: two places, and messages at the old one |
//! | P, made | Q | nothing | a journal | open: somebody moved it |
//! | P, made | Q | nothing | nothing | refuse, as above |
//! | P, not made | Q | nothing | anything | open |
//!
//! Without a note P is `DATA/journal`, made if one lies there. A journal in memory is never "made": it is gone with its
//! node, and there is nothing to protect.
//!
//! All of it happens under a lock of the data directory ([`Hold`]), which the node keeps: the lock of the journal is no
//! help against a second node that would have its journal elsewhere.
//!
//! It deliberately does not move a journal: that is copying files while the node is stopped, which the errors say.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use device::{DeviceError, FileShelf, Shelf};
use serde::{Deserialize, Serialize};

use crate::error::InteropError;

/// Folder of the journal below the node's data directory, where nothing else is said.
pub const JOURNAL: &str = "journal";

/// The note's file name, below the data directory.
pub const NOTE: &str = "placement.json";

/// The lock's file name, below the data directory. It holds the process number of the node that runs there.
const LOCK: &str = "node.lock";

/// Version of the note that this release writes and reads.
const VERSION: u32 = 1;

/// Where a journal lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The tier's name.
    pub tier: String,
    /// The tier's kind: `file`, `pmem` or `memory`.
    pub kind: String,
    /// The folder that holds the journal's devices, relative to the data directory or absolute. None: in the memory of
    /// the node's process, where nobody else can read it.
    pub folder: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    journal: Location,
    made: bool,
}

/// A data directory that is one node's, until this is dropped.
#[derive(Debug)]
pub struct Hold {
    _file: File,
}

impl Hold {
    /// Makes the data directory where it is absent, durably, and takes it.
    ///
    /// # Errors
    /// `Device` with `Busy` where another node runs on it; `File`.
    pub fn take(data: &Path) -> Result<Hold, InteropError> {
        device::os::make_directory(data).map_err(InteropError::file("make", data))?;
        let path = data.join(LOCK);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(InteropError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Whoever holds it may not have written its number yet.
                let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DeviceError::Busy { shelf: data.display().to_string(), holder }.into());
            }
            Err(TryLockError::Error(source)) => return Err(InteropError::File { action: "lock", path, source }),
        }
        // Advice for whoever comes second: a full disk has no room for it, and what is queued must go out all the same.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Hold { _file: file })
    }
}

impl Location {
    /// `DATA/journal` on files, in the tier that every node has: its data directory.
    pub fn home() -> Location {
        Location { tier: "home".into(), kind: "file".into(), folder: Some(PathBuf::from(JOURNAL)) }
    }

    /// The folder as one path, for the data directory `data`.
    pub fn folder_in(&self, data: &Path) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| data.join(folder))
    }

    /// How it is named to people.
    fn describe(&self, data: &Path) -> String {
        match self.folder_in(data) {
            Some(folder) => format!("{} (tier {})", folder.display(), self.tier),
            None => format!("memory (tier {})", self.tier),
        }
    }

    /// Two texts may name one folder: a relative path, a link.
    fn is_same_place(&self, other: &Location, data: &Path) -> bool {
        let plain = |location: &Location| {
            location.folder_in(data).map(|folder| {
                let absolute = std::path::absolute(&folder).unwrap_or(folder);
                fs::canonicalize(&absolute).unwrap_or(absolute)
            })
        };
        plain(self) == plain(other)
    }

    fn holds_journal(&self, data: &Path) -> Result<bool, InteropError> {
        let Some(folder) = self.folder_in(data) else { return Ok(false) };
        match FileShelf::open_read_only(&folder).and_then(|shelf| shelf.list()) {
            Ok(devices) => Ok(!devices.is_empty()),
            Err(DeviceError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The folder of the journal of the node whose data directory is `data`: noted, or `DATA/journal`.
///
/// # Errors
/// `NoData` where no node has kept data, `JournalMissing` where the noted folder is not there, `InMemory` where the journal
/// lies in its node's memory, `Note` where the note cannot be read.
pub fn journal_folder(data: &Path) -> Result<PathBuf, InteropError> {
    let note = read(data)?;
    let location = note.as_ref().map_or_else(Location::home, |note| note.journal.clone());
    match location.folder_in(data) {
        None => Err(InteropError::InMemory { tier: location.tier }),
        Some(folder) if folder.is_dir() => Ok(folder),
        Some(_) if note.is_some() => {
            Err(InteropError::JournalMissing { noted: location.describe(data), note: data.join(NOTE) })
        }
        Some(_) => Err(InteropError::NoData { path: data.to_owned() }),
    }
}

/// Decides whether a node may use `wanted`, and notes it before anything is made there. The caller holds the data directory.
///
/// # Errors
/// `JournalElsewhere`, `JournalMissing`; `Note` and `File` where the note cannot be read or written.
pub fn claim(data: &Path, wanted: &Location) -> Result<(), InteropError> {
    let note = read(data)?;
    let home = Location::home();
    let noted = note.as_ref().map_or(&home, |note| &note.journal);
    let there = noted.holds_journal(data)?;
    let facts = Facts {
        same: noted.is_same_place(wanted, data),
        made: note.as_ref().map_or(there, |note| note.made),
        there,
        here: wanted.holds_journal(data)?,
    };
    match facts.decide() {
        Decision::Open if note.is_none() && facts.same => Ok(()),
        Decision::Open => write(data, wanted, facts.here || (facts.same && facts.made)),
        Decision::Elsewhere => {
            Err(InteropError::JournalElsewhere { noted: noted.describe(data), wanted: wanted.describe(data) })
        }
        Decision::Missing => Err(InteropError::JournalMissing { noted: noted.describe(data), note: data.join(NOTE) }),
    }
}

/// Notes that the journal is made; a journal that is not there later is then known to be missing.
///
/// # Errors
/// `Note`, `File`.
pub fn made(data: &Path, location: &Location) -> Result<(), InteropError> {
    match read(data)? {
        Some(note) if !note.made && location.folder.is_some() => write(data, location, true),
        _ => Ok(()),
    }
}

/// What is compared; the module's table without the places' names.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Note and settings mean one place.
    same: bool,
    /// A journal was made at the noted place.
    made: bool,
    /// One lies there.
    there: bool,
    /// One lies at the wanted place.
    here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Open,
    Elsewhere,
    Missing,
}

impl Facts {
    fn decide(self) -> Decision {
        match self {
            Facts { same: false, there: true, .. } => Decision::Elsewhere,
            Facts { same: true, made: true, there: false, .. } => Decision::Missing,
            Facts { same: false, made: true, there: false, here: false } => Decision::Missing,
            _ => Decision::Open,
        }
    }
}

fn read(data: &Path) -> Result<Option<Note>, InteropError> {
    let path = data.join(NOTE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(InteropError::File { action: "read", path, source }),
    };
    match serde_json::from_str::<Note>(&text) {
        Ok(note) if note.version == VERSION => Ok(Some(note)),
        Ok(note) => Err(InteropError::Note { path, problem: format!("version {} is not {VERSION}", note.version) }),
        Err(error) => Err(InteropError::Note { path, problem: error.to_string() }),
    }
}

/// Whole and durable, or as it was; nothing where it says the same already.
fn write(data: &Path, journal: &Location, made: bool) -> Result<(), InteropError> {
    let path = data.join(NOTE);
    let part = data.join(".placement.json.part");
    let note = Note { version: VERSION, journal: journal.clone(), made: made && journal.folder.is_some() };
    if read(data)?.as_ref() == Some(&note) {
        // It says so already, and there may be no room to say it again. A process that was killed may have left its name
        // not durable.
        return File::open(data).and_then(|data| data.sync_all()).map_err(InteropError::file("sync", data));
    }
    let text = serde_json::to_string_pretty(&note).expect("plain data becomes JSON");
    let written = || {
        let mut file = File::create(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(data)?.sync_all()
    };
    written().map_err(InteropError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(folder: &Path) -> Location {
        Location { tier: "pmem".into(), kind: "pmem".into(), folder: Some(folder.to_owned()) }
    }

    fn make_journal(folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("00000001.seg"), [0; 4096]).expect("a file");
    }

    #[test]
    fn every_combination_of_facts_has_the_decision_of_the_table() {
        use Decision::{Elsewhere, Missing, Open};
        // same, made, there, here
        let table = [
            ([true, false, false, false], Open),
            ([true, false, true, true], Open),
            ([true, true, true, true], Open),
            ([true, true, false, false], Missing),
            ([false, false, false, false], Open),
            ([false, false, false, true], Open),
            ([false, false, true, false], Elsewhere),
            ([false, false, true, true], Elsewhere),
            ([false, true, true, false], Elsewhere),
            ([false, true, true, true], Elsewhere),
            ([false, true, false, true], Open),
            ([false, true, false, false], Missing),
        ];
        for ([same, made, there, here], wanted) in table {
            let facts = Facts { same, made, there, here };
            assert_eq!(facts.decide(), wanted, "{facts:?}");
        }
    }

    #[test]
    fn a_journal_at_its_usual_place_leaves_no_note_and_is_found() {
        let data = tempfile::tempdir().expect("a folder");
        claim(data.path(), &Location::home()).expect("nothing is there yet");
        make_journal(&data.path().join(JOURNAL));
        claim(data.path(), &Location::home()).expect("it is where it was");
        made(data.path(), &Location::home()).expect("nothing to note");
        assert!(!data.path().join(NOTE).exists());
        assert_eq!(journal_folder(data.path()).expect("found"), data.path().join(JOURNAL));
    }

    #[test]
    fn readers_follow_a_journal_to_another_tier() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
    }

    #[test]
    fn a_setting_that_points_away_from_a_journal_is_refused_until_its_files_are_moved() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        make_journal(&data.path().join(JOURNAL));
        let there = at(&medium.path().join("journal"));
        let refused = claim(data.path(), &there).expect_err("the journal lies at home");
        assert!(matches!(refused, InteropError::JournalElsewhere { .. }), "{refused}");
        assert!(refused.to_string().contains("move"), "{refused}");
        fs::rename(data.path().join(JOURNAL), medium.path().join("journal")).expect("moved");
        claim(data.path(), &there).expect("it was moved");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
        let refused = claim(data.path(), &Location::home()).expect_err("and back needs a move as well");
        assert!(matches!(refused, InteropError::JournalElsewhere { .. }), "{refused}");
    }

    #[test]
    fn a_journal_whose_medium_is_not_mounted_is_not_begun_anew() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        claim(data.path(), &there).expect("a start that failed before the journal was made can be repeated");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        claim(data.path(), &there).expect("it is there");
        fs::remove_dir_all(medium.path().join("journal")).expect("unmounted");
        for wanted in [there, Location::home()] {
            let refused = claim(data.path(), &wanted).expect_err("it was made and is not there");
            assert!(matches!(refused, InteropError::JournalMissing { .. }), "{refused}");
            assert!(refused.to_string().contains("mounted"), "{refused}");
        }
    }

    #[test]
    fn a_start_that_changes_nothing_needs_no_room_for_another_note() {
        use std::os::unix::fs::MetadataExt;
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        let file = || fs::metadata(data.path().join(NOTE)).expect("it is there").ino();
        let before = file();
        claim(data.path(), &there).expect("it is there");
        assert_eq!(file(), before, "the same file, not written anew");
    }

    #[test]
    fn a_journal_in_memory_is_noted_cannot_be_read_from_outside_and_hinders_nothing_later() {
        let data = tempfile::tempdir().expect("a folder");
        let memory = Location { tier: "dram".into(), kind: "memory".into(), folder: None };
        claim(data.path(), &memory).expect("nothing is there yet");
        made(data.path(), &memory).expect("nothing to note");
        let refused = journal_folder(data.path()).expect_err("it is in another process");
        assert!(matches!(refused, InteropError::InMemory { .. }), "{refused}");
        claim(data.path(), &memory).expect("again");
        claim(data.path(), &Location::home()).expect("what was in memory is gone");
    }

    #[test]
    fn a_data_directory_is_one_nodes_and_made_with_its_ancestors() {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("a/b");
        let hold = Hold::take(&data).expect("nobody has it");
        let refused = Hold::take(&data).expect_err("it is held");
        let holder = Some(std::process::id());
        assert!(
            matches!(&refused, InteropError::Device(DeviceError::Busy { holder: h, .. }) if *h == holder),
            "{refused}"
        );
        drop(hold);
        Hold::take(&data).expect("it is free again");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_an_error_and_not_taken_for_none() {
        let data = tempfile::tempdir().expect("a folder");
        for text in [
            "",
            "{",
            "{\"version\": 9, \"journal\": {\"tier\": \"x\", \"kind\": \"file\", \"folder\": null}, \"made\": true}",
        ] {
            fs::write(data.path().join(NOTE), text).expect("a file");
            let refused = claim(data.path(), &Location::home()).expect_err("it is no note");
            assert!(matches!(refused, InteropError::Note { .. }), "{refused}");
            assert!(journal_folder(data.path()).is_err());
        }
    }
}
